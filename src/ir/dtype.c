// Element types: the table from ir/dtype.def, formats of encodings, and conversions of the half
// types.
#include "ir/dtype.h"

#include <math.h>
#include <string.h>

const kiln_dtype_row kiln_dtypes[KILN_N_DTYPES] = {
#define KILN_DTYPE(name, text, bits, onnx, dl, kind) [KILN_##name] = {text, bits, onnx, kind},
#include "ir/dtype.def"
#undef KILN_DTYPE
};

bool kiln_dtype_parse(const char *text, size_t n, kiln_dtype *out) {
  for (int t = 0; t < KILN_N_DTYPES; t++) {
    const char *own = kiln_dtypes[t].text;
    if (n > 0 && own[0] == text[0] && strlen(own) == n && memcmp(own, text, n) == 0) {
      *out = (kiln_dtype)t;
      return true;
    }
  }
  return false;
}

bool kiln_dtype_of_onnx(int64_t code, kiln_dtype *out) {
  for (int t = 0; t < KILN_N_DTYPES; t++) {
    if (kiln_dtypes[t].onnx == code) {
      *out = (kiln_dtype)t;
      return true;
    }
  }
  return false;
}

// source: OCP 8-bit Floating Point Specification; OCP Microscaling Formats; ONNX float8.md
static const kiln_encoding_format formats[KILN_N_DTYPES] = {
    [KILN_F8E4M3FN] = {KILN_ENCODING_FLOAT, 3, 7, 0x7e, 0x7f, false, false},
    [KILN_F8E4M3FNUZ] = {KILN_ENCODING_FLOAT, 3, 8, 0x7f, 0x80, false, true},
    [KILN_F8E5M2] = {KILN_ENCODING_FLOAT, 2, 15, 0x7b, 0x7e, true, false},
    [KILN_F8E5M2FNUZ] = {KILN_ENCODING_FLOAT, 2, 16, 0x7f, 0x80, false, true},
    [KILN_F8E8M0] = {KILN_ENCODING_POWER, 0, 127, 0xfe, 0xff, false, true},
    [KILN_I4] = {KILN_ENCODING_INT, 0, 0, 7, -1, false, true},
    [KILN_U4] = {KILN_ENCODING_UINT, 0, 0, 15, -1, false, true},
    [KILN_I2] = {KILN_ENCODING_INT, 0, 0, 1, -1, false, true},
    [KILN_U2] = {KILN_ENCODING_UINT, 0, 0, 3, -1, false, true},
    [KILN_F4E2M1] = {KILN_ENCODING_FLOAT, 1, 1, 7, -1, false, false},
};

const kiln_encoding_format *kiln_encoding_format_of(kiln_dtype t) {
  return kiln_dtype_is_code(t) ? &formats[t] : NULL;
}

static double float_value(const kiln_encoding_format *f, int sign_bit, int code) {
  const int magnitude = code & (sign_bit - 1), exponent = magnitude >> f->fraction;
  const int fraction = magnitude & ((1 << f->fraction) - 1),
            lead = exponent > 0 ? 1 << f->fraction : 0;
  double value = ldexp(fraction + lead, (exponent > 0 ? exponent : 1) - f->bias - f->fraction);
  if (magnitude > f->most)
    value = f->has_inf && magnitude == f->most + 1 ? (double)INFINITY : (double)NAN;
  if (f->no_minus_zero && code == sign_bit) return (double)NAN;
  return code & sign_bit ? -value : value;
}

double kiln_encoding_value(kiln_dtype t, uint8_t code) {
  const kiln_encoding_format *f = &formats[t];
  if (code == f->nan) return (double)NAN;
  switch (f->kind) {
  case KILN_ENCODING_FLOAT: return float_value(f, 1 << (kiln_dtypes[t].bits - 1), code);
  case KILN_ENCODING_POWER: return ldexp(1, code - f->bias);
  case KILN_ENCODING_INT: return code > f->most ? code - (1 << kiln_dtypes[t].bits) : code;
  case KILN_ENCODING_UINT: break;
  }
  return code;
}

// Whether |code| is preferred to |other|, whose value is at least as far from |value|.
static bool is_preferred(kiln_dtype t, int code) {
  return formats[t].kind == KILN_ENCODING_POWER || code % 2 == 0;
}

// rint, inlined where libm's would be a call: adding 2^52 rounds off the fraction bits, to even.
static double nearest(double x) {
  const double most = copysign(0x1p52, x);
  return fabs(x) < fabs(most) ? copysign(x + most - most, x) : x;
}

static uint8_t code_of_int(kiln_dtype t, double value) {
  const int most = formats[t].most, least = formats[t].kind == KILN_ENCODING_INT ? -most - 1 : 0;
  const double rounded = isnan(value) ? 0 : nearest(value);
  const int number = rounded < least ? least : rounded > most ? most : (int)rounded;
  return (uint8_t)(number & ((1 << kiln_dtypes[t].bits) - 1));
}

uint8_t kiln_encoding_of(kiln_dtype t, double value) {
  const kiln_encoding_format *f = &formats[t];
  if (f->kind == KILN_ENCODING_INT || f->kind == KILN_ENCODING_UINT) return code_of_int(t, value);
  const int n = 1 << kiln_dtypes[t].bits, sign_bit = n / 2;
  const bool has_sign = f->kind == KILN_ENCODING_FLOAT;
  if (isnan(value)) return (uint8_t)(f->nan >= 0 ? f->nan : sign_bit);
  const double most = kiln_encoding_value(t, (uint8_t)f->most);
  const double magnitude = fabs(value) < most ? fabs(value) : most;
  int best = 0;
  double least = (double)INFINITY;
  for (int code = 0; code <= f->most; code++) { // ascending
    const double away = fabs(kiln_encoding_value(t, (uint8_t)code) - magnitude);
    if (away > least || (away == least && !is_preferred(t, code))) continue;
    best = code;
    least = away;
  }
  const bool negative = has_sign && signbit(value) && !(f->no_minus_zero && best == 0);
  return (uint8_t)(negative ? best | sign_bit : best);
}

int64_t kiln_codes_packed_bytes(int bits, int64_t n) {
  const int64_t in_byte = 8 / bits;
  return n / in_byte + (n % in_byte != 0);
}

void kiln_codes_unpack(int bits, int64_t n, const void *packed, void *codes) {
  const int in_byte = 8 / bits, mask = (1 << bits) - 1;
  const uint8_t *from = packed;
  uint8_t *to = codes;
  for (int64_t i = 0; i < n; i++)
    to[i] = (uint8_t)(from[i / in_byte] >> (i % in_byte * bits) & mask);
}

void kiln_codes_pack(int bits, int64_t n, const void *codes, void *packed) {
  const int in_byte = 8 / bits, mask = (1 << bits) - 1;
  const uint8_t *from = codes;
  uint8_t *to = packed;
  for (int64_t i = 0; i < n; i++) {
    if (i % in_byte == 0) to[i / in_byte] = 0;
    to[i / in_byte] = (uint8_t)(to[i / in_byte] | (from[i] & mask) << (i % in_byte * bits));
  }
}

static float f32_of_bits(uint32_t bits) {
  float f;
  memcpy(&f, &bits, sizeof f);
  return f;
}

float kiln_f16_to_f32(uint16_t bits) {
  const uint32_t sign = (uint32_t)(bits >> 15) << 31, exponent = bits >> 10 & 31,
                 fraction = bits & 1023;
  if (exponent == 31) return f32_of_bits(sign | 0x7f800000u | fraction << 13);
  if (exponent == 0) { // subnormal: fraction * 2^-24, exact in f32
    const float f = (float)fraction * 0x1p-24f;
    return sign ? -f : f;
  }
  return f32_of_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

float kiln_bf16_to_f32(uint16_t bits) { return f32_of_bits((uint32_t)bits << 16); }

// The bits but for the sign of |x|, which lies among normal numbers, or between the last and
// infinity: a double's, whose exponent counts from |lowest|, rounded to |fraction_bits|.
static uint16_t normal_of(double x, int fraction_bits, int lowest) {
  uint64_t bits;
  memcpy(&bits, &x, sizeof bits);
  const int shift = 52 - fraction_bits;
  bits = (bits & (UINT64_MAX >> 1)) - ((uint64_t)(1022 + lowest) << 52);
  return (uint16_t)((bits + (UINT64_C(1) << (shift - 1)) - 1 + (bits >> shift & 1)) >> shift);
}

// |x| rounded to nearest even as sign, exponent and |fraction_bits| of fraction; |lowest| is the
// exponent of |least|, the smallest normal number; |infinity| the bits of infinity; |past| the
// power of two behind all numbers. Below |least|, counting in units of the last place makes the
// carry into the exponent, and subnormals, come out by themselves.
static uint16_t small_float_of(double x, int fraction_bits, int lowest, uint16_t infinity,
                               double least, double past) {
  const uint16_t sign = signbit(x) ? 0x8000 : 0;
  if (isnan(x)) return (uint16_t)(sign | infinity | 1u << (fraction_bits - 1));
  if (isinf(x)) return (uint16_t)(sign | infinity);
  if (fabs(x) >= least && fabs(x) < past)
    return (uint16_t)(sign | normal_of(x, fraction_bits, lowest));
  int exponent;
  frexp(x, &exponent);
  exponent = exponent - 1 > lowest && x != 0 ? exponent - 1 : lowest;
  const double units = nearest(ldexp(fabs(x), fraction_bits - exponent));
  const double bits = ldexp(exponent - lowest, fraction_bits) + units;
  return (uint16_t)(sign | (bits >= infinity ? infinity : (uint16_t)bits));
}

uint16_t kiln_f16_of_f64(double x) { return small_float_of(x, 10, -14, 0x7c00, 0x1p-14, 0x1p16); }
uint16_t kiln_bf16_of_f64(double x) {
  return small_float_of(x, 7, -126, 0x7f80, 0x1p-126, 0x1p128);
}

// The same for all finite floats, with integer operations that vectorize. Numbers below f16's
// normal range are rounded by adding a float whose last place is theirs.
static inline uint16_t f16_of_bits(uint32_t bits) {
  const uint32_t x = bits & 0x7fffffffu, at_most = x < 0x477fe000u ? x : 0x477fe000u; // 65504
  const uint32_t normal = (at_most + 0xfffu + (at_most >> 13 & 1) - 0x38000000u) >> 13;
  const float sum = f32_of_bits(at_most) + 0.5f;
  uint32_t sum_bits;
  memcpy(&sum_bits, &sum, sizeof sum_bits);
  const uint32_t small = sum_bits - 0x3f000000u;
  const uint32_t finite = at_most < 0x38800000u ? small : normal; // 2^-14
  const uint32_t other = x > 0x7f800000u ? 0x7e00u : 0x7c00u;
  return (uint16_t)((bits >> 16 & 0x8000u) | (x < 0x7f800000u ? finite : other));
}

static inline uint16_t bf16_of_bits(uint32_t bits) {
  const uint32_t x = bits & 0x7fffffffu, at_most = x < 0x7f7f0000u ? x : 0x7f7f0000u;
  const uint32_t finite = (at_most + 0x7fffu + (at_most >> 16 & 1)) >> 16;
  const uint32_t other = x > 0x7f800000u ? 0x7fc0u : 0x7f80u;
  return (uint16_t)((bits >> 16 & 0x8000u) | (x < 0x7f800000u ? finite : other));
}

void kiln_halves_of_floats(kiln_dtype half, int64_t n, const void *from, void *to) {
  const char *restrict in = from;
  char *restrict out = to;
  uint32_t bits;
  uint16_t h;
  if (half == KILN_F16)
    for (int64_t i = 0; i < n; i++) {
      memcpy(&bits, in + 4 * i, sizeof bits);
      h = f16_of_bits(bits);
      memcpy(out + 2 * i, &h, sizeof h);
    }
  else
    for (int64_t i = 0; i < n; i++) {
      memcpy(&bits, in + 4 * i, sizeof bits);
      h = bf16_of_bits(bits);
      memcpy(out + 2 * i, &h, sizeof h);
    }
}
