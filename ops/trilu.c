// Trilu: the load where the place is in the triangle, 0 elsewhere. source: ONNX Trilu-14
#include "fission/terms.h"

static kiln_status lower_trilu(kiln_lower *lw) {
  kiln_ctx *cx = lw->cx;
  KILN_TRY(kiln_lower_want_inputs(lw, 1, 2));
  const kiln_tensor *x = lw->inputs[0], *k = kiln_lower_in(lw, 1);
  KILN_TRY(kiln_lower_want_rank(lw, x, 2, KILN_MAX_RANK));
  int64_t upper = 1;
  const kiln_expr *shift = kiln_int(cx, 0), *at[KILN_MAX_RANK];
  KILN_TRY(kiln_lower_int(lw, "upper", 1, &upper));
  if (k) KILN_TRY(kiln_lower_scalar(lw, k, KILN_I64, "k", &shift));
  kiln_stmt *s = kiln_lower_like(lw, "trilu", x, x->dtype, at);
  const kiln_expr *diagonal = kiln_add(cx, at[x->rank - 2], shift);
  const kiln_expr *inside =
      kiln_compare(cx, upper ? KILN_EXPR_GE : KILN_EXPR_LE, at[x->rank - 1], diagonal);
  s->body = kiln_select(cx, inside, kiln_tensor_load(cx, x, at), kiln_number(cx, x->dtype, 0));
  lw->outputs[0] = kiln_lower_tensor(lw, s);
  return KILN_OK;
}

const kiln_op kiln_op_trilu[] = {
    {"", "Trilu", 14, 0, lower_trilu, NULL, "ops/trilu.c"},
    {0},
};
