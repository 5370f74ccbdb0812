// A search in the space that a schedule with holes describes.
//
// All candidates are compiled first and stay; then they run in turns, so that what the machine does
// beside them slows all of them alike. Each turn has a session of its own: threads that wait for
// their next run would be in the way of the others'.
#include "driver/compare.h"
#include "driver/model.h"
#include "driver/random.h"
#include "tile/tile.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_CANDIDATES = 4096, ROUNDS = 9, DRAWS_PER_FILLING = 20 };
#define INTERPRETED_FLOPS 2e8 // up to here the interpreter says what is right
#define BATCH_MS 2.0          // a time is of as many runs as take this long

typedef struct candidate {
  int *choices; // [holes]; NULL: Kiln's own schedule
  const char *script, *refused;
  kiln_module *module;
  bool is_right;
  double ms[ROUNDS], median;
} candidate;

typedef struct searching {
  kiln_ctx *cx;
  const char *path;
  const kiln_compile_options *options;
  const kiln_search_options *search;
  kiln_diag *diag, *tried; // the caller's; of the candidate at hand
  kiln_space *space;
  int n;
  candidate *candidates;
  kiln_model *model;     // with Kiln's own schedule
  kiln_session *session; // of the candidate whose turn it is
  size_t n_inputs, n_outputs;
  DLManagedTensorVersioned **tensors; // inputs, outputs, wanted outputs
  DLTensor **views;
} searching;

static void deinit(searching *s) {
  kiln_session_destroy(s->session);
  for (int i = 0; i < s->n; i++) kiln_module_release(s->candidates[i].module);
  for (size_t i = 0; s->tensors && i < s->n_inputs + 2 * s->n_outputs; i++)
    kiln_tensor_destroy(s->tensors[i]);
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

// The first candidate is Kiln's own schedule.
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
  kiln_status st = kiln_model_load(s->path, &o, s->tried, out_model);
  if (st == KILN_OK) st = kiln_model_compile(*out_model, s->tried, &c->module);
  return st;
}

// A refusal is an answer; other failures are passed on.
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

// --- right or wrong ---

static DLTensor **inputs_of(const searching *s) { return s->views; }
static DLTensor **outputs_of(const searching *s) { return s->views + s->n_inputs; }
static DLTensor **wanted_of(const searching *s) { return s->views + s->n_inputs + s->n_outputs; }

static kiln_status add_tensor(searching *s, size_t at, kiln_port port) {
  s->tensors[at] = kiln_tensor_create(port.dtype, port.rank, port.shape, s->diag);
  if (!s->tensors[at]) return KILN_NO_MEMORY;
  s->views[at] = &s->tensors[at]->dl_tensor;
  return KILN_OK;
}

static kiln_status make_tensors(searching *s) {
  const kiln_program *p = s->model->prog;
  uint64_t state = s->search->seed;
  s->n_inputs = kiln_model_input_count(s->model);
  s->n_outputs = kiln_model_output_count(s->model);
  const int n = (int)(s->n_inputs + 2 * s->n_outputs);
  s->tensors = KILN_NEW_ARRAY(&s->cx->perm, DLManagedTensorVersioned *, n);
  s->views = KILN_NEW_ARRAY(&s->cx->perm, DLTensor *, n);
  for (size_t i = 0; i < s->n_inputs; i++) {
    KILN_TRY(add_tensor(s, i, kiln_model_input(s->model, i)));
    kiln_random_fill(&s->model->core->cx, p, p->inputs.data[i], &state, s->views[i]->data);
  }
  for (size_t i = 0; i < 2 * s->n_outputs; i++)
    KILN_TRY(add_tensor(s, s->n_inputs + i, kiln_model_output(s->model, i % s->n_outputs)));
  return KILN_OK;
}

static kiln_status begin_turn(searching *s, const candidate *c) {
  const kiln_session_options o = {.struct_size = sizeof o, .threads = s->options->threads};
  kiln_session_destroy(s->session);
  s->session = NULL;
  return kiln_session_create(c->module, &o, s->diag, &s->session);
}

static kiln_status run(const searching *s, DLTensor **outputs) {
  return kiln_session_run(s->session, s->n_inputs, (const DLTensor *const *)inputs_of(s),
                          s->n_outputs, outputs, s->diag);
}

static kiln_status make_wanted(searching *s) {
  if (kiln_program_flops(&s->model->core->cx, s->model->prog) <= INTERPRETED_FLOPS)
    return kiln_model_reference(s->model, s->n_inputs, (const DLTensor *const *)inputs_of(s),
                                s->n_outputs, wanted_of(s), s->diag);
  KILN_TRY(begin_turn(s, &s->candidates[0]));
  return run(s, wanted_of(s));
}

static bool is_right(const searching *s) {
  const kiln_program *p = s->model->prog;
  kiln_difference d = {0};
  for (size_t i = 0; i < s->n_outputs; i++) {
    const kiln_tensor *t = p->tensors.data[p->outputs.data[i]];
    int64_t strides[KILN_MAX_RANK];
    kiln_tensor_strides(t, strides);
    kiln_compare(t, outputs_of(s)[i]->data, strides, wanted_of(s)[i]->data, s->search->rtol,
                 s->search->atol, true, &d);
  }
  return d.wrong == 0;
}

static void forget_outputs(const searching *s) { // NaN, and no small integers
  for (size_t i = 0; i < s->n_outputs; i++)
    memset(outputs_of(s)[i]->data, 0xff, kiln_tensor_bytes(outputs_of(s)[i]));
}

static kiln_status check_all(searching *s) {
  for (int i = 0; i < s->n; i++) {
    candidate *c = &s->candidates[i];
    if (!c->module) continue;
    KILN_TRY(begin_turn(s, c));
    forget_outputs(s);
    KILN_TRY(run(s, outputs_of(s)));
    c->is_right = is_right(s);
  }
  return KILN_OK;
}

// --- times ---

static int by_value(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

// The mean of as many runs as take BATCH_MS, after one that warms up.
static kiln_status time_turn(searching *s, double *out_ms) {
  KILN_TRY(run(s, outputs_of(s)));
  const double start = kiln_now_ms();
  int n = 0;
  for (*out_ms = 0; *out_ms < BATCH_MS; *out_ms = kiln_now_ms() - start, n++)
    KILN_TRY(run(s, outputs_of(s)));
  *out_ms /= n;
  return KILN_OK;
}

static kiln_status time_all(searching *s) {
  for (int round = 0; round < ROUNDS; round++) {
    progress(s, "time", (size_t)round, ROUNDS);
    for (int i = 0; i < s->n; i++) {
      candidate *c = &s->candidates[i];
      if (!c->is_right) continue;
      KILN_TRY(begin_turn(s, c));
      KILN_TRY(time_turn(s, &c->ms[round]));
    }
  }
  progress(s, "time", ROUNDS, ROUNDS);
  for (int i = 0; i < s->n; i++) {
    qsort(s->candidates[i].ms, ROUNDS, sizeof(double), by_value);
    s->candidates[i].median = s->candidates[i].ms[ROUNDS / 2];
  }
  return KILN_OK;
}

// --- results ---

// The fastest first, then the wrong, then the refused, each in the order of the space.
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
  KILN_TRY(make_tensors(s));
  KILN_TRY(make_wanted(s));
  KILN_TRY(check_all(s));
  KILN_TRY(time_all(s));
  report(s);
  return KILN_OK;
}

kiln_status kiln_schedule_search(const char *path, const kiln_compile_options *options,
                                 const kiln_search_options *how, kiln_diag *diag) {
  kiln_compile_options o = {0};
  kiln_search_options h = {0};
  kiln_ctx cx;
  searching s = {.path = path, .options = &o, .search = &h, .diag = diag};
  if (options)
    memcpy(&o, options, options->struct_size < sizeof o ? options->struct_size : sizeof o);
  if (how) memcpy(&h, how, how->struct_size < sizeof h ? how->struct_size : sizeof h);
  if (h.rtol <= 0) h.rtol = 1e-4;
  if (h.atol <= 0) h.atol = 1e-5;
  o.dump = NULL;
  kiln_status st = kiln_ctx_init(&cx, diag);
  if (st != KILN_OK) return st;
  s.tried = kiln_diag_create();
  st = s.tried ? kiln_ctx_enter(&cx, search, &s) : KILN_NO_MEMORY;
  deinit(&s);
  kiln_ctx_deinit(&cx);
  return st;
}
