// Shape and Size: known when compiling, as numbers or as expressions of named dimensions.
// source: ONNX Shape-1, 13, 15, 19, 21; Size-1, 13
#include "fission/terms.h"

// A vector (or a scalar, |rank| 0) of known i64 expressions.
static kiln_tensor *known(kiln_lower *lw, int rank, int n, const kiln_expr *const *values) {
  kiln_ctx *cx = lw->cx;
  const int64_t shape[1] = {n};
  int64_t *numbers = KILN_NEW_ARRAY(&cx->scratch, int64_t, n);
  bool all = true;
  for (int i = 0; i < n; i++) all &= kiln_expr_is_int(values[i], &numbers[i]);
  if (all) return kiln_lower_make_const(lw, NULL, KILN_I64, rank, shape, numbers);
  const kiln_expr *const extents[1] = {kiln_int(cx, n)};
  kiln_stmt *s = kiln_lower_stmt(lw, NULL, KILN_I64, rank, 0, extents);
  s->body = values[n - 1];
  for (int i = n - 2; i >= 0; i--)
    s->body =
        kiln_select(cx, kiln_compare(cx, KILN_EXPR_EQ, kiln_stmt_var(cx, s, 0), kiln_int(cx, i)),
                    values[i], s->body);
  kiln_tensor *t = kiln_lower_tensor(lw, s);
  const kiln_expr **kept = KILN_NEW_ARRAY(&cx->perm, const kiln_expr *, n);
  for (int i = 0; i < n; i++) kept[i] = values[i];
  kiln_lower_note_values(lw, t, kept);
  return t;
}

// An axis given from either end, clamped into [0, rank].
static int clamp_axis(int64_t axis, int rank) {
  if (axis < 0) axis += rank;
  return (int)(axis < 0 ? 0 : axis > rank ? rank : axis);
}

static kiln_status lower_shape(kiln_lower *lw) {
  KILN_TRY(kiln_lower_want_inputs(lw, 1, 1));
  const kiln_tensor *x = lw->inputs[0];
  int64_t start = 0, end = x->rank;
  KILN_TRY(kiln_lower_int(lw, "start", 0, &start));
  KILN_TRY(kiln_lower_int(lw, "end", x->rank, &end));
  const int first = clamp_axis(start, x->rank), last = clamp_axis(end, x->rank);
  lw->outputs[0] = known(lw, 1, last > first ? last - first : 0, x->shape + first);
  return KILN_OK;
}

static kiln_status lower_size(kiln_lower *lw) {
  KILN_TRY(kiln_lower_want_inputs(lw, 1, 1));
  const kiln_tensor *x = lw->inputs[0];
  const kiln_expr *size = kiln_multiply_all(lw->cx, x->rank, x->shape);
  lw->outputs[0] = known(lw, 0, 1, &size);
  return KILN_OK;
}

const kiln_op kiln_op_shape[] = {
    {"", "Shape", 1, 0, lower_shape, NULL, "ops/shape.c"},
    {"", "Size", 1, 0, lower_size, NULL, "ops/shape.c"},
    {0},
};
