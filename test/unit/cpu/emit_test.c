// Loop programs of all forms, run and compared with loops in C.
#include "unit/cpu/rig.h"

#include <math.h>

static const char *const machines[] = {NULL, "avx2", "avx512"};
#define FOR_EACH_MACHINE(r)                                                                        \
  for (size_t machine_ = 0; machine_ < KILN_LEN(machines); machine_++)                             \
    if (rig_runs(machines[machine_]))                                                              \
      for (int once_ = (rig_init(&(r), machines[machine_]), 1); once_;                             \
           once_ = (rig_deinit(&(r)), 0))

static void fill(float *x, int n) {
  for (int i = 0; i < n; i++) x[i] = (float)((i * 37 + 11) % 101) / 16 - 3;
}

static void a_vector_loop_of_any_extent_is_elementwise(void **state) {
  (void)state;
  rig r;
  FOR_EACH_MACHINE(r) {
    for (int n = 1; n <= 70; n += n < 20 ? 1 : 7) {
      float a[128], b[128], c[128];
      fill(a, 128);
      fill(b, 128);
      for (int i = 0; i < 128; i++) c[i] = 77;
      const char *text =
          kiln_arena_printf(&r.cx.perm,
                            "kernel k { param f32 a[%d]:(1) param f32 b[%d]:(1) param f32 c[%d]:(1)"
                            " for v:%d vectorized { c[v] = a[v] * b[v] + 2f32 } }",
                            n, n, n, n);
      rig_compile(&r, text, true);
      rig_run(&r, (char *[]){(char *)a, (char *)b, (char *)c}, 1);
      for (int i = 0; i < 128; i++) assert_true(c[i] == (i < n ? a[i] * b[i] + 2 : 77));
    }
  }
}

static void reductions_meet_in_one_element(void **state) {
  (void)state;
  rig r;
  FOR_EACH_MACHINE(r) {
    float a[53], s = 1, m = -1000, sum = 1, max = -1000;
    fill(a, 53);
    a[40] = 90;
    rig_compile(&r,
                "kernel k { param f32 a[53]:(1) param f32 s[1]:(1) param f32 m[1]:(1)"
                " for v:53 vectorized { s[0] += a[v]  m[0] max= a[v] } }",
                true);
    rig_run(&r, (char *[]){(char *)a, (char *)&s, (char *)&m}, 1);
    for (int i = 0; i < 53; i++) sum += a[i], max = fmaxf(max, a[i]);
    assert_true(fabsf(s - sum) < 1e-3f);
    assert_true(m == max);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_vector_loop_of_any_extent_is_elementwise),
      cmocka_unit_test(reductions_meet_in_one_element),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
