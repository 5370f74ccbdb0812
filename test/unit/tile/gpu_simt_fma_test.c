// SIMT GEMM: products of floats by the threads' multiply-adds. Candidates give the reference
// interpreter's results in the simulator; and the chosen one occupies a machine's multiprocessors.
#include "unit/tile/gpu_lowering.h"
#include "unit/share.h"

#include "target/gpu/gpu.h"
#include "template/gpu/grid.h"
#include "template/form/product.h"
#include "template/search.h"

enum { FEW_UNITS = 4 }; // multiprocessors, so that some candidates use neither split-K nor slice-K

static const struct {
  const char *name, *text;
  int n; // candidates, at least
} cases[] = {
    {"by constants, a bias, ragged rows and columns",
     "p { in f32 X(50, 64) const f32 W(64, 36) = ... in f32 B(36) temp f32 t0(50, 36) out f32 "
     "y(50, 36) t0(i0:50, i1:36 | r0:64) +=! X(i0, r0) * W(r0, i1) "
     "y(i0:50, i1:36) = max(t0(i0, i1) + B(i1), 0f32) }",
     8},
    {"by constants of odd columns",
     "p { in f32 X(33, 32) const f32 W(32, 67) = ... temp f32 t0(33, 67) out f32 y(33, 67) "
     "t0(i0:33, i1:67 | r0:32) +=! X(i0, r0) * W(r0, i1) y(i0:33, i1:67) = t0(i0, i1) + 1f32 }",
     8},
    {"both operands in rows along k, batches",
     "p { in f32 X(2, 32, 96) in f32 Z(2, 32, 96) temp f32 t0(2, 32, 32) out f32 y(2, 32, 32) "
     "t0(i0:2, i1:32, i2:32 | r0:96) +=! X(i0, i1, r0) * Z(i0, i2, r0) "
     "y(i0:2, i1:32, i2:32) = t0(i0, i1, i2) * 2f32 }",
     8},
    {"both operands in rows along m and n, many terms",
     "p { in f32 X(192, 32) in f32 Z(192, 32) in f32 R(32, 32) temp f32 t0(32, 32) out f32 y(32, "
     "32) t0(i0:32, i1:32 | r0:192) +=! X(r0, i0) * Z(r0, i1) "
     "y(i0:32, i1:32) = t0(i0, i1) - R(i0, i1) }",
     8},
    {"batches of three dims", // of five there are none: a layout has so many axes
     "p { in f32 X(2, 1, 3, 32, 32) in f32 Z(3, 2, 1, 32, 32) temp f32 t0(2, 1, 3, 32, 32) "
     "out f32 y(2, 1, 3, 32, 32) t0(i0:2, i1:1, i2:3, i3:32, i4:32 | r0:32) +=! "
     "X(i0, i1, i2, i3, r0) * Z(i2, i0, i1, r0, i4) "
     "y(i0:2, i1:1, i2:3, i3:32, i4:32) = t0(i0, i1, i2, i3, i4) + 1f32 }",
     1},
    {"batches of five dims",
     "p { in f32 X(2, 1, 3, 1, 2, 32, 32) in f32 Z(3, 2, 1, 2, 1, 32, 32) "
     "temp f32 t0(2, 1, 3, 1, 2, 32, 32) out f32 y(2, 1, 3, 1, 2, 32, 32) "
     "t0(i0:2, i1:1, i2:3, i3:1, i4:2, i5:32, i6:32 | r0:32) +=! "
     "X(i0, i1, i2, i3, i4, r0, i5) * Z(i2, i0, i1, i4, i3, r0, i6) "
     "y(i0:2, i1:1, i2:3, i3:1, i4:2, i5:32, i6:32) = t0(i0, i1, i2, i3, i4, i5, i6) + 1f32 }",
     0},
    {"a convolution with borders",
     "p { in f32 X(1, 6, 6, 32) const f32 W(32, 32, 2) = ... temp f32 t0(1, 6, 6, 32) out f32 "
     "y(1, 6, 6, 32) t0(i0:1, i1:6, i2:6, i3:32 | r0:32, r1:2) +=! (i1 + r1 >= 1 ? "
     "X(i0, i1 + r1 - 1, i2, r0) : 0f32) * W(i3, r0, r1) "
     "y(i0:1, i1:6, i2:6, i3:32) = max(t0(i0, i1, i2, i3), 0f32) }",
     8},
};

static void multiply_adds_compute_what_is_asked(void **state) {
  (void)state;
  for (size_t row = 0; row < KILN_LEN(cases); row++) {
    test_kernel k;
    kiln_machine m = {0};
    kiln_tile_candidates found = {0};
    kiln_device few;
    kiln_lowering w = lowering_propose(&k, &m, &few, FEW_UNITS, cases[row].text,
                                       &kiln_template_gpu_simt_fma, &found);
    if (found.n < cases[row].n)
      fail_msg("%s: must have %d candidates, got %d", cases[row].name, cases[row].n, found.n);
    for (int i = 0; i < found.n; i++) {
      if (!test_takes(row << 8 | (unsigned)i)) continue;
      assert_int_equal(kiln_schedule_begin(&k.cx, k.prog, &w.s), KILN_OK);
      lowering_expect_ok(&k, &w, kiln_template_gpu_simt_fma.lower(&w, &found.data[i].tiling));
      kernel_check_replay(&k, &w.s);
      lowering_expect_ok(&k, &w, kiln_gpu_check(&k.cx, &m, w.s.loops));
      lowering_expect_right(&k, &w);
    }
    kernel_close(&k);
  }
}

// For copying rows word by word; columns that are no constant stay unchanged.
static void columns_of_constants_are_whole_words(void **state) {
  (void)state;
  static const char *const roles[] = {"const", "in"}, *const data[] = {" = ...", ""};
  for (int i = 0; i < 2; i++) {
    char text[256];
    test_kernel k;
    kiln_product p;
    snprintf(text, sizeof text,
             "p { in f32 X(33, 32) %s f32 W(32, 67)%s temp f32 t0(33, 67) out f32 y(33, 67) "
             "t0(i0:33, i1:67 | r0:32) +=! X(i0, r0) * W(r0, i1) y(i0:33, i1:67) = t0(i0, i1) }",
             roles[i], data[i]);
    kernel_open(&k, text, 11);
    const kiln_machine m = {0};
    assert_true(kiln_product_make(&k.cx, &m, k.prog));
    assert_true(kiln_product_is(k.prog, &p));
    assert_int_equal(p.n, i ? 67 : 68);
    kernel_close(&k);
  }
}

// The chosen candidate for a product of m x n x k on an H200: threads of the first nest's grid.
static int64_t chosen_threads(int m, int n, int k) {
  char text[512];
  test_kernel t;
  kiln_machine machine = {0};
  kiln_tile_candidates found = {0};
  snprintf(text, sizeof text,
           "p { in f32 X(%d, %d) in f32 Z(%d, %d) temp f32 t0(%d, %d) out f32 y(%d, %d) "
           "t0(i0:%d, i1:%d | r0:%d) +=! X(i0, r0) * Z(r0, i1) "
           "y(i0:%d, i1:%d) = max(t0(i0, i1), 0f32) }",
           m, k, k, n, m, n, m, n, m, n, k, m, n);
  kernel_open(&t, text, 11);
  assert_int_equal(kiln_gpu_machine_named(&t.cx, "cuda:sm_90a", &machine), KILN_OK);
  const kiln_tile_search_options options = {.machine = &machine, .n_threads = 1, .n_lowered = 1};
  assert_int_equal(kiln_tile_search(&t.cx, KILN_GROUP_CONTRACTION, t.prog, NULL, &options, &found),
                   KILN_OK);
  int64_t threads = 1, most = 1;
  const kiln_loop *l = kiln_tile_best(&found)->loops->body;
  while (l) {
    int64_t extent = 1;
    if (l->kind == KILN_LOOP_FOR) (void)kiln_expr_is_int(l->extent, &extent);
    if (l->kind == KILN_LOOP_FOR && (kiln_how_is_block(l->how) || kiln_how_is_thread(l->how)))
      threads *= extent;
    if (threads > most) most = threads;
    l = l->body;
  }
  kernel_close(&t);
  return most;
}

// Four warps of nearly each of 132 multiprocessors, or more, where there are fewer tiles of 64 x 64
// than multiprocessors.
static void few_tiles_keep_all_multiprocessors_at_work(void **state) {
  (void)state;
  enum { UNITS = 128, WARPS = 4, WARP = 32 };
  static const int sizes[][3] = {
      {128, 768, 768}, {128, 768, 3072}, {128, 2304, 768}, {96, 96, 65536}, {64, 64, 4096}};
  for (size_t i = 0; i < KILN_LEN(sizes); i++) {
    const int64_t threads = chosen_threads(sizes[i][0], sizes[i][1], sizes[i][2]);
    if (threads < UNITS * WARPS * WARP)
      fail_msg("%d x %d x %d must run on %d threads, got %lld", sizes[i][0], sizes[i][1],
               sizes[i][2], UNITS * WARPS * WARP, (long long)threads);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(multiply_adds_compute_what_is_asked),
                                     cmocka_unit_test(columns_of_constants_are_whole_words),
                                     cmocka_unit_test(few_tiles_keep_all_multiprocessors_at_work)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
