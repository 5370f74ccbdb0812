// HannWindow, HammingWindow and BlackmanWindow: a0 - a1*cos(2*pi*n/N) + a2*cos(4*pi*n/N), where N
// is the size, or the size less one unless periodic. source: ONNX HannWindow-17, HammingWindow-17,
// BlackmanWindow-17
#include "fission/terms.h"

static kiln_status lower_window(kiln_lower *lw, double a0, double a1, double a2) {
  static const double two_pi = 6.283185307179586;
  kiln_ctx *cx = lw->cx;
  int64_t periodic = 1, code = 1;
  int n = -1;
  kiln_dtype t = KILN_F32;
  const kiln_expr *const *size = NULL;
  KILN_TRY(kiln_lower_want_inputs(lw, 1, 1));
  KILN_TRY(kiln_lower_int(lw, "periodic", 1, &periodic));
  KILN_TRY(kiln_lower_int(lw, "output_datatype", 1, &code));
  KILN_TRY(kiln_lower_shape_values(lw, 0, &n, &size));
  if (n != 1)
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, lw->place, "size: must be one number, got %d", n);
  if (!kiln_dtype_of_onnx(code, &t) || !kiln_dtype_is_number(t))
    return KILN_FAIL(cx->diag, KILN_UNSUPPORTED, lw->place,
                     "output_datatype: must be a number type that Kiln has, got %" PRId64, code);
  const kiln_expr *span = periodic ? size[0] : kiln_sub(cx, size[0], kiln_int(cx, 1));
  const kiln_dtype sum = t == KILN_F64 ? KILN_F64 : KILN_F32;
  kiln_stmt *s = kiln_lower_stmt(lw, "window", t, 1, 0, size);
  const kiln_expr *at = kiln_cast(cx, sum, kiln_stmt_var(cx, s, 0));
  const kiln_expr *turns = kiln_div(cx, at, kiln_cast(cx, sum, span));
  const kiln_expr *once = kiln_mul(cx, turns, kiln_float(cx, sum, two_pi));
  const kiln_expr *twice = kiln_mul(cx, turns, kiln_float(cx, sum, 2 * two_pi));
  const kiln_expr *y = kiln_mul(cx, kiln_float(cx, sum, a1), kiln_unary(cx, KILN_EXPR_COS, once));
  y = kiln_sub(cx, kiln_float(cx, sum, a0), y);
  if (a2 != 0)
    y = kiln_add(cx, y,
                 kiln_mul(cx, kiln_float(cx, sum, a2), kiln_unary(cx, KILN_EXPR_COS, twice)));
  s->body = kiln_cast(cx, t, y);
  lw->outputs[0] = kiln_lower_tensor(lw, s);
  return KILN_OK;
}

static kiln_status lower_hann(kiln_lower *lw) { return lower_window(lw, 0.5, 0.5, 0); }

static kiln_status lower_hamming(kiln_lower *lw) {
  return lower_window(lw, 25.0 / 46, 21.0 / 46, 0);
}

static kiln_status lower_blackman(kiln_lower *lw) { return lower_window(lw, 0.42, 0.5, 0.08); }

const kiln_op kiln_op_window_functions[] = {
    {"", "HannWindow", 17, 0, lower_hann, NULL, "ops/window_functions.c"},
    {"", "HammingWindow", 17, 0, lower_hamming, NULL, "ops/window_functions.c"},
    {"", "BlackmanWindow", 17, 0, lower_blackman, NULL, "ops/window_functions.c"},
    {0},
};
