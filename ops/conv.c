// Conv of any rank: pads as a statement of their own, the contraction without guards, then the
// bias. Dequantised operands are multiplied as the bytes that they were. source: ONNX Conv-1, 11,
// 22
#include "fission/bytes.h"

static kiln_status lower_conv(kiln_lower *lw) {
  KILN_TRY(kiln_lower_want_inputs(lw, 2, 3));
  KILN_TRY(kiln_lower_want_dtype(lw, 0, kiln_dtype_is_float, "a float"));
  kiln_tensor *x = lw->inputs[0], *weights = lw->inputs[1], *y = NULL;
  int64_t group = 1;
  kiln_conv_window w;
  KILN_TRY(kiln_lower_int(lw, "group", 1, &group));
  KILN_TRY(kiln_conv_window_read(lw, x, weights, &w));
  kiln_byte_product bytes;
  int64_t channels = 0;
  KILN_TRY(kiln_lower_extent(lw, weights, 1, &channels));
  if (kiln_bytes_convolve(x, channels, group) && kiln_bytes_find(lw, x, weights, 0, &bytes)) {
    KILN_TRY(kiln_bytes_conv(lw, &bytes, group, &w, &y));
    KILN_TRY(kiln_bytes_scale(lw, x, weights, y, 1, &y));
  } else {
    KILN_TRY(kiln_lower_conv(lw, x, weights, group, &w, kiln_accumulator(x->dtype), &y));
  }
  KILN_TRY(kiln_lower_channel_bias(lw, y, kiln_lower_in(lw, 2), &y));
  return kiln_lower_cast(lw, y, x->dtype, &lw->outputs[0]);
}

const kiln_op kiln_op_conv[] = {
    {"", "Conv", 1, 0, lower_conv, NULL, "ops/conv.c"},
    {0},
};
