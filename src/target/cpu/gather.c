// AVX2 gather instructions. On processors for which LLVM considers gathers slow, it expands them to
// a load and two shuffles for each lane, whose compilation takes most of the time of a short
// function.
#include "target/cpu/cpu.h"

#include <string.h>

// The instructions with 32-bit offsets.
static const struct {
  int bytes, lanes; // of elements
  const char *name;
} instructions[] = {
    {4, 8, "llvm.x86.avx2.gather.d.ps.256"},
    {4, 4, "llvm.x86.avx2.gather.d.ps"},
    {8, 4, "llvm.x86.avx2.gather.d.pd.256"},
};

static const char *find(const kiln_machine *m, int64_t bytes, int lanes) {
  if (strncmp(m->triple, "x86_64", 6) != 0 || !kiln_machine_has(m, "avx2") ||
      kiln_machine_has(m, "avx512f"))
    return NULL;
  for (size_t i = 0; i < KILN_LEN(instructions); i++)
    if (instructions[i].bytes == bytes && instructions[i].lanes == lanes)
      return instructions[i].name;
  return NULL;
}

// The mask as floats of the elements' width with all bits set or none; the instruction tests the
// sign.
static LLVMValueRef mask_of(kiln_emit *e, LLVMTypeRef floats, int bytes, LLVMValueRef mask) {
  LLVMTypeRef whole = kiln_cpu_lanes_of(bytes == 8 ? e->m->i64 : e->m->i32, e->lanes);
  if (!mask) return LLVMBuildBitCast(e->b, LLVMConstAllOnes(whole), floats, "");
  return LLVMBuildBitCast(e->b, LLVMBuildSExt(e->b, mask, whole, ""), floats, "");
}

LLVMValueRef kiln_cpu_gather(kiln_emit *e, LLVMTypeRef scalar, const kiln_cpu_place *a,
                             LLVMValueRef mask) {
  const bool is_wide = scalar == e->m->f64 || scalar == e->m->i64;
  const bool is_single = scalar == e->m->f32 || scalar == e->m->i32;
  const int bytes = is_wide ? 8 : 4;
  if (!e->m->is_quick || !a->index.v || !a->index.narrow || (!is_wide && !is_single)) return NULL;
  const char *name = find(e->m->machine, bytes, e->lanes);
  if (!name) return NULL;
  LLVMTypeRef floats = kiln_cpu_lanes_of(is_wide ? e->m->f64 : e->m->f32, e->lanes);
  LLVMValueRef args[] = {LLVMConstNull(floats), a->pointer, a->index.v,
                         mask_of(e, floats, bytes, mask), kiln_cpu_const_int(e->m->i8, bytes)};
  LLVMValueRef v = kiln_cpu_call(e, name, 0, NULL, 5, args);
  return LLVMBuildBitCast(e->b, v, kiln_cpu_lanes_of(scalar, e->lanes), "");
}
