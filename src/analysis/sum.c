// Sums of terms: collecting, bounding, and writing them back as expressions in canonical order.
#include "analysis/sum.h"

#include "support/integer.h"

#include <stdlib.h>
#include <string.h>

static int64_t wrap_mul(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }
static int64_t wrap_add(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }

void kiln_sum_add_term(kiln_ctx *cx, kiln_sum *s, int64_t coef, const kiln_expr *e) {
  if (coef == 0) return;
  for (int i = 0; i < s->terms.n; i++) {
    if (s->terms.data[i].e != e) continue;
    s->terms.data[i].coef = wrap_add(s->terms.data[i].coef, coef);
    if (s->terms.data[i].coef != 0) return;
    s->terms.n--;
    for (int j = i; j < s->terms.n; j++) s->terms.data[j] = s->terms.data[j + 1];
    return;
  }
  const kiln_sum_term t = {coef, e};
  KILN_VEC_PUSH(&cx->scratch, &s->terms, t);
}

void kiln_sum_add(kiln_ctx *cx, kiln_sum *s, int64_t factor, const kiln_sum *other) {
  s->constant = wrap_add(s->constant, wrap_mul(factor, other->constant));
  for (int i = 0; i < other->terms.n; i++)
    kiln_sum_add_term(cx, s, wrap_mul(factor, other->terms.data[i].coef), other->terms.data[i].e);
}

void kiln_sum_add_expr(kiln_ctx *cx, kiln_sum *s, int64_t factor, const kiln_expr *e) {
  // A built sum leans left, so the loop descends along its spine and recurses into single terms
  // only.
  for (;;) {
    if (e->kind == KILN_EXPR_ADD || e->kind == KILN_EXPR_SUB) {
      const int64_t right = e->kind == KILN_EXPR_SUB ? wrap_mul(factor, -1) : factor;
      kiln_sum_add_expr(cx, s, right, e->args[1]);
      e = e->args[0];
    } else if (e->kind == KILN_EXPR_MUL && e->args[1]->kind == KILN_EXPR_INT) {
      factor = wrap_mul(factor, e->args[1]->u.i);
      e = e->args[0];
    } else {
      break;
    }
  }
  if (e->kind == KILN_EXPR_INT) s->constant = wrap_add(s->constant, wrap_mul(factor, e->u.i));
  else kiln_sum_add_term(cx, s, factor, e);
}

kiln_sum kiln_sum_of(kiln_ctx *cx, const kiln_expr *e) {
  kiln_sum s = {0};
  kiln_sum_add_expr(cx, &s, 1, e);
  return s;
}

static int sign(int64_t x) { return (x > 0) - (x < 0); }

static int order_payload(const kiln_ctx *cx, const kiln_expr *a, const kiln_expr *b) {
  if (a->kind == KILN_EXPR_VAR)
    return strcmp(kiln_symbol_text(cx, a->u.sym), kiln_symbol_text(cx, b->u.sym));
  if (a->kind == KILN_EXPR_INT) return (a->u.i > b->u.i) - (a->u.i < b->u.i);
  if (a->kind == KILN_EXPR_FLOAT) return memcmp(&a->u.f, &b->u.f, sizeof a->u.f);
  if (a->kind == KILN_EXPR_LOAD) return sign((int64_t)a->u.tensor - b->u.tensor);
  return 0;
}

// Equal arguments are the same pointer, so the recursion enters only one pair of arguments.
int kiln_expr_order(const kiln_ctx *cx, const kiln_expr *a, const kiln_expr *b) {
  while (a != b) {
    if (a->kind != b->kind) { // variables first
      if (a->kind == KILN_EXPR_VAR || b->kind == KILN_EXPR_VAR)
        return a->kind == KILN_EXPR_VAR ? -1 : 1;
      return a->kind < b->kind ? -1 : 1;
    }
    if (a->dtype != b->dtype) return a->dtype < b->dtype ? -1 : 1;
    const int payload = order_payload(cx, a, b);
    if (payload != 0) return payload;
    if (a->n_args != b->n_args) return a->n_args < b->n_args ? -1 : 1;
    int i = 0;
    while (i < a->n_args && a->args[i] == b->args[i]) i++;
    if (i == a->n_args) return a->id < b->id ? -1 : 1; // two NaNs, or names of equal text
    const kiln_expr *x = a->args[i], *y = b->args[i];
    a = x;
    b = y;
  }
  return 0;
}

static uint64_t magnitude(int64_t x) { return x < 0 ? 0 - (uint64_t)x : (uint64_t)x; }

// Larger strides first, as in a written address; then by structure.
static int order_terms(const kiln_ctx *cx, const kiln_sum_term *a, const kiln_sum_term *b) {
  if (magnitude(a->coef) != magnitude(b->coef))
    return magnitude(a->coef) > magnitude(b->coef) ? -1 : 1;
  return kiln_expr_order(cx, a->e, b->e);
}

static int order_terms_r(const void *a, const void *b, void *cx) { return order_terms(cx, a, b); }

static const kiln_expr *scaled(kiln_ctx *cx, const kiln_expr *e, int64_t coef) {
  return kiln_mul(cx, e, kiln_int(cx, coef));
}

// Positive terms first; the constant leads only if there are none; negative terms are subtracted
// last.
const kiln_expr *kiln_sum_build(kiln_ctx *cx, const kiln_sum *s) {
  const int n = s->terms.n;
  if (n <= 0) return kiln_int(cx, s->constant);
  kiln_sum_term *terms = KILN_NEW_ARRAY(&cx->scratch, kiln_sum_term, n);
  memcpy(terms, s->terms.data, (size_t)n * sizeof(*terms));
  qsort_r(terms, (size_t)n, sizeof(*terms), order_terms_r, cx);
  const kiln_expr *e = NULL;
  for (int i = 0; i < n; i++) {
    if (terms[i].coef < 0) continue;
    const kiln_expr *t = scaled(cx, terms[i].e, terms[i].coef);
    e = e ? kiln_add(cx, e, t) : t;
  }
  int64_t constant = s->constant;
  if (!e && constant > 0) {
    e = kiln_int(cx, constant);
    constant = 0;
  }
  for (int i = 0; i < n; i++) {
    if (terms[i].coef > 0) continue;
    if (e && terms[i].coef != INT64_MIN)
      e = kiln_sub(cx, e, scaled(cx, terms[i].e, -terms[i].coef));
    else
      e = e ? kiln_add(cx, e, scaled(cx, terms[i].e, terms[i].coef))
            : scaled(cx, terms[i].e, terms[i].coef);
  }
  if (constant < 0 && constant != INT64_MIN) return kiln_sub(cx, e, kiln_int(cx, -constant));
  return kiln_add(cx, e, kiln_int(cx, constant));
}

bool kiln_sum_is_exact(kiln_bounds *b, const kiln_sum *s) {
  bool has_load = false;
  for (int i = 0; i < s->terms.n; i++) has_load |= s->terms.data[i].e->has_load;
  if (!has_load) return true;
  uint64_t room = UINT64_C(1) << 61;
  if (magnitude(s->constant) >= room) return false;
  room -= magnitude(s->constant);
  for (int i = 0; i < s->terms.n; i++) {
    const kiln_interval t = kiln_bounds_of(b, s->terms.data[i].e);
    const uint64_t lo = magnitude(t.lo), hi = magnitude(t.hi), largest = lo > hi ? lo : hi;
    uint64_t reach;
    if (__builtin_mul_overflow(largest, magnitude(s->terms.data[i].coef), &reach) || reach >= room)
      return false;
    room -= reach;
  }
  return true;
}

static kiln_interval term_by_term(kiln_bounds *b, const kiln_sum *s) {
  kiln_interval i = {s->constant, s->constant};
  for (int k = 0; k < s->terms.n; k++) {
    const kiln_interval t = kiln_bounds_of(b, s->terms.data[k].e);
    i = kiln_interval_add(i, kiln_interval_scale(t, s->terms.data[k].coef));
  }
  return i;
}

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

static kiln_interval interval_of(kiln_bounds *b, const kiln_sum *s, int splits);

// The interval of the sum with term |k|, a choice of two values, replaced by each of them in turn,
// so that equal parts cancel: min(4*o + 3, 15) - 4*o is at most 3.
static kiln_interval by_choice(kiln_bounds *b, const kiln_sum *s, int k, int splits) {
  const kiln_sum_term t = s->terms.data[k];
  kiln_interval sides[2];
  for (int side = 0; side < 2; side++) {
    kiln_sum with = {0};
    kiln_sum_add(b->cx, &with, 1, s);
    kiln_sum_add_term(b->cx, &with, wrap_mul(t.coef, -1), t.e);
    kiln_sum_add_expr(b->cx, &with, t.coef, t.e->args[t.e->n_args - 2 + side]);
    sides[side] =
        kiln_sum_is_exact(b, &with) ? interval_of(b, &with, splits - 1) : kiln_interval_all();
  }
  const kiln_interval x = sides[0], y = sides[1];
  if (t.e->kind == KILN_EXPR_SELECT)
    return (kiln_interval){kiln_min_i64(x.lo, y.lo), larger(x.hi, y.hi)};
  if ((t.e->kind == KILN_EXPR_MIN) == (t.coef > 0))
    return (kiln_interval){kiln_min_i64(x.lo, y.lo), kiln_min_i64(x.hi, y.hi)};
  return (kiln_interval){larger(x.lo, y.lo), larger(x.hi, y.hi)};
}

static kiln_interval interval_of(kiln_bounds *b, const kiln_sum *s, int splits) {
  const kiln_interval i = term_by_term(b, s);
  for (int k = 0; splits > 0 && s->terms.n > 1 && k < s->terms.n; k++) {
    const kiln_expr_kind kind = s->terms.data[k].e->kind;
    if (kind != KILN_EXPR_MIN && kind != KILN_EXPR_MAX && kind != KILN_EXPR_SELECT) continue;
    const kiln_interval other = by_choice(b, s, k, splits);
    return (kiln_interval){larger(i.lo, other.lo), kiln_min_i64(i.hi, other.hi)};
  }
  return i;
}

kiln_interval kiln_sum_interval(kiln_bounds *b, const kiln_sum *s) {
  enum { MAX_SPLITS = 3 };
  return kiln_sum_is_exact(b, s) ? interval_of(b, s, MAX_SPLITS) : kiln_interval_all();
}

int64_t kiln_sum_gcd(const kiln_sum *s) {
  uint64_t g = 0;
  for (int i = 0; i < s->terms.n; i++) {
    uint64_t x = magnitude(s->terms.data[i].coef);
    while (x != 0) {
      const uint64_t rest = g % x;
      g = x;
      x = rest;
    }
  }
  return g > INT64_MAX ? 1 : (int64_t)g;
}

kiln_interval kiln_expr_interval(kiln_ctx *cx, const kiln_expr *e, const kiln_ranges *r) {
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  kiln_bounds b;
  kiln_bounds_init(&b, cx, r, NULL);
  kiln_interval i = kiln_bounds_of(&b, e);
  if (e->dtype == KILN_I64 && (e->kind == KILN_EXPR_ADD || e->kind == KILN_EXPR_SUB)) {
    const kiln_sum sum = kiln_sum_of(cx, e); // there equal terms cancel
    const kiln_interval whole = kiln_sum_interval(&b, &sum);
    if (whole.lo > i.lo) i.lo = whole.lo;
    if (whole.hi < i.hi) i.hi = whole.hi;
  }
  kiln_arena_rewind(&cx->scratch, mark);
  return i;
}
