// Emitted C, compiled by the C compiler into this process, compared with the simulator.
#include "unit/cpu/programs.h"

#include "schedule/instr.h"
#include "target/c/c.h"
#include "target/sim/sim.h"

#include "unit/c/library.h"
#include "unit/nests.h"
#include "unit/share.h"

enum { N_PROGRAMS = 250, MAX_KERNELS = 1024 };

typedef struct bench {
  kiln_diag *diag;
  kiln_ctx cx;
  int n;
  kiln_loops *kernels[MAX_KERNELS];
  const char *symbols[MAX_KERNELS];
  kiln_text text;
  void *handle;
} bench;

static void open_bench(bench *b) {
  memset(b, 0, sizeof *b);
  b->diag = kiln_diag_create();
  assert_int_equal(kiln_ctx_init(&b->cx, b->diag), KILN_OK);
  kiln_text_init(&b->text, &b->cx.scratch);
}

static void close_bench(bench *b) {
  if (b->handle) dlclose(b->handle);
  kiln_ctx_deinit(&b->cx);
  kiln_diag_destroy(b->diag);
}

static void add_kernel(bench *b, kiln_loops *l) {
  assert_true(b->n < MAX_KERNELS);
  b->kernels[b->n] = l;
  b->symbols[b->n] = kiln_arena_printf(&b->cx.perm, "k%d", b->n);
  b->n++;
}

static void add_text(bench *b, const char *text) {
  kiln_loops *l = NULL;
  if (kiln_loops_parse(&b->cx, text, &l) != KILN_OK)
    fail_msg("%s\n%s", kiln_diag_message(b->diag, 0), text);
  if (kiln_loops_verify(&b->cx, l) != KILN_OK)
    fail_msg("%s\n%s", kiln_diag_message(b->diag, 0), text);
  add_kernel(b, l);
}

static void compile(bench *b) {
  kiln_c_emit(&b->cx, b->n, b->kernels, b->symbols, &b->text);
  b->handle = library_load(&b->text);
}

static void run_compiled(bench *b, int kernel, char *const *args) {
  library_kernel c = {b->handle, kernel};
  nests_run(b->kernels[kernel], library_nest, &c, args);
}

// Runs kernel |k| both ways on the same inputs; the last argument is the result.
static void compare(bench *b, int k, uint64_t seed) {
  kiln_loops *l = b->kernels[k];
  maker m = {.cx = &b->cx, .loops = l, .state = seed};
  char *args[64], *want[64];
  const kiln_buffer *of[64];
  int n = 0;
  for (int i = 0; i < l->buffers.n; i++) {
    const kiln_buffer *p = l->buffers.data[i];
    if (p->scope != KILN_SCOPE_PARAM && p->scope != KILN_SCOPE_WORKSPACE) continue;
    const size_t bytes = (size_t)(kiln_buffer_elems(p) + 8) * (size_t)kiln_dtype_bytes(p->dtype);
    args[n] = test_malloc(bytes);
    want[n] = test_malloc(bytes);
    fill_buffer(&m, p, args[n]);
    memcpy(want[n], args[n], bytes);
    of[n++] = p;
  }
  kiln_text text;
  kiln_text_init(&text, &b->cx.perm);
  kiln_loops_print(&b->cx, l, &text);
  if (kiln_sim_run(&b->cx, l, (void *const *)want) != KILN_OK)
    fail_msg("%s\n%s", kiln_diag_message(b->diag, 0), text.data);
  run_compiled(b, k, args);
  for (int i = 0; i < n; i++) {
    for (int64_t e = 0; e < kiln_buffer_elems(of[i]) + 8; e++) {
      const double x = kiln_element_get(of[i]->dtype, want[i], e),
                   y = kiln_element_get(of[i]->dtype, args[i], e);
      if (!is_near(of[i]->dtype, x, y))
        fail_msg("kernel %d: element %lld of buffer %d must be %.17g, got %.17g in\n%s", k,
                 (long long)e, i, x, y, text.data);
    }
    test_free(args[i]);
    test_free(want[i]);
  }
}

static void random_programs_agree_with_the_simulator(void **state) {
  (void)state;
  bench b;
  open_bench(&b);
  for (uint64_t seed = 1; seed <= (uint64_t)test_some(N_PROGRAMS); seed++) {
    maker m = {.cx = &b.cx, .state = seed * 104729};
    (void)make_program(&m);
    if (kiln_loops_verify(&b.cx, m.loops) != KILN_OK) fail();
    add_kernel(&b, m.loops);
  }
  compile(&b);
  for (int k = 0; k < b.n; k++) compare(&b, k, (uint64_t)k + 17);
  close_bench(&b);
}

// Minifloats are cast through few types: tests each pair with one of these.
static bool has_cast(kiln_dtype from, kiln_dtype to) {
  const kiln_dtype other = kiln_dtype_is_code(from) ? to : from;
  if (!kiln_dtype_is_code(from) && !kiln_dtype_is_code(to)) return true;
  return other == KILN_F32 || other == KILN_BF16 || other == KILN_I64;
}

// Every operator on every type that takes it, and every cast.
static void operators_agree_with_the_simulator(void **state) {
  (void)state;
  bench b;
  open_bench(&b);
  for (int t = 0; t < KILN_N_DTYPES; t++) {
    const char *name = kiln_dtype_text((kiln_dtype)t);
    for (int k = KILN_EXPR_ADD; k < KILN_EXPR_SELECT; k++) {
      const kiln_expr_kind kind = (kiln_expr_kind)k;
      const bool is_float = kiln_dtype_is_float((kiln_dtype)t);
      if (!kiln_expr_kind_takes(kind, (kiln_dtype)t) || kiln_expr_kind_is_cmp(kind)) continue;
      // not by constant folding: the reference has no value for them
      if (is_float && (kind == KILN_EXPR_MOD || kind == KILN_EXPR_TDIV)) continue;
      if (!is_float && ((kind >= KILN_EXPR_FLOOR && kind <= KILN_EXPR_TRUNC) ||
                        kind == KILN_EXPR_SHR || kind == KILN_EXPR_POW))
        continue;
      const bool is_class = kind == KILN_EXPR_ISNAN || kind == KILN_EXPR_ISINF;
      if (is_class && !is_float) continue;
      if (kind == KILN_EXPR_SIGN && t == KILN_BOOL) continue;
      const char *op = kiln_expr_kind_text(kind), *args = "";
      if (kiln_expr_kind_args(kind) == 2) {
        const bool call = kiln_expr_kind_is_call(kind);
        args = kiln_arena_printf(&b.cx.perm, call ? "%s(X[i], Z[i])" : "X[i] %s Z[i]", op);
        if (call) args = kiln_arena_printf(&b.cx.perm, "%s(X[i], Z[i])", op);
      } else {
        args = kiln_arena_printf(&b.cx.perm, "%s(X[i])", op);
      }
      add_text(&b, kiln_arena_printf(&b.cx.perm,
                                     "kernel k { param %s X[40]:(1) param %s Z[40]:(1) param %s "
                                     "Y[40]:(1) for i:40 { Y[i] = %s } }",
                                     name, name, is_class ? "bool" : name, args));
    }
    for (int from = 0; from < KILN_N_DTYPES; from++) {
      if (!has_cast((kiln_dtype)from, (kiln_dtype)t)) continue;
      add_text(&b, kiln_arena_printf(&b.cx.perm,
                                     "kernel k { param %s X[40]:(1) param %s Y[40]:(1) for i:40 "
                                     "vectorized { Y[i] = %s(X[i]) } }",
                                     kiln_dtype_text((kiln_dtype)from), name, name));
    }
  }
  compile(&b);
  for (int k = 0; k < b.n; k++) compare(&b, k, (uint64_t)k + 99);
  close_bench(&b);
}

// --- programs by hand ---

static const kiln_instr dot = {
    .name = "dot",
    .meaning = "def dot(float(2) A, float(4, 2) B, float(4) C) -> (D) { D(i) = C(i) "
               "D(i) += A(k) * B(i, k) }",
    .is_there = true};

static const char *const by_hand[] = {
    // names that C has taken, and that differ only where C has no such characters
    "kernel k { param f32 int[4]:(1) param f32 \"a-b\"[4]:(1) param f32 \"a.b\"[4]:(1) "
    "param f32 exp[4]:(1) local f32 begin[4]:(1) for \"for\":4 { alloc begin { "
    "begin[\"for\"] = int[\"for\"] + \"a-b\"[\"for\"] * \"a.b\"[\"for\"] "
    "exp[\"for\"] = exp(begin[\"for\"]) } } }",
    // bound loops, shared memory, notes
    "kernel k { param f32 X[4]:(1) param f32 Y[8]:(1) shared f32 T[4]:(1) for b:2 block.x @a=b { "
    "alloc T { for t:4 thread.x { T[t] = X[t] + f32(b) } for u:4 thread.x { Y[b*4 + u] = T[3 - u] "
    "} "
    "} } }",
    // NaN, infinity
    "kernel k { param f32 X[40]:(1) param f32 Y[40]:(1) param f32 Z[40]:(1) for i:40 { "
    "Y[i] = max((X[i] - X[i]) / (X[i] - X[i]), X[i]) Z[i] min= (X[i] - X[i]) / (X[i] - X[i]) } }",
    "kernel k { param f64 X[40]:(1) param i16 Y[40]:(1) for i:40 { "
    "Y[i] = i16(isnan(X[i]/0f64 * 0f64) ? 1f64/(X[i] - X[i]) : -1f64/(X[i] - X[i])) } }",
    // a prefetch may lie outside, extents may depend on loops, a nest may be no loop, rank 0
    "kernel k { param f32 X[8]:(1) param f32 Y[8]:(1) param i64 S[]:() for i:8 { prefetch X[i*9 - "
    "5] "
    "for j:i { Y[i] += X[j] } } S[] = 7 }",
    // every combiner
    "kernel k { param i8 X[9]:(1) param bool B[9]:(1) param f16 H[1]:(1) param i8 P[1]:(1) "
    "param u8 M[1]:(1) param bool A[1]:(1) param bool O[1]:(1) for i:9 vectorized { H[0] += "
    "f16(X[i]) P[0] *= X[i] M[0] max= u8(X[i]) A[0] and= B[i] O[0] or= B[i] } }",
    "kernel k { param i8 X[9]:(1) param u8 A[9]:(1) param i8 O[1]:(1) for i:9 { "
    "A[i] and= u8(X[i]) O[0] or= X[i] } }",
    // copies of halves; a buffer that lives before others do
    "kernel k { param f16 X[40]:(1) param bf16 Z[40]:(1) param f16 Y[40]:(1) param bf16 W[40]:(1) "
    "local f32 T[1]:(1) for i:40 { alloc T { T[0] = f32(X[i]) } Y[i] = X[i] W[i] = Z[i] } }",
    "kernel k { param f32 A[6, 2]:(2, 1) param f32 B[8, 2]:(2, 1) param f32 C[6, 8]:(8, 1) "
    "for i:6 parallel { for j:2 { instr dot(C[i, j*4 + _0], A[i, _0], B[j*4 + _0, _1]) } } }",
};

static void programs_by_hand_agree_with_the_simulator(void **state) {
  (void)state;
  bench b;
  open_bench(&b);
  kiln_instr row = dot;
  const kiln_instr_table table = {&b.cx, 1, &row};
  for (size_t i = 0; i < KILN_LEN(by_hand); i++) {
    kiln_loops *l = NULL;
    if (kiln_loops_parse_with(&b.cx, by_hand[i], kiln_instr_find_in, &table, &l) != KILN_OK ||
        kiln_loops_verify(&b.cx, l) != KILN_OK)
      fail_msg("%s\n%s", kiln_diag_message(b.diag, 0), by_hand[i]);
    add_kernel(&b, l);
  }
  compile(&b);
  for (int k = 0; k < b.n; k++) compare(&b, k, (uint64_t)k + 3);
  close_bench(&b);
}

// Expressions that as trees have 2^60 nodes, with and without selects.
static void shared_expressions_stay_small(void **state) {
  (void)state;
  bench b;
  open_bench(&b);
  for (int guarded = 0; guarded < 2; guarded++) {
    kiln_loops *l = kiln_loops_make(&b.cx, "deep");
    const int64_t n = 16;
    const kiln_buffer *x = kiln_buffer_make(&b.cx, l, "X", KILN_F64, KILN_SCOPE_PARAM, 1, &n, NULL),
                      *y = kiln_buffer_make(&b.cx, l, "Y", KILN_F64, KILN_SCOPE_PARAM, 1, &n, NULL);
    const kiln_symbol i = kiln_symbol_of(&b.cx, "i");
    const kiln_expr *at = kiln_var(&b.cx, i);
    const kiln_expr *load = kiln_load(&b.cx, x->id, KILN_F64, 1, &at), *e = load;
    for (int k = 0; k < 60; k++) {
      const kiln_expr *half = kiln_mul(&b.cx, e, kiln_float(&b.cx, KILN_F64, 0.5)),
                      *more = kiln_add(&b.cx, e, kiln_float(&b.cx, KILN_F64, k));
      const kiln_expr *limit = kiln_float(&b.cx, KILN_F64, k / 16.0 - 2);
      const kiln_expr *c = kiln_binary(&b.cx, KILN_EXPR_LT, load, limit);
      e = guarded ? kiln_select(&b.cx, c, half, more) : kiln_sub(&b.cx, half, more);
    }
    kiln_loop *s = kiln_store_make(&b.cx, y, &at, KILN_COMBINE_NONE, e);
    l->body = kiln_for_make(&b.cx, i, kiln_int(&b.cx, n), s);
    add_kernel(&b, l);
  }
  compile(&b);
  assert_true(b.text.n < 40000);
  run_compiled(&b, 0, (char *[]){(char *)(double[16]){0}, (char *)(double[16]){0}});
  double x[16], y[16];
  for (int i = 0; i < 16; i++) x[i] = i / 4.0 - 2;
  run_compiled(&b, 1, (char *[]){(char *)x, (char *)y});
  for (int i = 0; i < 16; i++) {
    double want = x[i];
    for (int k = 0; k < 60; k++) want = x[i] < k / 16.0 - 2 ? want * 0.5 : want + k;
    assert_true(y[i] == want);
  }
  close_bench(&b);
}

// The text for a reader.
static void text_is_readable(void **state) {
  (void)state;
  bench b;
  open_bench(&b);
  add_text(&b, "kernel mm { param f32 A[8, 4]:(4, 1) param f32 B[4, 16]:(16, 1) param f32 "
               "C[8, 16]:(16, 1) local f32 T[16]:(1) "
               "for C.i:8 parallel { alloc T { for C.j0:16 vectorized { T[C.j0] = 0f32 } "
               "for C.k:4 { prefetch B[C.k + 1, 0] for C.j:16 unrolled @why=here { "
               "T[C.j] += A[C.i, C.k] * B[C.k, C.j] } } for C.j1:16 { C[C.i, C.j1] = max(T[C.j1], "
               "0.5f32) } } } }");
  compile(&b);
  const char *const parts[] = {
      "// mm: nest 0\nvoid k0_0(char *const *args, int64_t begin, int64_t end) {\n"
      "  const float *restrict A = (const float *)args[0]; // f32 (8, 4)\n"
      "  const float *restrict B = (const float *)args[1]; // f32 (4, 16)\n"
      "  float *restrict C = (float *)args[2]; // f32 (8, 16)\n"
      "  for (int64_t C_i = begin; C_i < end; C_i++) {\n"
      "    _Alignas(64) float T[16]; // local\n"
      "    #pragma GCC ivdep\n"
      "    for (int64_t C_j0 = 0; C_j0 < 16; C_j0++) {\n"
      "      T[C_j0] = 0.0f;\n"
      "    }\n",
      ("      #pragma GCC unroll 16\n"
       "      for (int64_t C_j = 0; C_j < 16; C_j++) { // @why=here\n"),
      "= kiln_max_f32(T[C_j1], 0.5f);\n",
  };
  for (size_t i = 0; i < KILN_LEN(parts); i++)
    if (!strstr(b.text.data, parts[i])) fail_msg("must hold\n%s\ngot\n%s", parts[i], b.text.data);
  compare(&b, 0, 5);
  close_bench(&b);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(text_is_readable),
      cmocka_unit_test(programs_by_hand_agree_with_the_simulator),
      cmocka_unit_test(shared_expressions_stay_small),
      cmocka_unit_test(operators_agree_with_the_simulator),
      cmocka_unit_test(random_programs_agree_with_the_simulator),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
