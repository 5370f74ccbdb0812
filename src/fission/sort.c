// LSD radix sort: for each digit, the last first, a histogram gives where elements with each digit
// begin, and a stable scatter moves them there. source: Knuth, The Art of Computer Programming,
// 5.2.5
#include "fission/sort.h"

#include "fission/scan.h"
#include "fission/terms.h"

enum { DIGIT = 8, DIGITS = 1 << DIGIT };

typedef struct sorting {
  kiln_lower *lw;
  const kiln_tensor *keys;  // (R, N)
  const kiln_tensor *order; // (R, N), after the digits so far; NULL: the identity
  int shift;
  bool has_sign; // the digit includes the sign bit
} sorting;

static const kiln_expr *digit_at(const sorting *z, const kiln_expr *const at[2]) {
  kiln_ctx *cx = z->lw->cx;
  const kiln_expr *digit =
      kiln_div(cx, kiln_tensor_load(cx, z->keys, at), kiln_int(cx, INT64_C(1) << z->shift));
  if (z->has_sign) digit = kiln_add(cx, digit, kiln_int(cx, DIGITS / 2));
  return kiln_mod(cx, digit, kiln_int(cx, DIGITS));
}

// The start of each digit's elements: (R, DIGITS), an exclusive prefix sum of the histogram.
static const kiln_tensor *find_begins(const sorting *z) {
  kiln_ctx *cx = z->lw->cx;
  const kiln_expr *shape[] = {z->keys->shape[0], kiln_int(cx, DIGITS)}, *o[2], *at[2];
  kiln_stmt *s = kiln_lower_scatter_new(z->lw, "digits", KILN_I64, 2, shape, 1, 1,
                                        (const kiln_expr *const *)z->keys->shape, o);
  kiln_stmt_vars(cx, s, 0, 2, at);
  s->init = kiln_int(cx, 0);
  s->combiner = KILN_COMBINE_SUM;
  s->index[0] = at[0];
  s->index[1] = digit_at(z, at);
  s->body = kiln_int(cx, 1);
  const kiln_scan before = {.axis = 1, .exclusive = true, .combiner = KILN_COMBINE_SUM};
  return kiln_lower_scan(z->lw, &before, kiln_lower_tensor(z->lw, s));
}

// A row holds the next free place of each digit, followed by the sorted elements: one step writes
// an element, the next increments the place.
static kiln_tensor *put_in_order(const sorting *z) {
  kiln_ctx *cx = z->lw->cx;
  const kiln_tensor *begins = find_begins(z);
  const kiln_expr *rows = z->keys->shape[0], *n = z->keys->shape[1], *digits = kiln_int(cx, DIGITS);
  const kiln_expr *shape[] = {rows, kiln_lower_tidy(cx, kiln_add(cx, n, digits))};
  const kiln_expr *extents[] = {rows, n, kiln_int(cx, 2)}, *o[2], *v[3];
  kiln_stmt *s = kiln_lower_scatter_new(z->lw, "put", KILN_I64, 2, shape, 1, 2, extents, o);
  const kiln_tensor *t = kiln_lower_tensor(z->lw, s);
  kiln_stmt_vars(cx, s, 0, 3, v);
  const kiln_expr *held[] = {o[0], kiln_least(cx, o[1], kiln_int(cx, DIGITS - 1))};
  s->init = kiln_select(cx, kiln_compare(cx, KILN_EXPR_LT, o[1], digits),
                        kiln_tensor_load(cx, begins, held), kiln_int(cx, 0));
  const kiln_expr *element = z->order ? kiln_tensor_load(cx, z->order, v) : v[1];
  const kiln_expr *at[] = {v[0], element}, *digit[] = {v[0], digit_at(z, at)};
  const kiln_expr *puts = kiln_compare(cx, KILN_EXPR_LT, v[2], kiln_int(cx, 1));
  const kiln_expr *place = kiln_add(cx, kiln_tensor_load(cx, t, digit), digits);
  s->combiner = KILN_COMBINE_SUM;
  s->index[0] = v[0];
  s->index[1] = kiln_select(cx, puts, place, digit[1]);
  s->body = kiln_select(cx, puts, element, kiln_int(cx, 1));
  kiln_stmt *order = kiln_lower_like(z->lw, "order", z->keys, KILN_I64, v);
  v[1] = kiln_add(cx, v[1], digits);
  order->body = kiln_tensor_load(cx, t, v);
  return kiln_lower_tensor(z->lw, order);
}

kiln_tensor *kiln_lower_order(kiln_lower *lw, const kiln_tensor *keys, int n_bits) {
  sorting z = {.lw = lw, .keys = keys};
  kiln_tensor *order = NULL;
  for (; z.shift < n_bits; z.shift += DIGIT) {
    z.has_sign = z.shift + DIGIT >= n_bits;
    z.order = order = put_in_order(&z);
  }
  return order;
}
