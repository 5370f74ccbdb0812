// Connecting on GPUs: groups that rules have made are split where their parts take less, and maps
// join the product that they read.
#include "unit/tile/gpu_connected.h"

// A depthwise convolution of |taps| x |taps| and a layer normalization of its channels.
static const char *window_and_norm(char *text, size_t n, int taps, int side, int channels) {
  const int h = taps / 2;
  snprintf(
      text, n,
      "p { in f16 X(64, %d, %d, %d) const f16 W(%d, %d, %d) = ... const f32 B(%d) = ... out f16 "
      "Y(64, %d, %d, %d) temp f32 T(64, %d, %d, %d) temp f16 C(64, %d, %d, %d) temp f32 S(64, %d, "
      "%d) temp f32 M(64, %d, %d) temp f32 V(64, %d, %d) temp f32 R(64, %d, %d) "
      "T(i0:64, i1:%d, i2:%d, i3:%d | r0:%d, r1:%d) +=! f32(i1 + r0 >= %d && i1 + r0 < %d && i2 + "
      "r1 >= %d && i2 + r1 < %d ? X(i0, i1 + r0 - %d, i2 + r1 - %d, i3) : 0f16) * f32(W(i3, r0, "
      "r1)) "
      "C(i0:64, i1:%d, i2:%d, i3:%d) = f16(T(i0, i1, i2, i3) + B(i3)) "
      "S(i0:64, i1:%d, i2:%d | r0:%d) +=! f32(C(i0, i1, i2, r0)) "
      "M(i0:64, i1:%d, i2:%d) = S(i0, i1, i2) / %df32 "
      "V(i0:64, i1:%d, i2:%d | r0:%d) +=! (f32(C(i0, i1, i2, r0)) - M(i0, i1, i2)) * "
      "(f32(C(i0, i1, i2, r0)) - M(i0, i1, i2)) "
      "R(i0:64, i1:%d, i2:%d) = 1f32 / sqrt(V(i0, i1, i2) / %df32 + 0.000001f32) "
      "Y(i0:64, i1:%d, i2:%d, i3:%d) = f16((f32(C(i0, i1, i2, i3)) - M(i0, i1, i2)) * R(i0, i1, "
      "i2)) }",
      side, side, channels, channels, taps, taps, channels, side, side, channels, side, side,
      channels, side, side, channels, side, side, side, side, side, side, side, side, side, side,
      channels, taps, taps, h, side + h, h, side + h, h, h, side, side, channels, side, side,
      channels, side, side, channels, side, side, channels, side, side, channels, side, side,
      channels);
  return text;
}

// In one kernel, whose threads are those of the rows, a window is read element by element.
static void windows_do_not_stay_with_a_normalization_that_costs_more(void **state) {
  char text[4096];
  (void)state;
  static const int sides[] = {56, 28, 14}, channels[] = {96, 192, 384};
  for (size_t i = 0; i < KILN_LEN(sides); i++) {
    const char *one = window_and_norm(text, sizeof text, 7, sides[i], channels[i]);
    assert_int_equal(count_kernels(one, true), 1);
    assert_int_equal(count_kernels(one, false), 2);
  }
}

// Rows that are reduced as fast in one kernel stay in it.
static void normalizations_are_not_split(void **state) {
  (void)state;
  const char *const norm =
      "p { in f16 X(4096, 768) out f16 Y(4096, 768) temp f32 S(4096) temp f32 M(4096) temp f32 "
      "V(4096) temp f32 R(4096) S(i0:4096 | r0:768) +=! f32(X(i0, r0)) M(i0:4096) = S(i0) / 768f32 "
      "V(i0:4096 | r0:768) +=! (f32(X(i0, r0)) - M(i0)) * (f32(X(i0, r0)) - M(i0)) "
      "R(i0:4096) = 1f32 / sqrt(V(i0) / 768f32 + 0.00001f32) "
      "Y(i0:4096, i1:768) = f16((f32(X(i0, i1)) - M(i0)) * R(i0)) }";
  assert_int_equal(count_kernels(norm, true), 1);
  assert_int_equal(count_kernels(norm, false), 1);
}

#define PRODUCT(m, k, n)                                                                           \
  "p { in f16 A(" #m ", " #k ") const f16 B(" #k ", " #n ") = ... in f16 R(" #m ", " #n            \
  ") const f32 G(" #n ") = ... const f32 L(" #n ") = ... temp f32 T(" #m ", " #n ") "
#define SUM(m, k, n) "T(i0:" #m ", i1:" #n " | r0:" #k ") +=! f32(A(i0, r0)) * f32(B(r0, i1)) "

// A bias, its rounding, a scale by channel and a residual connection: an epilogue of three maps.
static void maps_behind_a_product_join_it(void **state) {
  (void)state;
  const char *const scaled = PRODUCT(
      12544, 1536,
      384) "temp f16 U(12544, 384) temp f16 V(12544, 384) out f16 Y(12544, 384) out f16 Z(12544, "
           "384) " SUM(12544, 1536,
                       384) "U(i0:12544, i1:384) = f16(T(i0, i1) + G(i1)) "
                            "V(i0:12544, i1:384) = f16(f32(U(i0, i1)) * L(i1)) "
                            "Y(i0:12544, i1:384) = f16(f32(V(i0, i1)) + f32(R(i0, i1))) "
                            "Z(i0:12544, i1:384) = f16(exp(f32(R(i0, i1)))) }";
  assert_int_equal(count_kernels(scaled, false), 2);
  // what others read, too, is stored
  const char *const read_twice =
      PRODUCT(12544, 1536, 384) "out f16 U(12544, 384) out f16 Y(12544, 384) " SUM(
          12544, 1536, 384) "U(i0:12544, i1:384) = f16(T(i0, i1) + G(i1)) "
                            "Y(i0:12544, i1:384) = f16(f32(U(i0, i1)) * L(i1) + f32(R(i0, i1))) }";
  assert_int_equal(count_kernels(read_twice, false), 2);
}

static void compare_halves(test_kernel *k, const kiln_tensor *t, const void *got,
                           const char *text) {
  const void *want = kiln_interpreter_data(k->reference, t->id);
  for (int64_t i = 0; i < kiln_tensor_elems(t); i++) {
    const double w = kiln_element_get(t->dtype, want, i), g = kiln_element_get(t->dtype, got, i);
    if (!(fabs(w - g) <= 4e-3 * (1 + fabs(w)))) // roundings between maps are left out
      fail_msg("element %lld must be %g, got %g in %s", (long long)i, w, g, text);
  }
}

// Maps that read rows in another order, or a row's number, keep their meaning in the epilogue.
static void joined_maps_compute_the_same(void **state) {
  static const char *const maps[] = {
      "Y(i0:64, i1:48) = f16(f32(V(i0, i1)) + f32(R(i0, i1))) }",
      "Y(i0:64, i1:48) = f16(i1 < 8 ? f32(V(i0, i1)) : f32(V(i0, i1)) * f32(R(63 - i0, i1))) }",
      "Y(i0:64, i1:48) = f16(f32(V(i0, i1)) * f32(V(i0, i1)) - G(47 - i1)) }"};
  (void)state;
  for (size_t i = 0; i < KILN_LEN(maps); i++) {
    test_kernel k;
    kiln_machine m;
    kiln_kernels kernels;
    const kiln_tile_options options = {.search.n_threads = 1};
    char text[2048];
    snprintf(text, sizeof text, "%s%s",
             PRODUCT(64, 32, 48) "temp f16 U(64, 48) temp f16 V(64, 48) out f16 Y(64, 48) " SUM(
                 64, 32, 48) "U(i0:64, i1:48) = f16(T(i0, i1) * 0.125f32 + G(i1)) "
                             "V(i0:64, i1:48) = f16(f32(U(i0, i1)) * L(i1)) ",
             maps[i]);
    kernel_open(&k, text, 7 + (int)i);
    assert_int_equal(kiln_gpu_machine_named(&k.cx, "cuda:sm_80", &m), KILN_OK);
    assert_int_equal(kiln_pipeline_tile(&k.cx, k.prog, &m, &options, "inline", &kernels), KILN_OK);
    check_launches(&k, &kernels, compare_halves, text);
    assert_int_equal(kernels.launches.n, 1);
    kernel_close(&k);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(windows_do_not_stay_with_a_normalization_that_costs_more),
      cmocka_unit_test(normalizations_are_not_split),
      cmocka_unit_test(maps_behind_a_product_join_it),
      cmocka_unit_test(joined_maps_compute_the_same)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
