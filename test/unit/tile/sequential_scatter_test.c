// Sequential scatters: how scatters that read their result become loops; results equal the
// reference interpreter's.
#include "unit/tile/lowering.h"

static const kiln_machine machine = {.target = &kiln_target_cpu,
                                     .vector_bytes = 32,
                                     .n_vector_regs = 16,
                                     .l1_bytes = 32 << 10,
                                     .l2_bytes = 1 << 20,
                                     .n_cores = 2};

static const struct {
  const char *name, *text;
  const char *lines[4]; // of the script
} cases[] = {
    {"rows are shared, steps are cut apart, and what lets a round run is asked once",
     "p { in f32 X(3, 200) out f32 y(3, 206) "
     "y(i0:3 | r0:5, r1:2, r2:200) at (i0, r1 < 1 ? r0 + 201 : r2) max=! "
     "r1 < 1 ? y(i0, r2) - f32(r0) : y(i0, r0 + 201) - X(i0, r2) if y(i0, r0 + 200) > -3f32 "
     "init (o1 < 200 ? X(o0, min(o1, 199)) : -2f32) }",
     {"peel y.r1 1\n", "hoist y.r2.b\n", "vectorize y.r2.i\n", "parallel y.i0\n"}},
    {"a step of one vector and a rest of one element",
     "p { in f32 X(2, 33) out f32 y(2, 34) "
     "y(i0:2 | r0:4, r1:2, r2:33) at (i0, r1 < 1 ? 33 : r2) max=! "
     "r1 < 1 ? y(i0, r2) : y(i0, 33) - X(i0, r2) if r0 < 3 init (X(o0, min(o1, 32))) }",
     {"peel y.r1 1\n", "hoist y.r2\n", "vectorize y.r2\n", "vectorize y.r2.b.i\n"}},
    {"what a step hands on to the next stays in order",
     "p { in f32 X(40) out f32 y(41) "
     "y( | r0:40) at (r0 + 1) +=! y(r0) - X(r0) if y(r0) < 9f32 init (f32(o0)) }",
     {"split y.init.o0"}},
    {"places by data: elements are put in the order of their digits",
     "p { in i64 X(30) out i64 y(124) y( | r0:30, r1:2) at (r1 < 1 ? y(X(r0) % 4) : X(r0) % 4) +=! "
     "r1 < 1 ? r0 : 1 init (o0 < 4 ? o0 * 30 + 4 : 0) }",
     {"peel y.r1 1\n"}},
};

static void rounds_run_in_order(void **state) {
  (void)state;
  for (size_t i = 0; i < KILN_LEN(cases); i++) {
    test_kernel k;
    kiln_lowering w = lowering_open(&k, &machine, cases[i].text);
    kiln_tile_candidates found = {0};
    lowering_expect_ok(&k, &w, kiln_template_sequential_scatter.propose(&w, &found));
    assert_int_equal(found.n, 1);
    lowering_expect_ok(&k, &w, kiln_template_sequential_scatter.lower(&w, &found.data[0].tiling));
    for (size_t l = 0; l < KILN_LEN(cases[i].lines) && cases[i].lines[l]; l++)
      if (!strstr(kiln_schedule_script(&w.s), cases[i].lines[l]))
        fail_msg("%s: \"%s\" must be in\n%s", cases[i].name, cases[i].lines[l],
                 kiln_schedule_script(&w.s));
    lowering_expect_right(&k, &w);
    kernel_close(&k);
  }
}

static void a_scatter_that_reads_others_is_none(void **state) {
  (void)state;
  test_kernel k;
  kiln_lowering w = lowering_open(
      &k, &machine, "p { in f32 X(9) in i64 I(9) out f32 y(9) y(i0:9) at (I(i0)) +=! X(i0) }");
  kiln_tile_candidates found = {0};
  lowering_expect_ok(&k, &w, kiln_template_sequential_scatter.propose(&w, &found));
  assert_int_equal(found.n, 0);
  kernel_close(&k);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(rounds_run_in_order),
                                     cmocka_unit_test(a_scatter_that_reads_others_is_none)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
