// Operand widening: 8-bit operands of products are stored in 16 bits on processors that multiply
// those faster, without loss (vpmaddwd of AVX2, if there is no VNNI).
#include "template/cpu/contraction.h"

typedef struct widening {
  kiln_ctx *cx;
  kiln_program *p;
  bool *wide; // by tensor id: stored as i16
} widening;

static bool may_widen(const kiln_tensor *t) {
  return t->role == KILN_TEMP && t->dtype == KILN_U8 && t->def >= 0;
}

static kiln_search find_computed(const kiln_expr *e, void *argument) {
  (void)argument;
  if (e->kind == KILN_EXPR_SELECT)
    return kiln_expr_has_load(e->args[0]) ? KILN_SEARCH_ENDS : KILN_SEARCH_REST;
  return e->kind == KILN_EXPR_LOAD || e->n_args == 0 ? KILN_SEARCH_PAST : KILN_SEARCH_ENDS;
}

static bool only_moves(kiln_ctx *cx, const kiln_expr *e) {
  return !kiln_expr_search(cx, e, find_computed, NULL);
}

static void mark_loads(widening *w, const kiln_expr *e) {
  const kiln_loads loads = kiln_loads_of(w->cx, &w->cx->scratch, e);
  for (int i = 0; i < loads.n; i++) {
    const kiln_tensor *t = w->p->tensors.data[loads.data[i]->u.tensor];
    w->wide[t->id] |= may_widen(t);
  }
}

// Marks 8-bit operands of products, and the tensors moved into them: a padding or concatenation is
// written in place.
static bool find_wide(widening *w, const kiln_facts *facts, const kiln_machine *m) {
  bool any = false;
  w->wide = KILN_NEW_ARRAY(&w->cx->scratch, bool, w->p->tensors.n);
  for (int i = w->p->stmts.n - 1; i >= 0; i--) {
    const kiln_stmt *s = w->p->stmts.data[i];
    const kiln_expr *a = NULL, *b = NULL;
    if (!s) continue;
    if (kiln_stmt_is_contraction(s, &a, &b) && s->body->dtype == KILN_I32) {
      const kiln_tensor *x = w->p->tensors.data[a->u.tensor], *y = w->p->tensors.data[b->u.tensor];
      if (kiln_contraction_wants_wide(w->cx, m, facts, x, y)) mark_loads(w, a);
      if (kiln_contraction_wants_wide(w->cx, m, facts, y, x)) mark_loads(w, b);
    } else if (w->wide[s->out] && kiln_stmt_is_map(w->cx, s) && only_moves(w->cx, s->body)) {
      mark_loads(w, s->body);
    }
    any |= w->wide[s->out];
  }
  return any;
}

static const kiln_expr *read_wide(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  const widening *w = argument;
  const kiln_expr *index[KILN_MAX_RANK];
  const bool is_cast = e->kind == KILN_EXPR_CAST && e->args[0]->kind == KILN_EXPR_LOAD &&
                       kiln_dtype_bytes(e->dtype) > 1;
  const kiln_expr *load = is_cast ? e->args[0] : e;
  if (load->kind != KILN_EXPR_LOAD || !w->wide[load->u.tensor]) return NULL;
  for (int k = 0; k < load->n_args; k++)
    index[k] = kiln_expr_replace(cx, load->args[k], read_wide, argument);
  return kiln_cast(cx, e->dtype, kiln_load(cx, load->u.tensor, KILN_I16, load->n_args, index));
}

static const kiln_expr *widened(widening *w, const kiln_expr *e) {
  return e ? kiln_expr_replace(w->cx, e, read_wide, w) : NULL;
}

// Replaces i16(u8(x)) of a stored i16 by x, so that moved elements are not narrowed in between.
static const kiln_expr *stored_wide(kiln_ctx *cx, const kiln_expr *e) {
  if (e->kind == KILN_EXPR_CAST && e->args[0]->dtype == KILN_I16 &&
      e->args[0]->kind == KILN_EXPR_LOAD)
    return e->args[0];
  if (e->kind == KILN_EXPR_SELECT && e->n_tree <= KILN_LONG_TREE)
    return kiln_select(cx, e->args[0], stored_wide(cx, e->args[1]), stored_wide(cx, e->args[2]));
  return kiln_cast(cx, KILN_I16, e);
}

kiln_status kiln_tile_widen_operands(kiln_ctx *cx, kiln_program *p, const kiln_facts *facts,
                                     const kiln_machine *m) {
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  widening w = {.cx = cx, .p = p};
  const bool any = find_wide(&w, facts, m);
  for (int i = 0; any && i < p->tensors.n; i++)
    if (w.wide[i]) p->tensors.data[i]->dtype = KILN_I16;
  for (int i = 0; any && i < p->stmts.n; i++) {
    kiln_stmt *s = p->stmts.data[i];
    if (!s) continue;
    s->body = widened(&w, s->body);
    s->guard = widened(&w, s->guard);
    s->init = widened(&w, s->init);
    for (int k = 0; k < p->tensors.data[s->out]->rank; k++) s->index[k] = widened(&w, s->index[k]);
    if (!w.wide[s->out]) continue;
    s->body = stored_wide(cx, s->body);
    if (s->init) s->init = kiln_cast(cx, KILN_I16, s->init);
  }
  kiln_arena_rewind(&cx->scratch, mark);
  return KILN_OK;
}
