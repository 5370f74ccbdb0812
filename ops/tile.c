// Tile: a load at the place modulo the extent. source: ONNX Tile-1, 6, 13
#include "fission/terms.h"

// repeats[rank]; opset 1 repeats one axis.
static kiln_status read_repeats(kiln_lower *lw, int rank, const kiln_expr **out) {
  kiln_ctx *cx = lw->cx;
  int n = -1, n_axis = -1, axis = 0;
  const kiln_expr *const *repeats = NULL;
  KILN_TRY(kiln_lower_shape_values(lw, 1, &n, &repeats));
  if (lw->node->opset < 6) {
    const int64_t *at = NULL;
    KILN_TRY(kiln_lower_want_inputs(lw, 3, 3));
    KILN_TRY(kiln_lower_const_ints(lw, 2, &n_axis, &at));
    if (n != 1 || n_axis != 1)
      return KILN_FAIL(cx->diag, KILN_BAD_INPUT, lw->place,
                       "tiles and axis: must be scalars, got %d and %d elements", n, n_axis);
    KILN_TRY(kiln_lower_axis(lw, at[0], rank, false, &axis));
    for (int i = 0; i < rank; i++) out[i] = i == axis ? repeats[0] : kiln_int(cx, 1);
    return KILN_OK;
  }
  if (n != rank)
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, lw->place, "repeats: must have %d entries, got %d",
                     rank, n);
  for (int i = 0; i < rank; i++) out[i] = repeats[i];
  return KILN_OK;
}

static kiln_status lower_tile(kiln_lower *lw) {
  kiln_ctx *cx = lw->cx;
  KILN_TRY(kiln_lower_want_inputs(lw, 2, 3));
  const kiln_tensor *x = lw->inputs[0];
  const kiln_expr *repeats[KILN_MAX_RANK], *extents[KILN_MAX_RANK], *at[KILN_MAX_RANK];
  KILN_TRY(read_repeats(lw, x->rank, repeats));
  for (int i = 0; i < x->rank; i++) {
    int64_t v = 0;
    if (kiln_expr_is_int(repeats[i], &v) && (v < 0 || v > INT32_MAX))
      return KILN_FAIL(cx->diag, KILN_BAD_INPUT, lw->place,
                       "repeats: must lie in [0, 2^31), got %" PRId64, v);
    extents[i] = kiln_lower_tidy(cx, kiln_mul(cx, x->shape[i], repeats[i]));
  }
  kiln_stmt *s = kiln_lower_stmt(lw, "tile", x->dtype, x->rank, 0, extents);
  kiln_stmt_vars(cx, s, 0, x->rank, at);
  for (int i = 0; i < x->rank; i++) {
    if (kiln_expr_is(x->shape[i], 1)) at[i] = kiln_int(cx, 0);
    else if (!kiln_expr_is(repeats[i], 1)) at[i] = kiln_mod(cx, at[i], x->shape[i]);
  }
  kiln_lower_move(lw, s, x, at, 0);
  return KILN_OK;
}

const kiln_op kiln_op_tile[] = {
    {"", "Tile", 1, 0, lower_tile, NULL, "ops/tile.c"},
    {0},
};
