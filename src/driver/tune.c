// Tuning: the cheapest candidates of every kernel, measured in runs of the model.
//
// Variant i of the model has candidate i of every kernel. Each variant is compiled, each of its kernels
// checked alone, and then it runs in turns with variant 0, the profile of every launch being kept: a
// candidate is judged by the ratio of its time to the first one's in the same minutes. What a kernel's
// candidates are and which was the fastest goes to the cache, where the next compilation finds it.
#include "driver/cache.h"
#include "driver/check.h"
#include "driver/trial.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 7, MAX_RUNS = 10 };
#define TURN_MS 5.0 // a turn has as many runs as take that long
#define GAIN 0.97   // of the first one's time, that another must need at most
#define RTOL 1e-3
#define ATOL 1e-4

// The candidates of one kernel.
typedef struct rivals {
  int n;                               // that were lowered; 1: nothing to choose
  const kiln_tile_candidate **lowered; // [n] cheapest first
  kiln_cache_key key;
  bool is_known;  // the cache had the answer
  bool *is_wrong; // [n]
  int best;
  double first_us, best_us; // of all launches in a run; 0: not measured
} rivals;

typedef struct tuning {
  kiln_ctx *cx;
  kiln_build *b;
  kiln_cache *cache;
  rivals *of; // [kernels]
  int n_variants;
  kiln_trial trial;
  kiln_build variant; // under construction
  kiln_build first;   // variant 0, as far as it lies in the arena; and its functions
  const kiln_kernel_fn *functions;
  kiln_module *modules[2]; // variant 0, and the one that it runs against
  kiln_kernel_check check;
  double *us[2]; // [kernels * ROUNDS]
} tuning;

static void deinit(void *object) {
  tuning *t = object;
  kiln_kernel_check_deinit(&t->check);
  kiln_trial_deinit(&t->trial);
  for (int i = 0; i < 2; i++) kiln_module_release(t->modules[i]);
  kiln_build_deinit(&t->variant);
  kiln_cache_close(t->cache);
  t->modules[0] = t->modules[1] = NULL;
  t->cache = NULL;
}

// --- what is known ---

// All that the answer depends on: the very candidates, the machine and its threads.
static kiln_cache_key key_of(const tuning *t, const kiln_kernel *k, const rivals *r) {
  const kiln_machine *m = &t->b->machine;
  kiln_cache_key key;
  kiln_digest d;
  kiln_cache_key_begin(&d);
  kiln_digest_add_text(&d, "tuned");
  kiln_digest_add_text(&d, m->cpu);
  kiln_digest_add_text(&d, m->features);
  kiln_digest_add_int(&d, m->n_cores);
  kiln_digest_add_int(&d, t->b->model->options.threads);
  kiln_digest_add_text(&d, k->key);
  for (int i = 0; i < r->n; i++) kiln_digest_add_text(&d, r->lowered[i]->script);
  kiln_digest_end(&d, key.bytes);
  return key;
}

// An entry: "BEST FIRST_US BEST_US".
static bool read_answer(tuning *t, rivals *r) {
  size_t bytes = 0;
  char *text = kiln_cache_find(t->cache, KILN_CACHE_TUNED, &r->key, &bytes), *at = text;
  const bool found = text != NULL;
  if (found) {
    r->best = (int)strtol(at, &at, 10);
    r->first_us = strtod(at, &at);
    r->best_us = strtod(at, &at);
  }
  free(text);
  return found && r->best >= 0 && r->best < r->n;
}

static void find_rivals(tuning *t, const kiln_kernel *k, rivals *r) {
  r->lowered = KILN_NEW_ARRAY(&t->cx->perm, const kiln_tile_candidate *, k->candidates.n);
  for (int i = 0; i < k->candidates.n; i++)
    if (k->candidates.data[i].loops) r->lowered[r->n++] = &k->candidates.data[i];
  r->is_wrong = KILN_NEW_ARRAY(&t->cx->perm, bool, r->n);
  if (r->n > 1 && !kiln_kernel_check_suits(k->prog)) r->n = 1;
  if (r->n < 2) return;
  r->key = key_of(t, k, r);
  r->is_known = read_answer(t, r);
  if (!r->is_known) r->best = 0;
  if (!r->is_known && r->n > t->n_variants) t->n_variants = r->n;
}

// --- variants ---

// The candidate of a kernel in variant |i|.
static int choice(const rivals *r, int i) {
  if (r->is_known) return r->best;
  return i < r->n && !r->is_wrong[i] ? i : 0;
}

static void choose_kernels(const tuning *t, int i, kiln_build *v) {
  const kiln_kernels *from = &t->b->kernels;
  *v = (kiln_build){.model = t->b->model,
                    .machine = t->b->machine,
                    .prog = t->b->prog,
                    .kernels = *from,
                    .symbols = t->b->symbols,
                    .may_borrow = true};
  v->kernels.kernels.data = KILN_NEW_ARRAY(&t->cx->perm, kiln_kernel *, from->kernels.n);
  for (int k = 0; k < from->kernels.n; k++) {
    kiln_kernel *copy = KILN_NEW(&t->cx->perm, kiln_kernel);
    *copy = *from->kernels.data[k];
    if (t->of[k].n > 1) kiln_kernel_take(t->cx, copy, t->of[k].lowered[choice(&t->of[k], i)]);
    v->kernels.kernels.data[k] = copy;
  }
}

// The candidate of variant |i| of kernel |k| beside the first one. Where the first differs from the
// interpreter, random data says nothing of this kernel, and it stays as it is.
static kiln_status check_kernel(tuning *t, int i, int k, const kiln_kernel_fn *functions) {
  const kiln_loops *first = t->first.kernels.kernels.data[k]->loops,
                   *other = t->variant.kernels.kernels.data[k]->loops;
  bool is_right = false;
  KILN_TRY(kiln_kernel_check_init(&t->check, t->cx, t->b->kernels.kernels.data[k]->prog, 1));
  KILN_TRY(kiln_kernel_check_run(&t->check, first, t->functions + t->first.first_function[k], RTOL,
                                 ATOL, &is_right));
  if (is_right)
    KILN_TRY(kiln_kernel_check_run(&t->check, other, functions + t->variant.first_function[k], RTOL,
                                   ATOL, &is_right));
  kiln_kernel_check_deinit(&t->check);
  t->of[k].is_wrong[i] = !is_right;
  return KILN_OK;
}

static kiln_status check_kernels(tuning *t, int i, const kiln_kernel_fn *functions,
                                 size_t *out_wrong) {
  *out_wrong = 0;
  for (int k = 0; k < t->b->kernels.kernels.n; k++) {
    const rivals *r = &t->of[k];
    if (r->is_known || i >= r->n || r->is_wrong[i]) continue;
    KILN_TRY(check_kernel(t, i, k, functions));
    *out_wrong += r->is_wrong[i];
  }
  return KILN_OK;
}

static kiln_status compile_variant(tuning *t, int i, kiln_kernel_fn **out_functions) {
  kiln_build_deinit(&t->variant);
  choose_kernels(t, i, &t->variant);
  KILN_TRY(kiln_build_code(t->cx, &t->variant));
  KILN_TRY(kiln_layout_make(t->cx, &t->variant));
  return kiln_build_jit(t->cx, &t->variant, out_functions);
}

static kiln_status make_variant(tuning *t, int i) {
  kiln_kernel_fn *functions = NULL;
  size_t wrong = 0;
  KILN_TRY(compile_variant(t, i, &functions));
  if (i > 0) KILN_TRY(check_kernels(t, i, functions, &wrong));
  t->b->model->tuning.wrong += wrong;
  if (wrong > 0) KILN_TRY(compile_variant(t, i, &functions));
  kiln_module_release(t->modules[i > 0]);
  t->modules[i > 0] = NULL;
  KILN_TRY(kiln_build_module(t->cx, &t->variant, functions, &t->modules[i > 0]));
  if (i > 0) return KILN_OK;
  t->first = t->variant; // what it owned, the module has
  t->functions = functions;
  return KILN_OK;
}

// --- times ---

// The mean of some runs, after one that warms up: us[kernel * ROUNDS + round] in all its launches.
static kiln_status time_turn(tuning *t, int side, int round) {
  const kiln_kernels *k = &t->b->kernels;
  double *us = t->us[side];
  KILN_TRY(kiln_trial_turn(&t->trial, t->modules[side], true));
  KILN_TRY(kiln_trial_run(&t->trial, kiln_trial_outputs(&t->trial)));
  for (int i = 0; i < k->kernels.n; i++) us[i * ROUNDS + round] = 0;
  const double start = kiln_now_ms();
  int n = 0;
  for (; n == 0 || (n < MAX_RUNS && kiln_now_ms() - start < TURN_MS); n++) {
    KILN_TRY(kiln_trial_run(&t->trial, kiln_trial_outputs(&t->trial)));
    for (int i = 0; i < k->launches.n; i++)
      us[k->launches.data[i].kernel * ROUNDS + round] +=
          (double)kiln_session_launch_ns(t->trial.session, (size_t)i) / 1e3;
  }
  for (int i = 0; i < k->kernels.n; i++) us[i * ROUNDS + round] /= n;
  return KILN_OK;
}

// The first candidate's time goes with each comparison: the last one's, which is as good as any, is kept
// for the kernels that stay with it.
static void judge(tuning *t, int i) {
  for (int k = 0; k < t->b->kernels.kernels.n; k++) {
    rivals *r = &t->of[k];
    if (r->is_known || i >= r->n || r->is_wrong[i]) continue;
    const double first = kiln_median(t->us[0] + k * ROUNDS, ROUNDS),
                 other = kiln_median(t->us[1] + k * ROUNDS, ROUNDS);
    const double best = r->best > 0 ? r->best_us / r->first_us : GAIN;
    t->b->model->tuning.candidates++;
    if (first > 0 && other / first < best) {
      r->best = i;
      r->first_us = first;
      r->best_us = other;
    } else if (r->best == 0) r->first_us = r->best_us = first;
  }
}

static bool is_stopped(const tuning *t) {
  const volatile int *stop = t->b->model->options.stop;
  return stop && *stop;
}

static kiln_status measure(tuning *t) {
  const kiln_model *m = t->b->model;
  const int n = t->b->kernels.kernels.n;
  for (int side = 0; side < 2; side++)
    t->us[side] = KILN_NEW_ARRAY(&t->cx->perm, double, n *ROUNDS);
  KILN_TRY(kiln_trial_init(&t->trial));
  for (int i = 0; i < t->n_variants && !is_stopped(t); i++) {
    kiln_model_progress(m, "tune", (size_t)i, (size_t)t->n_variants);
    KILN_TRY(make_variant(t, i));
    for (int round = 0; i > 0 && round < ROUNDS && !is_stopped(t); round++) {
      KILN_TRY(time_turn(t, 0, round));
      KILN_TRY(time_turn(t, 1, round));
    }
    if (i > 0 && !is_stopped(t)) judge(t, i);
  }
  t->b->model->tuning.stopped = is_stopped(t);
  kiln_model_progress(m, "tune", (size_t)t->n_variants, (size_t)t->n_variants);
  return KILN_OK;
}

// --- the whole ---

static void keep_answer(tuning *t, const kiln_kernel *k, const rivals *r) {
  char text[96];
  snprintf(text, sizeof text, "%d %.3f %.3f", r->best, r->first_us, r->best_us);
  kiln_cache_put(t->cache, KILN_CACHE_TUNED, &r->key, kiln_symbol_text(t->cx, k->name), text,
                 strlen(text));
}

static void take_best(tuning *t) {
  kiln_tuning *sum = &t->b->model->tuning;
  for (int k = 0; k < t->b->kernels.kernels.n; k++) {
    kiln_kernel *kernel = t->b->kernels.kernels.data[k];
    const rivals *r = &t->of[k];
    sum->kernels++;
    sum->known += r->n < 2 || r->is_known;
    if (r->n < 2) continue;
    kiln_kernel_take(t->cx, kernel, r->lowered[r->best]);
    sum->changed += r->best > 0;
    sum->before_ms += r->first_us / 1e3;
    sum->after_ms += r->best_us / 1e3;
    if (!r->is_known && !sum->stopped) keep_answer(t, kernel, r);
  }
}

static void open_cache(tuning *t) {
  if (t->b->model->options.cache) t->cache = kiln_cache_open(NULL, KILN_CACHE_LIMIT_BYTES);
}

static kiln_status tune(tuning *t) {
  const kiln_kernels *k = &t->b->kernels;
  open_cache(t);
  t->of = KILN_NEW_ARRAY(&t->cx->perm, rivals, k->kernels.n);
  for (int i = 0; i < k->kernels.n; i++) find_rivals(t, k->kernels.data[i], &t->of[i]);
  kiln_cache_close(t->cache); // others may want to write while this measures
  t->cache = NULL;
  if (t->n_variants > 1) KILN_TRY(measure(t));
  open_cache(t);
  take_best(t);
  return KILN_OK;
}

kiln_status kiln_build_tune(kiln_ctx *cx, kiln_build *b) {
  const double start = kiln_now_ms();
  const int n_times = b->model->times.n;
  tuning *t = KILN_NEW(&cx->perm, tuning);
  *t = (tuning){
      .cx = cx,
      .b = b,
      .trial = {
          .cx = cx, .model = b->model, .diag = cx->diag, .threads = b->model->options.threads}};
  b->model->tuning = (kiln_tuning){0};
  kiln_cleanup_push(cx, deinit, t);
  const kiln_status st = tune(t);
  kiln_cleanup_pop(cx);
  deinit(t);
  b->model->times.n = n_times; // not those of the variants
  kiln_model_time(b->model, "tune", start);
  return st;
}
