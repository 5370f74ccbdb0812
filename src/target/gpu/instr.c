// Matrix instructions of warps: what each means, which lane holds which elements, and its spelling.
#include "target/gpu/instr.h"

#include <string.h>

// source: PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type"
#define SUMS                                                                                       \
  { "_0 % 8 * 4 + _1 / 2", "_0 / 8 * 2 + _1 % 2" }
#define LEFT                                                                                       \
  { "_0 % 8 * 4 + _1 % 8 / 2", "_1 / 8 * 4 + _0 / 8 * 2 + _1 % 2" }
#define RIGHT                                                                                      \
  { "_1 * 4 + _0 % 8 / 2", "_0 / 8 * 2 + _0 % 2" }
#define PRODUCT(type)                                                                              \
  "def tile(" type "(16, 16) A, " type "(16, 8) B, float(16, 8) C) -> (D) {\n"                     \
  "  D(i, j) = C(i, j)\n"                                                                          \
  "  D(i, j) += float(A(i, k)) * float(B(k, j))\n"                                                 \
  "}\n"
#define SPELLED(name, type)                                                                        \
  "static __device__ __forceinline__ void " name                                                   \
  "(float *d, const uint16_t *a, const uint16_t *b) {\n"                                           \
  "  const uint32_t *x = (const uint32_t *)a, *y = (const uint32_t *)b;\n"                         \
  "  asm(\"mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 {%0, %1, %2, %3}, \"\n"     \
  "      \"{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\"\n"                                      \
  "      : \"+f\"(d[0]), \"+f\"(d[1]), \"+f\"(d[2]), \"+f\"(d[3])\n"                               \
  "      : \"r\"(x[0]), \"r\"(x[1]), \"r\"(x[2]), \"r\"(x[3]), \"r\"(y[0]), \"r\"(y[1]));\n"       \
  "}\n"

// 16 x 16 elements whose rows lie in shared memory, to fragments: the left operand's as they lie, the right
// operand's (k, j) of two products side by side turned. source: PTX ISA, "ldmatrix"
#define TURNED                                                                                     \
  { "_1 % 8 * 4 + _0 % 8 / 2", "_1 / 8 * 4 + _0 / 8 * 2 + _0 % 2" }
#define COPY(type)                                                                                 \
  "def tile(" type "(16, 16) A) -> (D) {\n"                                                        \
  "  D(i, j) = A(i, j)\n"                                                                          \
  "}\n"
#define LOADED(name, how)                                                                          \
  "static __device__ __forceinline__ void " name "(uint16_t *d, const uint16_t *a, int row) {\n"   \
  "  uint32_t *x = (uint32_t *)d;\n"                                                               \
  "  const uint32_t at = (uint32_t)__cvta_generic_to_shared(\n"                                    \
  "      a + (int)(threadIdx.x % 16) * row + (int)(threadIdx.x / 16) * 8);\n"                      \
  "  asm volatile(\"ldmatrix.sync.aligned.m8n8.x4" how ".shared.b16 {%0, %1, %2, %3}, [%4];\"\n"   \
  "      : \"=r\"(x[0]), \"=r\"(x[1]), \"=r\"(x[2]), \"=r\"(x[3]) : \"r\"(at) : \"memory\");\n"    \
  "}\n"
#define LOAD(label, type, fragment, how, function_name)                                            \
  {                                                                                                \
    {.name = label,                                                                                \
     .meaning = COPY(type),                                                                        \
     .spelling = "ldmatrix.sync.aligned.m8n8.x4" how ".shared.b16",                                \
     .feature = "sm_80",                                                                           \
     .strides = {{0}, {0, 1}},                                                                     \
     .fragments = {fragment}},                                                                     \
        80, function_name, LOADED(function_name, how)                                              \
  }

static const struct {
  kiln_instr instr;
  int capability;
  const char *function, *text;
} table[] = {
    {{.name = "mma.m16n8k16.f16",
      .meaning = PRODUCT("float16"),
      .spelling = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
      .feature = "sm_80",
      .fragments = {SUMS, LEFT, RIGHT}},
     80,
     "kiln_mma_f16",
     SPELLED("kiln_mma_f16", "f16")},
    {{.name = "mma.m16n8k16.bf16",
      .meaning = PRODUCT("bfloat16"),
      .spelling = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
      .feature = "sm_80",
      .fragments = {SUMS, LEFT, RIGHT}},
     80,
     "kiln_mma_bf16",
     SPELLED("kiln_mma_bf16", "bf16")},
    LOAD("ldmatrix.x4.f16", "float16", LEFT, "", "kiln_ldmatrix"),
    LOAD("ldmatrix.x4.bf16", "bfloat16", LEFT, "", "kiln_ldmatrix"),
    LOAD("ldmatrix.x4.trans.f16", "float16", TURNED, ".trans", "kiln_ldmatrix_trans"),
    LOAD("ldmatrix.x4.trans.bf16", "bfloat16", TURNED, ".trans", "kiln_ldmatrix_trans"),
};

kiln_instr *kiln_gpu_instrs(kiln_ctx *cx, const kiln_machine *m, int *out_n) {
  kiln_instr *all = KILN_NEW_ARRAY(&cx->perm, kiln_instr, KILN_LEN(table));
  *out_n = 0;
  if (m->kind != KILN_MACHINE_CUDA) return all;
  for (size_t i = 0; i < KILN_LEN(table); i++) {
    all[*out_n] = table[i].instr;
    all[(*out_n)++].is_there = m->gpu.capability >= table[i].capability;
  }
  return all;
}

static size_t row_of(const kiln_instr *instr) {
  size_t i = 0;
  while (i < KILN_LEN(table) && strcmp(table[i].instr.name, instr->name)) i++;
  KILN_ASSERT(i < KILN_LEN(table));
  return i;
}

const char *kiln_gpu_instr_function(const kiln_instr *instr) {
  return table[row_of(instr)].function;
}
const char *kiln_gpu_instr_text(const kiln_instr *instr) { return table[row_of(instr)].text; }
