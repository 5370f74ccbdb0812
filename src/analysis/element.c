// Elements of host arrays, by dtype: read and written one at a time, at any alignment.
#include "analysis/interpret.h"

#include <math.h>
#include <string.h>

#define KILN_READ(T)                                                                               \
  T v;                                                                                             \
  memcpy(&v, (const char *)data + i * (int64_t)sizeof v, sizeof v)

double kiln_element_get(kiln_dtype t, const void *data, int64_t i) {
  switch (t) {
  case KILN_F64: {
    KILN_READ(double);
    return v;
  }
  case KILN_F32: {
    KILN_READ(float);
    return v;
  }
  case KILN_F16: {
    KILN_READ(uint16_t);
    return kiln_f16_to_f32(v);
  }
  case KILN_BF16: {
    KILN_READ(uint16_t);
    return kiln_bf16_to_f32(v);
  }
  case KILN_U64: {
    KILN_READ(uint64_t);
    return (double)v;
  }
  case KILN_F8E4M3FN:
  case KILN_F8E4M3FNUZ:
  case KILN_F8E5M2:
  case KILN_F8E5M2FNUZ:
  case KILN_F8E8M0:
  case KILN_I4:
  case KILN_U4:
  case KILN_I2:
  case KILN_U2:
  case KILN_F4E2M1: {
    KILN_READ(uint8_t);
    return kiln_code_value(t, v);
  }
  case KILN_I8:
  case KILN_I16:
  case KILN_I32:
  case KILN_I64:
  case KILN_U8:
  case KILN_U16:
  case KILN_U32:
  case KILN_BOOL: return (double)kiln_element_get_int(t, data, i);
  case KILN_N_DTYPES: break;
  }
  return 0;
}

// A float as an integer: truncated, saturated to the 64 bits, NaN is 0.
static int64_t int_of_double(double v) {
  if (isnan(v)) return 0;
  if (v >= 9223372036854775808.0) return INT64_MAX;
  if (v < -9223372036854775808.0) return INT64_MIN;
  return (int64_t)v;
}

int64_t kiln_element_get_int(kiln_dtype t, const void *data, int64_t i) {
  switch (t) {
  case KILN_I8: {
    KILN_READ(int8_t);
    return v;
  }
  case KILN_I16: {
    KILN_READ(int16_t);
    return v;
  }
  case KILN_I32: {
    KILN_READ(int32_t);
    return v;
  }
  case KILN_I64: {
    KILN_READ(int64_t);
    return v;
  }
  case KILN_F8E4M3FN:
  case KILN_F8E4M3FNUZ:
  case KILN_F8E5M2:
  case KILN_F8E5M2FNUZ:
  case KILN_F8E8M0:
  case KILN_I4:
  case KILN_U4:
  case KILN_I2:
  case KILN_U2:
  case KILN_F4E2M1:
  case KILN_U8: {
    KILN_READ(uint8_t);
    return v;
  }
  case KILN_BOOL: {
    KILN_READ(uint8_t);
    return v != 0;
  }
  case KILN_U16: {
    KILN_READ(uint16_t);
    return v;
  }
  case KILN_U32: {
    KILN_READ(uint32_t);
    return v;
  }
  case KILN_U64: {
    KILN_READ(uint64_t);
    return (int64_t)v;
  }
  case KILN_F64:
  case KILN_F32:
  case KILN_F16:
  case KILN_BF16: return int_of_double(kiln_element_get(t, data, i));
  case KILN_N_DTYPES: break;
  }
  return 0;
}

#define KILN_WRITE(T, value)                                                                       \
  const T w = (T)(value);                                                                          \
  memcpy((char *)data + i * (int64_t)sizeof w, &w, sizeof w)

void kiln_element_set(kiln_dtype t, void *data, int64_t i, double v) {
  switch (t) {
  case KILN_F64: {
    KILN_WRITE(double, v);
    return;
  }
  case KILN_F32: {
    KILN_WRITE(float, v);
    return;
  }
  case KILN_F16: {
    KILN_WRITE(uint16_t, kiln_f16_of_f64(v));
    return;
  }
  case KILN_BF16: {
    KILN_WRITE(uint16_t, kiln_bf16_of_f64(v));
    return;
  }
  case KILN_BOOL: {
    KILN_WRITE(uint8_t, v != 0);
    return;
  }
  case KILN_F8E4M3FN:
  case KILN_F8E4M3FNUZ:
  case KILN_F8E5M2:
  case KILN_F8E5M2FNUZ:
  case KILN_F8E8M0:
  case KILN_I4:
  case KILN_U4:
  case KILN_I2:
  case KILN_U2:
  case KILN_F4E2M1: {
    KILN_WRITE(uint8_t, kiln_code_of(t, v));
    return;
  }
  case KILN_U64: {
    KILN_WRITE(uint64_t, !(v > 0) ? 0 : v >= 18446744073709551616.0 ? UINT64_MAX : (uint64_t)v);
    return;
  }
  case KILN_I8:
  case KILN_I16:
  case KILN_I32:
  case KILN_I64:
  case KILN_U8:
  case KILN_U16:
  case KILN_U32: kiln_element_set_int(t, data, i, int_of_double(v)); return;
  case KILN_N_DTYPES: return;
  }
}

void kiln_element_set_int(kiln_dtype t, void *data, int64_t i, int64_t v) {
  if (kiln_dtype_is_float(t)) {
    kiln_element_set(t, data, i, (double)v);
  } else if (t == KILN_BOOL) {
    KILN_WRITE(uint8_t, v != 0);
  } else if (kiln_dtype_is_code(t)) {
    KILN_WRITE(uint8_t, v & ((1 << kiln_dtype_bits(t)) - 1));
  } else if (kiln_dtype_bytes(t) == 1) {
    KILN_WRITE(uint8_t, v);
  } else if (kiln_dtype_bytes(t) == 2) {
    KILN_WRITE(uint16_t, v);
  } else if (kiln_dtype_bytes(t) == 4) {
    KILN_WRITE(uint32_t, v);
  } else {
    KILN_WRITE(uint64_t, v);
  }
}
