// Integer operators whose semantics differ from the machine's: floor division with x/0 = 0, shifts
// by any amount, powers.
#include "target/cpu/cpu.h"

// The constant that all lanes have; false if |v| is no such constant.
static bool splat_constant(LLVMValueRef v, int64_t *out) {
  if (LLVMIsAConstantInt(v)) {
    *out = LLVMConstIntGetSExtValue(v);
    return true;
  }
  if (!kiln_cpu_type_lanes(LLVMTypeOf(v)) || !LLVMIsAConstantDataVector(v)) return false;
  LLVMValueRef first = LLVMGetAggregateElement(v, 0);
  for (int i = 1; i < kiln_cpu_type_lanes(LLVMTypeOf(v)); i++) {
    if (LLVMGetAggregateElement(v, (unsigned)i) != first) return false;
  }
  *out = LLVMIsAConstantInt(first) ? LLVMConstIntGetSExtValue(first) : 0;
  return LLVMIsAConstantInt(first) != NULL;
}

static bool wants_quotient(kiln_expr_kind k) { return k == KILN_EXPR_DIV || k == KILN_EXPR_TDIV; }
static bool rounds_down(kiln_expr_kind k) { return k == KILN_EXPR_DIV || k == KILN_EXPR_MOD; }

// Needs b other than 0 and -1.
static LLVMValueRef divide_signed(kiln_emit *e, kiln_expr_kind k, LLVMValueRef a, LLVMValueRef b) {
  LLVMValueRef q = LLVMBuildSDiv(e->b, a, b, "");
  if (k == KILN_EXPR_TDIV) return q;
  LLVMValueRef r = LLVMBuildSub(e->b, a, LLVMBuildMul(e->b, q, b, ""), "");
  if (!rounds_down(k)) return r;
  LLVMTypeRef type = LLVMTypeOf(a);
  LLVMValueRef zero = LLVMConstNull(type);
  LLVMValueRef differ = LLVMBuildICmp(e->b, LLVMIntSLT, LLVMBuildXor(e->b, r, b, ""), zero, "");
  LLVMValueRef nonzero = LLVMBuildICmp(e->b, LLVMIntNE, r, zero, "");
  LLVMValueRef adjust = LLVMBuildAnd(e->b, differ, nonzero, "");
  if (wants_quotient(k)) return LLVMBuildAdd(e->b, q, LLVMBuildSExt(e->b, adjust, type, ""), "");
  return LLVMBuildSelect(e->b, adjust, LLVMBuildAdd(e->b, r, b, ""), r, "");
}

static LLVMValueRef divide_unsigned(kiln_emit *e, kiln_expr_kind k, LLVMValueRef a,
                                    LLVMValueRef b) {
  return wants_quotient(k) ? LLVMBuildUDiv(e->b, a, b, "") : LLVMBuildURem(e->b, a, b, "");
}

static LLVMValueRef divide_by_constant(kiln_emit *e, kiln_expr_kind k, bool is_signed,
                                       LLVMValueRef a, LLVMValueRef b, int64_t by, bool natural) {
  LLVMTypeRef type = LLVMTypeOf(a);
  if (by == 0) return LLVMConstNull(type);
  if (!is_signed || natural) return divide_unsigned(e, k, a, b);
  if (by == -1) return wants_quotient(k) ? LLVMBuildNeg(e->b, a, "") : LLVMConstNull(type);
  if (by > 0 && (by & (by - 1)) == 0 && rounds_down(k)) {
    const int shift = __builtin_ctzll((unsigned long long)by);
    return wants_quotient(k) ? LLVMBuildAShr(e->b, a, kiln_cpu_const_int(type, shift), "")
                             : LLVMBuildAnd(e->b, a, kiln_cpu_const_int(type, by - 1), "");
  }
  return divide_signed(e, k, a, b);
}

LLVMValueRef kiln_cpu_int_divide(kiln_emit *e, kiln_expr_kind k, bool is_signed, LLVMValueRef a,
                                 LLVMValueRef b, bool natural) {
  int64_t by = 0;
  if (splat_constant(b, &by)) return divide_by_constant(e, k, is_signed, a, b, by, natural);
  LLVMTypeRef type = LLVMTypeOf(a);
  LLVMValueRef zero = LLVMConstNull(type), one = kiln_cpu_const_int(type, 1);
  b = LLVMBuildFreeze(e->b, b, ""); // a lane that is off may be poison
  LLVMValueRef by_zero = LLVMBuildICmp(e->b, LLVMIntEQ, b, zero, "");
  LLVMValueRef safe = LLVMBuildSelect(e->b, by_zero, one, b, "");
  if (!is_signed) return LLVMBuildSelect(e->b, by_zero, zero, divide_unsigned(e, k, a, safe), "");
  LLVMValueRef by_minus = LLVMBuildICmp(e->b, LLVMIntEQ, b, kiln_cpu_const_int(type, -1), "");
  safe = LLVMBuildSelect(e->b, by_minus, one, safe, "");
  LLVMValueRef v = divide_signed(e, k, a, safe);
  LLVMValueRef minus = wants_quotient(k) ? LLVMBuildNeg(e->b, a, "") : zero;
  v = LLVMBuildSelect(e->b, by_minus, minus, v, "");
  return LLVMBuildSelect(e->b, by_zero, zero, v, "");
}

// Shifts by at least the width give 0, or the sign.
LLVMValueRef kiln_cpu_int_shift(kiln_emit *e, kiln_expr_kind k, bool is_signed, LLVMValueRef a,
                                LLVMValueRef b) {
  LLVMTypeRef type = LLVMTypeOf(a);
  const unsigned bits = LLVMGetIntTypeWidth(kiln_cpu_scalar_of(type));
  LLVMValueRef last = kiln_cpu_const_int(type, bits - 1);
  LLVMValueRef fits = LLVMBuildICmp(e->b, LLVMIntULE, b, last, "");
  LLVMValueRef by = LLVMBuildSelect(e->b, fits, b, last, "");
  if (k == KILN_EXPR_SHR && is_signed) return LLVMBuildAShr(e->b, a, by, "");
  LLVMValueRef v =
      k == KILN_EXPR_SHL ? LLVMBuildShl(e->b, a, by, "") : LLVMBuildLShr(e->b, a, by, "");
  return LLVMBuildSelect(e->b, fits, v, LLVMConstNull(type), "");
}

// Square and multiply over all bits of the exponent; a negative exponent gives 1, -1 or 0.
LLVMValueRef kiln_cpu_int_power(kiln_emit *e, bool is_signed, LLVMValueRef a, LLVMValueRef b) {
  LLVMTypeRef type = LLVMTypeOf(a);
  const unsigned bits = LLVMGetIntTypeWidth(kiln_cpu_scalar_of(type));
  int64_t by = 0;
  const bool known = splat_constant(b, &by) && (by >= 0 || !is_signed);
  LLVMValueRef one = kiln_cpu_const_int(type, 1), zero = LLVMConstNull(type), r = one, base = a;
  for (unsigned i = 0; i < bits && (!known || (uint64_t)by >> i); i++) {
    LLVMValueRef bit =
        LLVMBuildAnd(e->b, b, kiln_cpu_const_int(type, (int64_t)(UINT64_C(1) << i)), "");
    LLVMValueRef set = LLVMBuildICmp(e->b, LLVMIntNE, bit, zero, "");
    r = LLVMBuildSelect(e->b, set, LLVMBuildMul(e->b, r, base, ""), r, "");
    base = LLVMBuildMul(e->b, base, base, "");
  }
  if (!is_signed || known) return r;
  LLVMValueRef negative = LLVMBuildICmp(e->b, LLVMIntSLT, b, zero, "");
  LLVMValueRef is_one = LLVMBuildICmp(e->b, LLVMIntEQ, a, one, "");
  LLVMValueRef is_minus = LLVMBuildICmp(e->b, LLVMIntEQ, a, kiln_cpu_const_int(type, -1), "");
  LLVMValueRef odd = LLVMBuildICmp(e->b, LLVMIntNE, LLVMBuildAnd(e->b, b, one, ""), zero, "");
  LLVMValueRef unit = LLVMBuildSelect(
      e->b, is_one, one,
      LLVMBuildSelect(e->b, is_minus, LLVMBuildSelect(e->b, odd, a, one, ""), zero, ""), "");
  return LLVMBuildSelect(e->b, negative, unit, r, "");
}
