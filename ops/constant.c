// Constant: the tensor of one of its attributes. source: ONNX Constant-1, 9, 11, 12, 13, 19
#include "fission/lower.h"

static kiln_tensor *scalar_or_list(kiln_lower *lw, const kiln_attr *a) {
  const int64_t n = a->n;
  if (a->kind == KILN_ATTR_FLOAT)
    return kiln_lower_make_const(lw, NULL, KILN_F32, 0, NULL, &a->u.f);
  if (a->kind == KILN_ATTR_INT) return kiln_lower_make_const(lw, NULL, KILN_I64, 0, NULL, &a->u.i);
  if (a->kind == KILN_ATTR_FLOATS)
    return kiln_lower_make_const(lw, NULL, KILN_F32, 1, &n, a->u.floats);
  if (a->kind == KILN_ATTR_INTS) return kiln_lower_make_const(lw, NULL, KILN_I64, 1, &n, a->u.ints);
  return NULL;
}

static kiln_status lower_constant(kiln_lower *lw) {
  static const char *const names[] = {"value", "value_float", "value_floats", "value_int",
                                      "value_ints"};
  KILN_TRY(kiln_lower_want_inputs(lw, 0, 0));
  for (size_t i = 0; i < KILN_LEN(names); i++) {
    const kiln_attr *a = kiln_lower_attr(lw, names[i]);
    if (!a) continue;
    lw->outputs[0] = a->kind == KILN_ATTR_TENSOR
                         ? kiln_tensor_make_const(lw->cx, lw->prog, "constant", a->u.tensor)
                         : scalar_or_list(lw, a);
    if (lw->outputs[0]) return KILN_OK;
  }
  return KILN_FAIL(lw->cx->diag, KILN_UNSUPPORTED, lw->place,
                   "attributes: must give a dense tensor of numbers, got none");
}

const kiln_op kiln_op_constant[] = {
    {"", "Constant", 1, 0, lower_constant, NULL, "ops/constant.c"},
    {0},
};
