// Instructions end to end: a definition, a script that tensorizes it, compiled code, compared with
// the naive loops in the simulator; and the reasons why a nest is no instruction.
#include "unit/cpu/rig.h"

#include "analysis/interpret.h"
#include "schedule/instr.h"
#include "schedule/schedule.h"
#include "target/instr.h"
#include "target/sim/sim.h"
#include "tc/definition.h"

#include <math.h>

#define MM(out, a, b, value)                                                                       \
  "def mm(" a "(M, K) A, " b "(K, N) B) -> (C) {\n"                                                \
  "  S(m, n) +=! " value "\n"                                                                      \
  "  C(m, n) = S(m, n) + S(m, n)\n"                                                                \
  "}\n"
static const char mm_f32[] = MM("float", "float", "float", "A(m, k) * B(k, n)");
static const char mm_reversed[] = MM("float", "float", "float", "B(k, n) * A(m, k)");
static const char mm_f64[] = MM("double", "double", "double", "A(m, k) * B(k, n)");
static const char mm_u8[] = MM("int32", "uint8", "int8", "int32(A(m, k)) * int32(B(k, n))");
static const char mm_i8[] = MM("int32", "int8", "int8", "int32(A(m, k)) * int32(B(k, n))");
static const char mm_u32[] = MM("uint32", "uint8", "uint8", "uint32(A(m, k)) * uint32(B(k, n))");
static const char mm_i16_i8[] = MM("int32", "int16", "int8", "int32(A(m, k)) * int32(B(k, n))");
static const char mm_i16[] = MM("int32", "int16", "int16", "int32(A(m, k)) * int32(B(k, n))");
static const char mm_bf16[] =
    MM("float", "bfloat16", "bfloat16", "float(A(m, k)) * float(B(k, n))");

// K units of 8 numbers: four bytes of a column, each multiplied by two of a row.
static const char mm_bits[] = "def mm(int8(M, K, 2, 4) A, uint8(K, N, 4) B) -> (C) {\n"
                              "  S(m, n) +=! int32(A(m, k, 0, b)) * int32(band(B(k, n, b), 15)) +\n"
                              "              int32(A(m, k, 1, b)) * int32(shr(B(k, n, b), 4))\n"
                              "  C(m, n) = S(m, n) + S(m, n)\n"
                              "}\n";

// Register tiles of R x N of the result, the whole reduction in registers; N is a panel's width.
#define TILE(r, n)                                                                                 \
  "split C.m " #r " guard mo mi\nsplit C.n " #n " guard no ni\nreorder mo no mi ni\n"              \
  "compute_at S no register\n"
#define FMA(r, n, instr)                                                                           \
  TILE(r, n)                                                                                       \
  "reorder S.k S.m S.n\nunroll mi\nvectorize ni\nunroll S.init.m\nvectorize S.init.n\n"            \
  "tensorize S.m " instr "\n"
#define DOT(r, n, g, instr)                                                                        \
  "stage B 0 workspace Bp 1/" #n " 0/" #g " 1%" #n " 0%" #g                                        \
  "\n" TILE(r, n) "split S.k " #g " guard ko ki\nreorder ko S.m S.n ki\nunroll mi\nvectorize ni\n" \
                  "unroll S.init.m\nvectorize S.init.n\ntensorize S.m " instr "\n"
#define BITS(r, n, units, instr)                                                                   \
  TILE(r, n)                                                                                       \
  "split S.k " #units " exact ko ki\nreorder ko S.m S.n ki S.b\nunroll mi\nvectorize ni\n"         \
  "unroll S.init.m\nvectorize S.init.n\ntensorize S.m " instr "\n"

typedef struct example {
  const char *machine;
  const char *tc;
  int m, n, k;
  const char *script;
  const char *assembly; // that it must hold
} example;

static const example examples[] = {
    {"avx512", mm_f32, 12, 64, 9, FMA(6, 32, "fma.6x2"), "vfmadd"},
    {"avx512", mm_reversed, 12, 64, 9, FMA(6, 32, "fma.6x2"), "vfmadd"},
    {"avx512", mm_f32, 28, 32, 5, FMA(14, 32, "fma.14x2"), "vfmadd"},
    {"avx512", mm_f32, 16, 96, 7, FMA(8, 48, "fma.8x3"), "vfmadd"},
    {"avx512", mm_f32, 3, 16, 7, FMA(1, 16, "fma.1x1"), "vfmadd"},
    {"avx512", mm_f64, 8, 32, 7, FMA(4, 16, "fma.f64.4x2"), "vfmadd"},
    {"avx2", mm_f32, 12, 32, 9, FMA(6, 16, "fma.6x2"), "vfmadd"},
    {"avx2", mm_u8, 8, 32, 24, DOT(4, 16, 4, "vpmaddwd.4x2"), "vpmaddwd"},
    {"avx2", mm_u8, 6, 16, 8, DOT(3, 8, 4, "vpmaddwd.3x1"), "vpmaddwd"},
    {"avx2", mm_u8, 10, 32, 24, DOT(5, 16, 4, "vpmaddubsw.5x2"), "vpmaddubsw"},
    {"avx2", mm_i16_i8, 12, 32, 10, DOT(6, 16, 2, "vpmaddwd.16.6x2"), "vpmaddwd"},
    {"avx512vnni", mm_u8, 12, 64, 24, DOT(6, 32, 4, "vpdpbusd.6x2"), "vpdpbusd"},
    {"avx512vnni", mm_u8, 5, 16, 8, DOT(1, 16, 4, "vpdpbusd.1x1"), "vpdpbusd"},
    {"avx512vnni", mm_u8, 8, 32, 8, DOT(4, 16, 4, "vpdpbusd.256.4x2"), "vpdpbusd"},
    {"avxvnni", mm_u8, 8, 32, 8, DOT(4, 16, 4, "vpdpbusd.vex.4x2"), "vpdpbusd"},
    {"avx512vnni", mm_i16, 6, 32, 10, DOT(3, 32, 2, "vpdpwssd.3x2"), "vpdpwssd"},
    {"avx512vnni", mm_i16, 6, 16, 10, DOT(3, 8, 2, "vpdpwssd.256.3x1"), "vpdpwssd"},
    {"avx512vnni", mm_bf16, 12, 64, 8, DOT(6, 32, 2, "vdpbf16ps.6x2"), "vdpbf16ps"},
    {"avx512vnni", mm_bf16, 12, 32, 8, DOT(6, 16, 2, "vdpbf16ps.256.6x2"), "vdpbf16ps"},
    {"avx2", mm_bits, 8, 32, 8, BITS(4, 16, 4, "vpmaddubsw.u4x32.4x2"), "vpmaddubsw"},
    {"avx2", mm_bits, 5, 16, 6, BITS(5, 16, 2, "vpmaddubsw.u4x16.5x2"), "vpmaddubsw"},
    {"avx2", mm_bits, 3, 32, 3, BITS(1, 32, 1, "vpmaddubsw.u4x8.1x4"), "vpmaddubsw"},
    {"avxvnni", mm_bits, 8, 32, 8, BITS(4, 16, 4, "vpdpbusd.vex.u4x32.4x2"), "vpdpbusd"},
    {"avx512vnni", mm_bits, 6, 64, 8, BITS(6, 32, 4, "vpdpbusd.u4x32.6x2"), "vpdpbusd"},
    {"avx512vnni", mm_bits, 28, 32, 2, BITS(14, 32, 2, "vpdpbusd.u4x16.14x2"), "vpdpbusd"},
    {"neon", mm_f32, 12, 16, 5, FMA(6, 8, "fma.6x2"), "fmla"},
    {"neon", mm_u32, 8, 16, 8, DOT(4, 8, 4, "udot.4x2"), "udot"},
    {"neon", mm_i8, 8, 16, 8, DOT(4, 8, 4, "sdot.4x2"), "sdot"},
};

typedef struct data {
  char *args[8];
  int n;
} data;

// The same inputs for the naive loops and the scheduled ones: by tensor.
static void fill(data *d, const kiln_loops *l) {
  d->n = 0;
  for (int i = 0; i < l->buffers.n; i++) {
    const kiln_buffer *b = l->buffers.data[i];
    if (b->scope != KILN_SCOPE_PARAM && b->scope != KILN_SCOPE_WORKSPACE) continue;
    const int64_t n = kiln_buffer_elems(b);
    uint64_t state = (uint64_t)b->tensor * 77 + 5;
    char *p = test_malloc((size_t)(n + 64) * (size_t)kiln_dtype_bytes(b->dtype));
    for (int64_t e = 0; e < n; e++) {
      state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
      const int64_t v = (int64_t)(state >> 33) % 15 - 7;
      if (kiln_dtype_is_float(b->dtype)) kiln_element_set(b->dtype, p, e, (double)v);
      else kiln_element_set_int(b->dtype, p, e, v); // u8: 249 and more too
    }
    d->args[d->n++] = p;
  }
}

static void drop(data *d) {
  for (int i = 0; i < d->n; i++) test_free(d->args[i]);
}

static void begin(rig *r, const example *x, kiln_schedule *s) {
  const kiln_tc_binding sizes[] = {{"M", x->m}, {"N", x->n}, {"K", x->k}};
  kiln_program *p = NULL;
  if (kiln_tc_program(&r->cx, "mm.tc", x->tc, NULL, 3, sizes, &p) != KILN_OK) rig_fail(r, x->tc);
  if (kiln_schedule_begin(&r->cx, p, s) != KILN_OK) rig_fail(r, "begin");
  s->instrs = kiln_cpu_instrs(&r->cx, &r->machine, &s->n_instrs);
}

static const char *text_of(rig *r, const kiln_loops *l) {
  kiln_text text;
  kiln_text_init(&text, &r->cx.perm);
  kiln_loops_print(&r->cx, l, &text);
  return text.data;
}

static void compare(rig *r, const example *x, kiln_loops *naive, kiln_loops *loops) {
  data want, sim, got;
  fill(&want, naive);
  fill(&sim, loops);
  fill(&got, loops);
  if (kiln_sim_run(&r->cx, naive, (void *const *)want.args) != KILN_OK) rig_fail(r, x->script);
  if (kiln_sim_run(&r->cx, loops, (void *const *)sim.args) != KILN_OK) rig_fail(r, x->script);
  rig_run(r, got.args, 0);
  int number = 0, result = 0;
  for (int i = 0; i < naive->buffers.n; i++) {
    const kiln_buffer *b = naive->buffers.data[i];
    if (b->scope == KILN_SCOPE_PARAM && strcmp(kiln_symbol_text(&r->cx, b->name), "C") == 0)
      result = number;
    number += b->scope == KILN_SCOPE_PARAM || b->scope == KILN_SCOPE_WORKSPACE;
  }
  int at = 0;
  const kiln_buffer *c = NULL;
  for (int i = 0, n = 0; i < loops->buffers.n; i++) {
    const kiln_buffer *b = loops->buffers.data[i];
    if (b->scope == KILN_SCOPE_PARAM && strcmp(kiln_symbol_text(&r->cx, b->name), "C") == 0)
      at = n, c = b;
    n += b->scope == KILN_SCOPE_PARAM || b->scope == KILN_SCOPE_WORKSPACE;
  }
  for (int64_t e = 0; e < kiln_buffer_elems(c); e++) {
    const double a = kiln_element_get(c->dtype, want.args[result], e);
    const double b = kiln_element_get(c->dtype, sim.args[at], e);
    const double d = kiln_element_get(c->dtype, got.args[at], e);
    if (a != b || a != d) // sums of small integers are exact
      fail_msg("%s\nelement %d must be %g, got %g simulated, %g compiled", x->script, (int)e, a, b,
               d);
  }
  drop(&want);
  drop(&sim);
  drop(&got);
}

static void run_example(const example *x) {
  rig r;
  kiln_schedule naive, s;
  rig_init(&r, x->machine);
  begin(&r, x, &naive);
  begin(&r, x, &s);
  if (kiln_schedule_replay(&s, x->script) != KILN_OK) rig_fail(&r, text_of(&r, s.loops));
  if (kiln_loops_verify(&r.cx, s.loops) != KILN_OK) rig_fail(&r, text_of(&r, s.loops));
  const bool runs = rig_runs(x->machine);
  rig_compile_loops(&r, s.loops, runs);
  if (!strstr(r.assembly.data, x->assembly)) fail_msg("%s: must hold %s", x->script, x->assembly);
  if (runs) compare(&r, x, naive.loops, s.loops);

  // the text of the loops is the loops
  const kiln_instr_table table = {&r.cx, s.n_instrs, s.instrs};
  const char *text = text_of(&r, s.loops);
  kiln_loops *again = NULL;
  if (kiln_loops_parse_with(&r.cx, text, kiln_instr_find_in, &table, &again) != KILN_OK)
    rig_fail(&r, text);
  assert_string_equal(text_of(&r, again), text);
  rig_deinit(&r);
}

static void tensorized_scripts_compute_the_definition(void **state) {
  (void)state;
  for (size_t i = 0; i < KILN_LEN(examples); i++) run_example(&examples[i]);
}

static void all_meanings_have_loops(void **state) {
  (void)state;
  rig r;
  int n = 0;
  rig_init(&r, "avx512vnni");
  kiln_instr *all = kiln_cpu_instrs(&r.cx, &r.machine, &n);
  for (int i = 0; i < n; i++) {
    if (kiln_instr_make_loops(&r.cx, &all[i]) != KILN_OK) rig_fail(&r, all[i].name);
    kiln_loops *l = kiln_loops_copy(&r.cx.perm, all[i].loops);
    if (kiln_loops_verify(&r.cx, l) != KILN_OK) rig_fail(&r, all[i].name);
    assert_int_equal(l->buffers.n, all[i].decodes_bits ? 4 : 3);
    const kiln_buffer *d = l->buffers.data[0];
    assert_int_equal(d->extents[0], all[i].rows);
    assert_int_equal(d->extents[1], all[i].vectors * all[i].lanes);
    assert_true(all[i].rows * all[i].vectors + all[i].vectors + 1 <= r.machine.n_vector_regs);
  }
  rig_deinit(&r);
}

// A layout that was changed without the primitives' checks is found at code generation.
static void wrong_strides_make_no_code(void **state) {
  (void)state;
  rig r;
  kiln_schedule s = {0};
  rig_init(&r, "avx512");
  s.instrs = kiln_cpu_instrs(&r.cx, &r.machine, &s.n_instrs);
  const kiln_instr_table table = {&r.cx, s.n_instrs, s.instrs};
  const char *text = "kernel k { param f32 A[1]:(1) param f32 B[32]:(1) param f32 C[16]:(1) "
                     "instr fma.1x1(C[_1], A[_0], B[_0*2]) }";
  if (kiln_loops_parse_with(&r.cx, text, kiln_instr_find_in, &table, &s.loops) != KILN_OK)
    rig_fail(&r, text);
  const char *symbol = "k";
  kiln_object object = {0};
  int n = 0;
  assert_int_equal(kiln_cpu_compile(&r.cx, &r.machine, 1, &s.loops, &symbol, NULL, &n, &object),
                   KILN_INTERNAL);
  assert_non_null(
      strstr(kiln_diag_message(r.diag, 0),
             "instruction fma.1x1: neighbours in buffer B must be 1 elements apart, got 2"));
  rig_deinit(&r);
}

// Accumulators live in registers: the loop over the reduction touches memory only for A and B.
static void tiles_stay_in_registers(void **state) {
  (void)state;
  rig r;
  kiln_schedule s;
  const example x = {"avx512", mm_f32, 14, 32, 100, FMA(14, 32, "fma.14x2"), ""};
  rig_init(&r, x.machine);
  begin(&r, &x, &s);
  if (kiln_schedule_replay(&s, x.script) != KILN_OK) rig_fail(&r, "replay");
  rig_compile_loops(&r, s.loops, false);
  int fmas = 0;
  for (const char *at = r.assembly.data; (at = strstr(at, "vfmadd")); at++) fmas++;
  assert_int_equal(fmas, 28);
  if (strstr(r.assembly.data, "rsp), %zmm")) fail_msg("must not spill:\n%s", r.assembly.data);
  rig_deinit(&r);
}

static const char sum_of_sums[] =
    MM("float", "bfloat16", "bfloat16", "float(A(m, k)) + float(B(k, n))");
static const char gram[] = "def mm(float(N, K) A, float(K, M) B) -> (C) {\n"
                           "  C(m, n) +=! A(m, k) * A(n, k)\n}\n";

#define BLOCK "split S.m 6 guard mo mi\nsplit S.n 32 guard no ni\nreorder mo no S.k mi ni\n"
static const struct {
  const char *machine, *tc, *script, *error;
} refusals[] = {
    {"avx512", mm_f32, "tensorize S.m fma.6x2",
     "the loops must have the extents of fma.6x2.i:6, fma.6x2.j:32, got (S.m:12, S.n:64, S.k:8)"},
    {"avx512", mm_f32, BLOCK "tensorize mi vpdpbusd.6x2",
     "vpdpbusd.6x2: the machine must have avx512vnni"},
    {"avx512", mm_f32, BLOCK "tensorize mi fma.20x2", "must name an instruction of the target"},
    {"avx512", mm_f64, BLOCK "tensorize mi fma.6x2",
     "the nest must compute `D[fma.6x2.i, fma.6x2.j] += "
     "A[fma.6x2.i]*B[fma.6x2.j]` as fma.6x2 does, got `S[mo*6 + mi, no*32 + ni] += "
     "A[mo*6 + mi, S.k]*B[S.k, no*32 + ni]`"},
    {"avx512", mm_f32,
     "split S.m 5 guard mo mi\nsplit S.n 32 guard no ni\nreorder mo no S.k mi ni\n"
     "tensorize mi fma.5x2",
     "the nest must have no guard"},
    {"avx512", mm_f32, "split C.n 16 guard no ni\nreorder no C.m ni\ntensorize C.m fma.12x1",
     "the nest must compute"},
    {"avx512vnni", mm_u8,
     "split S.m 6 guard mo mi\nsplit S.n 32 guard no ni\nsplit S.k 4 guard ko ki\n"
     "reorder mo no ko mi ni ki\ntensorize mi vpdpbusd.6x2",
     "operand B (buffer B) must have neighbours along loop ni 4 elements apart, got 1: stage it"},
    {"avx512vnni", mm_u8,
     "stage B 0 workspace Bp 1/32 0/4 1%32 0%4\nsplit C.m 6 guard mo mi\n"
     "split C.n 32 guard no ni\nreorder mo no mi ni\ncompute_at S no register\n"
     "split S.k 4 guard ko ki\nreorder ko S.m S.n ki\nstage Bp ko register R 0 1 2 3\n"
     "tensorize S.m vpdpbusd.6x2",
     "operand B (buffer R) must not lie in registers: use local"},
    {"avx512vnni", sum_of_sums,
     "split S.m 6 guard mo mi\nsplit S.n 32 guard no ni\n"
     "split S.k 2 guard ko ki\nreorder mo no ko mi ni ki\ntensorize mi vdpbf16ps.6x2",
     "the nest must compute"},
    {"avx512", gram,
     "split C.m 4 guard mo mi\nsplit C.n 32 guard no ni\nreorder mo no C.k mi ni\n"
     "tensorize mi fma.4x2",
     "operand B (buffer A) must have neighbours along loop ni 1 elements apart, got 8"},
    // a layout that is changed after tensorize
    {"avx512", mm_f32, BLOCK "tensorize mi fma.6x2\nstage B no local BP 1 0",
     "neighbours in buffer BP must be 1 elements apart for fma.6x2, got 8: do this before "
     "tensorize"},
    {"avx512", mm_f32, BLOCK "tensorize mi fma.6x2\nstage B no local BP 1/4 0 1%4",
     "neighbours in buffer BP must be 1 elements apart for fma.6x2, got blocks: do this before "
     "tensorize"},
};

static bool has_message(const rig *r, const char *part) {
  for (size_t i = 0; i < kiln_diag_count(r->diag); i++)
    if (strstr(kiln_diag_message(r->diag, i), part)) return true;
  return false;
}

static void refusals_say_what_differs(void **state) {
  (void)state;
  for (size_t i = 0; i < KILN_LEN(refusals); i++) {
    rig r;
    kiln_schedule s;
    const example x = {refusals[i].machine, refusals[i].tc, 12, 64, 8, refusals[i].script, ""};
    rig_init(&r, x.machine);
    begin(&r, &x, &s);
    assert_int_equal(kiln_schedule_replay(&s, x.script), KILN_BAD_INPUT);
    if (!has_message(&r, refusals[i].error)) {
      print_message("%s\nmust hold %s\n", x.script, refusals[i].error);
      rig_fail(&r, "got another message");
    }
    rig_deinit(&r);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(tensorized_scripts_compute_the_definition),
      cmocka_unit_test(all_meanings_have_loops),
      cmocka_unit_test(tiles_stay_in_registers),
      cmocka_unit_test(wrong_strides_make_no_code),
      cmocka_unit_test(refusals_say_what_differs),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
