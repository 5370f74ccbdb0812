// Split: one load a part. source: ONNX Split-1, 2, 11, 13, 18
#include "fission/data_dependent.h"
#include "fission/terms.h"

static kiln_status equal_parts(kiln_lower *lw, const kiln_expr *extent, int n,
                               const kiln_expr **out) {
  kiln_ctx *cx = lw->cx;
  int64_t all = 0, part = 0;
  const bool known = kiln_expr_is_int(extent, &all);
  const kiln_expr *size = kiln_lower_tidy(cx, kiln_ceil_div(cx, extent, kiln_int(cx, n)));
  if (lw->node->opset < 18) { // the last part may be smaller from opset 18 on
    if (known && all % n != 0)
      return KILN_FAIL(cx->diag, KILN_BAD_INPUT, lw->place,
                       "the extent %" PRId64 " must be divisible by the %d outputs", all, n);
    size = kiln_lower_tidy(cx, kiln_div(cx, extent, kiln_int(cx, n)));
  }
  for (int i = 0; i < n; i++) out[i] = size;
  const kiln_expr *rest = kiln_sub(cx, extent, kiln_mul(cx, size, kiln_int(cx, n - 1)));
  if (lw->node->opset >= 18) out[n - 1] = kiln_lower_tidy(cx, rest);
  if (known && kiln_expr_is_int(out[n - 1], &part) && part < 0)
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, lw->place,
                     "num_outputs: must be possible for extent %" PRId64 ", got %d", all, n);
  return KILN_OK;
}

static kiln_status given_parts(kiln_lower *lw, const kiln_expr *extent, int n,
                               const kiln_expr *const *sizes, const kiln_expr **out) {
  kiln_ctx *cx = lw->cx;
  if (n != lw->n_outputs)
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, lw->place,
                     "split: must have one entry for each of the %d outputs, got %d", lw->n_outputs,
                     n);
  const kiln_expr *sum = kiln_int(cx, 0);
  int64_t have = 0, want = 0, size = 0;
  for (int i = 0; i < n; i++) {
    out[i] = sizes[i];
    if (kiln_expr_is_int(sizes[i], &size) && size < 0)
      return KILN_FAIL(cx->diag, KILN_BAD_INPUT, lw->place,
                       "split: must not be negative, got %" PRId64, size);
    sum = kiln_add(cx, sum, sizes[i]);
  }
  if (kiln_expr_is_int(sum, &have) && kiln_expr_is_int(extent, &want) && have != want)
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, lw->place,
                     "split: must sum to the extent %" PRId64 ", got %" PRId64, want, have);
  return KILN_OK;
}

static kiln_status read_parts(kiln_lower *lw, const kiln_expr *extent, const kiln_expr **out) {
  int n = -1;
  const int64_t *list = NULL;
  const kiln_expr *const *sizes = NULL;
  KILN_TRY(kiln_lower_ints(lw, "split", &n, &list));
  if (n >= 0) {
    const kiln_expr **made = KILN_NEW_ARRAY(&lw->cx->perm, const kiln_expr *, n);
    for (int i = 0; i < n; i++) made[i] = kiln_int(lw->cx, list[i]);
    sizes = made;
  } else if (kiln_lower_in(lw, 1)) {
    KILN_TRY(kiln_lower_extent_values(lw, 1, extent, &n, &sizes));
  }
  if (n < 0) return equal_parts(lw, extent, lw->n_outputs, out);
  return given_parts(lw, extent, n, sizes, out);
}

static kiln_status lower_split(kiln_lower *lw) {
  kiln_ctx *cx = lw->cx;
  KILN_TRY(kiln_lower_want_inputs(lw, 1, 2));
  const kiln_tensor *x = lw->inputs[0];
  int64_t at_axis = 0;
  int axis = 0;
  KILN_TRY(kiln_lower_int(lw, "axis", 0, &at_axis));
  KILN_TRY(kiln_lower_axis(lw, at_axis, x->rank, false, &axis));
  const kiln_expr **parts = KILN_NEW_ARRAY(&cx->perm, const kiln_expr *, lw->n_outputs);
  KILN_TRY(read_parts(lw, x->shape[axis], parts));
  const kiln_expr *start = kiln_int(cx, 0);
  for (int k = 0; k < lw->n_outputs; k++) {
    const kiln_expr *extents[KILN_MAX_RANK], *at[KILN_MAX_RANK];
    for (int i = 0; i < x->rank; i++) extents[i] = x->shape[i];
    extents[axis] = parts[k];
    kiln_stmt *s = kiln_lower_stmt(lw, "split", x->dtype, x->rank, 0, extents);
    kiln_stmt_vars(cx, s, 0, x->rank, at);
    at[axis] = kiln_add(cx, at[axis], start);
    kiln_lower_move(lw, s, x, at, k);
    start = kiln_lower_tidy(cx, kiln_add(cx, start, parts[k]));
  }
  return KILN_OK;
}

const kiln_op kiln_op_split[] = {
    {"", "Split", 1, 0, lower_split, NULL, "ops/split.c"},
    {0},
};
