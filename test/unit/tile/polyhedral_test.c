// Polyhedral schedules: what is fused, how it is made, and that the result is right in the simulator
// and compiled, for every strategy, machine and number of threads.
#include "unit/cpu/rig.h"
#include "unit/schedule/kernel.h"

#include "tile/polyhedral.h"

static const kiln_machine machines[] = {
    {.vector_bytes = 64, .n_vector_regs = 32, .l1_bytes = 48 << 10, .l2_bytes = 1 << 20},
    {.vector_bytes = 16, .n_vector_regs = 16, .l1_bytes = 2048, .l2_bytes = 8192},
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

static const struct {
  const char *text;
  kiln_fusion fusion;
  int threads;
  const char *has, *lacks; // of the script
} cases[] = {
    // producer and consumer share tiles; distributed where nothing is to be fused
    {MAPS, KILN_FUSION_MAX, 2, "compute_at T Y.i0", NULL},
    {MAPS, KILN_FUSION_PRESERVE3, 2, "compute_at T Y.i0", NULL},
    {MAPS, KILN_FUSION_MIN, 2, NULL, "compute_at"},
    // the row loop is all that a softmax has in common: one coincident loop instead of two
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
    // what isl or the primitives cannot do well stays apart
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
  const kiln_polyhedral_options o = {.fusion = KILN_FUSION_MAX};
  const char *script = "";
  return kiln_polyhedral_schedule(cx, r->prog, &machines[0], 2, &o, &r->loops, &script);
}

// What isl holds and the messages of a refused step are not in an arena: the leak checker looks on.
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
    assert_int_equal(k.cx.n_cleanups, 0);
    kernel_close(&k);
  }
  assert_int_equal(st, KILN_OK);
  assert_true(failures > 20);
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

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_strategies_fuse_what_they_should_and_results_are_right),
      cmocka_unit_test(tiles_have_the_sizes_that_are_asked_for),
      cmocka_unit_test(equal_programs_get_equal_scripts),
      cmocka_unit_test(a_spent_budget_fuses_nothing_and_says_so),
      cmocka_unit_test(contractions_that_are_not_small_are_left_to_the_rules),
      cmocka_unit_test(memory_may_run_out_anywhere),
      cmocka_unit_test(compiled_results_are_right),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
