// Fused tiles: products, maps and reductions of whole rows become one kernel, in any type; the
// cheapest candidates give the reference's results in the simulator.
#include "unit/tile/gpu_candidates.h"

#include "template/form/fused_tile.h"

#define PRODUCT(m, k, n)                                                                           \
  "p { in f32 A(" #m ", " #k ") in f32 B(" #k ", " #n ") in f32 R(" #m ", " #n ") in f32 G(" #n    \
  ") temp f32 T(" #m ", " #n ") "
#define SUM(m, k, n) "T(i0:" #m ", i1:" #n " | r0:" #k ") +=! A(i0, r0) * B(r0, i1) "
// Y = softmax(A B / 4 + G)
#define SOFTMAX(m, k, n)                                                                           \
  PRODUCT(m, k, n)                                                                                 \
  "out f32 Y(" #m ", " #n ") temp f32 Z(" #m ", " #n ") temp f32 X(" #m ") temp f32 E(" #m ", " #n \
  ") temp f32 S(" #m                                                                               \
  ") " SUM(m, k, n) "Z(i0:" #m ", i1:" #n ") = T(i0, i1) * 0.25f32 + G(i1) X(i0:" #m " | r0:" #n   \
                    ") max=! Z(i0, r0) E(i0:" #m ", i1:" #n ") = exp(Z(i0, i1) - X(i0)) S(i0:" #m  \
                    " | r0:" #n ") +=! E(i0, r0) Y(i0:" #m ", i1:" #n ") = E(i0, i1) / S(i0) }"
// Z = A B + R, a |role|, and Y, its rows normalized
#define NORM(role, m, k, n)                                                                        \
  PRODUCT(m, k, n)                                                                                 \
  role " f32 Z(" #m ", " #n ") out f32 Y(" #m ", " #n ") temp f32 S(" #m ") temp f32 D(" #m        \
       ", " #n ") temp f32 V(" #m ") temp f32 F(" #m                                               \
       ") " SUM(m, k, n) "Z(i0:" #m ", i1:" #n ") = T(i0, i1) + R(i0, i1) S(i0:" #m " | r0:" #n    \
                         ") +=! Z(i0, r0) D(i0:" #m ", i1:" #n ") = Z(i0, i1) - S(i0) / " #n       \
                         "f32 V(i0:" #m " | r0:" #n ") +=! D(i0, r0) * D(i0, r0) F(i0:" #m         \
                         ") = 1f32 / sqrt(V(i0) / " #n "f32 + 0.00001f32) Y(i0:" #m ", i1:" #n     \
                         ") = D(i0, i1) * F(i0) * G(i1) }"

static const char *const tiles[] = {
    SOFTMAX(128, 32, 64), SOFTMAX(77, 20, 50),           // nothing is a multiple of anything
    NORM("temp", 100, 48, 96), NORM("out", 64, 32, 200), // the sums are stored, too
};

static void candidates_compute_rows_in_one_kernel(void **state) {
  (void)state;
  check_each(&machine, "fused_tile", KILN_LEN(tiles), tiles, "distribute", 6);
}

static void tiles_compile(void **state) {
  (void)state;
  check_compiles(&machine, "fused_tile", tiles[0], "distribute", "__shared__");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(candidates_compute_rows_in_one_kernel),
                                     cmocka_unit_test(tiles_compile)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
