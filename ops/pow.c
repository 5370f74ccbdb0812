// Pow. The result has the type of the base. Integers are raised as integers, and wrap. A float is
// raised in single precision, in double where that does not hold the exponent. source: ONNX Pow-1,
// 7, 12, 13, 15
#include "analysis/interpret.h"
#include "fission/bytes.h"
#include "fission/terms.h"

// Whether f32 holds every element of |t|, by its type or, of a constant, by its values.
static bool fits_single(const kiln_tensor *t) {
  const kiln_dtype d = t->dtype;
  if (d != KILN_F64 && !(kiln_dtype_is_int(d) && kiln_dtype_bytes(d) >= 4)) return true;
  if (t->role != KILN_CONST) return false;
  const int64_t n = kiln_tensor_elems(t);
  for (int64_t i = 0; i < n; i++) {
    const double v = kiln_element_get(d, t->data, i);
    if ((double)(float)v != v && v == v) return false;
  }
  return true;
}

// Exact modulo 2^bits. Of a negative exponent nothing is left but of 1 and -1.
static const kiln_expr *integer_power(kiln_ctx *cx, const kiln_expr *x, const kiln_expr *y) {
  const bool is_wide =
      kiln_order_key_type(x->dtype) == KILN_I64 || kiln_order_key_type(y->dtype) == KILN_I64;
  const bool grows = kiln_dtype_kind(y->dtype) == KILN_KIND_UINT;
  const kiln_dtype t = !is_wide ? KILN_I32 : grows || x->dtype == KILN_U64 ? KILN_U64 : KILN_I64;
  const kiln_expr *wide_y = kiln_cast(cx, t, y);
  const kiln_expr *power = kiln_binary(cx, KILN_EXPR_POW, kiln_cast(cx, t, x), wide_y);
  if (grows || t != KILN_U64) return kiln_cast(cx, x->dtype, power);
  const kiln_expr *falls = kiln_compare(cx, KILN_EXPR_LT, y, kiln_int_of(cx, y->dtype, 0));
  const kiln_expr *one = kiln_int_of(cx, x->dtype, 1);
  const kiln_expr *is_one = kiln_compare(cx, KILN_EXPR_EQ, x, one);
  return kiln_select(cx, falls, kiln_select(cx, is_one, one, kiln_int_of(cx, x->dtype, 0)),
                     kiln_cast(cx, x->dtype, power));
}

static const kiln_expr *float_power(kiln_ctx *cx, kiln_dtype t, const kiln_expr *x,
                                    const kiln_expr *y) {
  return kiln_cast(cx, x->dtype, kiln_power(cx, kiln_cast(cx, t, x), kiln_cast(cx, t, y)));
}

// Before opset 7 the exponent's axes are those of the base from |axis| on, the last ones by
// default.
static kiln_status align_exponent(kiln_lower *lw, kiln_tensor **y) {
  const kiln_tensor *x = lw->inputs[0];
  int64_t given = 0;
  int axis = 0;
  if (!kiln_lower_attr(lw, "axis")) return KILN_OK;
  KILN_TRY(kiln_lower_int(lw, "axis", 0, &given));
  KILN_TRY(kiln_lower_axis(lw, given, x->rank, false, &axis));
  const kiln_expr *shape[KILN_MAX_RANK];
  int rank = 0;
  for (; rank < (*y)->rank; rank++) shape[rank] = (*y)->shape[rank];
  for (; rank + axis < x->rank; rank++) shape[rank] = kiln_int(lw->cx, 1);
  *y = kiln_lower_reshape(lw, *y, rank, shape);
  return KILN_OK;
}

static kiln_status lower_pow(kiln_lower *lw) {
  kiln_ctx *cx = lw->cx;
  KILN_TRY(kiln_lower_want_inputs(lw, 2, 2));
  for (int i = 0; i < 2; i++)
    KILN_TRY(kiln_lower_want_dtype(lw, i, kiln_dtype_has_order, "numbers"));
  kiln_tensor *in[] = {lw->inputs[0], lw->inputs[1]};
  if (lw->node->opset < 7) KILN_TRY(align_exponent(lw, &in[1]));
  const kiln_dtype t = in[0]->dtype;
  const kiln_expr *extents[KILN_MAX_RANK];
  int rank = 0;
  KILN_TRY(kiln_lower_broadcast(lw, 2, in, &rank, extents));
  kiln_stmt *s = kiln_lower_stmt(lw, NULL, t, rank, 0, extents);
  const kiln_expr *x = kiln_lower_load_broadcast(lw, in[0], s, 0, rank), *y = NULL;
  if (kiln_tensor_is_scalar(in[1]))
    KILN_TRY(kiln_lower_scalar(lw, in[1], in[1]->dtype, "the exponent", &y));
  else y = kiln_lower_load_broadcast(lw, in[1], s, 0, rank);
  const bool is_integer = kiln_dtype_is_int(t) && kiln_dtype_is_int(in[1]->dtype);
  const bool is_single = !kiln_dtype_is_int(t) && t != KILN_F64 && fits_single(in[1]);
  s->body =
      is_integer ? integer_power(cx, x, y) : float_power(cx, is_single ? KILN_F32 : KILN_F64, x, y);
  lw->outputs[0] = kiln_lower_tensor(lw, s);
  return KILN_OK;
}

const kiln_op kiln_op_pow[] = {
    {"", "Pow", 1, 0, lower_pow, NULL, "ops/pow.c"},
    {0},
};
