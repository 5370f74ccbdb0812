// Element types: the rows are in ir/dtype.def.
#ifndef KILN_IR_DTYPE_H
#define KILN_IR_DTYPE_H

#include "support/status.h"

typedef enum kiln_dtype {
#define KILN_DTYPE(name, text, bits, onnx, dl, kind) KILN_##name,
#include "ir/dtype.def"
#undef KILN_DTYPE
  KILN_N_DTYPES
} kiln_dtype;

// CODE: encodings that are stored, moved and cast, but computed with as another type: an element is
// one of at most 256 codes, in the low bits of a byte (ir/encoding.h).
typedef enum kiln_kind {
  KILN_KIND_FLOAT,
  KILN_KIND_INT,
  KILN_KIND_UINT,
  KILN_KIND_BOOL,
  KILN_KIND_CODE
} kiln_kind;

typedef struct kiln_dtype_row {
  const char *text; // "f32"
  int bits, onnx;
  kiln_kind kind;
} kiln_dtype_row;
extern const kiln_dtype_row kiln_dtypes[KILN_N_DTYPES];

static inline const char *kiln_dtype_text(kiln_dtype t) { return kiln_dtypes[t].text; }
static inline int kiln_dtype_bits(kiln_dtype t) { return kiln_dtypes[t].bits; }
static inline int kiln_dtype_bytes(kiln_dtype t) { // of an element in a program
  return (kiln_dtypes[t].bits + 7) / 8;
}
static inline int kiln_dtype_onnx(kiln_dtype t) { return kiln_dtypes[t].onnx; }
static inline kiln_kind kiln_dtype_kind(kiln_dtype t) { return kiln_dtypes[t].kind; }
bool kiln_dtype_parse(const char *text, size_t n, kiln_dtype *out);
bool kiln_dtype_of_onnx(int64_t code,
                        kiln_dtype *out); // TensorProto.DataType; false when Kiln has no such type

static inline bool kiln_dtype_is_float(kiln_dtype t) {
  return kiln_dtype_kind(t) == KILN_KIND_FLOAT;
}
static inline bool kiln_dtype_is_half(kiln_dtype t) { return t == KILN_F16 || t == KILN_BF16; }
static inline bool kiln_dtype_is_int(kiln_dtype t) { // signed or unsigned, not bool
  return kiln_dtype_kind(t) == KILN_KIND_INT || kiln_dtype_kind(t) == KILN_KIND_UINT;
}
static inline bool kiln_dtype_is_code(kiln_dtype t) { return kiln_dtype_kind(t) == KILN_KIND_CODE; }

// The format of an encoding. A float has a sign, an exponent and |fraction| bits; exponent 0 is for
// subnormal numbers, exponent 1 means 2^(1 - bias). A power is 2^(code - bias). Integers are two's
// complement.
typedef struct kiln_encoding_format {
  enum { KILN_ENCODING_FLOAT, KILN_ENCODING_POWER, KILN_ENCODING_INT, KILN_ENCODING_UINT } kind;
  int fraction, bias;
  int most;     // the code of the largest finite number
  int nan;      // the code of NaN; -1: none
  bool has_inf; // infinities of both signs are encoded after |most|
  bool no_minus_zero;
} kiln_encoding_format;
const kiln_encoding_format *kiln_encoding_format_of(kiln_dtype t); // NULL: |t| is not a CODE
// Conversions of single values, by definition: rounding is to nearest, ties to the even code (for
// powers to the greater), and saturates.
double kiln_encoding_value(kiln_dtype t, uint8_t code);
uint8_t kiln_encoding_of(kiln_dtype t, double value);

// Packing of |n| codes of |bits| (at most 8) bits: from bytes packed as in ONNX and DLPack, the
// first code in the low bits, to one byte each, and back. Unused bits of the last byte are 0.
void kiln_codes_unpack(int bits, int64_t n, const void *packed, void *codes);
void kiln_codes_pack(int bits, int64_t n, const void *codes, void *packed);
int64_t kiln_codes_packed_bytes(int bits, int64_t n);

// Conversions of the two half types; to_* round to nearest even, keep NaN, overflow to infinity.
float kiln_f16_to_f32(uint16_t bits);
uint16_t kiln_f16_of_f64(double x); // one rounding
float kiln_bf16_to_f32(uint16_t bits);
uint16_t kiln_bf16_of_f64(double x);
// Rounds |n| floats to |half|, KILN_F16 or KILN_BF16; finite ones saturate at the type's largest
// number. |from| and |to| may be unaligned and must not overlap.
// overlap.
//
// cost: about a nanosecond an element
void kiln_halves_of_floats(kiln_dtype half, int64_t n, const void *from, void *to);

#endif
