// The choice of kernels, as the options ask for it, and what it has come to.
#include "driver/build.h"
#include "driver/known.h"
#include "driver/recall.h"

#include "orchestrate/orchestrate.h"
#include "tile/answer.h"

#include <math.h>
#include <string.h>

static const char rules_word[] = "rules ";
static const double LEAST_GAIN = 0.01; // of an alternative: prices are estimates

// The names of rows, separated by ','.
static const char *rule_names(kiln_ctx *cx, const kiln_build *b, uint32_t rows) {
  kiln_text text;
  kiln_text_init(&text, &cx->perm);
  for (int i = 0; b->model->rules[i].name; i++)
    if (rows >> i & 1) kiln_text_printf(&text, "%s%s", text.n ? "," : "", b->model->rules[i].name);
  return text.n ? text.data : "";
}

// The first line of an orchestration says which alternatives made its statements.
static void print_rules(kiln_ctx *cx, const kiln_build *b, kiln_text *out) {
  if (b->with_rules) kiln_text_printf(out, "%s%s\n", rules_word, rule_names(cx, b, b->with_rules));
}

// Reads that line, which becomes a comment.
static kiln_status take_rules(kiln_ctx *cx, kiln_build *b) {
  const char *given = b->given_orchestration;
  const size_t n = strlen(rules_word);
  if (strncmp(given, rules_word, n) != 0) return KILN_OK;
  const char *names = kiln_arena_strndup(&cx->perm, given + n, strcspn(given + n, "\n"));
  char *rest = kiln_arena_strdup(&cx->perm, given);
  rest[0] = '#';
  b->given_orchestration = rest;
  return kiln_rules_find(cx, b->model->rules, names, &b->with_rules);
}

static void dump(kiln_ctx *cx, const kiln_build *b, const kiln_program *p) {
  kiln_text text;
  if (!kiln_model_dumps(b->model, "orchestration")) return;
  kiln_text_init(&text, &cx->scratch);
  print_rules(cx, b, &text);
  kiln_orchestration_print(cx, p, b->orchestration, &text);
  kiln_model_dump(b->model, "orchestration", &text);
}

// What was found as the choice was made says more than that it was given.
static void take_reasons(const kiln_edge_decisions *from, kiln_edge_decisions *io) {
  for (int i = 0; i < io->n && i < from->n; i++) {
    const kiln_edge_decision *e = &from->data[i];
    kiln_edge_decision *x = &io->data[i];
    if (x->producer == e->producer && x->consumer == e->consumer && x->reason)
      x->reason = e->reason;
  }
}

kiln_status kiln_build_orchestrate(kiln_ctx *cx, void *build, const kiln_program *p,
                                   const kiln_tile_search_options *search, kiln_searches *known,
                                   kiln_parts *io, kiln_edge_decisions *io_edges) {
  kiln_build *b = build;
  const kiln_orchestrate_options options = {.worth = KILN_USUAL_WORTH,
                                            .nodes = b->model->options.solver_nodes,
                                            .bytes = (double)b->model->options.memory_limit,
                                            .measured = b->known ? kiln_known_ns : NULL,
                                            .user = b->known,
                                            .given = b->given_orchestration};
  const double start = kiln_now_ms();
  b->orchestration = KILN_NEW(&cx->perm, kiln_orchestration);
  KILN_TRY(kiln_orchestrate(cx, p, search, known, &options, io, io_edges, b->orchestration));
  if (b->measured_best) {
    b->orchestration = b->measured_best;
    take_reasons(b->best_edges, io_edges);
  }
  kiln_model_time(b->model, "orchestrate", start);
  dump(cx, b, p);
  return KILN_OK;
}

const char *kiln_build_asks_to_solve(kiln_ctx *cx, const kiln_build *b) {
  return kiln_arena_printf(&cx->perm, "solved, %d nodes, %" PRIu64 " bytes, results %" PRId64,
                           b->model->options.solver_nodes, b->model->options.memory_limit,
                           b->known ? b->known->stamp : 0);
}

kiln_status kiln_build_find_orchestration(kiln_ctx *cx, kiln_build *b) {
  const kiln_compile_options *asked = &b->model->options;
  if (!asked->orchestration) return KILN_OK;
  KILN_TRY(kiln_text_read(cx, asked->orchestration, &b->given_orchestration));
  return take_rules(cx, b);
}

static void deinit_trial(void *build) { kiln_build_deinit(build); }

void kiln_build_take_orchestration(kiln_ctx *cx, kiln_build *b, const kiln_build *t) {
  kiln_text text;
  b->measured_best = t->orchestration;
  b->best_edges = &t->kernels.edges;
  if (!t->orchestration) return;
  kiln_text_init(&text, &cx->perm);
  kiln_orchestration_print(cx, t->prog, t->orchestration, &text);
  b->given_orchestration = text.data;
}

// --- alternatives ---

// Whether the rule of |row| changes the model's program, beside the alternatives |with|.
static kiln_status applies(kiln_ctx *cx, const kiln_build *b, uint32_t with, int row, bool *out) {
  kiln_rewriting r = {
      .rules = b->model->rules, .without = b->model->without_rules, .with = with | 1U << row};
  KILN_TRY(kiln_rewrite(cx, kiln_program_copy(cx, b->model->prog), &r));
  *out = r.counts[row] > 0;
  return KILN_OK;
}

static kiln_status solve_with(kiln_ctx *cx, const kiln_build *b, uint32_t with, kiln_build **out) {
  kiln_build *t = *out = KILN_NEW(&cx->perm, kiln_build);
  *t = (kiln_build){.model = b->model,
                    .is_trial = true,
                    .wants_candidates = true,
                    .with_rules = with,
                    .known = b->known};
  kiln_cleanup_push(cx, deinit_trial, t);
  const kiln_status st = kiln_build_kernels(cx, t);
  kiln_cleanup_pop(cx);
  kiln_build_deinit(t);
  return st;
}

// One after the other of |rows|, each beside those that were taken before.
static kiln_status try_alternatives(kiln_ctx *cx, kiln_build *b, uint32_t rows,
                                    const kiln_build **out) {
  kiln_build *best = NULL;
  kiln_text text;
  kiln_text_init(&text, &cx->perm);
  KILN_TRY(solve_with(cx, b, b->with_rules, &best));
  for (int i = 0; b->model->rules[i].name; i++) {
    kiln_build *t = NULL;
    if (!(rows >> i & 1)) continue;
    KILN_TRY(solve_with(cx, b, b->with_rules | 1U << i, &t));
    const double before = best->orchestration->chosen_ns, now = t->orchestration->chosen_ns;
    const bool is_taken = now < (1 - LEAST_GAIN) * before;
    kiln_text_printf(&text, "%s%s: %.1f us in place of %.1f, %s", text.n ? "; " : "",
                     b->model->rules[i].name, now * 1e-3, before * 1e-3,
                     is_taken ? "taken" : "not taken");
    if (!is_taken) continue;
    b->with_rules |= 1U << i;
    best = t;
  }
  b->alternatives = text.data;
  *out = best;
  return KILN_OK;
}

// Without measuring, and without dumps of what is tried.
static kiln_status try_silently(kiln_ctx *cx, kiln_build *b, uint32_t rows,
                                const kiln_build **out) {
  kiln_compile_options *asked = &b->model->options;
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

// The alternatives that are left to choose of and apply.
static kiln_status find_alternatives(kiln_ctx *cx, const kiln_build *b, uint32_t *out_rows) {
  *out_rows = 0;
  for (int i = 0; b->model->rules[i].name; i++) {
    bool does_apply = false;
    if (!b->model->rules[i].is_alternative || (b->model->without_rules | b->with_rules) >> i & 1)
      continue;
    KILN_TRY(applies(cx, b, b->with_rules, i, &does_apply));
    if (does_apply) *out_rows |= 1U << i;
  }
  return KILN_OK;
}

static const char *question_of(kiln_ctx *cx, const kiln_build *b) {
  return kiln_arena_printf(&cx->perm, "alternatives %x %x %s\n%s",
                           (unsigned)b->model->without_rules, (unsigned)b->with_rules,
                           kiln_dtype_text(b->model->half),
                           kiln_answer_question(cx, b->model->prog));
}

kiln_status kiln_build_choose_alternatives(kiln_ctx *cx, kiln_build *b) {
  const uint32_t before = b->with_rules;
  kiln_recall past = {.cx = cx,
                      .machine = &b->machine,
                      .n_threads = b->model->options.threads,
                      .orchestration = kiln_build_asks_to_solve(cx, b)};
  uint32_t rows = 0;
  KILN_TRY(find_alternatives(cx, b, &rows));
  if (!rows) return KILN_OK;
  const bool recalls = b->model->options.cache && !b->wants_candidates;
  const char *known = recalls ? kiln_recall_find(&past, question_of(cx, b)) : NULL;
  if (known && strcmp(known, "none") == 0) return KILN_OK;
  if (known) return kiln_rules_find(cx, b->model->rules, known, &b->with_rules);
  const kiln_build *best = NULL;
  KILN_TRY(try_silently(cx, b, rows, &best));
  const char *taken = rule_names(cx, b, b->with_rules & ~before);
  if (recalls) kiln_recall_keep_text(&past, b->model->path, *taken ? taken : "none");
  if (b->model->options.tune > 0) return KILN_OK; // what is chosen with them is measured
  b->is_solved = true;
  kiln_build_take_orchestration(cx, b, best);
  return KILN_OK;
}

static bool is_same(const kiln_launch *l, const kiln_group *g) {
  bool same = l->n_stmts == g->n_stmts && l->stored == g->stored;
  for (int i = 0; same && i < g->n_stmts; i++) same = l->stmts[i] == g->stmts[i];
  return same;
}

void kiln_build_tell_libraries(kiln_build *b) {
  const kiln_kernels *k = &b->kernels;
  for (int i = 0; b->orchestration && i < b->orchestration->kernels.n; i++) {
    kiln_orchestrated_kernel *one = &b->orchestration->kernels.data[i];
    for (int j = 0; j < k->launches.n; j++) {
      const kiln_offer *o = k->kernels.data[k->launches.data[j].kernel]->offer;
      if (o && is_same(&k->launches.data[j], &one->group)) one->backend = o->backend;
    }
  }
}
