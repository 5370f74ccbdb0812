// Runs a model in the simulator, launch by launch on host memory, with statistics of each.
#include "module/compiler.h"
#include "verify/reference.h"
#include "module/checked.h"
#include "verify/compare.h"
#include "runtime/check.h"
#include "runtime/strided.h"
#include "verify/loops.h"

#include <stdlib.h>
#include <string.h>

typedef struct simulation {
  kiln_build build;
  size_t n_inputs, n_outputs;
  const DLTensor *const *inputs;
  DLTensor *const *outputs;
  const char **out_report;
  int64_t values[KILN_MAX_DIMS]; // of the dimensions, of a model with ranges
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

// Of a model with ranges, what is not computed may be any number.
static void *allocate(kiln_ctx *cx, const simulation *s, uint64_t bytes) {
  void *data = aligned_alloc(64, (bytes + 127) / 64 * 64);
  if (data) memset(data, s->build.request.ranges ? 0xff : 0, bytes);
  else
    KILN_FAIL(cx->diag, KILN_NO_MEMORY, s->build.request.model->path, "simulation: no memory left");
  return data;
}

// --- tensors ---

// The elements of |of| in the extents of |t|, which may be greater.
static kiln_strided part_of(kiln_ctx *cx, const kiln_tensor *t, const DLTensor *of) {
  int64_t *strides = KILN_NEW_ARRAY(&cx->perm, int64_t, t->rank), stride = 1, shape[KILN_MAX_RANK];
  kiln_tensor_static_shape(t, shape);
  for (int k = t->rank - 1; k >= 0; k--) {
    strides[k] = stride;
    stride *= shape[k];
  }
  return (kiln_strided){.elem_bytes = (size_t)kiln_dtype_bytes(t->dtype),
                        .rank = t->rank,
                        .shape = of->shape,
                        .strides = strides};
}

static bool is_part(const kiln_tensor *t, const DLTensor *of) {
  int64_t shape[KILN_MAX_RANK];
  kiln_tensor_static_shape(t, shape);
  return memcmp(shape, of->shape, (size_t)t->rank * sizeof *shape) != 0;
}

// Integers beyond the end are 0, as they may be indices.
static const void *spread(kiln_ctx *cx, const kiln_tensor *t, const DLTensor *from) {
  const void *elements = kiln_elements_of(&cx->perm, from);
  if (!is_part(t, from)) return elements;
  const size_t bytes = (size_t)(kiln_tensor_elems(t) * kiln_dtype_bytes(t->dtype));
  kiln_strided what = part_of(cx, t, from);
  what.from = elements;
  what.to = kiln_arena_alloc(&cx->perm, bytes + 1);
  memset(what.to, kiln_dtype_is_float(t->dtype) ? 0xff : 0, bytes);
  if (kiln_tensor_count(from) > 0) kiln_strided_spread(&what);
  return what.to;
}

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
    const kiln_tensor *t = p->tensors.data[id];
    kiln_tensor_strides(t, strides);
    kiln_strided_put(t, spread(cx, t, s->inputs[i]), strides, s->tensors[id]);
  }
  if (s->build.request.ranges) {
    const kiln_tensor *dims = p->tensors.data[p->inputs.data[s->n_inputs]];
    memcpy(s->tensors[dims->id], s->values, kiln_storage_bytes(dims));
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

static void take_part(kiln_ctx *cx, const simulation *s, size_t i, void *elements) {
  const kiln_program *p = s->build.choices.prog;
  const kiln_tensor *t = p->tensors.data[p->outputs.data[i]];
  void *whole =
      kiln_arena_alloc(&cx->perm, (size_t)(kiln_tensor_elems(t) * kiln_dtype_bytes(t->dtype)) + 1);
  kiln_strided what = part_of(cx, t, s->outputs[i]);
  take_output(s, i, whole);
  what.from = whole;
  what.to = elements;
  if (kiln_tensor_count(s->outputs[i]) > 0) kiln_strided_copy(&what);
}

static kiln_status give_outputs(kiln_ctx *cx, simulation *s) {
  const kiln_program *p = s->build.choices.prog;
  for (int k = 0; k < p->shape_of.n; k++)
    take_output(s, s->n_outputs + (size_t)k, s->build.request.model->found[p->shape_of.data[k]]);
  for (size_t i = 0; i < s->n_outputs; i++) {
    const kiln_tensor *t = p->tensors.data[p->outputs.data[i]];
    void *elements = kiln_elements_of(&cx->perm, s->outputs[i]);
    if (is_part(t, s->outputs[i])) take_part(cx, s, i, elements);
    else take_output(s, i, elements);
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
  memset(s->args[s->n_args - 1], 0, w.bytes); // panels have elements that no weight fills
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
  if (!m->ranges)
    KILN_TRY(
        kiln_model_check_tensors(m, s->n_inputs, s->inputs, s->n_outputs, s->outputs, cx->diag));
  kiln_text_init(&s->report, &cx->perm);
  kiln_text_add(&s->report, "");
  KILN_TRY(m->ranges ? m->compiler->bucket(cx, m, s->n_inputs, s->inputs, s->n_outputs, s->outputs,
                                           &s->build, s->values)
                     : m->compiler->kernels(cx, &s->build));
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
