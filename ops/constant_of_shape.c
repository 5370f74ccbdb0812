// ConstantOfShape: one value everywhere. source: ONNX ConstantOfShape-9, 20, 21
#include "analysis/interpret.h"
#include "fission/terms.h"

static kiln_status lower_constant_of_shape(kiln_lower *lw) {
  kiln_ctx *cx = lw->cx;
  KILN_TRY(kiln_lower_want_inputs(lw, 1, 1));
  int n = 0;
  const kiln_expr *const *shape = NULL;
  KILN_TRY(kiln_lower_shape_values(lw, 0, &n, &shape));
  if (n > KILN_MAX_RANK)
    return KILN_FAIL(cx->diag, KILN_UNSUPPORTED, lw->place,
                     "input 0: must name at most %d axes, got %d", KILN_MAX_RANK, n);
  int64_t extent = 0;
  for (int a = 0; a < n; a++)
    if (kiln_expr_is_int(shape[a], &extent) && extent < 0)
      return KILN_FAIL(cx->diag, KILN_BAD_INPUT, lw->place,
                       "input 0: extents must be >= 0, got %" PRId64, extent);
  const kiln_expr *value = kiln_float(cx, KILN_F32, 0);
  const kiln_attr *a = kiln_lower_attr(lw, "value");
  if (a) {
    if (a->kind != KILN_ATTR_TENSOR || !a->u.tensor->data ||
        a->u.tensor->bytes != (size_t)kiln_dtype_bytes(a->u.tensor->dtype))
      return KILN_FAIL(cx->diag, KILN_BAD_INPUT, lw->place,
                       "attribute value: must be a tensor of one element");
    const kiln_dtype t = a->u.tensor->dtype;
    value = kiln_dtype_is_float(t)
                ? kiln_float(cx, t, kiln_element_get(t, a->u.tensor->data, 0))
                : kiln_int_of(cx, t, kiln_element_get_int(t, a->u.tensor->data, 0));
  }
  kiln_stmt *s = kiln_lower_stmt(lw, NULL, value->dtype, n, 0, shape);
  s->body = value;
  lw->outputs[0] = kiln_lower_tensor(lw, s);
  return KILN_OK;
}

const kiln_op kiln_op_constant_of_shape[] = {
    {"", "ConstantOfShape", 9, 0, lower_constant_of_shape, NULL, "ops/constant_of_shape.c"},
    {0},
};
