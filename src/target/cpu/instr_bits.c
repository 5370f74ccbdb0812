// Matrix instructions on weights of 4 bits: products of bytes by pairs of numbers that are taken
// apart in registers, once for all rows of a tile.
#include "target/cpu/cpu.h"
#include "target/instr.h"

#include <string.h>

// A byte of B holds the numbers of a column by which a byte of A, those in its low bits, and one of
// H, the high ones, are multiplied. One instruction of the processor takes four bytes of a column,
// and a tile |units| of them:
//     D(i, j) = C(i, j) + sum_u,k A(i, u, k) (B(u, j, k) & 15) + H(i, u, k) (B(u, j, k) >> 4)
// source: Intel SDM 2
typedef struct family {
  const char *name;
  const char *arch, *feature;
  int bytes;            // of a register
  const char *spelling; // takes the sums first; or gives sums of pairs in 16 bits
  bool in_pairs;
} family;

// clang-format off
static const family families[] = {
  {"vpdpbusd",     "x86_64", "avx512vnni", 64, "llvm.x86.avx512.vpdpbusd.512", false},
  {"vpdpbusd.256", "x86_64", "avx512vnni", 32, "llvm.x86.avx512.vpdpbusd.256", false},
  {"vpdpbusd.vex", "x86_64", "avxvnni",    32, "llvm.x86.avx512.vpdpbusd.256", false},
  {"vpmaddubsw",   "x86_64", "avx2",       32, "llvm.x86.avx2.pmadd.ub.sw",    true},
};
// clang-format on

enum { GROUP = 4, PER_BYTE = 2, RESULT = 0, LOW, HIGH, WEIGHTS, N_OPERANDS };

static kiln_instr tile_of(kiln_ctx *cx, const kiln_machine *m, const family *f, int rows,
                          int vectors, int units) {
  const int lanes = f->bytes / 4, n = vectors * lanes;
  kiln_instr t = {.spelling = f->spelling, .feature = f->feature};
  t.is_there = kiln_machine_has(m, f->feature);
  t.rows = rows, t.vectors = vectors, t.lanes = lanes, t.group = units * GROUP * PER_BYTE;
  t.decodes_bits = true;
  t.name = kiln_arena_printf(&cx->perm, "%s.u4x%d.%dx%d", f->name, t.group, rows, vectors);
  t.meaning = kiln_arena_printf(
      &cx->perm,
      "def tile(int8(%d, %d, 4) A, int8(%d, %d, 4) H, uint8(%d, %d, 4) B, int32(%d, %d) C) -> (D) "
      "{\n"
      "  D(i, j) = C(i, j)\n"
      "  D(i, j) += int32(A(i, u, k)) * int32(band(B(u, j, k), 15)) +\n"
      "             int32(H(i, u, k)) * int32(shr(B(u, j, k), 4))\n"
      "}\n",
      rows, units, rows, units, units, n, rows, n);
  t.strides[RESULT][1] = 1;
  t.strides[LOW][2] = t.strides[HIGH][2] = 1;
  t.strides[WEIGHTS][1] = GROUP;
  t.strides[WEIGHTS][2] = 1;
  return t;
}

void kiln_cpu_make_bit_instrs(kiln_ctx *cx, const kiln_machine *m, kiln_cpu_instr_list *all) {
  enum { MAX_VECTORS = 4, MAX_UNITS = 4 };
  for (size_t i = 0; i < KILN_LEN(families); i++) {
    if (strncmp(m->triple, families[i].arch, strlen(families[i].arch)) != 0) continue;
    for (int u = 1; u <= MAX_UNITS; u *= 2)
      for (int v = 1; v <= MAX_VECTORS; v++)
        for (int r = 1; r * v + v + 1 <= m->n_vector_regs; r++)
          KILN_VEC_PUSH(&cx->perm, all, tile_of(cx, m, &families[i], r, v, u));
  }
}

// --- spelling ---

typedef struct speller {
  kiln_emit *e;
  const kiln_loop *l;
  const kiln_instr *instr;
  bool in_pairs;
  int units;
  LLVMTypeRef sums, bytes, pairs, given; // vectors of i32, i8, i16; operands of the instruction
  // of a tile: sums of pairs, or of D
  LLVMValueRef acc[KILN_CPU_MAX_TILE];
} speller;

static LLVMValueRef load(speller *s, int operand, LLVMTypeRef type, const int64_t *at) {
  const kiln_expr *o = s->l->operands[operand];
  LLVMValueRef v =
      LLVMBuildLoad2(s->e->b, type, kiln_cpu_tile_address(s->e, s->l, operand, at), "");
  LLVMSetAlignment(v, (unsigned)kiln_dtype_bytes(o->dtype));
  return kiln_cpu_tag(s->e, o->u.tensor, v);
}

static LLVMValueRef splat(speller *s, LLVMTypeRef element, int lanes, int value) {
  return kiln_cpu_splat(s->e, LLVMConstInt(element, (unsigned)value, false), lanes);
}

// The numbers of vector |v| of unit |u| in the low bits of their bytes, or in the high ones.
static LLVMValueRef numbers(speller *s, int u, int v, bool is_high) {
  enum { BITS = 4, MASK = 15 };
  kiln_cpu_module *m = s->e->m;
  LLVMBuilderRef b = s->e->b;
  const int lanes = s->instr->lanes;
  const int64_t at[KILN_MAX_TILE_RANK] = {u, (int64_t)v * lanes, 0};
  LLVMTypeRef i16 = LLVMInt16TypeInContext(m->llvm);
  LLVMValueRef x = load(s, WEIGHTS, s->bytes, at);
  if (is_high) { // there are no shifts of bytes
    x = LLVMBuildBitCast(b, x, s->pairs, "");
    x = LLVMBuildLShr(b, x, splat(s, i16, 2 * lanes, BITS), "");
    x = LLVMBuildBitCast(b, x, s->bytes, "");
  }
  x = LLVMBuildAnd(b, x, splat(s, m->i8, GROUP * lanes, MASK), "");
  return LLVMBuildBitCast(b, x, s->given, "");
}

// Ends a step: a piece of inline assembly that seems to change all sums and memory. LLVM would
// otherwise load the rows' bytes of all units first, multiply one vector after the other, and spill
// what it loaded.
static void end_step(speller *s) {
  const int n = s->instr->rows * s->instr->vectors;
  const char *reg = s->instr->lanes * 4 > 32 ? "v" : "x"; // any of 32, or of 16
  LLVMTypeRef types[KILN_CPU_MAX_TILE];
  kiln_text in, out;
  kiln_text_init(&out, &s->e->cx->perm);
  kiln_text_init(&in, &s->e->cx->perm);
  for (int i = 0; i < n; i++) {
    types[i] = LLVMTypeOf(s->acc[i]);
    kiln_text_printf(&out, "%s=%s", i ? "," : "", reg);
    kiln_text_printf(&in, ",%d", i);
  }
  kiln_text_printf(&out, "%s,~{memory}", in.data);
  LLVMTypeRef result =
      n == 1 ? types[0] : LLVMStructTypeInContext(s->e->m->llvm, types, (unsigned)n, false);
  LLVMTypeRef type = LLVMFunctionType(result, types, (unsigned)n, false);
  LLVMValueRef step = LLVMGetInlineAsm(type, "", 0, out.data, strlen(out.data), true, false,
                                       LLVMInlineAsmDialectATT, false);
  LLVMValueRef sums = LLVMBuildCall2(s->e->b, type, step, s->acc, (unsigned)n, "");
  for (int i = 0; i < n; i++)
    s->acc[i] = n == 1 ? sums : LLVMBuildExtractValue(s->e->b, sums, (unsigned)i, "");
}

static void multiply_unit(speller *s, int u, bool is_high) {
  kiln_emit *e = s->e;
  const kiln_instr *in = s->instr;
  LLVMValueRef w[KILN_CPU_MAX_TILE];
  for (int v = 0; v < in->vectors; v++) w[v] = numbers(s, u, v, is_high);
  for (int i = 0; i < in->rows; i++) {
    const int64_t at[KILN_MAX_TILE_RANK] = {i, u, 0};
    LLVMValueRef x = load(s, is_high ? HIGH : LOW, e->m->i32, at);
    x = LLVMBuildBitCast(e->b, kiln_cpu_splat(e, x, in->lanes), s->given, "");
    for (int v = 0; v < in->vectors; v++) {
      LLVMValueRef *acc = &s->acc[i * in->vectors + v];
      if (!s->in_pairs) {
        *acc = kiln_cpu_call(e, in->spelling, 0, NULL, 3, (LLVMValueRef[]){*acc, w[v], x});
        continue;
      }
      LLVMValueRef pairs = kiln_cpu_call(e, in->spelling, 0, NULL, 2, (LLVMValueRef[]){w[v], x});
      *acc = *acc ? LLVMBuildAdd(e->b, *acc, pairs, "") : pairs;
    }
  }
}

static void finish_sum(speller *s, int i, int v) {
  kiln_emit *e = s->e;
  const kiln_instr *in = s->instr;
  const int64_t at[KILN_MAX_TILE_RANK] = {i, (int64_t)v * in->lanes};
  LLVMValueRef sum = s->acc[i * in->vectors + v];
  if (s->in_pairs) {
    LLVMValueRef ones = splat(s, LLVMInt16TypeInContext(e->m->llvm), 2 * in->lanes, 1);
    sum = kiln_cpu_call(e, "llvm.x86.avx2.pmadd.wd", 0, NULL, 2, (LLVMValueRef[]){sum, ones});
    sum = LLVMBuildAdd(e->b, load(s, RESULT, s->sums, at), sum, "");
  }
  LLVMValueRef store = LLVMBuildStore(e->b, sum, kiln_cpu_tile_address(e, s->l, RESULT, at));
  LLVMSetAlignment(store, 4);
  (void)kiln_cpu_tag(e, s->l->operands[RESULT]->u.tensor, store);
}

void kiln_cpu_emit_bit_instr(kiln_emit *e, const kiln_loop *l) {
  kiln_cpu_module *m = e->m;
  const unsigned lanes = (unsigned)l->instr->lanes;
  speller s = {.e = e, .l = l, .instr = l->instr, .in_pairs = strstr(l->instr->spelling, "pmadd")};
  s.units = l->instr->group / (GROUP * PER_BYTE);
  s.sums = LLVMVectorType(m->i32, lanes);
  s.bytes = LLVMVectorType(m->i8, GROUP * lanes);
  s.pairs = LLVMVectorType(LLVMInt16TypeInContext(m->llvm), 2 * lanes);
  s.given = s.in_pairs ? s.bytes : s.sums;
  const int n = l->instr->rows * l->instr->vectors;
  for (int i = 0; i < n && !s.in_pairs; i++) {
    const int64_t at[KILN_MAX_TILE_RANK] = {i / l->instr->vectors,
                                            (int64_t)(i % l->instr->vectors) * l->instr->lanes};
    s.acc[i] = load(&s, RESULT, s.sums, at);
  }
  for (int u = 0; u < s.units; u++)
    for (int is_high = 0; is_high < PER_BYTE; is_high++) {
      multiply_unit(&s, u, is_high);
      end_step(&s);
    }
  for (int i = 0; i < n; i++) finish_sum(&s, i / l->instr->vectors, i % l->instr->vectors);
}
