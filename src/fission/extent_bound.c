// Upper bounds of data-dependent extents: see data_dependent.h.
#include "fission/data_dependent.h"
#include "analysis/simplify.h"
#include "fission/terms.h"

typedef struct bounding {
  kiln_ctx *cx;
  const kiln_data_dependent_extents *counts;
} bounding;

const kiln_data_dependent_extent *
kiln_data_dependent_find(const kiln_data_dependent_extents *counts, const kiln_expr *e) {
  if (e->kind != KILN_EXPR_VAR) return NULL;
  for (int i = 0; counts && i < counts->all.n; i++)
    if (counts->all.data[i].var == e->u.sym) return &counts->all.data[i];
  return NULL;
}

// Upper (or, unless |most|, lower) bound of |e| over named dimensions only; NULL: unknown.
static const kiln_expr *bound(const bounding *b, const kiln_expr *e, bool most);

static bool never_negative(const bounding *b, const kiln_expr *e) {
  int64_t value = 0;
  const kiln_expr *least = bound(b, e, false);
  if (least) least = kiln_lower_tidy(b->cx, least);
  if (!least) return false;
  return kiln_expr_is_int(least, &value) ? value >= 0 : least->kind == KILN_EXPR_VAR;
}

static const kiln_expr *bound_product(const bounding *b, const kiln_expr *e, bool most) {
  if (!never_negative(b, e->args[0]) || !never_negative(b, e->args[1])) return NULL;
  const kiln_expr *x = bound(b, e->args[0], most), *y = bound(b, e->args[1], most);
  return x && y ? kiln_mul(b->cx, x, y) : NULL;
}

static const kiln_expr *bound_quotient(const bounding *b, const kiln_expr *e, bool most) {
  int64_t divisor = 0;
  const bool is_number = kiln_expr_is_int(e->args[1], &divisor);
  if (!(is_number && divisor > 0) &&
      (!never_negative(b, e->args[0]) || !never_negative(b, e->args[1])))
    return NULL;
  if (!is_number) return most ? bound(b, e->args[0], true) : kiln_int(b->cx, 0);
  const kiln_expr *x = bound(b, e->args[0], most);
  return x ? kiln_div(b->cx, x, e->args[1]) : NULL;
}

static const kiln_expr *bound_select(const bounding *b, const kiln_expr *e, bool most) {
  const kiln_expr *x = bound(b, e->args[1], most), *y = bound(b, e->args[2], most);
  return x && y ? kiln_binary(b->cx, most ? KILN_EXPR_MAX : KILN_EXPR_MIN, x, y) : NULL;
}

static const kiln_expr *bound(const bounding *b, const kiln_expr *e, bool most) {
  const kiln_data_dependent_extent *count = kiln_data_dependent_find(b->counts, e);
  const kiln_expr *x = NULL, *y = NULL;
  if (count) return most ? count->most : kiln_int(b->cx, 0);
  if (e->kind == KILN_EXPR_INT || e->kind == KILN_EXPR_VAR) return e;
  if (e->kind == KILN_EXPR_MUL) return bound_product(b, e, most);
  if (e->kind == KILN_EXPR_DIV) return bound_quotient(b, e, most);
  if (e->kind == KILN_EXPR_SELECT) return bound_select(b, e, most);
  if (e->kind != KILN_EXPR_ADD && e->kind != KILN_EXPR_SUB && e->kind != KILN_EXPR_MIN &&
      e->kind != KILN_EXPR_MAX)
    return NULL;
  x = bound(b, e->args[0], most);
  y = bound(b, e->args[1], e->kind == KILN_EXPR_SUB ? !most : most);
  if (e->kind == (most ? KILN_EXPR_MIN : KILN_EXPR_MAX) && (!x || !y)) return x ? x : y;
  return x && y ? kiln_binary(b->cx, e->kind, x, y) : NULL;
}

const kiln_expr *kiln_data_dependent_most(kiln_ctx *cx, const kiln_data_dependent_extents *counts,
                                          const kiln_expr *e) {
  const bounding b = {cx, counts};
  const kiln_expr *most = bound(&b, e, true);
  return most ? kiln_lower_tidy(cx, most) : NULL;
}

const kiln_expr *kiln_lower_upper_bound(const kiln_lower *lw, const kiln_expr *e) {
  return kiln_data_dependent_most(lw->cx, lw->counts, e);
}

bool kiln_lower_most(const kiln_lower *lw, const kiln_expr *e, int64_t *out) {
  const kiln_expr *most = kiln_lower_upper_bound(lw, e);
  if (!most) return false;
  *out = kiln_expr_interval(lw->cx, most, lw->dims).hi;
  return *out < INT64_MAX;
}

kiln_status kiln_lower_steps(kiln_lower *lw, const kiln_tensor *t, int axis, int64_t *out) {
  *out = 0;
  const bool is_named = lw->dims && !kiln_expr_is_int(t->shape[axis], NULL);
  return is_named && kiln_lower_most(lw, t->shape[axis], out) ? KILN_OK
                                                              : kiln_lower_extent(lw, t, axis, out);
}
