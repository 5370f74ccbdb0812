// Compilation of kernels to objects. Each kernel has an LLVM context and module of its own, so that
// its object depends on the kernel and the machine only, and not on the thread or order. If there
// are very many kernels, several share a module (together.c), because LLVM takes longer to start a
// module than to compile a small kernel.
#include "target/cpu/cpu.h"
#include "support/reserve.h"
#include "support/thread.h"
#include "target/cpu/together.h"

#include <llvm-c/Analysis.h>
#include <llvm-c/Error.h>
#include <llvm-c/Target.h>
#include <llvm-c/Transforms/PassBuilder.h>

#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

// Emitted code keeps registers in memory and repeats expressions that unrolled copies share; other
// optimisations of LLVM have no use after scheduling.
static const char all_passes[] = "function(sroa,early-cse<memssa>,loop-mssa(licm),"
                                 "instcombine<no-verify-fixpoint>,simplifycfg)";
// For many short kernels.
static const char quick_passes[] = "function(sroa,early-cse<memssa>)";

// The result of one module.
typedef struct compiled {
  kiln_object object;
  kiln_diag *diag;
  kiln_status status;
  char *llvm_text, *asm_text; // malloc'ed
} compiled;

// Shared by the workers; each takes the next module.
typedef struct work {
  const kiln_ctx *from;
  const kiln_machine *machine;
  kiln_loops *const *kernels;
  const char *const *symbols;
  const kiln_cpu_options *options;
  kiln_cpu_modules modules;
  const int *order; // [modules.n] the slowest to compile first
  atomic_int next;  // in |order|
  compiled *out;    // [modules.n]
} work;

// A module, with the target machines of its worker: the optimising one, and the quick one.
typedef struct job {
  const work *w;
  int id;
  LLVMTargetMachineRef tms[2];
} job;

void kiln_object_deinit(kiln_object *o) {
  free(o->data);
  *o = (kiln_object){0};
}

// --- one module ---

void kiln_cpu_module_deinit(void *object) {
  kiln_cpu_module *m = object;
  kiln_cpu_lines_deinit(m);
  if (m->builder) LLVMDisposeBuilder(m->builder);
  if (m->module) LLVMDisposeModule(m->module);
  if (m->llvm) LLVMContextDispose(m->llvm);
  *m = (kiln_cpu_module){0};
}

static kiln_status fail_llvm(kiln_diag *diag, const char *what, char *message) {
  const kiln_status s =
      KILN_FAIL(diag, KILN_INTERNAL, "llvm", "%s: %s", what, message ? message : "unknown");
  LLVMDisposeMessage(message);
  return s;
}

kiln_status kiln_cpu_target_machine(kiln_diag *diag, const kiln_machine *machine, bool is_quick,
                                    LLVMTargetMachineRef *out) {
  LLVMTargetRef target = NULL;
  char *message = NULL;
  if (LLVMGetTargetFromTriple(machine->triple, &target, &message))
    return fail_llvm(diag, machine->triple, message);
  *out = LLVMCreateTargetMachine(target, machine->triple, machine->cpu, machine->features,
                                 is_quick ? LLVMCodeGenLevelNone : LLVMCodeGenLevelAggressive,
                                 LLVMRelocPIC, LLVMCodeModelDefault);
  return KILN_OK;
}

void kiln_cpu_module_init(kiln_ctx *cx, const kiln_machine *machine, LLVMTargetMachineRef tm,
                          kiln_cpu_module *m) {
  m->cx = cx;
  m->machine = machine;
  m->tm = tm;
  m->llvm = LLVMContextCreate();
  m->module = LLVMModuleCreateWithNameInContext("kiln", m->llvm);
  m->builder = LLVMCreateBuilderInContext(m->llvm);
  LLVMSetTarget(m->module, m->machine->triple);
  LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(m->tm);
  LLVMSetModuleDataLayout(m->module, layout);
  LLVMDisposeTargetData(layout);
  LLVMContextRef c = m->llvm;
  m->i1 = LLVMInt1TypeInContext(c);
  m->i8 = LLVMInt8TypeInContext(c);
  m->i16 = LLVMInt16TypeInContext(c);
  m->i32 = LLVMInt32TypeInContext(c);
  m->i64 = LLVMInt64TypeInContext(c);
  m->f16 = LLVMHalfTypeInContext(c);
  m->bf16 = LLVMBFloatTypeInContext(c);
  m->f32 = LLVMFloatTypeInContext(c);
  m->f64 = LLVMDoubleTypeInContext(c);
  m->ptr = LLVMPointerTypeInContext(c, 0);
  m->none = LLVMVoidTypeInContext(c);
  m->md_scope = LLVMGetMDKindIDInContext(c, "alias.scope", strlen("alias.scope"));
  m->md_noalias = LLVMGetMDKindIDInContext(c, "noalias", strlen("noalias"));
}

kiln_status kiln_cpu_run_passes(kiln_ctx *cx, kiln_cpu_module *m, const char *passes) {
  char *message = NULL;
  if (LLVMVerifyModule(m->module, LLVMReturnStatusAction, &message))
    return fail_llvm(cx->diag, "module must verify", message);
  LLVMDisposeMessage(message);
  LLVMPassBuilderOptionsRef options = LLVMCreatePassBuilderOptions();
  LLVMErrorRef error = LLVMRunPasses(m->module, passes, m->tm, options);
  LLVMDisposePassBuilderOptions(options);
  if (!error) return KILN_OK;
  char *text = LLVMGetErrorMessage(error);
  const kiln_status s = KILN_FAIL(cx->diag, KILN_INTERNAL, "llvm", "passes must run, got %s", text);
  LLVMDisposeErrorMessage(text);
  return s;
}

kiln_status kiln_cpu_generate(kiln_ctx *cx, kiln_cpu_module *m, LLVMModuleRef module,
                              LLVMCodeGenFileType kind, kiln_object *out) {
  LLVMMemoryBufferRef buffer = NULL;
  char *message = NULL;
  if (LLVMTargetMachineEmitToMemoryBuffer(m->tm, module, kind, &message, &buffer))
    return fail_llvm(cx->diag, "code generation", message);
  const size_t bytes = LLVMGetBufferSize(buffer);
  out->data = malloc(bytes + 1);
  if (out->data) {
    memcpy(out->data, LLVMGetBufferStart(buffer), bytes);
    ((char *)out->data)[bytes] = 0;
    out->bytes = bytes;
  }
  LLVMDisposeMemoryBuffer(buffer);
  if (out->data) return KILN_OK;
  return KILN_FAIL(cx->diag, KILN_NO_MEMORY, NULL, "an object of %zu bytes must fit", bytes);
}

static kiln_status dump(kiln_ctx *cx, const kiln_cpu_options *options, kiln_cpu_module *m,
                        compiled *out) {
  if (options->dump_llvm) {
    char *text = LLVMPrintModuleToString(m->module);
    out->llvm_text = strdup(text);
    LLVMDisposeMessage(text);
  }
  if (!options->dump_asm) return KILN_OK;
  kiln_object text = {0};
  LLVMModuleRef copy = LLVMCloneModule(m->module); // code generation changes the module
  const kiln_status s = kiln_cpu_generate(cx, m, copy, LLVMAssemblyFile, &text);
  LLVMDisposeModule(copy);
  out->asm_text = text.data;
  return s;
}

// Whether the nest is compiled; otherwise an equal nest is called.
static bool is_first(const kiln_cpu_options *options, int kernel, int nest) {
  const kiln_cpu_nests *all = options ? options->nests : NULL;
  if (!all) return true;
  const kiln_cpu_nest *same = &all->same[all->first[kernel] + nest];
  return same->kernel == kernel && same->nest == nest;
}

static kiln_status emit_kernel(kiln_ctx *cx, const job *j, int kernel, kiln_cpu_module *m) {
  const int lanes = m->is_quick ? m->machine->vector_bytes / 4 : 0;
  kiln_loops *loops = kiln_cpu_copy(cx, j->w->from, j->w->kernels[kernel], lanes);
  int nest = 0;
  for (const kiln_loop *l = loops->body; l; l = l->next, nest++) {
    if (!is_first(j->w->options, kernel, nest)) continue;
    const char *symbol = kiln_arena_printf(&cx->perm, "%s_%d", j->w->symbols[kernel], nest);
    KILN_TRY(kiln_cpu_emit_nest(m, loops, l, symbol));
  }
  return KILN_OK;
}

static kiln_status compile_module(kiln_ctx *cx, const job *j, kiln_cpu_module *m) {
  compiled *out = &j->w->out[j->id];
  const kiln_cpu_modules *all = &j->w->modules;
  m->is_quick = all->is_quick[j->id];
  m->has_many = all->first[j->id + 1] - all->first[j->id] > 1;
  kiln_cpu_module_init(cx, j->w->machine, j->tms[m->is_quick], m);
  if (j->w->options && j->w->options->has_lines) kiln_cpu_lines_init(m);
  for (int i = all->first[j->id]; i < all->first[j->id + 1]; i++)
    KILN_TRY(emit_kernel(cx, j, all->kernels[i], m));
  KILN_TRY(kiln_cpu_run_passes(cx, m, m->is_quick ? quick_passes : all_passes));
  if (j->w->options) KILN_TRY(dump(cx, j->w->options, m, out));
  return kiln_cpu_generate(cx, m, m->module, LLVMObjectFile, &out->object);
}

static kiln_status compile_job(kiln_ctx *cx, void *argument) {
  kiln_cpu_module m = {0};
  kiln_cleanup_push(cx, kiln_cpu_module_deinit, &m);
  const kiln_status s = compile_module(cx, argument, &m);
  kiln_cleanup_pop(cx);
  kiln_cpu_module_deinit(&m);
  return s;
}

static kiln_status compile_kernel(job *j, kiln_diag *diag) {
  kiln_ctx cx;
  const bool is_quick = j->w->modules.is_quick[j->id];
  if (!j->tms[is_quick])
    KILN_TRY(kiln_cpu_target_machine(diag, j->w->machine, is_quick, &j->tms[is_quick]));
  KILN_TRY(kiln_ctx_init(&cx, diag));
  const kiln_status s = kiln_ctx_enter(&cx, compile_job, j);
  kiln_ctx_deinit(&cx);
  return s;
}

static kiln_status compile_within_reserve(job *j, kiln_diag *diag) {
  if (!diag) return KILN_NO_MEMORY;
  KILN_TRY(kiln_reserve_begin(diag));
  return kiln_reserve_end(diag, compile_kernel(j, diag));
}

// A worker that runs out of memory leaves its modules to others.
static void *run_worker(void *argument) {
  work *w = argument;
  job j = {.w = w};
  const volatile int *stop = w->options ? w->options->stop : NULL;
  if (kiln_reserve_begin(NULL) != KILN_OK) return NULL;
  for (int i; (i = atomic_fetch_add(&w->next, 1)) < w->modules.n;) {
    compiled *out = &w->out[j.id = w->order[i]];
    const bool is_stopped = stop && *stop;
    out->diag = is_stopped ? NULL : kiln_diag_create();
    out->status = is_stopped ? KILN_NO_BUDGET : compile_within_reserve(&j, out->diag);
  }
  for (int i = 0; i < 2; i++)
    if (j.tms[i]) LLVMDisposeTargetMachine(j.tms[i]);
  kiln_reserve_end(NULL, KILN_OK);
  return NULL;
}

// --- all modules ---

static const int *order_by_cost(kiln_ctx *cx, const kiln_cpu_modules *m,
                                kiln_loops *const *kernels) {
  int *order = KILN_NEW_ARRAY(&cx->scratch, int, m->n);
  double *costs = KILN_NEW_ARRAY(&cx->scratch, double, m->n);
  for (int i = 0; i < m->n; i++) {
    int at = i;
    for (int k = m->first[i]; k < m->first[i + 1]; k++)
      costs[i] += kiln_cpu_emit_cost(kernels[m->kernels[k]]);
    for (; at > 0 && costs[order[at - 1]] < costs[i]; at--) order[at] = order[at - 1];
    order[at] = i;
  }
  return order;
}

static void run_workers(kiln_ctx *cx, int n_threads, work *w) {
  pthread_t *threads = KILN_NEW_ARRAY(&cx->scratch, pthread_t, n_threads);
  bool *started = KILN_NEW_ARRAY(&cx->scratch, bool, n_threads);
  pthread_attr_t attr;
  const bool has_attr = pthread_attr_init(&attr) == 0;
  if (has_attr) pthread_attr_setstacksize(&attr, 16u << 20); // LLVM recurses deeply
  for (int j = 1; j < n_threads; j++)
    started[j] = kiln_thread_start(&threads[j], has_attr ? &attr : NULL, run_worker, w);
  if (has_attr) pthread_attr_destroy(&attr);
  run_worker(w);
  for (int j = 1; j < n_threads; j++)
    if (started[j]) pthread_join(threads[j], NULL);
  for (int i; (i = atomic_fetch_add(&w->next, 1)) < w->modules.n;)
    w->out[w->order[i]].status = KILN_NO_MEMORY;
}

static void take_text(kiln_text *to, const char *text) {
  if (to && text) kiln_text_add(to, text);
}

// Destroys results that were not collected.
static void drop(void *object) {
  const work *w = object;
  for (int i = 0; i < w->modules.n; i++) {
    compiled *c = &w->out[i];
    kiln_diag_destroy(c->diag);
    free(c->llvm_text);
    free(c->asm_text);
    kiln_object_deinit(&c->object);
    *c = (compiled){0};
  }
}

// Collects messages, dumps and objects in the order of kernels; a module counts as its first
// kernel.
static kiln_status collect(kiln_ctx *cx, work *w, int n, int *out_n, kiln_object *out) {
  kiln_status status = KILN_OK;
  bool has_message = false;
  for (int i = 0; i < n; i++) out[i] = (kiln_object){0};
  for (int i = 0; i < w->modules.n; i++) {
    compiled *c = &w->out[i];
    has_message |= kiln_diag_count(c->diag) > 0;
    if (c->status != KILN_OK && status == KILN_OK) status = c->status;
    for (size_t k = 0; c->diag && k < kiln_diag_count(c->diag); k++)
      (void)KILN_FAIL(cx->diag, c->status, "code", "%s", kiln_diag_message(c->diag, k));
    take_text(w->options ? w->options->dump_llvm : NULL, c->llvm_text);
    take_text(w->options ? w->options->dump_asm : NULL, c->asm_text);
  }
  for (int i = 0; i < w->modules.n && status == KILN_OK; i++) {
    out[w->modules.kernels[w->modules.first[i]]] = w->out[i].object;
    w->out[i].object = (kiln_object){0};
  }
  *out_n = status == KILN_OK ? n : 0;
  if (status != KILN_NO_MEMORY || has_message) return status;
  return KILN_FAIL(cx->diag, KILN_NO_MEMORY, "code", "no memory left");
}

kiln_status kiln_cpu_compile(kiln_ctx *cx, const kiln_machine *m, int n, kiln_loops *const *kernels,
                             const char *const *symbols, const kiln_cpu_options *options,
                             int *out_n, kiln_object *out) {
  *out_n = 0;
  KILN_TRY(kiln_cpu_llvm_init(cx->diag));
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  int n_threads = options && options->n_threads > 1 ? options->n_threads : 1;
  const kiln_cpu_modules modules = kiln_cpu_modules_of(cx, n, kernels);
  if (n_threads > modules.n) n_threads = modules.n > 1 ? modules.n : 1;
  work w = {cx,
            m,
            kernels,
            symbols,
            options,
            modules,
            order_by_cost(cx, &modules, kernels),
            0,
            KILN_NEW_ARRAY(&cx->scratch, compiled, modules.n)};
  kiln_cleanup_push(cx, drop, &w);
  run_workers(cx, n_threads, &w);
  const kiln_status s = collect(cx, &w, n, out_n, out);
  kiln_cleanup_pop(cx);
  drop(&w);
#ifdef __GLIBC__
  if (n > 0) (void)malloc_trim(0); // returns LLVM's heap memory to the system
#endif
  kiln_arena_rewind(&cx->scratch, mark);
  return s;
}
