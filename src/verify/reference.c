// Reference results: runs the unscheduled program in the interpreter.
#include "verify/reference.h"
#include "analysis/interpret.h"
#include "module/build.h"
#include "module/checked.h"
#include "module/compiler.h"
#include "verify/compare.h"
#include "verify/parts_reference.h"
#include "model/model.h"
#include "runtime/check.h"
#include "runtime/strided.h"
#include "transform/winograd.h"

#include <math.h>
#include <string.h>

typedef struct referring {
  kiln_model *model;
  size_t n_inputs, n_outputs;
  const DLTensor *const *inputs;
  DLTensor *const *outputs;   // NULL: judge |got| instead
  const DLTensor *const *got; // [n_outputs]
  kiln_judgement *out;        // [n_outputs]
} referring;

kiln_freedoms kiln_model_freedoms(const kiln_model *m) {
  const char *dtype = m->options.dtype;
  kiln_freedoms may = {.narrow_products = dtype && strcmp(dtype, "tf32") == 0};
  if (!m->options.no_winograd && !kiln_target_find(m->options.target)->has_explicit_scopes)
    may.transforms = kiln_winograd_transforms();
  may.transforms.nodes = m->transformed;
  may.transforms.n_nodes = m->n_transformed;
  return may;
}

static bool is_winograd(const char *kernel) { // k1_winograd_Conv
  const char *template_name = strchr(kernel, '_');
  return template_name && strncmp(template_name, "_winograd", 9) == 0;
}

void kiln_model_note_transforms(kiln_ctx *cx, kiln_model *m, const kiln_module *module) {
  const size_t n = kiln_module_launch_count(module);
  const char **nodes = KILN_NEW_ARRAY(&cx->perm, const char *, (int)n + 1);
  m->n_transformed = 0;
  m->transformed = nodes;
  for (size_t i = 0; i < n; i++) {
    const kiln_launch_info l = kiln_module_launch(module, i);
    if (is_winograd(l.kernel)) nodes[m->n_transformed++] = kiln_arena_strdup(&cx->perm, l.nodes);
  }
}

kiln_freedoms kiln_launch_freedoms(const kiln_model *m) {
  kiln_freedoms may = kiln_model_freedoms(m);
  may.transforms = (kiln_transforms){0};
  return may;
}

static kiln_port input_port(const void *model, size_t i) { return kiln_model_input(model, i); }
static kiln_port output_port(const void *model, size_t i) { return kiln_model_output(model, i); }

static void destroy(void *interpreter) { kiln_interpreter_destroy(interpreter); }

kiln_status kiln_model_check_tensors(const kiln_model *m, size_t n_inputs,
                                     const DLTensor *const *inputs, size_t n_outputs,
                                     DLTensor *const *out, kiln_diag *diag) {
  const DLTensor *const *outputs = (const DLTensor *const *)out;
  const kiln_ports in_ports = {
      .what = "input", .n = (size_t)m->inputs.n, .port = input_port, .object = m};
  const kiln_ports out_ports = {
      .what = "output", .n = kiln_model_output_count(m), .port = output_port, .object = m};
  if (!m->parted) KILN_TRY(kiln_model_want_program(m, diag));
  KILN_TRY(kiln_check_tensors(&in_ports, n_inputs, inputs, diag));
  KILN_TRY(kiln_check_tensors(&out_ports, n_outputs, outputs, diag));
  return kiln_check_overlap(n_inputs, inputs, n_outputs, outputs, NULL, NULL, diag);
}

// The elements of output |i|; NULL if not computed.
static const void *result(const kiln_interpreter *in, const kiln_program *p, size_t i) {
  const int id = p->outputs.data[i];
  const void *data = kiln_interpreter_data(in, id);
  return data ? data : p->tensors.data[id]->data; // an output that is a constant
}

static bool has_shape(const DLTensor *t, int rank, const int64_t *shape) {
  bool has = t->ndim == rank;
  for (int k = 0; has && k < rank; k++) has = t->shape[k] == shape[k];
  return has;
}

// Elements outside of the run-time shape count as right.
static void judge(kiln_ctx *cx, const kiln_interpreter *in, const kiln_program *p,
                  const referring *r, size_t i) {
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  const kiln_tensor *t = p->tensors.data[p->outputs.data[i]];
  const DLTensor *got = r->got[i];
  int64_t strides[KILN_MAX_RANK];
  kiln_difference d = {.wrong = 1, .first_wrong = -1};
  kiln_tensor_strides(t, strides);
  if (has_shape(got, t->rank, kiln_model_output_shape(r->model, i))) {
    const int64_t bytes = kiln_dtype_bytes(t->dtype);
    char *all = kiln_arena_alloc(&cx->scratch, (size_t)(kiln_tensor_elems(t) * bytes) + 1);
    memcpy(all, result(in, p, i), (size_t)(kiln_tensor_elems(t) * bytes));
    const kiln_strided what = {
        all, kiln_elements_of(&cx->scratch, got), (uint64_t)bytes, t->rank, got->shape, strides};
    if (kiln_tensor_count(got) > 0) kiln_strided_spread(&what);
    kiln_judge(in, t, all, strides, result(in, p, i), &d);
  }
  r->out[i] = (kiln_judgement){
      .passed = d.wrong == 0,
      .rel_l2 = d.want_square > 0 ? sqrt(d.square / d.want_square) : sqrt(d.square),
      .max_abs = d.max_abs,
      .n_wrong = d.wrong,
      .first_wrong = d.wrong ? d.first_wrong : -1,
      .got = d.got,
      .want = d.want,
      .most = d.most,
      .n_free = d.free,
      .n_spread = d.n_spread,
      .together = d.together,
      .spread = d.n_spread > 0 ? sqrt(d.spread_square / (double)d.n_spread) : 0};
  kiln_arena_rewind(&cx->scratch, mark);
}

// Runs the parts of the model; |in| gets the outputs.
static kiln_status compute_parts(kiln_ctx *cx, kiln_interpreter *in, const kiln_program *ports,
                                 const referring *r) {
  const void **inputs = KILN_NEW_ARRAY(&cx->perm, const void *, (int)r->n_inputs + 1);
  const kiln_freedoms may = kiln_model_freedoms(r->model);
  for (size_t i = 0; i < r->n_inputs; i++) inputs[i] = kiln_elements_of(&cx->perm, r->inputs[i]);
  KILN_TRY(kiln_parts_refer(cx, r->model, inputs, r->got ? &may : NULL, ports, in));
  for (size_t i = 0; r->outputs && i < r->n_outputs; i++)
    kiln_tensor_pack(r->outputs[i], result(in, ports, i));
  for (size_t i = 0; r->got && i < r->n_outputs; i++) judge(cx, in, ports, r, i);
  return KILN_OK;
}

static kiln_status compute_whole(kiln_ctx *cx, kiln_interpreter *in, const kiln_program *p,
                                 const referring *r) {
  for (size_t i = 0; i < r->n_inputs; i++)
    kiln_interpreter_bind(in, p->inputs.data[i], kiln_elements_of(&cx->perm, r->inputs[i]));
  if (r->got) kiln_interpreter_track(in, kiln_model_freedoms(r->model));
  KILN_TRY(kiln_interpreter_run(in));
  for (size_t i = 0; r->outputs && i < r->n_outputs; i++)
    kiln_tensor_pack(r->outputs[i], result(in, p, i));
  for (int k = 0; k < p->shape_of.n; k++) {
    const int of = p->shape_of.data[k], rank = r->model->outputs.ports[of].rank;
    memcpy(r->model->found[of], result(in, p, r->n_outputs + (size_t)k), 8 * (size_t)rank);
  }
  for (size_t i = 0; r->got && i < r->n_outputs; i++) judge(cx, in, p, r, i);
  if (p->checks.n == 0) return KILN_OK;
  return kiln_program_checked(cx, p, result(in, p, (size_t)p->outputs.n - 1));
}

static kiln_status check_inputs(const referring *r, kiln_diag *diag) {
  const kiln_ports ports = {
      .what = "input", .n = (size_t)r->model->inputs.n, .port = input_port, .object = r->model};
  if (!r->model->parted) KILN_TRY(kiln_model_want_program(r->model, diag));
  if (r->n_outputs != kiln_model_output_count(r->model))
    return KILN_FAIL(diag, KILN_BAD_INPUT, r->model->path, "outputs: must be %zu, got %zu",
                     kiln_model_output_count(r->model), r->n_outputs);
  return kiln_check_tensors(&ports, r->n_inputs, r->inputs, diag);
}

static kiln_status refer(kiln_ctx *cx, void *argument) {
  referring *r = argument;
  const kiln_program *p = NULL;
  kiln_interpreter *in = NULL;
  r->inputs = kiln_defaults_fill_in(cx, r->model, r->n_inputs, r->inputs);
  if (r->outputs)
    KILN_TRY(kiln_model_check_tensors(r->model, r->n_inputs, r->inputs, r->n_outputs, r->outputs,
                                      cx->diag));
  else KILN_TRY(check_inputs(r, cx->diag));
  KILN_TRY(kiln_model_meaning(cx, r->model, &p));
  KILN_TRY(kiln_interpreter_create(cx, p, &in));
  kiln_cleanup_push(cx, destroy, in);
  const kiln_status st = (r->model->parted ? compute_parts : compute_whole)(cx, in, p, r);
  kiln_cleanup_pop(cx);
  kiln_interpreter_destroy(in);
  return st;
}

kiln_status kiln_model_reference(kiln_model *model, size_t n_inputs, const DLTensor *const *inputs,
                                 size_t n_outputs, DLTensor *const *outputs, kiln_diag *diag) {
  referring r = {.model = model,
                 .n_inputs = n_inputs,
                 .n_outputs = n_outputs,
                 .inputs = inputs,
                 .outputs = outputs};
  KILN_TRY(kiln_argument_check(diag, __func__, "model", model));
  return kiln_model_enter(model, diag, refer, &r);
}

kiln_status kiln_model_judge(kiln_model *model, size_t n_inputs, const DLTensor *const *inputs,
                             size_t n_outputs, const DLTensor *const *got, kiln_diag *diag,
                             kiln_judgement *out) {
  referring r = {.model = model,
                 .n_inputs = n_inputs,
                 .n_outputs = n_outputs,
                 .inputs = inputs,
                 .got = got,
                 .out = out};
  KILN_TRY(kiln_argument_check(diag, __func__, "model", model));
  KILN_TRY(kiln_argument_check(diag, __func__, "out", out));
  return kiln_model_enter(model, diag, refer, &r);
}
