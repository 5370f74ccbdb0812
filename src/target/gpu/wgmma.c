// Matrix instructions of warp groups, 128 threads (sm_90a): D(64, n) += A(64, 16) B(16, n), both
// operands in shared memory, or A in the registers of the threads, where the sums of another
// product lie as it has to (lanes). They run asynchronously; emit.c writes the waits
// that keep their order, pipeline.c finds where it may be relaxed.
//
// An operand lies in rows of 64 elements, 128 bytes, along its contiguous dim, swizzled:
//     row.  A(m, k), k contiguous, as (k / 64, m, k % 64)      col.  as (m / 64, k, m % 64)
//     row.  B(k, n), n contiguous, as (n / 64, k, n % 64)      col.  as (k / 64, n, k % 64)
// source: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions", 128-byte swizzling
#include "target/gpu/instr.h"

#include <string.h>

// Element (i, j) of D: text over the tile's axes, which are those of A and B.
#define SUMS(i, j)                                                                                 \
  {                                                                                                \
    "(" i ") / 16 * 32 + (" i ") % 8 * 4 + (" j ") % 8 / 2",                                       \
        "(" j ") / 8 * 4 + (" i ") % 16 / 8 * 2 + (" j ") % 2"                                     \
  }
#define LEFT                                                                                       \
  { "_0 / 16 * 32 + _0 % 8 * 4 + _1 % 8 / 2", "_1 / 8 * 4 + _0 % 16 / 8 * 2 + _1 % 2" }
#define MEANING(a, b, d, index_a, index_b, index_d)                                                \
  "def tile(" a " A, " b " B, float" d " C) -> (D) {\n"                                            \
  "  D" index_d " = C" index_d "\n"                                                                \
  "  D" index_d " += float(A" index_a ") * float(B" index_b ")\n"                                  \
  "}\n"
typedef struct row {
  kiln_instr instr;
  int n;
  const char *type;         // as PTX has it
  bool left_col, right_row; // operands that are transposed on the way
} row;

static bool in_lanes(const row *r) { return r->instr.fragments[1].lane != NULL; }

#define STRIDES                                                                                    \
  { 64, 1 }
#define STRIDES_OF_ROWS                                                                            \
  { 0, 64, 1 }
#define ROW(label, type, width, meant, sums, right, left_col, right_row)                           \
  {                                                                                                \
    {.name = "wgmma.m64n" #width "k16." type "." label,                                            \
     .meaning = meant,                                                                             \
     .spelling = "wgmma.mma_async.sync.aligned.m64n" #width "k16.f32." type "." type,              \
     .feature = "sm_90a",                                                                          \
     .strides = {{0}, STRIDES, right},                                                             \
     .fragments = {sums},                                                                          \
     .swizzled = 6},                                                                               \
        width, type, left_col, right_row                                                           \
  }
#define ROWS(type, word, n, n64)                                                                   \
  ROW("row.row", type, n,                                                                          \
      MEANING(word "(64, 16)", word "(" #n64 ", 16, 64)", "(64, " #n64 ", 64)", "(i, k)",          \
              "(r, k, s)", "(i, r, s)"),                                                           \
      SUMS("_0", "(64*_1 + _2)"), STRIDES_OF_ROWS, false, true),                                   \
      {{.name = "wgmma.m64n" #n "k16." type ".lanes.row",                                          \
        .meaning = MEANING(word "(64, 16)", word "(" #n64 ", 16, 64)", "(64, " #n64 ", 64)",       \
                           "(i, k)", "(r, k, s)", "(i, r, s)"),                                    \
        .spelling = "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type,               \
        .feature = "sm_90a",                                                                       \
        .strides = {{0}, {0}, STRIDES_OF_ROWS},                                                    \
        .fragments = {SUMS("_0", "(64*_1 + _2)"), LEFT},                                           \
        .swizzled = 4},                                                                            \
       n,                                                                                          \
       type,                                                                                       \
       false,                                                                                      \
       true},                                                                                      \
      ROW("row.col", type, n,                                                                      \
          MEANING(word "(64, 16)", word "(" #n ", 16)", "(64, " #n ")", "(i, k)", "(j, k)",        \
                  "(i, j)"),                                                                       \
          SUMS("_0", "_1"), STRIDES, false, false),                                                \
      ROW("col.row", type, n,                                                                      \
          MEANING(word "(16, 64)", word "(" #n64 ", 16, 64)", "(64, " #n64 ", 64)", "(k, i)",      \
                  "(r, k, s)", "(i, r, s)"),                                                       \
          SUMS("_0", "(64*_1 + _2)"), STRIDES_OF_ROWS, true, true),                                \
      ROW("col.col", type, n,                                                                      \
          MEANING(word "(16, 64)", word "(" #n ", 16)", "(64, " #n ")", "(k, i)", "(j, k)",        \
                  "(i, j)"),                                                                       \
          SUMS("_0", "_1"), STRIDES, true, false)
#define BOTH(n, n64) ROWS("f16", "float16", n, n64), ROWS("bf16", "bfloat16", n, n64)

static const row table[] = {BOTH(64, 1), BOTH(128, 2), BOTH(192, 3), BOTH(256, 4)};

int kiln_wgmma_instrs(const kiln_machine *m, kiln_instr *out) {
  for (size_t i = 0; out && i < KILN_LEN(table); i++) {
    out[i] = table[i].instr;
    out[i].is_there = m->gpu.has_wgmma;
  }
  return (int)KILN_LEN(table);
}

static const row *row_of(const kiln_instr *instr) {
  for (size_t i = 0; i < KILN_LEN(table); i++)
    if (strcmp(table[i].instr.name, instr->name) == 0) return &table[i];
  return NULL;
}

bool kiln_gpu_instr_is_group(const kiln_instr *instr) { return row_of(instr) != NULL; }

const char *kiln_wgmma_function(kiln_ctx *cx, const kiln_instr *instr) {
  char *name = kiln_arena_printf(&cx->perm, "kiln_%s", instr->name);
  for (char *c = name; *c; c++)
    if (*c == '.') *c = '_';
  return name;
}

// kiln_matrix: an operand's descriptor: 8 contiguous rows of 128 bytes, and the distance to the
// next 8 where it has more.
// kiln_settle: adds a minus zero that the assembler cannot see to sums that were waited for behind
// a loop. Otherwise it takes conversions of the sums for a part of the loop, and serializes the
// wgmma instructions (its advice C7514).
static const char HELPERS[] =
    "static __device__ __forceinline__ uint64_t kiln_matrix(const uint16_t *at, int block) {\n"
    "  const uint32_t place = (uint32_t)__cvta_generic_to_shared(at);\n"
    "  return (uint64_t)(place >> 4 & 0x3fff) | (uint64_t)(block >> 3) << 16 | UINT64_C(64) << 32 "
    "|\n"
    "         UINT64_C(1) << 62;\n"
    "}\n"
    "static __device__ __forceinline__ void kiln_settle(float *d, int n) {\n"
    "  const float nought = __int_as_float((int)(threadIdx.z | 0x80000000u));\n"
    "#pragma unroll\n"
    "  for (int i = 0; i < n; i++) d[i] += nought;\n"
    "}\n";
const char *kiln_wgmma_helpers(void) { return HELPERS; }

// The sums' registers, eight a line: "%0, %1, ..", or the operands that these are bound to.
static void put_registers(kiln_text *t, int n, bool are_operands) {
  for (int i = 0; i < n; i++) {
    const bool ends = i % 8 == 7 && i + 1 < n;
    if (are_operands) kiln_text_printf(t, "%s\"+f\"(d[%d])", i ? ", " : "", i);
    else kiln_text_printf(t, "%%%d%s", i, i + 1 < n ? ", " : "");
    if (ends) kiln_text_add(t, are_operands ? "\n       " : "\"\n      \"");
  }
}

// The rest of the instruction behind the sums: registers of the operands' descriptors, scales, and
// transpositions.
static void put_memory(kiln_text *t, const row *r, int n) {
  kiln_text_printf(t, "}, %%%d, %%%d, 1, 1, 1, %d, %d;\"\n      : ", n, n + 1, r->left_col,
                   r->right_row);
  put_registers(t, n, true);
  kiln_text_add(t, "\n      : \"l\"(x), \"l\"(y));\n}\n");
}

static void put_lanes(kiln_text *t, const row *r, int n) {
  kiln_text_printf(t, "}, {%%%d, %%%d, %%%d, %%%d}, %%%d, 1, 1, 1, %d;\"\n      : ", n, n + 1,
                   n + 2, n + 3, n + 4, r->right_row);
  put_registers(t, n, true);
  kiln_text_add(t, "\n      : \"r\"(x[0]), \"r\"(x[1]), \"r\"(x[2]), \"r\"(x[3]), \"l\"(y));\n}\n");
}

const char *kiln_wgmma_text(kiln_ctx *cx, const kiln_instr *instr) {
  const row *r = row_of(instr);
  const int n = r->n / 2; // sums of a thread
  kiln_text t;
  kiln_text_init(&t, &cx->perm);
  kiln_text_printf(&t,
                   "static __device__ __forceinline__ void %s(float *d, const uint16_t *a, %sconst "
                   "uint16_t *b, int b_row) {\n"
                   "  %s;\n"
                   "  const uint64_t y = kiln_matrix(b, b_row);\n"
                   "  asm volatile(\"%s {\"\n      \"",
                   kiln_wgmma_function(cx, instr), in_lanes(r) ? "" : "int a_row, ",
                   in_lanes(r) ? "const uint32_t *x = (const uint32_t *)a"
                               : "const uint64_t x = kiln_matrix(a, a_row)",
                   instr->spelling);
  put_registers(&t, n, false);
  if (in_lanes(r)) put_lanes(&t, r, n);
  else put_memory(&t, r, n);
  return t.data;
}
