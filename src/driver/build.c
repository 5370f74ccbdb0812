// The stages of a compilation, and the two kinds of module they end in.
#include "driver/link.h"
#include "driver/offer.h"
#include "driver/pipeline.h"
#include "runtime/features.h"
#include "tune/results.h"
#include "target/c/c.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { N_STEPS = 4 }; // of the progress: schedule, code, plan, module
enum { HUGE_PAGE = 2 << 20 };

void kiln_build_deinit(kiln_build *b) {
  for (int i = 0; i < b->n_objects; i++) kiln_object_deinit(&b->objects[i]);
  free(b->objects);
  if (b->jit) kiln_jit_destroy(b->jit);
  if (b->memory) munmap(b->memory, b->memory_bytes);
  kiln_results_close(b->results);
  b->results = NULL;
  free(b->plan_blob);
  free(b->code);
  b->plan_blob = NULL;
  b->code = NULL;
  kiln_pool_destroy(b->pool);
  b->pool = NULL;
  b->n_objects = 0;
  b->objects = NULL;
  b->jit = NULL;
  b->memory = NULL;
}

// --- dumps ---

static void dump_loops(kiln_ctx *cx, kiln_build *b) {
  kiln_text text;
  kiln_text_init(&text, &cx->scratch);
  for (int i = 0; i < b->kernels.kernels.n; i++) {
    kiln_loops_print(cx, b->kernels.kernels.data[i]->loops, &text);
    kiln_text_add(&text, "\n");
  }
  kiln_model_dump(b->model, "loop", &text);
}

static void dump_schedules(kiln_ctx *cx, kiln_build *b) {
  kiln_text text;
  kiln_text_init(&text, &cx->scratch);
  for (int i = 0; i < b->kernels.kernels.n; i++) {
    const kiln_kernel *k = b->kernels.kernels.data[i];
    kiln_text_printf(&text, "kernel %s\n# %d launches, %.0f flops, %.0f bytes\n%s\n",
                     kiln_symbol_text(cx, k->name), kiln_kernel_launches(&b->kernels, i), k->flops,
                     k->bytes, k->script ? k->script : "");
  }
  kiln_model_dump(b->model, "schedule", &text);
}

static kiln_loops **all_loops(kiln_ctx *cx, const kiln_build *b) {
  const int n = b->kernels.kernels.n;
  kiln_loops **loops = KILN_NEW_ARRAY(&cx->perm, kiln_loops *, n);
  for (int i = 0; i < n; i++) loops[i] = b->kernels.kernels.data[i]->loops;
  return loops;
}

static void dump_c(kiln_ctx *cx, kiln_build *b) {
  kiln_text text;
  kiln_text_init(&text, &cx->scratch);
  kiln_c_emit(cx, b->kernels.kernels.n, all_loops(cx, b), b->symbols, &text);
  kiln_model_dump(b->model, "c", &text);
}

static void dump_plan(kiln_ctx *cx, kiln_build *b) {
  if (!kiln_model_dumps(b->model, "plan")) return;
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  kiln_text text;
  kiln_text_init(&text, &cx->scratch);
  kiln_plan_print(&b->plan, &text);
  kiln_model_dump(b->model, "plan", &text);
  kiln_arena_rewind(&cx->scratch, mark);
}

static void dump_kernels(kiln_ctx *cx, kiln_build *b) {
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  if (kiln_model_dumps(b->model, "loop")) dump_loops(cx, b);
  if (kiln_model_dumps(b->model, "schedule")) dump_schedules(cx, b);
  if (kiln_model_dumps(b->model, "c")) dump_c(cx, b);
  kiln_arena_rewind(&cx->scratch, mark);
}

// --- stages ---

kiln_status kiln_build_name_kernels(kiln_ctx *cx, kiln_build *b, int *io_n) {
  (void)io_n;
  b->symbols = KILN_NEW_ARRAY(&cx->perm, const char *, b->kernels.kernels.n);
  for (int i = 0; i < b->kernels.kernels.n; i++) // a kernel called exp must not be found as libm's
    b->symbols[i] =
        b->ranges
            ? kiln_arena_printf(&cx->perm, "kiln_k_%s_part%d",
                                kiln_symbol_text(cx, b->kernels.kernels.data[i]->name), b->part)
            : kiln_arena_printf(&cx->perm, "kiln_k_%s",
                                kiln_symbol_text(cx, b->kernels.kernels.data[i]->name));
  return KILN_OK;
}

kiln_status kiln_build_find_machine(kiln_ctx *cx, const char *path, const char *target,
                                    const char *dtype, kiln_machine *out) {
  enum { CAPABILITY = 80 };
  KILN_TRY(kiln_target_machine(cx, target, out));
  if (!dtype || strcmp(dtype, "tf32") != 0) return KILN_OK;
  if (out->gpu.capability < CAPABILITY)
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, path,
                     "dtype: tf32 is for cuda:sm_%d and later, got %s", CAPABILITY, out->processor);
  out->gpu.rounds_to_tf32 = true;
  return KILN_OK;
}

// Other candidates than the cost model's, by what was measured.
kiln_status kiln_build_choose_measured(kiln_ctx *cx, kiln_build *b, int *io_n) {
  const kiln_compile_options *asked = &b->model->options;
  bool is_settled = false;
  (void)io_n;
  KILN_TRY(kiln_build_take_offers(cx, b, &is_settled));
  if (is_settled) return KILN_OK;
  if (asked->tune > 1 || kiln_model_asks_backends(b->model)) return kiln_build_tune(cx, b);
  return asked->tuned_for ? kiln_build_take_tuned(cx, b) : KILN_OK;
}

kiln_status kiln_build_kernels(kiln_ctx *cx, kiln_build *b) {
  b->prog = kiln_program_copy(cx, b->model->prog);
  b->without = b->model->without;
  b->stop = b->model->stop;
  KILN_TRY(kiln_build_find_machine(cx, b->model->path, b->model->options.target,
                                   b->model->options.dtype, &b->machine));
  KILN_TRY(kiln_pipeline_run(cx, b, KILN_PHASE_CHOOSE, KILN_PHASE_KERNELS));
  kiln_build_tell_libraries(b);
  dump_kernels(cx, b);
  return KILN_OK;
}

static kiln_status make_plan(kiln_ctx *cx, kiln_build *b) {
  KILN_TRY(kiln_pipeline_run(cx, b, KILN_PHASE_PLAN, KILN_PHASE_PLAN));
  dump_plan(cx, b);
  return KILN_OK;
}

static kiln_status check_target(kiln_ctx *cx, const kiln_model *m) {
  kiln_machine machine;
  if (kiln_target_makes_modules(m->options.target)) return KILN_OK;
  KILN_TRY(
      kiln_target_machine(cx, m->options.target, &machine)); // a name that is none is told as such
  return KILN_FAIL(cx->diag, KILN_UNSUPPORTED, m->path,
                   "target: a module must be for this machine, another processor of x86-64 or a "
                   "GPU of CUDA or OpenCL, got \"%s\": ask for its code with --emit or --dump, "
                   "without -o",
                   m->options.target);
}

kiln_status kiln_build_run(kiln_ctx *cx, kiln_build *b) {
  kiln_model *m = b->model;
  KILN_TRY(kiln_model_want_program(m, cx->diag));
  KILN_TRY(check_target(cx, m));
  if (!b->ranges) m->times.n = m->n_load_times;
  kiln_model_progress(m, "schedule", 0, N_STEPS);
  KILN_TRY(kiln_build_kernels(cx, b));
  KILN_TRY(kiln_pipeline_run(cx, b, KILN_PHASE_LAUNCHES, KILN_PHASE_LAUNCHES));
  if (m->core->file) kiln_onnx_file_forget_all(m->core->file); // LLVM needs its room
  kiln_model_progress(m, "code", 1, N_STEPS);
  KILN_TRY(kiln_pipeline_run(cx, b, KILN_PHASE_CODE, KILN_PHASE_CODE));
  kiln_model_progress(m, "plan", 2, N_STEPS);
  KILN_TRY(make_plan(cx, b));
  kiln_model_progress(m, "module", 3, N_STEPS);
  return KILN_OK;
}

static bool dumps_code(const kiln_build *b) {
  const kiln_target *t = b->machine.target;
  bool any = false;
  for (size_t i = 0; i < KILN_LEN(t->code_levels) && t->code_levels[i]; i++)
    any |= kiln_model_dumps(b->model, t->code_levels[i]);
  return any;
}

static kiln_status emit(kiln_ctx *cx, void *argument) {
  kiln_build *b = argument;
  kiln_model *m = b->model;
  KILN_TRY(kiln_model_want_program(m, cx->diag));
  m->times.n = m->n_load_times;
  KILN_TRY(kiln_build_kernels(cx, b));
  KILN_TRY(kiln_pipeline_run(cx, b, KILN_PHASE_LAUNCHES, KILN_PHASE_LAUNCHES));
  const bool wants_plan =
      kiln_model_dumps(m, "plan") || kiln_list_has(m->options.dump_after, "plan");
  const bool has_images = b->machine.target->has_images; // then the plan says how they are launched
  if (wants_plan && !b->machine.target->has_runtime)
    return KILN_FAIL(cx->diag, KILN_UNSUPPORTED, m->path, "plan: there are no modules of %s",
                     b->machine.target->title);
  if (wants_plan && !has_images) KILN_TRY(make_plan(cx, b));
  if (dumps_code(b) || (wants_plan && has_images))
    KILN_TRY(kiln_pipeline_run(cx, b, KILN_PHASE_CODE, KILN_PHASE_CODE));
  return wants_plan && has_images ? make_plan(cx, b) : KILN_OK;
}

kiln_status kiln_model_emit(kiln_model *model, kiln_diag *diag) {
  kiln_build b = {.model = model};
  KILN_TRY(kiln_argument_check(diag, __func__, "model", model));
  const kiln_status st = kiln_model_enter(model, diag, emit, &b);
  kiln_build_deinit(&b);
  return st;
}

// Code for a processor that was named may need what this one has not.
static kiln_status check_runs_here(kiln_ctx *cx, const kiln_build *b) {
  int n = 0;
  if (b->machine.is_here) return KILN_OK;
  const char *const *needs = kiln_cpu_needs(cx, &b->machine, b->n_objects, b->objects, &n);
  return kiln_cpu_check((uint32_t)n, needs, b->model->path, cx->diag);
}

kiln_status kiln_build_jit(kiln_ctx *cx, kiln_build *b, kiln_kernel_fn **out_functions) {
  *out_functions = NULL;
  if (b->machine.target->has_images) return KILN_OK;
  KILN_TRY(check_runs_here(cx, b));
  KILN_TRY(kiln_jit_create(cx, &b->machine, b->n_objects, b->objects, &b->jit));
  *out_functions = KILN_NEW_ARRAY(&cx->perm, kiln_kernel_fn, b->plan.n_functions);
  for (uint32_t i = 0; i < b->plan.n_functions; i++) {
    void *function = NULL;
    KILN_TRY(kiln_jit_find(b->jit, b->plan.functions[i], cx->diag, &function));
    memcpy(&(*out_functions)[i], &function, sizeof function);
  }
  return KILN_OK;
}

// --- in memory ---

// What an in-memory module owns.
typedef struct resident {
  kiln_jit *jit;
  char *memory;
  size_t memory_bytes;
  kiln_core *core; // when constants are borrowed
  char *code;      // of a GPU
} resident;

static void release_resident(void *object) {
  resident *r = object;
  if (r->jit) kiln_jit_destroy(r->jit);
  free(r->code);
  if (r->memory) munmap(r->memory, r->memory_bytes);
  kiln_core_release(r->core);
  free(r);
}

// Anonymous memory, in huge pages where it is large: packed weights are read in every run.
static kiln_status make_memory(kiln_ctx *cx, kiln_build *b) {
  if (b->plan.weights_bytes == 0) return KILN_OK;
  void *map =
      mmap(NULL, b->plan.weights_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED)
    return KILN_FAIL(cx->diag, KILN_NO_MEMORY, b->model->path,
                     "weights: %" PRIu64 " bytes: no memory left", b->plan.weights_bytes);
  b->memory = map;
  b->memory_bytes = b->plan.weights_bytes;
  if (b->memory_bytes >= 2 * HUGE_PAGE) (void)madvise(map, b->memory_bytes, MADV_HUGEPAGE);
  return kiln_weights_fill(cx, b, b->memory, NULL);
}

kiln_status kiln_build_write_plan(kiln_ctx *cx, kiln_build *b) {
  kiln_plan_write(&b->plan, &b->plan_blob, &b->plan_bytes);
  if (b->plan_blob) return KILN_OK;
  return KILN_FAIL(cx->diag, KILN_NO_MEMORY, b->model->path, "plan: no memory left");
}

static kiln_status make_module(kiln_ctx *cx, kiln_build *b, const kiln_kernel_fn *functions,
                               kiln_module **out) {
  resident *r = calloc(1, sizeof *r);
  if (!r) return KILN_FAIL(cx->diag, KILN_NO_MEMORY, b->model->path, "module: no memory left");
  *r = (resident){b->jit, b->memory, b->memory_bytes, NULL, b->code};
  kiln_module_parts parts = {.plan = b->plan_blob,
                             .plan_bytes = b->plan_bytes,
                             .n_functions = b->plan.n_functions,
                             .functions = functions,
                             .weights = b->memory,
                             .code = b->code,
                             .n_externs = b->plan.n_externs,
                             .externs = b->externs.data,
                             .owner = r,
                             .release = release_resident};
  for (int i = 0; i < b->weights.n; i++)
    if (b->weights.data[i].borrowed >= 0) parts.borrowed_bytes += b->weights.data[i].bytes;
  kiln_status st = kiln_module_create(&parts, cx->diag, out);
  if (st != KILN_OK) {
    free(r);
    return st;
  }
  b->jit = NULL; // the module has them now
  b->memory = NULL;
  b->code = NULL;
  if (b->plan.n_externs > 0) {
    r->core = b->model->core;
    atomic_fetch_add(&r->core->refs, 1);
  }
  return KILN_OK;
}

kiln_status kiln_build_module(kiln_ctx *cx, kiln_build *b, const kiln_kernel_fn *functions,
                              kiln_module **out) {
  KILN_TRY(make_memory(cx, b));
  KILN_TRY(kiln_build_write_plan(cx, b));
  return make_module(cx, b, functions, out);
}

kiln_status kiln_build_link(kiln_ctx *cx, kiln_build *b, int *io_n) {
  (void)io_n;
  if (!b->out) return kiln_build_jit(cx, b, &b->functions);
  return b->machine.target->has_images
             ? kiln_output_code(b->out, b->code, b->plan.code_bytes, cx->diag)
             : kiln_output_link(b->out, b->n_objects, b->objects, cx->diag);
}

kiln_status kiln_build_pack_weights(kiln_ctx *cx, kiln_build *b, int *io_n) {
  (void)io_n;
  if (!b->out) return kiln_build_module(cx, b, b->functions, &b->module);
  KILN_TRY(kiln_output_weights(b->out, b->plan.weights_bytes, cx->diag));
  KILN_TRY(kiln_weights_fill(cx, b, NULL, b->out));
  KILN_TRY(kiln_build_write_plan(cx, b));
  return kiln_output_finish(b->out, b->plan_blob, b->plan_bytes, cx->diag);
}

static kiln_status make_here(kiln_ctx *cx, void *argument) {
  kiln_build *b = argument;
  b->may_borrow = true;
  b->may_be_late = true;
  KILN_TRY(kiln_build_run(cx, b));
  KILN_TRY(kiln_pipeline_run(cx, b, KILN_PHASE_MODULE, KILN_PHASE_MODULE));
  kiln_model_note_transforms(cx, b->model, b->module);
  kiln_model_progress(b->model, "module", N_STEPS, N_STEPS);
  return KILN_OK;
}

kiln_status kiln_model_compile(kiln_model *model, kiln_diag *diag, kiln_module **out_module) {
  kiln_build b = {.model = model};
  KILN_TRY(kiln_argument_check(diag, __func__, "out_module", out_module));
  *out_module = NULL;
  KILN_TRY(kiln_argument_check(diag, __func__, "model", model));
  const kiln_status st = kiln_model_enter(model, diag, make_here, &b);
  kiln_build_deinit(&b);
  if (st == KILN_OK) *out_module = b.module;
  else kiln_module_release(b.module); // memory may run out behind it
  return st;
}

// --- to a file ---

typedef struct writing {
  kiln_build build;
  kiln_output out;
  const char *path;
} writing;

static kiln_status make_there(kiln_ctx *cx, void *argument) {
  writing *w = argument;
  kiln_build *b = &w->build;
  b->may_be_late = true;
  b->out = &w->out;
  KILN_TRY(kiln_model_want_program(b->model, cx->diag));
  KILN_TRY(kiln_model_may_write(b->model, w->path, cx->diag));
  KILN_TRY(kiln_output_open(&w->out, w->path, cx->diag));
  KILN_TRY(kiln_build_run(cx, b));
  KILN_TRY(kiln_pipeline_run(cx, b, KILN_PHASE_MODULE, KILN_PHASE_MODULE));
  kiln_model_progress(b->model, "module", N_STEPS, N_STEPS);
  return KILN_OK;
}

kiln_status kiln_model_compile_to(kiln_model *model, const char *out_path, kiln_diag *diag) {
  KILN_TRY(kiln_argument_check(diag, __func__, "model", model));
  KILN_TRY(kiln_argument_check(diag, __func__, "out_path", out_path));
  if (model->ranges) return kiln_parts_compile_to(model, out_path, diag);
  writing w = {.build = {.model = model}, .out = {.file.fd = -1}, .path = out_path};
  const kiln_status st = kiln_model_enter(model, diag, make_there, &w);
  kiln_output_discard(&w.out);
  kiln_build_deinit(&w.build);
  return st;
}
