// Gather, GatherElements and GatherND: a load whose index is a load. source: ONNX Gather-1, 11, 13;
// GatherElements-11, 13; GatherND-11, 12, 13
#include "fission/terms.h"

static kiln_status want_gather(kiln_lower *lw) {
  KILN_TRY(kiln_lower_want_inputs(lw, 2, 2));
  return kiln_lower_want_dtype(lw, 1, kiln_dtype_is_index, "i32 or i64");
}

static kiln_status read_axis(kiln_lower *lw, int rank, int *out) {
  int64_t axis = 0;
  KILN_TRY(kiln_lower_int(lw, "axis", 0, &axis));
  return kiln_lower_axis(lw, axis, rank, false, out);
}

static kiln_status want_result_rank(kiln_lower *lw, int rank) {
  if (rank >= 0 && rank <= KILN_MAX_RANK) return KILN_OK;
  return KILN_FAIL(lw->cx->diag, KILN_UNSUPPORTED, lw->place,
                   "the result must have a rank of at most %d, got %d", KILN_MAX_RANK, rank);
}

static kiln_status lower_gather(kiln_lower *lw) {
  kiln_ctx *cx = lw->cx;
  KILN_TRY(want_gather(lw));
  const kiln_tensor *x = lw->inputs[0], *indices = lw->inputs[1];
  int axis = 0, n = 0;
  KILN_TRY(read_axis(lw, x->rank, &axis));
  KILN_TRY(want_result_rank(lw, x->rank + indices->rank - 1));
  const kiln_expr *extents[2 * KILN_MAX_RANK], *at[KILN_MAX_RANK], *picked[KILN_MAX_RANK];
  for (int i = 0; i < axis; i++) extents[n++] = x->shape[i];
  for (int i = 0; i < indices->rank; i++) extents[n++] = indices->shape[i];
  for (int i = axis + 1; i < x->rank; i++) extents[n++] = x->shape[i];
  kiln_stmt *s = kiln_lower_stmt(lw, "gather", x->dtype, n, 0, extents);
  kiln_stmt_vars(cx, s, 0, axis, at);
  kiln_stmt_vars(cx, s, axis, indices->rank, picked);
  kiln_stmt_vars(cx, s, axis + indices->rank, x->rank - axis - 1, at + axis + 1);
  KILN_TRY(kiln_lower_index(lw, indices, picked, x, axis, &at[axis]));
  kiln_lower_move(lw, s, x, at, 0);
  return KILN_OK;
}

static kiln_status lower_gather_elements(kiln_lower *lw) {
  kiln_ctx *cx = lw->cx;
  KILN_TRY(want_gather(lw));
  const kiln_tensor *x = lw->inputs[0], *indices = lw->inputs[1];
  int axis = 0;
  KILN_TRY(kiln_lower_want_rank(lw, indices, x->rank, x->rank));
  KILN_TRY(read_axis(lw, x->rank, &axis));
  const kiln_expr *at[KILN_MAX_RANK];
  for (int i = 0; i < x->rank; i++) {
    int64_t have = 0, limit = 0;
    if (i != axis && kiln_expr_is_int(indices->shape[i], &have) &&
        kiln_expr_is_int(x->shape[i], &limit) && have > limit)
      return KILN_FAIL(cx->diag, KILN_BAD_INPUT, lw->place,
                       "indices: axis %d must be at most %" PRId64 ", got %" PRId64, i, limit,
                       have);
  }
  kiln_stmt *s = kiln_lower_like(lw, "gather_elements", indices, x->dtype, at);
  KILN_TRY(kiln_lower_index(lw, indices, at, x, axis, &at[axis]));
  kiln_lower_move(lw, s, x, at, 0);
  return KILN_OK;
}

static kiln_status lower_gather_nd(kiln_lower *lw) {
  kiln_ctx *cx = lw->cx;
  KILN_TRY(want_gather(lw));
  const kiln_tensor *x = lw->inputs[0], *indices = lw->inputs[1];
  KILN_TRY(kiln_lower_want_rank(lw, indices, 1, KILN_MAX_RANK));
  int64_t batch = 0, depth = 0;
  KILN_TRY(kiln_lower_int(lw, "batch_dims", 0, &batch));
  KILN_TRY(kiln_lower_extent(lw, indices, indices->rank - 1, &depth));
  if (batch < 0 || batch >= indices->rank || depth < 1 || batch + depth > x->rank)
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, lw->place,
                     "batch_dims and the last axis of indices must fit rank %d, got %" PRId64
                     " and %" PRId64,
                     x->rank, batch, depth);
  for (int i = 0; i < batch; i++) KILN_TRY(kiln_lower_want_extent(lw, indices, i, x->shape[i]));
  const int n_picks = indices->rank - 1, done = (int)(batch + depth), rest = x->rank - done;
  KILN_TRY(want_result_rank(lw, n_picks + rest));
  const kiln_expr *extents[2 * KILN_MAX_RANK], *at[KILN_MAX_RANK], *picked[KILN_MAX_RANK];
  for (int i = 0; i < n_picks; i++) extents[i] = indices->shape[i];
  for (int i = 0; i < rest; i++) extents[n_picks + i] = x->shape[done + i];
  kiln_stmt *s = kiln_lower_stmt(lw, "gather_nd", x->dtype, n_picks + rest, 0, extents);
  kiln_stmt_vars(cx, s, 0, n_picks, picked);
  kiln_stmt_vars(cx, s, 0, (int)batch, at);
  for (int k = 0; k < depth; k++) {
    const int axis = (int)batch + k;
    picked[n_picks] = kiln_int(cx, k);
    KILN_TRY(kiln_lower_coordinate(lw, indices, picked, k, x, axis, &at[axis]));
  }
  kiln_stmt_vars(cx, s, n_picks, rest, at + done);
  kiln_lower_move(lw, s, x, at, 0);
  return KILN_OK;
}

const kiln_op kiln_op_gather[] = {
    {"", "Gather", 1, 0, lower_gather, NULL, "ops/gather.c"},
    {"", "GatherElements", 11, 0, lower_gather_elements, NULL, "ops/gather.c"},
    {"", "GatherND", 11, 0, lower_gather_nd, NULL, "ops/gather.c"},
    {0},
};
