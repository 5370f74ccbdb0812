// Simplification of index expressions. Index arithmetic is brought to sums of terms
// (analysis/sum.h); division and modulo of a sum take out what the divisor divides, and intervals
// decide the rest. The rules either keep the number of terms and operators or lower it, so the
// rewriting ends.
//
// i64 arithmetic over variables is assumed not to overflow: it computes addresses. On loaded data,
// rules that need this are applied only if intervals prove it.
#include "analysis/simplify.h"

#include "analysis/sum.h"
#include "support/integer.h"

#include <stdlib.h>

enum {
  MAX_BRANCHES = 64,    // branches of SELECTs simplified under their condition, in one call
  MAX_NEGATIONS = 1000, // && and || through which a negation is moved, in one call
  MAX_PRODUCT = 16,     // terms of a product of two sums that is multiplied out
  MAX_JUNCTION = 64     // operands of one && or || that are compared pairwise
};

typedef struct budget {
  int branches, negations; // still allowed
} budget;

typedef struct simplifier {
  kiln_ctx *cx;
  kiln_bounds bounds;
  kiln_map done; // expression id to its simplified form
  budget *budget;
} simplifier;

static const kiln_expr *simplify(simplifier *s, const kiln_expr *e);
static const kiln_expr *divide(simplifier *s, kiln_sum a, int64_t f);
static const kiln_expr *modulo(simplifier *s, kiln_sum a, int64_t f);

static kiln_sum sum_copy(simplifier *s, const kiln_sum *a) {
  kiln_sum copy = {0};
  kiln_sum_add(s->cx, &copy, 1, a);
  return copy;
}

// a - b. False if an operand may wrap: the difference's sign then says nothing.
static bool sum_difference(simplifier *s, const kiln_expr *a, const kiln_expr *b, kiln_sum *out) {
  *out = kiln_sum_of(s->cx, a);
  const kiln_sum other = kiln_sum_of(s->cx, b);
  bool exact = kiln_sum_is_exact(&s->bounds, out) && kiln_sum_is_exact(&s->bounds, &other);
  kiln_sum_add(s->cx, out, -1, &other);
  exact = exact && out->constant > INT64_MIN / 4 && out->constant < INT64_MAX / 4;
  for (int i = 0; i < out->terms.n; i++) exact &= out->terms.data[i].coef != INT64_MIN;
  return exact;
}

static bool is_const_int(const kiln_expr *e) { return e->kind == KILN_EXPR_INT; }

// |e| is x KIND c with a positive constant c.
static bool is_by_const(const kiln_expr *e, kiln_expr_kind k) {
  return e->kind == k && is_const_int(e->args[1]) && e->args[1]->u.i > 0;
}

// --- sums: x/f*f + x%f and variants ---

// Each variant rewrites the terms of one modulo or division into others of equal value. It gives a
// candidate in |out| and whether the pattern matched.
//
// c*(y%f) = c*y - c*f*(y/f)
static void expand_mod(simplifier *s, const kiln_sum *a, int64_t c, const kiln_expr *mod,
                       kiln_sum *out) {
  const kiln_expr *y = mod->args[0], *quotient = simplify(s, kiln_div(s->cx, y, mod->args[1]));
  *out = sum_copy(s, a);
  kiln_sum_add_term(s->cx, out, -c, mod);
  kiln_sum_add_expr(s->cx, out, c, y);
  int64_t scale;
  if (!__builtin_mul_overflow(-c, mod->args[1]->u.i, &scale))
    kiln_sum_add_expr(s->cx, out, scale, quotient);
  else *out = sum_copy(s, a);
}

// c*f*(y/f) = c*y - c*(y%f)
static void expand_div(simplifier *s, const kiln_sum *a, int64_t coef, const kiln_expr *div,
                       kiln_sum *out) {
  const kiln_expr *y = div->args[0], *rest = simplify(s, kiln_mod(s->cx, y, div->args[1]));
  const int64_t c = coef / div->args[1]->u.i;
  *out = sum_copy(s, a);
  kiln_sum_add_term(s->cx, out, -coef, div);
  kiln_sum_add_expr(s->cx, out, c, y);
  kiln_sum_add_expr(s->cx, out, -c, rest);
}

// c*(y%f) + c*f*((y/f)%g) = c*(y%(f*g))
static bool join_mods(simplifier *s, const kiln_sum *a, int64_t c, const kiln_expr *mod,
                      kiln_sum *out) {
  const int64_t f = mod->args[1]->u.i;
  int64_t scale, product;
  if (__builtin_mul_overflow(c, f, &scale)) return false;
  const kiln_expr *quotient = NULL;
  for (int i = 0; i < a->terms.n; i++) {
    const kiln_expr *t = a->terms.data[i].e;
    if (a->terms.data[i].coef != scale || !is_by_const(t, KILN_EXPR_MOD)) continue;
    if (!quotient) quotient = simplify(s, kiln_div(s->cx, mod->args[0], mod->args[1]));
    if (t->args[0] != quotient || __builtin_mul_overflow(f, t->args[1]->u.i, &product)) continue;
    *out = sum_copy(s, a);
    kiln_sum_add_term(s->cx, out, -c, mod);
    kiln_sum_add_term(s->cx, out, -scale, t);
    kiln_sum y = kiln_sum_of(s->cx, mod->args[0]);
    kiln_sum_add_expr(s->cx, out, c, modulo(s, y, product));
    return true;
  }
  return false;
}

static bool shrink_at(simplifier *s, kiln_sum *a, int i) {
  const kiln_sum_term t = a->terms.data[i];
  kiln_sum candidate = {0};
  if (t.coef == INT64_MIN) return false;
  if (is_by_const(t.e, KILN_EXPR_MOD)) {
    expand_mod(s, a, t.coef, t.e, &candidate);
    if (candidate.terms.n >= a->terms.n && !join_mods(s, a, t.coef, t.e, &candidate)) return false;
  } else if (is_by_const(t.e, KILN_EXPR_DIV) && t.coef % t.e->args[1]->u.i == 0) {
    expand_div(s, a, t.coef, t.e, &candidate);
  } else {
    return false;
  }
  if (candidate.terms.n >= a->terms.n) return false;
  *a = candidate;
  return true;
}

// Applies the variants as long as they lower the number of terms.
static const kiln_expr *finish_sum(simplifier *s, kiln_sum *a) {
  for (int i = 0; a->terms.n > 1 && i < a->terms.n;) i = shrink_at(s, a, i) ? 0 : i + 1;
  return kiln_sum_build(s->cx, a);
}

// --- products ---

static int order_factors(const void *a, const void *b, void *cx) {
  return kiln_expr_order(cx, *(const kiln_expr *const *)a, *(const kiln_expr *const *)b);
}

typedef KILN_VEC(const kiln_expr *) factor_list;

static void collect_factors(simplifier *s, const kiln_expr *e, factor_list *out) {
  for (; e->kind == KILN_EXPR_MUL; e = e->args[0]) KILN_VEC_PUSH(&s->cx->scratch, out, e->args[1]);
  KILN_VEC_PUSH(&s->cx->scratch, out, e);
}

static const kiln_expr *build_product(simplifier *s, factor_list *factors) {
  qsort_r(factors->data, (size_t)factors->n, sizeof(factors->data[0]), order_factors, s->cx);
  const kiln_expr *e = kiln_int(s->cx, 1);
  for (int i = 0; i < factors->n; i++) e = kiln_mul(s->cx, e, factors->data[i]);
  return e;
}

static const kiln_expr *product_of_terms(simplifier *s, const kiln_expr *a, const kiln_expr *b) {
  factor_list factors = {0};
  collect_factors(s, a, &factors);
  collect_factors(s, b, &factors);
  return build_product(s, &factors);
}

// Multiplies sums out, except over loaded data, where it would add operations.
static const kiln_expr *multiply(simplifier *s, const kiln_expr *x, const kiln_expr *y) {
  const kiln_sum a = kiln_sum_of(s->cx, x), b = kiln_sum_of(s->cx, y);
  kiln_sum product = {0};
  if (a.terms.n == 0 || b.terms.n == 0) {
    if (a.terms.n == 0) kiln_sum_add(s->cx, &product, a.constant, &b);
    else kiln_sum_add(s->cx, &product, b.constant, &a);
    return finish_sum(s, &product);
  }
  const bool single = a.terms.n + b.terms.n == 2 && a.constant == 0 && b.constant == 0;
  if (!single && (x->has_load || y->has_load || (a.terms.n + 1) * (b.terms.n + 1) > MAX_PRODUCT))
    return kiln_mul(s->cx, x, y);
  kiln_sum_add(s->cx, &product, a.constant, &b);
  const int64_t both = product.constant;
  kiln_sum_add(s->cx, &product, b.constant, &a);
  product.constant = both;
  for (int i = 0; i < a.terms.n; i++) {
    for (int j = 0; j < b.terms.n; j++)
      kiln_sum_add_term(s->cx, &product,
                        (int64_t)((uint64_t)a.terms.data[i].coef * (uint64_t)b.terms.data[j].coef),
                        product_of_terms(s, a.terms.data[i].e, b.terms.data[j].e));
  }
  return finish_sum(s, &product);
}

// --- division and modulo by a positive constant ---

// a = f*quotient + rest: coefficients rounded towards zero, so that -j stays -j, and the constant
// rounded down.
static void split(simplifier *s, const kiln_sum *a, int64_t f, kiln_sum *quotient, kiln_sum *rest) {
  *quotient = (kiln_sum){0};
  *rest = (kiln_sum){0};
  quotient->constant = kiln_floor_div(a->constant, f);
  rest->constant = a->constant - quotient->constant * f;
  for (int i = 0; i < a->terms.n; i++) {
    const kiln_sum_term t = a->terms.data[i];
    kiln_sum_add_term(s->cx, quotient, t.coef / f, t.e);
    kiln_sum_add_term(s->cx, rest, t.coef % f, t.e);
  }
}

// Whether a/f has one value over the interval.
static bool in_one_cell(kiln_interval i, int64_t f, int64_t *out_cell) {
  if (i.lo == INT64_MIN || i.hi == INT64_MAX) return false;
  *out_cell = kiln_floor_div(i.lo, f);
  return *out_cell == kiln_floor_div(i.hi, f);
}

// rest = g*high + low + g*cell with 0 <= low < g, so that |high| alone is divided, by f/g.
typedef struct parts {
  int64_t g;
  kiln_sum high, low; // |high| is already divided by g
} parts;

static bool parts_at(simplifier *s, const kiln_sum *rest, int64_t g, parts *out) {
  *out = (parts){.g = g};
  out->high.constant = kiln_floor_div(rest->constant, g);
  out->low.constant = rest->constant - out->high.constant * g;
  for (int i = 0; i < rest->terms.n; i++) {
    const kiln_sum_term t = rest->terms.data[i];
    if (t.coef % g == 0) kiln_sum_add_term(s->cx, &out->high, t.coef / g, t.e);
    else kiln_sum_add_term(s->cx, &out->low, t.coef, t.e);
  }
  int64_t cell;
  if (!in_one_cell(kiln_sum_interval(&s->bounds, &out->low), g, &cell)) return false;
  out->high.constant += cell;
  out->low.constant -= cell * g;
  return true;
}

// Tries common divisors of the coefficients and f, the largest first.
static bool find_parts(simplifier *s, const kiln_sum *rest, int64_t f, parts *out) {
  for (int64_t below = INT64_MAX;;) {
    int64_t g = 1;
    for (int i = 0; i < rest->terms.n; i++) {
      const int64_t common = kiln_gcd(rest->terms.data[i].coef, f);
      if (common < below && common > g) g = common;
    }
    if (g == 1) return false;
    if (parts_at(s, rest, g, out)) return true;
    below = g;
  }
}

static const kiln_expr *only_term(const kiln_sum *a) {
  return a->terms.n == 1 && a->terms.data[0].coef == 1 ? a->terms.data[0].e : NULL;
}

// floor(rest / f), |rest| with coefficients below f in magnitude.
static const kiln_expr *divide_rest(simplifier *s, const kiln_sum *rest, int64_t f) {
  int64_t cell, product;
  if (in_one_cell(kiln_sum_interval(&s->bounds, rest), f, &cell)) return kiln_int(s->cx, cell);
  parts p;
  if (find_parts(s, rest, f, &p)) return divide(s, p.high, f / p.g);
  const kiln_expr *t = only_term(rest);
  if (t && is_by_const(t, KILN_EXPR_DIV) &&
      !__builtin_mul_overflow(t->args[1]->u.i, f, &product)) { // (z/a + c)/f = (z + a*c)/(a*f)
    kiln_sum z = kiln_sum_of(s->cx, t->args[0]);
    const int64_t added = rest->constant * t->args[1]->u.i; // below |product|
    if (!__builtin_add_overflow(z.constant, added, &z.constant) &&
        kiln_sum_is_exact(&s->bounds, &z))
      return divide(s, z, product);
  }
  if (t && rest->constant == 0 && is_by_const(t, KILN_EXPR_MOD) &&
      t->args[1]->u.i % f == 0) { // (z % m)/f = (z/f) % (m/f)
    const kiln_sum z = kiln_sum_of(s->cx, t->args[0]);
    const kiln_expr *quotient = divide(s, z, f);
    return modulo(s, kiln_sum_of(s->cx, quotient), t->args[1]->u.i / f);
  }
  return kiln_div(s->cx, kiln_sum_build(s->cx, rest), kiln_int(s->cx, f));
}

static const kiln_expr *divide(simplifier *s, kiln_sum a, int64_t f) {
  if (!kiln_sum_is_exact(&s->bounds, &a))
    return kiln_div(s->cx, kiln_sum_build(s->cx, &a), kiln_int(s->cx, f));
  if (f == 1) return finish_sum(s, &a);
  int64_t cell;
  if (in_one_cell(kiln_sum_interval(&s->bounds, &a), f, &cell)) return kiln_int(s->cx, cell);
  kiln_sum quotient, rest;
  split(s, &a, f, &quotient, &rest);
  kiln_sum_add_expr(s->cx, &quotient, 1, divide_rest(s, &rest, f));
  return finish_sum(s, &quotient);
}

// Replaces c*(z % m) by c*z where c*m is a multiple of f. Returns whether it did.
static bool drop_inner_mods(simplifier *s, kiln_sum *rest, int64_t f) {
  for (int i = 0; i < rest->terms.n; i++) {
    const kiln_sum_term t = rest->terms.data[i];
    int64_t product;
    if (!is_by_const(t.e, KILN_EXPR_MOD) ||
        __builtin_mul_overflow(t.coef, t.e->args[1]->u.i, &product) || product % f != 0)
      continue;
    kiln_sum without = sum_copy(s, rest);
    kiln_sum_add_term(s->cx, &without, -t.coef, t.e);
    kiln_sum_add_expr(s->cx, &without, t.coef, t.e->args[0]);
    if (!kiln_sum_is_exact(&s->bounds, &without)) continue;
    *rest = without;
    return true;
  }
  return false;
}

// Drops c*min(x, y) and c*max(x, y) if both c*x and c*y are multiples of f. Returns whether it did.
static bool drop_multiples(simplifier *s, kiln_sum *rest, int64_t f) {
  for (int i = 0; i < rest->terms.n; i++) {
    const kiln_sum_term t = rest->terms.data[i];
    if (t.e->kind != KILN_EXPR_MIN && t.e->kind != KILN_EXPR_MAX) continue;
    bool all = true;
    for (int k = 0; k < 2 && all; k++) {
      kiln_sum one = {0};
      kiln_sum_add_expr(s->cx, &one, t.coef, t.e->args[k]);
      all = kiln_sum_is_exact(&s->bounds, &one) && kiln_expr_is_zero(modulo(s, one, f));
    }
    kiln_sum without = sum_copy(s, rest);
    kiln_sum_add_term(s->cx, &without, -t.coef, t.e);
    if (!all || !kiln_sum_is_exact(&s->bounds, &without)) continue;
    *rest = without;
    return true;
  }
  return false;
}

static const kiln_expr *modulo(simplifier *s, kiln_sum a, int64_t f) {
  if (f == 1) return kiln_int(s->cx, 0);
  for (;;) {
    if (!kiln_sum_is_exact(&s->bounds, &a))
      return kiln_mod(s->cx, kiln_sum_build(s->cx, &a), kiln_int(s->cx, f));
    int64_t cell;
    if (in_one_cell(kiln_sum_interval(&s->bounds, &a), f, &cell)) {
      a.constant -= cell * f;
      return finish_sum(s, &a);
    }
    kiln_sum quotient, rest;
    split(s, &a, f, &quotient, &rest);
    if (in_one_cell(kiln_sum_interval(&s->bounds, &rest), f, &cell)) {
      rest.constant -= cell * f;
      return finish_sum(s, &rest);
    }
    a = rest;
    if (!drop_inner_mods(s, &a, f) && !drop_multiples(s, &a, f)) break;
  }
  parts p;
  if (find_parts(s, &a, f, &p)) { // (g*high + low) % f = g*(high % (f/g)) + low
    kiln_sum_add_expr(s->cx, &p.low, p.g, modulo(s, p.high, f / p.g));
    return finish_sum(s, &p.low);
  }
  return kiln_mod(s->cx, kiln_sum_build(s->cx, &a), kiln_int(s->cx, f));
}

// --- division by an expression ---

// Factors |n| out of the terms that have it: a = n*quotient + rest.
static void split_by_factor(simplifier *s, const kiln_sum *a, const kiln_expr *n,
                            kiln_sum *quotient, kiln_sum *rest) {
  *quotient = (kiln_sum){0};
  *rest = (kiln_sum){.constant = a->constant};
  for (int i = 0; i < a->terms.n; i++) {
    factor_list factors = {0};
    collect_factors(s, a->terms.data[i].e, &factors);
    int at = 0;
    while (at < factors.n && factors.data[at] != n) at++;
    if (at == factors.n) {
      kiln_sum_add_term(s->cx, rest, a->terms.data[i].coef, a->terms.data[i].e);
      continue;
    }
    factors.data[at] = factors.data[--factors.n];
    kiln_sum one = kiln_sum_of(s->cx, build_product(s, &factors));
    kiln_sum_add(s->cx, quotient, a->terms.data[i].coef, &one);
  }
}

static const kiln_expr *divide_by_expr(simplifier *s, kiln_expr_kind k, const kiln_expr *x,
                                       const kiln_expr *n) {
  kiln_sum a = kiln_sum_of(s->cx, x), quotient, rest;
  const kiln_interval divisor = kiln_bounds_of(&s->bounds, n);
  const bool symbolic = n->kind != KILN_EXPR_ADD && n->kind != KILN_EXPR_SUB &&
                        n->kind != KILN_EXPR_MUL && !n->has_load && divisor.lo > 0;
  if (!symbolic || !kiln_sum_is_exact(&s->bounds, &a)) return kiln_binary(s->cx, k, x, n);
  split_by_factor(s, &a, n, &quotient, &rest);
  const kiln_interval low = kiln_sum_interval(&s->bounds, &rest);
  const bool below = low.lo >= 0 && low.hi < divisor.lo;
  const kiln_expr *y = finish_sum(s, &rest);
  if (k == KILN_EXPR_MOD) return below ? y : kiln_mod(s->cx, y, n);
  if (!below) kiln_sum_add_expr(s->cx, &quotient, 1, kiln_div(s->cx, y, n));
  return finish_sum(s, &quotient);
}

static const kiln_expr *divide_or_modulo(simplifier *s, kiln_expr_kind k, const kiln_expr *x,
                                         const kiln_expr *n) {
  if (!is_const_int(n)) return divide_by_expr(s, k, x, n);
  const int64_t f = n->u.i;
  if (f == 0 || f == INT64_MIN) return kiln_binary(s->cx, k, x, n);
  kiln_sum a = kiln_sum_of(s->cx, x);
  if (f > 0) return k == KILN_EXPR_DIV ? divide(s, a, f) : modulo(s, a, f);
  // floor(x / -f) = floor(-x / f), x % -f = -(-x % f)
  kiln_sum minus = {0};
  kiln_sum_add(s->cx, &minus, -1, &a);
  if (!kiln_sum_is_exact(&s->bounds, &a)) return kiln_binary(s->cx, k, x, n);
  if (k == KILN_EXPR_DIV) return divide(s, minus, -f);
  kiln_sum result = {0};
  kiln_sum_add_expr(s->cx, &result, -1, modulo(s, minus, -f));
  return finish_sum(s, &result);
}

// Rounding towards zero equals rounding down if nothing is negative.
static const kiln_expr *truncated(simplifier *s, kiln_expr_kind k, const kiln_expr *x,
                                  const kiln_expr *n) {
  if (kiln_bounds_of(&s->bounds, x).lo >= 0 && kiln_bounds_of(&s->bounds, n).lo >= 0)
    return divide_or_modulo(s, k == KILN_EXPR_TDIV ? KILN_EXPR_DIV : KILN_EXPR_MOD, x, n);
  return kiln_binary(s->cx, k, x, n);
}

// --- minimum, maximum, comparisons ---

static const kiln_expr *min_max(simplifier *s, kiln_expr_kind k, const kiln_expr *a,
                                const kiln_expr *b) {
  const bool is_min = k == KILN_EXPR_MIN;
  kiln_sum d;
  const bool exact = sum_difference(s, a, b, &d);
  const kiln_interval i = exact ? kiln_sum_interval(&s->bounds, &d) : kiln_interval_all();
  if (i.hi <= 0) return is_min ? a : b;
  if (i.lo >= 0) return is_min ? b : a;
  if (is_const_int(a) || (!is_const_int(b) && kiln_expr_order(s->cx, a, b) > 0)) {
    const kiln_expr *swap = a;
    a = b;
    b = swap;
  }
  if (a->kind == k && is_const_int(b) && is_const_int(a->args[1])) // min(min(x, 5), 3)
    return min_max(s, k, a->args[0], kiln_binary(s->cx, k, a->args[1], b));
  if (a->kind == k && (a->args[0] == b || a->args[1] == b)) return a;
  if (b->kind == k && (b->args[0] == a || b->args[1] == a)) return b;
  return kiln_binary(s->cx, k, a, b);
}

static const kiln_expr *boolean(simplifier *s, bool value) {
  return kiln_int_of(s->cx, KILN_BOOL, value);
}

// The terms of |d| with positive coefficients, and the negated ones with negative coefficients;
// without the constant.
static void split_signs(simplifier *s, const kiln_sum *d, kiln_sum *positive, kiln_sum *negative) {
  *positive = *negative = (kiln_sum){0};
  for (int i = 0; i < d->terms.n; i++) {
    const kiln_sum_term t = d->terms.data[i];
    if (t.coef > 0) kiln_sum_add_term(s->cx, positive, t.coef, t.e);
    else kiln_sum_add_term(s->cx, negative, -t.coef, t.e);
  }
}

static void divide_coefs(kiln_sum *d, int64_t g) {
  for (int i = 0; i < d->terms.n; i++) d->terms.data[i].coef /= g;
}

static const kiln_expr *below_zero(simplifier *s, kiln_sum d);

// z/f < k is z - k*f < 0, and z/f >= k is k*f - z - 1 < 0; |d| is z - k*f.
static const kiln_expr *undivide(simplifier *s, kiln_expr_kind k, kiln_sum d) {
  if (k == KILN_EXPR_LT) return below_zero(s, d);
  kiln_sum minus = {.constant = -1};
  kiln_sum_add(s->cx, &minus, -1, &d);
  return below_zero(s, minus);
}

static const kiln_expr *against_constant(simplifier *s, kiln_expr_kind k, const kiln_sum *terms,
                                         int64_t bound) {
  const kiln_expr *t = only_term(terms);
  int64_t product;
  kiln_sum difference;
  if (t && is_by_const(t, KILN_EXPR_DIV) &&
      !__builtin_mul_overflow(bound, t->args[1]->u.i, &product) &&
      sum_difference(s, t->args[0], kiln_int(s->cx, product), &difference))
    return undivide(s, k, difference);
  return kiln_binary(s->cx, k, kiln_sum_build(s->cx, terms), kiln_int(s->cx, bound));
}

// d < 0 as `positive < constant`, `negative >= constant`, `positive <= negative` or
// `positive < negative + constant`.
static const kiln_expr *below_zero(simplifier *s, kiln_sum d) {
  const kiln_interval i = kiln_sum_interval(&s->bounds, &d);
  if (i.hi < 0) return boolean(s, true);
  if (i.lo >= 0) return boolean(s, false);
  const int64_t g = kiln_sum_gcd(&d); // g*t + c < 0 is t < ceil(-c/g)
  int64_t bound = -kiln_floor_div(d.constant, g);
  divide_coefs(&d, g);
  kiln_sum positive, negative;
  split_signs(s, &d, &positive, &negative);
  if (negative.terms.n == 0) return against_constant(s, KILN_EXPR_LT, &positive, bound);
  if (positive.terms.n == 0) return against_constant(s, KILN_EXPR_GE, &negative, 1 - bound);
  if (bound >= 0) negative.constant = bound == 1 ? 0 : bound;
  else positive.constant = -bound;
  return kiln_binary(s->cx, bound == 1 ? KILN_EXPR_LE : KILN_EXPR_LT,
                     kiln_sum_build(s->cx, &positive), kiln_sum_build(s->cx, &negative));
}

static const kiln_expr *equals_zero(simplifier *s, kiln_expr_kind k, kiln_sum d) {
  const kiln_interval i = kiln_sum_interval(&s->bounds, &d);
  const bool is_eq = k == KILN_EXPR_EQ;
  if (i.lo > 0 || i.hi < 0) return boolean(s, !is_eq);
  if (i.lo == 0 && i.hi == 0) return boolean(s, is_eq);
  const int64_t g = kiln_sum_gcd(&d);
  if (d.constant % g != 0) return boolean(s, !is_eq);
  divide_coefs(&d, g);
  d.constant /= g;
  kiln_sum positive, negative;
  split_signs(s, &d, &positive, &negative);
  const bool swap = positive.terms.n == 0;
  kiln_sum *left = swap ? &negative : &positive, *right = swap ? &positive : &negative;
  const int64_t bound = swap ? d.constant : -d.constant;
  if (right->terms.n == 0 || bound >= 0) right->constant = bound;
  else left->constant = -bound;
  return kiln_binary(s->cx, k, kiln_sum_build(s->cx, left), kiln_sum_build(s->cx, right));
}

static const kiln_expr *compare(simplifier *s, kiln_expr_kind k, const kiln_expr *a,
                                const kiln_expr *b) {
  const bool swap = k == KILN_EXPR_GT || k == KILN_EXPR_LE; // a > b is b < a, a <= b is not b < a
  kiln_sum d;
  if (!sum_difference(s, swap ? b : a, swap ? a : b, &d)) return kiln_binary(s->cx, k, a, b);
  if (k == KILN_EXPR_EQ || k == KILN_EXPR_NE) return equals_zero(s, k, d);
  if (k == KILN_EXPR_LT || k == KILN_EXPR_GT) return below_zero(s, d);
  kiln_sum minus = {.constant = -1}; // d >= 0 is -d - 1 < 0
  kiln_sum_add(s->cx, &minus, -1, &d);
  return below_zero(s, minus);
}

// --- boolean algebra ---

// A comparison of i64 as |out| < 0.
static bool as_below_zero(simplifier *s, const kiln_expr *e, kiln_sum *out) {
  const kiln_expr_kind k = e->kind;
  const bool ordered =
      k == KILN_EXPR_LT || k == KILN_EXPR_LE || k == KILN_EXPR_GT || k == KILN_EXPR_GE;
  if (!ordered || e->args[0]->dtype != KILN_I64) return false;
  const bool swap = k == KILN_EXPR_GT || k == KILN_EXPR_GE; // a > b is b - a < 0
  const bool exact = sum_difference(s, e->args[swap], e->args[!swap], out);
  if (k == KILN_EXPR_LE || k == KILN_EXPR_GE) out->constant--; // a <= b is a - b - 1 < 0
  return exact;
}

typedef enum relation {
  UNRELATED,
  FIRST_IMPLIES,
  SECOND_IMPLIES,
  EXCLUSIVE,  // never both true
  EXHAUSTIVE, // at least one is true
  COMPLEMENT  // exactly one is true
} relation;

static relation relate(simplifier *s, const kiln_expr *a, const kiln_expr *b) {
  if (a == b) return FIRST_IMPLIES;
  if (kiln_unary(s->cx, KILN_EXPR_NOT, a) == b) return COMPLEMENT;
  kiln_sum x, y;
  if (!as_below_zero(s, a, &x) || !as_below_zero(s, b, &y)) return UNRELATED;
  kiln_sum difference = sum_copy(s, &x), total = sum_copy(s, &x);
  kiln_sum_add(s->cx, &difference, -1, &y);
  if (difference.terms.n == 0) return difference.constant >= 0 ? FIRST_IMPLIES : SECOND_IMPLIES;
  kiln_sum_add(s->cx, &total, 1, &y);
  if (total.terms.n > 0) return UNRELATED;
  // If both are true, the sum of the two is at most -2; if both are false, at least 0.
  if (total.constant == -1) return COMPLEMENT;
  return total.constant > -1 ? EXCLUSIVE : EXHAUSTIVE;
}

static void flatten(simplifier *s, kiln_expr_kind k, const kiln_expr *e, factor_list *out) {
  if (e->kind == k && out->n < MAX_JUNCTION) {
    flatten(s, k, e->args[0], out);
    flatten(s, k, e->args[1], out);
  } else {
    KILN_VEC_PUSH(&s->cx->scratch, out, e);
  }
}

// Adds |e| to the operands of an && or ||. False if the operands decide the whole: a contradiction
// makes && false, a tautology makes || true.
static bool junction_add(simplifier *s, kiln_expr_kind k, factor_list *list, const kiln_expr *e) {
  const bool is_and = k == KILN_EXPR_AND;
  int kept = 0;
  for (int i = 0; i < list->n; i++) {
    const relation r = relate(s, list->data[i], e);
    if (list->data[i] == e || r == (is_and ? FIRST_IMPLIES : SECOND_IMPLIES)) return true;
    if (r == COMPLEMENT || r == (is_and ? EXCLUSIVE : EXHAUSTIVE)) return false;
    const bool weaker = r == (is_and ? SECOND_IMPLIES : FIRST_IMPLIES);
    if (!weaker) list->data[kept++] = list->data[i];
  }
  list->n = kept;
  KILN_VEC_PUSH(&s->cx->scratch, list, e);
  return true;
}

static const kiln_expr *junction(simplifier *s, kiln_expr_kind k, const kiln_expr *a,
                                 const kiln_expr *b) {
  factor_list all = {0}, list = {0};
  flatten(s, k, a, &all);
  flatten(s, k, b, &all);
  if (all.n > MAX_JUNCTION) return kiln_binary(s->cx, k, a, b);
  for (int i = 0; i < all.n; i++) {
    if (!junction_add(s, k, &list, all.data[i])) return boolean(s, k == KILN_EXPR_OR);
  }
  const kiln_expr *e = boolean(s, k == KILN_EXPR_AND);
  for (int i = 0; i < list.n; i++) e = kiln_binary(s->cx, k, e, list.data[i]);
  return e;
}

// !|e|, with negations moved to the comparisons.
static const kiln_expr *negation(simplifier *s, const kiln_expr *e) {
  const bool is_junction = e->kind == KILN_EXPR_AND || e->kind == KILN_EXPR_OR;
  if (!is_junction || s->budget->negations-- <= 0) {
    const kiln_expr *n = kiln_unary(s->cx, KILN_EXPR_NOT, e);
    const bool again = kiln_expr_kind_is_cmp(n->kind) && n->args[0]->dtype == KILN_I64;
    return again ? compare(s, n->kind, n->args[0], n->args[1]) : n;
  }
  return junction(s, e->kind == KILN_EXPR_AND ? KILN_EXPR_OR : KILN_EXPR_AND,
                  negation(s, e->args[0]), negation(s, e->args[1]));
}

// --- branches of SELECTs ---

// Narrows the range of a variable by |c|, a comparison of this variable alone.
static const kiln_assumption *assume_one(simplifier *s, const kiln_expr *c,
                                         const kiln_assumption *outer) {
  kiln_sum d;
  if (!as_below_zero(s, c, &d) || d.terms.n != 1 || d.terms.data[0].e->kind != KILN_EXPR_VAR)
    return outer;
  const int64_t coef = d.terms.data[0].coef;
  const kiln_symbol var = d.terms.data[0].e->u.sym;
  const kiln_bounds known = {.assumed = outer, .ranges = s->bounds.ranges};
  kiln_interval range = kiln_bounds_of_var(&known, var);
  // coef*v + constant <= -1
  if (coef > 0) {
    const int64_t most = kiln_floor_div(-1 - d.constant, coef);
    if (most < range.hi) range.hi = most;
  } else {
    const int64_t least = -kiln_floor_div(-1 - d.constant, -coef);
    if (least > range.lo) range.lo = least;
  }
  if (range.lo > range.hi) return outer; // the branch is never taken
  kiln_assumption *a = KILN_NEW(&s->cx->scratch, kiln_assumption);
  *a = (kiln_assumption){var, range, outer};
  return a;
}

static const kiln_assumption *assume(simplifier *s, const kiln_expr *c) {
  factor_list all = {0};
  flatten(s, KILN_EXPR_AND, c, &all);
  const kiln_assumption *a = s->bounds.assumed;
  for (int i = 0; i < all.n; i++) a = assume_one(s, all.data[i], a);
  return a;
}

// Simplifies |e| under the assumption that |c| holds.
static const kiln_expr *branch(simplifier *s, const kiln_expr *c, const kiln_expr *e) {
  if (e->n_args == 0 || s->budget->branches <= 0) return simplify(s, e);
  const kiln_assumption *assumed = assume(s, c);
  if (assumed == s->bounds.assumed) return simplify(s, e);
  s->budget->branches--;
  simplifier inner = {.cx = s->cx, .budget = s->budget};
  kiln_bounds_init(&inner.bounds, s->cx, s->bounds.ranges, assumed);
  kiln_map_init(&inner.done, &s->cx->scratch);
  return simplify(&inner, e);
}

static const kiln_expr *select_of(simplifier *s, const kiln_expr *e) {
  const kiln_expr *c = simplify(s, e->args[0]);
  if (is_const_int(c)) return simplify(s, e->args[c->u.i ? 1 : 2]);
  const kiln_expr *a = branch(s, c, e->args[1]);
  const kiln_expr *b = branch(s, negation(s, c), e->args[2]);
  if (a->kind == KILN_EXPR_SELECT && a->args[0] == c) a = a->args[1];
  if (b->kind == KILN_EXPR_SELECT && b->args[0] == c) b = b->args[2];
  return kiln_select(s->cx, c, a, b);
}

// --- the traversal ---

static const kiln_expr *binary_i64(simplifier *s, kiln_expr_kind k, const kiln_expr *a,
                                   const kiln_expr *b) {
  if (kiln_expr_kind_is_cmp(k)) return compare(s, k, a, b);
  if (k == KILN_EXPR_ADD || k == KILN_EXPR_SUB) {
    kiln_sum sum = kiln_sum_of(s->cx, a);
    kiln_sum_add_expr(s->cx, &sum, k == KILN_EXPR_ADD ? 1 : -1, b);
    return finish_sum(s, &sum);
  }
  if (k == KILN_EXPR_MUL) return multiply(s, a, b);
  if (k == KILN_EXPR_DIV || k == KILN_EXPR_MOD) return divide_or_modulo(s, k, a, b);
  if (k == KILN_EXPR_TDIV || k == KILN_EXPR_FMOD) return truncated(s, k, a, b);
  if (k == KILN_EXPR_MIN || k == KILN_EXPR_MAX) return min_max(s, k, a, b);
  return kiln_binary(s->cx, k, a, b);
}

// The constant that |e|'s interval implies: a comparison or junction of any kind, an integer with
// one value.
static const kiln_expr *decided(simplifier *s, const kiln_expr *e) {
  if (e->n_args == 0 || e->kind == KILN_EXPR_LOAD || kiln_dtype_is_float(e->dtype)) return e;
  const kiln_interval i = kiln_bounds_of(&s->bounds, e);
  return i.lo == i.hi ? kiln_int_of(s->cx, e->dtype, i.lo) : e;
}

static const kiln_expr *simplify_node(simplifier *s, const kiln_expr *e) {
  if (e->kind == KILN_EXPR_VAR) {
    const kiln_interval i = kiln_bounds_of(&s->bounds, e);
    return i.lo == i.hi ? kiln_int(s->cx, i.lo) : e;
  }
  if (e->n_args == 0) return e;
  if (e->kind == KILN_EXPR_SELECT) return select_of(s, e);
  const kiln_expr **args = KILN_NEW_ARRAY(&s->cx->scratch, const kiln_expr *, e->n_args);
  for (int i = 0; i < e->n_args; i++) args[i] = simplify(s, e->args[i]);
  if (e->kind == KILN_EXPR_NOT) return negation(s, args[0]);
  if (e->kind == KILN_EXPR_AND || e->kind == KILN_EXPR_OR)
    return junction(s, e->kind, args[0], args[1]);
  if (e->n_args == 2 && e->kind != KILN_EXPR_LOAD && args[0]->dtype == KILN_I64)
    return binary_i64(s, e->kind, args[0], args[1]);
  if (e->kind == KILN_EXPR_NEG && e->dtype == KILN_I64) {
    kiln_sum minus = {0};
    kiln_sum_add_expr(s->cx, &minus, -1, args[0]);
    return kiln_sum_build(s->cx, &minus);
  }
  return kiln_expr_with_args(s->cx, e, args);
}

static const kiln_expr *simplify(simplifier *s, const kiln_expr *e) {
  const uint64_t *known = kiln_map_find(&s->done, e->id);
  if (known) return (const kiln_expr *)(uintptr_t)*known;
  const kiln_expr *result = decided(s, simplify_node(s, e));
  kiln_map_put(&s->done, e->id, (uint64_t)(uintptr_t)result);
  kiln_map_put(&s->done, result->id, (uint64_t)(uintptr_t)result);
  return result;
}

// --- cache of results ---
//
// A nest is simplified after each primitive, which changes few of its expressions.

enum { N_KEPT = 512, MAX_KEPT_VARS = 8, SHORT_TREE = 4 };

struct kiln_simplified {
  const kiln_expr *of, *is;
  kiln_interval vars[MAX_KEPT_VARS]; // the ranges of the variables of |of|
};

// The slot of |e|; NULL for short expressions and for many variables.
static struct kiln_simplified *kept_of(kiln_ctx *cx, const kiln_expr *e) {
  if (e->n_tree <= SHORT_TREE || e->vars->n > MAX_KEPT_VARS) return NULL;
  if (!cx->simplified) cx->simplified = KILN_NEW_ARRAY(&cx->perm, struct kiln_simplified, N_KEPT);
  return &cx->simplified[e->id % N_KEPT];
}

static bool has_ranges(const struct kiln_simplified *k, const kiln_bounds *b) {
  for (int i = 0; i < k->of->vars->n; i++) {
    const kiln_interval at = kiln_bounds_of_var(b, k->of->vars->vars[i]);
    if (at.lo != k->vars[i].lo || at.hi != k->vars[i].hi) return false;
  }
  return true;
}

static void keep(struct kiln_simplified *k, const kiln_bounds *b, const kiln_expr *of,
                 const kiln_expr *is) {
  *k = (struct kiln_simplified){.of = of, .is = is};
  for (int i = 0; i < of->vars->n; i++) k->vars[i] = kiln_bounds_of_var(b, of->vars->vars[i]);
}

const kiln_expr *kiln_simplify(kiln_ctx *cx, const kiln_expr *e, const kiln_ranges *r) {
  if (e->n_args == 0 && e->kind != KILN_EXPR_VAR) return e;
  budget left = {MAX_BRANCHES, MAX_NEGATIONS};
  simplifier s = {.cx = cx, .budget = &left};
  kiln_bounds_init(&s.bounds, cx, r, NULL);
  struct kiln_simplified *kept = kept_of(cx, e);
  if (kept && kept->of == e && has_ranges(kept, &s.bounds)) return kept->is;
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  kiln_map_init(&s.done, &cx->scratch);
  const kiln_expr *result = simplify(&s, e);
  kiln_arena_rewind(&cx->scratch, mark);
  if (kept) keep(kept, &s.bounds, e, result);
  return result;
}

const kiln_expr *kiln_stmt_simplify(kiln_ctx *cx, const kiln_stmt *s, const kiln_expr *e) {
  const kiln_ranges r = kiln_stmt_ranges(&cx->scratch, s);
  return kiln_simplify(cx, e, &r);
}

bool kiln_load_is_inside(kiln_ctx *cx, const kiln_program *p, const kiln_expr *load,
                         const kiln_ranges *r) {
  const kiln_tensor *t = p->tensors.data[load->u.tensor];
  for (int k = 0; k < t->rank; k++) {
    const kiln_interval at = kiln_expr_interval(cx, load->args[k], r);
    int64_t extent = 0;
    if (!kiln_expr_is_int(t->shape[k], &extent) || at.lo < 0 || at.hi >= extent) return false;
  }
  return true;
}

bool kiln_proves(kiln_ctx *cx, const kiln_expr *e, const kiln_ranges *r) {
  const kiln_expr *simple = kiln_simplify(cx, e, r);
  return simple->kind == KILN_EXPR_INT && simple->u.i != 0;
}
