// Cast and CastLike. Floats become integers as in C where the value fits and saturate where it does
// not; anything but zero is true. source: ONNX Cast-6, 9, 13, 19; CastLike-15, 19
#include "fission/lower.h"

static kiln_status lower_cast(kiln_lower *lw) {
  KILN_TRY(kiln_lower_want_inputs(lw, 1, 1));
  int64_t code = 0;
  kiln_dtype to = KILN_F32;
  KILN_TRY(kiln_lower_int(lw, "to", 0, &code));
  if (!kiln_dtype_of_onnx(code, &to))
    return KILN_FAIL(lw->cx->diag, KILN_UNSUPPORTED, lw->place,
                     "attribute to: must be an element type that Kiln has, got %" PRId64, code);
  return kiln_lower_cast(lw, lw->inputs[0], to, &lw->outputs[0]);
}

static kiln_status lower_cast_like(kiln_lower *lw) {
  KILN_TRY(kiln_lower_want_inputs(lw, 2, 2));
  return kiln_lower_cast(lw, lw->inputs[0], lw->inputs[1]->dtype, &lw->outputs[0]);
}

const kiln_op kiln_op_cast[] = {
    {"", "Cast", 6, 0, lower_cast, NULL, "ops/cast.c"},
    {"", "CastLike", 15, 0, lower_cast_like, NULL, "ops/cast.c"},
    {0},
};
