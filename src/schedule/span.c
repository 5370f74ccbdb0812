// Spans: whether the values of an index in loops are contiguous.
#include "schedule/index.h"

// The values of one term of an index: 0, step, 2*step, ... below |most|, and |most|.
typedef struct ladder {
  int64_t step, most;
} ladder;

static bool ladder_of_var(kiln_edit *e, const kiln_expr *x, int64_t coef, ladder *out) {
  int64_t extent = 0;
  const kiln_loop *l = x->kind == KILN_EXPR_VAR ? kiln_loops_find(e->l, x->u.sym) : NULL;
  if (!l || !kiln_expr_is_int(l->extent, &extent) || extent <= 0 || coef <= 0) return false;
  out->step = coef;
  return !__builtin_mul_overflow(coef, extent - 1, &out->most);
}

// A variable, or min(multiple of a variable, constant), as a shifted tail has it.
static bool ladder_of(kiln_edit *e, const kiln_term *term, ladder *out) {
  int64_t limit = 0;
  const kiln_expr *x = term->atom;
  if (x->kind != KILN_EXPR_MIN) return ladder_of_var(e, x, term->coef, out);
  const int at = kiln_expr_is_int(x->args[0], &limit) ? 1 : 0;
  if (!kiln_expr_is_int(x->args[1 - at], &limit) || limit < 0) return false;
  const kiln_terms t = kiln_terms_of(e->cx, x->args[at]);
  int64_t coef = 0;
  if (t.n != 1 || t.constant != 0 || __builtin_mul_overflow(t.data[0].coef, term->coef, &coef) ||
      __builtin_mul_overflow(limit, term->coef, &limit) ||
      !ladder_of_var(e, t.data[0].atom, coef, out))
    return false;
  if (limit < out->most) out->most = limit;
  return true;
}

static void insert(ladder *all, int n, ladder next) {
  int at = n;
  for (; at > 0 && all[at - 1].step > next.step; at--) all[at] = all[at - 1];
  all[at] = next;
}

bool kiln_index_spans(kiln_edit *e, const kiln_expr *x, const kiln_vars *inner,
                      const kiln_expr **out_lo, int64_t *out_n) {
  enum { MAX = 16 };
  ladder all[MAX];
  int n = 0;
  kiln_ctx *cx = e->cx;
  const kiln_terms t = kiln_terms_of(cx, kiln_edit_simplify(e, x));
  *out_lo = kiln_int(cx, t.constant);
  for (int i = 0; i < t.n; i++) {
    const kiln_term *term = &t.data[i];
    ladder one;
    if (!kiln_vars_in(inner, term->atom)) {
      *out_lo = kiln_add(cx, *out_lo, kiln_mul(cx, term->atom, kiln_int(cx, term->coef)));
      continue;
    }
    for (int j = 0; j < i; j++) // two terms of one loop are not independent
      for (int v = 0; v < inner->n; v++)
        if (kiln_expr_uses(t.data[j].atom, inner->data[v]) &&
            kiln_expr_uses(term->atom, inner->data[v]))
          return false;
    if (n == MAX || !ladder_of(e, term, &one)) return false;
    insert(all, n++, one);
  }
  *out_lo = kiln_edit_simplify(e, *out_lo);
  *out_n = 1;
  for (int i = 0; i < n; i++) {
    if (all[i].step > *out_n && all[i].most > 0) return false;
    if (__builtin_add_overflow(*out_n, all[i].most, out_n)) return false;
  }
  return true;
}

bool kiln_index_covers(kiln_edit *e, int n, const kiln_expr *const *index, const kiln_vars *inner,
                       const int64_t *extents) {
  for (int k = 0; k < n; k++) {
    const kiln_expr *lo = NULL;
    int64_t reach = 0, from = 0;
    for (int j = 0; j < k; j++)
      for (int v = 0; v < inner->n; v++)
        if (kiln_expr_uses(index[j], inner->data[v]) && kiln_expr_uses(index[k], inner->data[v]))
          return false;
    if (!kiln_index_spans(e, index[k], inner, &lo, &reach) || !kiln_expr_is_int(lo, &from) ||
        from > 0 || reach + from < extents[k])
      return false;
  }
  return true;
}

int kiln_index_kept(kiln_edit *e, int n, const kiln_expr *const *index, const int64_t *extents,
                    const kiln_expr *cond) {
  int64_t limit = 0, before = 0;
  const bool is_above = cond->kind == KILN_EXPR_LT;
  if (!is_above && cond->kind != KILN_EXPR_GE) return -1;
  if (cond->args[0]->dtype != KILN_I64 || !kiln_expr_is_int(cond->args[1], &limit)) return -1;
  for (int k = 0; k < n; k++) {
    const kiln_expr *d = kiln_edit_simplify(e, kiln_sub(e->cx, cond->args[0], index[k]));
    if (kiln_expr_is_int(d, &before) && !__builtin_sub_overflow(limit, before, &before) &&
        before == (is_above ? extents[k] : 0))
      return k;
  }
  return -1;
}
