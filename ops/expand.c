// Expand: a load that stays at 0 along the axes that are stretched. source: ONNX Expand-8, 13
#include "fission/terms.h"

// The broadcast of two extents; where one is only named, the other decides unless it is 1.
static kiln_status together(kiln_lower *lw, int axis, const kiln_expr *a, const kiln_expr *b,
                            const kiln_expr **out) {
  int64_t va = 0, vb = 0;
  const bool ka = kiln_expr_is_int(a, &va), kb = kiln_expr_is_int(b, &vb);
  if (ka && kb && va != vb && va != 1 && vb != 1)
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                     "axis %d: extents must be equal or 1, got %" PRId64 " and %" PRId64, axis, va,
                     vb);
  *out = ka && va == 1 ? b : kb && vb != 1 ? b : a;
  return KILN_OK;
}

static kiln_status lower_expand(kiln_lower *lw) {
  kiln_ctx *cx = lw->cx;
  KILN_TRY(kiln_lower_want_inputs(lw, 2, 2));
  kiln_tensor *x = lw->inputs[0];
  int n = -1;
  const kiln_expr *const *shape = NULL, *extents[KILN_MAX_RANK];
  KILN_TRY(kiln_lower_shape_values(lw, 1, &n, &shape));
  if (n > KILN_MAX_RANK)
    return KILN_FAIL(cx->diag, KILN_UNSUPPORTED, lw->place,
                     "shape: must have at most %d entries, got %d", KILN_MAX_RANK, n);
  const int rank = n > x->rank ? n : x->rank;
  bool same = rank == x->rank;
  for (int i = 0; i < rank; i++) {
    const int a = i - (rank - x->rank), b = i - (rank - n);
    const kiln_expr *from = a >= 0 ? x->shape[a] : kiln_int(cx, 1);
    const kiln_expr *to = b >= 0 ? shape[b] : kiln_int(cx, 1);
    int64_t v = 0;
    if (kiln_expr_is_int(to, &v) && v < 0)
      return KILN_FAIL(cx->diag, KILN_BAD_INPUT, lw->place,
                       "shape: entries must not be negative, got %" PRId64, v);
    KILN_TRY(together(lw, i, from, to, &extents[i]));
    same = same && extents[i] == from;
  }
  lw->outputs[0] = x;
  if (same) return KILN_OK;
  kiln_stmt *s = kiln_lower_stmt(lw, "expand", x->dtype, rank, 0, extents);
  s->body = kiln_lower_load_broadcast(lw, x, s, 0, rank);
  lw->outputs[0] = kiln_lower_tensor(lw, s);
  return KILN_OK;
}

const kiln_op kiln_op_expand[] = {
    {"", "Expand", 8, 0, lower_expand, NULL, "ops/expand.c"},
    {0},
};
