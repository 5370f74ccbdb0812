// Times of kernels inside runs of the whole model, so that caches are in their usual state.
//
// Two models are compared by alternating runs; times of the second are scaled by the first's, so
// that other load on the machine, which slows both down, cancels out.
#include "tune/kernel_times.h"
#include "tune/trial.h"

enum { ROUNDS = 9, FEW_ROUNDS = 3, MAX_RUNS = 10 };
#define TURN_MS 5.0   // a turn has as many runs as fit in this time
#define LONG_MS 200.0 // longer runs are timed in fewer turns

typedef struct measuring {
  kiln_ctx *cx;
  kiln_trial trial;
  kiln_module *module;
} measuring;

static void deinit(void *object) {
  measuring *m = object;
  kiln_trial_deinit(&m->trial);
  kiln_module_release(m->module);
  m->module = NULL;
}

// Mean time of each launch in a turn, after a warm-up run.
//
// gives: *out_us, the time of a whole run
static kiln_status run_turn(measuring *m, kiln_module *module, const kiln_kernels *k, double *us,
                            double *out_us) {
  KILN_TRY(kiln_trial_turn(&m->trial, module, true));
  KILN_TRY(kiln_trial_run(&m->trial, kiln_trial_outputs(&m->trial)));
  const double start = kiln_now_ms();
  int n = 0;
  for (int i = 0; i < k->launches.n; i++) us[i] = 0;
  for (; n == 0 || (n < MAX_RUNS && kiln_now_ms() - start < TURN_MS); n++) {
    KILN_TRY(kiln_trial_run(&m->trial, kiln_trial_outputs(&m->trial)));
    for (int i = 0; i < k->launches.n; i++)
      us[i] += (double)kiln_session_launch_ns(m->trial.session, (size_t)i) / 1e3;
  }
  *out_us = 0;
  for (int i = 0; i < k->launches.n; i++) *out_us += us[i] /= n;
  return KILN_OK;
}

static kiln_status run_rounds(kiln_build *b, measuring *m, const kiln_timed *first,
                              kiln_timed *out) {
  const kiln_kernels *k = &b->choices.kernels;
  const int n_first = first ? first->kernels->launches.n : 0;
  double *turn = KILN_NEW_ARRAY(&m->cx->perm, double, k->launches.n + n_first + 1);
  double *at = KILN_NEW_ARRAY(&m->cx->perm, double, k->launches.n *ROUNDS + 1);
  double *us = KILN_NEW_ARRAY(&m->cx->perm, double, k->kernels.n + 1), runs[ROUNDS];
  int *n = KILN_NEW_ARRAY(&m->cx->perm, int, k->kernels.n + 1), n_rounds = ROUNDS;
  for (int r = 0; r < n_rounds; r++) {
    double slower = 1; // how much slower the reference runs now than at first
    kiln_model_progress(b->request.model, "measure", (size_t)r, (size_t)n_rounds);
    if (first) {
      KILN_TRY(run_turn(m, first->module, first->kernels, turn, &slower));
      slower /= first->run_us;
    }
    KILN_TRY(run_turn(m, m->module, k, turn, &runs[r]));
    if (runs[r] / 1e3 > LONG_MS) n_rounds = FEW_ROUNDS;
    for (int i = 0; i < k->launches.n; i++) at[i * ROUNDS + r] = turn[i] / slower;
    runs[r] /= slower;
  }
  kiln_model_progress(b->request.model, "measure", (size_t)n_rounds, (size_t)n_rounds);
  for (int i = 0; i < k->launches.n; i++) {
    us[k->launches.data[i].kernel] += kiln_median(at + i * ROUNDS, n_rounds);
    n[k->launches.data[i].kernel]++;
  }
  for (int i = 0; i < k->kernels.n; i++)
    if (n[i] > 0) us[i] /= n[i];
  out->us = us;
  out->run_us = kiln_median(runs, n_rounds);
  return KILN_OK;
}

static kiln_status measure(kiln_build *b, measuring *m, const kiln_timed *first, kiln_timed *out) {
  kiln_kernel_fn *functions = NULL;
  b->request.may_borrow = true;
  KILN_TRY(kiln_build_code(m->cx, b));
  KILN_TRY(kiln_layout_make(m->cx, b));
  KILN_TRY(kiln_build_jit(m->cx, b, &functions));
  KILN_TRY(kiln_build_module(m->cx, b, functions, &m->module));
  KILN_TRY(kiln_trial_init(&m->trial));
  return run_rounds(b, m, first, out);
}

kiln_status kiln_build_time(kiln_ctx *cx, kiln_build *b, const kiln_timed *first, kiln_timed *out) {
  measuring *m = KILN_NEW(&cx->perm, measuring);
  *out = (kiln_timed){.kernels = &b->choices.kernels};
  *m = (measuring){.cx = cx,
                   .trial = {.cx = cx,
                             .model = b->request.model,
                             .diag = cx->diag,
                             .threads = b->request.model->options.threads}};
  kiln_cleanup_push(cx, deinit, m);
  const kiln_status st = measure(b, m, first, out);
  kiln_cleanup_pop(cx);
  if (st == KILN_OK) {
    out->module = m->module;
    m->module = NULL;
  }
  deinit(m);
  return st;
}

kiln_status kiln_build_measure(kiln_ctx *cx, kiln_build *b, const double **out_us) {
  kiln_timed timed;
  KILN_TRY(kiln_build_time(cx, b, NULL, &timed));
  kiln_module_release(timed.module);
  *out_us = timed.us;
  return KILN_OK;
}
