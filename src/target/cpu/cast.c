// Conversions between element types. Values of half types are computed in f32, so a cast to a half
// type rounds to its bits and converts these back.
#include "target/cpu/cpu.h"

#include <math.h>

// f64 to f32 such that rounding again to fewer bits is right: to nearest, and an inexact result is
// made odd (Boldo and Melquiond, round to odd).
static LLVMValueRef round_to_odd(kiln_emit *e, LLVMValueRef x) {
  const int lanes = kiln_cpu_type_lanes(LLVMTypeOf(x));
  LLVMTypeRef i32 = kiln_cpu_lanes_of(e->m->i32, lanes), f32 = kiln_cpu_lanes_of(e->m->f32, lanes);
  LLVMValueRef near = LLVMBuildFPTrunc(e->b, x, f32, "");
  LLVMValueRef back = LLVMBuildFPExt(e->b, near, LLVMTypeOf(x), "");
  LLVMValueRef bits = LLVMBuildBitCast(e->b, near, i32, "");
  LLVMValueRef even =
      LLVMBuildICmp(e->b, LLVMIntEQ, LLVMBuildAnd(e->b, bits, kiln_cpu_const_int(i32, 1), ""),
                    LLVMConstNull(i32), "");
  LLVMValueRef inexact = LLVMBuildFCmp(e->b, LLVMRealONE, back, x, "");
  LLVMValueRef below = LLVMBuildFCmp(e->b, LLVMRealOLT, kiln_cpu_call1(e, "llvm.fabs", back),
                                     kiln_cpu_call1(e, "llvm.fabs", x), "");
  LLVMValueRef step =
      LLVMBuildSelect(e->b, below, kiln_cpu_const_int(i32, 1), kiln_cpu_const_int(i32, -1), "");
  LLVMValueRef adjust = LLVMBuildAnd(e->b, even, inexact, "");
  bits = LLVMBuildAdd(e->b, bits, LLVMBuildSelect(e->b, adjust, step, LLVMConstNull(i32), ""), "");
  return LLVMBuildBitCast(e->b, bits, f32, "");
}

static LLVMValueRef bf16_by_bits(kiln_emit *e, LLVMValueRef x) {
  const int lanes = kiln_cpu_type_lanes(LLVMTypeOf(x));
  LLVMTypeRef i32 = kiln_cpu_lanes_of(e->m->i32, lanes), i16 = kiln_cpu_lanes_of(e->m->i16, lanes);
  LLVMValueRef bits = LLVMBuildBitCast(e->b, x, i32, ""), sixteen = kiln_cpu_const_int(i32, 16);
  LLVMValueRef high = LLVMBuildLShr(e->b, bits, sixteen, "");
  LLVMValueRef odd = LLVMBuildAnd(e->b, high, kiln_cpu_const_int(i32, 1), "");
  LLVMValueRef bias = LLVMBuildAdd(e->b, odd, kiln_cpu_const_int(i32, 0x7fff), "");
  LLVMValueRef near = LLVMBuildLShr(e->b, LLVMBuildAdd(e->b, bits, bias, ""), sixteen, "");
  LLVMValueRef quiet = LLVMBuildOr(e->b, high, kiln_cpu_const_int(i32, 0x40), "");
  LLVMValueRef nan = LLVMBuildFCmp(e->b, LLVMRealUNO, x, x, "");
  return LLVMBuildTrunc(e->b, LLVMBuildSelect(e->b, nan, quiet, near, ""), i16, "");
}

// The instruction rounds like the integer version, but takes subnormal numbers for zero of their
// sign. These are rounded by adding a number whose last place is theirs, and selected.
static LLVMValueRef bf16_by_instruction(kiln_emit *e, LLVMValueRef x, int lanes) {
  LLVMTypeRef i32 = kiln_cpu_lanes_of(e->m->i32, lanes), i16 = kiln_cpu_lanes_of(e->m->i16, lanes);
  LLVMValueRef half = LLVMBuildFPTrunc(e->b, x, kiln_cpu_lanes_of(e->m->bf16, lanes), "");
  LLVMValueRef shift = kiln_cpu_const_float(LLVMTypeOf(x), 0x1.8p-110), zero = LLVMConstNull(i32);
  LLVMValueRef exponent = LLVMBuildAnd(e->b, LLVMBuildBitCast(e->b, x, i32, ""),
                                       kiln_cpu_const_int(i32, 0x7f800000), "");
  LLVMValueRef is_small = LLVMBuildICmp(e->b, LLVMIntEQ, exponent, zero, "");
  LLVMValueRef near = LLVMBuildFSub(e->b, LLVMBuildFAdd(e->b, x, shift, ""), shift, "");
  LLVMValueRef bits =
      LLVMBuildSelect(e->b, is_small, LLVMBuildBitCast(e->b, near, i32, ""), zero, "");
  bits = LLVMBuildLShr(e->b, bits, kiln_cpu_const_int(i32, 16), "");
  return LLVMBuildOr(e->b, LLVMBuildBitCast(e->b, half, i16, ""),
                     LLVMBuildTrunc(e->b, bits, i16, ""), "");
}

LLVMValueRef kiln_cpu_round_half(kiln_emit *e, kiln_dtype t, LLVMValueRef v) {
  const int lanes = kiln_cpu_type_lanes(LLVMTypeOf(v));
  if (kiln_cpu_scalar_of(LLVMTypeOf(v)) == e->m->f64) v = round_to_odd(e, v);
  LLVMTypeRef i16 = kiln_cpu_lanes_of(e->m->i16, lanes);
  if (t == KILN_F16 && !kiln_cpu_has_f16c(e->m)) return kiln_cpu_f16_to_bits(e, v);
  if (t == KILN_F16) {
    LLVMValueRef half = LLVMBuildFPTrunc(e->b, v, kiln_cpu_lanes_of(e->m->f16, lanes), "");
    return LLVMBuildBitCast(e->b, half, i16, "");
  }
  return e->m->machine->has_bf16 && lanes ? bf16_by_instruction(e, v, lanes) : bf16_by_bits(e, v);
}

static LLVMValueRef to_float(kiln_emit *e, kiln_dtype to, kiln_dtype from, LLVMValueRef v) {
  const int lanes = kiln_cpu_type_lanes(LLVMTypeOf(v));
  LLVMTypeRef type = kiln_cpu_lanes_of(kiln_cpu_value_type(e->m, to), lanes);
  const bool to_half = kiln_dtype_is_half(to);
  // of bits: LLVM takes time quadratic in the number of float comparisons of a block
  if (from == KILN_BOOL) {
    v = LLVMBuildSelect(e->b, v, kiln_cpu_const_float(type, 1), LLVMConstNull(type), "");
  } else if (kiln_dtype_is_int(from)) {
    const bool is_signed = kiln_dtype_kind(from) == KILN_KIND_INT;
    // Integers of 32 bits and more are converted to half types through f64, exactly up to 2^53.
    if (to_half && kiln_dtype_bytes(from) >= 4) type = kiln_cpu_lanes_of(e->m->f64, lanes);
    v = is_signed ? LLVMBuildSIToFP(e->b, v, type, "") : LLVMBuildUIToFP(e->b, v, type, "");
  }
  if (to_half) return kiln_cpu_from_memory(e, to, kiln_cpu_round_half(e, to, v));
  if (from == KILN_F64 && to == KILN_F32) return LLVMBuildFPTrunc(e->b, v, type, "");
  if (kiln_dtype_is_float(from) && from != KILN_F64 && to == KILN_F64)
    return LLVMBuildFPExt(e->b, v, type, "");
  return v;
}

// To an integer of at most 16 bits: clamped as a float, an instruction a bound. Comparisons with
// NaN are false, so that NaN becomes the bound that is zero, or is zeroed first.
static LLVMValueRef float_to_short(kiln_emit *e, kiln_dtype to, LLVMValueRef v) {
  LLVMTypeRef from = LLVMTypeOf(v);
  const int lanes = kiln_cpu_type_lanes(from), bits = 8 * kiln_dtype_bytes(to);
  const bool is_signed = kiln_dtype_kind(to) == KILN_KIND_INT;
  const double above = ldexp(1, is_signed ? bits - 1 : bits);
  LLVMValueRef least = kiln_cpu_const_float(from, is_signed ? -above : 0),
               most = kiln_cpu_const_float(from, above - 1);
  if (is_signed)
    v = LLVMBuildSelect(e->b, LLVMBuildFCmp(e->b, LLVMRealORD, v, v, ""), v, LLVMConstNull(from),
                        "");
  v = LLVMBuildSelect(e->b, LLVMBuildFCmp(e->b, LLVMRealOGT, v, least, ""), v, least, "");
  v = LLVMBuildSelect(e->b, LLVMBuildFCmp(e->b, LLVMRealOLT, v, most, ""), v, most, "");
  v = LLVMBuildFPToSI(e->b, v, kiln_cpu_lanes_of(e->m->i32, lanes), "");
  return LLVMBuildTrunc(e->b, v, kiln_cpu_lanes_of(kiln_cpu_value_type(e->m, to), lanes), "");
}

// Truncates to the nearest value of the type; NaN gives 0. Written with selects, because LLVM
// scalarises its saturating conversion; results of conversions out of range are not selected.
static LLVMValueRef float_to_int(kiln_emit *e, kiln_dtype to, LLVMValueRef v) {
  if (kiln_dtype_bytes(to) <= 2) return float_to_short(e, to, v);
  LLVMTypeRef from = LLVMTypeOf(v),
              type = kiln_cpu_lanes_of(kiln_cpu_value_type(e->m, to), kiln_cpu_type_lanes(from));
  const bool is_signed = kiln_dtype_kind(to) == KILN_KIND_INT;
  const int bits = 8 * kiln_dtype_bytes(to);
  LLVMValueRef least = kiln_cpu_const_int(type, is_signed ? INT64_MIN >> (64 - bits) : 0);
  LLVMValueRef below = kiln_cpu_const_float(from, is_signed ? -ldexp(1, bits - 1) : 0),
               above = kiln_cpu_const_float(from, ldexp(1, is_signed ? bits - 1 : bits));
  LLVMValueRef i =
      is_signed ? LLVMBuildFPToSI(e->b, v, type, "") : LLVMBuildFPToUI(e->b, v, type, "");
  i = LLVMBuildSelect(e->b, LLVMBuildFCmp(e->b, LLVMRealOLT, v, below, ""), least, i, "");
  LLVMValueRef most = LLVMBuildNot(e->b, is_signed ? least : LLVMConstNull(type), "");
  i = LLVMBuildSelect(e->b, LLVMBuildFCmp(e->b, LLVMRealOGE, v, above, ""), most, i, "");
  return LLVMBuildSelect(e->b, LLVMBuildFCmp(e->b, LLVMRealUNO, v, v, ""), LLVMConstNull(type), i,
                         "");
}

LLVMValueRef kiln_cpu_cast(kiln_emit *e, kiln_dtype to, kiln_dtype from, LLVMValueRef v) {
  LLVMTypeRef zero_type = LLVMTypeOf(v);
  if (kiln_dtype_is_float(to)) {
    const bool same = kiln_cpu_value_type(e->m, to) == kiln_cpu_value_type(e->m, from);
    const bool wider = to == KILN_F32 && same;
    return wider ? v : to_float(e, to, from, v);
  }
  if (to == KILN_BOOL) {
    LLVMValueRef zero = LLVMConstNull(zero_type);
    if (from == KILN_BOOL) return v;
    return kiln_dtype_is_float(from) ? LLVMBuildFCmp(e->b, LLVMRealUNE, v, zero, "")
                                     : LLVMBuildICmp(e->b, LLVMIntNE, v, zero, "");
  }
  if (kiln_dtype_is_float(from)) return float_to_int(e, to, v);
  LLVMTypeRef type =
      kiln_cpu_lanes_of(kiln_cpu_value_type(e->m, to), kiln_cpu_type_lanes(zero_type));
  return LLVMBuildIntCast2(e->b, v, type, kiln_dtype_kind(from) == KILN_KIND_INT, "");
}

LLVMValueRef kiln_cpu_bitcast(kiln_emit *e, kiln_dtype to, kiln_dtype from, LLVMValueRef v) {
  const int lanes = kiln_cpu_type_lanes(LLVMTypeOf(v));
  v = kiln_cpu_to_memory(e, from, v);
  v = LLVMBuildBitCast(e->b, v, kiln_cpu_lanes_of(kiln_cpu_memory_type(e->m, to), lanes), "");
  return kiln_cpu_from_memory(e, to, v);
}
