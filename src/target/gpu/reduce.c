// Reductions across lanes: of n lanes that are s apart, of which each has a term, each gets the
// combination with its own element of the result. All 32 threads along x take part, in 32 / (n s)
// groups of n lanes for each of s places; or 128, of a warp group.
//
//     lanes.sum.4.f32    lanes 0 to 3, 4 to 7, ..: a row of sums of mma.m16n8
//     lanes.max.8x4.f32  lanes 0, 4, .., 28; 1, 5, ..: a column of them
//
// By shuffles where the language has instructions; elsewhere kiln_gpu_spell_lanes makes loops over
// shared memory of them.
// source: PTX ISA, "shfl.sync", "max"
#include "target/gpu/instr.h"

#include <string.h>

// clang-format off

// A combiner as the notation has it, and statements that combine y into x.
#define SUM  "+=",   "    x += y;\n"
#define PROD "*=",   "    x *= y;\n"
#define MAX  "max=", EXTREME("max", ">")
#define MIN  "min=", EXTREME("min", "<")
// NaN if either is
#define EXTREME(name, than)                                                                                     \
  "#if __CUDA_ARCH__ >= 800\n"                                                                                  \
  "    asm(\"" name ".NaN.f32 %0, %1, %2;\" : \"=f\"(x) : \"f\"(x), \"f\"(y));\n"                               \
  "#else\n"                                                                                                     \
  "    x = x " than " y || x != x ? x : y;\n"                                                                   \
  "#endif\n"

#define FUNCTION(name, first, end, combine)                                                                     \
  "static __device__ __forceinline__ void " name "(float *d, const float *a) {\n"                               \
  "  float x = a[0], y;\n"                                                                                      \
  "#pragma unroll\n"                                                                                            \
  "  for (int i = " first "; i < " end "; i *= 2) {\n"                                                          \
  "    y = __shfl_xor_sync(0xffffffffu, x, i);\n" combine                                                       \
  "  }\n"                                                                                                       \
  "  y = d[0];\n" combine                                                                                       \
  "  d[0] = x;\n"                                                                                               \
  "}\n"
#define MEANING(shape, d, a, combine)                                                                           \
  "def tile(float" shape " A, float" shape " C) -> (D) {\n  D" d " = C" d "\n  D" d " " combine " A" a "\n}\n"
#define LANES(name, older, quads, shape, d, a, lane, function, first, end, ...)                                 \
  LANES_OF(name, older, quads, shape, d, a, lane, function, first, end, __VA_ARGS__)
#define LANES_OF(label, older, quads, shape, d, a, lane, function, first, end, combiner, combine)               \
  {{.name = label, .was = older, .meaning = MEANING(shape, d, a, combiner), .spelling = "shfl.sync.bfly.b32",   \
    .combines_rows = quads, .fragments = {{lane, "0"}, {lane, "0"}}},                                           \
   function, FUNCTION(function, first, end, combine)}

// n neighbouring lanes; n lanes s apart, all of a warp; the same in o groups.
#define ALL(what, n, ...)                                                                                       \
  LANES("lanes." what "." #n ".f32", "warp." what ".f32", false, "(" #n ")", "(j)", "(k)", "_0",                \
        "kiln_lanes_" what "_" #n, "1", #n, __VA_ARGS__)
#define SIDE(what, x, older, o, n, ...)                                                                         \
  LANES("lanes." what "." #n ".f32" x, older "." what ".f32", true, "(" #o ", " #n ")", "(i, j)", "(i, k)",     \
        "_0 * " #n " + _1", "kiln_lanes_" what "_" #n, "1", #n, __VA_ARGS__)
#define NEAR(what, x, o, n, ...)                                                                                \
  LANES("lanes." what "." #n ".f32" x, NULL, false, "(" #o ", " #n ")", "(i, j)", "(i, k)", "_0 * " #n " + _1", \
        "kiln_lanes_" what "_" #n, "1", #n, __VA_ARGS__)
#define FAR(what, n, s, ...)                                                                                    \
  LANES("lanes." what "." #n "x" #s ".f32", NULL, false, "(" #n ", " #s ")", "(j, l)", "(k, l)", "_0 * " #s " + _1",\
        "kiln_lanes_" what "_" #n "x" #s, #s, "32", __VA_ARGS__)
#define APART(what, x, o, n, s, ...)                                                                            \
  LANES("lanes." what "." #n "x" #s ".f32" x, NULL, false, "(" #o ", " #n ", " #s ")", "(i, j, l)", "(i, k, l)",\
        "(_0 * " #n " + _1) * " #s " + _2", "kiln_lanes_" what "_" #n "x" #s, #s, #n " * " #s, __VA_ARGS__)
#define WARP(what, ...)                                                                                         \
  ALL(what, 32, __VA_ARGS__), NEAR(what, "", 2, 16, __VA_ARGS__), NEAR(what, "", 4, 8, __VA_ARGS__),            \
  SIDE(what, "", "quad", 8, 4, __VA_ARGS__), NEAR(what, "", 16, 2, __VA_ARGS__),                                \
  FAR(what, 16, 2, __VA_ARGS__), FAR(what, 8, 4, __VA_ARGS__), FAR(what, 4, 8, __VA_ARGS__),                    \
  FAR(what, 2, 16, __VA_ARGS__), APART(what, "", 2, 8, 2, __VA_ARGS__), APART(what, "", 4, 4, 2, __VA_ARGS__),  \
  APART(what, "", 8, 2, 2, __VA_ARGS__), APART(what, "", 2, 4, 4, __VA_ARGS__),                                 \
  APART(what, "", 4, 2, 4, __VA_ARGS__), APART(what, "", 2, 2, 8, __VA_ARGS__)
#define GROUP(what, ...)                                                                                        \
  NEAR(what, ".x128", 4, 32, __VA_ARGS__), NEAR(what, ".x128", 8, 16, __VA_ARGS__),                             \
  NEAR(what, ".x128", 16, 8, __VA_ARGS__), SIDE(what, ".x128", "group", 32, 4, __VA_ARGS__),                    \
  NEAR(what, ".x128", 64, 2, __VA_ARGS__), APART(what, ".x128", 4, 16, 2, __VA_ARGS__),                         \
  APART(what, ".x128", 4, 8, 4, __VA_ARGS__), APART(what, ".x128", 4, 4, 8, __VA_ARGS__),                       \
  APART(what, ".x128", 4, 2, 16, __VA_ARGS__), APART(what, ".x128", 8, 8, 2, __VA_ARGS__),                      \
  APART(what, ".x128", 16, 4, 2, __VA_ARGS__), APART(what, ".x128", 32, 2, 2, __VA_ARGS__),                     \
  APART(what, ".x128", 8, 4, 4, __VA_ARGS__), APART(what, ".x128", 16, 2, 4, __VA_ARGS__),                      \
  APART(what, ".x128", 8, 2, 8, __VA_ARGS__)

static const struct {
  kiln_instr instr;
  const char *function, *text;
} table[] = {
  WARP("sum", SUM), WARP("max", MAX), WARP("min", MIN), WARP("prod", PROD),
  GROUP("sum", SUM), GROUP("max", MAX), GROUP("min", MIN), GROUP("prod", PROD),
};

// clang-format on

int kiln_lanes_instrs(kiln_instr *out) {
  for (size_t i = 0; out && i < KILN_LEN(table); i++) {
    out[i] = table[i].instr;
    out[i].is_there = true;
  }
  return (int)KILN_LEN(table);
}

static int row_of(const kiln_instr *instr) {
  for (int i = 0; i < (int)KILN_LEN(table); i++)
    if (strcmp(table[i].instr.name, instr->name) == 0) return i;
  return -1;
}

bool kiln_gpu_instr_is_lanes(const kiln_instr *instr) { return row_of(instr) >= 0; }
const char *kiln_lanes_function(const kiln_instr *instr) { return table[row_of(instr)].function; }
const char *kiln_lanes_text(const kiln_instr *instr) { return table[row_of(instr)].text; }
