// CenterCropPad: crops or pads axes around their centre. source: ONNX CenterCropPad-18
#include "fission/terms.h"

static kiln_status lower_center_crop_pad(kiln_lower *lw) {
  kiln_ctx *cx = lw->cx;
  KILN_TRY(kiln_lower_want_inputs(lw, 2, 2));
  const kiln_tensor *x = lw->inputs[0];
  int n_axes = -1, n = -1, axes[KILN_MAX_RANK];
  const kiln_expr *const *sizes = NULL;
  KILN_TRY(kiln_lower_axes(lw, "axes", -1, x->rank, &n_axes, axes));
  KILN_TRY(kiln_lower_known_values(lw, 1, &n, &sizes));
  if (n_axes < 0)
    for (n_axes = 0; n_axes < x->rank; n_axes++) axes[n_axes] = n_axes;
  if (n != n_axes)
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, lw->place, "shape: must have %d entries, got %d",
                     n_axes, n);
  const kiln_expr *extents[KILN_MAX_RANK], *at[KILN_MAX_RANK], *inside = NULL;
  const kiln_expr *zero = kiln_int(cx, 0), *two = kiln_int(cx, 2);
  for (int i = 0; i < x->rank; i++) extents[i] = x->shape[i];
  for (int i = 0; i < n; i++) {
    int64_t size = 0;
    if (kiln_expr_is_int(sizes[i], &size) && size < 0)
      return KILN_FAIL(cx->diag, KILN_BAD_INPUT, lw->place,
                       "shape: must not be negative, got %" PRId64, size);
    extents[axes[i]] = sizes[i];
  }
  kiln_stmt *s = kiln_lower_stmt(lw, "center_crop_pad", x->dtype, x->rank, 0, extents);
  kiln_stmt_vars(cx, s, 0, x->rank, at);
  for (int i = 0; i < n; i++) {
    const int a = axes[i];
    const kiln_expr *cut = kiln_most(cx, kiln_sub(cx, x->shape[a], sizes[i]), zero);
    const kiln_expr *filled = kiln_most(cx, kiln_sub(cx, sizes[i], x->shape[a]), zero);
    const kiln_expr *shift = kiln_sub(cx, kiln_div(cx, cut, two), kiln_div(cx, filled, two));
    at[a] = kiln_add(cx, at[a], kiln_lower_tidy(cx, shift));
    if (kiln_expr_is(filled, 0)) continue;
    inside = kiln_both(cx, inside, kiln_compare(cx, KILN_EXPR_GE, at[a], zero));
    inside = kiln_both(cx, inside, kiln_compare(cx, KILN_EXPR_LT, at[a], x->shape[a]));
  }
  kiln_lower_move(lw, s, x, at, 0);
  if (inside) s->body = kiln_select(cx, inside, s->body, kiln_number(cx, x->dtype, 0));
  return KILN_OK;
}

const kiln_op kiln_op_center_crop_pad[] = {
    {"", "CenterCropPad", 18, 0, lower_center_crop_pad, NULL, "ops/center_crop_pad.c"},
    {0},
};
