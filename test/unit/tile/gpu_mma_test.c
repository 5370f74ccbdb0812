// Products by warps' instructions on the first generation that has them for halves (sm_75): steps
// of 8 along k, copies that are waited for.
#include "unit/tile/gpu_candidates.h"

static const kiln_machine turing = MACHINE("sm_75", 75);

#define PRODUCT(m, k, n)                                                                           \
  "p { in f16 A(" #m ", " #k ") in f16 B(" #k ", " #n ") out f16 Y(" #m ", " #n ") temp f32 T(" #m \
  ", " #n ") T(i0:" #m ", i1:" #n " | r0:" #k ") +=! f32(A(i0, r0)) * f32(B(r0, i1)) "             \
  "Y(i0:" #m ", i1:" #n ") = f16(max(T(i0, i1), 0f32)) }"

static const char *const products[] = {
    PRODUCT(64, 96, 64), PRODUCT(50, 64, 48),
    // B in rows along k
    "p { in f16 A(32, 64) in f16 B(32, 64) out f16 Y(32, 32) temp f32 T(32, 32) "
    "T(i0:32, i1:32 | r0:64) +=! f32(A(i0, r0)) * f32(B(i1, r0)) "
    "Y(i0:32, i1:32) = f16(T(i0, i1)) }"};

static void products_by_steps_of_eight_give_the_results(void **state) {
  (void)state;
  check_each(&turing, "mma", KILN_LEN(products), products, "mma.m16n8k8.f16", 20);
}

static void few_tiles_share_the_steps_of_eight(void **state) {
  (void)state;
  check_each(&turing, "parallel_k", 1, products, "mma.m16n8k8.f16", 20);
}

static void steps_of_eight_compile(void **state) {
  (void)state;
  check_compiles(&turing, "mma", products[0], "mma.m16n8k8.f16", "kiln_mma_k8_f16(");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(products_by_steps_of_eight_give_the_results),
                                     cmocka_unit_test(few_tiles_share_the_steps_of_eight),
                                     cmocka_unit_test(steps_of_eight_compile)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
