// Polyhedral schedules: fusion decisions, scripts, and results in the simulator and compiled, for
// every strategy, machine and number of threads.
#include "unit/cpu/rig.h"
#include "unit/schedule/kernel.h"

#include "polyhedral/polyhedral.h"

static const kiln_machine machines[] = {
    {.target = &kiln_target_cpu,
     .vector_bytes = 64,
     .n_vector_regs = 32,
     .l1_bytes = 48 << 10,
     .l2_bytes = 1 << 20},
    {.target = &kiln_target_cpu,
     .vector_bytes = 16,
     .n_vector_regs = 16,
     .l1_bytes = 2048,
     .l2_bytes = 8192},
};

#define MAPS                                                                                       \
  "p { in f32 X(50, 70) temp f32 T(50, 70) out f32 Y(50, 70) T(i0:50, i1:70) = X(i0, i1) * 2f32 "  \
  "Y(i0:50, i1:70) = T(i0, i1) + X(i0, i1) }"
#define SOFTMAX                                                                                    \
  "p { in f32 X(19, 37) temp f32 M(19) temp f32 E(19, 37) temp f32 S(19) out f32 Y(19, 37) "       \
  "M(i0:19 | r0:37) max=! X(i0, r0) E(i0:19, i1:37) = exp(X(i0, i1) - M(i0)) "                     \
  "S(i0:19 | r0:37) +=! E(i0, r0) Y(i0:19, i1:37) = E(i0, i1) / S(i0) }"
#define BLUR                                                                                       \
  "p { in f32 X(70, 90) temp f32 B(70, 88) out f32 Y(68, 88) "                                     \
  "B(i0:70, i1:88) = X(i0, i1) + X(i0, i1 + 1) + X(i0, i1 + 2) "                                   \
  "Y(i0:68, i1:88) = B(i0, i1) + B(i0 + 1, i1) + B(i0 + 2, i1) }"
#define PRODUCTS                                                                                   \
  "p { in f32 X(40, 30) in f32 V(30, 20) in f32 W(20, 25) temp f32 T(40, 20) out f32 Y(40, 25) "   \
  "T(i0:40, i1:20 | r0:30) +=! X(i0, r0) * V(r0, i1) "                                             \
  "Y(i0:40, i1:25 | r0:20) +=! T(i0, r0) * W(r0, i1) }"
#define SHIFTED                                                                                    \
  "p { in f32 X(70) out f32 B(68) out f32 Y(66) B(i0:68) = X(i0) + X(i0 + 2) "                     \
  "Y(i0:66) = B(i0) + B(i0 + 2) }"
#define MOMENTS                                                                                    \
  "p { in f32 X(24, 35) out f32 M(24) out f32 V(24) M(i0:24 | r0:35) +=! X(i0, r0) "               \
  "V(i0:24 | r0:35) +=! (X(i0, r0) - M(i0)) * (X(i0, r0) - M(i0)) }"
#define ROWS                                                                                       \
  "p { in f32 X(16, 24) out f32 M(16) temp f32 V(16) out f32 Y(16, 24) "                           \
  "M(i0:16 | r0:24) +=! X(i0, r0) V(i0:16) = M(i0) * 2f32 Y(i0:16, i1:24) = X(i0, i1) - V(i0) }"
#define WINDOW                                                                                     \
  "p { in f32 X(270) temp f32 B(266) out f32 Y(256) B(i0:266) = X(i0) + X(i0 + 4) "                \
  "Y(i0:256 | r0:11) +=! B(i0 + r0) }"
#define TRIANGLE                                                                                   \
  "p { in f32 X(30, 30) temp f32 T(30, 30) out f32 Y(30, 30) T(i0:30, i1:30) = X(i0, i1) + 1f32 "  \
  "Y(i0:30, i1:30 | r0:30) +=! T(i0, r0) * X(r0, i1) if r0 <= i0 }"
#define GATHER                                                                                     \
  "p { in f32 X(30, 9) in i64 I(20) temp f32 T(30, 9) out f32 Y(20, 9) T(i0:30, i1:9) = X(i0, "    \
  "i1) * 2f32 Y(i0:20, i1:9) = T(I(i0), i1) }"
#define TRANSPOSED                                                                                 \
  "p { in f32 X(40, 50) temp f32 T(40, 50) out f32 Y(50, 40) T(i0:40, i1:50) = X(i0, i1) * 2f32 "  \
  "Y(i0:50, i1:40) = T(i1, i0) + 1f32 }"
#define EVERY                                                                                      \
  "p { in f32 X(33) temp f32 S() out f32 Y(33) S( | r0:33) +=! X(r0) Y(i0:33) = X(i0) - S() }"
#define HALVED                                                                                     \
  "p { in f32 X(64) temp f32 T(64) out f32 Y(32) T(i0:64) = X(i0) + 1f32 Y(i0:32) = T(2 * i0) + "  \
  "T(2 * i0 + 1) }"

#define STENCIL                                                                                    \
  "p { in f32 X(64, 74) out f32 Y(60, 70) Y(i0:60, i1:70 | r0:5, r1:5) +=! X(i0 + r0, i1 + r1) }"
#define CROSS                                                                                      \
  "p { in f32 X(62, 72) out f32 Y(60, 70) Y(i0:60, i1:70) = X(i0 + 1, i1 + 1) * 4f32 - "           \
  "X(i0, i1 + 1) - X(i0 + 2, i1 + 1) - X(i0 + 1, i1) - X(i0 + 1, i1 + 2) }"
#define CROSS100                                                                                   \
  "p { in f32 X(102, 102) out f32 Y(100, 100) Y(i0:100, i1:100) = X(i0, i1) + X(i0 + 2, i1 + 2) }"
#define MAP100 "p { in f32 X(100, 100) out f32 Y(100, 100) Y(i0:100, i1:100) = X(i0, i1) * 2f32 }"
#define APART                                                                                      \
  "p { in f32 X(120, 70) out f32 Y(60, 70) Y(i0:60, i1:70) = X(i0, i1) + X(i0 + 60, i1) }"
#define COLUMNS                                                                                    \
  "p { in f32 X(74, 64) out f32 Y(60, 70) Y(i0:60, i1:70 | r0:5, r1:5) +=! X(i1 + r0, i0 + r1) }"
#define COLUMN                                                                                     \
  "p { in f32 X(74, 60) out f32 Y(60, 70) Y(i0:60, i1:70) = X(i1, i0) + X(i1 + 2, i0) }"
#define ONCE "p { in f32 X(60, 70) out f32 Y(70, 60) Y(i0:70, i1:60) = X(i1, i0) * 2f32 }"
#define FILTER                                                                                     \
  "p { in f32 X(60, 74) in f32 W(5) out f32 Y(60, 70) "                                            \
  "Y(i0:60, i1:70 | r0:5) +=! X(i0, i1 + r0) * W(r0) }"

static const struct {
  const char *text;
  kiln_fusion fusion;
  int threads;
  const char *has, *lacks; // of the script
} cases[] = {
    // producer and consumer share tiles; separate kernels without fusion
    {MAPS, KILN_FUSION_MAX, 2, "compute_at T Y.i0", NULL},
    {MAPS, KILN_FUSION_PRESERVE3, 2, "compute_at T Y.i0", NULL},
    {MAPS, KILN_FUSION_MIN, 2, NULL, "compute_at"},
    // the row loop is all that a softmax's statements share: one coincident loop in place of two
    {SOFTMAX, KILN_FUSION_MAX, 2, "compute_at M Y.i0", "merge"},
    {SOFTMAX, KILN_FUSION_PRESERVE3, 2, NULL, "compute_at E"},
    {SOFTMAX, KILN_FUSION_MIN, 1, NULL, "compute_at"},
    // overlapped tiles of a stencil
    {BLUR, KILN_FUSION_MAX, 2, "compute_at B Y.i0.o", NULL},
    {BLUR, KILN_FUSION_MIN, 2, NULL, "compute_at"},
    {WINDOW, KILN_FUSION_MAX, 2, "compute_at B Y.init.i0.o", NULL},
    // a chain of products shares rows, and the second accumulates in the order of the first's tiles
    {PRODUCTS, KILN_FUSION_MAX, 1, "merge Y.init.i0.o Y.i0.o\n", NULL},
    {PRODUCTS, KILN_FUSION_MAX, 2, "compute_at T Y.init.i0.o", NULL},
    {PRODUCTS, KILN_FUSION_PRESERVE3, 2, NULL, "compute_at T"},
    // both stay in memory: the second runs two behind, on one thread
    {SHIFTED, KILN_FUSION_MAX, 1, "merge B.i0 Y.i0 2", NULL},
    {SHIFTED, KILN_FUSION_MAX, 2, "# B Y: not merged: ", "\nmerge"},
    {MOMENTS, KILN_FUSION_MAX, 2, "merge M.init.i0", NULL},
    // V lies between two results: it stays in memory, too
    {ROWS, KILN_FUSION_MAX, 2, "merge M.init.i0", "compute_at"},
    // nests that isl or the primitives cannot fuse well stay separate
    {TRIANGLE, KILN_FUSION_MAX, 2, NULL, NULL},
    {GATHER, KILN_FUSION_MAX, 2, NULL, NULL},
    {TRANSPOSED, KILN_FUSION_MAX, 2, "compute_at T Y.i", NULL},
    {EVERY, KILN_FUSION_MAX, 2, NULL, "compute_at S"},
    {HALVED, KILN_FUSION_MAX, 2, NULL, NULL},
};

static kiln_loops *schedule(test_kernel *k, const kiln_machine *m, int threads,
                            const kiln_polyhedral_options *o, const char **out_script) {
  kiln_loops *l = NULL;
  const kiln_status st = kiln_polyhedral_schedule(&k->cx, k->prog, m, threads, o, &l, out_script);
  if (st != KILN_OK) fail_msg("%s", kernel_message(k));
  assert_int_equal(kiln_loops_verify(&k->cx, l), KILN_OK);
  return l;
}

static void check_replay(test_kernel *k, const kiln_loops *l, const char *script) {
  kiln_schedule again;
  assert_int_equal(kiln_schedule_begin(&k->cx, k->prog, &again), KILN_OK);
  if (kiln_schedule_replay(&again, script) != KILN_OK)
    fail_msg("%s\n%s", kernel_message(k), script);
  assert_string_equal(kernel_text(k, again.loops), kernel_text(k, l));
}

static void the_strategies_fuse_what_they_should_and_results_are_right(void **state) {
  (void)state;
  for (size_t i = 0; i < KILN_LEN(cases); i++)
    for (size_t m = 0; m < KILN_LEN(machines); m++) {
      test_kernel k;
      const char *script = "";
      const kiln_polyhedral_options o = {.fusion = cases[i].fusion};
      kernel_open(&k, cases[i].text, i);
      kiln_loops *l = schedule(&k, &machines[m], cases[i].threads, &o, &script);
      if (cases[i].has && m == 0 && !strstr(script, cases[i].has))
        fail_msg("row %zu must have \"%s\", got\n%s", i, cases[i].has, script);
      if (cases[i].lacks && m == 0 && strstr(script, cases[i].lacks))
        fail_msg("row %zu must not have \"%s\", got\n%s", i, cases[i].lacks, script);
      kernel_check(&k, l, script);
      check_replay(&k, l, script);
      kernel_close(&k);
    }
}

static void tiles_have_the_sizes_that_are_asked_for(void **state) {
  (void)state;
  test_kernel k;
  const char *script = "";
  const kiln_polyhedral_options o = {.n_tiles = 2, .tiles = {10, 16}};
  kernel_open(&k, BLUR, 1);
  kiln_loops *l = schedule(&k, &machines[0], 1, &o, &script);
  if (!strstr(script, "split Y.i0 10 ") || !strstr(script, "split Y.i1 16 "))
    fail_msg("%s", script);
  if (!strstr(script, "compute_at B Y.i1.o local")) fail_msg("%s", script);
  kernel_check(&k, l, script);
  kernel_close(&k);
}

static void equal_programs_get_equal_scripts(void **state) {
  (void)state;
  for (size_t i = 0; i < KILN_LEN(cases); i++) {
    const char *scripts[2] = {"", ""};
    test_kernel k[2];
    const kiln_polyhedral_options o = {.fusion = cases[i].fusion};
    for (int r = 0; r < 2; r++) {
      kernel_open(&k[r], cases[i].text, i);
      schedule(&k[r], &machines[0], 2, &o, &scripts[r]);
    }
    assert_string_equal(scripts[0], scripts[1]);
    for (int r = 0; r < 2; r++) kernel_close(&k[r]);
  }
}

// The dependences alone cost more than 100 operations; then 200,000 are enough for all.
static void a_spent_budget_fuses_nothing_and_says_so(void **state) {
  (void)state;
  static const struct {
    int64_t budget;
    bool spent;
  } rows[] = {{100, true}, {200000, false}};
  for (size_t i = 0; i < KILN_LEN(rows); i++) {
    test_kernel k;
    const char *script = "";
    const kiln_polyhedral_options o = {.budget = rows[i].budget};
    kernel_open(&k, SOFTMAX, 3);
    kiln_loops *l = schedule(&k, &machines[0], 2, &o, &script);
    assert_int_equal(strstr(script, "# isl's budget is spent") != NULL, rows[i].spent);
    assert_int_equal(strstr(script, "compute_at") == NULL, rows[i].spent);
    kernel_check(&k, l, script);
    kernel_close(&k);
  }
}

static void contractions_that_are_not_small_are_left_to_the_rules(void **state) {
  (void)state;
  static const struct {
    const char *text;
    bool suits;
  } rows[] = {
      {SOFTMAX, true},
      {WINDOW, true},
      {PRODUCTS, true}, // 24,000 products
      {"p { in f32 X(64, 64) in f32 V(64, 64) temp f32 T(64, 64) out f32 Y(64, 64) "
       "T(i0:64, i1:64 | r0:64) +=! X(i0, r0) * V(r0, i1) Y(i0:64, i1:64) = T(i0, i1) + 1f32 }",
       false},
  };
  for (size_t i = 0; i < KILN_LEN(rows); i++) {
    test_kernel k;
    kernel_open(&k, rows[i].text, i);
    assert_int_equal(kiln_polyhedral_suits(k.prog), rows[i].suits);
    kernel_close(&k);
  }
}

typedef struct request {
  const kiln_program *prog;
  kiln_loops *loops;
} request;

static kiln_status make(kiln_ctx *cx, void *argument) {
  request *r = argument;
  const kiln_polyhedral_options o = {.fusion = KILN_FUSION_MAX, .promote = true};
  const char *script = "";
  return kiln_polyhedral_schedule(cx, r->prog, &machines[0], 2, &o, &r->loops, &script);
}

// isl's objects and messages of refused steps are not in an arena: the leak checker tests them.
static void memory_may_run_out_anywhere(void **state) {
  (void)state;
  kiln_status st = KILN_NO_MEMORY;
  int64_t failures = 0;
  for (int64_t n = 1; st == KILN_NO_MEMORY; n += 1 + n / 6, failures++) {
    test_kernel k;
    kernel_open(&k, SOFTMAX, 3);
    request r = {.prog = k.prog};
    kiln_diag *const diag = k.cx.diag;
    k.cx.perm.fail_in = n;
    st = kiln_ctx_enter(&k.cx, make, &r);
    k.cx.perm.fail_in = 0;
    assert_ptr_equal(k.cx.diag, diag);
    assert_int_equal(k.cx.cleanups.n, 0);
    kernel_close(&k);
  }
  assert_int_equal(st, KILN_OK);
  assert_true(failures > 20);
}

// --- promotion ---

static const struct {
  const char *text;
  bool asked;
  int machine;  // the second has room for 1,024 elements
  int64_t tile; // 0: chosen
  const char *has, *lacks;
} promotions[] = {
    // one reference with a box smaller than its loads; several references; a result of an earlier
    // nest
    {STENCIL, true, 0, 16, "stage X Y.init.i1.o local X.tile0 0 1\n", NULL},
    {STENCIL, true, 0, 16, "# X: copied at Y.init.i1.o, which loads 6400 times from 400 elements\n",
     NULL},
    {CROSS, true, 0, 16, "stage X Y.i1.o local X.tile0 0 1\n", NULL},
    {BLUR, true, 0, 16, "stage B Y.i1.o local B.tile1 0 1\n", NULL},
    // boxes are chosen where a map reads again, rows where it does not
    {CROSS100, true, 0, 0, "stage X Y.i1.o local X.tile0 0 1\n", NULL},
    {MAP100, true, 0, 0, NULL, "stage"},
    // no element is loaded twice; so far apart that the box holds more than is loaded
    {ONCE, true, 0, 16, NULL, "stage"},
    {APART, true, 0, 16, NULL, "stage"},
    // 36 * 36 elements are too many there, 20 * 20 are not
    {STENCIL, true, 1, 32, NULL, "stage"},
    {STENCIL, true, 1, 16, "stage X ", NULL},
    // rows that a cache keeps by itself; vectors across the rows, where it pays and not
    {STENCIL, false, 0, 16, NULL, "stage"},
    {COLUMNS, false, 0, 16, "stage X Y.init.i1.o local X.tile0 1 0\n", NULL},
    {COLUMN, true, 0, 16, "stage X Y.i1.o local X.tile0 1 0\n", NULL},
    {COLUMN, false, 0, 16, NULL, "stage"},
    {ONCE, false, 0, 16, NULL, "stage"},
    // the weights of a short sum
    {FILTER, true, 0, 32, "stage W Y.init.i1.o register W.tile0 0\n", NULL},
    {FILTER, false, 0, 32, NULL, "stage"},
};

static kiln_polyhedral_options promotion(size_t i, bool asked) {
  const int64_t size = promotions[i].tile;
  return (kiln_polyhedral_options){
      .fusion = KILN_FUSION_MIN, .n_tiles = size ? 2 : 0, .tiles = {size, size}, .promote = asked};
}

static void boxes_that_are_read_again_are_promoted(void **state) {
  (void)state;
  for (size_t i = 0; i < KILN_LEN(promotions); i++) {
    test_kernel k;
    const char *script = "";
    const kiln_polyhedral_options o = promotion(i, promotions[i].asked);
    kernel_open(&k, promotions[i].text, i);
    kiln_loops *l = schedule(&k, &machines[promotions[i].machine], 1, &o, &script);
    if (promotions[i].has && !strstr(script, promotions[i].has))
      fail_msg("row %zu must have \"%s\", got\n%s", i, promotions[i].has, script);
    if (promotions[i].lacks && strstr(script, promotions[i].lacks))
      fail_msg("row %zu must not have \"%s\", got\n%s", i, promotions[i].lacks, script);
    kernel_check(&k, l, script);
    check_replay(&k, l, script);
    kernel_close(&k);
  }
}

// Bytes that the statements read from the arguments; the results must be right.
static int64_t bytes_from_params(test_kernel *k, kiln_loops *l, const char *script) {
  kiln_sim_level levels[KILN_SIM_CACHES];
  kiln_sim_traffic t;
  kernel_args a = kernel_args_make(k, l);
  kiln_sim_caches(&machines[0], levels);
  assert_int_equal(kiln_sim_measure(&k->cx, l, a.data, 1, levels, &t), KILN_OK);
  const char *wrong = kernel_args_wrong(k, &a);
  if (wrong) fail_msg("%s\n%s", wrong, script);
  kernel_args_free(&a);
  return t.scopes[KILN_SCOPE_PARAM].read_bytes;
}

// The first of these loads 25 elements for each result and accumulates into it 25 times; the copy
// takes fewer than two of them.
static void promotion_reads_less_from_memory(void **state) {
  (void)state;
  static const char *const texts[] = {STENCIL, CROSS, FILTER};
  for (size_t i = 0; i < KILN_LEN(texts); i++) {
    int64_t bytes[2] = {0};
    for (int asked = 0; asked < 2; asked++) {
      test_kernel k;
      const char *script = "";
      const kiln_polyhedral_options o = {.n_tiles = 2, .tiles = {16, 16}, .promote = asked};
      kernel_open(&k, texts[i], i);
      kiln_loops *l = schedule(&k, &machines[0], 1, &o, &script);
      bytes[asked] = bytes_from_params(&k, l, script);
      kernel_close(&k);
    }
    if (bytes[1] * 3 > bytes[0] * 2)
      fail_msg("row %zu must read a third less, got %lld and %lld bytes", i, (long long)bytes[0],
               (long long)bytes[1]);
  }
}

// --- compiled ---

static void run_compiled(test_kernel *k, rig *r, const char *script) {
  char *args[2 * KERNEL_MAX_TENSORS] = {0};
  const kiln_buffer *of[2 * KERNEL_MAX_TENSORS];
  int n = 0, nest = 0;
  for (int i = 0; i < r->loops->buffers.n; i++) {
    const kiln_buffer *b = r->loops->buffers.data[i];
    if (b->scope != KILN_SCOPE_PARAM && b->scope != KILN_SCOPE_WORKSPACE) continue;
    const size_t bytes = (size_t)kiln_buffer_elems(b) * (size_t)kiln_dtype_bytes(b->dtype);
    const size_t rounded = (bytes + 63) / 64 * 64;
    args[n] = aligned_alloc(64, rounded + 64);
    assert_non_null(args[n]);
    memset(args[n], 0x5a, rounded);
    if (i < k->prog->tensors.n && k->data[i]) memcpy(args[n], k->data[i], bytes);
    of[n++] = b;
  }
  for (const kiln_loop *l = r->loops->body; l; l = l->next) {
    int64_t extent = 1;
    if (l->kind == KILN_LOOP_FOR) (void)kiln_expr_is_int(l->extent, &extent);
    rig_nest(r, nest++)(args, 0, extent);
  }
  for (int i = 0; i < n; i++) {
    const kiln_tensor *t = of[i]->id < k->prog->tensors.n ? k->prog->tensors.data[of[i]->id] : NULL;
    if (!t || t->role != KILN_OUTPUT) continue;
    kiln_buffer b = *of[i];
    b.tensor = t->id;
    if (kernel_difference(k, &b, args[i]) >= 0) fail_msg("differs when compiled\n%s", script);
  }
  for (int i = 0; i < n; i++) free(args[i]);
}

static void compiled_results_are_right(void **state) {
  (void)state;
  for (size_t i = 0; i < KILN_LEN(cases); i++) {
    test_kernel k;
    rig r;
    const char *script = "";
    const kiln_polyhedral_options o = {.fusion = cases[i].fusion};
    rig_init(&r, NULL);
    kernel_open(&k, cases[i].text, i);
    kiln_loops *l = schedule(&k, &r.machine, cases[i].threads, &o, &script);
    rig_compile(&r, kernel_text(&k, l), true);
    run_compiled(&k, &r, script);
    kernel_close(&k);
    rig_deinit(&r);
  }
}

static void compiled_promotions_are_right(void **state) {
  (void)state;
  for (size_t i = 0; i < KILN_LEN(promotions); i++) {
    test_kernel k;
    rig r;
    const char *script = "";
    const kiln_polyhedral_options o = promotion(i, promotions[i].asked);
    rig_init(&r, NULL);
    kernel_open(&k, promotions[i].text, i);
    kiln_loops *l = schedule(&k, &r.machine, 2, &o, &script);
    rig_compile(&r, kernel_text(&k, l), true);
    run_compiled(&k, &r, script);
    kernel_close(&k);
    rig_deinit(&r);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_strategies_fuse_what_they_should_and_results_are_right),
      cmocka_unit_test(tiles_have_the_sizes_that_are_asked_for),
      cmocka_unit_test(equal_programs_get_equal_scripts),
      cmocka_unit_test(a_spent_budget_fuses_nothing_and_says_so),
      cmocka_unit_test(contractions_that_are_not_small_are_left_to_the_rules),
      cmocka_unit_test(memory_may_run_out_anywhere),
      cmocka_unit_test(boxes_that_are_read_again_are_promoted),
      cmocka_unit_test(promotion_reads_less_from_memory),
      cmocka_unit_test(compiled_results_are_right),
      cmocka_unit_test(compiled_promotions_are_right),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
