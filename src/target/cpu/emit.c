// Values and types of the emitter: lanes and scalars, constants, intrinsics by name.
#include "target/cpu/cpu.h"

#include <string.h>

LLVMTypeRef kiln_cpu_memory_type(const kiln_cpu_module *m, kiln_dtype t) {
  if (t == KILN_F64) return m->f64;
  if (t == KILN_F32) return m->f32;
  switch (kiln_dtype_bytes(t)) {
  case 8: return m->i64;
  case 4: return m->i32;
  case 2: return m->i16;
  default: return m->i8;
  }
}

LLVMTypeRef kiln_cpu_value_type(const kiln_cpu_module *m, kiln_dtype t) {
  if (t == KILN_BOOL) return m->i1;
  if (kiln_dtype_is_half(t)) return m->f32;
  return kiln_cpu_memory_type(m, t);
}

LLVMTypeRef kiln_cpu_lanes_of(LLVMTypeRef scalar, int lanes) {
  return lanes ? LLVMVectorType(scalar, (unsigned)lanes) : scalar;
}

int kiln_cpu_type_lanes(LLVMTypeRef type) {
  return LLVMGetTypeKind(type) == LLVMVectorTypeKind ? (int)LLVMGetVectorSize(type) : 0;
}

LLVMTypeRef kiln_cpu_scalar_of(LLVMTypeRef type) {
  return LLVMGetTypeKind(type) == LLVMVectorTypeKind ? LLVMGetElementType(type) : type;
}

static LLVMValueRef const_splat(LLVMValueRef scalar, int lanes) {
  LLVMValueRef all[KILN_CPU_MAX_LANES];
  if (!lanes) return scalar;
  for (int i = 0; i < lanes; i++) all[i] = scalar;
  return LLVMConstVector(all, (unsigned)lanes);
}

LLVMValueRef kiln_cpu_splat(kiln_emit *e, LLVMValueRef scalar, int lanes) {
  if (!lanes) return scalar;
  if (LLVMIsConstant(scalar)) return const_splat(scalar, lanes);
  LLVMTypeRef type = LLVMVectorType(LLVMTypeOf(scalar), (unsigned)lanes);
  LLVMValueRef poison = LLVMGetPoison(type);
  LLVMValueRef first =
      LLVMBuildInsertElement(e->b, poison, scalar, LLVMConstInt(e->m->i32, 0, 0), "");
  return LLVMBuildShuffleVector(e->b, first, poison,
                                LLVMConstNull(LLVMVectorType(e->m->i32, (unsigned)lanes)), "");
}

LLVMValueRef kiln_cpu_const_int(LLVMTypeRef type, int64_t value) {
  return const_splat(LLVMConstInt(kiln_cpu_scalar_of(type), (unsigned long long)value, 1),
                     kiln_cpu_type_lanes(type));
}

LLVMValueRef kiln_cpu_const_float(LLVMTypeRef type, double value) {
  return const_splat(LLVMConstReal(kiln_cpu_scalar_of(type), value), kiln_cpu_type_lanes(type));
}

LLVMValueRef kiln_cpu_lane_ids(kiln_emit *e, LLVMTypeRef scalar, int lanes, int64_t first,
                               int64_t step) {
  (void)e;
  LLVMValueRef all[KILN_CPU_MAX_LANES];
  for (int i = 0; i < lanes; i++)
    all[i] = LLVMConstInt(scalar, (unsigned long long)(first + i * step), 1);
  return LLVMConstVector(all, (unsigned)lanes);
}

LLVMValueRef kiln_cpu_call(kiln_emit *e, const char *intrinsic, int n_types, LLVMTypeRef *types,
                           int n, LLVMValueRef *args) {
  const unsigned id = LLVMLookupIntrinsicID(intrinsic, strlen(intrinsic));
  KILN_ASSERT(id != 0);
  LLVMValueRef f = LLVMGetIntrinsicDeclaration(e->m->module, id, types, (size_t)n_types);
  LLVMTypeRef type = LLVMIntrinsicGetType(e->m->llvm, id, types, (size_t)n_types);
  return LLVMBuildCall2(e->b, type, f, args, (unsigned)n, "");
}

LLVMValueRef kiln_cpu_call1(kiln_emit *e, const char *intrinsic, LLVMValueRef a) {
  LLVMTypeRef type = LLVMTypeOf(a);
  return kiln_cpu_call(e, intrinsic, 1, &type, 1, &a);
}

LLVMValueRef kiln_cpu_call2(kiln_emit *e, const char *intrinsic, LLVMValueRef a, LLVMValueRef b) {
  LLVMTypeRef type = LLVMTypeOf(a);
  return kiln_cpu_call(e, intrinsic, 1, &type, 2, (LLVMValueRef[]){a, b});
}

LLVMValueRef kiln_cpu_fma(kiln_emit *e, LLVMValueRef a, LLVMValueRef b, LLVMValueRef c) {
  // The intrinsic would be a libm call for each lane.
  if (!e->m->machine->has_fma) return LLVMBuildFAdd(e->b, LLVMBuildFMul(e->b, a, b, ""), c, "");
  LLVMTypeRef type = LLVMTypeOf(a);
  return kiln_cpu_call(e, "llvm.fma", 1, &type, 3, (LLVMValueRef[]){a, b, c});
}

kiln_lanes kiln_cpu_broadcast(kiln_emit *e, kiln_lanes v, int lanes) {
  if (v.lanes == lanes) return v;
  KILN_ASSERT(v.lanes == 0);
  v.v = kiln_cpu_splat(e, v.v, lanes);
  v.lanes = lanes;
  return v;
}

kiln_lanes kiln_cpu_widen(kiln_emit *e, kiln_lanes v) {
  if (!v.narrow) return v;
  v.v = LLVMBuildSExt(e->b, v.v, kiln_cpu_lanes_of(e->m->i64, v.lanes), "");
  v.narrow = false;
  return v;
}

LLVMValueRef kiln_cpu_alloca(kiln_emit *e, LLVMTypeRef type, int64_t count, const char *name) {
  LLVMBasicBlockRef at = LLVMGetInsertBlock(e->b);
  LLVMPositionBuilderBefore(e->b, LLVMGetFirstInstruction(e->entry));
  LLVMValueRef a = LLVMBuildAlloca(e->b, LLVMArrayType2(type, (uint64_t)count), name);
  LLVMSetAlignment(a, 64);
  LLVMPositionBuilderAtEnd(e->b, at);
  kiln_cpu_say_line(e);
  return a;
}

const kiln_binding *kiln_cpu_binding(const kiln_emit *e, kiln_symbol var) {
  for (int i = e->vars.n - 1; i >= 0; i--) {
    if (e->vars.data[i].var == var) return &e->vars.data[i];
  }
  return NULL;
}

LLVMValueRef kiln_cpu_and(kiln_emit *e, LLVMValueRef a, LLVMValueRef b) {
  if (!a) return b;
  return b ? LLVMBuildAnd(e->b, a, b, "") : a;
}

LLVMValueRef kiln_cpu_any(kiln_emit *e, LLVMValueRef mask) {
  return kiln_cpu_call1(e, "llvm.vector.reduce.or", mask);
}
