// Kernel orchestration as requested: solved, or given as text; and its report.
#include "driver/stages.h"
#include "tune/measurement_cache.h"

#include "orchestrate/orchestrate.h"

#include <math.h>
#include <string.h>

static const char rules_word[] = "rules ";

// Prints the first line of an orchestration: the alternatives that made its statements, with their
// places.
static void print_rules(kiln_ctx *cx, const kiln_build *b, kiln_text *out) {
  if (b->choices.with_rules.rows)
    kiln_text_printf(out, "%s%s\n", rules_word,
                     kiln_asked_text(cx, b->request.model->rules, &b->choices.with_rules));
}

// Parses that line and makes it a comment.
static kiln_status take_rules(kiln_ctx *cx, kiln_build *b) {
  const char *given = b->request.given_orchestration;
  const size_t n = strlen(rules_word);
  if (strncmp(given, rules_word, n) != 0) return KILN_OK;
  const char *names = kiln_arena_strndup(&cx->perm, given + n, strcspn(given + n, "\n"));
  char *rest = kiln_arena_strdup(&cx->perm, given);
  rest[0] = '#';
  b->request.given_orchestration = rest;
  return kiln_rules_ask(cx, b->request.model->rules, names, &b->choices.with_rules);
}

static void dump(kiln_ctx *cx, const kiln_build *b, const kiln_program *p) {
  kiln_text text;
  if (!kiln_model_dumps(b->request.model, "orchestration")) return;
  kiln_text_init(&text, &cx->scratch);
  print_rules(cx, b, &text);
  kiln_orchestration_print(cx, p, b->choices.orchestration, &text);
  kiln_model_dump(b->request.model, "orchestration", &text);
}

// For an orchestration made in this compilation, keeps the decisions recorded at that time, which
// say more than that it was given.
static void take_reasons(const kiln_edge_decisions *from, kiln_edge_decisions *io) {
  for (int i = 0; i < io->n && i < from->n; i++) {
    const kiln_edge_decision *e = &from->data[i];
    kiln_edge_decision *x = &io->data[i];
    if (x->producer == e->producer && x->consumer == e->consumer && x->reason)
      x->reason = e->reason;
  }
}

kiln_status kiln_build_orchestrate(kiln_ctx *cx, void *build, const kiln_program *p,
                                   const kiln_facts *facts, const kiln_tile_search_options *search,
                                   kiln_searches *known, kiln_fused_groups *io,
                                   kiln_edge_decisions *io_edges) {
  kiln_build *b = build;
  const kiln_orchestrate_options options = {
      .worth = KILN_USUAL_WORTH,
      .nodes = b->request.model->options.solver_nodes,
      .spent = b->choices.spent,
      .bytes = (double)b->request.model->options.memory_limit,
      .measured = b->choices.measured ? kiln_measurement_cache_ns : NULL,
      .user = b->choices.measured,
      .given = b->request.given_orchestration};
  b->choices.orchestration = KILN_NEW(&cx->perm, kiln_orchestration);
  KILN_TRY(kiln_orchestrate(cx, p, facts, search, known, &options, io, io_edges,
                            b->choices.orchestration));
  if (b->choices.measured_best) {
    b->choices.orchestration = b->choices.measured_best;
    take_reasons(b->choices.best_edges, io_edges);
  }
  dump(cx, b, p);
  return KILN_OK;
}

const char *kiln_build_asks_to_solve(kiln_ctx *cx, const kiln_build *b) {
  return kiln_arena_printf(&cx->perm, "solved, %d nodes, %" PRIu64 " bytes, results %" PRId64,
                           b->request.model->options.solver_nodes,
                           b->request.model->options.memory_limit,
                           b->choices.measured ? b->choices.measured->stamp : 0);
}

kiln_status kiln_build_find_orchestration(kiln_ctx *cx, kiln_build *b) {
  const kiln_compile_options *asked = &b->request.model->options;
  if (!asked->orchestration) return KILN_OK;
  KILN_TRY(kiln_text_read(cx, asked->orchestration, &b->request.given_orchestration));
  return take_rules(cx, b);
}

static bool is_same(const kiln_launch *l, const kiln_group *g) {
  bool same = l->n_stmts == g->n_stmts && l->stored == g->stored;
  for (int i = 0; same && i < g->n_stmts; i++) same = l->stmts[i] == g->stmts[i];
  return same;
}

void kiln_build_mark_libraries(kiln_build *b) {
  const kiln_kernels *k = &b->choices.kernels;
  for (int i = 0; b->choices.orchestration && i < b->choices.orchestration->kernels.n; i++) {
    kiln_orchestrated_kernel *one = &b->choices.orchestration->kernels.data[i];
    for (int j = 0; j < k->launches.n; j++) {
      const kiln_library_candidate *o = k->kernels.data[k->launches.data[j].kernel]->by_library;
      if (o && is_same(&k->launches.data[j], &one->group)) one->backend = o->backend;
    }
  }
}
