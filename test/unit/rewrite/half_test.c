// Conversion of f32 tensors to half types: which tensors are converted, and which arithmetic stays
// f32.
#include "unit/fixture.h"

#include "rewrite/half.h"

#include <string.h>

// |text| converted to f16 must contain all of these.
static void expect_lines(fixture *f, const char *text, size_t n, const char *const *lines) {
  kiln_program *p = NULL;
  kiln_text got;
  assert_int_equal(kiln_program_parse(&f->cx, text, &p), KILN_OK);
  kiln_program_to_half(&f->cx, p, KILN_F16);
  assert_int_equal(kiln_program_verify(&f->cx, p), KILN_OK);
  kiln_text_init(&got, &f->cx.perm);
  kiln_program_print(&f->cx, p, &got);
  for (size_t i = 0; i < n; i++)
    if (!strstr(got.data, lines[i])) fail_msg("must have %s, got\n%s", lines[i], got.data);
}

static void storage_is_half_and_arithmetic_is_not(void **state) {
  static const char text[] = "p { in f32 X(2, 64) const f32 W(64, 2) = ... const f32 B(2) = "
                             "0x0000803f0000803f in i64 I(2) "
                             "temp f32 T(2, 2) temp f32 M(2) temp f32 P(2, 32) out f32 Y(2, 2)"
                             " T(i:2, j:2 | k:64) +=! X(i, k) * W(k, j)"
                             " M(i:2 | k:64) max=! X(i, k)"
                             " P(i:2, j:32 | k:2) +=! X(i, 2*j + k)"
                             " Y(i:2, j:2) = T(i, j) + B(j) + M(i) + P(i, j) + f32(I(i)) }";
  static const char *const lines[] = {
      "in f16 X(2, 64)",
      "const f16 W(64, 2)",
      "const f32 B(2)",
      "in i64 I(2)",
      "temp f32 M(2)",
      "temp f16 P(2, 32)",
      "out f16 Y(2, 2)",
      "temp f32 T.sum(2, 2)",
      "T.sum(i:2, j:2 | k:64) +=! f32(X(i, k))*f32(W(k, j))",
      "T(i0:2, i1:2) = stored_f16(T.sum(i0, i1))",
      "M(i:2 | k:64) max=! f32(X(i, k))",
      "Y(i:2, j:2) = stored_f16(f32(T(i, j)) + B(j) + M(i) + f32(P(i, j)) + f32(I(i)))"};
  expect_lines(*state, text, KILN_LEN(lines), lines);
}

static void statistics_are_not_rounded(void **state) {
  static const char text[] =
      "p { in f32 X(64, 2) const f32 W(2, 4) = ... temp f32 S(2) temp f32 M(2) temp f32 Q(2) "
      "temp f32 V(2) temp f32 A(2) temp f32 F(1, 2) temp f32 N(64, 2) out f32 Y(1, 4)"
      " S(i:2 | k:64) +=! X(k, i) M(i:2) = S(i) / 64f32"
      " Q(i:2 | k:64) +=! (X(k, i) - M(i)) * (X(k, i) - M(i)) V(i:2) = 1f32 / sqrt(Q(i) / 64f32)"
      " N(j:64, i:2) = (X(j, i) - M(i)) * V(i)"
      " A(i:2 | k:64) max=! N(k, i) F(i:1, j:2) = A(j) * 2f32"
      " Y(i:1, j:4 | k:2) +=! F(i, k) * W(k, j) }";
  static const char *const lines[] = {"temp f32 S(2)",    "temp f32 M(2)", "temp f32 Q(2)",
                                      "temp f32 V(2)",    "temp f32 A(2)", "temp f16 F(1, 2)",
                                      "temp f16 N(64, 2)"};
  expect_lines(*state, text, KILN_LEN(lines), lines);
}

// Of six elements: in the half type 1e-9 is 0, and so is the square of a small deviation.
static void an_epsilon_is_not_rounded_to_zero(void **state) {
  static const char text[] =
      "p { in f32 X(6, 2) temp f32 S(2) temp f32 M(2) temp f32 Q(2) temp f32 V(2) temp f32 D(2)"
      " temp f32 P(2) temp f32 R(2) out f32 Y(6, 2) out f32 Z(2)"
      " S(i:2 | k:6) +=! X(k, i) M(i:2) = S(i) / 6f32"
      " Q(i:2 | k:6) +=! (X(k, i) - M(i)) * (X(k, i) - M(i)) V(i:2) = Q(i) / 6f32"
      " D(i:2) = sqrt(V(i)) + 1e-09f32 Y(j:6, i:2) = (X(j, i) - M(i)) / D(i)"
      " P(i:2 | k:6) max=! X(k, i) R(i:2) = P(i) + 0.5f32 Z(i:2) = R(i) * 3f32 }";
  static const char *const lines[] = {"temp f16 S(2)", "temp f16 M(2)", "temp f32 Q(2)",
                                      "temp f32 V(2)", "temp f32 D(2)", "temp f16 P(2)",
                                      "temp f16 R(2)"};
  expect_lines(*state, text, KILN_LEN(lines), lines);
}

// The maximum stays f32, the elements may be stored as halves: compared as halves, some element
// equals the maximum.
static void what_is_compared_is_compared_as_stored(void **state) {
  static const char text[] = "p { in f32 X(2, 64) temp f32 T(2, 64) temp f32 M(2) out i64 Y(2)"
                             " T(i:2, k:64) = X(i, k) * 3f32 M(i:2 | k:64) max=! T(i, k)"
                             " Y(i:2 | k:64) min=! T(i, k) == M(i) ? k : 64 }";
  static const char *const lines[] = {"temp f16 T(2, 64)", "temp f32 M(2)",
                                      "T(i, k) == f16(M(i)) ? k : 64"};
  expect_lines(*state, text, KILN_LEN(lines), lines);
}

int main(void) {
  const struct CMUnitTest tests[] = {FIXTURE_TEST(storage_is_half_and_arithmetic_is_not),
                                     FIXTURE_TEST(statistics_are_not_rounded),
                                     FIXTURE_TEST(an_epsilon_is_not_rounded_to_zero),
                                     FIXTURE_TEST(what_is_compared_is_compared_as_stored)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
