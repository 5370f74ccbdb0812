// Element types and the half conversions, checked against the definition of the formats.
#include "ir/dtype.h"
#include "unit/fixture.h"

#include <math.h>

static void names_and_onnx_codes_find_their_type(void **state) {
  (void)state;
  for (int i = 0; i < KILN_N_DTYPES; i++) {
    const kiln_dtype t = (kiln_dtype)i;
    kiln_dtype found;
    const char *text = kiln_dtype_text(t);
    assert_true(kiln_dtype_parse(text, strlen(text), &found));
    assert_int_equal(found, t);
    assert_true(kiln_dtype_of_onnx(kiln_dtype_onnx(t), &found));
    assert_int_equal(found, t);
  }
  kiln_dtype none;
  assert_false(kiln_dtype_parse("f3", 2, &none));
  assert_false(kiln_dtype_parse("f322", 4, &none));
  assert_false(kiln_dtype_of_onnx(8, &none)); // STRING
  assert_int_equal(kiln_dtype_bytes(KILN_BF16), 2);
  assert_true(kiln_dtype_is_int(KILN_U8) && !kiln_dtype_is_int(KILN_BOOL));
}

// The value of a small float from its bits, by definition.
static double by_definition(unsigned bits, int exponent_bits, int fraction_bits) {
  const int exponent = bits >> fraction_bits & ((1 << exponent_bits) - 1);
  const int fraction = bits & ((1 << fraction_bits) - 1), bias = (1 << (exponent_bits - 1)) - 1;
  double x;
  if (exponent == (1 << exponent_bits) - 1) x = fraction ? (double)NAN : (double)INFINITY;
  else if (exponent == 0) x = ldexp(fraction, 1 - bias - fraction_bits);
  else x = ldexp((1 << fraction_bits) + fraction, exponent - bias - fraction_bits);
  return bits >> 15 & 1 ? -x : x;
}

static void check_half(float (*widen)(uint16_t), uint16_t (*round_to)(double), int exponent_bits,
                       int fraction_bits) {
  for (unsigned bits = 0; bits < 65536; bits++) {
    const double x = by_definition(bits, exponent_bits, fraction_bits);
    const double wide = (double)widen((uint16_t)bits);
    if (isnan(x)) {
      assert_true(isnan(wide) && isnan((double)widen(round_to(x))));
      continue;
    }
    assert_true(wide == x && !signbit(wide) == !signbit(x));
    assert_int_equal(round_to(x), bits);
    if (isinf(x) || (bits & 0x7fff) == 0) continue;
    // Half way to the next number away from zero goes to the even one; a little less or more does
    // not.
    const double next = by_definition(bits + 1, exponent_bits, fraction_bits);
    const double step =
        isinf(next) ? x - by_definition(bits - 1, exponent_bits, fraction_bits) : next - x;
    const double half = x + step / 2;
    assert_int_equal(round_to(half), bits & 1 ? bits + 1 : bits);
    assert_int_equal(round_to(nextafter(half, 0)), bits);
    assert_int_equal(round_to(nextafter(half, x * 4)), bits + 1);
  }
}

static void f16_rounds_once_to_nearest_even(void **state) {
  (void)state;
  check_half(kiln_f16_to_f32, kiln_f16_of_f64, 5, 10);
  assert_int_equal(kiln_f16_of_f64(1e300), 0x7c00);
  assert_int_equal(kiln_f16_of_f64(-1e-300), 0x8000);
}

static void bf16_rounds_once_to_nearest_even(void **state) {
  (void)state;
  check_half(kiln_bf16_to_f32, kiln_bf16_of_f64, 8, 7);
}

// As element by element, except that finite values stay finite.
static void many_floats_are_rounded_alike(void **state) {
  enum { N = 4096 };
  static const uint32_t likely[] = {
      0,          1,          0x7fffff,   0x800000,   0x33000000, 0x33000001, 0x33800000,
      0x387fc000, 0x387fe000, 0x387fffff, 0x38800000, 0x38800fff, 0x38801000, 0x38803000,
      0x477fdfff, 0x477fe000, 0x477fefff, 0x477ff000, 0x7f7effff, 0x7f7f0000, 0x7f7f7fff,
      0x7f7f8000, 0x7f7fffff, 0x7f800000, 0x7f800001, 0x7fc00000, 0x7fffffff};
  uint64_t random = 5;
  float in[N];
  char shifted[4 * N + 1];
  (void)state;
  for (int i = 0; i < N; i++) {
    uint32_t bits = (uint32_t)random_next(&random);
    if (i < (int)(sizeof likely / sizeof *likely)) bits = likely[i];
    if (i >= N / 2) bits = (bits & 0x9fffffff) + 0x30000000; // near f16's range
    memcpy(&in[i], &bits, sizeof bits);
  }
  memcpy(shifted + 1, in, sizeof in); // at an odd address
  for (int k = 0; k < 2; k++) {
    uint16_t out[N];
    const float most = k ? kiln_bf16_to_f32(0x7f7f) : 65504;
    kiln_halves_of_floats(k ? KILN_BF16 : KILN_F16, N, shifted + 1, out);
    for (int i = 0; i < N; i++) {
      const float x = isfinite(in[i]) ? fminf(fmaxf(in[i], -most), most) : in[i];
      assert_int_equal(out[i], k ? kiln_bf16_of_f64((double)x) : kiln_f16_of_f64((double)x));
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(names_and_onnx_codes_find_their_type),
      cmocka_unit_test(f16_rounds_once_to_nearest_even),
      cmocka_unit_test(bf16_rounds_once_to_nearest_even),
      cmocka_unit_test(many_floats_are_rounded_alike),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
