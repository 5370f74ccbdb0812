// Trials: the data, turns and comparisons shared by search and tuning.
#include "tune/trial.h"
#include "verify/reference.h"
#include "verify/compare.h"
#include "verify/random.h"

#include <stdlib.h>
#include <string.h>

DLTensor **kiln_trial_inputs(const kiln_trial *t) { return t->views; }
DLTensor **kiln_trial_outputs(const kiln_trial *t) { return t->views + t->n_inputs; }
DLTensor **kiln_trial_expected(const kiln_trial *t) {
  return t->views + t->n_inputs + t->n_outputs;
}

static kiln_status add_tensor(kiln_trial *t, size_t at, kiln_port port) {
  t->tensors[at] = kiln_tensor_create(port.dtype, port.rank, port.shape, t->diag);
  if (!t->tensors[at]) return KILN_NO_MEMORY;
  t->views[at] = &t->tensors[at]->dl_tensor;
  return KILN_OK;
}

kiln_status kiln_trial_init(kiln_trial *t) {
  uint64_t state = t->seed;
  KILN_TRY(kiln_model_meaning(&t->model->core->cx, t->model, &t->prog));
  t->n_inputs = kiln_model_input_count(t->model);
  t->n_outputs = kiln_model_output_count(t->model);
  const int n = (int)(t->n_inputs + 2 * t->n_outputs);
  t->tensors = KILN_NEW_ARRAY(&t->cx->perm, DLManagedTensorVersioned *, n);
  t->views = KILN_NEW_ARRAY(&t->cx->perm, DLTensor *, n);
  for (size_t i = 0; i < t->n_inputs; i++) {
    KILN_TRY(add_tensor(t, i, kiln_model_input(t->model, i)));
    void *elements = kiln_elements_of(&t->cx->perm, t->views[i]);
    kiln_random_fill(&t->model->core->cx, t->prog, t->prog->inputs.data[i], &state, elements);
    if (elements != t->views[i]->data) kiln_tensor_pack(t->views[i], elements);
  }
  for (size_t i = 0; i < 2 * t->n_outputs; i++)
    KILN_TRY(add_tensor(t, t->n_inputs + i, kiln_model_output(t->model, i % t->n_outputs)));
  return KILN_OK;
}

static kiln_status refer(kiln_ctx *cx, void *argument) {
  kiln_trial *t = argument;
  const kiln_program *p = t->prog;
  KILN_TRY(kiln_interpreter_create(cx, p, &t->judge));
  for (size_t i = 0; i < t->n_inputs; i++)
    kiln_interpreter_bind(t->judge, p->inputs.data[i], kiln_elements_of(&cx->perm, t->views[i]));
  kiln_interpreter_track(t->judge, kiln_model_freedoms(t->model));
  return kiln_interpreter_run(t->judge);
}

kiln_status kiln_trial_compute_expected(kiln_trial *t) {
  return kiln_model_enter(t->model, t->diag, refer, t);
}

void kiln_trial_deinit(kiln_trial *t) {
  kiln_session_destroy(t->session);
  kiln_interpreter_destroy(t->judge);
  t->judge = NULL;
  for (size_t i = 0; t->tensors && i < t->n_inputs + 2 * t->n_outputs; i++)
    kiln_tensor_destroy(t->tensors[i]);
  t->session = NULL;
  t->tensors = NULL;
}

kiln_status kiln_trial_turn(kiln_trial *t, kiln_module *m, bool profile) {
  const kiln_session_options o = {
      .struct_size = sizeof o, .threads = t->threads, .profile = profile};
  kiln_session_destroy(t->session);
  t->session = NULL;
  return kiln_session_create(m, &o, t->diag, &t->session);
}

kiln_status kiln_trial_run(const kiln_trial *t, DLTensor **outputs) {
  return kiln_session_run(t->session, t->n_inputs, (const DLTensor *const *)kiln_trial_inputs(t),
                          t->n_outputs, outputs, t->diag);
}

static bool is_right(const kiln_trial *t) {
  const kiln_program *p = t->prog;
  kiln_difference d = {0};
  for (size_t i = 0; i < t->n_outputs; i++) {
    const kiln_tensor *tensor = p->tensors.data[p->outputs.data[i]];
    int64_t strides[KILN_MAX_RANK];
    kiln_tensor_strides(tensor, strides);
    const kiln_mark m = kiln_arena_mark(&t->cx->scratch);
    const void *got = kiln_elements_of(&t->cx->scratch, kiln_trial_outputs(t)[i]);
    kiln_difference one = {0};
    if (t->judge)
      kiln_judge(t->judge, tensor, got, strides, kiln_interpreter_data(t->judge, tensor->id), &one);
    else
      kiln_compare(tensor, got, strides,
                   kiln_elements_of(&t->cx->scratch, kiln_trial_expected(t)[i]), t->rtol, t->atol,
                   true, &one);
    d.wrong += one.wrong;
    kiln_arena_rewind(&t->cx->scratch, m);
  }
  return d.wrong == 0;
}

static void forget_outputs(const kiln_trial *t) { // fills with NaN or large integers
  for (size_t i = 0; i < t->n_outputs; i++)
    memset(kiln_trial_outputs(t)[i]->data, 0xff, kiln_tensor_bytes(kiln_trial_outputs(t)[i]));
}

kiln_status kiln_trial_check(kiln_trial *t, kiln_module *m, bool *out_is_right) {
  *out_is_right = false;
  KILN_TRY(kiln_trial_turn(t, m, false));
  forget_outputs(t);
  KILN_TRY(kiln_trial_run(t, kiln_trial_outputs(t)));
  *out_is_right = is_right(t);
  return KILN_OK;
}

static int by_value(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

double kiln_median(double *values, int n) {
  qsort(values, (size_t)n, sizeof *values, by_value);
  return n > 0 ? values[n / 2] : 0;
}
