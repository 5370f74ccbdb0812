// Constant folding by dtype: integers wrap at their width, floats are computed in double and
// rounded once. An operation without a defined constant result is not folded.
#include "ir/fold.h"

#include "support/integer.h"

#include <math.h>
#include <string.h>

int64_t kiln_int_wrap(kiln_dtype t, int64_t value) {
  const int bits = kiln_dtype_bits(t);
  const uint64_t u = (uint64_t)value;
  switch (kiln_dtype_kind(t)) {
  case KILN_KIND_INT: return bits == 64 ? value : (int64_t)(u << (64 - bits)) >> (64 - bits);
  case KILN_KIND_CODE:
  case KILN_KIND_UINT: return bits == 64 ? value : (int64_t)(u << (64 - bits) >> (64 - bits));
  case KILN_KIND_BOOL: return value != 0;
  case KILN_KIND_FLOAT: break;
  }
  return value;
}

double kiln_float_round(kiln_dtype t, double value) {
  if (t == KILN_F32) return (double)(float)value;
  if (t == KILN_F16) return (double)kiln_f16_to_f32(kiln_f16_of_f64(value));
  if (t == KILN_BF16) return (double)kiln_bf16_to_f32(kiln_bf16_of_f64(value));
  return value;
}

int64_t kiln_int_saturate(kiln_dtype t, double value) {
  if (t == KILN_BOOL) return value != 0; // true for a NaN, as in C
  if (isnan(value)) return 0;
  const int bits = 8 * kiln_dtype_bytes(t);
  if (kiln_dtype_kind(t) == KILN_KIND_UINT) {
    if (value <= 0) return 0;
    if (value >= ldexp(1, bits)) return kiln_int_wrap(t, -1);
    return (int64_t)(uint64_t)value;
  }
  const double limit = ldexp(1, bits - 1);
  if (value >= limit) return (int64_t)(UINT64_MAX >> (65 - bits));
  if (value < -limit) return -(int64_t)(UINT64_MAX >> (65 - bits)) - 1;
  return (int64_t)value;
}

bool kiln_constant_of(const kiln_expr *e, kiln_constant *out) {
  *out = (kiln_constant){.dtype = e->dtype};
  if (e->kind == KILN_EXPR_INT) out->i = e->u.i;
  if (e->kind == KILN_EXPR_FLOAT) out->f = e->u.f;
  return e->kind == KILN_EXPR_INT || e->kind == KILN_EXPR_FLOAT;
}

static bool gives_int(kiln_constant *out, kiln_dtype t, int64_t value) {
  *out = (kiln_constant){.dtype = t, .i = kiln_int_wrap(t, value)};
  return true;
}

static bool gives_bool(kiln_constant *out, bool value) { return gives_int(out, KILN_BOOL, value); }

// Half types are computed in f32: a result that the half type cannot represent is not folded.
static bool gives_float(kiln_constant *out, kiln_dtype t, double value) {
  const double computed = t == KILN_F64 ? value : (double)(float)value;
  const double rounded = kiln_float_round(t, computed);
  *out = (kiln_constant){.dtype = t, .f = rounded};
  return rounded == computed || isnan(computed);
}

static int64_t trunc_div(int64_t a, int64_t b) {
  if (b == 0) return 0;
  return b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b;
}

static int64_t trunc_mod(int64_t a, int64_t b) { return b == 0 || b == -1 ? 0 : a % b; }

// A negative |n| gives a fraction, which is rounded towards zero.
static int64_t power(int64_t a, int64_t n, bool is_signed) {
  if (is_signed && n < 0) return a == 1 || a == -1 ? (n & 1 ? a : 1) : 0;
  uint64_t base = (uint64_t)a, result = 1;
  for (uint64_t left = (uint64_t)n; left > 0; left >>= 1, base *= base) {
    if (left & 1) result *= base;
  }
  return (int64_t)result;
}

static bool fold_compare_int(kiln_expr_kind k, bool less, bool equal, kiln_constant *out) {
  if (k == KILN_EXPR_LT) return gives_bool(out, less);
  if (k == KILN_EXPR_LE) return gives_bool(out, less || equal);
  if (k == KILN_EXPR_GT) return gives_bool(out, !less && !equal);
  if (k == KILN_EXPR_GE) return gives_bool(out, !less);
  if (k == KILN_EXPR_EQ) return gives_bool(out, equal);
  return gives_bool(out, !equal);
}

// Operators whose result depends on the sign, on unsigned operands.
static bool fold_unsigned(kiln_expr_kind k, kiln_dtype t, uint64_t a, uint64_t b,
                          kiln_constant *out) {
  if (k == KILN_EXPR_DIV || k == KILN_EXPR_TDIV) return gives_int(out, t, b ? (int64_t)(a / b) : 0);
  if (k == KILN_EXPR_MOD || k == KILN_EXPR_FMOD) return gives_int(out, t, b ? (int64_t)(a % b) : 0);
  if (k == KILN_EXPR_MIN) return gives_int(out, t, (int64_t)(a < b ? a : b));
  if (k == KILN_EXPR_MAX) return gives_int(out, t, (int64_t)(a > b ? a : b));
  if (k == KILN_EXPR_SHR) return gives_int(out, t, (int64_t)(a >> b));
  return false;
}

static bool fold_signed(kiln_expr_kind k, kiln_dtype t, int64_t a, int64_t b, kiln_constant *out) {
  if (k == KILN_EXPR_DIV) return gives_int(out, t, kiln_floor_div(a, b));
  if (k == KILN_EXPR_MOD) return gives_int(out, t, kiln_floor_mod(a, b));
  if (k == KILN_EXPR_TDIV) return gives_int(out, t, trunc_div(a, b));
  if (k == KILN_EXPR_FMOD) return gives_int(out, t, trunc_mod(a, b));
  if (k == KILN_EXPR_MIN) return gives_int(out, t, a < b ? a : b);
  if (k == KILN_EXPR_MAX) return gives_int(out, t, a > b ? a : b);
  if (k == KILN_EXPR_SHR) return gives_int(out, t, a >> b);
  return false;
}

static bool fold_int(kiln_expr_kind k, kiln_dtype t, int64_t a, int64_t b, kiln_constant *out) {
  const uint64_t ua = (uint64_t)a, ub = (uint64_t)b;
  const bool is_unsigned = kiln_dtype_kind(t) == KILN_KIND_UINT;
  if (kiln_expr_kind_is_cmp(k))
    return fold_compare_int(k, is_unsigned ? ua < ub : a < b, a == b, out);
  if (k == KILN_EXPR_ADD) return gives_int(out, t, (int64_t)(ua + ub));
  if (k == KILN_EXPR_SUB) return gives_int(out, t, (int64_t)(ua - ub));
  if (k == KILN_EXPR_MUL) return gives_int(out, t, (int64_t)(ua * ub));
  if (k == KILN_EXPR_BAND) return gives_int(out, t, a & b);
  if (k == KILN_EXPR_BOR) return gives_int(out, t, a | b);
  if (k == KILN_EXPR_BXOR) return gives_int(out, t, a ^ b);
  if (k == KILN_EXPR_POW) return gives_int(out, t, power(a, b, !is_unsigned));
  const bool is_past = ub >= (uint64_t)(8 * kiln_dtype_bytes(t)); // shifts out all bits
  if (k == KILN_EXPR_SHL) return gives_int(out, t, is_past ? 0 : (int64_t)(ua << ub));
  if (k == KILN_EXPR_SHR && is_past) return gives_int(out, t, !is_unsigned && a < 0 ? -1 : 0);
  return is_unsigned ? fold_unsigned(k, t, ua, ub, out) : fold_signed(k, t, a, b, out);
}

static bool fold_bool(kiln_expr_kind k, bool a, bool b, kiln_constant *out) {
  if (kiln_expr_kind_is_cmp(k)) return fold_compare_int(k, !a && b, a == b, out);
  if (k == KILN_EXPR_AND || k == KILN_EXPR_BAND || k == KILN_EXPR_MIN)
    return gives_bool(out, a && b);
  if (k == KILN_EXPR_OR || k == KILN_EXPR_BOR || k == KILN_EXPR_MAX) return gives_bool(out, a || b);
  if (k == KILN_EXPR_BXOR) return gives_bool(out, a != b);
  return false;
}

static bool fold_compare_float(kiln_expr_kind k, double a, double b, kiln_constant *out) {
  if (k == KILN_EXPR_LT) return gives_bool(out, a < b);
  if (k == KILN_EXPR_LE) return gives_bool(out, a <= b);
  if (k == KILN_EXPR_GT) return gives_bool(out, a > b);
  if (k == KILN_EXPR_GE) return gives_bool(out, a >= b);
  if (k == KILN_EXPR_EQ) return gives_bool(out, a == b);
  return gives_bool(out, a != b);
}

static double float_mod(double a, double b) {
  const double r = fmod(a, b);
  if (r == 0) return copysign(0, b);
  return (r < 0) != (b < 0) ? r + b : r;
}

static bool fold_float(kiln_expr_kind k, kiln_dtype t, double a, double b, kiln_constant *out) {
  if (kiln_expr_kind_is_cmp(k)) return fold_compare_float(k, a, b, out);
  if (k == KILN_EXPR_ADD) return gives_float(out, t, a + b);
  if (k == KILN_EXPR_SUB) return gives_float(out, t, a - b);
  if (k == KILN_EXPR_MUL) return gives_float(out, t, a * b);
  if (k == KILN_EXPR_DIV) return gives_float(out, t, a / b);
  if (k == KILN_EXPR_MOD) return gives_float(out, t, float_mod(a, b));
  if (k == KILN_EXPR_FMOD) return gives_float(out, t, fmod(a, b));
  if (k == KILN_EXPR_POW) return gives_float(out, t, pow(a, b));
  if (k == KILN_EXPR_ATAN2) return gives_float(out, t, atan2(a, b));
  if (k == KILN_EXPR_MIN) return gives_float(out, t, isnan(a) || a < b ? a : b);
  if (k == KILN_EXPR_MAX) return gives_float(out, t, isnan(a) || a > b ? a : b);
  return false;
}

bool kiln_fold_binary(kiln_expr_kind k, kiln_constant a, kiln_constant b, kiln_constant *out) {
  if (a.dtype != b.dtype) return false;
  switch (kiln_dtype_kind(a.dtype)) {
  case KILN_KIND_FLOAT: return fold_float(k, a.dtype, a.f, b.f, out);
  case KILN_KIND_BOOL: return fold_bool(k, a.i, b.i, out);
  case KILN_KIND_INT:
  case KILN_KIND_UINT: return fold_int(k, a.dtype, a.i, b.i, out);
  case KILN_KIND_CODE: break;
  }
  return false;
}

// The functions of one float, by kind.
static double (*function_of(kiln_expr_kind k))(double) {
  static const struct {
    kiln_expr_kind kind;
    double (*f)(double);
  } rows[] = {
      {KILN_EXPR_ABS, fabs},    {KILN_EXPR_FLOOR, floor}, {KILN_EXPR_CEIL, ceil},
      {KILN_EXPR_ROUND, rint},  {KILN_EXPR_TRUNC, trunc}, {KILN_EXPR_SQRT, sqrt},
      {KILN_EXPR_EXP, exp},     {KILN_EXPR_EXPM1, expm1}, {KILN_EXPR_LOG, log},
      {KILN_EXPR_LOG1P, log1p}, {KILN_EXPR_SIN, sin},     {KILN_EXPR_COS, cos},
      {KILN_EXPR_TAN, tan},     {KILN_EXPR_ASIN, asin},   {KILN_EXPR_ACOS, acos},
      {KILN_EXPR_ATAN, atan},   {KILN_EXPR_SINH, sinh},   {KILN_EXPR_COSH, cosh},
      {KILN_EXPR_TANH, tanh},   {KILN_EXPR_ASINH, asinh}, {KILN_EXPR_ACOSH, acosh},
      {KILN_EXPR_ATANH, atanh}, {KILN_EXPR_ERF, erf},
  };
  for (size_t i = 0; i < KILN_LEN(rows); i++) {
    if (rows[i].kind == k) return rows[i].f;
  }
  return NULL;
}

static bool fold_unary_float(kiln_expr_kind k, kiln_dtype t, double a, kiln_constant *out) {
  if (k == KILN_EXPR_NEG) return gives_float(out, t, -a);
  if (k == KILN_EXPR_ISNAN) return gives_bool(out, isnan(a));
  if (k == KILN_EXPR_ISINF) return gives_bool(out, isinf(a));
  if (k == KILN_EXPR_SIGN) return gives_float(out, t, isnan(a) ? a : (a > 0) - (a < 0));
  double (*f)(double) = function_of(k);
  return f && gives_float(out, t, f(a));
}

bool kiln_fold_unary(kiln_expr_kind k, kiln_constant a, kiln_constant *out) {
  const kiln_dtype t = a.dtype;
  if (kiln_dtype_is_code(t)) return false;
  if (kiln_dtype_is_float(t)) return fold_unary_float(k, t, a.f, out);
  const bool negative = kiln_dtype_kind(t) == KILN_KIND_INT && a.i < 0;
  if (k == KILN_EXPR_NOT) return gives_bool(out, !a.i);
  if (k == KILN_EXPR_BNOT) return gives_int(out, t, t == KILN_BOOL ? !a.i : ~a.i);
  if (k == KILN_EXPR_NEG || (k == KILN_EXPR_ABS && negative))
    return gives_int(out, t, (int64_t)(0 - (uint64_t)a.i));
  if (k == KILN_EXPR_ABS && t != KILN_BOOL) return gives_int(out, t, a.i);
  if (k == KILN_EXPR_SIGN) return gives_int(out, t, negative ? -1 : a.i != 0);
  return false;
}

uint64_t kiln_float_bits(kiln_dtype t, double value) {
  const float narrow = (float)value;
  uint64_t wide = 0;
  uint32_t bits = 0;
  if (t == KILN_F16) return kiln_f16_of_f64(value);
  if (t == KILN_BF16) return kiln_bf16_of_f64(value);
  memcpy(&wide, &value, sizeof wide);
  memcpy(&bits, &narrow, sizeof bits);
  return t == KILN_F64 ? wide : bits;
}

double kiln_float_of_bits(kiln_dtype t, uint64_t bits) {
  const uint32_t low = (uint32_t)bits;
  double wide = 0;
  float narrow = 0;
  if (t == KILN_F16) return (double)kiln_f16_to_f32((uint16_t)bits);
  if (t == KILN_BF16) return (double)kiln_bf16_to_f32((uint16_t)bits);
  memcpy(&wide, &bits, sizeof wide);
  memcpy(&narrow, &low, sizeof narrow);
  return t == KILN_F64 ? wide : (double)narrow;
}

bool kiln_fold_bitcast(kiln_dtype t, kiln_constant a, kiln_constant *out) {
  *out = (kiln_constant){.dtype = t, .i = a.i};
  if (kiln_dtype_is_float(a.dtype))
    out->i = kiln_int_wrap(t, (int64_t)kiln_float_bits(a.dtype, a.f));
  if (kiln_dtype_is_float(t)) out->f = kiln_float_of_bits(t, (uint64_t)a.i);
  return !isnan(out->f) && !isnan(a.f);
}

bool kiln_fold_cast(kiln_dtype t, kiln_constant a, kiln_constant *out) {
  const bool from_float = kiln_dtype_is_float(a.dtype);
  if (!kiln_dtype_is_float(t))
    return gives_int(out, t, from_float ? kiln_int_saturate(t, a.f) : a.i);
  *out = (kiln_constant){.dtype = t};
  if (from_float) {
    out->f = kiln_float_round(t, a.f);
  } else if (t == KILN_F32) { // directly from the integer: through double it would be rounded twice
    out->f = a.dtype == KILN_U64 ? (double)(float)(uint64_t)a.i : (double)(float)a.i;
  } else {
    const double exact = a.dtype == KILN_U64 ? (double)(uint64_t)a.i : (double)a.i;
    if (t == KILN_BF16 && fabs(exact) > 0x1p53) return false;
    out->f = kiln_float_round(t, exact);
  }
  return true;
}
