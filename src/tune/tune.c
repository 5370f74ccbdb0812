// Tuning: lists the candidates of each kernel with their stored measurements, measures the rest,
// and takes the fastest.
//
// Every measurement is stored at once, so an interrupted tuning resumes where it was, and tuning
// with more candidates measures only the new ones.
#include "module/cache.h"
#include "verify/check.h"
#include "module/library_candidate.h"
#include "tune/tuning.h"
#include "price/gpu_work.h"

#include <math.h>
#include <string.h>

// A library kernel is taken if it takes at most this fraction of Kiln's own time.
#define LIBRARY_GAIN 0.95

// The fastest correct candidate, among a library's or among Kiln's own, the first of which is
// favoured; -1: none.
static int fastest(const kiln_tuning_candidates *r, bool of_library) {
  int best = -1;
  double least = INFINITY;
  for (int i = 0; i < r->n; i++) {
    const kiln_tuning_candidate *one = &r->at[i];
    if (!one->is_known || one->result.verdict != KILN_VERDICT_RIGHT ||
        (one->candidate->by_library != NULL) != of_library)
      continue;
    const double us = one->result.us * (i == 0 ? KILN_RESULTS_GAIN : 1);
    if (us >= least) continue;
    least = us;
    best = i;
  }
  return best;
}

int kiln_tuning_candidates_best(const kiln_machine *m, const kiln_tuning_candidates *r) {
  const int own = fastest(r, false), library = fastest(r, true);
  if (own < 0 || library < 0) return own >= 0 ? own : library >= 0 ? library : 0;
  const double us = r->at[library].result.us + 2 * kiln_gpu_hidden_ns(m) / 1e3;
  return us <= LIBRARY_GAIN * r->at[own].result.us ? library : own;
}

// --- candidates ---

static void digest_key(const char *kernel, kiln_results_key *out) {
  kiln_digest d;
  kiln_digest_init(&d);
  if (kernel) kiln_digest_add_text(&d, kernel);
  kiln_digest_end(&d, out->program);
}

static void set_key(kiln_tuner *t, kiln_tuning_candidates *r) {
  digest_key(r->kernel->key, &r->key);
  r->key.device = t->device;
  r->key.driver = t->driver;
  r->key.compiler = t->compiler;
}

// A kernel from the schedule cache or a user's script has no candidates.
static void find_rivals(kiln_tuner *t, int number) {
  kiln_tuning_candidates *r = &t->of[number];
  const kiln_kernel *k = t->b->choices.kernels.kernels.data[number];
  *r = (kiln_tuning_candidates){.kernel = k,
                                .n_launches = kiln_kernel_launches(&t->b->choices.kernels, number)};
  if (!k->key || !kiln_kernel_check_suits(k->prog)) return;
  set_key(t, r);
  r->at = KILN_NEW_ARRAY(&t->cx->perm, kiln_tuning_candidate, k->candidates.n);
  r->was_known = true;
  for (int i = 0; i < k->candidates.n; i++) {
    const kiln_tile_candidate *c = &k->candidates.data[i];
    if (!c->loops) continue;
    const double us = isfinite(c->cost.ns) ? c->cost.ns / 1e3 : 0;
    kiln_tuning_candidate *one = &r->at[r->n];
    *one = (kiln_tuning_candidate){
        .candidate = c, .result = {.script = c->script, .is_first = r->n == 0, .predicted_us = us}};
    const kiln_results_key key = kiln_tuner_candidate_key(t, r, r->n);
    one->is_known = kiln_results_find(t->results, &key, &one->result);
    r->was_known &= one->is_known;
    if (r->n++ == 0) r->weight = us * r->n_launches;
  }
}

static kiln_status find_all_rivals(kiln_tuner *t) {
  t->n = t->b->choices.kernels.kernels.n;
  t->of = KILN_NEW_ARRAY(&t->cx->perm, kiln_tuning_candidates, t->n);
  for (int i = 0; i < t->n; i++) find_rivals(t, i);
  return KILN_OK;
}

// --- choice ---

static bool has_offer(const kiln_tuning_candidates *r) {
  for (int i = 0; i < r->n; i++)
    if (r->at[i].candidate->by_library) return true;
  return false;
}

// The least time of Kiln's own candidates.
static double own_us(const kiln_tuning_candidates *r) {
  double least = INFINITY;
  for (int i = 0; i < r->n; i++)
    if (!r->at[i].candidate->by_library && r->at[i].is_known &&
        r->at[i].result.verdict == KILN_VERDICT_RIGHT)
      least = fmin(least, r->at[i].result.us);
  return least;
}

static void tell_libraries(kiln_tuner *t) {
  kiln_tuning *sum = &t->b->request.model->tuning;
  kiln_text won;
  kiln_text_init(&won, &t->cx->perm);
  for (int k = 0; k < t->n; k++) {
    const kiln_tuning_candidates *r = &t->of[k];
    const kiln_tuning_candidate *best =
        r->n ? &r->at[kiln_tuning_candidates_best(&t->b->request.machine, r)] : NULL;
    sum->offered += has_offer(r);
    if (!best || !best->candidate->by_library) continue;
    const double own = own_us(r);
    kiln_text_printf(&won, "%s  by %s: %.2f us, ", kiln_symbol_text(t->cx, r->kernel->name),
                     best->candidate->by_library->backend, best->result.us);
    if (isfinite(own)) kiln_text_printf(&won, "Kiln's own %.2f us\n", own);
    else kiln_text_add(&won, "Kiln's own not right here\n");
  }
  sum->won = won.data ? won.data : "";
}

static void take_best(kiln_tuner *t) {
  kiln_tuning *sum = &t->b->request.model->tuning;
  for (int k = 0; k < t->n; k++) {
    const kiln_tuning_candidates *r = &t->of[k];
    const int best = kiln_tuning_candidates_best(&t->b->request.machine, r);
    sum->kernels++;
    sum->known += r->n < 2 || r->was_known;
    if (r->n < 2) continue;
    kiln_kernel_take(t->cx, t->b->choices.kernels.kernels.data[k], r->at[best].candidate);
    sum->changed += best > 0;
    sum->before_ms += r->at[0].result.us * r->n_launches / 1e3;
    sum->after_ms += r->at[best].result.us * r->n_launches / 1e3;
  }
}

// --- all kernels ---

// The compilation target besides the processor's name: CPUs of one name may be compiled for
// differently, and threads share caches.
static const char *driver_text(kiln_ctx *cx, const kiln_build *b) {
  const kiln_machine *m = &b->request.machine;
  if (m->target->has_images) return "in runs of a model";
  return kiln_arena_printf(&cx->perm, "%s %s, %d of %d cores", m->cpu, m->features,
                           (int)b->request.model->options.threads, m->n_cores);
}

void kiln_tuner_key(kiln_ctx *cx, const kiln_build *b, const char *kernel, kiln_results_key *out) {
  digest_key(kernel, out);
  out->device = b->request.machine.processor;
  out->driver = driver_text(cx, b);
  out->compiler = kiln_compiler_text(&cx->perm);
}

static kiln_status set_compiler(kiln_tuner *t) {
  int version = 0;
  t->compiler = kiln_compiler_text(&t->cx->perm);
  const kiln_gpu_compiler *c = t->b->request.machine.target->compiler;
  if (!c) return KILN_OK;
  KILN_TRY(c->version(t->cx, &version));
  t->compiler =
      kiln_arena_printf(&t->cx->perm, "%s %s %d.%d %s", t->compiler, c->name, version / 1000,
                        version % 1000 / 10, t->b->request.machine.gpu.arch);
  return KILN_OK;
}

static void close_results(void *tuner) {
  kiln_tuner *t = tuner;
  kiln_results_close(t->results);
  t->results = NULL;
}

static kiln_status open_results(kiln_tuner *t, bool wants) {
  const kiln_compile_options *o = &t->b->request.model->options;
  if (!o->tuned && !wants) return KILN_OK;
  return kiln_results_open(o->tuned, t->cx->diag, &t->results);
}

static kiln_status tune(kiln_tuner *t) {
  KILN_TRY(set_compiler(t));
  KILN_TRY(open_results(t, t->b->request.model->options.cache));
  if (t->b->request.machine.target->has_images) KILN_TRY(kiln_tune_on_gpu(t, find_all_rivals));
  else {
    t->device = t->b->request.machine.processor;
    t->driver = driver_text(t->cx, t->b);
    KILN_TRY(find_all_rivals(t));
    if (t->b->request.model->options.tune > 0) KILN_TRY(kiln_tune_on_cpu(t));
  }
  take_best(t);
  tell_libraries(t);
  return KILN_OK;
}

static kiln_tuner begin(kiln_ctx *cx, kiln_build *b) {
  const double seconds = b->request.model->options.tune_seconds;
  b->request.model->tuning = (kiln_tuning){0};
  return (kiln_tuner){
      .cx = cx, .b = b, .end_ms = seconds > 0 ? kiln_now_ms() + seconds * 1e3 : INFINITY};
}

static kiln_status run(kiln_ctx *cx, kiln_build *b, kiln_status (*body)(kiln_tuner *t)) {
  kiln_tuner *t = KILN_NEW(&cx->perm, kiln_tuner);
  *t = begin(cx, b);
  kiln_cleanup_push(cx, close_results, t);
  const kiln_status st = body(t);
  kiln_cleanup_pop(cx);
  close_results(t);
  return st;
}

// Takes for each kernel the fastest of its lowered candidates, measured now or earlier.
static kiln_status tune_build(kiln_ctx *cx, kiln_build *b) {
  KILN_TRY(kiln_build_add_library_candidates(cx, b));
  return run(cx, b, tune);
}

// --- without a device ---

static bool take_script(kiln_tuner *t, kiln_kernel *k, const char *script) {
  kiln_diag *outer = t->cx->diag;
  t->cx->diag = NULL; // a script that cannot be replayed is skipped silently
  const bool taken = kiln_kernel_replay(t->cx, &t->b->request.machine, script, k) == KILN_OK;
  t->cx->diag = outer;
  return taken;
}

// Takes for each kernel the fastest candidate measured on the device named in the options.
static kiln_status take_tuned(kiln_tuner *t) {
  kiln_tuning *sum = &t->b->request.model->tuning;
  t->device = t->b->request.model->options.tuned_for;
  KILN_TRY(set_compiler(t));
  KILN_TRY(open_results(t, true));
  for (int i = 0; i < t->b->choices.kernels.kernels.n; i++) {
    kiln_kernel *k = t->b->choices.kernels.kernels.data[i];
    kiln_tuning_candidates r = {.kernel = k};
    if (k->key) set_key(t, &r);
    const char *script = k->key ? kiln_results_best(t->cx, t->results, &r.key) : NULL;
    sum->kernels++;
    sum->known += script != NULL;
    if (script && (!k->script || strcmp(script, k->script) != 0))
      sum->changed += take_script(t, k, script);
  }
  if (sum->known > 0) return KILN_OK;
  return KILN_FAIL(
      t->cx->diag, KILN_BAD_INPUT, t->b->request.model->path,
      "tuned for: must be a device that kernels of this model were measured on by this "
      "compiler, got \"%s\"; measured were kernels on: %s",
      t->device, kiln_results_devices(t->cx, t->results));
}

// --- the pass ---

kiln_status kiln_build_choose_measured(kiln_ctx *cx, kiln_build *b, int *io_n) {
  const kiln_compile_options *asked = &b->request.model->options;
  bool is_settled = false;
  (void)io_n;
  KILN_TRY(kiln_build_take_library_candidates(cx, b, &is_settled));
  if (is_settled) return KILN_OK;
  if (asked->tune > 1 || kiln_model_asks_backends(b->request.model)) return tune_build(cx, b);
  return asked->tuned_for ? run(cx, b, take_tuned) : KILN_OK;
}
