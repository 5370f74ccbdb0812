// Matrix instructions: what each means, and how it is spelled.
#include "target/cpu/cpu.h"

#include <string.h>

static const kiln_instr rows[] = {
    {"vnni.u8s8s32", "avx512vnni",
     "kernel instr { param i32 d[16]:(1) param u8 a[4]:(1) param i8 b[16, 4]:(4, 1)"
     " for i:16 { for k:4 { d[i] += i32(a[k]) * i32(b[i, k]) } } }",
     "llvm.x86.avx512.vpdpbusd.512"},
    {"vnni256.u8s8s32", "avxvnni",
     "kernel instr { param i32 d[8]:(1) param u8 a[4]:(1) param i8 b[8, 4]:(4, 1)"
     " for i:8 { for k:4 { d[i] += i32(a[k]) * i32(b[i, k]) } } }",
     "llvm.x86.avx512.vpdpbusd.256"},
    {"bf16.dot", "avx512bf16",
     "kernel instr { param f32 d[16]:(1) param bf16 a[2]:(1) param bf16 b[16, 2]:(2, 1)"
     " for i:16 { for k:2 { d[i] += f32(a[k]) * f32(b[i, k]) } } }",
     "llvm.x86.avx512bf16.dpbf16ps.512"},
};

const kiln_instr *kiln_cpu_instrs(int *out_n) {
  *out_n = (int)KILN_LEN(rows);
  return rows;
}

// d: lanes of 32 bits. a: one group of 32 bits, in all lanes. b: as many lanes as d.
kiln_status kiln_cpu_emit_instr(kiln_emit *e, const kiln_loop *l) {
  const kiln_instr *instr = l->instr;
  if (!instr || l->n_operands != 2)
    return KILN_FAIL(e->cx->diag, KILN_INTERNAL, kiln_symbol_text(e->cx, e->loops->name),
                     "instruction must have two operands, got %d", l->n_operands);
  const int lanes = strstr(instr->spelling, ".256") ? 8 : 16;
  const bool is_dot16 = strstr(instr->spelling, "bf16") != NULL;
  LLVMTypeRef i32s = LLVMVectorType(e->m->i32, (unsigned)lanes);
  LLVMTypeRef type = is_dot16 ? LLVMVectorType(e->m->f32, (unsigned)lanes) : i32s;
  LLVMTypeRef packed = is_dot16 ? LLVMVectorType(e->m->bf16, 2 * (unsigned)lanes) : i32s;
  kiln_cpu_memo_clear(e);
  const kiln_expr *a = l->operands[0], *b = l->operands[1];
  const kiln_address at_d = kiln_cpu_address(e, l, l->buffer, l->index),
                     at_a = kiln_cpu_address(e, a, a->u.tensor, a->args),
                     at_b = kiln_cpu_address(e, b, b->u.tensor, b->args);
  LLVMValueRef group =
      kiln_cpu_tag(e, a->u.tensor, LLVMBuildLoad2(e->b, e->m->i32, at_a.pointer, ""));
  LLVMValueRef vector = kiln_cpu_tag(e, b->u.tensor, LLVMBuildLoad2(e->b, i32s, at_b.pointer, ""));
  LLVMValueRef sum = kiln_cpu_tag(e, l->buffer, LLVMBuildLoad2(e->b, type, at_d.pointer, ""));
  LLVMSetAlignment(group, 1);
  LLVMSetAlignment(vector, 1);
  LLVMSetAlignment(sum, 4);
  group = LLVMBuildBitCast(e->b, kiln_cpu_splat(e, group, lanes), packed, "");
  vector = LLVMBuildBitCast(e->b, vector, packed, "");
  LLVMValueRef args[] = {sum, group, vector};
  sum = kiln_cpu_call(e, instr->spelling, 0, NULL, 3, args);
  LLVMValueRef store = kiln_cpu_tag(e, l->buffer, LLVMBuildStore(e->b, sum, at_d.pointer));
  LLVMSetAlignment(store, 4);
  return KILN_OK;
}
