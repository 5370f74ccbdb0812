// Alternatives: rules that do not always pay. Decides which are applied, and where, by the
// predicted times of the kernels that result.
//
// The model is solved without a rule and with it, applied everywhere. The costs of regions
// (orchestrate/regions.h), sets of kernels of both that cover the same statements, are compared:
// the rule is kept at places in regions that became cheaper. If these are some of the places, the
// model is solved with these alone, which may show that more of them do not pay, because storage
// orders are chosen globally. The cheapest program is taken.
#include "driver/stages.h"
#include "module/schedule_lookup.h"
#include "tune/measurement_cache.h"

#include "orchestrate/regions.h"
#include "fuse/cached_schedule.h"

#include <string.h>

static const double LEAST_GAIN = 0.01; // relative gain of an alternative: costs are estimates
enum { MAX_CHOICES = 3 };              // sets of places solved for a rule
static const char none[] = "none";     // in the cache: no alternative

static bool is_cheaper(double now, double before) { return now < (1 - LEAST_GAIN) * before; }

// |asked| plus the rule of |row| at |places|; NULL: wherever it matches.
static kiln_asked with_row(kiln_ctx *cx, const kiln_asked *asked, int row,
                           const kiln_rule_places *places) {
  kiln_asked out = {.rows = asked->rows | 1U << row};
  for (int i = 0; i < asked->places.n; i++)
    KILN_VEC_PUSH(&cx->perm, &out.places, asked->places.data[i]);
  for (int i = 0; places && i < places->n; i++)
    KILN_VEC_PUSH(&cx->perm, &out.places, places->data[i]);
  return out;
}

// Whether the rule of |row| changes the program, in addition to the requested alternatives.
static kiln_status applies(kiln_ctx *cx, const kiln_build *b, int row, bool *out) {
  kiln_rewriting r = {.rules = b->request.model->rules,
                      .without = b->request.model->without_rules,
                      .with = with_row(cx, &b->choices.with_rules, row, NULL),
                      .on_gpu = b->request.machine.target->has_grids};
  KILN_TRY(kiln_rewrite(cx, kiln_program_copy(cx, b->request.model->prog), &r));
  *out = r.counts[row] > 0;
  return KILN_OK;
}

static void deinit_trial(void *build) { kiln_build_deinit(build); }

static kiln_status solve_with(kiln_ctx *cx, const kiln_build *b, kiln_asked with,
                              kiln_build **out) {
  kiln_build *t = *out = KILN_NEW(&cx->perm, kiln_build);
  *t = (kiln_build){.request.model = b->request.model,
                    .request.is_trial = true,
                    .request.wants_candidates = true,
                    .choices.with_rules = with,
                    .choices.proposed = b->choices.proposed,
                    .choices.spent = b->choices.spent,
                    .choices.measured = b->choices.measured};
  kiln_cleanup_push(cx, deinit_trial, t);
  const kiln_status st = kiln_build_kernels(cx, t);
  kiln_cleanup_pop(cx);
  kiln_build_deinit(t);
  return st;
}

static double cost_of(const kiln_build *t) { return t->choices.orchestration->chosen_ns; }

static kiln_rule_places places_of(kiln_ctx *cx, const kiln_build *t, int row) {
  kiln_rule_places out = {0};
  for (int i = 0; i < t->choices.rewriting.taken.n; i++)
    if (t->choices.rewriting.taken.data[i].row == row)
      KILN_VEC_PUSH(&cx->perm, &out, t->choices.rewriting.taken.data[i]);
  return out;
}

// The places of the rule of |row| in regions that are cheaper with it.
static kiln_rule_places gains_of(kiln_ctx *cx, const kiln_build *without, const kiln_build *with,
                                 int row) {
  const kiln_orchestrated two[] = {{without->choices.prog, without->choices.orchestration},
                                   {with->choices.prog, with->choices.orchestration}};
  const kiln_regions regions = kiln_regions_make(cx, two);
  const kiln_rule_places all = places_of(cx, with, row);
  kiln_rule_places out = {0};
  for (int i = 0; i < all.n; i++) {
    const kiln_cost_region *r = kiln_regions_find(&regions, all.data[i].tensor);
    if (r && is_cheaper(r->ns[1], r->ns[0])) KILN_VEC_PUSH(&cx->perm, &out, all.data[i]);
  }
  return out;
}

// Tries one more rule in addition to the best so far.
//
// gives: *io_best, the with_rules of |b| with it if that is cheaper
static kiln_status try_row(kiln_ctx *cx, kiln_build *b, int row, kiln_build **io_best,
                           kiln_text *io_text) {
  const kiln_build *before = *io_best;
  kiln_build *all = NULL, *least = NULL, *last = NULL;
  KILN_TRY(solve_with(cx, b, with_row(cx, &b->choices.with_rules, row, NULL), &all));
  least = last = all;
  for (int i = 0; i < MAX_CHOICES; i++) {
    const kiln_rule_places gains = gains_of(cx, before, last, row);
    if (gains.n == 0 || gains.n == places_of(cx, last, row).n) break;
    KILN_TRY(solve_with(cx, b, with_row(cx, &b->choices.with_rules, row, &gains), &last));
    if (cost_of(last) < cost_of(least)) least = last;
  }
  const kiln_rule_places kept = places_of(cx, least, row);
  const bool is_taken = is_cheaper(cost_of(least), cost_of(before));
  kiln_text_printf(io_text, "%s%s at %d of %d places: %.1f us in place of %.1f, %s",
                   io_text->n ? "; " : "", b->request.model->rules[row].name, kept.n,
                   places_of(cx, all, row).n, cost_of(least) * 1e-3, cost_of(before) * 1e-3,
                   is_taken ? "taken" : "not taken");
  if (!is_taken) return KILN_OK;
  b->choices.with_rules = with_row(cx, &b->choices.with_rules, row, least == all ? NULL : &kept);
  *io_best = least;
  return KILN_OK;
}

// Tries the |rows| in order, each in addition to the best so far.
static kiln_status try_alternatives(kiln_ctx *cx, kiln_build *b, uint32_t rows,
                                    const kiln_build **out) {
  kiln_build *best = NULL;
  kiln_text text;
  kiln_text_init(&text, &cx->perm);
  KILN_TRY(solve_with(cx, b, b->choices.with_rules, &best));
  for (int i = 0; b->request.model->rules[i].name; i++)
    if (rows >> i & 1) KILN_TRY(try_row(cx, b, i, &best, &text));
  b->choices.alternatives = text.data;
  *out = best;
  return KILN_OK;
}

// Without measuring, and without dumps of trials.
static kiln_status try_silently(kiln_ctx *cx, kiln_build *b, uint32_t rows,
                                const kiln_build **out) {
  kiln_compile_options *asked = &b->request.model->options;
  const kiln_compile_options before = *asked;
  asked->tune = 0;
  asked->tuned_for = NULL;
  asked->dump = NULL;
  const kiln_status st = try_alternatives(cx, b, rows, out);
  asked->tune = before.tune;
  asked->tuned_for = before.tuned_for;
  asked->dump = before.dump;
  return st;
}

// The alternatives that are not decided by the user and apply.
static kiln_status find_alternatives(kiln_ctx *cx, const kiln_build *b, uint32_t *out_rows) {
  *out_rows = 0;
  for (int i = 0; b->request.model->rules[i].name; i++) {
    bool does_apply = false;
    if (!b->request.model->rules[i].apply_at ||
        (b->request.model->without_rules | b->choices.with_rules.rows) >> i & 1)
      continue;
    KILN_TRY(applies(cx, b, i, &does_apply));
    if (does_apply) *out_rows |= 1U << i;
  }
  return KILN_OK;
}

static const char *key_text_of(kiln_ctx *cx, const kiln_build *b) {
  return kiln_arena_printf(
      &cx->perm, "alternatives %x %s %s\n%s", (unsigned)b->request.model->without_rules,
      kiln_asked_text(cx, b->request.model->rules, &b->choices.with_rules),
      kiln_dtype_text(b->request.model->half), kiln_schedule_key(cx, b->request.model->prog, NULL));
}

kiln_status kiln_build_choose_alternatives(kiln_ctx *cx, kiln_build *b, int *io_n) {
  kiln_schedule_lookup past = {.cx = cx,
                               .machine = &b->request.machine,
                               .n_threads = b->request.model->options.threads,
                               .orchestration = kiln_build_asks_to_solve(cx, b)};
  const bool looks_up = b->request.model->options.cache && !b->request.wants_candidates;
  uint32_t rows = 0;
  (void)io_n;
  KILN_TRY(find_alternatives(cx, b, &rows));
  if (!rows) return KILN_OK;
  const char *known = looks_up ? kiln_schedule_lookup_find(&past, key_text_of(cx, b)) : NULL;
  if (known && strcmp(known, none) == 0) return KILN_OK;
  if (known) {
    b->choices.with_rules = (kiln_asked){0};
    return kiln_rules_ask(cx, b->request.model->rules, known, &b->choices.with_rules);
  }
  const kiln_build *best = NULL;
  b->choices.proposed = kiln_searches_make(cx, NULL);
  b->choices.spent = KILN_NEW(&cx->perm, kiln_orchestrate_spent);
  KILN_TRY(try_silently(cx, b, rows, &best));
  const char *taken = kiln_asked_text(cx, b->request.model->rules, &b->choices.with_rules);
  if (looks_up)
    kiln_schedule_lookup_store_text(&past, b->request.model->path, *taken ? taken : none);
  if (b->request.model->options.tune > 0) return KILN_OK; // measured later
  b->choices.is_solved = true;
  kiln_build_take_orchestration(cx, b, best);
  return KILN_OK;
}
