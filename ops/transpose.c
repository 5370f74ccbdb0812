// Transpose: one statement whose body is one load. source: ONNX Transpose-1, 13, 21
#include "fission/terms.h"

static kiln_status lower_transpose(kiln_lower *lw) {
  KILN_TRY(kiln_lower_want_inputs(lw, 1, 1));
  const int rank = lw->inputs[0]->rank;
  int n = -1, perm[KILN_MAX_RANK];
  KILN_TRY(kiln_lower_axes(lw, "perm", -1, rank, &n, perm));
  if (n >= 0 && n != rank)
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place, "perm: must have %d entries, got %d",
                     rank, n);
  if (n < 0)
    for (int i = 0; i < rank; i++) perm[i] = rank - 1 - i;
  lw->outputs[0] = kiln_lower_transpose(lw, lw->inputs[0], perm);
  return KILN_OK;
}

const kiln_op kiln_op_transpose[] = {
    {"", "Transpose", 1, 0, lower_transpose, NULL, "ops/transpose.c"},
    {0},
};
