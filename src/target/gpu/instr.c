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

// A row of K(j, k) in shared memory, to the right fragments of two products, whose columns are its rows.
#define ROWS                                                                                       \
  { "_0 % 8 * 4 + _1 % 8 / 2", "_0 / 8 * 4 + _1 / 8 * 2 + _1 % 2" }
#define LOADED_ROWS                                                                                \
  "static __device__ __forceinline__ void kiln_ldmatrix_rows(uint16_t *d, const uint16_t *a, int " \
  "row) {\n"                                                                                       \
  "  uint32_t *x = (uint32_t *)d;\n"                                                               \
  "  const int lane = (int)threadIdx.x;\n"                                                         \
  "  const uint32_t at = (uint32_t)__cvta_generic_to_shared(\n"                                    \
  "      a + (lane % 8 + lane / 16 * 8) * row + lane / 8 % 2 * 8);\n"                              \
  "  asm volatile(\"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\"\n"          \
  "      : \"=r\"(x[0]), \"=r\"(x[1]), \"=r\"(x[2]), \"=r\"(x[3]) : \"r\"(at) : \"memory\");\n"    \
  "}\n"
#define LOAD_ROWS(label, type)                                                                     \
  {                                                                                                \
    {.name = label,                                                                                \
     .meaning = COPY(type),                                                                        \
     .spelling = "ldmatrix.sync.aligned.m8n8.x4.shared.b16",                                       \
     .feature = "sm_80",                                                                           \
     .strides = {{0}, {0, 1}},                                                                     \
     .fragments = {ROWS}},                                                                         \
        80, "kiln_ldmatrix_rows", LOADED_ROWS                                                      \
  }

// Reductions across lanes; each lane gets the result: over the 32 that have a term each, or over the four of a row of
// sums (see SUMS, LEFT), each of which has 2 in 8 columns. source: PTX ISA, "shfl.sync", "max"
#define LANE                                                                                       \
  { "_0", "0" }
#define ACROSS(combine)                                                                            \
  "def tile(float(32) A, float(32) C) -> (D) {\n"                                                  \
  "  D(i) = C(i)\n"                                                                                \
  "  D(i) " combine " A(k)\n"                                                                      \
  "}\n"
#define COMBINED(name, one, two)                                                                   \
  "static __device__ __forceinline__ void " name "(float *d, const float *a) {\n"                  \
  "  float x = a[0];\n"                                                                            \
  "#pragma unroll\n"                                                                               \
  "  for (int i = 16; i > 0; i /= 2) {\n"                                                          \
  "    const float y = __shfl_xor_sync(0xffffffffu, x, i);\n"                                      \
  "    " one ";\n"                                                                                 \
  "  }\n"                                                                                          \
  "  const float y = d[0];\n"                                                                      \
  "  " two ";\n"                                                                                   \
  "}\n"
#define MAX_OF(to) "asm(\"max.NaN.f32 %0, %1, %2;\" : \"=f\"(" to ") : \"f\"(x), \"f\"(y))"
#define QUAD                                                                                       \
  { "_0 * 4 + _1", "0" }
#define IN_ROW                                                                                     \
  { "_0 * 4 + _2", "_1 * 4 + _3" }
#define QUAD_MEANING(type, wide, n, combine)                                                       \
  "def tile(" type "(8, " n ", 4, 2) A, float(8, 4) C) -> (D) {\n"                                 \
  "  D(i, j) = C(i, j)\n"                                                                          \
  "  D(i, j) " combine " " wide "(A(i, h, k, e))\n"                                                \
  "}\n"
#define QUAD_TEXT(name, type, n, first, next, step, last)                                          \
  "static __device__ __forceinline__ void " name "(float *d, const " type " *a) {\n"               \
  "  float x = " first ";\n"                                                                       \
  "#pragma unroll\n"                                                                               \
  "  for (int h = 0; h < " n "; h++) {\n" next "  }\n"                                             \
  "#pragma unroll\n"                                                                               \
  "  for (int i = 1; i < 4; i *= 2) {\n"                                                           \
  "    const float y = __shfl_xor_sync(0xffffffffu, x, i);\n"                                      \
  "    " step ";\n"                                                                                \
  "  }\n"                                                                                          \
  "  d[0] = " last ";\n"                                                                           \
  "}\n"
#define QUAD_MAX(n)                                                                                \
  {                                                                                                \
    {.name = "quad.max." n,                                                                        \
     .meaning = QUAD_MEANING("float", "", n, "max="),                                              \
     .spelling = "shfl.sync.bfly.b32",                                                             \
     .feature = "sm_80",                                                                           \
     .passes_nan = true,                                                                           \
     .fragments = {QUAD, IN_ROW}},                                                                 \
        80, "kiln_quad_max_" n,                                                                    \
        QUAD_TEXT("kiln_quad_max_" n, "float", n, "a[0]",                                          \
                  "    x = fmaxf(x, fmaxf(a[4 * h], a[4 * h + 1]));\n", "x = fmaxf(x, y)",         \
                  "fmaxf(d[0], x)")                                                                \
  }
#define QUAD_SUM(n, label, type)                                                                   \
  {                                                                                                \
    {.name = "quad.sum." n "." label,                                                              \
     .meaning = QUAD_MEANING(type, "float", n, "+="),                                              \
     .spelling = "shfl.sync.bfly.b32",                                                             \
     .feature = "sm_80",                                                                           \
     .fragments = {QUAD, IN_ROW}},                                                                 \
        80, "kiln_quad_sum_" n,                                                                    \
        QUAD_TEXT("kiln_quad_sum_" n, "uint16_t", n, "0",                                          \
                  "    float y, z;\n"                                                              \
                  "    asm(\"cvt.f32." label " %0, %1;\" : \"=f\"(y) : \"h\"(a[4 * h]));\n"        \
                  "    asm(\"cvt.f32." label " %0, %1;\" : \"=f\"(z) : \"h\"(a[4 * h + 1]));\n"    \
                  "    x += y + z;\n",                                                             \
                  "x += y", "d[0] + x")                                                            \
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
    LOAD_ROWS("ldmatrix.x4.rows.f16", "float16"),
    LOAD_ROWS("ldmatrix.x4.rows.bf16", "bfloat16"),
    {{.name = "warp.sum.f32",
      .meaning = ACROSS("+="),
      .spelling = "shfl.sync.bfly.b32",
      .feature = "sm_80",
      .fragments = {LANE, LANE}},
     80,
     "kiln_warp_sum",
     COMBINED("kiln_warp_sum", "x += y", "d[0] = x + y")},
    {{.name = "warp.max.f32",
      .meaning = ACROSS("max="),
      .spelling = "shfl.sync.bfly.b32",
      .feature = "sm_80",
      .fragments = {LANE, LANE}},
     80,
     "kiln_warp_max",
     COMBINED("kiln_warp_max", MAX_OF("x"), MAX_OF("d[0]"))},
    QUAD_MAX("2"),
    QUAD_MAX("4"),
    QUAD_MAX("8"),
    QUAD_MAX("16"),
    QUAD_SUM("2", "f16", "float16"),
    QUAD_SUM("4", "f16", "float16"),
    QUAD_SUM("8", "f16", "float16"),
    QUAD_SUM("16", "f16", "float16"),
    QUAD_SUM("2", "bf16", "bfloat16"),
    QUAD_SUM("4", "bf16", "bfloat16"),
    QUAD_SUM("8", "bf16", "bfloat16"),
    QUAD_SUM("16", "bf16", "bfloat16"),
};

kiln_instr *kiln_gpu_instrs(kiln_ctx *cx, const kiln_machine *m, int *out_n) {
  const int n_more = kiln_wgmma_instrs(m, NULL) + kiln_box_instrs(m, NULL);
  kiln_instr *all = KILN_NEW_ARRAY(&cx->perm, kiln_instr, (int)KILN_LEN(table) + n_more);
  *out_n = 0;
  if (m->kind != KILN_MACHINE_CUDA) return all;
  for (size_t i = 0; i < KILN_LEN(table); i++) {
    all[*out_n] = table[i].instr;
    all[(*out_n)++].is_there = m->gpu.capability >= table[i].capability;
  }
  *out_n += kiln_wgmma_instrs(m, &all[*out_n]);
  *out_n += kiln_box_instrs(m, &all[*out_n]);
  return all;
}

static size_t row_of(const kiln_instr *instr) {
  size_t i = 0;
  while (i < KILN_LEN(table) && strcmp(table[i].instr.name, instr->name)) i++;
  KILN_ASSERT(i < KILN_LEN(table));
  return i;
}

const char *kiln_gpu_instr_function(kiln_ctx *cx, const kiln_instr *instr) {
  if (instr->is_box) return "kiln_box";
  return kiln_gpu_instr_is_group(instr) ? kiln_wgmma_function(cx, instr)
                                        : table[row_of(instr)].function;
}
const char *kiln_gpu_instr_text(kiln_ctx *cx, const kiln_instr *instr) {
  if (instr->is_box) return kiln_box_text();
  return kiln_gpu_instr_is_group(instr) ? kiln_wgmma_text(cx, instr) : table[row_of(instr)].text;
}
