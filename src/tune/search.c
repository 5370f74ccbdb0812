// Search in the space of a schedule with holes.
//
// All candidates are compiled first; then their runs alternate, so that other load on the machine
// slows all of them alike.
#include "tune/search.h"
#include "tune/trial.h"
#include "tile/query.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_CANDIDATES = 4096, ROUNDS = 9, DRAWS_PER_FILLING = 20 };
// Larger programs are compared with Kiln's own schedule instead of the interpreter.
#define INTERPRETED_FLOPS 2e9
#define RTOL 1e-4 // relative to Kiln's own schedule
#define ATOL 1e-5
#define BATCH_MS 2.0 // a time is the mean of as many runs as fit in this

typedef struct candidate {
  int *choices; // [holes]; NULL: Kiln's own schedule
  const char *script, *refused;
  kiln_module *module;
  bool is_right;
  double ms[ROUNDS], median;
} candidate;

typedef struct searching {
  kiln_ctx *cx;
  const kiln_compiler *compiler;
  const char *path;
  const kiln_compile_options *options;
  const kiln_search_options *search;
  kiln_diag *diag, *tried; // the caller's; the current candidate's
  kiln_space *space;
  int n;
  candidate *candidates;
  kiln_model *model; // compiled with Kiln's own schedule
  kiln_trial trial;
} searching;

static void deinit(searching *s) {
  kiln_trial_deinit(&s->trial);
  for (int i = 0; i < s->n; i++) kiln_module_release(s->candidates[i].module);
  kiln_model_destroy(s->model);
  kiln_diag_destroy(s->tried);
}

static void progress(const searching *s, const char *phase, size_t done, size_t total) {
  if (s->options->on_progress)
    s->options->on_progress(s->options->progress_user, phase, done, total);
}

// --- candidates ---

static bool is_known(const searching *s, const int *choices) {
  for (int i = 1; i < s->n; i++)
    if (memcmp(s->candidates[i].choices, choices, (size_t)s->space->n_holes * sizeof(int)) == 0)
      return true;
  return false;
}

static void add_candidate(searching *s, const int *choices) {
  candidate *c = &s->candidates[s->n];
  c->choices = KILN_NEW_ARRAY(&s->cx->perm, int, s->space->n_holes);
  memcpy(c->choices, choices, (size_t)s->space->n_holes * sizeof(int));
  c->script = kiln_space_fill(s->cx, s->space, choices);
  s->n++;
}

// Candidate 0 is Kiln's own schedule.
static void make_candidates(searching *s) {
  const uint64_t total = s->space->total, most = MAX_CANDIDATES;
  uint64_t want = s->search->n < total ? s->search->n : total;
  if (want > most) want = most;
  int *choices = KILN_NEW_ARRAY(&s->cx->perm, int, s->space->n_holes);
  s->candidates = KILN_NEW_ARRAY(&s->cx->perm, candidate, (int)want + 1);
  s->n = 1;
  for (uint64_t k = 0; want == total && k < want; k++) {
    kiln_space_at(s->space, k, choices);
    add_candidate(s, choices);
  }
  for (uint64_t k = 0; (uint64_t)s->n <= want && k < want * DRAWS_PER_FILLING; k++) {
    kiln_space_draw(s->space, s->search->seed + k, choices);
    if (!is_known(s, choices)) add_candidate(s, choices);
  }
}

static kiln_status compile(searching *s, candidate *c, kiln_model **out_model) {
  kiln_compile_options o = *s->options;
  o.struct_size = sizeof o;
  o.schedule = c->script;
  o.on_progress = NULL;
  kiln_status st = s->compiler->load(s->path, &o, -1, s->tried, out_model);
  if (st == KILN_OK) st = s->compiler->compile(*out_model, s->tried, &c->module);
  return st;
}

// A refused candidate is a result; other failures are passed on.
static kiln_status take_answer(searching *s, candidate *c, kiln_status st) {
  if (st == KILN_BAD_INPUT && c->script) {
    const size_t n = kiln_diag_count(s->tried);
    c->refused = kiln_arena_strdup(&s->cx->perm, n ? kiln_diag_message(s->tried, 0) : "refused");
    st = KILN_OK;
  }
  if (st != KILN_OK) kiln_diag_append(s->diag, s->tried);
  kiln_diag_clear(s->tried);
  return st;
}

static kiln_status compile_all(searching *s) {
  for (int i = 0; i < s->n; i++) {
    candidate *c = &s->candidates[i];
    kiln_model *m = NULL;
    progress(s, "compile", (size_t)i, (size_t)s->n);
    kiln_status st = compile(s, c, &m);
    if (i == 0) s->model = m;
    else kiln_model_destroy(m);
    KILN_TRY(take_answer(s, c, st));
  }
  progress(s, "compile", (size_t)s->n, (size_t)s->n);
  return KILN_OK;
}

// --- correctness ---

static kiln_status make_wanted(searching *s) {
  kiln_trial *t = &s->trial;
  const bool is_judged = s->search->rtol <= 0 && s->search->atol <= 0;
  t->rtol = s->search->rtol > 0 ? s->search->rtol : RTOL;
  t->atol = s->search->atol > 0 ? s->search->atol : ATOL;
  if (kiln_program_flops(&s->model->core->cx, s->model->prog) <= INTERPRETED_FLOPS) {
    if (is_judged) return kiln_trial_compute_expected(t);
    return kiln_model_reference(s->model, t->n_inputs,
                                (const DLTensor *const *)kiln_trial_inputs(t), t->n_outputs,
                                kiln_trial_expected(t), s->diag);
  }
  KILN_TRY(kiln_trial_turn(t, s->candidates[0].module, false));
  return kiln_trial_run(t, kiln_trial_expected(t));
}

static kiln_status check_all(searching *s) {
  s->trial = (kiln_trial){.cx = s->cx,
                          .model = s->model,
                          .diag = s->diag,
                          .threads = s->options->threads,
                          .seed = s->search->seed};
  KILN_TRY(kiln_trial_init(&s->trial));
  KILN_TRY(make_wanted(s));
  for (int i = 0; i < s->n; i++)
    if (s->candidates[i].module)
      KILN_TRY(kiln_trial_check(&s->trial, s->candidates[i].module, &s->candidates[i].is_right));
  return KILN_OK;
}

// --- times ---

// Mean time of as many runs as fit in BATCH_MS, after a warm-up run.
static kiln_status time_turn(searching *s, double *out_ms) {
  KILN_TRY(kiln_trial_run(&s->trial, kiln_trial_outputs(&s->trial)));
  const double start = kiln_now_ms();
  int n = 0;
  for (*out_ms = 0; *out_ms < BATCH_MS; *out_ms = kiln_now_ms() - start, n++)
    KILN_TRY(kiln_trial_run(&s->trial, kiln_trial_outputs(&s->trial)));
  *out_ms /= n;
  return KILN_OK;
}

static kiln_status time_all(searching *s) {
  for (int round = 0; round < ROUNDS; round++) {
    progress(s, "time", (size_t)round, ROUNDS);
    for (int i = 0; i < s->n; i++) {
      candidate *c = &s->candidates[i];
      if (!c->is_right) continue;
      KILN_TRY(kiln_trial_turn(&s->trial, c->module, false));
      KILN_TRY(time_turn(s, &c->ms[round]));
    }
  }
  progress(s, "time", ROUNDS, ROUNDS);
  for (int i = 0; i < s->n; i++) s->candidates[i].median = kiln_median(s->candidates[i].ms, ROUNDS);
  return KILN_OK;
}

// --- results ---

// The fastest first, then wrong ones, then refused ones, each in the order of the space.
static int by_merit(const void *a, const void *b) {
  const candidate *x = *(candidate *const *)a, *y = *(candidate *const *)b;
  const int p = x->is_right ? 0 : x->refused ? 2 : 1, q = y->is_right ? 0 : y->refused ? 2 : 1;
  if (p != q) return p - q;
  if (p == 0 && x->median != y->median) return x->median < y->median ? -1 : 1;
  return (x > y) - (x < y);
}

static const char *choices_text(const searching *s, const candidate *c) {
  kiln_text t;
  kiln_text_init(&t, &s->cx->perm);
  for (int i = 0; i < s->space->n_holes; i++) {
    const kiln_hole *h = &s->space->holes[i];
    kiln_text_printf(&t, "%s", i ? " " : "");
    if (h->name) kiln_text_printf(&t, "?%s=", kiln_symbol_text(s->cx, h->name));
    kiln_text_add(&t, h->choices[c->choices[i]]);
  }
  return t.data ? t.data : "";
}

static void report(const searching *s) {
  candidate **order = KILN_NEW_ARRAY(&s->cx->perm, candidate *, s->n);
  for (int i = 0; i < s->n; i++) order[i] = &s->candidates[i];
  qsort(order, (size_t)s->n, sizeof *order, by_merit);
  for (int i = 0; i < s->n && s->search->on_result; i++) {
    const candidate *c = order[i];
    const kiln_search_result r = {.script = c->script,
                                  .choices = c->script ? choices_text(s, c) : "Kiln's own",
                                  .refused = c->refused,
                                  .right = c->is_right,
                                  .median_ms = c->is_right ? c->median : 0};
    s->search->on_result(s->search->user, &r);
  }
}

static kiln_status search(kiln_ctx *cx, void *argument) {
  searching *s = argument;
  s->cx = cx;
  if (!s->options->schedule)
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, s->path,
                     "search: must have a schedule with holes, as in split C.m ?{16,32}, got none");
  KILN_TRY(kiln_space_parse(cx, s->options->schedule, NULL, 1, &s->space));
  make_candidates(s);
  KILN_TRY(compile_all(s));
  KILN_TRY(check_all(s));
  KILN_TRY(time_all(s));
  report(s);
  return KILN_OK;
}

kiln_status kiln_space_search(const kiln_compiler *compiler, const char *path,
                              const kiln_compile_options *options, const kiln_search_options *how,
                              kiln_diag *diag) {
  kiln_compile_options o = {0};
  kiln_search_options h = {0};
  kiln_ctx cx;
  searching s = {.compiler = compiler, .path = path, .options = &o, .search = &h, .diag = diag};
  if (options)
    memcpy(&o, options, options->struct_size < sizeof o ? options->struct_size : sizeof o);
  KILN_TRY(kiln_options_check(&o, diag));
  if (how) memcpy(&h, how, how->struct_size < sizeof h ? how->struct_size : sizeof h);
  o.dump = NULL;
  kiln_status st = kiln_ctx_init(&cx, diag);
  if (st != KILN_OK) return st;
  s.tried = kiln_diag_create();
  st = s.tried ? kiln_ctx_enter(&cx, search, &s) : KILN_NO_MEMORY;
  deinit(&s);
  kiln_ctx_deinit(&cx);
  return st;
}
