// MatMul with NumPy's batch broadcasting and one-dimensional operands. Dequantised ones are
// multiplied as the bytes that they were, weights of fewer bits decoded where they are read.
// source: ONNX MatMul-1, 9, 13
#include "fission/bits.h"
#include "fission/bytes.h"

static kiln_status lower_matmul(kiln_lower *lw) {
  KILN_TRY(kiln_lower_want_inputs(lw, 2, 2));
  KILN_TRY(kiln_lower_want_dtype(lw, 0, kiln_dtype_is_number, "a number"));
  kiln_tensor *y = NULL;
  const kiln_dtype t = lw->inputs[0]->dtype;
  kiln_tensor *a = lw->inputs[0], *b = lw->inputs[1];
  kiln_byte_product bytes;
  if (b->rank == 2 && kiln_bytes_find(lw, a, b, 1, &bytes)) {
    KILN_TRY(kiln_bytes_matmul(lw, &bytes, &y));
    return kiln_bytes_scale(lw, a, b, y, y->rank - 1, &lw->outputs[0]);
  }
  kiln_bit_weights packed;
  if (a->rank > 0 && kiln_bits_find(lw, b, &packed)) {
    KILN_TRY(kiln_lower_want_extent(lw, a, a->rank - 1, kiln_int(lw->cx, packed.k)));
    KILN_TRY(kiln_bits_multiply(lw, a, &packed, &y));
  } else {
    KILN_TRY(kiln_lower_matmul(lw, a, b, kiln_accumulator(t), &y));
  }
  return kiln_lower_cast(lw, y, t, &lw->outputs[0]);
}

const kiln_op kiln_op_matmul[] = {
    {"", "MatMul", 1, 0, lower_matmul, NULL, "ops/matmul.c"},
    {0},
};
