// Normalization prologue: products of normalized rows become one kernel on tensor cores; the
// cheapest candidates give the reference's results in the simulator.
#include "unit/tile/gpu_candidates.h"
#include "unit/tile/gpu_connected.h"

#include "template/form/norm_prologue.h"

#define TENSORS(half, m, k, n)                                                                     \
  "p { in " half " X(" #m ", " #k ") in " half " B(" #k ", " #n ") in f32 G(" #k ") in f32 C(" #n  \
  ") out " half " Y(" #m ", " #n ") temp " half " A(" #m ", " #k ") temp f32 T(" #m ", " #n ") "
#define PRODUCT(half, m, k, n)                                                                     \
  "T(i0:" #m ", i1:" #n " | r0:" #k ") +=! f32(A(i0, r0)) * f32(B(r0, i1)) "                       \
  "Y(i0:" #m ", i1:" #n ") = " half "(max(T(i0, i1) + C(i1), 0f32)) }"
// Rows of X, normalized and scaled, by a matrix.
#define NORM(half, m, k, n)                                                                        \
  TENSORS(half, m, k, n)                                                                           \
  "temp f32 S(" #m ") temp f32 D(" #m ", " #k ") temp f32 V(" #m ") temp f32 F(" #m ") "           \
  "S(i0:" #m " | r0:" #k ") +=! f32(X(i0, r0)) "                                                   \
  "D(i0:" #m ", i1:" #k ") = f32(X(i0, i1)) - S(i0) / " #k "f32 "                                  \
  "V(i0:" #m " | r0:" #k ") +=! D(i0, r0) * D(i0, r0) "                                            \
  "F(i0:" #m ") = 1f32 / sqrt(V(i0) / " #k "f32 + 0.00001f32) "                                    \
  "A(i0:" #m ", i1:" #k ") = " half "(D(i0, i1) * F(i0) * G(i1)) " PRODUCT(half, m, k, n)

static const char *const prologues[] = {
    NORM("f16", 128, 32, 64),
    NORM("bf16", 64, 96, 32),
    NORM("f16", 77, 64, 48), // ragged rows, and columns that are more than a tile
    NORM("f16", 128, 144, 144),
    // a softmax in front of the product: maxima, sums, and elements of both
    TENSORS("f16", 64, 64, 64) "temp f32 M(64) temp f32 E(64, 64) temp f32 S(64) "
                               "M(i0:64 | r0:64) max=! f32(X(i0, r0)) "
                               "E(i0:64, i1:64) = exp(f32(X(i0, i1)) - M(i0)) "
                               "S(i0:64 | r0:64) +=! E(i0, r0) "
                               "A(i0:64, i1:64) = f16(E(i0, i1) / S(i0)) " PRODUCT("f16", 64, 64,
                                                                                   64),
    // rows of two dims that are numbered as one, and another order of the columns' scales
    "p { in f16 X(2, 48, 32) in f16 B(32, 32) in f32 G(32) out f16 Y(2, 48, 32) temp f16 A(2, 48, "
    "32) "
    "temp f32 T(2, 48, 32) temp f32 S(2, 48) "
    "S(i0:2, i1:48 | r0:32) +=! f32(X(i0, i1, r0)) * f32(X(i0, i1, r0)) "
    "A(i0:2, i1:48, i2:32) = f16(f32(X(i0, i1, i2)) / sqrt(S(i0, i1)) * G(31 - i2)) "
    "T(i0:2, i1:48, i2:32 | r0:32) +=! f32(A(i0, i1, r0)) * f32(B(r0, i2)) "
    "Y(i0:2, i1:48, i2:32) = f16(T(i0, i1, i2)) }",
};

static void candidates_normalize_in_one_kernel(void **state) {
  (void)state;
  check_each(&machine, "norm_prologue", KILN_LEN(prologues), prologues, "mma.m16n8k16", 10);
}

static void norms_compile(void **state) {
  (void)state;
  check_compiles(&machine, "norm_prologue", prologues[0], "mma.m16n8k16", "kiln_lanes_sum_4(");
}

// Each tile of columns would normalize the rows again, so they get a kernel of their own.
static void connecting_leaves_norms_in_front_of_many_columns(void **state) {
  (void)state;
  assert_int_equal(count_kernels(NORM("f16", 50176, 192, 576), false), 2);
}

// Programs without the form: rows that no step fits, operands with two readers, elements of two
// tensors.
static void others_are_left_apart(void **state) {
  static const char *const others[] = {
      NORM("f16", 64, 24, 32),
      NORM("f16", 64, 528, 32),
      TENSORS("f16", 64, 32, 32) "out f16 Z(64, 32) temp f32 S(64) temp f32 U(64, 32) "
                                 "S(i0:64 | r0:32) +=! f32(X(i0, r0)) "
                                 "A(i0:64, i1:32) = f16(f32(X(i0, i1)) / S(i0)) "
                                 "U(i0:64, i1:32 | r0:32) +=! f32(A(i0, r0)) * f32(B(i1, r0)) "
                                 "Z(i0:64, i1:32) = f16(U(i0, i1)) " PRODUCT("f16", 64, 32, 32),
      TENSORS("f16", 64, 32, 32) "in f16 W(64, 32) temp f32 S(64) "
                                 "S(i0:64 | r0:32) +=! f32(X(i0, r0)) "
                                 "A(i0:64, i1:32) = f16(f32(W(i0, i1)) / S(i0)) " PRODUCT("f16", 64,
                                                                                          32, 32),
  };
  (void)state;
  check_has_no_form(KILN_LEN(others), others, &kiln_template_gpu_norm_prologue);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(candidates_normalize_in_one_kernel), cmocka_unit_test(norms_compile),
      cmocka_unit_test(connecting_leaves_norms_in_front_of_many_columns),
      cmocka_unit_test(others_are_left_apart)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
