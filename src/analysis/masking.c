// Masks of scores, by intervals of their conditions.
#include "analysis/masking.h"

#include <math.h>

typedef struct masking {
  kiln_ctx *cx;
  int scores;
  const kiln_ranges *r;
} masking;

static kiln_masking of(const masking *w, const kiln_expr *e);

static kiln_masking of_number(double x) {
  if (isinf(x) && x < 0) return KILN_MASKING_LOWEST;
  return x <= KILN_FAR_SCORE   ? KILN_MASKING_FAR
         : x < -KILN_FAR_SCORE ? KILN_MASKING_NONE
                               : KILN_MASKING_SOME; // what is less by it may be far
}

static kiln_masking most(kiln_masking a, kiln_masking b) { return a > b ? a : b; }

// Either of two scores.
static kiln_masking either(kiln_masking a, kiln_masking b) {
  if (kiln_masking_is_empty(a) && kiln_masking_is_empty(b)) return KILN_MASKING_FAR;
  return a == b ? a : KILN_MASKING_SOME;
}

static kiln_masking of_select(const masking *w, const kiln_expr *e) {
  const kiln_interval holds = kiln_expr_interval(w->cx, e->args[0], w->r);
  if (holds.lo == 1) return of(w, e->args[1]);
  if (holds.hi == 0) return of(w, e->args[2]);
  const kiln_masking a = of(w, e->args[1]), b = of(w, e->args[2]);
  return a == b ? a : either(a, b);
}

// A score times |by|, if that leaves a near one near, or a far one far.
static kiln_masking scaled(kiln_masking m, double by) {
  const double most = ldexp(1, 20);
  const bool stays = m == KILN_MASKING_NONE ? fabs(by) <= most : by >= 1 / most && by <= most;
  return stays ? m : KILN_MASKING_SOME;
}

static kiln_masking of_product(const masking *w, const kiln_expr *a, const kiln_expr *b) {
  const kiln_expr *factor = b->kind == KILN_EXPR_FLOAT ? b : a, *score = factor == b ? a : b;
  return factor->kind == KILN_EXPR_FLOAT ? scaled(of(w, score), factor->u.f) : KILN_MASKING_SOME;
}

static kiln_masking of_binary(const masking *w, const kiln_expr *e) {
  const kiln_expr *a = e->args[0], *b = e->args[1];
  const kiln_expr_kind kind = e->kind;
  if (kind == KILN_EXPR_ADD || kind == KILN_EXPR_MIN) return most(of(w, a), of(w, b));
  if (kind == KILN_EXPR_MAX) return either(of(w, a), of(w, b));
  if (kind == KILN_EXPR_SUB) return of(w, b) == KILN_MASKING_NONE ? of(w, a) : KILN_MASKING_SOME;
  if (kind == KILN_EXPR_MUL) return of_product(w, a, b);
  return kind == KILN_EXPR_DIV && b->kind == KILN_EXPR_FLOAT ? scaled(of(w, a), 1 / b->u.f)
                                                             : KILN_MASKING_SOME;
}

static kiln_masking of(const masking *w, const kiln_expr *e) {
  if (e->kind == KILN_EXPR_FLOAT) return of_number(e->u.f);
  if (e->kind == KILN_EXPR_LOAD)
    return e->u.tensor == w->scores ? KILN_MASKING_NONE : KILN_MASKING_SOME;
  if (e->kind == KILN_EXPR_SELECT) return of_select(w, e);
  if (e->kind == KILN_EXPR_CAST && kiln_dtype_is_float(e->args[0]->dtype)) return of(w, e->args[0]);
  if (e->kind == KILN_EXPR_TANH) // of a soft cap
    return of(w, e->args[0]) == KILN_MASKING_NONE ? KILN_MASKING_NONE : KILN_MASKING_SOME;
  return e->n_args == 2 ? of_binary(w, e) : KILN_MASKING_SOME;
}

kiln_masking kiln_masking_of(kiln_ctx *cx, const kiln_expr *score, int scores,
                             const kiln_ranges *r) {
  const masking w = {cx, scores, r};
  return score->n_tree > KILN_LONG_TREE ? KILN_MASKING_SOME : of(&w, score);
}
