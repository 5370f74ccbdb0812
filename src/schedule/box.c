// Bounding boxes: the part of a buffer that an iteration of a loop accesses, by interval analysis
// with symbolic lower bounds.
#include "schedule/index.h"

#include "support/integer.h"

typedef struct bound {
  const kiln_expr *lo;
  int64_t width; // the value lies in [lo, lo + width]
} bound;

typedef struct bounder {
  kiln_edit *e;
  const kiln_vars *inner;
} bounder;

static bool bound_of(bounder *b, const kiln_expr *x, bound *out);
static bool bound_union(kiln_edit *e, bound *a, const bound *b);

// --- the distance of two expressions ---

enum { DISTANCE_DEPTH = 4 };

static int64_t greatest(int64_t a, int64_t b) { return a > b ? a : b; }

static bool is_known(kiln_interval i) { return i.lo != INT64_MIN && i.hi != INT64_MAX; }

static kiln_interval distance(kiln_edit *e, const kiln_expr *a, const kiln_expr *b, int depth);

// The distance of b from min(p, q) or max(p, q), by its distances from p and q.
static kiln_interval from_extreme(kiln_edit *e, const kiln_expr *a, const kiln_expr *b, int depth) {
  const kiln_interval p = distance(e, a->args[0], b, depth), q = distance(e, a->args[1], b, depth);
  if (a->kind == KILN_EXPR_MIN) return (kiln_interval){greatest(p.lo, q.lo), greatest(p.hi, q.hi)};
  return (kiln_interval){kiln_min_i64(p.lo, q.lo), kiln_min_i64(p.hi, q.hi)};
}

static kiln_interval negated(kiln_interval i) {
  return (kiln_interval){i.hi == INT64_MAX ? INT64_MIN : -i.hi,
                         i.lo == INT64_MIN ? INT64_MAX : -i.lo};
}

// The distance of two quotients, minima or maxima, by their arguments.
static kiln_interval of_pair(kiln_edit *e, const kiln_expr *a, const kiln_expr *b, int depth) {
  const kiln_interval p = distance(e, a->args[0], b->args[0], depth);
  int64_t c = 0;
  if (a->kind == KILN_EXPR_DIV) {
    if (a->args[1] != b->args[1] || !kiln_expr_is_int(a->args[1], &c) || c <= 0 || !is_known(p))
      return (kiln_interval){INT64_MIN, INT64_MAX};
    const int64_t lo = p.lo / c - (p.lo % c < 0), hi = p.hi / c + (p.hi % c > 0);
    return (kiln_interval){lo, hi};
  }
  const kiln_interval q = distance(e, a->args[1], b->args[1], depth);
  return (kiln_interval){kiln_min_i64(p.lo, q.lo), greatest(p.hi, q.hi)};
}

static kiln_interval both(kiln_interval a, kiln_interval b) {
  return (kiln_interval){greatest(a.lo, b.lo), kiln_min_i64(a.hi, b.hi)};
}

static bool is_extreme(const kiln_expr *e) {
  return e->kind == KILN_EXPR_MIN || e->kind == KILN_EXPR_MAX;
}

// The interval of |t|: terms c * (b - a), with a and b of one operator, are bounded together, the
// others one by one.
static kiln_interval of_terms(kiln_edit *e, const kiln_terms *t, int depth) {
  kiln_ctx *cx = e->cx;
  for (int i = 0; i < t->n; i++)
    for (int j = 0; j < t->n; j++) {
      const kiln_expr *a = t->data[i].atom, *b = t->data[j].atom;
      if (t->data[i].coef != -1 || t->data[j].coef != 1 || a->kind != b->kind ||
          (a->kind != KILN_EXPR_DIV && !is_extreme(a)))
        continue;
      const kiln_expr *rest = kiln_int(cx, t->constant);
      for (int k = 0; k < t->n; k++)
        if (k != i && k != j)
          rest = kiln_add(cx, rest, kiln_mul(cx, t->data[k].atom, kiln_int(cx, t->data[k].coef)));
      const kiln_interval r = distance(e, kiln_int(cx, 0), rest, depth);
      const kiln_interval p = of_pair(e, a, b, depth);
      if (!is_known(r) || !is_known(p)) continue;
      kiln_interval sum;
      if (__builtin_add_overflow(r.lo, p.lo, &sum.lo) ||
          __builtin_add_overflow(r.hi, p.hi, &sum.hi))
        continue;
      return sum;
    }
  return (kiln_interval){INT64_MIN, INT64_MAX};
}

// An interval of b - a. Terms that both have cancel; the interval of the plain difference would be
// wide.
static kiln_interval distance(kiln_edit *e, const kiln_expr *a, const kiln_expr *b, int depth) {
  const kiln_expr *d = kiln_edit_simplify(e, kiln_sub(e->cx, b, a));
  kiln_interval found = kiln_expr_interval(e->cx, d, &e->ranges);
  if (depth == 0 || kiln_expr_is_int(d, NULL)) return found;
  const kiln_terms t = kiln_terms_of(e->cx, d);
  found = both(found, of_terms(e, &t, depth - 1));
  if (is_extreme(a)) found = both(found, from_extreme(e, a, b, depth - 1));
  if (is_extreme(b)) found = both(found, negated(from_extreme(e, b, a, depth - 1)));
  return found;
}

kiln_interval kiln_box_distance(kiln_edit *e, const kiln_expr *a, const kiln_expr *b) {
  return distance(e, a, b, DISTANCE_DEPTH);
}

// --- bounds ---

// Bounds |x| by its interval, with a constant lower bound.
static bool bound_by_interval(bounder *b, const kiln_expr *x, bound *out) {
  const kiln_interval i = kiln_expr_interval(b->e->cx, x, &b->e->ranges);
  if (i.lo == INT64_MIN || i.hi == INT64_MAX || __builtin_sub_overflow(i.hi, i.lo, &out->width))
    return false;
  out->lo = kiln_int(b->e->cx, i.lo);
  return true;
}

static bool bound_sum(bounder *b, const kiln_expr *x, bool minus, bound *out) {
  kiln_ctx *cx = b->e->cx;
  bound p, q;
  if (!bound_of(b, x->args[0], &p) || !bound_of(b, x->args[1], &q)) return false;
  out->lo = minus ? kiln_sub(cx, kiln_sub(cx, p.lo, q.lo), kiln_int(cx, q.width))
                  : kiln_add(cx, p.lo, q.lo);
  return !__builtin_add_overflow(p.width, q.width, &out->width);
}

static bool bound_scaled(bounder *b, const kiln_expr *x, bound *out) {
  kiln_ctx *cx = b->e->cx;
  int64_t c = 0;
  const int factor = kiln_expr_is_int(x->args[1], &c) ? 1 : 0;
  bound p;
  if (!kiln_expr_is_int(x->args[factor], &c) || !bound_of(b, x->args[1 - factor], &p)) return false;
  const kiln_expr *from = c >= 0 ? p.lo : kiln_add(cx, p.lo, kiln_int(cx, p.width));
  out->lo = kiln_mul(cx, from, kiln_int(cx, c));
  return c > INT32_MIN && !__builtin_mul_overflow(p.width, c < 0 ? -c : c, &out->width);
}

// floor((x + w) / c) - floor(x / c) is at most ceil(w / c), and less where x is known modulo c.
static bool bound_quotient(bounder *b, const kiln_expr *x, bound *out) {
  kiln_ctx *cx = b->e->cx;
  int64_t c = 0;
  bound p;
  if (!kiln_expr_is_int(x->args[1], &c) || c <= 0 || !bound_of(b, x->args[0], &p)) return false;
  const kiln_expr *last = kiln_div(cx, kiln_add(cx, p.lo, kiln_int(cx, p.width)), x->args[1]);
  out->lo = kiln_div(cx, p.lo, x->args[1]);
  out->width = p.width / c + (p.width % c != 0);
  const kiln_interval d = distance(b->e, out->lo, last, DISTANCE_DEPTH);
  if (d.hi < out->width) out->width = d.hi > 0 ? d.hi : 0;
  return true;
}

static bool bound_extreme(bounder *b, const kiln_expr *x, bound *out) {
  bound p, q;
  if (!bound_of(b, x->args[0], &p) || !bound_of(b, x->args[1], &q)) return false;
  out->lo = kiln_binary(b->e->cx, x->kind, p.lo, q.lo);
  out->width = p.width > q.width ? p.width : q.width;
  return true;
}

static bool bound_select(bounder *b, const kiln_expr *x, bound *out) {
  bound q;
  return bound_of(b, x->args[1], out) && bound_of(b, x->args[2], &q) && bound_union(b->e, out, &q);
}

static bool bound_structure(bounder *b, const kiln_expr *x, bound *out) {
  if (x->dtype != KILN_I64) return false;
  if (x->kind == KILN_EXPR_ADD) return bound_sum(b, x, false, out);
  if (x->kind == KILN_EXPR_SUB) return bound_sum(b, x, true, out);
  if (x->kind == KILN_EXPR_MUL) return bound_scaled(b, x, out);
  if (x->kind == KILN_EXPR_DIV) return bound_quotient(b, x, out);
  if (x->kind == KILN_EXPR_MIN || x->kind == KILN_EXPR_MAX) return bound_extreme(b, x, out);
  if (x->kind == KILN_EXPR_SELECT) return bound_select(b, x, out);
  return false;
}

static bool bound_of(bounder *b, const kiln_expr *x, bound *out) {
  if (!kiln_vars_in(b->inner, x) && !kiln_expr_has_load(x)) {
    *out = (bound){x, 0};
    return true;
  }
  bound whole, part;
  const bool has_whole = bound_by_interval(b, x, &whole);
  // a part may have a wider bound than the interval, as (i % 4) for long i
  if (bound_structure(b, x, &part) && (!has_whole || part.width < whole.width)) {
    *out = part;
    return true;
  }
  *out = whole;
  return has_whole;
}

bool kiln_box_bound(kiln_edit *e, const kiln_expr *x, const kiln_vars *inner,
                    const kiln_expr **out_lo, int64_t *out_width) {
  bounder b = {e, inner};
  bound found;
  if (!bound_of(&b, kiln_edit_simplify(e, x), &found)) return false;
  *out_lo = kiln_edit_simplify(e, found.lo);
  *out_width = found.width;
  return true;
}

// The smallest bound that contains both; false if their distance is unbounded.
static bool bound_union(kiln_edit *e, bound *a, const bound *b) {
  const kiln_interval i = distance(e, a->lo, b->lo, DISTANCE_DEPTH);
  const int64_t limit = INT64_C(1) << 40;
  if (i.lo < -limit || i.hi > limit || a->width > limit || b->width > limit) return false;
  const int64_t down = i.lo < 0 ? -i.lo : 0;
  const int64_t up = i.hi + b->width > a->width ? i.hi + b->width : a->width;
  a->lo = kiln_edit_simplify(e, kiln_sub(e->cx, a->lo, kiln_int(e->cx, down)));
  a->width = up + down;
  return true;
}

void kiln_box_of(kiln_edit *e, const kiln_buffer *b, const kiln_accesses *accesses,
                 const kiln_vars *inner, kiln_box *out) {
  *out = (kiln_box){.rank = b->rank};
  for (int k = 0; k < b->rank; k++) {
    bound all = {NULL, 0};
    bool known = true;
    for (int i = 0; i < accesses->n && known; i++) {
      bound one;
      known = !accesses->data[i].opaque &&
              kiln_box_bound(e, accesses->data[i].index[k], inner, &one.lo, &one.width);
      if (known && all.lo) known = bound_union(e, &all, &one);
      else if (known) all = one;
    }
    const bool whole = !known || !all.lo || all.width + 1 >= b->extents[k];
    out->lo[k] = whole ? kiln_int(e->cx, 0) : all.lo;
    out->extent[k] = whole ? b->extents[k] : all.width + 1;
  }
}

bool kiln_box_below(kiln_edit *e, const kiln_box *box, int axis) {
  return kiln_expr_interval(e->cx, box->lo[axis], &e->ranges).lo < 0;
}

bool kiln_box_above(kiln_edit *e, const kiln_box *box, int axis, int64_t extent) {
  const kiln_expr *limit = kiln_int(e->cx, extent - box->extent[axis]);
  const kiln_expr *fits = kiln_binary(e->cx, KILN_EXPR_LE, box->lo[axis], limit);
  return kiln_expr_interval(e->cx, box->lo[axis], &e->ranges).hi > extent - box->extent[axis] &&
         !kiln_proves(e->cx, fits, &e->ranges);
}

void kiln_box_shift_low(kiln_edit *e, kiln_box *box, int axis) {
  box->lo[axis] =
      kiln_edit_simplify(e, kiln_binary(e->cx, KILN_EXPR_MAX, box->lo[axis], kiln_int(e->cx, 0)));
}

void kiln_box_shift_high(kiln_edit *e, kiln_box *box, int axis, int64_t extent) {
  const kiln_expr *last = kiln_int(e->cx, extent - box->extent[axis]);
  box->lo[axis] = kiln_edit_simplify(e, kiln_binary(e->cx, KILN_EXPR_MIN, box->lo[axis], last));
}
