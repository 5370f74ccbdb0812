// The measurement cache: measures orchestrations in runs of the model and stores kernel times.
#include "tune/measurement_cache.h"

#include "module/compiler.h"
#include "tune/kernel_times.h"
#include "tune/tuning.h"
#include "orchestrate/orchestrate.h"
#include "fuse/searches.h"

#include <math.h>

enum { MAX_TRIALS = 8 };

// --- lookup ---

static void close_results(void *results) { kiln_results_close(results); }

kiln_status kiln_measurement_cache_open(kiln_ctx *cx, kiln_build *b) {
  const kiln_compile_options *o = &b->request.model->options;
  kiln_results_key all;
  if (!o->orchestrate || !b->request.machine.target->has_runtime) return KILN_OK;
  kiln_results *results = NULL;
  if (o->tuned || o->cache) KILN_TRY(kiln_results_open(o->tuned, cx->diag, &results));
  b->choices.tuning = (kiln_cleanup){close_results, results};
  kiln_tuner_key(cx, b, NULL, &all);
  const int64_t stamp = kiln_results_stamp(results, &all);
  if (stamp == 0 && o->tune == 0) return KILN_OK;
  b->choices.measured = KILN_NEW(&cx->perm, kiln_measurement_cache);
  *b->choices.measured =
      (kiln_measurement_cache){.cx = cx, .b = b, .results = results, .stamp = stamp};
  kiln_map_init(&b->choices.measured->ns, &cx->perm);
  return KILN_OK;
}

double kiln_measurement_cache_ns(void *known, const char *key) {
  kiln_measurement_cache *k = known;
  const kiln_symbol name = kiln_symbol_of(k->cx, key);
  const uint64_t *ns = kiln_map_find(&k->ns, name);
  if (!ns) {
    kiln_results_key of;
    kiln_tuner_key(k->cx, k->b, key, &of);
    ns = kiln_map_put(&k->ns, name, (uint64_t)(kiln_results_first_us(k->results, &of) * 1e3));
  }
  return (double)*ns;
}

// --- trials ---

void kiln_build_take_orchestration(kiln_ctx *cx, kiln_build *b, const kiln_build *t) {
  kiln_text text;
  b->choices.measured_best = t->choices.orchestration;
  b->choices.best_edges = &t->choices.kernels.edges;
  if (!t->choices.orchestration) return;
  kiln_text_init(&text, &cx->perm);
  kiln_orchestration_print(cx, t->choices.prog, t->choices.orchestration, &text);
  b->request.given_orchestration = text.data;
}

static double predicted_us(const kiln_kernel *k) {
  const double ns = kiln_tile_price(&k->candidates);
  return isfinite(ns) ? ns / 1e3 : 0;
}

// Stores the times of a trial that are new.
//
// gives: *out_new, their number
static kiln_status keep(kiln_measurement_cache *known, const kiln_timed *timed, int *out_new) {
  *out_new = 0;
  for (int i = 0; i < timed->kernels->kernels.n; i++) {
    const kiln_kernel *k = timed->kernels->kernels.data[i];
    if (kiln_measurement_cache_ns(known, k->key) > 0) continue;
    const double us = fmax(timed->us[i], 1e-3);
    const kiln_result one = {.script = k->script,
                             .is_first = true,
                             .verdict = KILN_VERDICT_RIGHT,
                             .us = us,
                             .predicted_us = predicted_us(k)};
    kiln_results_key key;
    kiln_tuner_key(known->cx, known->b, k->key, &key);
    kiln_map_put(&known->ns, kiln_symbol_of(known->cx, k->key), (uint64_t)(us * 1e3));
    ++*out_new;
    if (k->by_library) continue; // library times are stored by the library's version only
    KILN_TRY(kiln_results_put(known->results, &key, kiln_symbol_text(known->cx, k->name), &one,
                              known->cx->diag));
  }
  return KILN_OK;
}

typedef enum trial_kind {
  BY_CONNECTING,
  BY_PREDICTION, // solved by predicted times
  BY_TIMES       // solved by the times measured so far
} trial_kind;

typedef struct trials {
  kiln_build *b;
  kiln_build *trial; // the current trial
  kiln_timed first;  // the reference for all trials, by cost-driven fusion
  double least_us;
} trials;

static void deinit(void *object) {
  trials *t = object;
  if (t->trial) kiln_build_deinit(t->trial);
  t->trial = NULL;
  kiln_module_release(t->first.module);
  t->first.module = NULL;
}

// Compiles the model with a kind of orchestration and measures it.
static kiln_status run_trial(kiln_ctx *cx, trials *ts, trial_kind kind, int *out_new) {
  const bool is_connected = kind == BY_CONNECTING;
  kiln_build *t = ts->trial = KILN_NEW(&cx->perm, kiln_build);
  kiln_timed timed = {0};
  *t = (kiln_build){.request.model = ts->b->request.model,
                    .request.is_trial = true,
                    .request.is_connected = is_connected,
                    .choices.with_rules = ts->b->choices.with_rules,
                    .request.wants_candidates = true,
                    .choices.measured = kind == BY_PREDICTION ? NULL : ts->b->choices.measured};
  KILN_TRY(t->request.model->compiler->kernels(cx, t));
  KILN_TRY(kiln_build_time(cx, t, is_connected ? NULL : &ts->first, &timed));
  if (is_connected) ts->first = timed; // has the reference outputs
  else kiln_module_release(timed.module);
  kiln_build_deinit(t);
  ts->trial = NULL;
  KILN_TRY(keep(ts->b->choices.measured, &timed, out_new));
  if (timed.run_us >= ts->least_us) return KILN_OK;
  ts->least_us = timed.run_us;
  ts->b->request.is_connected = is_connected;
  kiln_build_take_orchestration(cx, ts->b, t);
  return KILN_OK;
}

static kiln_status run_trials(kiln_ctx *cx, trials *ts) {
  int n_new = 0;
  KILN_TRY(run_trial(cx, ts, BY_CONNECTING, &n_new));
  KILN_TRY(run_trial(cx, ts, BY_PREDICTION, &n_new));
  n_new = 1;
  for (int i = 2; i < MAX_TRIALS && n_new > 0; i++) KILN_TRY(run_trial(cx, ts, BY_TIMES, &n_new));
  return KILN_OK;
}

kiln_status kiln_build_measure_orchestrations(kiln_ctx *cx, kiln_build *b, int *io_n) {
  (void)io_n;
  kiln_compile_options *asked = &b->request.model->options;
  const kiln_compile_options before = *asked;
  trials *ts = KILN_NEW(&cx->perm, trials);
  *ts = (trials){.b = b, .least_us = INFINITY};
  asked->tune = kiln_model_asks_backends(b->request.model); // measures library candidates, too
  asked->dump = NULL;
  kiln_cleanup_push(cx, deinit, ts);
  const kiln_status st = run_trials(cx, ts);
  kiln_cleanup_pop(cx);
  deinit(ts);
  asked->tune = before.tune;
  asked->dump = before.dump;
  return st;
}
