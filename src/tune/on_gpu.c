// Tuning on a GPU: every candidate is run alone, in a process of its own (tune/worker.h), on random
// data, with the L2 cache flushed before every run. The kernels that take the most time come first;
// while the candidates of one kernel run, those of the next are compiled.
#include "verify/check.h"
#include "verify/reference.h"
#include "tune/tuning.h"
#include "target/gpu/gpu.h"
#include "template/gpu/grid.h"
#include "template/search.h"
#include "tune/worker.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RUNS = 30, WAIT_MS = 50, AHEAD = 2 };
#define BUDGET_MS 40.0        // for the runs of a candidate
#define HOPELESS 2.0          // a candidate this many times slower than the best is abandoned
#define LEAST_FLUSH (4 << 20) // bytes
#define INTERPRETED_FLOPS 2e7 // a larger kernel is checked against its unscheduled version

// One version of a kernel: a candidate, or the reference.
typedef struct version {
  const kiln_loops *loops;
  const kiln_library_candidate *by_library; // a library kernel; NULL: Kiln's own
  const char *source;
  int n_launches;
  kiln_gpu_launch *launches;
  const char *refused; // error message if there is no source
} version;

// A kernel being tuned.
typedef struct turn {
  kiln_tuning_candidates *of;
  int n, *rivals;    // candidates to be measured now
  version *versions; // [1 + n], the first is the reference
  const char **sources, **names;
  int *job_of; // [1 + n] index of the source in the job; -1: none
  kiln_gpu_job *job;
} turn;

typedef struct tuning {
  kiln_ctx *cx;
  kiln_tuner *t;
  kiln_worker *worker;
  kiln_kernel_check check;
  int n_turns;
  turn *turns;
  kiln_object code; // of the current version
  const version *version;
  bool is_reference; // |code| is the reference's
  const char *symbol;
  uint64_t flush_bytes;
  double hopeless_us;
  kiln_worker_answer answer;
  size_t done, all; // numbers of candidates
} tuning;

// NULL: the device's driver compiles sources.
static const kiln_gpu_compiler *compiler_of(const tuning *g) {
  return g->t->b->request.machine.target->compiler;
}

static void end_turn(const tuning *g, turn *u) {
  if (u->job) compiler_of(g)->end(u->job);
  u->job = NULL;
}

static void deinit(void *object) {
  tuning *g = object;
  for (int i = 0; i < g->n_turns; i++) end_turn(g, &g->turns[i]);
  kiln_worker_destroy(g->worker);
  g->worker = NULL;
  kiln_kernel_check_deinit(&g->check);
  kiln_object_deinit(&g->code);
  g->code = (kiln_object){0};
}

// --- versions ---

// The unscheduled kernel: each statement is a nest of its own, without local copies. It is also
// where schedules for GPUs start.
static kiln_status make_reference(tuning *g, const kiln_program *p, version *out) {
  const kiln_tile_search_options options = {
      .machine = &g->t->b->request.machine, .n_threads = 1, .n_lowered = 1, .no_connect = true};
  const kiln_form form = {.prog = p};
  kiln_tile_candidates one = {0};
  KILN_VEC_PUSH(&g->cx->perm, &one,
                (kiln_tile_candidate){.from = &kiln_template_gpu_fallback, .form = &form});
  KILN_TRY(kiln_tile_lower(g->cx, &options, &one));
  out->loops = one.data[0].loops;
  out->refused = one.data[0].refused;
  return KILN_OK;
}

static kiln_status emit(tuning *g, const char *symbol, version *v) {
  kiln_aside aside;
  kiln_text source;
  kiln_text_init(&source, &g->cx->perm);
  KILN_TRY(kiln_aside_begin(g->cx, &aside));
  kiln_loops *loops = (kiln_loops *)(uintptr_t)v->loops; // not modified
  const kiln_status st = kiln_gpu_emit(g->cx, &g->t->b->request.machine, loops, symbol, &source,
                                       &v->n_launches, &v->launches);
  if (st == KILN_OK) v->source = source.data;
  else
    v->refused = kiln_arena_strdup(&g->cx->perm, kiln_diag_count(aside.mine)
                                                     ? kiln_diag_message(aside.mine, 0)
                                                     : "not emitted");
  kiln_aside_end(&aside);
  return KILN_OK;
}

static const char *symbol_of(const tuning *g, const turn *u) {
  return g->t->b->product.symbols[u->of->kernel->id];
}

// Starts compiling the sources of a turn.
static kiln_status begin_turn(tuning *g, turn *u) {
  kiln_arena *a = &g->cx->perm;
  const char *symbol = symbol_of(g, u);
  int n = 0;
  u->versions = KILN_NEW_ARRAY(a, version, 1 + u->n);
  u->sources = KILN_NEW_ARRAY(a, const char *, 1 + u->n);
  u->names = KILN_NEW_ARRAY(a, const char *, 1 + u->n);
  u->job_of = KILN_NEW_ARRAY(a, int, 1 + u->n);
  KILN_TRY(make_reference(g, u->of->kernel->prog, &u->versions[0]));
  for (int i = 0; i < 1 + u->n; i++) {
    version *v = &u->versions[i];
    if (i > 0) v->loops = u->of->at[u->rivals[i - 1]].candidate->loops;
    if (i > 0) v->by_library = u->of->at[u->rivals[i - 1]].candidate->by_library;
    u->job_of[i] = -1;
    if (v->loops && !v->by_library) KILN_TRY(emit(g, symbol, v));
    if (!v->source) continue;
    u->job_of[i] = n;
    u->sources[n] = v->source;
    u->names[n++] = symbol;
  }
  const kiln_gpu_compiler *c = compiler_of(g);
  return c ? c->start(g->cx, &g->t->b->request.machine, n, u->sources, u->names, kiln_cpu_cores(),
                      &u->job)
           : KILN_OK;
}

// Waits for the code of version |i|.
//
// gives: g->code; *out_refused, the error message if there is none; false if time is over
static bool take_code(tuning *g, turn *u, int i, const char **out_refused) {
  const version *v = &u->versions[i];
  kiln_object_deinit(&g->code);
  g->code = (kiln_object){0};
  *out_refused = v->refused;
  if (v->refused || v->by_library) return true;
  if (!u->job) {
    g->code = (kiln_object){strdup(v->source), strlen(v->source)};
    return true;
  }
  while (!compiler_of(g)->wait(u->job, u->job_of[i], WAIT_MS))
    if (kiln_tuner_is_over(g->t)) return false;
  const char *log = NULL;
  if (!compiler_of(g)->take(u->job, u->job_of[i], &g->code, &log)) *out_refused = log;
  return true;
}

// --- runs ---

static kiln_worker_nest *nests_of(const tuning *g) {
  const version *v = g->version;
  kiln_worker_nest *nests = KILN_NEW_ARRAY(&g->cx->scratch, kiln_worker_nest, v->n_launches);
  for (int k = 0; k < v->n_launches; k++) {
    const kiln_gpu_launch *l = &v->launches[k];
    nests[k].function = kiln_arena_printf(&g->cx->scratch, "%s_%d", g->symbol, k);
    for (int axis = 0; axis < 3; axis++) {
      nests[k].grid[axis] = (uint32_t)l->grid[axis];
      nests[k].block[axis] = (uint32_t)l->block[axis];
    }
    nests[k].shared_bytes = (uint32_t)l->shared_bytes;
    nests[k].n_args = l->n_args;
    nests[k].args = l->args;
    nests[k].n_maps = l->n_maps;
    kiln_plan_map *maps = KILN_NEW_ARRAY(&g->cx->scratch, kiln_plan_map, l->n_maps);
    for (int i = 0; i < l->n_maps; i++) maps[i] = kiln_gpu_plan_map(&l->maps[i]);
    nests[k].maps = maps;
  }
  return nests;
}

static kiln_status run_version(void *user, int n, const kiln_check_arg *args, bool *out_ran) {
  tuning *g = user;
  kiln_worker_arg *taken = KILN_NEW_ARRAY(&g->cx->scratch, kiln_worker_arg, n);
  for (int i = 0; i < n; i++)
    taken[i] = (kiln_worker_arg){args[i].data, args[i].bytes, args[i].is_result};
  const kiln_library_candidate *library = g->version->by_library;
  const kiln_worker_task task = {.code = g->code.data,
                                 .code_bytes = g->code.bytes,
                                 .backend = library ? library->backend : NULL,
                                 .call = library ? library->call : NULL,
                                 .n_args = n,
                                 .n_nests = g->version->n_launches,
                                 .args = taken,
                                 .nests = nests_of(g),
                                 .flush_bytes = g->flush_bytes,
                                 .most_runs = g->is_reference ? 0 : MOST_RUNS,
                                 .budget_ms = BUDGET_MS,
                                 .hopeless_us = g->hopeless_us};
  KILN_TRY(kiln_worker_run(g->worker, &task, g->cx->diag, &g->answer));
  *out_ran = g->answer.outcome == KILN_WORKER_MEASURED;
  return KILN_OK;
}

// The tolerance for library kernels and for kernels too large for the interpreter, by their least
// precise type: some twenty units in the last place for an element, and for all elements together a
// tenth of a model's tolerance.
static kiln_check_tolerance tolerance_of(const kiln_program *p) {
  kiln_check_tolerance t = {1e-3, 1e-4, 1e-4, false};
  for (int i = 0; i < p->tensors.n; i++) {
    const kiln_dtype d = p->tensors.data[i]->dtype;
    if (d == KILN_BF16) return (kiln_check_tolerance){8e-2, 8e-2, 4e-2, false};
    if (d == KILN_F16) t = (kiln_check_tolerance){1e-2, 1e-2, 5e-3, false};
  }
  return t;
}

static kiln_status run_and_check(tuning *g, const turn *u, int i, bool *out_is_right) {
  const kiln_check_runner runner = {run_version, g};
  kiln_check_tolerance tolerance = tolerance_of(u->of->kernel->prog);
  g->version = &u->versions[i];
  tolerance.is_wanted = g->version->by_library != NULL;
  g->is_reference = i == 0;
  g->symbol = symbol_of(g, u);
  return kiln_kernel_check_by(&g->check, g->version->loops, &runner, &tolerance, out_is_right);
}

static kiln_verdict verdict_of(const tuning *g, bool is_right) {
  switch (g->answer.outcome) {
  case KILN_WORKER_MEASURED: return is_right ? KILN_VERDICT_RIGHT : KILN_VERDICT_WRONG;
  case KILN_WORKER_LOST: return KILN_VERDICT_LOST;
  case KILN_WORKER_REFUSED:
  case KILN_WORKER_STOPPED: break;
  }
  return KILN_VERDICT_REFUSED;
}

static kiln_status measure_rival(tuning *g, turn *u, int i) {
  const char *refused = NULL;
  bool is_right = false;
  const int rival = u->rivals[i - 1];
  if (!take_code(g, u, i, &refused)) return KILN_OK;
  g->answer = (kiln_worker_answer){.outcome = KILN_WORKER_REFUSED};
  if (!refused) KILN_TRY(run_and_check(g, u, i, &is_right));
  if (g->answer.outcome == KILN_WORKER_STOPPED) return KILN_OK;
  const kiln_verdict verdict = verdict_of(g, is_right);
  if (is_right && (g->hopeless_us == 0 || HOPELESS * g->answer.us < g->hopeless_us))
    g->hopeless_us = HOPELESS * g->answer.us;
  if (verdict == KILN_VERDICT_LOST || verdict == KILN_VERDICT_WRONG)
    kiln_diag_warn(g->cx->diag, "tune", "%s: candidate %d %s %s", symbol_of(g, u), rival,
                   verdict == KILN_VERDICT_LOST ? "was lost: its process" : "is wrong:",
                   verdict == KILN_VERDICT_LOST ? g->answer.message
                                                : "its results differ from the reference's");
  return kiln_tuner_keep(g->t, u->of, rival, verdict,
                         verdict == KILN_VERDICT_RIGHT ? g->answer.us : 0);
}

// Computes the expected results by the reference version, unless the interpreter has.
//
// gives: whether there are expected results
static kiln_status find_wanted(tuning *g, turn *u, bool *out_found) {
  const char *refused = NULL;
  bool is_right = false;
  const kiln_freedoms may = kiln_launch_freedoms(g->t->b->request.model);
  KILN_TRY(
      kiln_kernel_check_init(&g->check, g->cx, u->of->kernel->prog, 1, INTERPRETED_FLOPS, may));
  if (!g->check.has_wanted && u->versions[0].loops && take_code(g, u, 0, &refused) && !refused)
    KILN_TRY(run_and_check(g, u, 0, &is_right));
  *out_found = g->check.has_wanted;
  if (!*out_found && !kiln_tuner_is_over(g->t))
    kiln_diag_warn(g->cx->diag, "tune", "%s: its reference cannot be run: %s", symbol_of(g, u),
                   refused ? refused : g->answer.message);
  return KILN_OK;
}

static kiln_status measure_turn(tuning *g, turn *u) {
  bool found = false;
  g->hopeless_us = 0;
  for (int i = 0; i < u->of->n; i++) {
    const kiln_tuning_candidate *r = &u->of->at[i];
    if (!r->is_known || r->result.verdict != KILN_VERDICT_RIGHT) continue;
    if (g->hopeless_us == 0 || HOPELESS * r->result.us < g->hopeless_us)
      g->hopeless_us = HOPELESS * r->result.us;
  }
  KILN_TRY(find_wanted(g, u, &found));
  for (int i = 1; i < 1 + u->n && !kiln_tuner_is_over(g->t); i++) {
    kiln_model_progress(g->t->b->request.model, "tune", g->done++, g->all);
    if (found) KILN_TRY(measure_rival(g, u, i));
  }
  kiln_kernel_check_deinit(&g->check);
  end_turn(g, u);
  return KILN_OK;
}

// --- all kernels ---

// Heaviest first; ties in order of the kernels.
static int by_weight(const void *a, const void *b) {
  const turn *x = a, *y = b;
  if (x->of->weight != y->of->weight) return x->of->weight > y->of->weight ? -1 : 1;
  return (x->of > y->of) - (x->of < y->of);
}

static void make_turns(tuning *g) {
  g->turns = KILN_NEW_ARRAY(&g->cx->perm, turn, g->t->n);
  for (int k = 0; k < g->t->n; k++) {
    kiln_tuning_candidates *r = &g->t->of[k];
    turn *u = &g->turns[g->n_turns];
    if (r->n < 2 || r->was_known) continue;
    *u = (turn){.of = r, .rivals = KILN_NEW_ARRAY(&g->cx->perm, int, r->n)};
    for (int i = 0; i < r->n; i++)
      if (!r->at[i].is_known) u->rivals[u->n++] = i;
    g->all += (size_t)u->n;
    g->n_turns++;
  }
  if (g->n_turns) qsort(g->turns, (size_t)g->n_turns, sizeof *g->turns, by_weight);
}

static kiln_status measure(tuning *g) {
  int begun = 0;
  for (int i = 0; i < g->n_turns && !kiln_tuner_is_over(g->t); i++) {
    for (; begun < g->n_turns && begun <= i + AHEAD; begun++)
      KILN_TRY(begin_turn(g, &g->turns[begun]));
    KILN_TRY(measure_turn(g, &g->turns[i]));
  }
  g->t->b->request.model->tuning.stopped = kiln_tuner_is_over(g->t);
  kiln_model_progress(g->t->b->request.model, "tune", g->all, g->all);
  return KILN_OK;
}

// sm_90a and sm_90 are the same device: only digits are compared.
static kiln_status check_arch(const tuning *g, const kiln_worker_device *d) {
  const char *wanted = g->t->b->request.machine.gpu.arch;
  if (strtol(wanted + strcspn(wanted, "0123456789"), NULL, 10) ==
      strtol(d->arch + strcspn(d->arch, "0123456789"), NULL, 10))
    return KILN_OK;
  return KILN_FAIL(g->cx->diag, KILN_DEVICE_ERROR, "tune",
                   "device: must be of the target's architecture, %s, got %s (%s)", wanted, d->arch,
                   d->name);
}

// Twice the size of the largest cache.
static uint64_t flush_bytes(const kiln_device *d) {
  int64_t most = LEAST_FLUSH;
  for (int i = 1; i < d->n_levels; i++)
    if (!d->levels[i].is_explicit && d->levels[i].capacity_bytes > most)
      most = d->levels[i].capacity_bytes;
  return 4 * (uint64_t)most; // one half is copied to the other
}

static kiln_status tune(tuning *g, kiln_status (*find)(kiln_tuner *t)) {
  kiln_tuner *t = g->t;
  const kiln_worker_options options = {.kind = t->b->request.machine.target->runtime,
                                       .stop = t->b->request.model->options.stop};
  KILN_TRY(kiln_worker_create(&options, g->cx->diag, &g->worker));
  const kiln_worker_device *d = kiln_worker_device_of(g->worker);
  KILN_TRY(check_arch(g, d));
  t->device = kiln_arena_strdup(&g->cx->perm, d->name);
  t->driver = kiln_arena_strdup(&g->cx->perm, d->driver);
  g->flush_bytes = flush_bytes(t->b->request.machine.device);
  KILN_TRY(find(t));
  if (t->b->request.model->options.tune == 0)
    return KILN_OK; // library kernels may be in the database
  make_turns(g);
  return measure(g);
}

kiln_status kiln_tune_on_gpu(kiln_tuner *t, kiln_status (*find)(kiln_tuner *t)) {
  tuning *g = KILN_NEW(&t->cx->perm, tuning);
  *g = (tuning){.cx = t->cx, .t = t};
  kiln_cleanup_push(t->cx, deinit, g);
  const kiln_status st = tune(g, find);
  kiln_cleanup_pop(t->cx);
  deinit(g);
  return st;
}
