// f16 conversions by integer operations, for processors without an instruction: LLVM would call its
// runtime library, which modules are not linked with.
#include "target/cpu/cpu.h"

#include <math.h>
#include <string.h>

enum {
  SHIFT = 13,               // bits by which f32's fraction is longer
  BIAS = 112 << 23,         // difference of the exponents' biases, in f32's position
  LEAST_NORMAL = 113 << 23, // 2^-14 as f32
  INFINITE = 255 << 23,
  ABOVE = 0x47800000, // 2^16 as f32, above all f16 numbers
  HALF = 126 << 23,   // 0.5: f32 numbers above it are 2^-24 apart, like f16 numbers below 2^-14
};

bool kiln_cpu_has_f16c(const kiln_cpu_module *m) {
  return strncmp(m->machine->triple, "x86_64", 6) != 0 || kiln_machine_has(m->machine, "f16c");
}

// Constants of one conversion, as lanes.
typedef struct half {
  LLVMBuilderRef b;
  LLVMTypeRef i32, f32;
} half;

static half half_of(kiln_emit *e, int lanes) {
  return (half){e->b, kiln_cpu_lanes_of(e->m->i32, lanes), kiln_cpu_lanes_of(e->m->f32, lanes)};
}

static LLVMValueRef number(const half *h, int64_t value) {
  return kiln_cpu_const_int(h->i32, value);
}

static LLVMValueRef is_below(const half *h, LLVMValueRef x, int64_t bound) {
  return LLVMBuildICmp(h->b, LLVMIntULT, x, number(h, bound), "");
}

LLVMValueRef kiln_cpu_f16_to_bits(kiln_emit *e, LLVMValueRef x) {
  const int lanes = kiln_cpu_type_lanes(LLVMTypeOf(x));
  const half h = half_of(e, lanes);
  LLVMBuilderRef b = e->b;
  LLVMValueRef bits = LLVMBuildBitCast(b, x, h.i32, "");
  LLVMValueRef size = LLVMBuildAnd(b, bits, number(&h, INT32_MAX), "");
  // To nearest even: adds half a unit less one, and one more if the last kept bit is odd. Overflow
  // gives infinity.
  LLVMValueRef odd =
      LLVMBuildAnd(b, LLVMBuildLShr(b, size, number(&h, SHIFT), ""), number(&h, 1), "");
  LLVMValueRef near = LLVMBuildAdd(b, LLVMBuildAdd(b, size, odd, ""),
                                   number(&h, (1 << (SHIFT - 1)) - 1 - BIAS), "");
  LLVMValueRef y = LLVMBuildLShr(b, near, number(&h, SHIFT), "");
  y = LLVMBuildSelect(b, is_below(&h, size, ABOVE), y, number(&h, 0x7c00), "");
  LLVMValueRef sum =
      LLVMBuildFAdd(b, LLVMBuildBitCast(b, size, h.f32, ""), kiln_cpu_const_float(h.f32, 0.5), "");
  LLVMValueRef small = LLVMBuildSub(b, LLVMBuildBitCast(b, sum, h.i32, ""), number(&h, HALF), "");
  y = LLVMBuildSelect(b, is_below(&h, size, LEAST_NORMAL), small, y, "");
  LLVMValueRef payload =
      LLVMBuildAnd(b, LLVMBuildLShr(b, size, number(&h, SHIFT), ""), number(&h, 0x3ff), "");
  LLVMValueRef nan = LLVMBuildOr(b, payload, number(&h, 0x7e00), "");
  y = LLVMBuildSelect(b, is_below(&h, size, INFINITE + INT64_C(1)), y, nan, "");
  LLVMValueRef sign =
      LLVMBuildAnd(b, LLVMBuildLShr(b, bits, number(&h, 16), ""), number(&h, 0x8000), "");
  return LLVMBuildTrunc(b, LLVMBuildOr(b, y, sign, ""), kiln_cpu_lanes_of(e->m->i16, lanes), "");
}

LLVMValueRef kiln_cpu_f16_from_bits(kiln_emit *e, LLVMValueRef raw) {
  const half h = half_of(e, kiln_cpu_type_lanes(LLVMTypeOf(raw)));
  LLVMBuilderRef b = e->b;
  LLVMValueRef bits = LLVMBuildZExt(b, raw, h.i32, "");
  LLVMValueRef size = LLVMBuildAnd(b, bits, number(&h, 0x7fff), "");
  LLVMValueRef wide = LLVMBuildShl(b, size, number(&h, SHIFT), "");
  LLVMValueRef y = LLVMBuildAdd(b, wide, number(&h, BIAS), "");
  LLVMValueRef odd = LLVMBuildOr(b, wide, number(&h, INFINITE), "");
  LLVMValueRef quiet = LLVMBuildOr(b, odd, number(&h, 1 << 22), "");
  odd = LLVMBuildSelect(b, is_below(&h, size, 0x7c01), odd, quiet, "");
  y = LLVMBuildSelect(b, is_below(&h, size, 0x7c00), y, odd, "");
  LLVMValueRef small = LLVMBuildFMul(b, LLVMBuildSIToFP(b, size, h.f32, ""),
                                     kiln_cpu_const_float(h.f32, ldexp(1, -24)), "");
  y = LLVMBuildSelect(b, is_below(&h, size, 0x400), LLVMBuildBitCast(b, small, h.i32, ""), y, "");
  LLVMValueRef sign =
      LLVMBuildShl(b, LLVMBuildAnd(b, bits, number(&h, 0x8000), ""), number(&h, 16), "");
  return LLVMBuildBitCast(b, LLVMBuildOr(b, y, sign, ""), h.f32, "");
}
