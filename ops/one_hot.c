// OneHot: on where the new axis equals the index, off elsewhere. source: ONNX OneHot-9, 11
#include "fission/terms.h"

static kiln_status read_depth(kiln_lower *lw, const kiln_expr **out) {
  int n = 0;
  if (kiln_dtype_is_float(lw->inputs[1]->dtype)) {
    const double *values = NULL;
    KILN_TRY(kiln_lower_const_floats(lw, 1, &n, &values));
    const bool fits = n == 1 && values[0] >= 0 && values[0] < 0x1p53;
    *out = kiln_int(lw->cx, fits ? (int64_t)values[0] : -1);
  } else {
    const kiln_expr *const *values = NULL;
    KILN_TRY(kiln_lower_shape_values(lw, 1, &n, &values));
    *out = n == 1 ? values[0] : kiln_int(lw->cx, -1);
  }
  int64_t depth = 0;
  if (kiln_expr_is_int(*out, &depth) && depth < 0)
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                     "input 1 (depth): must be one number >= 0, got %d %s", n,
                     n == 1 ? "that is not" : "numbers");
  return KILN_OK;
}

static kiln_status lower_one_hot(kiln_lower *lw) {
  kiln_ctx *cx = lw->cx;
  KILN_TRY(kiln_lower_want_inputs(lw, 3, 3));
  const kiln_tensor *x = lw->inputs[0], *values = lw->inputs[2];
  int64_t given = -1;
  int axis = 0;
  const kiln_expr *depth = NULL, *extents[KILN_MAX_RANK + 1], *index[KILN_MAX_RANK];
  KILN_TRY(kiln_lower_want_rank(lw, x, 0, KILN_MAX_RANK - 1));
  KILN_TRY(kiln_lower_want_rank(lw, values, 1, 1));
  KILN_TRY(kiln_lower_want_extent(lw, values, 0, kiln_int(lw->cx, 2)));
  KILN_TRY(kiln_lower_int(lw, "axis", -1, &given));
  KILN_TRY(kiln_lower_axis(lw, given, x->rank + 1, false, &axis));
  KILN_TRY(read_depth(lw, &depth));
  for (int a = 0; a <= x->rank; a++) extents[a] = a == axis ? depth : x->shape[a - (a > axis)];
  kiln_stmt *s = kiln_lower_stmt(lw, NULL, values->dtype, x->rank + 1, 0, extents);
  for (int a = 0; a < x->rank; a++) index[a] = kiln_stmt_var(cx, s, a + (a >= axis));
  const kiln_expr *at = kiln_cast(cx, KILN_I64, kiln_tensor_load(cx, x, index));
  const kiln_expr *negative = kiln_compare(cx, KILN_EXPR_LT, at, kiln_int(cx, 0));
  at = kiln_select(cx, negative, kiln_add(cx, at, depth), at);
  const kiln_expr *one = kiln_int(cx, 1), *zero = kiln_int(cx, 0);
  s->body = kiln_select(cx, kiln_compare(cx, KILN_EXPR_EQ, at, kiln_stmt_var(cx, s, axis)),
                        kiln_tensor_load(cx, values, &one), kiln_tensor_load(cx, values, &zero));
  lw->outputs[0] = kiln_lower_tensor(lw, s);
  return KILN_OK;
}

const kiln_op kiln_op_one_hot[] = {
    {"", "OneHot", 9, 0, lower_one_hot, NULL, "ops/one_hot.c"},
    {0},
};
