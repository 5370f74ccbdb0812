// ReverseSequence: the first len(b) elements of each sequence, backwards. source: ONNX
// ReverseSequence-10
#include "fission/terms.h"

static kiln_status lower_reverse_sequence(kiln_lower *lw) {
  kiln_ctx *cx = lw->cx;
  KILN_TRY(kiln_lower_want_inputs(lw, 2, 2));
  KILN_TRY(kiln_lower_want_dtype(lw, 1, kiln_dtype_is_index, "i64"));
  const kiln_tensor *x = lw->inputs[0], *lengths = lw->inputs[1];
  KILN_TRY(kiln_lower_want_rank(lw, x, 2, KILN_MAX_RANK));
  KILN_TRY(kiln_lower_want_rank(lw, lengths, 1, 1));
  int64_t batch_axis = 1, time_axis = 0;
  KILN_TRY(kiln_lower_int(lw, "batch_axis", 1, &batch_axis));
  KILN_TRY(kiln_lower_int(lw, "time_axis", 0, &time_axis));
  if (!(batch_axis == 0 && time_axis == 1) && !(batch_axis == 1 && time_axis == 0))
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, lw->place,
                     "batch_axis and time_axis must be 0 and 1, got %" PRId64 " and %" PRId64,
                     batch_axis, time_axis);
  KILN_TRY(kiln_lower_want_extent(lw, lengths, 0, x->shape[batch_axis]));
  const kiln_expr *zero = kiln_int(cx, 0), *one = kiln_int(cx, 1);
  KILN_TRY(kiln_lower_want_index(lw, lengths, (int)time_axis, NULL, NULL, zero,
                                 kiln_add(cx, x->shape[time_axis], one)));
  const kiln_expr *at[KILN_MAX_RANK];
  kiln_stmt *s = kiln_lower_like(lw, "reverse_sequence", x, x->dtype, at);
  const kiln_expr *t = at[time_axis];
  // What exceeds the axis would read out of range.
  const kiln_expr *length =
      kiln_least(cx, kiln_cast(cx, KILN_I64, kiln_tensor_load(cx, lengths, &at[batch_axis])),
                 x->shape[time_axis]);
  const kiln_expr *mirrored = kiln_sub(cx, kiln_sub(cx, length, one), t);
  at[time_axis] = kiln_select(cx, kiln_compare(cx, KILN_EXPR_LT, t, length), mirrored, t);
  kiln_lower_move(lw, s, x, at, 0);
  return KILN_OK;
}

const kiln_op kiln_op_reverse_sequence[] = {
    {"", "ReverseSequence", 10, 0, lower_reverse_sequence, NULL, "ops/reverse_sequence.c"},
    {0},
};
