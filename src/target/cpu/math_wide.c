// Elementary functions of f32 lanes that are computed in f64 lanes and rounded once: expm1, log1p,
// sin, cos, pow. They are rarer than those of math.c; in f64, cancellation, huge exponents and
// argument reduction need no special care. Coefficients are fitted as in math.c; errors measured by
// test/unit/cpu/math_test.c are at most 0.51 ULP.
#include "target/cpu/cpu.h"

#include <math.h>

static LLVMValueRef konst(LLVMValueRef like, double v) {
  return kiln_cpu_const_float(LLVMTypeOf(like), v);
}

static LLVMValueRef widen(kiln_emit *e, LLVMValueRef x) {
  return LLVMBuildFPExt(e->b, x, kiln_cpu_lanes_of(e->m->f64, kiln_cpu_type_lanes(LLVMTypeOf(x))),
                        "");
}

static LLVMValueRef narrow(kiln_emit *e, LLVMValueRef x) {
  return LLVMBuildFPTrunc(e->b, x, kiln_cpu_lanes_of(e->m->f32, kiln_cpu_type_lanes(LLVMTypeOf(x))),
                          "");
}

static LLVMTypeRef ints_like(kiln_emit *e, LLVMValueRef x) {
  return kiln_cpu_lanes_of(e->m->i64, kiln_cpu_type_lanes(LLVMTypeOf(x)));
}

// |t| rounded to an integer, as a float and as the low bits of an integer.
static LLVMValueRef to_integer(kiln_emit *e, LLVMValueRef t, LLVMValueRef *out_bits) {
  LLVMValueRef big = LLVMBuildFAdd(e->b, t, konst(t, 0x1.8p52), "");
  *out_bits = LLVMBuildBitCast(e->b, big, ints_like(e, t), "");
  return LLVMBuildFSub(e->b, big, konst(t, 0x1.8p52), "");
}

// 2^n from the bits of to_integer; the shift into the exponent field drops higher bits.
static LLVMValueRef power_of_two(kiln_emit *e, LLVMValueRef like, LLVMValueRef bits) {
  LLVMTypeRef type = LLVMTypeOf(bits);
  LLVMValueRef biased = LLVMBuildAdd(e->b, bits, kiln_cpu_const_int(type, 1023), "");
  return LLVMBuildBitCast(e->b, LLVMBuildShl(e->b, biased, kiln_cpu_const_int(type, 52), ""),
                          LLVMTypeOf(like), "");
}

// 2^n * (exp(r) - 1) + (2^n - 1); relative error of the polynomial in exp(r) - 1 2^-37.5.
LLVMValueRef kiln_cpu_expm1(kiln_emit *e, LLVMValueRef x32) {
  static const double coef[] = {0x1.a0039f4a8649cp-16, 0x1.a16f9d8d58391p-13, 0x1.6c1766fba566bp-10,
                                0x1.1110b201aee0ep-7,  0x1.555554f3446d3p-5,  0x1.555555735f8c8p-3,
                                0x1.0000000017258p-1};
  LLVMValueRef x = kiln_cpu_clamp(e, widen(e, x32), -40, 100), bits = NULL;
  LLVMValueRef n = to_integer(e, LLVMBuildFMul(e->b, x, konst(x, 0x1.71547652b82fep0), ""), &bits);
  LLVMValueRef r = kiln_cpu_fma(e, n, konst(x, -0x1.62e42fefa38p-1), x);
  r = kiln_cpu_fma(e, n, konst(x, -0x1.ef35793c7673p-45), r);
  LLVMValueRef square = LLVMBuildFMul(e->b, r, r, "");
  LLVMValueRef p = kiln_cpu_fma(e, kiln_cpu_poly(e, r, 7, coef), square, r);
  LLVMValueRef scale = power_of_two(e, x, bits);
  LLVMValueRef y = kiln_cpu_fma(e, p, scale, LLVMBuildFSub(e->b, scale, konst(x, 1), ""));
  return kiln_cpu_call2(e, "llvm.copysign", narrow(e, y), x32); // expm1(-0) = -0
}

// The logarithm of positive x = m * 2^n: *out_n is n, and the result is log(m) = 2s + s^3 P(s^2)
// with s = (m - 1) / (m + 1); relative error 2^-44.9.
static LLVMValueRef log_parts(kiln_emit *e, LLVMValueRef x, LLVMValueRef *out_n) {
  static const double coef[] = {0x1.911578be865cbp-3, 0x1.c62b15feff95fp-3, 0x1.249411eaa46d3p-2,
                                0x1.999996a951741p-2, 0x1.555555561e41p-1};
  LLVMTypeRef ints = ints_like(e, x);
  const int64_t root = INT64_C(0x3fe6a09e667f3bcd); // sqrt(1/2)
  LLVMValueRef from =
      LLVMBuildSub(e->b, LLVMBuildBitCast(e->b, x, ints, ""), kiln_cpu_const_int(ints, root), "");
  LLVMValueRef n = LLVMBuildAShr(e->b, from, kiln_cpu_const_int(ints, 52), "");
  LLVMValueRef m = LLVMBuildAnd(e->b, from, kiln_cpu_const_int(ints, (INT64_C(1) << 52) - 1), "");
  m = LLVMBuildBitCast(e->b, LLVMBuildAdd(e->b, m, kiln_cpu_const_int(ints, root), ""),
                       LLVMTypeOf(x), "");
  LLVMTypeRef i32 = kiln_cpu_lanes_of(e->m->i32, kiln_cpu_type_lanes(LLVMTypeOf(x)));
  *out_n = LLVMBuildSIToFP(e->b, LLVMBuildTrunc(e->b, n, i32, ""), LLVMTypeOf(x), "");
  LLVMValueRef s = LLVMBuildFDiv(e->b, LLVMBuildFSub(e->b, m, konst(x, 1), ""),
                                 LLVMBuildFAdd(e->b, m, konst(x, 1), ""), "");
  LLVMValueRef square = LLVMBuildFMul(e->b, s, s, "");
  LLVMValueRef p = kiln_cpu_poly(e, square, 5, coef);
  p = kiln_cpu_fma(e, p, square, konst(x, 2));
  return LLVMBuildFMul(e->b, p, s, "");
}

// log(u) + (x - (u - 1)) with u = 1 + x rounded: the rounding error of u is added back to first
// order.
LLVMValueRef kiln_cpu_log1p(kiln_emit *e, LLVMValueRef x32) {
  LLVMValueRef x = widen(e, x32), n = NULL, u = LLVMBuildFAdd(e->b, x, konst(x, 1), "");
  LLVMValueRef lost = LLVMBuildFSub(e->b, x, LLVMBuildFSub(e->b, u, konst(x, 1), ""), "");
  LLVMValueRef y = LLVMBuildFAdd(e->b, log_parts(e, u, &n), lost, "");
  y = narrow(e, kiln_cpu_fma(e, n, konst(x, 0x1.62e42fefa39efp-1), y));
  LLVMValueRef minus = konst(x32, -1), top = konst(x32, INFINITY);
  LLVMValueRef inside = LLVMBuildFCmp(e->b, LLVMRealOLT, x32, top, "");
  y = LLVMBuildSelect(e->b, inside, y, x32, "");
  LLVMValueRef below = LLVMBuildFCmp(e->b, LLVMRealOLT, x32, minus, "");
  y = LLVMBuildSelect(e->b, below, konst(x32, NAN), y, "");
  LLVMValueRef pole = LLVMBuildFCmp(e->b, LLVMRealOEQ, x32, minus, "");
  y = LLVMBuildSelect(e->b, pole, konst(x32, -INFINITY), y, "");
  LLVMValueRef zero = LLVMBuildFCmp(e->b, LLVMRealOEQ, x32, konst(x32, 0), "");
  return LLVMBuildSelect(e->b, zero, x32, y, "");
}

// Sine or cosine of r in [-pi/4, pi/4] by the quadrant; errors 2^-37.5 and 2^-43.6.
static LLVMValueRef quadrant(kiln_emit *e, LLVMValueRef r, LLVMValueRef q) {
  static const double sin_coef[] = {0x1.6cd19dde4785fp-19, -0x1.a00f7dc7297bap-13,
                                    0x1.11110868acf7cp-7, -0x1.5555554c6f7c8p-3};
  static const double cos_coef[] = {-0x1.23c938c6852e2p-22, 0x1.a00eb8300b2a1p-16,
                                    -0x1.6c16b345eb278p-10, 0x1.55555545c0f29p-5,
                                    -0x1.ffffffffe9838p-2};
  LLVMTypeRef type = LLVMTypeOf(q);
  LLVMValueRef s = LLVMBuildFMul(e->b, r, r, ""), zero = LLVMConstNull(type);
  LLVMValueRef sine =
      kiln_cpu_fma(e, LLVMBuildFMul(e->b, s, r, ""), kiln_cpu_poly(e, s, 4, sin_coef), r);
  LLVMValueRef cosine = kiln_cpu_fma(e, s, kiln_cpu_poly(e, s, 5, cos_coef), konst(r, 1));
  LLVMValueRef odd = LLVMBuildAnd(e->b, q, kiln_cpu_const_int(type, 1), "");
  LLVMValueRef y =
      LLVMBuildSelect(e->b, LLVMBuildICmp(e->b, LLVMIntNE, odd, zero, ""), cosine, sine, "");
  LLVMValueRef sign = LLVMBuildShl(e->b, LLVMBuildAnd(e->b, q, kiln_cpu_const_int(type, 2), ""),
                                   kiln_cpu_const_int(type, 62), "");
  return LLVMBuildBitCast(e->b, LLVMBuildXor(e->b, LLVMBuildBitCast(e->b, y, type, ""), sign, ""),
                          LLVMTypeOf(r), "");
}

// Lanes of |x| >= 2^30, where pi/2 in two parts is not exact enough, are computed by the C library
// in a block of their own; the others keep their values, so that no element depends on its
// neighbours. In a tail, these may be any contents of memory.
LLVMValueRef kiln_cpu_sin_cos(kiln_emit *e, LLVMValueRef x32, bool is_cos) {
  const kiln_expr_kind k = is_cos ? KILN_EXPR_COS : KILN_EXPR_SIN;
  if (!e->m->machine->has_fma) return kiln_cpu_libm(e, k, x32, NULL);
  LLVMValueRef x = widen(e, x32), q = NULL;
  LLVMValueRef n = to_integer(e, LLVMBuildFMul(e->b, x, konst(x, 0x1.45f306dc9c883p-1), ""), &q);
  LLVMValueRef r = kiln_cpu_fma(e, n, konst(x, -0x1.921fb54442d18p0), x);
  r = kiln_cpu_fma(e, n, konst(x, -0x1.1a62633145c07p-54), r);
  if (is_cos) q = LLVMBuildAdd(e->b, q, kiln_cpu_const_int(LLVMTypeOf(q), 1), "");
  LLVMValueRef y = narrow(e, quadrant(e, r, q));
  if (!is_cos) { // sin(-0) = -0
    LLVMValueRef zero = LLVMBuildFCmp(e->b, LLVMRealOEQ, x32, konst(x32, 0), "");
    y = LLVMBuildSelect(e->b, zero, x32, y, "");
  }
  LLVMValueRef size = kiln_cpu_call1(e, "llvm.fabs", x32);
  LLVMValueRef large = LLVMBuildFCmp(e->b, LLVMRealOGE, size, konst(x32, 0x1p30), "");
  LLVMValueRef any = kiln_cpu_type_lanes(LLVMTypeOf(large)) ? kiln_cpu_any(e, large) : large;
  LLVMBasicBlockRef before = LLVMGetInsertBlock(e->b);
  LLVMBasicBlockRef slow = LLVMAppendBasicBlockInContext(e->m->llvm, e->fn, "large"),
                    after = LLVMAppendBasicBlockInContext(e->m->llvm, e->fn, "reduced");
  LLVMBuildCondBr(e->b, any, slow, after);
  LLVMPositionBuilderAtEnd(e->b, slow);
  LLVMValueRef called = LLVMBuildSelect(e->b, large, kiln_cpu_libm(e, k, x32, NULL), y, "");
  LLVMBuildBr(e->b, after);
  LLVMPositionBuilderAtEnd(e->b, after);
  LLVMValueRef phi = LLVMBuildPhi(e->b, LLVMTypeOf(x32), "");
  LLVMAddIncoming(phi, (LLVMValueRef[]){y, called}, (LLVMBasicBlockRef[]){before, slow}, 2);
  return phi;
}

// 2^t, rounded to f32 once, even if the result is subnormal.
static LLVMValueRef exp2_narrow(kiln_emit *e, LLVMValueRef t) {
  static const double coef[] = {0x1.61c4f05a404eap-20, 0x1.00d8538df061dp-16, 0x1.430aa884303d7p-13,
                                0x1.5d874d0674289p-10, 0x1.3b2ab5ed6e00cp-7,  0x1.c6b08dced3e71p-5,
                                0x1.ebfbdff8edeaap-3,  0x1.62e42fef89d19p-1};
  LLVMValueRef bits = NULL, n = to_integer(e, t, &bits), r = LLVMBuildFSub(e->b, t, n, "");
  LLVMValueRef p = kiln_cpu_fma(e, kiln_cpu_poly(e, r, 8, coef), r, konst(t, 1));
  return narrow(e, LLVMBuildFMul(e->b, p, power_of_two(e, t, bits), ""));
}

static LLVMValueRef is_equal(kiln_emit *e, LLVMValueRef a, double b) {
  return LLVMBuildFCmp(e->b, LLVMRealOEQ, a, konst(a, b), "");
}

// |x|^y by IEEE 754 if |x| is 0 or infinite, y is 0 or x is 1.
static LLVMValueRef pow_ends(kiln_emit *e, LLVMValueRef r, LLVMValueRef x, LLVMValueRef size,
                             LLVMValueRef y) {
  LLVMValueRef up = LLVMBuildFCmp(e->b, LLVMRealOGT, y, konst(y, 0), "");
  LLVMValueRef zero = konst(x, 0), top = konst(x, INFINITY), one = konst(x, 1);
  LLVMValueRef at_zero = LLVMBuildSelect(e->b, up, zero, top, "");
  LLVMValueRef at_top = LLVMBuildSelect(e->b, up, top, zero, "");
  LLVMValueRef y_nan = LLVMBuildFCmp(e->b, LLVMRealUNO, y, y, "");
  LLVMValueRef s = LLVMBuildSelect(e->b, is_equal(e, size, 0), at_zero, r, "");
  s = LLVMBuildSelect(e->b, is_equal(e, size, INFINITY), at_top, s, "");
  s = LLVMBuildSelect(e->b, is_equal(e, size, 1), one, s, "");
  s = LLVMBuildSelect(e->b, y_nan, y, s, "");
  return s;
}

// 2^(y * log2|x|), then the sign of odd powers.
LLVMValueRef kiln_cpu_pow(kiln_emit *e, LLVMValueRef x, LLVMValueRef y) {
  LLVMValueRef size = kiln_cpu_call1(e, "llvm.fabs", x), n = NULL;
  LLVMValueRef wide = widen(e, size), y_wide = widen(e, y), l = log_parts(e, wide, &n);
  l = kiln_cpu_fma(e, l, konst(wide, 0x1.71547652b82fep0), n);
  LLVMValueRef t = kiln_cpu_clamp(e, LLVMBuildFMul(e->b, y_wide, l, ""), -300, 300);
  LLVMValueRef r = pow_ends(e, exp2_narrow(e, t), x, size, y);
  LLVMValueRef x_nan = LLVMBuildFCmp(e->b, LLVMRealUNO, x, x, "");
  r = LLVMBuildSelect(e->b, x_nan, x, r, "");

  LLVMValueRef half = LLVMBuildFMul(e->b, y, konst(y, 0.5), "");
  LLVMValueRef whole =
      LLVMBuildFCmp(e->b, LLVMRealOEQ, kiln_cpu_call1(e, "llvm.roundeven", y), y, "");
  LLVMValueRef even =
      LLVMBuildFCmp(e->b, LLVMRealOEQ, kiln_cpu_call1(e, "llvm.roundeven", half), half, "");
  LLVMValueRef odd = LLVMBuildAnd(e->b, whole, LLVMBuildNot(e->b, even, ""), "");
  LLVMValueRef signed_r = kiln_cpu_call2(e, "llvm.copysign", r, x);
  r = LLVMBuildSelect(e->b, odd, signed_r, r, "");
  LLVMValueRef negative =
      LLVMBuildAnd(e->b, LLVMBuildFCmp(e->b, LLVMRealOLT, x, konst(x, 0), ""),
                   LLVMBuildFCmp(e->b, LLVMRealOGT, x, konst(x, -INFINITY), ""), "");
  LLVMValueRef fraction =
      LLVMBuildFCmp(e->b, LLVMRealUNE, kiln_cpu_call1(e, "llvm.roundeven", y), y, "");
  LLVMValueRef undefined = LLVMBuildAnd(e->b, negative, fraction, "");
  r = LLVMBuildSelect(e->b, undefined, konst(x, NAN), r, "");
  r = LLVMBuildSelect(e->b, is_equal(e, y, 0), konst(x, 1), r, "");
  return LLVMBuildSelect(e->b, is_equal(e, x, 1), konst(x, 1), r, "");
}
