// Range: its bounds must be known when compiling; integer bounds may be named dimensions.
// source: ONNX Range-11, 27
#include "fission/terms.h"
#include "ir/fold.h"

#include <math.h>

static kiln_status want_one(kiln_lower *lw, int i, int n) {
  if (n == 1) return KILN_OK;
  return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                   "input %d: must have one element, got %d", i, n);
}

static kiln_status zero_delta(kiln_lower *lw) {
  return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place, "input 2 (delta): must not be 0");
}

// The same of numbers, which may lie at both ends of their type.
static kiln_status constant_count(kiln_lower *lw, int64_t start, int64_t limit, int64_t delta,
                                  const kiln_expr **out) {
  const uint64_t low = (uint64_t)(delta > 0 ? start : limit),
                 high = (uint64_t)(delta > 0 ? limit : start),
                 step = delta > 0 ? (uint64_t)delta : 0 - (uint64_t)delta;
  const bool is_empty = delta > 0 ? start >= limit : start <= limit;
  const uint64_t n = is_empty ? 0 : (high - low - 1) / step + 1;
  *out = kiln_int(lw->cx, (int64_t)n);
  if (n <= INT64_MAX) return KILN_OK;
  return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                   "range: must have fewer than 2^63 elements, got %" PRIu64, n);
}

// ceil((limit - start) / delta), at least 0.
static kiln_status integer_count(kiln_lower *lw, const kiln_expr *const *v, const kiln_expr **out) {
  kiln_ctx *cx = lw->cx;
  int64_t delta = 0;
  if (!kiln_expr_is_int(v[2], &delta))
    return KILN_FAIL(cx->diag, KILN_UNSUPPORTED, lw->place,
                     "input 2 (delta): must be known when compiling, got a computed one");
  if (delta == 0) return zero_delta(lw);
  int64_t start = 0, limit = 0;
  if (kiln_expr_is_int(v[0], &start) && kiln_expr_is_int(v[1], &limit))
    return constant_count(lw, start, limit, delta, out);
  const kiln_expr *span = kiln_sub(cx, v[delta > 0 ? 1 : 0], v[delta > 0 ? 0 : 1]);
  const kiln_expr *n = kiln_ceil_div(cx, span, kiln_int(cx, delta > 0 ? delta : -delta));
  // A named dimension is never negative.
  *out = n->kind == KILN_EXPR_VAR ? n : kiln_lower_tidy(cx, kiln_most(cx, n, kiln_int(cx, 0)));
  return KILN_OK;
}

static void fill(kiln_lower *lw, kiln_dtype t, const kiln_expr *n, const kiln_expr *start,
                 const kiln_expr *delta) {
  kiln_ctx *cx = lw->cx;
  kiln_stmt *s = kiln_lower_stmt(lw, NULL, t, 1, 0, &n);
  s->body =
      kiln_add(cx, kiln_cast(cx, t, start),
               kiln_mul(cx, kiln_cast(cx, t, kiln_stmt_var(cx, s, 0)), kiln_cast(cx, t, delta)));
  lw->outputs[0] = kiln_lower_tensor(lw, s);
}

static kiln_status lower_integers(kiln_lower *lw) {
  const kiln_expr *v[3], *n = NULL;
  for (int i = 0; i < 3; i++) {
    int count = 0;
    const kiln_expr *const *values = NULL;
    KILN_TRY(kiln_lower_shape_values(lw, i, &count, &values));
    KILN_TRY(want_one(lw, i, count));
    v[i] = values[0];
  }
  KILN_TRY(integer_count(lw, v, &n));
  fill(lw, lw->inputs[0]->dtype, n, v[0], v[2]);
  return KILN_OK;
}

static kiln_status lower_floats(kiln_lower *lw) {
  kiln_ctx *cx = lw->cx;
  double v[3];
  for (int i = 0; i < 3; i++) {
    int count = 0;
    const double *values = NULL;
    KILN_TRY(kiln_lower_const_floats(lw, i, &count, &values));
    KILN_TRY(want_one(lw, i, count));
    v[i] = values[0];
  }
  if (v[2] == 0) return zero_delta(lw);
  const kiln_dtype t = lw->inputs[0]->dtype;
  const double span = kiln_float_round(t, v[1] - v[0]), n = ceil(span / v[2]);
  if (!(n < 1e15))
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, lw->place,
                     "range: must have a finite number of elements, got %g", n);
  fill(lw, t, kiln_int(cx, n > 0 ? (int64_t)n : 0), kiln_float(cx, t, v[0]),
       kiln_float(cx, t, v[2]));
  return KILN_OK;
}

static kiln_status lower_range(kiln_lower *lw) {
  KILN_TRY(kiln_lower_want_inputs(lw, 3, 3));
  for (int i = 1; i < 3; i++)
    if (lw->inputs[i]->dtype != lw->inputs[0]->dtype)
      return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                       "input %d: must have the element type of the first, %s, got %s", i,
                       kiln_dtype_text(lw->inputs[0]->dtype),
                       kiln_dtype_text(lw->inputs[i]->dtype));
  return kiln_dtype_is_float(lw->inputs[0]->dtype) ? lower_floats(lw) : lower_integers(lw);
}

const kiln_op kiln_op_range[] = {
    {"", "Range", 11, 0, lower_range, NULL, "ops/range.c"},
    {0},
};
