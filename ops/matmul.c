// MatMul with NumPy's batch broadcasting and one-dimensional operands. source: ONNX MatMul-1, 9, 13
#include "fission/terms.h"

static kiln_status lower_matmul(kiln_lower *lw) {
  KILN_TRY(kiln_lower_want_inputs(lw, 2, 2));
  KILN_TRY(kiln_lower_want_dtype(lw, 0, kiln_dtype_is_number, "a number"));
  kiln_tensor *y = NULL;
  const kiln_dtype t = lw->inputs[0]->dtype;
  KILN_TRY(kiln_lower_matmul(lw, lw->inputs[0], lw->inputs[1], kiln_accumulator(t), &y));
  return kiln_lower_cast(lw, y, t, &lw->outputs[0]);
}

const kiln_op kiln_op_matmul[] = {
    {"", "MatMul", 1, 0, lower_matmul, NULL, "ops/matmul.c"},
    {0},
};
