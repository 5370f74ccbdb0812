// Back-to-back GEMM: two products with a map between become one kernel on tensor cores; candidates
// give the reference's results in the simulator.
#include "unit/tile/gpu_candidates.h"
#include "unit/tile/gpu_connected.h"

#include "template/form/b2b_gemm.h"

// Rows of X by a matrix of k x h, an activation, and by one of h x n.
#define TENSORS(half, m, k, h, n)                                                                  \
  "p { in " half " X(" #m ", " #k ") in " half " V(" #k ", " #h ") in " half " W(" #h ", " #n      \
  ") in f32 C(" #h ") in " half " R(" #m ", " #n ") out " half " Y(" #m ", " #n ") temp f32 S(" #m \
  ", " #h ") temp " half " H(" #m ", " #h ") temp f32 T(" #m ", " #n ") "
#define FIRST(half, m, k, h)                                                                       \
  "S(i0:" #m ", i1:" #h " | r0:" #k ") +=! f32(X(i0, r0)) * f32(V(r0, i1)) "
#define SECOND(half, m, h, n)                                                                      \
  "T(i0:" #m ", i1:" #n " | r0:" #h ") +=! f32(H(i0, r0)) * f32(W(r0, i1)) "                       \
  "Y(i0:" #m ", i1:" #n ") = " half "(T(i0, i1) + f32(R(i0, i1))) }"
#define MLP(half, m, k, h, n)                                                                      \
  TENSORS(half, m, k, h, n)                                                                        \
  FIRST(half, m, k, h)                                                                             \
  "H(i0:" #m ", i1:" #h ") = " half "(max(S(i0, i1) + C(i1), 0f32)) " SECOND(half, m, h, n)

// The same with a GELU between.
#define GELU(m, k, h, n)                                                                           \
  TENSORS("f16", m, k, h, n)                                                                       \
  FIRST("f16", m, k, h)                                                                            \
  "H(i0:" #m ", i1:" #h ") = f16(0.5f32 * (S(i0, i1) + C(i1)) * (1f32 + erf((S(i0, i1) + C(i1)) "  \
  "* 0.70710677f32))) " SECOND("f16", m, h, n)

static const char *const chains[] = {
    MLP("f16", 128, 32, 64, 32),
    MLP("bf16", 64, 48, 96, 64),
    MLP("f16", 77, 64, 128, 96), // ragged rows
    // an activation of two maps, the first rounded, which reads its argument twice
    TENSORS("f16", 64, 32, 64, 32) "temp f16 Z(64, 64) " FIRST(
        "f16", 64, 32, 64) "Z(i0:64, i1:64) = f16(S(i0, i1)) "
                           "H(i0:64, i1:64) = f16(f32(Z(i0, i1)) / (1f32 + exp(0f32 - f32(Z(i0, "
                           "i1))))) " SECOND("f16", 64, 64, 32),
};

static void candidates_multiply_twice_in_one_kernel(void **state) {
  (void)state;
  check_each(&machine, "b2b_gemm", KILN_LEN(chains), chains, "mma.m16n8k16", 30);
}

static void groups_multiply_twice_in_one_kernel(void **state) {
  (void)state;
  const char *const large = MLP("f16", 128, 64, 256, 64);
  check_each(&hopper, "b2b_gemm", 1, &large, "wgmma.m64n64k16.f16.lanes.row", 30);
}

static void mlps_compile(void **state) {
  (void)state;
  check_compiles(&machine, "b2b_gemm", chains[0], "mma.m16n8k16", "mma.sync.aligned");
  check_compiles(&hopper, "b2b_gemm", MLP("f16", 128, 64, 256, 64), "wgmma", "wgmma.mma_async");
}

// Of many rows one kernel costs less than two, of few rows more.
static void connecting_makes_mlps_where_they_cost_less(void **state) {
  (void)state;
  assert_int_equal(count_kernels(GELU(50176, 192, 768, 192), false), 1);
  assert_int_equal(count_kernels(GELU(50176, 192, 768, 192), true), 2);
  assert_int_equal(count_kernels(GELU(256, 192, 768, 192), false), 2);
}

// Programs without the form: columns that no instruction fits, rows that are too long, hidden
// elements that are a result, or that the finish reads.
static void others_are_left_apart(void **state) {
  static const char *const others[] = {
      MLP("f16", 64, 24, 32, 32), MLP("f16", 64, 32, 40, 32), MLP("f16", 64, 32, 32, 272),
      MLP("f16", 64, 272, 32, 32),
      TENSORS("f16", 64, 32, 32, 32)
          FIRST("f16", 64, 32, 32) "H(i0:64, i1:32) = f16(S(i0, i1)) "
                                   "T(i0:64, i1:32 | r0:32) +=! f32(H(i0, r0)) * f32(W(r0, i1)) "
                                   "Y(i0:64, i1:32) = f16(T(i0, i1) + f32(H(i0, i1))) }"};
  (void)state;
  check_has_no_form(KILN_LEN(others), others, &kiln_template_gpu_b2b_gemm);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(candidates_multiply_twice_in_one_kernel),
                                     cmocka_unit_test(groups_multiply_twice_in_one_kernel),
                                     cmocka_unit_test(mlps_compile),
                                     cmocka_unit_test(connecting_makes_mlps_where_they_cost_less),
                                     cmocka_unit_test(others_are_left_apart)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
