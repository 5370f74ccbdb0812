// Tuning on this processor: candidates run inside the model, so that caches are in their usual
// state.
//
// Variant i of the model has candidate i of every kernel. Each variant is compiled, each of its
// kernels is checked alone, then its runs alternate with runs of variant 0, profiling every launch.
// A candidate's score is the ratio of its time to candidate 0's in the same runs.
#include "verify/check.h"
#include "verify/reference.h"
#include "module/library_candidate.h"
#include "tune/trial.h"
#include "tune/tuning.h"

#include <sys/resource.h>

enum { ROUNDS = 7, MAX_RUNS = 10, LEAST_CALM = 3 };
#define TURN_MS 5.0 // a turn has as many runs as fit in this time
#define INTERPRETED_FLOPS 2e8
static const kiln_check_tolerance beside_first = {1e-3, 1e-4, 0,
                                                  false}; // of candidate 0's, if wider

typedef struct tuning {
  kiln_ctx *cx;
  kiln_tuner *t;
  int n_variants;
  kiln_trial trial;
  kiln_build variant; // the variant being compiled
  kiln_build first;   // the arena part of variant 0, and its functions
  const kiln_kernel_fn *functions;
  kiln_module *modules[2]; // variant 0, and the current variant
  kiln_kernel_check check;
  double *us[2];           // [kernels * ROUNDS]
  bool is_calm[2][ROUNDS]; // no other process preempted the threads in that turn
} tuning;

static void deinit(void *object) {
  tuning *c = object;
  kiln_kernel_check_deinit(&c->check);
  kiln_trial_deinit(&c->trial);
  for (int i = 0; i < 2; i++) kiln_module_release(c->modules[i]);
  kiln_build_deinit(&c->variant);
  c->modules[0] = c->modules[1] = NULL;
}

// --- variants ---

static bool is_wanted(const kiln_tuning_candidates *r, int i) {
  return r->n > 1 && i < r->n && !r->at[i].is_known;
}

// The index of the kernel's candidate in variant |i|.
static int choice(const kiln_tuning_candidates *r, int i) { return is_wanted(r, i) ? i : 0; }

static void choose_kernels(const tuning *c, int i, kiln_build *v) {
  const kiln_build *b = c->t->b;
  const kiln_kernels *from = &b->choices.kernels;
  *v = (kiln_build){.request.model = b->request.model,
                    .request.machine = b->request.machine,
                    .choices.prog = b->choices.prog,
                    .choices.kernels = *from,
                    .product.symbols = b->product.symbols,
                    .request.may_borrow = true,
                    .request.may_stop = i > 0}; // variant 0 becomes the module without tuning
  v->choices.kernels.kernels.data = KILN_NEW_ARRAY(&c->cx->perm, kiln_kernel *, from->kernels.n);
  for (int k = 0; k < from->kernels.n; k++) {
    const kiln_tuning_candidates *r = &c->t->of[k];
    kiln_kernel *copy = KILN_NEW(&c->cx->perm, kiln_kernel);
    *copy = *from->kernels.data[k];
    if (r->n > 1) kiln_kernel_take(c->cx, copy, r->at[choice(r, i)].candidate);
    v->choices.kernels.kernels.data[k] = copy;
  }
}

typedef struct calling {
  kiln_ctx *cx;
  const kiln_program *p;
  const kiln_library_candidate *by_library;
} calling;

static kiln_status call_library(void *user, int n, const kiln_check_arg *args, bool *out_ran) {
  const calling *c = user;
  char **data = KILN_NEW_ARRAY(&c->cx->scratch, char *, n);
  for (int i = 0; i < n; i++) data[i] = args[i].data;
  *out_ran = true;
  return kiln_library_candidate_run(c->cx, c->by_library, c->p, data);
}

static kiln_status check_other(tuning *c, const kiln_tuning_candidates *r, int i,
                               const kiln_kernel_fn *functions, bool *out_is_right) {
  const kiln_tile_candidate *other = r->at[i].candidate;
  calling call = {c->cx, r->kernel->prog, other->by_library};
  const kiln_check_runner runner = {call_library, &call};
  if (!other->by_library)
    return kiln_kernel_check_run(&c->check, other->loops, functions, &beside_first, out_is_right);
  return kiln_kernel_check_by(&c->check, other->loops, &runner, &beside_first, out_is_right);
}

// Compares candidate |i| of kernel |k| with candidate 0. If candidate 0 differs from the
// interpreter, random data are no test of this kernel, and candidate 0 is kept.
static kiln_status check_kernel(tuning *c, int i, int k, const kiln_kernel_fn *functions) {
  const kiln_loops *first = c->first.choices.kernels.kernels.data[k]->loops;
  kiln_tuning_candidates *r = &c->t->of[k];
  bool is_right = false;
  const kiln_freedoms may = kiln_launch_freedoms(c->t->b->request.model);
  KILN_TRY(kiln_kernel_check_init(&c->check, c->cx, r->kernel->prog, 1, INTERPRETED_FLOPS, may));
  KILN_TRY(kiln_kernel_check_run(&c->check, first,
                                 c->functions + c->first.product.first_function[k], &beside_first,
                                 &is_right));
  if (is_right)
    KILN_TRY(check_other(c, r, i, functions + c->variant.product.first_function[k], &is_right));
  kiln_kernel_check_deinit(&c->check);
  return is_right ? KILN_OK : kiln_tuner_keep(c->t, r, i, KILN_VERDICT_WRONG, 0);
}

static kiln_status check_kernels(tuning *c, int i, const kiln_kernel_fn *functions,
                                 int *out_wrong) {
  *out_wrong = 0;
  for (int k = 0; k < c->t->n && !kiln_tuner_is_over(c->t); k++) {
    if (!is_wanted(&c->t->of[k], i)) continue;
    KILN_TRY(check_kernel(c, i, k, functions));
    *out_wrong += !is_wanted(&c->t->of[k], i);
  }
  return KILN_OK;
}

static kiln_status compile_variant(tuning *c, int i, kiln_kernel_fn **out_functions) {
  kiln_build_deinit(&c->variant);
  choose_kernels(c, i, &c->variant);
  KILN_TRY(kiln_build_code(c->cx, &c->variant));
  KILN_TRY(kiln_layout_make(c->cx, &c->variant));
  return kiln_build_jit(c->cx, &c->variant, out_functions);
}

// The same within the time limit; *out_functions is NULL when time is over.
static kiln_status compile_in_time(tuning *c, int i, kiln_kernel_fn **out_functions) {
  const kiln_status st = compile_variant(c, i, out_functions);
  if (!kiln_tuner_is_over(c->t)) return st;
  *out_functions = NULL;
  return st == KILN_NO_BUDGET ? KILN_OK : st;
}

static kiln_status make_variant(tuning *c, int i) {
  kiln_kernel_fn *functions = NULL;
  int wrong = 0;
  KILN_TRY(compile_in_time(c, i, &functions));
  if (!functions) return KILN_OK;
  if (i > 0) KILN_TRY(check_kernels(c, i, functions, &wrong));
  if (wrong > 0) KILN_TRY(compile_in_time(c, i, &functions));
  if (!functions || kiln_tuner_is_over(c->t)) return KILN_OK;
  kiln_module_release(c->modules[i > 0]);
  c->modules[i > 0] = NULL;
  KILN_TRY(kiln_build_module(c->cx, &c->variant, functions, &c->modules[i > 0]));
  if (i > 0) return KILN_OK;
  c->first = c->variant; // its resources belong to the module now
  c->functions = functions;
  return KILN_OK;
}

// --- times ---

// Number of involuntary context switches of this process.
static long interruptions(void) {
  struct rusage usage;
  return getrusage(RUSAGE_SELF, &usage) == 0 ? usage.ru_nivcsw : 0;
}

// Mean times after a warm-up run: us[kernel * ROUNDS + round] for a launch.
static kiln_status time_turn(tuning *c, int side, int round) {
  const kiln_kernels *k = &c->t->b->choices.kernels;
  double *us = c->us[side];
  KILN_TRY(kiln_trial_turn(&c->trial, c->modules[side], true));
  KILN_TRY(kiln_trial_run(&c->trial, kiln_trial_outputs(&c->trial)));
  for (int i = 0; i < k->kernels.n; i++) us[i * ROUNDS + round] = 0;
  const double start = kiln_now_ms();
  const long before = interruptions();
  int n = 0;
  for (; n == 0 || (n < MAX_RUNS && kiln_now_ms() - start < TURN_MS); n++) {
    KILN_TRY(kiln_trial_run(&c->trial, kiln_trial_outputs(&c->trial)));
    for (int i = 0; i < k->launches.n; i++)
      us[k->launches.data[i].kernel * ROUNDS + round] +=
          (double)kiln_session_launch_ns(c->trial.session, (size_t)i) / 1e3;
  }
  c->is_calm[side][round] = interruptions() == before;
  for (int i = 0; i < k->kernels.n; i++) us[i * ROUNDS + round] /= n * c->t->of[i].n_launches;
  return KILN_OK;
}

static double least(const double *values, int n) {
  double v = values[0];
  for (int i = 1; i < n; i++) v = values[i] < v ? values[i] : v;
  return v;
}

// Median time of the other side relative to variant 0's.
static double usual_share(const tuning *c, int k) {
  return kiln_median(c->us[1] + k * ROUNDS, ROUNDS) / kiln_median(c->us[0] + k * ROUNDS, ROUNDS);
}

// The same for a library, which must also be faster in the best rounds, those without interruption;
// 0: there were too few.
static double library_share(const tuning *c, int k) {
  double us[2][ROUNDS];
  int n = 0;
  for (int round = 0; round < ROUNDS; round++) {
    if (!c->is_calm[0][round] || !c->is_calm[1][round]) continue;
    for (int side = 0; side < 2; side++) us[side][n] = c->us[side][k * ROUNDS + round];
    n++;
  }
  if (n < LEAST_CALM) return 0;
  const double best = least(us[1], n) / least(us[0], n);
  const double usual = kiln_median(us[1], n) / kiln_median(us[0], n);
  return best > usual ? best : usual;
}

// Stores the result of variant |i|; candidate 0's first measured time is the unit of all others.
static kiln_status judge(tuning *c, int i) {
  for (int k = 0; k < c->t->n; k++) {
    kiln_tuning_candidates *r = &c->t->of[k];
    if (!is_wanted(r, i)) continue;
    const bool is_library = r->at[i].candidate->by_library != NULL;
    const double share = is_library ? library_share(c, k) : usual_share(c, k);
    const double first = kiln_median(c->us[0] + k * ROUNDS, ROUNDS);
    if (!r->at[0].is_known) KILN_TRY(kiln_tuner_keep(c->t, r, 0, KILN_VERDICT_RIGHT, first));
    if (first > 0 && share > 0)
      KILN_TRY(kiln_tuner_keep(c->t, r, i, KILN_VERDICT_RIGHT, r->at[0].result.us * share));
  }
  return KILN_OK;
}

static kiln_status measure(tuning *c) {
  const kiln_model *m = c->t->b->request.model;
  for (int side = 0; side < 2; side++)
    c->us[side] = KILN_NEW_ARRAY(&c->cx->perm, double, c->t->n *ROUNDS);
  KILN_TRY(kiln_trial_init(&c->trial));
  for (int i = 0; i < c->n_variants && !kiln_tuner_is_over(c->t); i++) {
    kiln_model_progress(m, "tune", (size_t)i, (size_t)c->n_variants);
    KILN_TRY(make_variant(c, i));
    for (int round = 0; i > 0 && round < ROUNDS && !kiln_tuner_is_over(c->t); round++) {
      KILN_TRY(time_turn(c, 0, round));
      KILN_TRY(time_turn(c, 1, round));
    }
    if (i > 0 && !kiln_tuner_is_over(c->t)) KILN_TRY(judge(c, i));
  }
  c->t->b->request.model->tuning.stopped = kiln_tuner_is_over(c->t);
  kiln_model_progress(m, "tune", (size_t)c->n_variants, (size_t)c->n_variants);
  return KILN_OK;
}

kiln_status kiln_tune_on_cpu(kiln_tuner *t) {
  tuning *c = KILN_NEW(&t->cx->perm, tuning);
  kiln_model *m = t->b->request.model;
  *c = (tuning){
      .cx = t->cx,
      .t = t,
      .trial = {.cx = t->cx, .model = m, .diag = t->cx->diag, .threads = m->options.threads}};
  for (int k = 0; k < t->n; k++)
    for (int i = 1; i < t->of[k].n; i++)
      if (is_wanted(&t->of[k], i) && i >= c->n_variants) c->n_variants = i + 1;
  if (c->n_variants < 2) return KILN_OK;
  kiln_cleanup_push(t->cx, deinit, c);
  const kiln_status st = measure(c);
  kiln_cleanup_pop(t->cx);
  deinit(c);
  return st;
}
