// Matrix instructions of CPUs: the register tiles of each family, their meanings and spellings.
#include "target/cpu/cpu.h"
#include "target/instr.h"

#include <stdio.h>
#include <string.h>

// D(i, j) = C(i, j) + A(i, k) * B(j, k); k runs over the |group| products that one instruction adds
// to an element, and is left out if |group| is one. source: Intel SDM 2, Arm ARM C7.2
typedef struct family {
  const char *name;
  const char *arch, *feature; // NULL: any
  int bytes;                  // of a register; 0: the widest of the machine
  int group;
  kiln_dtype dtype;      // of D
  const char *d, *a, *b; // types in the notation
  const char *product;   // of A's and B's elements
  const char *spelling;
} family;

#define DOT_I32 "int32(A(i, k)) * int32(B(j, k))"
#define PAIRS_TO_I32 "llvm.x86.avx2.pmadd.wd"
#define DOT_F32 "float(A(i, k)) * float(B(j, k))"
// clang-format off
static const family families[] = {
  {"fma",           NULL,      NULL,         0,  1, KILN_F32, "float", "float",    "float",    "A(i) * B(j)",
   "llvm.fma"},
  {"fma.f64",       NULL,      NULL,         0,  1, KILN_F64, "double", "double",   "double",   "A(i) * B(j)",
   "llvm.fma"},
  {"vpdpbusd",      "x86_64",  "avx512vnni", 64, 4, KILN_I32, "int32", "uint8",    "int8",     DOT_I32,
   "llvm.x86.avx512.vpdpbusd.512"},
  {"vpdpbusd.256",  "x86_64",  "avx512vnni", 32, 4, KILN_I32, "int32", "uint8",    "int8",     DOT_I32,
   "llvm.x86.avx512.vpdpbusd.256"},
  {"vpdpbusd.vex",  "x86_64",  "avxvnni",    32, 4, KILN_I32, "int32", "uint8",    "int8",     DOT_I32,
   "llvm.x86.avx512.vpdpbusd.256"},
  {"vpmaddubsw",    "x86_64",  "avx2",       32, 4, KILN_I32, "int32", "uint8",    "int8",     DOT_I32,
   "llvm.x86.avx2.pmadd.ub.sw"},
  {"vpmaddwd",      "x86_64",  "avx2",       32, 4, KILN_I32, "int32", "uint8",    "int8",     DOT_I32, PAIRS_TO_I32},
  {"vpmaddwd.16",   "x86_64",  "avx2",       32, 2, KILN_I32, "int32", "int16",    "int8",     DOT_I32, PAIRS_TO_I32},
  {"vpdpwssd",      "x86_64",  "avx512vnni", 64, 2, KILN_I32, "int32", "int16",    "int16",    DOT_I32,
   "llvm.x86.avx512.vpdpwssd.512"},
  {"vpdpwssd.256",  "x86_64",  "avx512vnni", 32, 2, KILN_I32, "int32", "int16",    "int16",    DOT_I32,
   "llvm.x86.avx512.vpdpwssd.256"},
  {"vdpbf16ps",     "x86_64",  "avx512bf16", 64, 2, KILN_F32, "float", "bfloat16", "bfloat16", DOT_F32,
   "llvm.x86.avx512bf16.dpbf16ps.512"},
  {"vdpbf16ps.256", "x86_64",  "avx512bf16", 32, 2, KILN_F32, "float", "bfloat16", "bfloat16", DOT_F32,
   "llvm.x86.avx512bf16.dpbf16ps.256"},
  {"sdot",          "aarch64", "dotprod",    16, 4, KILN_I32, "int32", "int8",     "int8",     DOT_I32,
   "llvm.aarch64.neon.sdot"},
  {"udot",          "aarch64", "dotprod",    16, 4, KILN_U32, "uint32", "uint8",    "uint8",
   "uint32(A(i, k)) * uint32(B(j, k))",
   "llvm.aarch64.neon.udot"},
};
// clang-format on

// A tile of |rows| x |vectors| accumulators; registers also hold an element of A and B's vectors.
static kiln_instr tile_of(kiln_ctx *cx, const kiln_machine *m, const family *f, int rows,
                          int vectors) {
  const int lanes = (f->bytes ? f->bytes : m->vector_bytes) / kiln_dtype_bytes(f->dtype);
  const int n = vectors * lanes;
  kiln_instr t = {.spelling = f->spelling, .feature = f->feature ? f->feature : "fma"};
  t.is_there = f->feature ? kiln_machine_has(m, f->feature) : m->has_fma;
  t.rows = rows, t.vectors = vectors, t.lanes = lanes, t.group = f->group;
  t.name = kiln_arena_printf(&cx->perm, "%s.%dx%d", f->name, rows, vectors);
  t.strides[0][1] = 1;
  char k[16] = "";
  if (f->group > 1) snprintf(k, sizeof k, ", %d", f->group);
  t.meaning = kiln_arena_printf(&cx->perm,
                                "def tile(%s(%d%s) A, %s(%d%s) B, %s(%d, %d) C) -> (D) {\n"
                                "  D(i, j) = C(i, j)\n"
                                "  D(i, j) += %s\n"
                                "}\n",
                                f->a, rows, k, f->b, n, k, f->d, rows, n, f->product);
  t.strides[1][1] = f->group > 1;
  t.strides[2][0] = f->group;
  t.strides[2][1] = f->group > 1;
  return t;
}

static void make_instrs(kiln_ctx *cx, const kiln_machine *m, kiln_cpu_instr_list *all) {
  enum { MAX_VECTORS = 4 };
  for (size_t i = 0; i < KILN_LEN(families); i++) {
    const char *arch = families[i].arch;
    if (arch && strncmp(m->triple, arch, strlen(arch)) != 0) continue;
    for (int v = 1; v <= MAX_VECTORS; v++)
      for (int r = 1; r * v + v + 1 <= m->n_vector_regs; r++)
        KILN_VEC_PUSH(&cx->perm, all, tile_of(cx, m, &families[i], r, v));
  }
}

// A text of everything that the instructions depend on, as the key of a cache.
static const char *describe(kiln_ctx *cx, const kiln_machine *m) {
  const kiln_symbol text = kiln_symbol_printf(cx, "instructions %s %s %d %d %d", m->triple,
                                              m->features ? m->features : "", m->vector_bytes,
                                              m->n_vector_regs, m->has_fma);
  return kiln_symbol_text(cx, text);
}

kiln_instr *kiln_cpu_instrs(kiln_ctx *cx, const kiln_machine *m, int *out_n) {
  const uint64_t key = (uintptr_t)describe(cx, m), *known = kiln_map_find(&cx->read, key);
  kiln_cpu_instr_list *all =
      known ? (kiln_cpu_instr_list *)(uintptr_t)*known : KILN_NEW(&cx->perm, kiln_cpu_instr_list);
  if (!known) {
    make_instrs(cx, m, all);
    kiln_cpu_make_bit_instrs(cx, m, all);
    kiln_map_put(&cx->read, key, (uintptr_t)all);
  }
  *out_n = all->n;
  return all->data;
}

// --- spelling ---

// How the products of a group are summed.
typedef enum way {
  AT_ONCE,  // by one instruction
  IN_PAIRS, // u8 by i8: sums of two in i16, which must not overflow, then in i32
  WIDENED,  // the even and the odd bytes of each group, widened to i16
  HALVES,   // i16 by bytes widened to i16
} way;

// A group of an operand: unchanged, or its even and its odd bytes.
typedef struct factor {
  LLVMValueRef part[2];
} factor;

typedef struct speller {
  kiln_emit *e;
  const kiln_loop *l;
  const kiln_instr *instr;
  way way;
  kiln_dtype dtype;  // of D
  LLVMTypeRef sum;   // vectors of D
  LLVMTypeRef given; // operands A and B of the instruction
  LLVMTypeRef group; // a group of A as one scalar
  LLVMTypeRef bytes; // of B in memory
} speller;

LLVMValueRef kiln_cpu_tile_address(kiln_emit *e, const kiln_loop *l, int operand,
                                   const int64_t *at) {
  const kiln_expr *o = l->operands[operand];
  for (int k = 0; k < KILN_MAX_TILE_RANK; k++) {
    const kiln_symbol var = kiln_tile_var(e->cx, k);
    const kiln_binding b = {.var = var, .kind = KILN_BOUND_CONST, .constant = at[k]};
    KILN_VEC_PUSH(&e->cx->perm, &e->vars, b);
    kiln_ranges_push(&e->ranges, var, at[k], at[k]);
  }
  LLVMValueRef p = kiln_cpu_address(e, o, o->u.tensor, o->args).pointer;
  e->vars.n -= KILN_MAX_TILE_RANK;
  kiln_ranges_pop(&e->ranges, KILN_MAX_TILE_RANK);
  return p;
}

// The address of element (i, j) of an operand's tile.
static LLVMValueRef at(speller *s, int operand, int64_t i, int64_t j) {
  return kiln_cpu_tile_address(s->e, s->l, operand, (const int64_t[KILN_MAX_TILE_RANK]){i, j});
}

static LLVMValueRef load(speller *s, int operand, LLVMTypeRef type, int64_t i, int64_t j) {
  const kiln_expr *o = s->l->operands[operand];
  LLVMValueRef v = LLVMBuildLoad2(s->e->b, type, at(s, operand, i, j), "");
  LLVMSetAlignment(v, (unsigned)kiln_dtype_bytes(o->dtype));
  return kiln_cpu_tag(s->e, o->u.tensor, v);
}

static LLVMValueRef numbers(speller *s, int value) {
  kiln_cpu_module *m = s->e->m;
  LLVMTypeRef i16 = LLVMInt16TypeInContext(m->llvm);
  return kiln_cpu_splat(s->e, LLVMConstInt(i16, (unsigned)value, false), 2 * s->instr->lanes);
}

static factor factor_of(speller *s, LLVMValueRef x, bool is_signed) {
  LLVMBuilderRef b = s->e->b;
  if (s->way == HALVES && is_signed) return (factor){{LLVMBuildSExt(b, x, s->given, ""), NULL}};
  x = LLVMBuildBitCast(b, x, s->given, "");
  if (s->way != WIDENED) return (factor){{x, NULL}};
  LLVMValueRef byte = numbers(s, 8);
  if (!is_signed)
    return (factor){{LLVMBuildAnd(b, x, numbers(s, 255), ""), LLVMBuildLShr(b, x, byte, "")}};
  LLVMValueRef even = LLVMBuildShl(b, x, byte, "");
  return (factor){{LLVMBuildAShr(b, even, byte, ""), LLVMBuildAShr(b, x, byte, "")}};
}

// Adds |products| to |d| behind an empty piece of inline assembly, which hides the sum from LLVM.
// It would otherwise reassociate: sum the products of several steps first for a shorter chain,
// which needs more registers than there are and spills.
static LLVMValueRef add_to(speller *s, LLVMValueRef d, LLVMValueRef products) {
  static const char in_place[] = "=x,0";
  LLVMTypeRef type = LLVMFunctionType(s->sum, &s->sum, 1, false);
  LLVMValueRef sum = LLVMBuildAdd(s->e->b, d, products, "");
  LLVMValueRef opaque = LLVMGetInlineAsm(type, "", 0, in_place, strlen(in_place), false, false,
                                         LLVMInlineAsmDialectATT, false);
  return LLVMBuildCall2(s->e->b, type, opaque, &sum, 1, "");
}

static LLVMValueRef call(speller *s, LLVMValueRef d, const factor *a, const factor *b) {
  kiln_emit *e = s->e;
  const char *name = s->instr->spelling;
  LLVMValueRef first[] = {a->part[0], b->part[0]}, second[] = {a->part[1], b->part[1]};
  if (s->way == AT_ONCE && s->instr->group == 1)
    return kiln_cpu_call(e, name, 1, &s->sum, 3, (LLVMValueRef[]){first[0], first[1], d});
  if (s->way == AT_ONCE) {
    LLVMTypeRef types[] = {s->sum, s->given};
    const int n_types = strstr(name, "aarch64") ? 2 : 0;
    return kiln_cpu_call(e, name, n_types, types, 3, (LLVMValueRef[]){d, first[0], first[1]});
  }
  LLVMValueRef sums = kiln_cpu_call(e, name, 0, NULL, 2, first);
  if (s->way == IN_PAIRS)
    sums = kiln_cpu_call(e, PAIRS_TO_I32, 0, NULL, 2, (LLVMValueRef[]){sums, numbers(s, 1)});
  if (s->way == WIDENED)
    sums = LLVMBuildAdd(e->b, sums, kiln_cpu_call(e, name, 0, NULL, 2, second), "");
  return add_to(s, d, sums);
}

static void prepare(speller *s) {
  kiln_cpu_module *m = s->e->m;
  const kiln_instr *in = s->instr;
  const unsigned lanes = (unsigned)in->lanes, parts = lanes * (unsigned)in->group;
  s->dtype = s->l->operands[0]->dtype;
  LLVMTypeRef scalar = kiln_cpu_memory_type(m, s->dtype);
  s->sum = LLVMVectorType(scalar, lanes);
  s->group = in->group == 1 ? scalar : m->i32;
  s->way = strstr(in->spelling, "pmadd.ub")          ? IN_PAIRS
           : strcmp(in->spelling, PAIRS_TO_I32) != 0 ? AT_ONCE
           : in->group == 2                          ? HALVES
                                                     : WIDENED;
  s->given = s->way == WIDENED || s->way == HALVES
                 ? LLVMVectorType(LLVMInt16TypeInContext(m->llvm), 2 * lanes)
             : strstr(in->spelling, "bf16") ? LLVMVectorType(m->bf16, parts)
             : strstr(in->spelling, "aarch64") || s->way == IN_PAIRS ? LLVMVectorType(m->i8, parts)
             : in->group == 1                                        ? s->sum
                              : LLVMVectorType(m->i32, lanes);
  s->bytes = s->way == HALVES ? LLVMVectorType(m->i8, parts) : LLVMVectorType(s->group, lanes);
}

static void spell_row(speller *s, int i, const factor *b) {
  kiln_emit *e = s->e;
  LLVMValueRef group = load(s, 1, s->group, i, 0);
  const factor a = factor_of(s, kiln_cpu_splat(e, group, s->instr->lanes), false);
  for (int v = 0; v < s->instr->vectors; v++) {
    const int64_t j = (int64_t)v * s->instr->lanes;
    LLVMValueRef sum = call(s, load(s, 0, s->sum, i, j), &a, &b[v]);
    LLVMValueRef store = LLVMBuildStore(e->b, sum, at(s, 0, i, j));
    LLVMSetAlignment(store, (unsigned)kiln_dtype_bytes(s->dtype));
    (void)kiln_cpu_tag(e, s->l->operands[0]->u.tensor, store);
  }
}

// An invariant that tensorize and later primitives keep.
static kiln_status check_strides(kiln_emit *e, const kiln_loop *l) {
  kiln_misfit m;
  if (!kiln_instr_find_misfit(e->cx, e->loops, l, &m)) return KILN_OK;
  const kiln_buffer *b = e->loops->buffers.data[l->operands[m.operand]->u.tensor];
  return KILN_FAIL(e->cx->diag, KILN_INTERNAL, kiln_symbol_text(e->cx, e->loops->name),
                   "instruction %s: neighbours in buffer %s must be %" PRId64
                   " elements apart, got %" PRId64,
                   l->instr->name, kiln_symbol_text(e->cx, b->name), m.want, m.got);
}

kiln_status kiln_cpu_emit_instr(kiln_emit *e, const kiln_loop *l) {
  factor b[8];
  speller s = {.e = e, .l = l, .instr = l->instr};
  const int n_operands = l->instr->decodes_bits ? 4 : 3;
  if (l->n_operands != n_operands || l->instr->vectors > (int)KILN_LEN(b) ||
      l->instr->rows * l->instr->vectors > KILN_CPU_MAX_TILE ||
      (!l->instr->decodes_bits && l->instr->lanes * l->instr->group > KILN_CPU_MAX_LANES))
    return KILN_FAIL(
        e->cx->diag, KILN_INTERNAL, kiln_symbol_text(e->cx, e->loops->name),
        "instruction %s: its tile must have %d operands and at most %zu vectors, got %d "
        "and %d",
        l->instr->name, n_operands, KILN_LEN(b), l->n_operands, l->instr->vectors);
  if (!l->instr->is_there)
    return KILN_FAIL(e->cx->diag, KILN_UNSUPPORTED, kiln_symbol_text(e->cx, e->loops->name),
                     "instruction %s: the processor must have %s", l->instr->name,
                     l->instr->feature);
  KILN_TRY(check_strides(e, l));
  kiln_cpu_memo_clear(e);
  if (l->instr->decodes_bits) {
    kiln_cpu_emit_bit_instr(e, l);
    return KILN_OK;
  }
  prepare(&s);
  for (int v = 0; v < s.instr->vectors; v++)
    b[v] = factor_of(&s, load(&s, 2, s.bytes, (int64_t)v * s.instr->lanes, 0), true);
  for (int i = 0; i < s.instr->rows; i++) spell_row(&s, i, b);
  return KILN_OK;
}
