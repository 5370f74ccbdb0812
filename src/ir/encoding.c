// Decoding and encoding by integer arithmetic on the bits of f32 and f64.
#include "ir/encoding.h"

#include <math.h>
#include <string.h>

static const kiln_expr *number(kiln_ctx *cx, const kiln_expr *like, uint64_t value) {
  return kiln_int_of(cx, like->dtype, (int64_t)value);
}

static const kiln_expr *with(kiln_ctx *cx, kiln_expr_kind k, const kiln_expr *a, uint64_t b) {
  return kiln_binary(cx, k, a, number(cx, a, b));
}

// --- decoding ---

enum { F32_FRACTION = 23, F32_BIAS = 127 };
static const uint64_t f32_infinity = 0x7f800000u, f32_nan = 0x7fc00000u;

// In i32, because its conversion to f32 is a single instruction on all targets.
static const kiln_expr *decode_float(kiln_ctx *cx, const kiln_encoding_format *f, int bits,
                                     const kiln_expr *code) {
  const uint64_t sign_bit = UINT64_C(1) << (bits - 1);
  const double unit = ldexp(1, 1 - f->bias - f->fraction); // of subnormal numbers
  const kiln_expr *m = with(cx, KILN_EXPR_BAND, code, sign_bit - 1);
  const kiln_expr *sign =
      with(cx, KILN_EXPR_SHL, with(cx, KILN_EXPR_BAND, code, sign_bit), (uint64_t)(32 - bits));
  const kiln_expr *normal =
      with(cx, KILN_EXPR_ADD, with(cx, KILN_EXPR_SHL, m, (uint64_t)(F32_FRACTION - f->fraction)),
           (uint64_t)(F32_BIAS - f->bias) << F32_FRACTION);
  const kiln_expr *small = kiln_mul(cx, kiln_cast(cx, KILN_F32, m), kiln_float(cx, KILN_F32, unit));
  small = kiln_cast(cx, KILN_I32, kiln_bitcast(cx, KILN_U32, small));
  const kiln_expr *value =
      kiln_select(cx, with(cx, KILN_EXPR_LT, m, UINT64_C(1) << f->fraction), small, normal);
  const kiln_expr *nan = number(cx, code, f32_nan);
  if (f->has_inf)
    value = kiln_select(cx, with(cx, KILN_EXPR_GT, m, (uint64_t)f->most),
                        with(cx, KILN_EXPR_BOR, value, f32_infinity), value);
  else if (f->nan >= 0)
    value = kiln_select(cx, with(cx, KILN_EXPR_EQ, f->no_minus_zero ? code : m, (uint64_t)f->nan),
                        nan, value);
  value = kiln_binary(cx, KILN_EXPR_BOR, value, sign);
  return kiln_bitcast(cx, KILN_F32, kiln_cast(cx, KILN_U32, value));
}

// 2^-127, the least power, is subnormal in f32.
static const kiln_expr *decode_power(kiln_ctx *cx, const kiln_encoding_format *f,
                                     const kiln_expr *code) {
  const kiln_expr *bits = with(cx, KILN_EXPR_SHL, code, F32_FRACTION);
  const kiln_expr *least = number(cx, code, UINT64_C(1) << (F32_FRACTION - 1));
  bits = kiln_select(cx, with(cx, KILN_EXPR_EQ, code, 0), least, bits);
  bits = kiln_select(cx, with(cx, KILN_EXPR_EQ, code, (uint64_t)f->nan), number(cx, code, f32_nan),
                     bits);
  return kiln_bitcast(cx, KILN_F32, kiln_cast(cx, KILN_U32, bits));
}

static const kiln_expr *decode_int(kiln_ctx *cx, int bits, const kiln_expr *byte) {
  const uint64_t sign_bit = UINT64_C(1) << (bits - 1);
  const kiln_expr *flipped = with(cx, KILN_EXPR_BXOR, kiln_cast(cx, KILN_I8, byte), sign_bit);
  return with(cx, KILN_EXPR_SUB, flipped, sign_bit);
}

const kiln_expr *kiln_decode(kiln_ctx *cx, const kiln_expr *e) {
  const kiln_encoding_format *f = kiln_encoding_format_of(e->dtype);
  const int bits = kiln_dtype_bits(e->dtype);
  const kiln_expr *byte = kiln_bitcast(cx, KILN_U8, e);
  switch (f->kind) {
  case KILN_ENCODING_FLOAT: return decode_float(cx, f, bits, kiln_cast(cx, KILN_I32, byte));
  case KILN_ENCODING_POWER: return decode_power(cx, f, kiln_cast(cx, KILN_I32, byte));
  case KILN_ENCODING_INT: return decode_int(cx, bits, byte);
  case KILN_ENCODING_UINT: break;
  }
  return byte;
}

// --- encoding ---

// A float to be rounded, in parts.
typedef struct source {
  int fraction, bias;
  uint64_t infinity;
  const kiln_expr *bits, *magnitude; // as the unsigned integer type of its width
  kiln_dtype t;
} source;

static source source_of(kiln_ctx *cx, const kiln_expr *x) {
  const bool wide = x->dtype == KILN_F64;
  source s = {.fraction = wide ? 52 : F32_FRACTION, .bias = wide ? 1023 : F32_BIAS, .t = x->dtype};
  s.bits = kiln_bitcast(cx, wide ? KILN_U64 : KILN_U32, x);
  s.infinity = (uint64_t)(2 * s.bias + 1) << s.fraction;
  s.magnitude = with(cx, KILN_EXPR_BAND, s.bits, (UINT64_C(1) << (wide ? 63 : 31)) - 1);
  return s;
}

static uint64_t bits_of_power(const source *s, int exponent) {
  return (uint64_t)(exponent + s->bias) << s->fraction;
}

// Rounding to nearest even. Normal numbers: half a unit is added, less one if the last remaining
// bit is even; a carry increments the exponent. Subnormal numbers: adding a float with the same
// last place rounds them.
static const kiln_expr *nearest(kiln_ctx *cx, const source *s, const kiln_encoding_format *f) {
  const kiln_expr *m = s->magnitude;
  const uint64_t cut = (uint64_t)(s->fraction - f->fraction);
  const uint64_t rebias = (uint64_t)(s->bias - f->bias) << s->fraction;
  const kiln_expr *odd = with(cx, KILN_EXPR_BAND, with(cx, KILN_EXPR_SHR, m, cut), 1);
  const kiln_expr *normal =
      with(cx, KILN_EXPR_SUB, kiln_add(cx, m, odd), rebias - ((UINT64_C(1) << (cut - 1)) - 1));
  normal = with(cx, KILN_EXPR_SHR, normal, cut);
  const int units = 1 - f->bias - f->fraction + s->fraction;
  const kiln_expr *sum =
      kiln_add(cx, kiln_bitcast(cx, s->t, m), kiln_float(cx, s->t, ldexp(1, units)));
  const kiln_expr *small =
      with(cx, KILN_EXPR_SUB, kiln_bitcast(cx, m->dtype, sum), bits_of_power(s, units));
  return kiln_select(cx, with(cx, KILN_EXPR_LT, m, bits_of_power(s, 1 - f->bias)), small, normal);
}

static const kiln_expr *encode_float(kiln_ctx *cx, const source *s, const kiln_encoding_format *f,
                                     int bits, bool saturates) {
  const kiln_expr *code = nearest(cx, s, f);
  const int end = saturates || f->nan < 0 ? f->most : f->most + 1;
  const int nan = f->nan < 0 ? 1 << (bits - 1) : f->nan;
  code = kiln_binary(cx, KILN_EXPR_MIN, code, number(cx, code, (uint64_t)end));
  code = kiln_select(cx, with(cx, KILN_EXPR_GT, s->magnitude, s->infinity),
                     number(cx, code, (uint64_t)nan), code);
  const int width = 8 * kiln_dtype_bytes(s->t);
  const kiln_expr *sign =
      with(cx, KILN_EXPR_SHL, with(cx, KILN_EXPR_SHR, s->bits, (uint64_t)(width - 1)),
           (uint64_t)(bits - 1));
  const kiln_expr *with_sign = kiln_binary(cx, KILN_EXPR_BOR, code, sign);
  if (!f->no_minus_zero) return with_sign;
  return kiln_select(cx, with(cx, KILN_EXPR_EQ, code, 0), code, with_sign);
}

// The bits of |value| in the source type, which represents it exactly.
static uint64_t bits_of(const source *s, double value) {
  uint64_t wide = 0;
  uint32_t narrow = 0;
  const float f = (float)value;
  memcpy(&wide, &value, sizeof wide);
  memcpy(&narrow, &f, sizeof narrow);
  return s->t == KILN_F64 ? wide : narrow;
}

// The exponent of the magnitude plus the rounding increment. The least power is below f32's normal
// range; a comparison separates it from the next.
static const kiln_expr *encode_power(kiln_ctx *cx, const source *s, const kiln_encoding_format *f,
                                     kiln_encoding how) {
  const double least = ldexp(1, -f->bias);
  const uint64_t unit = UINT64_C(1) << s->fraction;
  const uint64_t rebias = (uint64_t)(s->bias - f->bias) << s->fraction;
  uint64_t add = 0, up_from = bits_of(s, 2 * least);
  if (how.rounding == KILN_ROUND_UP) add = unit - 1, up_from = bits_of(s, least) + 1;
  if (how.rounding == KILN_ROUND_NEAREST) add = unit / 2, up_from = bits_of(s, 1.5 * least);
  const kiln_expr *m = s->magnitude, *nan = number(cx, m, (uint64_t)f->nan);
  const kiln_expr *code =
      with(cx, KILN_EXPR_SHR, with(cx, KILN_EXPR_ADD, m, add - rebias), (uint64_t)s->fraction);
  const int end = how.saturates ? f->most : f->nan;
  code = kiln_binary(cx, KILN_EXPR_MIN, code, number(cx, m, (uint64_t)end));
  const kiln_expr *small = kiln_cast(cx, m->dtype, with(cx, KILN_EXPR_GE, m, up_from));
  if (!how.saturates)
    small = kiln_select(cx, with(cx, KILN_EXPR_LT, m, bits_of(s, least)), nan, small);
  code = kiln_select(cx, with(cx, KILN_EXPR_LT, m, bits_of(s, 2 * least)), small, code);
  return kiln_select(cx, with(cx, KILN_EXPR_GT, m, s->infinity), nan, code);
}

// Integers of 32 bits and more go through f64, because f32 cannot represent them all.
static const kiln_expr *as_source(kiln_ctx *cx, const kiln_expr *e) {
  if (e->dtype == KILN_F64) return e;
  const bool is_wide = kiln_dtype_is_int(e->dtype) && kiln_dtype_bytes(e->dtype) >= 4;
  return kiln_cast(cx, is_wide ? KILN_F64 : KILN_F32, e);
}

const kiln_expr *kiln_encode(kiln_ctx *cx, kiln_dtype t, const kiln_expr *e, kiln_encoding how) {
  const kiln_encoding_format *f = kiln_encoding_format_of(t);
  if (e->dtype == t) return e;
  if (kiln_dtype_is_code(e->dtype)) e = kiln_decode(cx, e);
  const bool is_int = f->kind == KILN_ENCODING_INT || f->kind == KILN_ENCODING_UINT;
  if (is_int && kiln_dtype_is_float(e->dtype)) e = kiln_cast(cx, KILN_I32, e);
  if (is_int) return kiln_bitcast(cx, t, kiln_cast(cx, KILN_U8, e));
  const source s = source_of(cx, as_source(cx, e));
  const kiln_expr *code = f->kind == KILN_ENCODING_FLOAT
                              ? encode_float(cx, &s, f, kiln_dtype_bits(t), how.saturates)
                              : encode_power(cx, &s, f, how);
  return kiln_bitcast(cx, t, kiln_cast(cx, KILN_U8, code));
}
