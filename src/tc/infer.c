// Range inference in rounds, over affine index expressions with symbolic constant terms.
#include "tc/infer.h"
#include "analysis/simplify.h"

// e = sum(coef[k] * var[k]) + rest
typedef struct affine {
  int64_t *coef;
  const kiln_expr *rest;
} affine;

// floor(num / den), or for lower bounds ceil(num / den); den > 0.
typedef struct quotient {
  const kiln_expr *num; // NULL: no bound yet
  int64_t den;
} quotient;

typedef struct solver {
  kiln_ctx *cx;
  int n;
  const kiln_tc_range *ranges;
} solver;

const kiln_expr *kiln_tc_simple(kiln_ctx *cx, const kiln_expr *e) {
  return kiln_simplify(cx, e, NULL);
}

static int find_var(const solver *s, kiln_symbol var) {
  for (int k = 0; k < s->n; k++)
    if (s->ranges[k].var == var) return k;
  return -1;
}

static bool uses_indices(const solver *s, const kiln_expr *e) {
  for (int k = 0; k < s->n; k++)
    if (kiln_expr_uses(e, s->ranges[k].var)) return true;
  return false;
}

// Adds scale * e to |out|; false if e is not affine in the indices with integer coefficients.
static bool add_affine(const solver *s, const kiln_expr *e, int64_t scale, affine *out) {
  kiln_ctx *cx = s->cx;
  int64_t c;
  if (e->kind == KILN_EXPR_VAR && find_var(s, e->u.sym) >= 0)
    return !__builtin_add_overflow(out->coef[find_var(s, e->u.sym)], scale,
                                   &out->coef[find_var(s, e->u.sym)]);
  if (!uses_indices(s, e)) {
    out->rest = kiln_add(cx, out->rest, kiln_mul(cx, kiln_int(cx, scale), e));
    return !kiln_expr_has_load(e);
  }
  if (e->kind == KILN_EXPR_ADD)
    return add_affine(s, e->args[0], scale, out) && add_affine(s, e->args[1], scale, out);
  if (e->kind == KILN_EXPR_SUB && scale != INT64_MIN)
    return add_affine(s, e->args[0], scale, out) && add_affine(s, e->args[1], -scale, out);
  if (e->kind == KILN_EXPR_NEG && scale != INT64_MIN) return add_affine(s, e->args[0], -scale, out);
  if (e->kind != KILN_EXPR_MUL) return false;
  for (int side = 0; side < 2; side++)
    if (kiln_expr_is_int(e->args[side], &c))
      return !__builtin_mul_overflow(scale, c, &c) && add_affine(s, e->args[1 - side], c, out);
  return false;
}

static bool affine_of(const solver *s, const kiln_expr *e, affine *out) {
  out->coef = KILN_NEW_ARRAY(&s->cx->scratch, int64_t, s->n);
  out->rest = kiln_int(s->cx, 0);
  if (!add_affine(s, e, 1, out)) return false;
  for (int k = 0; k < s->n; k++)
    if (out->coef[k] == INT64_MIN) return false; // cannot be negated
  return true;
}

bool kiln_tc_affine(kiln_ctx *cx, int n_ranges, const kiln_tc_range *ranges, const kiln_expr *e,
                    int64_t *coef, const kiln_expr **out_rest) {
  kiln_mark mark = kiln_arena_mark(&cx->scratch);
  solver s = {cx, n_ranges, ranges};
  affine a;
  bool is = affine_of(&s, e, &a);
  for (int k = 0; is && k < n_ranges; k++) coef[k] = a.coef[k];
  *out_rest = is ? kiln_tc_simple(cx, a.rest) : NULL;
  kiln_arena_rewind(&cx->scratch, mark);
  return is;
}

static const kiln_expr *highest(kiln_ctx *cx, const kiln_tc_range *r) {
  return kiln_sub(cx, kiln_add(cx, r->lo, r->extent), kiln_int(cx, 1));
}

// The least (|most| false) or greatest value of |a| without its term in index |skip|.
static const kiln_expr *extreme(const solver *s, const affine *a, int skip, bool most) {
  kiln_ctx *cx = s->cx;
  const kiln_expr *sum = a->rest;
  for (int k = 0; k < s->n; k++) {
    if (k == skip || a->coef[k] == 0) continue;
    bool at_highest = (a->coef[k] > 0) == most;
    const kiln_expr *v = at_highest ? highest(cx, &s->ranges[k]) : s->ranges[k].lo;
    sum = kiln_add(cx, sum, kiln_mul(cx, kiln_int(cx, a->coef[k]), v));
  }
  return sum;
}

// The tighter of two bounds: the lesser of upper bounds, the greater of lower bounds.
static quotient tighter(kiln_ctx *cx, quotient a, quotient b, bool upper) {
  int64_t d;
  if (a.num == NULL) return b;
  if (a.den == b.den && kiln_expr_is_int(kiln_tc_simple(cx, kiln_sub(cx, a.num, b.num)), &d))
    return (d <= 0) == upper ? a : b;
  const kiln_expr *x[2], *one = kiln_int(cx, 1);
  quotient q[2] = {a, b};
  for (int i = 0; i < 2; i++) {
    const kiln_expr *num = upper ? q[i].num : kiln_add(cx, q[i].num, kiln_int(cx, q[i].den - 1));
    x[i] = kiln_div(cx, num, kiln_int(cx, q[i].den));
    // Half-open ends are easier to read: min(N, M).
    if (upper) x[i] = kiln_tc_simple(cx, kiln_add(cx, x[i], one));
  }
  const kiln_expr *met = kiln_binary(cx, upper ? KILN_EXPR_MIN : KILN_EXPR_MAX, x[0], x[1]);
  met = kiln_tc_simple(cx, met);
  return (quotient){upper ? kiln_sub(cx, met, one) : met, 1};
}

// The only unsolved index of |a|; -1 if there are none or several.
static int only_unsolved(const solver *s, const affine *a) {
  int found = -1;
  for (int k = 0; k < s->n; k++) {
    if (a->coef[k] == 0 || s->ranges[k].solved) continue;
    if (found >= 0) return -1;
    found = k;
  }
  return found;
}

// Tightens lo[k] and hi[k] by b->lo <= a <= b->hi.
static void narrow(const solver *s, const affine *a, const kiln_tc_bound *b, int k, quotient *lo,
                   quotient *hi) {
  kiln_ctx *cx = s->cx;
  // c*x + least >= lo and c*x + most <= hi; if c < 0 the bounds swap
  const kiln_expr *below = kiln_tc_simple(cx, kiln_sub(cx, b->lo, extreme(s, a, k, false)));
  const kiln_expr *above = kiln_tc_simple(cx, kiln_sub(cx, b->hi, extreme(s, a, k, true)));
  int64_t c = a->coef[k];
  if (c < 0) {
    const kiln_expr *t = below;
    below = kiln_tc_simple(cx, kiln_sub(cx, kiln_int(cx, 0), above));
    above = kiln_tc_simple(cx, kiln_sub(cx, kiln_int(cx, 0), t));
    c = -c;
  }
  *lo = tighter(cx, *lo, (quotient){below, c}, false);
  *hi = tighter(cx, *hi, (quotient){above, c}, true);
}

static void settle(kiln_ctx *cx, kiln_tc_range *r, quotient lo, quotient hi) {
  const kiln_expr *up = kiln_add(cx, lo.num, kiln_int(cx, lo.den - 1));
  r->lo = kiln_tc_simple(cx, kiln_div(cx, kiln_tc_simple(cx, up), kiln_int(cx, lo.den)));
  // floor(num/den) - lo + 1 as one division, which is easier to read: (N + 1) / 2
  const kiln_expr *shift = kiln_sub(cx, kiln_int(cx, 1), r->lo);
  const kiln_expr *num = kiln_add(cx, hi.num, kiln_mul(cx, kiln_int(cx, hi.den), shift));
  r->extent = kiln_tc_simple(cx, kiln_div(cx, kiln_tc_simple(cx, num), kiln_int(cx, hi.den)));
  r->solved = true;
}

// One round; false if it solved nothing new.
static bool solve_round(const solver *s, kiln_tc_range *ranges, int n_bounds, kiln_tc_bound *bounds,
                        const affine *forms, const bool *usable) {
  quotient *lo = KILN_NEW_ARRAY(&s->cx->scratch, quotient, s->n);
  quotient *hi = KILN_NEW_ARRAY(&s->cx->scratch, quotient, s->n);
  bool progress = false;
  for (int i = 0; i < n_bounds; i++) {
    if (!usable[i]) continue;
    int k = only_unsolved(s, &forms[i]);
    if (k < 0) continue;
    quotient before = hi[k];
    narrow(s, &forms[i], &bounds[i], k, &lo[k], &hi[k]);
    if (before.num != hi[k].num || before.den != hi[k].den) ranges[k].source = bounds[i].source;
    bounds[i].used = true;
  }
  for (int k = 0; k < s->n; k++) {
    if (lo[k].num == NULL) continue;
    settle(s->cx, &ranges[k], lo[k], hi[k]);
    progress = true;
  }
  return progress;
}

void kiln_tc_infer(kiln_ctx *cx, int n_ranges, kiln_tc_range *ranges, int n_bounds,
                   kiln_tc_bound *bounds) {
  kiln_mark mark = kiln_arena_mark(&cx->scratch);
  solver s = {cx, n_ranges, ranges};
  affine *forms = KILN_NEW_ARRAY(&cx->scratch, affine, n_bounds);
  bool *usable = KILN_NEW_ARRAY(&cx->scratch, bool, n_bounds);
  for (int i = 0; i < n_bounds; i++) usable[i] = affine_of(&s, bounds[i].e, &forms[i]);
  while (solve_round(&s, ranges, n_bounds, bounds, forms, usable)) {}
  kiln_arena_rewind(&cx->scratch, mark);
}

const kiln_expr *kiln_tc_extreme(kiln_ctx *cx, int n_ranges, const kiln_tc_range *ranges,
                                 const int64_t *coef, const kiln_expr *rest, bool most) {
  kiln_mark mark = kiln_arena_mark(&cx->scratch);
  solver s = {cx, n_ranges, ranges};
  affine a = {(int64_t *)coef, rest};
  const kiln_expr *e = kiln_tc_simple(cx, extreme(&s, &a, -1, most));
  kiln_arena_rewind(&cx->scratch, mark);
  return e;
}
