// Element types: the rows are in ir/dtype.def.
#ifndef KILN_IR_DTYPE_H
#define KILN_IR_DTYPE_H

#include "support/status.h"

typedef enum kiln_dtype {
#define KILN_DTYPE(name, text, bytes, onnx, dl, kind) KILN_##name,
#include "ir/dtype.def"
#undef KILN_DTYPE
  KILN_N_DTYPES
} kiln_dtype;

typedef enum kiln_kind { KILN_KIND_FLOAT, KILN_KIND_INT, KILN_KIND_UINT, KILN_KIND_BOOL } kiln_kind;

const char *kiln_dtype_text(kiln_dtype t); // "f32"
int kiln_dtype_bytes(kiln_dtype t);
kiln_kind kiln_dtype_kind(kiln_dtype t);
bool kiln_dtype_parse(const char *text, size_t n, kiln_dtype *out);
bool kiln_dtype_of_onnx(int64_t code,
                        kiln_dtype *out); // TensorProto.DataType; false when Kiln has no such type
int kiln_dtype_onnx(kiln_dtype t);

static inline bool kiln_dtype_is_float(kiln_dtype t) {
  return kiln_dtype_kind(t) == KILN_KIND_FLOAT;
}
static inline bool kiln_dtype_is_int(kiln_dtype t) { // signed or unsigned, not bool
  return kiln_dtype_kind(t) == KILN_KIND_INT || kiln_dtype_kind(t) == KILN_KIND_UINT;
}

// Conversions of the two half types; to_* round to nearest even, keep NaN, overflow to infinity.
float kiln_f16_to_f32(uint16_t bits);
uint16_t kiln_f16_of_f64(double x); // one rounding
float kiln_bf16_to_f32(uint16_t bits);
uint16_t kiln_bf16_of_f64(double x);
// |n| floats as |half|, KILN_F16 or KILN_BF16, each rounded so; finite ones stay finite, the largest number of the
// type being the most. |from| and |to| may lie at any address and do not overlap.
//
// cost: about a nanosecond an element
void kiln_halves_of_floats(kiln_dtype half, int64_t n, const void *from, void *to);

#endif
