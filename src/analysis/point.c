#include "analysis/point.h"

static int64_t of_two(kiln_expr_kind k, int64_t a, int64_t b) {
  if (k == KILN_EXPR_AND) return a && b;
  if (k == KILN_EXPR_OR) return a || b;
  if (k == KILN_EXPR_LT) return a < b;
  if (k == KILN_EXPR_LE) return a <= b;
  if (k == KILN_EXPR_GT) return a > b;
  if (k == KILN_EXPR_GE) return a >= b;
  if (k == KILN_EXPR_EQ) return a == b;
  if (k == KILN_EXPR_NE) return a != b;
  if (k == KILN_EXPR_ADD) return a + b;
  if (k == KILN_EXPR_SUB) return a - b;
  if (k == KILN_EXPR_MUL) return a * b;
  if (k == KILN_EXPR_MIN) return a < b ? a : b;
  if (k == KILN_EXPR_MAX) return a > b ? a : b;
  if (b <= 0) return 0;
  const int64_t rest = (a % b + b) % b;
  return k == KILN_EXPR_MOD ? rest : k == KILN_EXPR_DIV ? (a - rest) / b : 1;
}

int64_t kiln_expr_at(const kiln_expr *e, int n, const kiln_symbol *vars, const int64_t *values) {
  if (e->kind == KILN_EXPR_INT) return e->u.i;
  if (e->kind == KILN_EXPR_VAR) {
    for (int d = 0; d < n; d++)
      if (vars[d] == e->u.sym) return values[d];
    return 0;
  }
  if (e->has_load || e->n_args == 0) return 1;
  const int64_t a = kiln_expr_at(e->args[0], n, vars, values);
  if (e->kind == KILN_EXPR_NOT) return !a;
  if (e->kind == KILN_EXPR_SELECT) return kiln_expr_at(e->args[a ? 1 : 2], n, vars, values);
  if (e->n_args != 2) return a;
  return of_two(e->kind, a, kiln_expr_at(e->args[1], n, vars, values));
}
