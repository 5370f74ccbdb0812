// DepthToSpace (DCR and CRD) and SpaceToDepth: index maps of constants. source: ONNX
// DepthToSpace-1, 11, 13; SpaceToDepth-1, 13, 28
#include "fission/terms.h"

#include <string.h>

static kiln_status read_block(kiln_lower *lw, int64_t *out) {
  KILN_TRY(kiln_lower_want_inputs(lw, 1, 1));
  KILN_TRY(kiln_lower_want_rank(lw, lw->inputs[0], 4, 4));
  KILN_TRY(kiln_lower_int(lw, "blocksize", 0, out));
  if (*out >= 1 && *out <= INT16_MAX) return KILN_OK;
  return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                   "blocksize: must be positive, got %" PRId64, *out);
}

static kiln_status want_multiple(kiln_lower *lw, const kiln_tensor *x, int axis, int64_t of) {
  int64_t v = 0;
  if (!kiln_expr_is_int(x->shape[axis], &v) || v % of == 0) return KILN_OK;
  return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                   "axis %d: must be a multiple of %" PRId64 ", got %" PRId64, axis, of, v);
}

// CRD: the channel is the outer part of the depth axis; DCR: the block is.
static kiln_status read_mode(kiln_lower *lw, bool *out_crd) {
  const char *mode = NULL;
  KILN_TRY(kiln_lower_string(lw, "mode", "DCR", &mode));
  *out_crd = !strcmp(mode, "CRD");
  if (*out_crd || !strcmp(mode, "DCR")) return KILN_OK;
  return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place, "mode: must be DCR or CRD, got %s",
                   mode);
}

static kiln_status lower_depth_to_space(kiln_lower *lw) {
  kiln_ctx *cx = lw->cx;
  int64_t block = 0;
  bool crd = false;
  KILN_TRY(read_block(lw, &block));
  KILN_TRY(read_mode(lw, &crd));
  const kiln_tensor *x = lw->inputs[0];
  KILN_TRY(want_multiple(lw, x, 1, block * block));
  const kiln_expr *b = kiln_int(cx, block), *square = kiln_int(cx, block * block);
  const kiln_expr *channels = kiln_lower_tidy(cx, kiln_div(cx, x->shape[1], square));
  const kiln_expr *extents[] = {x->shape[0], channels,
                                kiln_lower_tidy(cx, kiln_mul(cx, x->shape[2], b)),
                                kiln_lower_tidy(cx, kiln_mul(cx, x->shape[3], b))};
  kiln_stmt *s = kiln_lower_stmt(lw, "depth_to_space", x->dtype, 4, 0, extents);
  const kiln_expr *at[4];
  kiln_stmt_vars(cx, s, 0, 4, at);
  const kiln_expr *inner =
      kiln_add(cx, kiln_mul(cx, kiln_mod(cx, at[2], b), b), kiln_mod(cx, at[3], b));
  at[1] = crd ? kiln_add(cx, kiln_mul(cx, at[1], square), inner)
              : kiln_add(cx, kiln_mul(cx, inner, channels), at[1]);
  at[2] = kiln_div(cx, at[2], b);
  at[3] = kiln_div(cx, at[3], b);
  kiln_lower_move(lw, s, x, at, 0);
  return KILN_OK;
}

static kiln_status lower_space_to_depth(kiln_lower *lw) {
  kiln_ctx *cx = lw->cx;
  int64_t block = 0;
  bool crd = false;
  KILN_TRY(read_block(lw, &block));
  KILN_TRY(read_mode(lw, &crd));
  const kiln_tensor *x = lw->inputs[0];
  KILN_TRY(want_multiple(lw, x, 2, block));
  KILN_TRY(want_multiple(lw, x, 3, block));
  const kiln_expr *b = kiln_int(cx, block), *channels = x->shape[1];
  const kiln_expr *square = kiln_int(cx, block * block);
  const kiln_expr *extents[] = {x->shape[0], kiln_lower_tidy(cx, kiln_mul(cx, channels, square)),
                                kiln_lower_tidy(cx, kiln_div(cx, x->shape[2], b)),
                                kiln_lower_tidy(cx, kiln_div(cx, x->shape[3], b))};
  kiln_stmt *s = kiln_lower_stmt(lw, "space_to_depth", x->dtype, 4, 0, extents);
  const kiln_expr *at[4];
  kiln_stmt_vars(cx, s, 0, 4, at);
  const kiln_expr *inner = crd ? kiln_mod(cx, at[1], square) : kiln_div(cx, at[1], channels);
  at[1] = crd ? kiln_div(cx, at[1], square) : kiln_mod(cx, at[1], channels);
  at[2] = kiln_add(cx, kiln_mul(cx, at[2], b), kiln_div(cx, inner, b));
  at[3] = kiln_add(cx, kiln_mul(cx, at[3], b), kiln_mod(cx, inner, b));
  kiln_lower_move(lw, s, x, at, 0);
  return KILN_OK;
}

const kiln_op kiln_op_depth_to_space[] = {
    {"", "DepthToSpace", 1, 0, lower_depth_to_space, NULL, "ops/depth_to_space.c"},
    {"", "SpaceToDepth", 1, 0, lower_space_to_depth, NULL, "ops/depth_to_space.c"},
    {0},
};
