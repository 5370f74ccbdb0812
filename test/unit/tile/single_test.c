// Reductions of one term are maps: their readers compute them in one kernel, for any combiner, with
// the reduction's results, including signs of zeros.
#include "driver/pipeline.h"
#include "unit/tile/launches.h"

static const kiln_machine machine = {.target = &kiln_target_cpu,
                                     .vector_bytes = 32,
                                     .n_vector_regs = 16,
                                     .l1_bytes = 32 << 10,
                                     .l2_bytes = 256 << 10,
                                     .n_cores = 2};

static void compare_signs(test_kernel *k, const kiln_tensor *t, const void *got, const char *text) {
  const void *want = kiln_interpreter_data(k->reference, t->id);
  for (int64_t i = 0; i < kiln_tensor_elems(t); i++) {
    const double w = kiln_element_get(t->dtype, want, i), g = kiln_element_get(t->dtype, got, i);
    if ((w != g && !(fabs(w - g) <= 1e-5 * (1 + fabs(w)))) || signbit(w) != signbit(g))
      fail_msg("element %lld must be %g, got %g in %s", (long long)i, w, g, text);
  }
}

static void check_one(const char *combiner, const char *body, const char *dims, int step) {
  char text[1024];
  test_kernel k;
  kiln_kernels kernels;
  const kiln_tile_options options = {.search.n_threads = 2};
  snprintf(text, sizeof text,
           "p { in f32 X(2, 20, 12, 12) in f32 W(20, 1) out f32 Y(2, 20, %d, 12) temp f32 A(2, 20, "
           "12, 12) "
           "temp f32 T(2, 20, %d, 12) A(n:2, c:20, h:12, w:12) = X(n, c, h, w) + 1f32 "
           "T(n:2, c:20, h:%d, w:12 | %s) %s %s "
           "Y(n:2, c:20, h:%d, w:12) = 1f32 / T(n, c, h, w) + X(n, c, h, w) }",
           12 / step, 12 / step, 12 / step, dims, combiner, body, 12 / step);
  kernel_open(&k, text, 5);
  assert_int_equal(kiln_pipeline_tile(&k.cx, k.prog, &machine, &options, NULL, &kernels), KILN_OK);
  if (kernels.kernels.n != 1) fail_msg("%d kernels of %s", kernels.kernels.n, text);
  const kiln_program *p = kernels.kernels.data[0]->prog;
  for (int i = 0; i < p->stmts.n; i++) assert_int_equal(p->stmts.data[i]->n_reduce, 0);
  check_launches(&k, &kernels, compare_signs, text);
  kernel_close(&k);
}

static void reductions_of_one_term_are_computed_by_their_readers(void **state) {
  static const char *const combiners[] = {"+=!", "*=!", "max=!", "min=!"};
  (void)state;
  for (size_t i = 0; i < KILN_LEN(combiners); i++) {
    check_one(combiners[i], "A(n, c, h, w + r) * W(c, r)", "r:1", 1);
    check_one(combiners[i], "A(n, c, 2 * h + q, w + r)", "q:1, r:1", 2);
    check_one(combiners[i], "A(n, c, h, w) * 0f32 * W(c, r)", "r:1", 1); // zeros of both signs
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(reductions_of_one_term_are_computed_by_their_readers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
