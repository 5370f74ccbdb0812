// Reference results: the program of fission, before any scheduling, through the interpreter.
#include "analysis/interpret.h"
#include "driver/checked.h"
#include "driver/compare.h"
#include "driver/model.h"
#include "runtime/check.h"

#include <string.h>

typedef struct referring {
  kiln_model *model;
  size_t n_inputs, n_outputs;
  const DLTensor *const *inputs;
  DLTensor *const *outputs;
} referring;

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
  KILN_TRY(kiln_model_want_program(m, diag));
  KILN_TRY(kiln_check_tensors(&in_ports, n_inputs, inputs, diag));
  KILN_TRY(kiln_check_tensors(&out_ports, n_outputs, outputs, diag));
  return kiln_check_overlap(n_inputs, inputs, n_outputs, outputs, diag);
}

// The elements of output |i|; NULL when they were not computed.
static const void *result(const kiln_interpreter *in, const kiln_program *p, size_t i) {
  const int id = p->outputs.data[i];
  const void *data = kiln_interpreter_data(in, id);
  return data ? data : p->tensors.data[id]->data; // a constant, which nobody computes
}

static kiln_status compute(kiln_ctx *cx, kiln_interpreter *in, const kiln_program *p,
                           const referring *r) {
  for (size_t i = 0; i < r->n_inputs; i++)
    kiln_interpreter_bind(in, p->inputs.data[i], kiln_elements_of(&cx->perm, r->inputs[i]));
  KILN_TRY(kiln_interpreter_run(in));
  for (size_t i = 0; i < r->n_outputs; i++) kiln_tensor_pack(r->outputs[i], result(in, p, i));
  for (int k = 0; k < p->shape_of.n; k++) {
    const int of = p->shape_of.data[k], rank = r->model->outputs.ports[of].rank;
    memcpy(r->model->found[of], result(in, p, r->n_outputs + (size_t)k), 8 * (size_t)rank);
  }
  if (p->checks.n == 0) return KILN_OK;
  return kiln_program_checked(cx, p, result(in, p, (size_t)p->outputs.n - 1));
}

static kiln_status refer(kiln_ctx *cx, void *argument) {
  const referring *r = argument;
  const kiln_program *p = NULL;
  kiln_interpreter *in = NULL;
  KILN_TRY(kiln_model_check_tensors(r->model, r->n_inputs, r->inputs, r->n_outputs, r->outputs,
                                    cx->diag));
  KILN_TRY(kiln_model_meaning(cx, r->model, &p));
  KILN_TRY(kiln_interpreter_create(cx, p, &in));
  kiln_cleanup_push(cx, destroy, in);
  const kiln_status st = compute(cx, in, p, r);
  kiln_cleanup_pop(cx);
  kiln_interpreter_destroy(in);
  return st;
}

kiln_status kiln_model_reference(kiln_model *model, size_t n_inputs, const DLTensor *const *inputs,
                                 size_t n_outputs, DLTensor *const *outputs, kiln_diag *diag) {
  referring r = {model, n_inputs, n_outputs, inputs, outputs};
  KILN_TRY(kiln_argument_check(diag, __func__, "model", model));
  return kiln_model_enter(model, diag, refer, &r);
}
