// Runs a model in the simulator, launch by launch on host memory, with statistics of each.
#include "module/compiler.h"
#include "verify/reference.h"
#include "module/checked.h"
#include "verify/compare.h"
#include "runtime/check.h"
#include "verify/loops.h"

#include <stdlib.h>
#include <string.h>

typedef struct simulation {
  kiln_build build;
  size_t n_inputs, n_outputs;
  const DLTensor *const *inputs;
  DLTensor *const *outputs;
  const char **out_report;
  int n_tensors;
  void **tensors; // [n_tensors] storage of the program's tensors, malloc'ed; NULL: constants and
                  // views
  int n_args;
  void **args;  // of the current launch
  bool *is_own; // [n_args] malloc'ed for this launch
  kiln_text report;
} simulation;

static void free_args(simulation *s) {
  for (int i = 0; i < s->n_args; i++)
    if (s->is_own[i]) free(s->args[i]);
  s->n_args = 0;
}

static void deinit(simulation *s) {
  free_args(s);
  for (int i = 0; i < s->n_tensors; i++) free(s->tensors[i]);
  kiln_build_deinit(&s->build);
}

static void *allocate(kiln_ctx *cx, const simulation *s, uint64_t bytes) {
  void *data = aligned_alloc(64, (bytes + 127) / 64 * 64);
  if (data) memset(data, 0, bytes);
  else
    KILN_FAIL(cx->diag, KILN_NO_MEMORY, s->build.request.model->path, "simulation: no memory left");
  return data;
}

// --- tensors ---

static kiln_status make_tensors(kiln_ctx *cx, simulation *s) {
  const kiln_program *p = s->build.choices.prog;
  int64_t strides[KILN_MAX_RANK];
  s->tensors = KILN_NEW_ARRAY(&cx->perm, void *, p->tensors.n);
  s->n_tensors = p->tensors.n;
  for (int i = 0; i < p->tensors.n; i++) {
    const kiln_tensor *t = p->tensors.data[i];
    if (!t || t->inside || t->role == KILN_CONST) continue;
    s->tensors[i] = allocate(cx, s, kiln_storage_bytes(t));
    if (!s->tensors[i]) return KILN_NO_MEMORY;
  }
  for (size_t i = 0; i < s->n_inputs; i++) {
    const int id = p->inputs.data[i];
    kiln_tensor_strides(p->tensors.data[id], strides);
    kiln_strided_put(p->tensors.data[id], kiln_elements_of(&cx->perm, s->inputs[i]), strides,
                     s->tensors[id]);
  }
  return KILN_OK;
}

static char *address(const simulation *s, const kiln_tensor *t) {
  int64_t offset = 0;
  const kiln_tensor *own = t;
  for (; own->inside; own = own->inside) offset += own->offset;
  return (char *)s->tensors[own->id] + offset * kiln_dtype_bytes(t->dtype);
}

static void take_output(const simulation *s, size_t i, void *elements) {
  const kiln_program *p = s->build.choices.prog;
  const kiln_tensor *t = p->tensors.data[p->outputs.data[i]];
  int64_t strides[KILN_MAX_RANK];
  kiln_tensor_strides(t, strides);
  kiln_strided_take(t, t->role == KILN_CONST ? t->data : address(s, t), strides, elements);
}

static kiln_status give_outputs(kiln_ctx *cx, simulation *s) {
  const kiln_program *p = s->build.choices.prog;
  for (int k = 0; k < p->shape_of.n; k++)
    take_output(s, s->n_outputs + (size_t)k, s->build.request.model->found[p->shape_of.data[k]]);
  for (size_t i = 0; i < s->n_outputs; i++) {
    void *elements = kiln_elements_of(&cx->perm, s->outputs[i]);
    take_output(s, i, elements);
    if (elements != kiln_tensor_begin(s->outputs[i])) kiln_tensor_pack(s->outputs[i], elements);
  }
  if (p->checks.n == 0) return KILN_OK;
  int64_t *found = KILN_NEW_ARRAY(&cx->perm, int64_t, p->checks.n);
  take_output(s, (size_t)p->outputs.n - 1, found);
  return kiln_program_checked(cx, p, found);
}

// --- launches ---

static kiln_status add_own(kiln_ctx *cx, simulation *s, uint64_t bytes) {
  void *data = allocate(cx, s, bytes);
  if (!data) return KILN_NO_MEMORY;
  s->is_own[s->n_args] = true;
  s->args[s->n_args++] = data;
  return KILN_OK;
}

static kiln_status add_param(kiln_ctx *cx, simulation *s, const kiln_kernel *k,
                             const kiln_argument *a, const kiln_buffer *b) {
  const kiln_tensor *t = s->build.choices.prog->tensors.data[a->tensor];
  if (t->role != KILN_CONST) {
    s->is_own[s->n_args] = false;
    s->args[s->n_args++] = address(s, t) + a->offset * kiln_dtype_bytes(t->dtype);
    return KILN_OK;
  }
  kiln_weight w = {.tensor = t, .buffer = b, .pack = b->pack, .bytes = t->bytes};
  if (w.pack) {
    w.view = k->prog->tensors.data[b->pack->source];
    w.bytes = (uint64_t)kiln_buffer_elems(b) * (uint64_t)kiln_dtype_bytes(b->dtype);
  }
  KILN_TRY(add_own(cx, s, w.bytes));
  return kiln_weight_fill(cx, &w, s->args[s->n_args - 1]);
}

static kiln_status make_args(kiln_ctx *cx, simulation *s, const kiln_launch *l) {
  const kiln_kernel *k = s->build.choices.kernels.kernels.data[l->kernel];
  const kiln_loops *loops = k->loops;
  int param = 0;
  free_args(s);
  s->args = KILN_NEW_ARRAY(&cx->perm, void *, loops->buffers.n);
  s->is_own = KILN_NEW_ARRAY(&cx->perm, bool, loops->buffers.n);
  for (int i = 0; i < loops->buffers.n; i++) {
    const kiln_buffer *b = loops->buffers.data[i];
    if (b && b->scope == KILN_SCOPE_PARAM) KILN_TRY(add_param(cx, s, k, &l->args[param++], b));
    if (b && b->scope == KILN_SCOPE_WORKSPACE)
      KILN_TRY(
          add_own(cx, s, (uint64_t)kiln_buffer_elems(b) * (uint64_t)kiln_dtype_bytes(b->dtype)));
  }
  return KILN_OK;
}

static kiln_status run_launch(kiln_ctx *cx, simulation *s, const kiln_launch *l) {
  kiln_sim_level levels[KILN_SIM_CACHES];
  kiln_sim_traffic traffic;
  const kiln_kernel *k = s->build.choices.kernels.kernels.data[l->kernel];
  KILN_TRY(make_args(cx, s, l));
  const int n_levels = s->build.request.machine.target->has_grids ? 0 : KILN_SIM_CACHES;
  kiln_sim_caches(&s->build.request.machine, levels);
  KILN_TRY(kiln_loops_simulate(cx, &s->build.request.machine, k->loops, s->args, n_levels, levels,
                               &traffic));
  kiln_text_printf(&s->report, "kernel %s: %.0f flops, %.0f bytes at least\n",
                   kiln_symbol_text(cx, k->name), k->flops, k->bytes);
  kiln_sim_traffic_print(cx, k->loops, levels, &traffic, &s->report);
  return KILN_OK;
}

static kiln_status simulate(kiln_ctx *cx, void *argument) {
  simulation *s = argument;
  const kiln_model *m = s->build.request.model;
  s->inputs = kiln_defaults_fill_in(cx, m, s->n_inputs, s->inputs);
  KILN_TRY(kiln_model_check_tensors(m, s->n_inputs, s->inputs, s->n_outputs, s->outputs, cx->diag));
  kiln_text_init(&s->report, &cx->perm);
  kiln_text_add(&s->report, "");
  KILN_TRY(s->build.request.model->compiler->kernels(cx, &s->build));
  KILN_TRY(make_tensors(cx, s));
  const kiln_kernels *k = &s->build.choices.kernels;
  for (int i = 0; i < k->launches.n; i++) {
    kiln_model_progress(m, "simulate", (size_t)i, (size_t)k->launches.n);
    KILN_TRY(run_launch(cx, s, &k->launches.data[i]));
  }
  kiln_model_progress(m, "simulate", (size_t)k->launches.n, (size_t)k->launches.n);
  *s->out_report = s->report.data;
  return give_outputs(cx, s);
}

kiln_status kiln_model_simulate(kiln_model *model, size_t n_inputs, const DLTensor *const *inputs,
                                size_t n_outputs, DLTensor *const *outputs, kiln_diag *diag,
                                const char **out_report) {
  // Loops from the schedule cache have only names of instructions; the simulator needs their
  // meanings.
  simulation s = {.build = {.request.model = model, .request.wants_candidates = true},
                  .n_inputs = n_inputs,
                  .n_outputs = n_outputs,
                  .inputs = inputs,
                  .outputs = outputs,
                  .out_report = out_report};
  KILN_TRY(kiln_argument_check(diag, __func__, "out_report", out_report));
  *out_report = NULL;
  KILN_TRY(kiln_argument_check(diag, __func__, "model", model));
  const kiln_status st = kiln_model_enter(model, diag, simulate, &s);
  deinit(&s);
  return st;
}
