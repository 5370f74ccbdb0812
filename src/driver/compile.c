// Compilation: runs the pipeline's phases in order; entry points that produce text, an in-memory
// module or a file.
#include "driver/flow.h"
#include "driver/load.h"
#include "driver/pipeline.h"
#include "dynamic/bucket_at.h"
#include "target/c/c.h"
#include "verify/reference.h"

#include <string.h>

// --- dumps ---

static void dump_loops(kiln_ctx *cx, kiln_build *b) {
  kiln_text text;
  kiln_text_init(&text, &cx->scratch);
  for (int i = 0; i < b->choices.kernels.kernels.n; i++) {
    kiln_loops_print(cx, b->choices.kernels.kernels.data[i]->loops, &text);
    kiln_text_add(&text, "\n");
  }
  kiln_model_dump(b->request.model, "loop", &text);
}

static void dump_schedules(kiln_ctx *cx, kiln_build *b) {
  kiln_text text;
  kiln_text_init(&text, &cx->scratch);
  for (int i = 0; i < b->choices.kernels.kernels.n; i++) {
    const kiln_kernel *k = b->choices.kernels.kernels.data[i];
    kiln_text_printf(&text, "kernel %s\n# %d launches, %.0f flops, %.0f bytes\n%s\n",
                     kiln_symbol_text(cx, k->name), kiln_kernel_launches(&b->choices.kernels, i),
                     k->flops, k->bytes, k->script ? k->script : "");
  }
  kiln_model_dump(b->request.model, "schedule", &text);
}

static kiln_loops **all_loops(kiln_ctx *cx, const kiln_build *b) {
  const int n = b->choices.kernels.kernels.n;
  kiln_loops **loops = KILN_NEW_ARRAY(&cx->perm, kiln_loops *, n);
  for (int i = 0; i < n; i++) loops[i] = b->choices.kernels.kernels.data[i]->loops;
  return loops;
}

static void dump_c(kiln_ctx *cx, kiln_build *b) {
  kiln_text text;
  kiln_text_init(&text, &cx->scratch);
  kiln_c_emit(cx, b->choices.kernels.kernels.n, all_loops(cx, b), b->product.symbols, &text);
  kiln_model_dump(b->request.model, "c", &text);
}

static void dump_plan(kiln_ctx *cx, kiln_build *b) {
  if (!kiln_model_dumps(b->request.model, "plan")) return;
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  kiln_text text;
  kiln_text_init(&text, &cx->scratch);
  kiln_plan_print(&b->product.plan, &text);
  kiln_model_dump(b->request.model, "plan", &text);
  kiln_arena_rewind(&cx->scratch, mark);
}

static void dump_kernels(kiln_ctx *cx, kiln_build *b) {
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  if (kiln_model_dumps(b->request.model, "loop")) dump_loops(cx, b);
  if (kiln_model_dumps(b->request.model, "schedule")) dump_schedules(cx, b);
  if (kiln_model_dumps(b->request.model, "c")) dump_c(cx, b);
  kiln_arena_rewind(&cx->scratch, mark);
}

// --- phases ---

kiln_status kiln_build_kernels(kiln_ctx *cx, kiln_build *b) {
  b->choices.prog = kiln_program_copy(cx, b->request.model->prog);
  b->request.without = b->request.model->without;
  b->request.stop = b->request.model->stop;
  KILN_TRY(kiln_build_find_machine(cx, b->request.model->path, b->request.model->options.target,
                                   b->request.model->options.dtype, &b->request.machine));
  KILN_TRY(kiln_pipeline_run(cx, b, KILN_PHASE_CHOOSE, KILN_PHASE_KERNELS));
  kiln_build_mark_libraries(b);
  dump_kernels(cx, b);
  return KILN_OK;
}

static kiln_status make_plan(kiln_ctx *cx, kiln_build *b) {
  KILN_TRY(kiln_pipeline_run(cx, b, KILN_PHASE_PLAN, KILN_PHASE_PLAN));
  dump_plan(cx, b);
  return KILN_OK;
}

static kiln_status check_target(kiln_ctx *cx, const kiln_build *b) {
  const kiln_model *m = b->request.model;
  const kiln_target *t = kiln_target_find(m->options.target);
  kiln_machine machine;
  if (b->request.prefix ? t->has_runtime && !t->has_images
                        : kiln_target_makes_modules(m->options.target))
    return KILN_OK;
  KILN_TRY(kiln_target_machine(cx, m->options.target, &machine)); // reports an unknown name
  if (b->request.prefix)
    return KILN_FAIL(cx->diag, KILN_UNSUPPORTED, m->path,
                     "target: a static library must be for a processor, got \"%s\"",
                     m->options.target);
  return KILN_FAIL(cx->diag, KILN_UNSUPPORTED, m->path,
                   "target: a module must be for this machine, another processor of x86-64 or a "
                   "GPU of CUDA or OpenCL, got \"%s\": ask for its code with --emit or --dump, "
                   "without -o",
                   m->options.target);
}

kiln_status kiln_build_run(kiln_ctx *cx, kiln_build *b) {
  kiln_model *m = b->request.model;
  KILN_TRY(kiln_model_want_program(m, cx->diag));
  KILN_TRY(check_target(cx, b));
  if (!b->request.ranges) m->times.n = m->n_load_times;
  kiln_model_progress(m, "schedule", 0, KILN_COMPILE_STEPS);
  KILN_TRY(kiln_build_kernels(cx, b));
  KILN_TRY(kiln_pipeline_run(cx, b, KILN_PHASE_LAUNCHES, KILN_PHASE_DEVICE));
  if (m->core->file) kiln_onnx_file_forget_all(m->core->file); // LLVM needs the memory
  kiln_model_progress(m, "code", 1, KILN_COMPILE_STEPS);
  KILN_TRY(kiln_pipeline_run(cx, b, KILN_PHASE_CODE, KILN_PHASE_CODE));
  kiln_model_progress(m, "plan", 2, KILN_COMPILE_STEPS);
  KILN_TRY(make_plan(cx, b));
  kiln_model_progress(m, "module", 3, KILN_COMPILE_STEPS);
  return KILN_OK;
}

static bool dumps_code(const kiln_build *b) {
  const kiln_target *t = b->request.machine.target;
  bool any = false;
  for (size_t i = 0; i < KILN_LEN(t->code_levels) && t->code_levels[i]; i++)
    any |= kiln_model_dumps(b->request.model, t->code_levels[i]);
  return any;
}

static kiln_status emit_one(kiln_ctx *cx, kiln_build *b) {
  kiln_model *m = b->request.model;
  KILN_TRY(kiln_model_want_program(m, cx->diag));
  m->times.n = m->n_load_times;
  KILN_TRY(kiln_build_kernels(cx, b));
  KILN_TRY(kiln_pipeline_run(cx, b, KILN_PHASE_LAUNCHES, KILN_PHASE_DEVICE));
  const bool wants_plan =
      kiln_model_dumps(m, "plan") || kiln_list_has(m->options.dump_after, "plan");
  const bool has_images =
      b->request.machine.target->has_images; // needs the launch parameters from the plan
  if (wants_plan && !b->request.machine.target->has_runtime)
    return KILN_FAIL(cx->diag, KILN_UNSUPPORTED, m->path, "plan: there are no modules of %s",
                     b->request.machine.target->title);
  if (wants_plan && !has_images) KILN_TRY(make_plan(cx, b));
  if (dumps_code(b) || (wants_plan && has_images))
    KILN_TRY(kiln_pipeline_run(cx, b, KILN_PHASE_CODE, KILN_PHASE_CODE));
  return wants_plan && has_images ? make_plan(cx, b) : KILN_OK;
}

static kiln_status emit(kiln_ctx *cx, void *argument) {
  kiln_build *b = argument;
  return b->request.model->parted ? kiln_flow_each(cx, b->request.model, emit_one)
                                  : emit_one(cx, b);
}

kiln_status kiln_model_emit(kiln_model *model, kiln_diag *diag) {
  kiln_build b = {.request.model = model};
  KILN_TRY(kiln_argument_check(diag, __func__, "model", model));
  const kiln_status st = kiln_model_enter(model, diag, emit, &b);
  kiln_build_deinit(&b);
  return st;
}

// --- in-memory modules ---

static kiln_status make_here(kiln_ctx *cx, void *argument) {
  kiln_build *b = argument;
  b->request.may_borrow = true;
  b->request.may_be_late = true;
  KILN_TRY(kiln_build_run(cx, b));
  KILN_TRY(kiln_pipeline_run(cx, b, KILN_PHASE_MODULE, KILN_PHASE_MODULE));
  kiln_model_note_transforms(cx, b->request.model, b->product.module);
  kiln_model_progress(b->request.model, "module", KILN_COMPILE_STEPS, KILN_COMPILE_STEPS);
  return KILN_OK;
}

kiln_status kiln_model_compile(kiln_model *model, kiln_diag *diag, kiln_module **out_module) {
  kiln_build b = {.request.model = model};
  KILN_TRY(kiln_argument_check(diag, __func__, "out_module", out_module));
  *out_module = NULL;
  KILN_TRY(kiln_argument_check(diag, __func__, "model", model));
  if (model->parted) return kiln_flow_compile(model, diag, out_module);
  const kiln_status st = kiln_model_enter(model, diag, make_here, &b);
  kiln_build_deinit(&b);
  if (st == KILN_OK) *out_module = b.product.module;
  else kiln_module_release(b.product.module); // memory may run out afterwards
  return st;
}

// --- the compiler interface ---

static kiln_status rewrite(kiln_ctx *cx, kiln_build *b) {
  return kiln_pipeline_run(cx, b, KILN_PHASE_REWRITE, KILN_PHASE_TILE);
}

static kiln_status make_bucket(kiln_ctx *cx, const kiln_model *m, size_t n_inputs,
                               const DLTensor *const *inputs, size_t n_outputs,
                               DLTensor *const *outputs, kiln_build *b, int64_t *out_values) {
  kiln_bucket_run run = {n_inputs, n_outputs, inputs, outputs, {0}, 0};
  kiln_model *part = KILN_NEW(&cx->perm, kiln_model);
  KILN_TRY(kiln_bucket_of(cx, m, &run));
  kiln_bucket_begin(m, run.bucket, part, b);
  memset(&part->times, 0, sizeof part->times); // growing the model's list would move it
  part->n_load_times = 0;
  KILN_TRY(kiln_build_kernels(cx, b));
  KILN_TRY(kiln_pipeline_run(cx, b, KILN_PHASE_LAUNCHES, KILN_PHASE_LAUNCHES));
  kiln_bucket_trim(cx, b, run.values);
  memcpy(out_values, run.values, sizeof run.values);
  return KILN_OK;
}

const kiln_compiler kiln_compiler_here = {.load = kiln_model_load_nth,
                                          .compile = kiln_model_compile,
                                          .unroll = kiln_load_unrolled,
                                          .rewrite = rewrite,
                                          .kernels = kiln_build_kernels,
                                          .bucket = make_bucket,
                                          .run = kiln_build_run,
                                          .counts = kiln_pipeline_counts,
                                          .omits = kiln_build_omits};
