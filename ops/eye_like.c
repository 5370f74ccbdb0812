// EyeLike: ones on a diagonal. source: ONNX EyeLike-9, 22
#include "fission/terms.h"

static kiln_status lower_eye_like(kiln_lower *lw) {
  kiln_ctx *cx = lw->cx;
  KILN_TRY(kiln_lower_want_inputs(lw, 1, 1));
  const kiln_tensor *x = lw->inputs[0];
  KILN_TRY(kiln_lower_want_rank(lw, x, 2, 2));
  int64_t code = kiln_dtype_onnx(x->dtype), k = 0;
  kiln_dtype t = x->dtype;
  KILN_TRY(kiln_lower_int(lw, "dtype", code, &code));
  KILN_TRY(kiln_lower_int(lw, "k", 0, &k));
  if (!kiln_dtype_of_onnx(code, &t))
    return KILN_FAIL(cx->diag, KILN_UNSUPPORTED, lw->place,
                     "attribute dtype: must be an element type that Kiln has, got %" PRId64, code);
  const kiln_expr *index[KILN_MAX_RANK];
  kiln_stmt *s = kiln_lower_like(lw, NULL, x, t, index);
  const kiln_expr *hit =
      kiln_compare(cx, KILN_EXPR_EQ, kiln_sub(cx, index[1], index[0]), kiln_int(cx, k));
  s->body = kiln_select(cx, hit, kiln_number(cx, t, 1), kiln_number(cx, t, 0));
  lw->outputs[0] = kiln_lower_tensor(lw, s);
  return KILN_OK;
}

const kiln_op kiln_op_eye_like[] = {
    {"", "EyeLike", 9, 0, lower_eye_like, NULL, "ops/eye_like.c"},
    {0},
};
