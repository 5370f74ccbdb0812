// Quantisation: rounding to bytes, and converting such bytes to numbers at once.
#include "target/cpu/cpu.h"

#include <math.h>

// A byte of type |t|: round(value) + shift, saturated to the type.
typedef struct code {
  const kiln_expr *value; // f32
  int shift;
  kiln_dtype t;
} code;

enum { MOST_SHIFT = 1 << 12 };

static bool is_shift(const kiln_expr *x, int *out) {
  if (x->kind != KILN_EXPR_FLOAT || fabs(x->u.f) > MOST_SHIFT || x->u.f != nearbyint(x->u.f))
    return false;
  *out = (int)x->u.f;
  return true;
}

static bool find_code(const kiln_expr *x, code *out) {
  if (x->kind != KILN_EXPR_CAST || (x->dtype != KILN_U8 && x->dtype != KILN_I8)) return false;
  const kiln_expr *sum = x->args[0], *rounded = sum;
  *out = (code){.t = x->dtype};
  if (sum->kind == KILN_EXPR_ADD && is_shift(sum->args[1], &out->shift)) rounded = sum->args[0];
  if (rounded->kind != KILN_EXPR_ROUND || rounded->dtype != KILN_F32) return false;
  out->value = rounded->args[0];
  return true;
}

// The value clamped to the range that rounds to the type's bounds. NaN becomes the value of 0.
static kiln_lanes clamped(kiln_emit *e, const code *c) {
  const bool is_signed = c->t == KILN_I8;
  kiln_lanes x = kiln_cpu_widen(e, kiln_cpu_eval(e, c->value));
  LLVMTypeRef type = LLVMTypeOf(x.v);
  LLVMValueRef least = kiln_cpu_const_float(type, (is_signed ? INT8_MIN : 0) - c->shift),
               most = kiln_cpu_const_float(type, (is_signed ? INT8_MAX : UINT8_MAX) - c->shift);
  if (is_signed)
    x.v = LLVMBuildSelect(e->b, LLVMBuildFCmp(e->b, LLVMRealORD, x.v, x.v, ""), x.v,
                          kiln_cpu_const_float(type, -c->shift), "");
  x.v = LLVMBuildSelect(e->b, LLVMBuildFCmp(e->b, LLVMRealOGT, x.v, least, ""), x.v, least, "");
  x.v = LLVMBuildSelect(e->b, LLVMBuildFCmp(e->b, LLVMRealOLT, x.v, most, ""), x.v, most, "");
  return x;
}

// Floats near 1.5 * 2^23 are one apart: adding it to a number rounds that to even, and the low bits
// of the sum are the integer.
static const double ROUNDER = 12582912;

static kiln_lanes add_rounder(kiln_emit *e, const code *c) {
  kiln_lanes x = clamped(e, c);
  x.v = LLVMBuildFAdd(e->b, x.v, kiln_cpu_const_float(LLVMTypeOf(x.v), ROUNDER), "");
  return x;
}

// The byte in i32.
static kiln_lanes as_integer(kiln_emit *e, const code *c) {
  enum { BITS = 0x4b400000 }; // of ROUNDER
  kiln_lanes x = add_rounder(e, c);
  LLVMTypeRef i32 = kiln_cpu_lanes_of(e->m->i32, x.lanes);
  x.v = LLVMBuildBitCast(e->b, x.v, i32, "");
  x.v = LLVMBuildAdd(e->b, x.v, kiln_cpu_const_int(i32, c->shift - BITS), "");
  return x;
}

// The byte less |zero|, in f32.
static kiln_lanes as_float(kiln_emit *e, const code *c, int zero) {
  kiln_lanes x = add_rounder(e, c);
  LLVMValueRef back = kiln_cpu_const_float(LLVMTypeOf(x.v), ROUNDER - (c->shift - zero));
  x.v = LLVMBuildFSub(e->b, x.v, back, "");
  return x;
}

// Whether |x| is a byte in i32 less a zero point.
static bool find_centred(const kiln_expr *x, code *out, int *out_zero) {
  int64_t zero = 0;
  if (x->kind == KILN_EXPR_SUB && kiln_expr_is_int(x->args[1], &zero)) x = x->args[0];
  if (x->kind != KILN_EXPR_CAST || x->dtype != KILN_I32 || zero < -MOST_SHIFT || zero > MOST_SHIFT)
    return false;
  *out_zero = (int)zero;
  return find_code(x->args[0], out);
}

bool kiln_cpu_eval_code(kiln_emit *e, const kiln_expr *x, kiln_lanes *out) {
  code c;
  int zero = 0;
  if (x->kind != KILN_EXPR_CAST) return false;
  if (x->dtype == KILN_F32 && find_centred(x->args[0], &c, &zero)) {
    *out = as_float(e, &c, zero);
    return true;
  }
  const bool widens = x->dtype == KILN_I16 || x->dtype == KILN_I32;
  if (!find_code(x, &c) && !(widens && find_code(x->args[0], &c))) return false;
  *out = as_integer(e, &c);
  LLVMTypeRef type = kiln_cpu_lanes_of(kiln_cpu_value_type(e->m, x->dtype), out->lanes);
  out->v = LLVMBuildIntCast2(e->b, out->v, type, true, "");
  return true;
}
