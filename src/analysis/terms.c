#include "analysis/terms.h"

static void add_term(kiln_ctx *cx, kiln_terms *t, const kiln_expr *atom, int64_t coef) {
  for (int i = 0; i < t->n; i++)
    if (t->data[i].atom == atom) {
      t->data[i].coef += coef;
      return;
    }
  KILN_VEC_PUSH(&cx->perm, t, (kiln_term){atom, coef});
}

static void add_expr(kiln_ctx *cx, kiln_terms *t, const kiln_expr *e, int64_t scale) {
  int64_t c = 0;
  if (kiln_expr_is_int(e, &c)) {
    t->constant += c * scale;
  } else if (e->kind == KILN_EXPR_ADD) {
    add_expr(cx, t, e->args[0], scale);
    add_expr(cx, t, e->args[1], scale);
  } else if (e->kind == KILN_EXPR_SUB) {
    add_expr(cx, t, e->args[0], scale);
    add_expr(cx, t, e->args[1], -scale);
  } else if (e->kind == KILN_EXPR_NEG) {
    add_expr(cx, t, e->args[0], -scale);
  } else if (e->kind == KILN_EXPR_MUL && kiln_expr_is_int(e->args[1], &c)) {
    add_expr(cx, t, e->args[0], scale * c);
  } else if (e->kind == KILN_EXPR_MUL && kiln_expr_is_int(e->args[0], &c)) {
    add_expr(cx, t, e->args[1], scale * c);
  } else {
    add_term(cx, t, e, scale);
  }
}

kiln_terms kiln_terms_of(kiln_ctx *cx, const kiln_expr *e) {
  kiln_terms t = {0};
  add_expr(cx, &t, e, 1);
  int kept = 0;
  for (int i = 0; i < t.n; i++)
    if (t.data[i].coef != 0) t.data[kept++] = t.data[i];
  t.n = kept;
  return t;
}
