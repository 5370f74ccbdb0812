// Range: integer bounds may be named dimensions, or known to the run alone.
// source: ONNX Range-11, 27
#include "fission/data_dependent.h"
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
  *out = kiln_lower_positive(lw, n);
  return kiln_lower_want_bound(lw, *out);
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

// The count by the run: start, limit and delta are scalars that it knows.
static kiln_status counted(kiln_lower *lw, const kiln_expr *const *v, const kiln_expr **out) {
  kiln_ctx *cx = lw->cx;
  const kiln_dtype t = v[0]->dtype;
  const bool is_float = kiln_dtype_is_float(t);
  const kiln_expr *zero = is_float ? kiln_float(cx, t, 0) : kiln_int(cx, 0), *n = NULL,
                  *span = kiln_sub(cx, v[1], v[0]);
  kiln_stmt *s = kiln_lower_stmt(lw, "count", KILN_I64, 0, 0, NULL);
  if (is_float) {
    n = kiln_cast(cx, KILN_I64, kiln_unary(cx, KILN_EXPR_CEIL, kiln_div(cx, span, v[2])));
  } else {
    const kiln_expr *up = kiln_compare(cx, KILN_EXPR_GT, v[2], zero),
                    *back = kiln_sub(cx, zero, v[2]);
    n = kiln_ceil_div(cx, kiln_select(cx, up, span, kiln_sub(cx, zero, span)),
                      kiln_most(cx, kiln_select(cx, up, v[2], back), kiln_int(cx, 1)));
  }
  s->body = kiln_most(cx, n, kiln_int(cx, 0));
  return kiln_lower_run_extent(lw, kiln_lower_tensor(lw, s), "elements", out);
}

// A range of which the run alone knows the start, the step or a number that is no integer.
static kiln_status lower_counted(kiln_lower *lw) {
  const kiln_dtype t = lw->inputs[0]->dtype, wide = kiln_dtype_is_float(t) ? t : KILN_I64;
  const kiln_expr *v[3], *n = NULL;
  for (int i = 0; i < 3; i++) KILN_TRY(kiln_lower_scalar(lw, lw->inputs[i], wide, "input", &v[i]));
  KILN_TRY(counted(lw, v, &n));
  fill(lw, t, n, v[0], v[2]);
  return KILN_OK;
}

static bool is_known(const kiln_lower *lw, int i) {
  return lw->inputs[i]->role == KILN_CONST || kiln_lower_values(lw, lw->inputs[i]);
}

static kiln_status lower_integers(kiln_lower *lw) {
  const kiln_expr *v[3], *n = NULL;
  for (int i = 0; i < 3; i++) {
    int count = 0;
    const kiln_expr *const *values = NULL;
    KILN_TRY(kiln_lower_run_values(lw, i, KILN_VALUE_SIGNED, &count, &values));
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
  const bool is_float = kiln_dtype_is_float(lw->inputs[0]->dtype);
  const bool all = is_known(lw, 0) && is_known(lw, 1) && is_known(lw, 2);
  if (is_float ? !all : !is_known(lw, 0) || !is_known(lw, 2)) return lower_counted(lw);
  return is_float ? lower_floats(lw) : lower_integers(lw);
}

const kiln_op kiln_op_range[] = {
    {"", "Range", 11, 0, lower_range, NULL, "ops/range.c"},
    {0},
};
