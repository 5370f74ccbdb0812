// Elementary functions of f32 lanes (or one scalar), inline.
//
// Method: an argument reduction that is exact but for the last bits (Cody and Waite), then a
// polynomial. Coefficients are minimax fits of this project (iteratively reweighted least squares
// in 80-bit arithmetic on 3000 Chebyshev nodes, rounded to f32). Largest errors, measured by
// test/unit/cpu/math_test.c over all exponents and signs: exp 1.0, log 0.8, tanh 1.4, erf 1.1,
// tanh of softplus 2.4 ULP.
#include "target/cpu/cpu.h"

#include <math.h>

static LLVMValueRef konst(LLVMValueRef like, double v) {
  return kiln_cpu_const_float(LLVMTypeOf(like), v);
}

static LLVMTypeRef ints_like(kiln_emit *e, LLVMValueRef x) {
  return kiln_cpu_lanes_of(e->m->i32, kiln_cpu_type_lanes(LLVMTypeOf(x)));
}

LLVMValueRef kiln_cpu_poly(kiln_emit *e, LLVMValueRef x, int n, const double *coef) {
  LLVMValueRef sum = konst(x, coef[0]);
  for (int i = 1; i < n; i++) sum = kiln_cpu_fma(e, sum, x, konst(x, coef[i]));
  return sum;
}

LLVMValueRef kiln_cpu_clamp(kiln_emit *e, LLVMValueRef x, double lo, double hi) {
  LLVMValueRef low = konst(x, lo), high = konst(x, hi);
  x = LLVMBuildSelect(e->b, LLVMBuildFCmp(e->b, LLVMRealOGT, low, x, ""), low, x, "");
  return LLVMBuildSelect(e->b, LLVMBuildFCmp(e->b, LLVMRealOLT, high, x, ""), high, x, "");
}

// 2^n from |bits|, whose low bits are n + 127; the shift into the exponent field drops higher bits.
static LLVMValueRef power_of_two(kiln_emit *e, LLVMValueRef like, LLVMValueRef bits) {
  LLVMTypeRef type = LLVMTypeOf(bits);
  return LLVMBuildBitCast(e->b, LLVMBuildShl(e->b, bits, kiln_cpu_const_int(type, 23), ""),
                          LLVMTypeOf(like), "");
}

// An integer as a float, and biased in the low bits of another.
typedef struct rounded {
  LLVMValueRef n, bits;
} rounded;

// exp(x) for x between -104 and 89 as exp(r) * 2^n, |r| <= ln(2)/2; the polynomial's relative error
// is 2^-28.3. The bits of n are those of n + |bias|.
static LLVMValueRef exp_reduced(kiln_emit *e, LLVMValueRef x, int bias, rounded *out_n) {
  static const double coef[] = {0x1.6a23dep-10, 0x1.123a14p-7, 0x1.5558f2p-5, 0x1.555492p-3,
                                0x1.fffffcp-2};
  const double to_int =
      0x1.8p23 + bias; // adding it rounds to an integer, which the low bits then hold
  LLVMValueRef shifted = kiln_cpu_fma(e, x, konst(x, 0x1.715476p0), konst(x, to_int));
  out_n->n = LLVMBuildFSub(e->b, shifted, konst(x, to_int), "");
  out_n->bits = LLVMBuildBitCast(e->b, shifted, ints_like(e, x), "");
  LLVMValueRef r = kiln_cpu_fma(e, out_n->n, konst(x, -0x1.62e4p-1), x); // n * 15 bits: exact
  r = kiln_cpu_fma(e, out_n->n, konst(x, -0x1.7f7d1cp-20), r);
  LLVMValueRef q = kiln_cpu_poly(e, r, 5, coef);
  LLVMValueRef square = LLVMBuildFMul(e->b, r, r, "");
  return LLVMBuildFAdd(e->b, kiln_cpu_fma(e, q, square, r), konst(x, 1), "");
}

// x * 2^n by AVX-512's scaling instruction, which rounds once; 0 in the lanes of |zero| (NULL:
// none). NULL if the machine lacks the instruction.
static LLVMValueRef scale_native(kiln_emit *e, LLVMValueRef x, LLVMValueRef n, LLVMValueRef zero) {
  if (e->m->machine->vector_bytes != 64 || kiln_cpu_type_lanes(LLVMTypeOf(x)) != 16) return NULL;
  LLVMValueRef mask = kiln_cpu_const_int(e->m->i16, -1);
  if (zero) mask = LLVMBuildBitCast(e->b, LLVMBuildNot(e->b, zero, ""), e->m->i16, "");
  LLVMValueRef args[] = {x, n, konst(x, 0), mask, kiln_cpu_const_int(e->m->i32, 4)};
  return kiln_cpu_call(e, "llvm.x86.avx512.mask.scalef.ps.512", 0, NULL, 5, args);
}

// The power is applied in two steps, so that a subnormal result is rounded once and 2^128 is
// reachable. Results that round to 0, as weights of masked scores do, are not computed: rounding a
// product to a subnormal number costs Intel's processors more than a hundred cycles.
LLVMValueRef kiln_cpu_exp(kiln_emit *e, LLVMValueRef x) {
  rounded r = {0};
  LLVMValueRef zero = LLVMBuildFCmp(e->b, LLVMRealOLT, x, konst(x, -104), ""), high = konst(x, 89);
  x = LLVMBuildSelect(e->b, LLVMBuildFCmp(e->b, LLVMRealOLT, high, x, ""), high, x, "");
  x = LLVMBuildSelect(e->b, zero, konst(x, 0), x, "");
  LLVMValueRef p = exp_reduced(e, x, 2 * 127, &r), y = scale_native(e, p, r.n, zero);
  if (y) return y;
  LLVMValueRef half = LLVMBuildLShr(e->b, r.bits, kiln_cpu_const_int(LLVMTypeOf(r.bits), 1), "");
  p = LLVMBuildFMul(e->b, p, power_of_two(e, x, half), "");
  y = LLVMBuildFMul(e->b, p, power_of_two(e, x, LLVMBuildSub(e->b, r.bits, half, "")), "");
  return LLVMBuildSelect(e->b, zero, konst(x, 0), y, "");
}

// add + exp(x) for |x| <= 80, without overflow or subnormal results.
static LLVMValueRef add_exp_small(kiln_emit *e, LLVMValueRef x, double add) {
  rounded r = {0};
  LLVMValueRef p = exp_reduced(e, x, 127, &r), y = scale_native(e, p, r.n, NULL);
  if (y) return LLVMBuildFAdd(e->b, y, konst(x, add), "");
  return kiln_cpu_fma(e, p, power_of_two(e, x, r.bits), konst(x, add));
}

// exp(x) below the last place of 1 may be inexact. The power is halved and the other factor
// doubled, so that 2^128 is reachable.
LLVMValueRef kiln_cpu_one_plus_exp(kiln_emit *e, LLVMValueRef x) {
  rounded r = {0};
  x = kiln_cpu_clamp(e, x, -80, 89);
  LLVMValueRef p = exp_reduced(e, x, 127 - 1, &r), y = scale_native(e, p, r.n, NULL);
  if (y) return LLVMBuildFAdd(e->b, y, konst(x, 1), "");
  return kiln_cpu_fma(e, LLVMBuildFAdd(e->b, p, p, ""), power_of_two(e, x, r.bits), konst(x, 1));
}

// x = m * 2^n with m between sqrt(1/2) and sqrt(2); log(1 + f) = f - f^2/2 + f^3 P(f), relative
// error of the polynomial 2^-30.3.
LLVMValueRef kiln_cpu_log(kiln_emit *e, LLVMValueRef x) {
  static const double coef[] = {0x1.14573ep-4,  -0x1.de3bf8p-4, 0x1.e6f08cp-4,
                                -0x1.fc220ep-4, 0x1.233766p-3,  -0x1.555c4ep-3,
                                0x1.99a4b6p-3,  -0x1.000006p-2, 0x1.555548p-2};
  LLVMTypeRef ints = ints_like(e, x), floats = LLVMTypeOf(x);
  LLVMValueRef tiny = LLVMBuildFCmp(e->b, LLVMRealOLT, x, konst(x, 0x1p-126), "");
  LLVMValueRef scaled = LLVMBuildFMul(e->b, x, konst(x, 0x1p23), "");
  LLVMValueRef bits = LLVMBuildBitCast(e->b, LLVMBuildSelect(e->b, tiny, scaled, x, ""), ints, "");
  const int root_bits = 0x3f3504f3; // offset by sqrt(1/2), so that m is in the range
  LLVMValueRef from = LLVMBuildSub(e->b, bits, kiln_cpu_const_int(ints, root_bits), "");
  LLVMValueRef n = LLVMBuildAShr(e->b, from, kiln_cpu_const_int(ints, 23), "");
  LLVMValueRef m = LLVMBuildAnd(e->b, from, kiln_cpu_const_int(ints, 0x7fffff), "");
  m = LLVMBuildBitCast(e->b, LLVMBuildAdd(e->b, m, kiln_cpu_const_int(ints, root_bits), ""), floats,
                       "");
  n = LLVMBuildSIToFP(e->b, n, floats, "");
  n = LLVMBuildFAdd(e->b, n, LLVMBuildSelect(e->b, tiny, konst(x, -23), konst(x, 0), ""), "");
  LLVMValueRef f = LLVMBuildFSub(e->b, m, konst(x, 1), "");
  LLVMValueRef square = LLVMBuildFMul(e->b, f, f, ""), cube = LLVMBuildFMul(e->b, square, f, "");
  LLVMValueRef low = LLVMBuildFMul(e->b, n, konst(x, 0x1.7f7d1cp-20), "");
  low = kiln_cpu_fma(e, cube, kiln_cpu_poly(e, f, 9, coef), low);
  low = kiln_cpu_fma(e, square, konst(x, -0.5), low);
  LLVMValueRef r = LLVMBuildFAdd(e->b, f, low, "");
  r = kiln_cpu_fma(e, n, konst(x, 0x1.62e4p-1), r);
  // Special values: log(inf) = inf, log(0) = -inf, NaN for negative x and NaN.
  LLVMValueRef finite = LLVMBuildFCmp(e->b, LLVMRealOLT, x, konst(x, INFINITY), "");
  r = LLVMBuildSelect(e->b, finite, r, x, "");
  LLVMValueRef negative = LLVMBuildFCmp(e->b, LLVMRealOLT, x, konst(x, 0), "");
  r = LLVMBuildSelect(e->b, negative, konst(x, NAN), r, "");
  LLVMValueRef zero = LLVMBuildFCmp(e->b, LLVMRealOEQ, x, konst(x, 0), "");
  return LLVMBuildSelect(e->b, zero, konst(x, -INFINITY), r, "");
}

// Below 0.55 an odd polynomial (2^-29.8), above 1 - 2 / (exp(2|x|) + 1).
LLVMValueRef kiln_cpu_tanh(kiln_emit *e, LLVMValueRef x) {
  static const double coef[] = {-0x1.9b3058p-8, 0x1.593d0ap-6, -0x1.b9287cp-5, 0x1.110d26p-3,
                                -0x1.55554ap-2};
  LLVMValueRef t = kiln_cpu_call1(e, "llvm.fabs", x);
  LLVMValueRef square = LLVMBuildFMul(e->b, x, x, ""), cube = LLVMBuildFMul(e->b, square, x, "");
  LLVMValueRef near = kiln_cpu_fma(e, cube, kiln_cpu_poly(e, square, 5, coef), x);
  LLVMValueRef high = konst(x, 10); // tanh is 1 there
  LLVMValueRef bounded =
      LLVMBuildSelect(e->b, LLVMBuildFCmp(e->b, LLVMRealOLT, high, t, ""), high, t, "");
  LLVMValueRef grown = add_exp_small(e, LLVMBuildFAdd(e->b, bounded, bounded, ""), 1);
  LLVMValueRef far = LLVMBuildFDiv(e->b, konst(x, 2), grown, "");
  far = LLVMBuildFSub(e->b, konst(x, 1), far, "");
  LLVMValueRef is_near = LLVMBuildFCmp(e->b, LLVMRealOLT, t, konst(x, 0.55), "");
  LLVMValueRef y = LLVMBuildSelect(e->b, is_near, near, far, "");
  return kiln_cpu_call2(e, "llvm.copysign", y, x); // sign for large |x|, and for -0
}

// tanh(log(1 + exp(x))) = n / (n + 2) with n = E^2 + 2 E, E = exp(x); for positive x both divided
// by E^2, so that nothing overflows.
LLVMValueRef kiln_cpu_tanh_softplus(kiln_emit *e, LLVMValueRef x) {
  LLVMValueRef size = kiln_cpu_call1(e, "llvm.fabs", x);
  LLVMValueRef g = kiln_cpu_exp(e, LLVMBuildFNeg(e->b, size, ""));
  LLVMValueRef square = LLVMBuildFMul(e->b, g, g, ""),
               up = LLVMBuildFCmp(e->b, LLVMRealOGT, x, konst(x, 0), "");
  LLVMValueRef n = LLVMBuildSelect(e->b, up, konst(x, 1), square, "");
  n = LLVMBuildFAdd(e->b, n, LLVMBuildFAdd(e->b, g, g, ""), "");
  LLVMValueRef rest =
      LLVMBuildSelect(e->b, up, LLVMBuildFAdd(e->b, square, square, ""), konst(x, 2), "");
  return LLVMBuildFDiv(e->b, n, LLVMBuildFAdd(e->b, n, rest, ""), "");
}

// Below 1 an odd polynomial (2^-29.6), above 1 - exp(Q(|x|)) with Q = log(erfc), whose error counts
// erfc times (2^-29.8 of the result).
LLVMValueRef kiln_cpu_erf(kiln_emit *e, LLVMValueRef x) {
  static const double near_coef[] = {0x1.496a72p-14, -0x1.a3f71ap-11, 0x1.5405b6p-8, -0x1.b7f90ep-6,
                                     0x1.ce2cf8p-4,  -0x1.81273ep-2,  0x1.06eba8p-3};
  static const double far_coef[] = {0x1.852dc4p-13, -0x1.814d22p-9, 0x1.654246p-6,  -0x1.a60a94p-4,
                                    -0x1.46c582p-1, -0x1.2085b2p0,  -0x1.72e404p-12};
  LLVMValueRef t = kiln_cpu_call1(e, "llvm.fabs", x), square = LLVMBuildFMul(e->b, x, x, "");
  LLVMValueRef near = kiln_cpu_fma(e, x, kiln_cpu_poly(e, square, 7, near_coef), x);
  LLVMValueRef high = konst(x, 4); // erf is 1 there
  LLVMValueRef bounded =
      LLVMBuildSelect(e->b, LLVMBuildFCmp(e->b, LLVMRealOLT, high, t, ""), high, t, "");
  LLVMValueRef far = add_exp_small(e, kiln_cpu_poly(e, bounded, 7, far_coef), -1);
  LLVMValueRef is_near = LLVMBuildFCmp(e->b, LLVMRealOLT, t, konst(x, 1), "");
  LLVMValueRef y = LLVMBuildSelect(e->b, is_near, near, far, "");
  return kiln_cpu_call2(e, "llvm.copysign", y, x); // sign for large |x|, and for -0
}
