// Dead code elimination on programs: one backward sweep from the outputs, then renumbering.
#include "rewrite/dce.h"

#include "support/bits.h"

typedef struct sweep {
  kiln_ctx *cx;
  kiln_program *p;
  kiln_bits *live;    // tensors
  const int *renamed; // [n_tensors] new ids
} sweep;

static void mark_load(const kiln_expr *e, void *argument) {
  sweep *s = argument;
  kiln_bits_set(s->live, e->u.tensor);
}

static void mark(sweep *s, const kiln_expr *e) { kiln_expr_visit_loads(s->cx, e, mark_load, s); }

static void mark_stmt(sweep *s, const kiln_stmt *st) {
  mark(s, st->body);
  mark(s, st->guard);
  mark(s, st->init);
  const int rank = s->p->tensors.data[st->out]->rank;
  for (int a = 0; a < rank; a++) mark(s, st->index[a]);
}

static const kiln_expr *rename_load(kiln_ctx *cx, const kiln_expr *e, void *argument);

static const kiln_expr *renamed(sweep *s, const kiln_expr *e) {
  return e && kiln_expr_has_load(e) ? kiln_expr_replace(s->cx, e, rename_load, s) : e;
}

static const kiln_expr *rename_load(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  sweep *s = argument;
  if (!kiln_expr_has_load(e)) return e;
  if (e->kind != KILN_EXPR_LOAD) return NULL;
  const kiln_expr *index[KILN_MAX_RANK];
  for (int a = 0; a < e->n_args; a++) index[a] = renamed(s, e->args[a]);
  return kiln_load(cx, s->renamed[e->u.tensor], e->dtype, e->n_args, index);
}

static void rename_stmt(sweep *s, kiln_stmt *st) {
  const int rank = s->p->tensors.data[st->out]->rank;
  st->body = renamed(s, st->body);
  st->guard = renamed(s, st->guard);
  st->init = renamed(s, st->init);
  for (int a = 0; a < rank; a++) st->index[a] = renamed(s, st->index[a]);
  st->out = s->renamed[st->out];
}

void kiln_program_dce(kiln_ctx *cx, kiln_program *p) {
  const kiln_mark m = kiln_arena_mark(&cx->scratch);
  sweep s = {.cx = cx, .p = p, .live = kiln_bits_make(&cx->scratch, p->tensors.n)};
  for (int i = 0; i < p->inputs.n; i++) kiln_bits_set(s.live, p->inputs.data[i]);
  for (int i = 0; i < p->outputs.n; i++) kiln_bits_set(s.live, p->outputs.data[i]);
  for (int i = p->stmts.n - 1; i >= 0; i--) // backwards: readers are visited before producers
    if (kiln_bits_has(s.live, p->stmts.data[i]->out)) mark_stmt(&s, p->stmts.data[i]);
  if (kiln_bits_count(s.live) < p->tensors.n) {
    int *ids = KILN_NEW_ARRAY(&cx->scratch, int, p->tensors.n);
    int n = 0;
    for (int t = 0; t < p->tensors.n; t++) ids[t] = kiln_bits_has(s.live, t) ? n++ : -1;
    s.renamed = ids;
    int n_stmts = 0;
    for (int i = 0; i < p->stmts.n; i++) {
      kiln_stmt *st = p->stmts.data[i];
      if (ids[st->out] < 0) continue;
      p->tensors.data[st->out]->def = n_stmts;
      rename_stmt(&s, st);
      st->id = n_stmts;
      p->stmts.data[n_stmts++] = st;
    }
    p->stmts.n = n_stmts;
    for (int t = 0; t < p->tensors.n; t++) {
      if (ids[t] < 0) continue;
      p->tensors.data[t]->id = ids[t];
      p->tensors.data[ids[t]] = p->tensors.data[t];
    }
    p->tensors.n = n;
    for (int i = 0; i < p->inputs.n; i++) p->inputs.data[i] = ids[p->inputs.data[i]];
    for (int i = 0; i < p->outputs.n; i++) p->outputs.data[i] = ids[p->outputs.data[i]];
  }
  kiln_arena_rewind(&cx->scratch, m);
}
