// AffineGrid: the places theta * (x, y, 1) or theta * (x, y, z, 1) of a grid over [-1, 1].
// source: ONNX AffineGrid-20
#include "fission/terms.h"

// The coordinate of element |i| of |extent|: of its centre, or of the corners where they are
// aligned.
static const kiln_expr *coordinate(kiln_ctx *cx, kiln_dtype t, const kiln_expr *i,
                                   const kiln_expr *extent, bool align_corners) {
  const kiln_expr *one = kiln_int(cx, 1), *two = kiln_int(cx, 2);
  const kiln_expr *twice = kiln_mul(cx, i, two);
  if (!align_corners) twice = kiln_add(cx, twice, one);
  // One element between two corners is the first.
  const kiln_expr *span = align_corners ? kiln_most(cx, one, kiln_sub(cx, extent, one)) : extent;
  const kiln_expr *part = kiln_div(cx, kiln_cast(cx, t, twice), kiln_cast(cx, t, span));
  return kiln_sub(cx, part, kiln_float(cx, t, 1));
}

static kiln_status lower_affine_grid(kiln_lower *lw) {
  kiln_ctx *cx = lw->cx;
  int64_t align = 0;
  int n_size = 0;
  const kiln_expr *const *size = NULL;
  KILN_TRY(kiln_lower_want_inputs(lw, 2, 2));
  KILN_TRY(kiln_lower_want_dtype(lw, 0, kiln_dtype_is_float, "a float"));
  KILN_TRY(kiln_lower_int(lw, "align_corners", 0, &align));
  KILN_TRY(kiln_lower_shape_values(lw, 1, &n_size, &size));
  const kiln_tensor *theta = lw->inputs[0]; // (N, n, n + 1)
  const int n = n_size - 2;
  if (n != 2 && n != 3)
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, lw->place, "size: must have 4 or 5 extents, got %d",
                     n_size);
  KILN_TRY(kiln_lower_want_rank(lw, theta, 3, 3));
  KILN_TRY(kiln_lower_want_extent(lw, theta, 0, size[0]));
  KILN_TRY(kiln_lower_want_extent(lw, theta, 1, kiln_int(cx, n)));
  KILN_TRY(kiln_lower_want_extent(lw, theta, 2, kiln_int(cx, n + 1)));
  const kiln_expr *extents[KILN_MAX_RANK] = {theta->shape[0]}, *v[KILN_MAX_RANK];
  for (int i = 0; i < n; i++) extents[1 + i] = size[2 + i];
  extents[1 + n] = kiln_int(cx, n);
  const kiln_dtype t = kiln_accumulator(theta->dtype);
  kiln_stmt *s = kiln_lower_stmt(lw, "affine_grid", theta->dtype, 2 + n, 0, extents);
  kiln_stmt_vars(cx, s, 0, 2 + n, v);
  const kiln_expr *sum = NULL;
  for (int j = 0; j <= n; j++) {
    const kiln_expr *at[] = {v[0], v[1 + n], kiln_int(cx, j)};
    const kiln_expr *term = kiln_cast(cx, t, kiln_tensor_load(cx, theta, at));
    const int axis = n - 1 - j; // x, the last axis, comes first
    if (j < n)
      term = kiln_mul(cx, term, coordinate(cx, t, v[1 + axis], size[2 + axis], align != 0));
    sum = sum ? kiln_add(cx, sum, term) : term;
  }
  s->body = kiln_cast(cx, theta->dtype, sum);
  lw->outputs[0] = kiln_lower_tensor(lw, s);
  return KILN_OK;
}

const kiln_op kiln_op_affine_grid[] = {
    {"", "AffineGrid", 20, 0, lower_affine_grid, NULL, "ops/affine_grid.c"},
    {0},
};
