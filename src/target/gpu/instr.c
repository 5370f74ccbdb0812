// Matrix instructions of warps: meaning, fragments (which lane holds which elements) and spelling.
#include "target/gpu/instr.h"

#include "target/c/writer.h"

#include <string.h>

// Fragments of operands that lie |p| to a register, the |k| of half a step, 4p
// (template/gpu/layout.h).
// source: PTX ISA, "Matrix Fragments for mma.m16n8k8", "mma.m16n8k16 with floating point type",
//         "mma.m16n8k32"
#define SUMS                                                                                       \
  { "_0 % 8 * 4 + _1 / 2", "_0 / 8 * 2 + _1 % 2" }
#define LEFT(p, k, both)                                                                           \
  { "_0 % 8 * 4 + _1 % " k " / " p, "_1 / " k " * " both " + _0 / 8 * " p " + _1 % " p }
#define RIGHT(p, k)                                                                                \
  { "_1 * 4 + _0 % " k " / " p, "_0 / " k " * " p " + _0 % " p }
#define PRODUCT(left, right, wide, cast, k)                                                        \
  "def tile(" left "(16, " k ") A, " right "(" k ", 8) B, " wide "(16, 8) C) -> (D) {\n"           \
  "  D(i, j) = C(i, j)\n"                                                                          \
  "  D(i, j) += " cast "(A(i, k)) * " cast "(B(k, j))\n"                                           \
  "}\n"
// |held| makes x[4], y[2], the registers of the operands a, b; |types| are spelled left, right, of
// the sums.
#define SPELLED(name, left, right, sum, of_sum, held, types)                                       \
  "static __device__ __forceinline__ void " name "(" sum " *d, const " left " *a, const " right    \
  " *b) {\n" held "  asm(\"mma.sync.aligned." types " {%0, %1, %2, %3}, \"\n"                      \
  "      \"{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\"\n"                                      \
  "      : \"+" of_sum "\"(d[0]), \"+" of_sum "\"(d[1]), \"+" of_sum "\"(d[2]), \"+" of_sum        \
  "\"(d[3])\n"                                                                                     \
  "      : \"r\"(x[0]), \"r\"(x[1]), \"r\"(x[2]), \"r\"(x[3]), \"r\"(y[0]), \"r\"(y[1]));\n"       \
  "}\n"
#define AS_THEY_LIE "  const uint32_t *x = (const uint32_t *)a, *y = (const uint32_t *)b;\n"
#define TO_TF32                                                                                    \
  "  uint32_t x[4], y[2];\n"                                                                       \
  "  for (int i = 0; i < 4; i++) asm(\"cvt.rna.tf32.f32 %0, %1;\" : \"=r\"(x[i]) : "               \
  "\"f\"(a[i]));\n"                                                                                \
  "  for (int i = 0; i < 2; i++) asm(\"cvt.rna.tf32.f32 %0, %1;\" : \"=r\"(y[i]) : "               \
  "\"f\"(b[i]));\n"
#define HALVES(label, type)                                                                        \
  {                                                                                                \
    {.name = "mma.m16n8k16." label,                                                                \
     .meaning = PRODUCT(type, type, "float", "float", "16"),                                       \
     .spelling = "mma.sync.aligned.m16n8k16.row.col.f32." label "." label ".f32",                  \
     .feature = "sm_80",                                                                           \
     .fragments = {SUMS, LEFT("2", "8", "4"), RIGHT("2", "8")}},                                   \
        80, "kiln_mma_" label,                                                                     \
        SPELLED("kiln_mma_" label, "uint16_t", "uint16_t", "float", "f", AS_THEY_LIE,              \
                "m16n8k16.row.col.f32." label "." label ".f32")                                    \
  }
#define BYTES(left, right, left_type, right_type)                                                  \
  {                                                                                                \
    {.name = "mma.m16n8k32." left "." right,                                                       \
     .meaning = PRODUCT(left_type, right_type, "int32", "int32", "32"),                            \
     .spelling = "mma.sync.aligned.m16n8k32.row.col.s32." left "." right ".s32",                   \
     .feature = "sm_80",                                                                           \
     .fragments = {SUMS, LEFT("4", "16", "8"), RIGHT("4", "16")}},                                 \
        80, "kiln_mma_" left "_" right,                                                            \
        SPELLED("kiln_mma_" left "_" right, left_type "_t", right_type "_t", "int32_t", "r",       \
                AS_THEY_LIE, "m16n8k32.row.col.s32." left "." right ".s32")                        \
  }

// Loads of 16 rows of 32 bytes from shared memory to fragments: the left operand's as they lie; of
// halves, the right operand's (k, j) of two products side by side, transposed; and the same from
// rows of K(j, k), as they lie.
// source: PTX ISA, "ldmatrix"
#define TURNED                                                                                     \
  { "_1 % 8 * 4 + _0 % 8 / 2", "_1 / 8 * 4 + _0 / 8 * 2 + _0 % 2" }
#define ROWS(p, k, both)                                                                           \
  { "_0 % 8 * 4 + _1 % " k " / " p, "_0 / 8 * " both " + _1 / " k " * " p " + _1 % " p }
#define COPY(type, k)                                                                              \
  "def tile(" type "(16, " k ") A) -> (D) {\n"                                                     \
  "  D(i, j) = A(i, j)\n"                                                                          \
  "}\n"
#define LOADED(name, memory, place, how)                                                           \
  "static __device__ __forceinline__ void " name "(" memory " *d, const " memory                   \
  " *a, int row) {\n"                                                                              \
  "  uint32_t *x = (uint32_t *)d;\n"                                                               \
  "  const int lane = (int)threadIdx.x % 32, word = 16 / (int)sizeof(" memory ");\n"               \
  "  const uint32_t at = (uint32_t)__cvta_generic_to_shared(a + " place ");\n"                     \
  "  asm volatile(\"ldmatrix.sync.aligned.m8n8.x4" how ".shared.b16 {%0, %1, %2, %3}, [%4];\"\n"   \
  "      : \"=r\"(x[0]), \"=r\"(x[1]), \"=r\"(x[2]), \"=r\"(x[3]) : \"r\"(at) : \"memory\");\n"    \
  "}\n"
#define BY_HALVES "lane % 16 * row + lane / 16 * word"
#define BY_ROWS "(lane % 8 + lane / 16 * 8) * row + lane / 8 % 2 * word"
#define LOAD(label, type, memory, k, fragment, place, how, function_name)                          \
  {                                                                                                \
    {.name = "ldmatrix.x4" label,                                                                  \
     .meaning = COPY(type, k),                                                                     \
     .spelling = "ldmatrix.sync.aligned.m8n8.x4" how ".shared.b16",                                \
     .feature = "sm_75",                                                                           \
     .strides = {{0}, {0, 1}},                                                                     \
     .fragments = {fragment}},                                                                     \
        75, function_name, LOADED(function_name, memory, place, how)                               \
  }
#define LOADS(label, type, memory, p, k, half, both)                                               \
  LOAD("." label, type, memory, k, LEFT(p, half, both), BY_HALVES, "", "kiln_ldmatrix_" label),    \
      LOAD(".rows." label, type, memory, k, ROWS(p, half, both), BY_ROWS, "",                      \
           "kiln_ldmatrix_rows_" label)

// Reductions of a row of sums: of the columns that a lane has, 2 of every 8, and then of the four
// lanes of a quad; each gets the result (see SUMS, LEFT; reduce.c). A warp reduces 8 rows at a
// time, a warp group (wgmma.c) 32.
// source: PTX ISA, "shfl.sync", "max"
#define QUAD                                                                                       \
  { "_0 * 4 + _1", "0" }
#define IN_ROW                                                                                     \
  { "_0 * 4 + _2", "_1 * 4 + _3" }
#define QUAD_MEANING(rows, type, wide, n, combine)                                                 \
  "def tile(" type "(" rows ", " n ", 4, 2) A, float(" rows ", 4) C) -> (D) {\n"                   \
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
#define ROWS_MAX(label, rows, n)                                                                   \
  {                                                                                                \
    {.name = label ".max." n,                                                                      \
     .meaning = QUAD_MEANING(rows, "float", "", n, "max="),                                        \
     .spelling = "shfl.sync.bfly.b32",                                                             \
     .feature = "sm_80",                                                                           \
     .passes_nan = true,                                                                           \
     .fragments = {QUAD, IN_ROW}},                                                                 \
        80, "kiln_" label "_max_" n,                                                               \
        QUAD_TEXT("kiln_" label "_max_" n, "float", n, "a[0]",                                     \
                  "    x = fmaxf(x, fmaxf(a[4 * h], a[4 * h + 1]));\n", "x = fmaxf(x, y)",         \
                  "fmaxf(d[0], x)")                                                                \
  }
#define NAN_MAX_OF(to) "asm(\"max.NaN.f32 %0, %1, %2;\" : \"=f\"(" to ") : \"f\"(x), \"f\"(y))"
// The same that keeps NaN, which takes three instructions a term in place of one.
#define ROWS_NAN_MAX(label, rows, n)                                                               \
  {                                                                                                \
    {.name = label ".nanmax." n,                                                                   \
     .meaning = QUAD_MEANING(rows, "float", "", n, "max="),                                        \
     .spelling = "shfl.sync.bfly.b32",                                                             \
     .feature = "sm_80",                                                                           \
     .fragments = {QUAD, IN_ROW}},                                                                 \
        80, "kiln_" label "_nanmax_" n,                                                            \
        QUAD_TEXT("kiln_" label "_nanmax_" n, "float", n, "d[0]",                                  \
                  "    float y = a[4 * h];\n    " NAN_MAX_OF(                                      \
                      "x") ";\n    y = a[4 * h + 1];\n    " NAN_MAX_OF("x") ";\n",                 \
                  NAN_MAX_OF("x"), "x")                                                            \
  }
#define ROWS_SUM(label, rows, n, half, type)                                                       \
  {                                                                                                \
    {.name = label ".sum." n "." half,                                                             \
     .meaning = QUAD_MEANING(rows, type, "float", n, "+="),                                        \
     .spelling = "shfl.sync.bfly.b32",                                                             \
     .feature = "sm_80",                                                                           \
     .fragments = {QUAD, IN_ROW}},                                                                 \
        80, "kiln_" label "_sum_" n,                                                               \
        QUAD_TEXT("kiln_" label "_sum_" n, "uint16_t", n, "0",                                     \
                  "    float y, z;\n"                                                              \
                  "    asm(\"cvt.f32." half " %0, %1;\" : \"=f\"(y) : \"h\"(a[4 * h]));\n"         \
                  "    asm(\"cvt.f32." half " %0, %1;\" : \"=f\"(z) : \"h\"(a[4 * h + 1]));\n"     \
                  "    x += y + z;\n",                                                             \
                  "x += y", "d[0] + x")                                                            \
  }
#define QUAD_MAX(n) ROWS_MAX("quad", "8", n)
#define QUAD_NAN_MAX(n) ROWS_NAN_MAX("quad", "8", n)
#define QUAD_SUM(n, half, type) ROWS_SUM("quad", "8", n, half, type)
#define GROUP_OF(n)                                                                                \
  ROWS_MAX("group", "32", n), ROWS_SUM("group", "32", n, "f16", "float16"),                        \
      ROWS_SUM("group", "32", n, "bf16", "bfloat16")

static const struct {
  kiln_instr instr;
  int capability;
  const char *function, *text;
} table[] = {
    {{.name = "mma.m16n8k8.f16", // half a step of mma.m16n8k16
      .meaning = PRODUCT("float16", "float16", "float", "float", "8"),
      .spelling = "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32",
      .feature = "sm_75",
      .fragments = {SUMS, LEFT("2", "8", "4"), RIGHT("2", "8")}},
     75,
     "kiln_mma_k8_f16",
     "static __device__ __forceinline__ void kiln_mma_k8_f16(float *d, const uint16_t *a, const "
     "uint16_t *b) {\n" AS_THEY_LIE
     "  asm(\"mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
     "{%0, %1, %2, %3};\"\n"
     "      : \"+f\"(d[0]), \"+f\"(d[1]), \"+f\"(d[2]), \"+f\"(d[3]) : \"r\"(x[0]), \"r\"(x[1]), "
     "\"r\"(y[0]));\n"
     "}\n"},
    HALVES("f16", "float16"),
    HALVES("bf16", "bfloat16"),
    {{.name = "mma.m16n8k8.tf32", // rounds its operands to 10 bits behind the point
      .meaning = PRODUCT("float", "float", "float", "", "8"),
      .spelling = "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32",
      .feature = "sm_80",
      .fragments = {SUMS, LEFT("1", "4", "2"), RIGHT("1", "4")}},
     80,
     "kiln_mma_tf32",
     SPELLED("kiln_mma_tf32", "float", "float", "float", "f", TO_TF32,
             "m16n8k8.row.col.f32.tf32.tf32.f32")},
    BYTES("s8", "s8", "int8", "int8"),
    BYTES("s8", "u8", "int8", "uint8"),
    BYTES("u8", "s8", "uint8", "int8"),
    BYTES("u8", "u8", "uint8", "uint8"),
    LOADS("f16", "float16", "uint16_t", "2", "16", "8", "4"),
    LOADS("bf16", "bfloat16", "uint16_t", "2", "16", "8", "4"),
    LOAD(".tf32", "float", "float", "8", LEFT("1", "4", "2"), BY_HALVES, "", "kiln_ldmatrix_tf32"),
    LOADS("s8", "int8", "int8_t", "4", "32", "16", "8"),
    LOADS("u8", "uint8", "uint8_t", "4", "32", "16", "8"),
    LOAD(".trans.f16", "float16", "uint16_t", "16", TURNED, BY_HALVES, ".trans",
         "kiln_ldmatrix_trans_f16"),
    LOAD(".trans.bf16", "bfloat16", "uint16_t", "16", TURNED, BY_HALVES, ".trans",
         "kiln_ldmatrix_trans_bf16"),
    // ldmatrix transposes halves only: the right operand of two products word by word
    {{.name = "load.x4.columns.tf32",
      .meaning = "def tile(float(8, 16) A) -> (D) {\n  D(i, j) = A(i, j)\n}\n",
      .spelling = "ld.shared.f32",
      .feature = "sm_80",
      .strides = {{0}, {0, 1}},
      .fragments = {{"_1 % 8 * 4 + _0 % 4", "_1 / 8 * 2 + _0 / 4"}}},
     80,
     "kiln_load_columns_tf32",
     "static __device__ __forceinline__ void kiln_load_columns_tf32(float *d, const float *a, int "
     "row) {\n"
     "  const float *at = a + (int)threadIdx.x % 4 * row + (int)threadIdx.x % 32 / 4;\n"
     "  d[0] = at[0], d[1] = at[4 * row], d[2] = at[8], d[3] = at[4 * row + 8];\n"
     "}\n"},
    QUAD_MAX("2"),
    QUAD_MAX("4"),
    QUAD_MAX("8"),
    QUAD_MAX("16"),
    QUAD_NAN_MAX("2"),
    QUAD_NAN_MAX("4"),
    QUAD_NAN_MAX("8"),
    QUAD_NAN_MAX("16"),
    QUAD_SUM("2", "f16", "float16"),
    QUAD_SUM("4", "f16", "float16"),
    QUAD_SUM("8", "f16", "float16"),
    QUAD_SUM("16", "f16", "float16"),
    QUAD_SUM("2", "bf16", "bfloat16"),
    QUAD_SUM("4", "bf16", "bfloat16"),
    QUAD_SUM("8", "bf16", "bfloat16"),
    QUAD_SUM("16", "bf16", "bfloat16"),
    GROUP_OF("8"),
    GROUP_OF("16"),
};

kiln_instr *kiln_gpu_instrs(kiln_ctx *cx, const kiln_machine *m, int *out_n) {
  const int n_more =
      kiln_lanes_instrs(NULL) + kiln_wgmma_instrs(m, NULL) + kiln_tma_instrs(m, NULL);
  kiln_instr *all = KILN_NEW_ARRAY(&cx->perm, kiln_instr, (int)KILN_LEN(table) + n_more);
  *out_n = kiln_lanes_instrs(all);
  if (!m->target->dialect->has_instructions) return all;
  for (size_t i = 0; i < KILN_LEN(table); i++) {
    all[*out_n] = table[i].instr;
    all[(*out_n)++].is_there = m->gpu.capability >= table[i].capability;
  }
  *out_n += kiln_wgmma_instrs(m, &all[*out_n]);
  *out_n += kiln_tma_instrs(m, &all[*out_n]);
  return all;
}

static size_t row_of(const kiln_instr *instr) {
  size_t i = 0;
  while (i < KILN_LEN(table) && strcmp(table[i].instr.name, instr->name)) i++;
  KILN_ASSERT(i < KILN_LEN(table));
  return i;
}

const char *kiln_gpu_instr_function(kiln_ctx *cx, const kiln_instr *instr) {
  if (instr->is_tma) return "kiln_tma";
  if (kiln_gpu_instr_is_lanes(instr)) return kiln_lanes_function(instr);
  return kiln_gpu_instr_is_group(instr) ? kiln_wgmma_function(cx, instr)
                                        : table[row_of(instr)].function;
}
const char *kiln_gpu_instr_text(kiln_ctx *cx, const kiln_instr *instr) {
  if (instr->is_tma) return kiln_tma_text();
  if (kiln_gpu_instr_is_lanes(instr)) return kiln_lanes_text(instr);
  return kiln_gpu_instr_is_group(instr) ? kiln_wgmma_text(cx, instr) : table[row_of(instr)].text;
}
