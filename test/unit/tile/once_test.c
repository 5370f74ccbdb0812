// Normalizations and softmax: main memory is read and written once, however many passes over a row
// there are.
#include "driver/pipeline.h"
#include "unit/schedule/kernel.h"

#include "fuse/kernel.h"

static const kiln_machine machine = {.target = &kiln_target_cpu,
                                     .vector_bytes = 32,
                                     .n_vector_regs = 16,
                                     .l1_bytes = 8 << 10,
                                     .l2_bytes = 64 << 10,
                                     .n_cores = 2};
// Much smaller than the tensors, larger than the rows.
static const kiln_sim_level caches[] = {{"L1", 8 << 10, 64, 8, false},
                                        {"L2", 64 << 10, 64, 8, false}};

static const struct {
  const char *name, *text;
  int64_t read_elems, written_elems;
} cases[] = {
    {"softmax",
     "p { in f32 X(96, 1000) temp f32 t0(96) temp f32 t1(96, 1000) temp f32 t2(96) "
     "out f32 y(96, 1000) t0(i0:96 | r0:1000) max=! X(i0, r0) "
     "t1(i0:96, i1:1000) = exp(X(i0, i1) - t0(i0)) t2(i0:96 | r0:1000) +=! t1(i0, r0) "
     "y(i0:96, i1:1000) = t1(i0, i1) * (1f32 / t2(i0)) }",
     96000, 96000},
    {"softmax of rows that only the second cache holds",
     "p { in f32 X(40, 3000) temp f32 t0(40) temp f32 t1(40, 3000) temp f32 t2(40) "
     "out f32 y(40, 3000) t0(i0:40 | r0:3000) max=! X(i0, r0) "
     "t1(i0:40, i1:3000) = exp(X(i0, i1) - t0(i0)) t2(i0:40 | r0:3000) +=! t1(i0, r0) "
     "y(i0:40, i1:3000) = t1(i0, i1) * (1f32 / t2(i0)) }",
     120000, 120000},
    {"softmax across the vectors",
     "p { in f32 X(40, 16, 64) temp f32 t0(40, 64) temp f32 t1(40, 16, 64) temp f32 t2(40, 64) "
     "out f32 y(40, 16, 64) t0(i0:40, i2:64 | r0:16) max=! X(i0, r0, i2) "
     "t1(i0:40, i1:16, i2:64) = exp(X(i0, i1, i2) - t0(i0, i2)) "
     "t2(i0:40, i2:64 | r0:16) +=! t1(i0, r0, i2) "
     "y(i0:40, i1:16, i2:64) = t1(i0, i1, i2) * (1f32 / t2(i0, i2)) }",
     40960, 40960},
    {"layer norm",
     "p { in f32 X(64, 768) in f32 W(768) in f32 B(768) temp f32 s(64) temp f32 q(64) "
     "temp f32 n(64) out f32 y(64, 768) s(i0:64 | r0:768) +=! X(i0, r0) "
     "q(i0:64 | r0:768) +=! (X(i0, r0) - s(i0) * 0.25f32) * (X(i0, r0) - s(i0) * 0.25f32) "
     "n(i0:64) = 1f32 / sqrt(q(i0) * 0.25f32 + 0.001f32) "
     "y(i0:64, i1:768) = (X(i0, i1) - s(i0) * 0.25f32) * n(i0) * W(i1) + B(i1) }",
     64 * 768 + 2 * 768, 64 * 768},
    {"RMS norm",
     "p { in f32 X(64, 768) in f32 W(768) temp f32 q(64) temp f32 n(64) out f32 y(64, 768) "
     "q(i0:64 | r0:768) +=! X(i0, r0) * X(i0, r0) "
     "n(i0:64) = 1f32 / sqrt(q(i0) * 0.25f32 + 0.001f32) "
     "y(i0:64, i1:768) = X(i0, i1) * n(i0) * W(i1) }",
     65 * 768, 64 * 768},
    {"instance norm, channels first",
     "p { in f32 X(2, 24, 28, 28) in f32 W(24) temp f32 s(2, 24) temp f32 q(2, 24) "
     "temp f32 n(2, 24) out f32 y(2, 24, 28, 28) s(i0:2, i1:24 | r0:28, r1:28) +=! X(i0, i1, r0, "
     "r1) "
     "q(i0:2, i1:24 | r0:28, r1:28) +=! "
     "(X(i0, i1, r0, r1) - s(i0, i1) * 0.25f32) * (X(i0, i1, r0, r1) - s(i0, i1) * 0.25f32) "
     "n(i0:2, i1:24) = 1f32 / sqrt(q(i0, i1) * 0.25f32 + 0.001f32) "
     "y(i0:2, i1:24, i2:28, i3:28) = (X(i0, i1, i2, i3) - s(i0, i1) * 0.25f32) * n(i0, i1) * W(i1) "
     "}",
     2 * 24 * 784 + 24, 2 * 24 * 784},
    {"group norm, channels first",
     "p { in f32 X(2, 8, 3, 400) in f32 W(24) temp f32 s(2, 8) temp f32 q(2, 8) temp f32 n(2, 8) "
     "out f32 y(2, 8, 3, 400) s(i0:2, i1:8 | r0:3, r1:400) +=! X(i0, i1, r0, r1) "
     "q(i0:2, i1:8 | r0:3, r1:400) +=! "
     "(X(i0, i1, r0, r1) - s(i0, i1) * 0.25f32) * (X(i0, i1, r0, r1) - s(i0, i1) * 0.25f32) "
     "n(i0:2, i1:8) = 1f32 / sqrt(q(i0, i1) * 0.25f32 + 0.001f32) "
     "y(i0:2, i1:8, i2:3, i3:400) = (X(i0, i1, i2, i3) - s(i0, i1) * 0.25f32) * n(i0, i1) "
     "* W(i1 * 3 + i2) }",
     19200 + 24, 19200},
};

// In whole lines; what a kernel holds besides may be written back once.
static void expect_once(const char *name, const char *what, int64_t bytes, int64_t elems) {
  const double times = (double)bytes / (4 * (double)elems);
  if (times < 1 || times > 1.05) fail_msg("%s: %s %.2f times, must be once", name, what, times);
}

static void rows_that_fit_a_cache_pass_main_memory_once(void **state) {
  (void)state;
  for (size_t row = 0; row < KILN_LEN(cases); row++) {
    test_kernel k;
    kiln_kernels kernels;
    kiln_sim_traffic t;
    const kiln_tile_options options = {.search.n_threads = 1};
    kernel_open(&k, cases[row].text, 5);
    if (kiln_pipeline_tile(&k.cx, k.prog, &machine, &options, NULL, &kernels) != KILN_OK)
      fail_msg("%s: %s", cases[row].name, kernel_message(&k));
    assert_int_equal(kernels.kernels.n, 1);
    if (kiln_sim_trace(&k.cx, kernels.kernels.data[0]->loops, NULL, KILN_LEN(caches), caches, &t) !=
        KILN_OK)
      fail_msg("%s: %s", cases[row].name, kernel_message(&k));
    expect_once(cases[row].name, "read", t.levels[1].read_bytes, cases[row].read_elems);
    expect_once(cases[row].name, "written", t.levels[1].written_bytes, cases[row].written_elems);
    kernel_close(&k);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(rows_that_fit_a_cache_pass_main_memory_once)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
