// The choice of kernels, as the options ask for it, and what it has come to.
#include "driver/build.h"

#include "orchestrate/orchestrate.h"

#include <math.h>

enum { MAX_TRIALS = 6 };

static void dump(kiln_ctx *cx, const kiln_build *b, const kiln_program *p) {
  kiln_text text;
  if (!kiln_model_dumps(b->model, "orchestration")) return;
  kiln_text_init(&text, &cx->scratch);
  kiln_orchestration_print(cx, p, b->orchestration, &text);
  kiln_model_dump(b->model, "orchestration", &text);
}

kiln_status kiln_build_orchestrate(kiln_ctx *cx, void *build, const kiln_program *p,
                                   const kiln_tile_search_options *search, kiln_searches *known,
                                   kiln_parts *io, kiln_edge_decisions *io_edges) {
  kiln_build *b = build;
  const kiln_orchestrate_options options = {
      .worth = KILN_USUAL_WORTH, .measured = b->measured, .given = b->given_orchestration};
  const double start = kiln_now_ms();
  b->orchestration = KILN_NEW(&cx->perm, kiln_orchestration);
  KILN_TRY(kiln_orchestrate(cx, p, search, known, &options, io, io_edges, b->orchestration));
  if (b->measured_best) b->orchestration = b->measured_best;
  kiln_model_time(b->model, "orchestrate", start);
  dump(cx, b, p);
  return KILN_OK;
}

kiln_status kiln_build_find_orchestration(kiln_ctx *cx, kiln_build *b) {
  const kiln_compile_options *asked = &b->model->options;
  if (!asked->orchestration) return KILN_OK;
  return kiln_text_read(cx, asked->orchestration, &b->given_orchestration);
}

// --- measured choices ---

static void deinit_trial(void *build) { kiln_build_deinit(build); }

// Adds what is new to |io|.
//
// gives: *out_us, of a run; *out_new, the kernels that were not known
static void keep(kiln_ctx *cx, const kiln_build *t, const double *us, kiln_map *io, double *out_us,
                 int *out_new) {
  *out_us = 0;
  *out_new = 0;
  for (int i = 0; i < t->kernels.launches.n; i++) *out_us += us[t->kernels.launches.data[i].kernel];
  for (int i = 0; i < t->kernels.kernels.n; i++) {
    const uint64_t key = kiln_symbol_of(cx, t->kernels.kernels.data[i]->key);
    if (kiln_map_find(io, key)) continue;
    kiln_map_put(io, key, (uint64_t)fmax(1, us[i] * 1e3));
    ++*out_new;
  }
}

// Schedules and measures the model, connected (|known| is empty), or chosen by what is known.
static kiln_status run_trial(kiln_ctx *cx, kiln_build *t, kiln_map *known, double *out_us,
                             int *out_new) {
  const double *us = NULL;
  KILN_TRY(kiln_build_kernels(cx, t));
  KILN_TRY(kiln_build_measure(cx, t, &us));
  keep(cx, t, us, known, out_us, out_new);
  return KILN_OK;
}

static kiln_status run_trials(kiln_ctx *cx, kiln_build *b) {
  kiln_map *known = KILN_NEW(&cx->perm, kiln_map);
  double least_us = INFINITY;
  kiln_map_init(known, &cx->perm);
  for (int trial = 0, n_new = 1; trial < MAX_TRIALS && n_new > 0; trial++) {
    kiln_build *t = KILN_NEW(&cx->perm, kiln_build);
    double us = 0;
    *t = (kiln_build){.model = b->model,
                      .is_trial = true,
                      .is_connected = trial == 0,
                      .wants_candidates = true,
                      .measured = known};
    kiln_cleanup_push(cx, deinit_trial, t);
    const kiln_status st = run_trial(cx, t, known, &us, &n_new);
    kiln_cleanup_pop(cx);
    kiln_build_deinit(t);
    KILN_TRY(st);
    if (us >= least_us) continue;
    least_us = us;
    b->is_connected = trial == 0;
    b->measured_best = t->orchestration;
    if (!t->orchestration) continue;
    kiln_text text;
    kiln_text_init(&text, &cx->perm);
    kiln_orchestration_print(cx, t->prog, t->orchestration, &text);
    b->given_orchestration = text.data;
  }
  return KILN_OK;
}

kiln_status kiln_build_measure_orchestrations(kiln_ctx *cx, kiln_build *b) {
  kiln_compile_options *asked = &b->model->options;
  const kiln_compile_options before = *asked;
  asked->tune = 0;
  asked->dump = NULL;
  const kiln_status st = run_trials(cx, b);
  asked->tune = before.tune;
  asked->dump = before.dump;
  return st;
}
