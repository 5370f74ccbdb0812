// Conv of any rank: pads as a statement of their own, the contraction without guards, then the
// bias. source: ONNX Conv-1, 11, 22
#include "fission/window.h"

static kiln_status lower_conv(kiln_lower *lw) {
  KILN_TRY(kiln_lower_want_inputs(lw, 2, 3));
  KILN_TRY(kiln_lower_want_dtype(lw, 0, kiln_dtype_is_float, "a float"));
  kiln_tensor *x = lw->inputs[0], *weights = lw->inputs[1], *y = NULL;
  int64_t group = 1;
  kiln_window w;
  KILN_TRY(kiln_lower_int(lw, "group", 1, &group));
  KILN_TRY(kiln_window_read(lw, x, weights, &w));
  KILN_TRY(kiln_lower_conv(lw, x, weights, group, &w, kiln_accumulator(x->dtype), &y));
  KILN_TRY(kiln_lower_channel_bias(lw, y, kiln_lower_in(lw, 2), &y));
  return kiln_lower_cast(lw, y, x->dtype, &lw->outputs[0]);
}

const kiln_op kiln_op_conv[] = {
    {"", "Conv", 1, 0, lower_conv, NULL, "ops/conv.c"},
    {0},
};
