// Identity: the output is the input itself. source: ONNX Identity-1, 13, 14, 16, 19, 21
#include "fission/terms.h"

static kiln_status lower_identity(kiln_lower *lw) {
  KILN_TRY(kiln_lower_want_inputs(lw, 1, 1));
  lw->outputs[0] = lw->inputs[0];
  return KILN_OK;
}

const kiln_op kiln_op_identity[] = {
    {"", "Identity", 1, 0, lower_identity, NULL, "ops/identity.c"},
    {0},
};
