// Row-wise epilogue: a product and operations on its whole rows become one kernel on tensor cores;
// the cheapest candidates give the reference's results in the simulator.
#include "unit/tile/gpu_candidates.h"
#include "unit/tile/gpu_connected.h"

#include "template/form/row_epilogue.h"

#define PRODUCT(half, m, k, n)                                                                     \
  "p { in " half " A(" #m ", " #k ") in " half " B(" #k ", " #n ") in " half " R(" #m ", " #n      \
  ") in f32 G(" #n ") "
#define SUM(m, k, n) "T(i0:" #m ", i1:" #n " | r0:" #k ") +=! f32(A(i0, r0)) * f32(B(r0, i1)) "
// Y = softmax(A B / 4 + G), its scores stored as halves.
#define SOFTMAX(half, m, k, n)                                                                     \
  PRODUCT(half, m, k, n)                                                                           \
  "out " half " Y(" #m ", " #n ") temp f32 T(" #m ", " #n ") temp " half " Z(" #m ", " #n          \
  ") temp f32 X(" #m ") temp f32 E(" #m ", " #n ") temp f32 S(" #m                                 \
  ") " SUM(m, k, n) "Z(i0:" #m ", i1:" #n ") = " half "(T(i0, i1) * 0.25f32 + G(i1)) "             \
                    "X(i0:" #m " | r0:" #n ") max=! f32(Z(i0, r0)) "                               \
                    "E(i0:" #m ", i1:" #n ") = exp(f32(Z(i0, i1)) - X(i0)) "                       \
                    "S(i0:" #m " | r0:" #n ") +=! E(i0, r0) "                                      \
                    "Y(i0:" #m ", i1:" #n ") = " half "(E(i0, i1) / S(i0)) }"
// Z = A B + R and Y, its rows normalized; Z a |role|.
#define NORM(half, role, m, k, n)                                                                  \
  PRODUCT(half, m, k, n)                                                                           \
  role " " half " Z(" #m ", " #n ") out " half " Y(" #m ", " #n ") temp f32 T(" #m ", " #n         \
       ") temp f32 S(" #m ") temp f32 D(" #m ", " #n ") temp f32 V(" #m ") temp f32 F(" #m         \
       ") " SUM(m, k, n) "Z(i0:" #m ", i1:" #n ") = " half "(T(i0, i1) + f32(R(i0, i1))) "         \
                         "S(i0:" #m " | r0:" #n ") +=! f32(Z(i0, r0)) "                            \
                         "D(i0:" #m ", i1:" #n ") = f32(Z(i0, i1)) - S(i0) / " #n "f32 "           \
                         "V(i0:" #m " | r0:" #n ") +=! D(i0, r0) * D(i0, r0) "                     \
                         "F(i0:" #m ") = 1f32 / sqrt(V(i0) / " #n "f32 + 0.00001f32) "             \
                         "Y(i0:" #m ", i1:" #n ") = " half "(D(i0, i1) * F(i0) * G(i1)) }"

static const char *const epilogues[] = {
    SOFTMAX("f16", 128, 32, 64),
    SOFTMAX("bf16", 64, 48, 32),
    SOFTMAX("f16", 77, 64, 48), // ragged rows: the last tile overlaps the one before
    NORM("f16", "temp", 128, 64, 64),
    NORM("f16", "out", 100, 96, 48), // the sums are stored, too
    // rows of two dims, that are numbered as one; the largest, and its square root
    "p { in f16 A(3, 32, 32) in f16 B(32, 16) out f16 Y(3, 32, 16) temp f32 T(3, 32, 16) "
    "temp f32 X(3, 32) temp f32 Q(3, 32) "
    "T(i0:3, i1:32, i2:16 | r0:32) +=! f32(A(i0, i1, r0)) * f32(B(r0, i2)) "
    "X(i0:3, i1:32 | r0:16) max=! T(i0, i1, r0) * T(i0, i1, r0) "
    "Q(i0:3, i1:32) = sqrt(X(i0, i1)) "
    "Y(i0:3, i1:32, i2:16) = f16(T(i0, i1, i2) / Q(i0, i1)) }",
    // a product for each of two heads
    "p { in f16 A(2, 64, 32) in f16 B(2, 32, 32) out f16 Y(2, 64, 32) temp f32 T(2, 64, 32) "
    "temp f32 S(2, 64) "
    "T(i0:2, i1:64, i2:32 | r0:32) +=! f32(A(i0, i1, r0)) * f32(B(i0, r0, i2)) "
    "S(i0:2, i1:64 | r0:32) +=! T(i0, i1, r0) * T(i0, i1, r0) "
    "Y(i0:2, i1:64, i2:32) = f16(T(i0, i1, i2) / sqrt(S(i0, i1))) }",
};

static void candidates_compute_strips_in_one_kernel(void **state) {
  (void)state;
  check_each(&machine, "row_epilogue", KILN_LEN(epilogues), epilogues, "mma.m16n8k16", 14);
}

// On warp groups: steps copied by TMA; a last step longer than the rest of k; a single step.
static void warp_groups_compute_strips(void **state) {
  static const char *const of_groups[] = {
      SOFTMAX("f16", 128, 192, 64),
      NORM("f16", "out", 130, 96, 128),
      NORM("bf16", "temp", 64, 64, 64),
  };
  (void)state;
  check_each(&hopper, "row_epilogue", KILN_LEN(of_groups), of_groups, "wgmma", 14);
}

static void strips_compile(void **state) {
  (void)state;
  check_compiles(&machine, "row_epilogue", epilogues[0], "mma.m16n8k16", "kiln_lanes_max_4(");
  check_compiles(&machine, "row_epilogue", epilogues[4], "mma.m16n8k16", "kiln_lanes_sum_4(");
  check_compiles(&hopper, "row_epilogue", epilogues[3], "wgmma", "kiln_lanes_sum_4(");
}

// Of many rows one kernel costs less than two, of few rows of many columns and terms more.
static void connecting_makes_strips_where_they_cost_less(void **state) {
  (void)state;
  assert_int_equal(count_kernels(SOFTMAX("f16", 98304, 64, 128), false), 1);
  assert_int_equal(count_kernels(SOFTMAX("f16", 98304, 64, 128), true), 2);
  assert_int_equal(count_kernels(NORM("f16", "out", 50176, 192, 192), false), 1);
  assert_int_equal(count_kernels(NORM("f16", "out", 256, 4096, 256), false), 2);
}

// Programs without the form: columns that no tile fits, rows that are too long, sums of columns,
// rows with other readers.
static void others_are_left_apart(void **state) {
  static const char *const others[] = {
      SOFTMAX("f16", 64, 32, 24),
      SOFTMAX("f16", 64, 32, 272),
      SOFTMAX("f32", 64, 32, 32),
      PRODUCT("f16", 64, 32, 32) "out f16 Y(64, 32) temp f32 T(64, 32) temp f32 S(32) " SUM(
          64, 32, 32) "S(i1:32 | r0:64) +=! T(r0, i1) Y(i0:64, i1:32) = f16(T(i0, i1) / S(i1)) }",
      // sums of a part of the columns, of two dims that the product numbers as one
      "p { in f16 A(64, 32) in f16 B(32, 2, 16) out f16 Y(64, 2, 16) temp f32 T(64, 2, 16) "
      "temp f32 S(64, 2) "
      "T(i0:64, i1:2, i2:16 | r0:32) +=! f32(A(i0, r0)) * f32(B(r0, i1, i2)) "
      "S(i0:64, i1:2 | r0:16) +=! T(i0, i1, r0) "
      "Y(i0:64, i1:2, i2:16) = f16(T(i0, i1, i2) / S(i0, i1)) }",
      PRODUCT("f16", 64, 32, 32) "out f16 Y(64, 32) out f32 S(64) temp f32 T(64, 32) " SUM(
          64, 32, 32) "S(i0:64 | r0:32) +=! T(i0, r0) Y(i0:64, i1:32) = f16(T(i0, i1) / S(i0)) }",
      PRODUCT("f16", 64, 32, 32) "out f16 Y(64, 32) temp f32 T(64, 32) temp f32 S(64) " SUM(
          64, 32, 32) "S(i0:64 | r0:32) +=! T(i0, r0) "
                      "Y(i0:64, i1:32) = f16(T(i0, 31 - i1) / S(i0)) }",
  };
  (void)state;
  check_has_no_form(KILN_LEN(others), others, &kiln_template_gpu_row_epilogue);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(candidates_compute_strips_in_one_kernel),
                                     cmocka_unit_test(warp_groups_compute_strips),
                                     cmocka_unit_test(strips_compile),
                                     cmocka_unit_test(connecting_makes_strips_where_they_cost_less),
                                     cmocka_unit_test(others_are_left_apart)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
