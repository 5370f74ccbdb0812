// Kernels to objects: every worker thread has a context, an LLVM module and a target machine of its
// own. Which kernel goes to which object depends on the kernels and the number of threads only.
#include "target/cpu/cpu.h"

#include <llvm-c/Analysis.h>
#include <llvm-c/Error.h>
#include <llvm-c/Target.h>
#include <llvm-c/Transforms/PassBuilder.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

// The emitter leaves registers in memory and repeats what unrolled copies share; the rest of what
// LLVM could do has been done by the schedule.
static const char passes[] = "function(sroa,early-cse<memssa>,loop-mssa(licm),"
                             "instcombine<no-verify-fixpoint>,simplifycfg)";

typedef struct job {
  const kiln_ctx *from;
  const kiln_machine *machine;
  kiln_loops *const *kernels;
  const char *const *symbols;
  const kiln_cpu_options *options;
  int n;
  int *kernel_ids; // [n]
  kiln_object object;
  kiln_diag *diag;
  kiln_status status;
  char *llvm_text, *asm_text; // malloc'ed
} job;

void kiln_object_deinit(kiln_object *o) {
  free(o->data);
  *o = (kiln_object){0};
}

// --- one module ---

static void module_deinit(void *object) {
  kiln_cpu_module *m = object;
  if (m->builder) LLVMDisposeBuilder(m->builder);
  if (m->module) LLVMDisposeModule(m->module);
  if (m->tm) LLVMDisposeTargetMachine(m->tm);
  if (m->llvm) LLVMContextDispose(m->llvm);
  *m = (kiln_cpu_module){0};
}

static kiln_status fail_llvm(kiln_ctx *cx, const char *what, char *message) {
  const kiln_status s =
      KILN_FAIL(cx->diag, KILN_INTERNAL, "llvm", "%s: %s", what, message ? message : "unknown");
  LLVMDisposeMessage(message);
  return s;
}

static kiln_status module_init(kiln_ctx *cx, const kiln_machine *machine, kiln_cpu_module *m) {
  m->cx = cx;
  m->machine = machine;
  LLVMTargetRef target = NULL;
  char *message = NULL;
  if (LLVMGetTargetFromTriple(machine->triple, &target, &message))
    return fail_llvm(cx, machine->triple, message);
  m->tm = LLVMCreateTargetMachine(target, machine->triple, machine->cpu, machine->features,
                                  LLVMCodeGenLevelAggressive, LLVMRelocPIC, LLVMCodeModelDefault);
  m->llvm = LLVMContextCreate();
  m->module = LLVMModuleCreateWithNameInContext("kiln", m->llvm);
  m->builder = LLVMCreateBuilderInContext(m->llvm);
  LLVMSetTarget(m->module, machine->triple);
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
  return KILN_OK;
}

static kiln_status run_passes(kiln_ctx *cx, kiln_cpu_module *m) {
  char *message = NULL;
  if (LLVMVerifyModule(m->module, LLVMReturnStatusAction, &message))
    return fail_llvm(cx, "module must verify", message);
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

// Code of the kind asked for, malloc'ed; a NUL follows it.
static kiln_status generate(kiln_ctx *cx, kiln_cpu_module *m, LLVMModuleRef module,
                            LLVMCodeGenFileType kind, kiln_object *out) {
  LLVMMemoryBufferRef buffer = NULL;
  char *message = NULL;
  if (LLVMTargetMachineEmitToMemoryBuffer(m->tm, module, kind, &message, &buffer))
    return fail_llvm(cx, "code generation", message);
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

static kiln_status dump(kiln_ctx *cx, job *j, kiln_cpu_module *m) {
  if (j->options->dump_llvm) {
    char *text = LLVMPrintModuleToString(m->module);
    j->llvm_text = strdup(text);
    LLVMDisposeMessage(text);
  }
  if (!j->options->dump_asm) return KILN_OK;
  kiln_object text = {0};
  LLVMModuleRef copy = LLVMCloneModule(m->module); // code generation changes the module
  const kiln_status s = generate(cx, m, copy, LLVMAssemblyFile, &text);
  LLVMDisposeModule(copy);
  j->asm_text = text.data;
  return s;
}

static kiln_status compile_kernel(kiln_ctx *cx, job *j, kiln_cpu_module *m, int id) {
  kiln_loops *loops = kiln_cpu_copy(cx, j->from, j->kernels[id]);
  int nest = 0;
  for (const kiln_loop *l = loops->body; l; l = l->next, nest++) {
    const char *symbol = kiln_arena_printf(&cx->perm, "%s_%d", j->symbols[id], nest);
    KILN_TRY(kiln_cpu_emit_nest(m, loops, l, symbol));
  }
  return KILN_OK;
}

static kiln_status compile_module(kiln_ctx *cx, job *j, kiln_cpu_module *m) {
  KILN_TRY(module_init(cx, j->machine, m));
  for (int i = 0; i < j->n; i++) KILN_TRY(compile_kernel(cx, j, m, j->kernel_ids[i]));
  KILN_TRY(run_passes(cx, m));
  if (j->options) KILN_TRY(dump(cx, j, m));
  return generate(cx, m, m->module, LLVMObjectFile, &j->object);
}

static kiln_status compile_job(kiln_ctx *cx, void *argument) {
  kiln_cpu_module m = {0};
  kiln_cleanup_push(cx, module_deinit, &m);
  const kiln_status s = compile_module(cx, argument, &m);
  kiln_cleanup_pop(cx);
  module_deinit(&m);
  return s;
}

static void *run_job(void *argument) {
  job *j = argument;
  kiln_ctx cx;
  j->diag = kiln_diag_create();
  j->status = j->diag ? kiln_ctx_init(&cx, j->diag) : KILN_NO_MEMORY;
  if (j->status != KILN_OK) return NULL;
  j->status = kiln_ctx_enter(&cx, compile_job, j);
  kiln_ctx_deinit(&cx);
  return NULL;
}

// --- all of them ---

// Heavy kernels first, each to the job that has least so far.
static void distribute(kiln_ctx *cx, int n, kiln_loops *const *kernels, int n_jobs, job *jobs) {
  double *costs = KILN_NEW_ARRAY(&cx->scratch, double, n);
  double *loads = KILN_NEW_ARRAY(&cx->scratch, double, n_jobs);
  bool *taken = KILN_NEW_ARRAY(&cx->scratch, bool, n);
  for (int i = 0; i < n; i++) costs[i] = 50 + kiln_cpu_emit_cost(kernels[i]);
  for (int j = 0; j < n_jobs; j++) jobs[j].kernel_ids = KILN_NEW_ARRAY(&cx->scratch, int, n);
  for (int round = 0; round < n; round++) {
    int heaviest = -1, least = 0;
    for (int i = 0; i < n; i++) {
      if (!taken[i] && (heaviest < 0 || costs[i] > costs[heaviest])) heaviest = i;
    }
    for (int j = 1; j < n_jobs; j++) {
      if (loads[j] < loads[least]) least = j;
    }
    taken[heaviest] = true;
    loads[least] += costs[heaviest];
    jobs[least].kernel_ids[jobs[least].n++] = heaviest;
  }
}

static void run_jobs(kiln_ctx *cx, int n_jobs, job *jobs) {
  pthread_t *threads = KILN_NEW_ARRAY(&cx->scratch, pthread_t, n_jobs);
  bool *started = KILN_NEW_ARRAY(&cx->scratch, bool, n_jobs);
  pthread_attr_t attr;
  const bool has_attr = pthread_attr_init(&attr) == 0;
  if (has_attr) pthread_attr_setstacksize(&attr, 16u << 20); // LLVM recurses deeply
  for (int j = 1; j < n_jobs; j++)
    started[j] = pthread_create(&threads[j], has_attr ? &attr : NULL, run_job, &jobs[j]) == 0;
  if (has_attr) pthread_attr_destroy(&attr);
  run_job(&jobs[0]);
  for (int j = 1; j < n_jobs; j++) {
    if (started[j]) pthread_join(threads[j], NULL);
    else run_job(&jobs[j]);
  }
}

static void take_text(kiln_text *to, char *text) {
  if (to && text) kiln_text_add(to, text);
  free(text);
}

// Messages, dumps and objects of the jobs, in their order.
static kiln_status collect(kiln_ctx *cx, const kiln_cpu_options *options, int n_jobs, job *jobs,
                           int *out_n, kiln_object *out) {
  kiln_status status = KILN_OK;
  for (int j = 0; j < n_jobs; j++) {
    if (jobs[j].status != KILN_OK && status == KILN_OK) status = jobs[j].status;
    for (size_t i = 0; jobs[j].diag && i < kiln_diag_count(jobs[j].diag); i++)
      (void)KILN_FAIL(cx->diag, jobs[j].status, "code", "%s", kiln_diag_message(jobs[j].diag, i));
    kiln_diag_destroy(jobs[j].diag);
    take_text(options ? options->dump_llvm : NULL, jobs[j].llvm_text);
    take_text(options ? options->dump_asm : NULL, jobs[j].asm_text);
  }
  for (int j = 0; j < n_jobs; j++) {
    if (status == KILN_OK) out[j] = jobs[j].object;
    else kiln_object_deinit(&jobs[j].object);
  }
  *out_n = status == KILN_OK ? n_jobs : 0;
  return status;
}

kiln_status kiln_cpu_compile(kiln_ctx *cx, const kiln_machine *m, int n, kiln_loops *const *kernels,
                             const char *const *symbols, const kiln_cpu_options *options,
                             int *out_n, kiln_object *out) {
  *out_n = 0;
  LLVMInitializeNativeTarget();
  LLVMInitializeNativeAsmPrinter();
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  const bool dumps = options && (options->dump_llvm || options->dump_asm);
  int n_jobs = options && !dumps && options->n_threads > 1 ? options->n_threads : 1;
  if (n_jobs > n) n_jobs = n > 1 ? n : 1;
  job *jobs = KILN_NEW_ARRAY(&cx->scratch, job, n_jobs);
  for (int j = 0; j < n_jobs; j++) {
    jobs[j].from = cx;
    jobs[j].machine = m;
    jobs[j].kernels = kernels;
    jobs[j].symbols = symbols;
    jobs[j].options = options;
  }
  distribute(cx, n, kernels, n_jobs, jobs);
  run_jobs(cx, n_jobs, jobs);
  const kiln_status s = collect(cx, options, n_jobs, jobs, out_n, out);
  kiln_arena_rewind(&cx->scratch, mark);
  return s;
}
