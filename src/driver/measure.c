// Times of kernels inside a run of the model: there the caches are as they are in use.
#include "driver/build.h"
#include "driver/trial.h"

enum { ROUNDS = 9 };

typedef struct measuring {
  kiln_trial trial;
  kiln_module *module;
} measuring;

static void deinit(void *object) {
  measuring *m = object;
  kiln_trial_deinit(&m->trial);
  kiln_module_release(m->module);
  m->module = NULL;
}

static kiln_status run_rounds(kiln_ctx *cx, const kiln_build *b, measuring *m, double *us) {
  const kiln_kernels *k = &b->kernels;
  double *ns = KILN_NEW_ARRAY(&cx->perm, double, k->launches.n *ROUNDS);
  int *n = KILN_NEW_ARRAY(&cx->perm, int, k->kernels.n);
  KILN_TRY(kiln_trial_turn(&m->trial, m->module, true));
  KILN_TRY(kiln_trial_run(&m->trial, kiln_trial_outputs(&m->trial)));
  for (int r = 0; r < ROUNDS; r++) {
    kiln_model_progress(b->model, "measure", (size_t)r, ROUNDS);
    KILN_TRY(kiln_trial_run(&m->trial, kiln_trial_outputs(&m->trial)));
    for (int i = 0; i < k->launches.n; i++)
      ns[i * ROUNDS + r] = (double)kiln_session_launch_ns(m->trial.session, (size_t)i);
  }
  kiln_model_progress(b->model, "measure", ROUNDS, ROUNDS);
  for (int i = 0; i < k->launches.n; i++) {
    us[k->launches.data[i].kernel] += kiln_median(ns + i * ROUNDS, ROUNDS) / 1e3;
    n[k->launches.data[i].kernel]++;
  }
  for (int i = 0; i < k->kernels.n; i++)
    if (n[i] > 0) us[i] /= n[i];
  return KILN_OK;
}

static kiln_status measure(kiln_ctx *cx, kiln_build *b, measuring *m, double *us) {
  kiln_kernel_fn *functions = NULL;
  b->may_borrow = true;
  KILN_TRY(kiln_build_code(cx, b));
  KILN_TRY(kiln_layout_make(cx, b));
  KILN_TRY(kiln_build_jit(cx, b, &functions));
  KILN_TRY(kiln_build_module(cx, b, functions, &m->module));
  KILN_TRY(kiln_trial_init(&m->trial));
  return run_rounds(cx, b, m, us);
}

kiln_status kiln_build_measure(kiln_ctx *cx, kiln_build *b, const double **out_us) {
  double *us = KILN_NEW_ARRAY(&cx->perm, double, b->kernels.kernels.n);
  measuring *m = KILN_NEW(&cx->perm, measuring);
  m->trial = (kiln_trial){
      .cx = cx, .model = b->model, .diag = cx->diag, .threads = b->model->options.threads};
  kiln_cleanup_push(cx, deinit, m);
  const kiln_status st = measure(cx, b, m, us);
  kiln_cleanup_pop(cx);
  deinit(m);
  *out_us = us;
  return st;
}
