// Elements of host arrays, by dtype: read and written one at a time, at any alignment.
#include "analysis/interpret.h"

#include <math.h>
#include <string.h>

// The element's bits, zero-extended.
static inline uint64_t read_bits(int bytes, const void *data, int64_t i) {
  const char *from = (const char *)data + i * bytes;
  uint64_t bits = 0;
  switch (bytes) { // little-endian, as the machines that Kiln runs on
  case 1: memcpy(&bits, from, 1); break;
  case 2: memcpy(&bits, from, 2); break;
  case 4: memcpy(&bits, from, 4); break;
  default: memcpy(&bits, from, 8); break;
  }
  return bits;
}

static inline void write_bits(int bytes, void *data, int64_t i, uint64_t bits) {
  char *to = (char *)data + i * bytes;
  switch (bytes) {
  case 1: memcpy(to, &bits, 1); break;
  case 2: memcpy(to, &bits, 2); break;
  case 4: memcpy(to, &bits, 4); break;
  default: memcpy(to, &bits, 8); break;
  }
}

static inline double float_of_bits(kiln_dtype t, uint64_t bits) {
  double wide;
  float narrow;
  if (t == KILN_F16) return (double)kiln_f16_to_f32((uint16_t)bits);
  if (t == KILN_BF16) return (double)kiln_bf16_to_f32((uint16_t)bits);
  memcpy(&wide, &bits, sizeof wide);
  memcpy(&narrow, &bits, sizeof narrow);
  return t == KILN_F32 ? (double)narrow : wide;
}

static inline uint64_t bits_of_float(kiln_dtype t, double v) {
  const float narrow = (float)v;
  uint64_t bits = 0;
  if (t == KILN_F16) return kiln_f16_of_f64(v);
  if (t == KILN_BF16) return kiln_bf16_of_f64(v);
  if (t == KILN_F32) memcpy(&bits, &narrow, sizeof narrow);
  else memcpy(&bits, &v, sizeof v);
  return bits;
}

// A float as an integer: truncated, saturated to 64 bits, NaN becomes 0.
static int64_t int_of_double(double v) {
  if (isnan(v)) return 0;
  if (v >= 9223372036854775808.0) return INT64_MAX;
  if (v < -9223372036854775808.0) return INT64_MIN;
  return (int64_t)v;
}

static uint64_t uint_of_double(double v) {
  return !(v > 0) ? 0 : v >= 18446744073709551616.0 ? UINT64_MAX : (uint64_t)v;
}

static int64_t int_of_bits(int bytes, uint64_t bits) {
  const uint64_t sign = UINT64_C(1) << (8 * bytes - 1);
  return (int64_t)((bits ^ sign) - sign);
}

// A shortcut past the table: most elements are f32.
double kiln_element_get(kiln_dtype t, const void *data, int64_t i) {
  if (t == KILN_F32) return float_of_bits(t, read_bits(4, data, i));
  const int bytes = kiln_dtype_bytes(t);
  const uint64_t bits = read_bits(bytes, data, i);
  switch (kiln_dtype_kind(t)) {
  case KILN_KIND_FLOAT: return float_of_bits(t, bits);
  case KILN_KIND_INT: return (double)int_of_bits(bytes, bits);
  case KILN_KIND_UINT: return (double)bits;
  case KILN_KIND_BOOL: return bits != 0;
  case KILN_KIND_CODE: return kiln_encoding_value(t, (uint8_t)bits);
  }
  return 0;
}

int64_t kiln_element_get_int(kiln_dtype t, const void *data, int64_t i) {
  const int bytes = kiln_dtype_bytes(t);
  const uint64_t bits = read_bits(bytes, data, i);
  switch (kiln_dtype_kind(t)) {
  case KILN_KIND_FLOAT: return int_of_double(float_of_bits(t, bits));
  case KILN_KIND_INT: return int_of_bits(bytes, bits);
  case KILN_KIND_BOOL: return bits != 0;
  case KILN_KIND_UINT:
  case KILN_KIND_CODE: break;
  }
  return (int64_t)bits;
}

static uint64_t bits_of_double(kiln_dtype t, double v) {
  switch (kiln_dtype_kind(t)) {
  case KILN_KIND_FLOAT: return bits_of_float(t, v);
  case KILN_KIND_UINT: return t == KILN_U64 ? uint_of_double(v) : (uint64_t)int_of_double(v);
  case KILN_KIND_BOOL: return v != 0;
  case KILN_KIND_CODE: return kiln_encoding_of(t, v);
  case KILN_KIND_INT: break;
  }
  return (uint64_t)int_of_double(v);
}

static uint64_t bits_of_int(kiln_dtype t, int64_t v) {
  switch (kiln_dtype_kind(t)) {
  case KILN_KIND_FLOAT: return bits_of_float(t, (double)v);
  case KILN_KIND_BOOL: return v != 0;
  case KILN_KIND_CODE: return (uint64_t)v & ((1u << kiln_dtype_bits(t)) - 1);
  case KILN_KIND_INT:
  case KILN_KIND_UINT: break;
  }
  return (uint64_t)v;
}

void kiln_element_set(kiln_dtype t, void *data, int64_t i, double v) {
  if (t == KILN_F32) write_bits(4, data, i, bits_of_float(t, v));
  else write_bits(kiln_dtype_bytes(t), data, i, bits_of_double(t, v));
}

void kiln_element_set_int(kiln_dtype t, void *data, int64_t i, int64_t v) {
  write_bits(kiln_dtype_bytes(t), data, i, bits_of_int(t, v));
}
