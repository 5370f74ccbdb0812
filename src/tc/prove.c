// Proofs that a subscript is in range: by its extreme values, by combination with its guard's
// conditions, and for constant sizes as a last resort by enumeration.
#include "analysis/simplify.h"
#include "ir/fold.h"
#include "tc/infer.h"

enum { MAX_POINTS = 1 << 18, MAX_STEPS = 1 << 23, MAX_CONDITIONS = 32 };

typedef struct prover {
  kiln_ctx *cx;
  int n;
  const kiln_tc_range *ranges;
  const kiln_tc_bound *bound;
  int n_conditions; // the conjuncts of the guard
  const kiln_expr *conditions[MAX_CONDITIONS];
} prover;

static kiln_tc_verdict at_least_zero(kiln_ctx *cx, const kiln_expr *e) {
  int64_t c;
  e = kiln_tc_simple(cx, e);
  if (kiln_expr_is_int(e, &c)) return c >= 0 ? KILN_TC_HOLDS : KILN_TC_FAILS;
  return kiln_proves(cx, kiln_binary(cx, KILN_EXPR_GE, e, kiln_int(cx, 0)), NULL) ? KILN_TC_HOLDS
                                                                                  : KILN_TC_UNKNOWN;
}

kiln_tc_verdict kiln_tc_at_least_zero(kiln_ctx *cx, const kiln_expr *e) {
  kiln_mark mark = kiln_arena_mark(&cx->scratch);
  kiln_tc_verdict v = at_least_zero(cx, e);
  kiln_arena_rewind(&cx->scratch, mark);
  return v;
}

static bool is_empty(const prover *p) {
  int64_t extent;
  for (int k = 0; k < p->n; k++)
    if (kiln_expr_is_int(p->ranges[k].extent, &extent) && extent <= 0) return true;
  return false;
}

static const kiln_expr *greatest(const prover *p, const kiln_expr *e) {
  int64_t *coef = KILN_NEW_ARRAY(&p->cx->scratch, int64_t, p->n);
  const kiln_expr *rest;
  if (!kiln_tc_affine(p->cx, p->n, p->ranges, e, coef, &rest)) return NULL;
  return kiln_tc_extreme(p->cx, p->n, p->ranges, coef, rest, true);
}

// --- affine subscripts ---

// The condition as e >= 0; NULL if it has another form.
static const kiln_expr *as_positive(kiln_ctx *cx, const kiln_expr *c) {
  if (c->n_args != 2 || c->args[0]->dtype != KILN_I64) return NULL;
  const kiln_expr *a = c->args[0], *b = c->args[1], *one = kiln_int(cx, 1);
  if (c->kind == KILN_EXPR_GE) return kiln_sub(cx, a, b);
  if (c->kind == KILN_EXPR_LE) return kiln_sub(cx, b, a);
  if (c->kind == KILN_EXPR_GT) return kiln_sub(cx, kiln_sub(cx, a, b), one);
  if (c->kind == KILN_EXPR_LT) return kiln_sub(cx, kiln_sub(cx, b, a), one);
  return NULL;
}

// Whether violation >= 0 is impossible, by itself or together with one of the conditions.
static kiln_tc_verdict refuted(const prover *p, const kiln_expr *violation) {
  kiln_ctx *cx = p->cx;
  const kiln_expr *most = greatest(p, violation);
  if (most == NULL) return KILN_TC_UNKNOWN;
  kiln_tc_verdict v = at_least_zero(cx, kiln_sub(cx, kiln_int(cx, -1), most));
  if (v == KILN_TC_HOLDS || p->n_conditions == 0) return v;
  for (int i = 0; i < p->n_conditions; i++)
    for (int side = 0; side < 2; side++) { // an equality is two inequalities
      const kiln_expr *c = p->conditions[i], *positive = as_positive(cx, c);
      bool equal = c->kind == KILN_EXPR_EQ && c->args[0]->dtype == KILN_I64;
      if (equal) positive = kiln_sub(cx, c->args[side], c->args[1 - side]);
      if (positive == NULL) continue;
      most = greatest(p, kiln_add(cx, violation, positive));
      if (most == NULL) continue;
      if (at_least_zero(cx, kiln_sub(cx, kiln_int(cx, -1), most)) == KILN_TC_HOLDS)
        return KILN_TC_HOLDS;
    }
  return KILN_TC_UNKNOWN;
}

static kiln_tc_verdict by_extremes(const prover *p) {
  kiln_ctx *cx = p->cx;
  const kiln_tc_bound *b = p->bound;
  const kiln_expr *one = kiln_int(cx, 1);
  kiln_tc_verdict low = refuted(p, kiln_sub(cx, kiln_sub(cx, b->lo, one), b->e));
  kiln_tc_verdict high = refuted(p, kiln_sub(cx, kiln_sub(cx, b->e, b->hi), one));
  if (low == KILN_TC_FAILS || high == KILN_TC_FAILS) return KILN_TC_FAILS;
  return low == KILN_TC_UNKNOWN || high == KILN_TC_UNKNOWN ? KILN_TC_UNKNOWN : KILN_TC_HOLDS;
}

// --- intervals ---

static bool by_interval(const prover *p) {
  kiln_ranges r;
  kiln_ranges_init(&r, &p->cx->scratch);
  for (int k = 0; k < p->n; k++) {
    int64_t lo, extent;
    bool fixed =
        kiln_expr_is_int(p->ranges[k].lo, &lo) && kiln_expr_is_int(p->ranges[k].extent, &extent);
    if (fixed && extent > 0) kiln_ranges_push(&r, p->ranges[k].var, lo, lo + extent - 1);
  }
  kiln_interval v = kiln_expr_interval(p->cx, p->bound->e, &r);
  int64_t lo, hi;
  bool fixed = kiln_expr_is_int(p->bound->lo, &lo) && kiln_expr_is_int(p->bound->hi, &hi);
  return fixed && v.lo >= lo && v.hi <= hi;
}

// --- enumeration ---

typedef struct points {
  const prover *p;
  int64_t steps;                      // steps left
  int n;                              // the ranges used by the subscript and its conditions
  int of[64];                         // [n]
  int64_t lo[64], extent[64], at[64]; // [n]
} points;

static bool index_of(const points *q, kiln_symbol var, kiln_constant *out) {
  for (int k = 0; k < q->n; k++) {
    if (q->p->ranges[q->of[k]].var != var) continue;
    *out = (kiln_constant){KILN_I64, q->at[k], 0.0};
    return true;
  }
  return false;
}

// False if |e| depends on unknown values.
static bool fold(points *q, const kiln_expr *e, kiln_constant *out) {
  kiln_constant a, b;
  if (--q->steps < 0) return false;
  if (kiln_constant_of(e, out)) return true;
  if (e->kind == KILN_EXPR_VAR) return index_of(q, e->u.sym, out);
  if (e->kind == KILN_EXPR_LOAD || e->n_args == 0 || !fold(q, e->args[0], &a)) return false;
  if (e->kind == KILN_EXPR_SELECT) return fold(q, e->args[a.i != 0 ? 1 : 2], out);
  if (e->kind == KILN_EXPR_CAST) return kiln_fold_cast(e->dtype, a, out);
  if (e->n_args == 1) return kiln_fold_unary(e->kind, a, out);
  return fold(q, e->args[1], &b) && kiln_fold_binary(e->kind, a, b, out);
}

static bool value_of(points *q, const kiln_expr *e, int64_t *out) {
  kiln_constant c;
  if (!fold(q, e, &c) || kiln_dtype_is_float(c.dtype)) return false;
  *out = c.i;
  return true;
}

// Adds the ranges that |e| uses; false if they are too many or symbolic.
static bool add_ranges(points *q, const kiln_expr *e) {
  for (int k = 0; k < q->p->n; k++) {
    const kiln_tc_range *r = &q->p->ranges[k];
    bool has = !kiln_expr_uses(e, r->var);
    for (int i = 0; i < q->n; i++) has = has || q->of[i] == k;
    if (has) continue;
    if (q->n == 64 || !kiln_expr_is_int(r->lo, &q->lo[q->n]) ||
        !kiln_expr_is_int(r->extent, &q->extent[q->n]))
      return false;
    q->of[q->n] = k;
    q->at[q->n] = q->lo[q->n];
    q->n++;
  }
  return true;
}

// Data-dependent conditions are assumed to hold.
static bool is_reached(points *q) {
  int64_t c;
  for (int i = 0; i < q->p->n_conditions; i++)
    if (value_of(q, q->p->conditions[i], &c) && c == 0) return false;
  return true;
}

static bool step(points *q) {
  for (int k = 0; k < q->n; k++) {
    if (++q->at[k] < q->lo[k] + q->extent[k]) return true;
    q->at[k] = q->lo[k];
  }
  return false;
}

static kiln_tc_verdict by_points(const prover *p) {
  points *q = KILN_NEW(&p->cx->scratch, points);
  q->p = p;
  q->steps = MAX_STEPS;
  int64_t n = 1, lo, hi, v;
  bool fixed = kiln_expr_is_int(p->bound->lo, &lo) && kiln_expr_is_int(p->bound->hi, &hi) &&
               add_ranges(q, p->bound->e);
  for (int i = 0; fixed && i < p->n_conditions; i++)
    if (!kiln_expr_has_load(p->conditions[i])) fixed = add_ranges(q, p->conditions[i]);
  for (int k = 0; fixed && k < q->n; k++)
    if (__builtin_mul_overflow(n, q->extent[k], &n) || n > MAX_POINTS) fixed = false;
  if (!fixed) return KILN_TC_UNKNOWN;
  do {
    if (!is_reached(q)) continue;
    if (!value_of(q, p->bound->e, &v)) return KILN_TC_UNKNOWN;
    if (v < lo || v > hi) return KILN_TC_FAILS;
  } while (step(q));
  return KILN_TC_HOLDS;
}

static void split(prover *p, const kiln_expr *guard) {
  if (guard->kind == KILN_EXPR_AND) {
    split(p, guard->args[0]);
    split(p, guard->args[1]);
  } else if (p->n_conditions < MAX_CONDITIONS) {
    p->conditions[p->n_conditions++] = guard;
  }
}

static kiln_tc_verdict check(prover *p) {
  if (is_empty(p)) return KILN_TC_HOLDS; // an empty domain reads nothing
  kiln_tc_verdict v = by_extremes(p);
  if (v != KILN_TC_UNKNOWN) return v;
  return by_interval(p) ? KILN_TC_HOLDS : by_points(p);
}

kiln_tc_verdict kiln_tc_bound_check(kiln_ctx *cx, int n_ranges, const kiln_tc_range *ranges,
                                    const kiln_expr *guard, const kiln_tc_bound *b) {
  kiln_mark mark = kiln_arena_mark(&cx->scratch);
  prover p = {.cx = cx, .n = n_ranges, .ranges = ranges, .bound = b};
  if (guard != NULL) split(&p, guard);
  kiln_tc_verdict v = check(&p);
  kiln_arena_rewind(&cx->scratch, mark);
  return v;
}
