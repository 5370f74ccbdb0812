// Definitions as programs of their own.
#include "unit/tc/definition.h"

static const struct {
  const char *text, *entry, *sizes, *want; // the program, or part of a message
} rows[] = {
    {"def f(float(M, K) A, float(K, N) B) -> (C) { C(m, n) +=! A(m, k) * B(k, n) }", NULL,
     "M=2 K=3 N=4",
     "f {\n  in f32 A(2, 3)\n  in f32 B(3, 4)\n  out f32 C(2, 4)\n"
     "  C(m:2, n:4 | k:3) +=! A(m, k)*B(k, n) from f\n}\n"},
    {"def f(float(N) X) -> (Y) { T(i) = 2 * X(i) Y(i) = T(i) + 1 }", NULL, "",
     "f {\n  in f32 X(N)\n  temp f32 T(N)\n  out f32 Y(N)\n"
     "  T(i:N) = 2f32*X(i) from f\n  Y(i:N) = T(i) + 1f32 from f\n}\n"},
    {"def f(float c, float(N) X) -> (Y) { Y(i) = c * X(i) }\ndef g(float(N) X) -> (Y) { Y(i) = "
     "X(i) + 1 }",
     "f", "N=3",
     "f {\n  in f32 c()\n  in f32 X(3)\n  out f32 Y(3)\n  Y(i:3) = c()*X(i) from f\n}\n"},
    {"def f(F(N..., D) X) -> (F Y) { Y(n..., d) = X(n..., d) + D }", NULL, "N.0=2 N.1=3 D=5",
     "f {\n  in f32 X(2, 3, 5)\n  out f32 Y(2, 3, 5)\n"
     "  Y(n.0:2, n.1:3, d:5) = X(n.0, n.1, d) + 5f32 from f\n}\n"},
    {"def f(float(M, K) A, float(K) B) -> (C) { C(m) += A(m, k) * B(k) }", NULL, "M=2 K=3",
     "f {\n  in f32 A(2, 3)\n  in f32 B(3)\n  in f32 C_in(2)\n  temp f32 C_sum(2)\n"
     "  out f32 C(2)\n  C_sum(m:2 | k:3) +=! A(m, k)*B(k) from f\n"
     "  C(m:2) = C_in(m) + C_sum(m) from f\n}\n"},
    // of numbers, sizes and indices alone
    {"def f() -> (I, F) { I(i) = i where i in 0:2 F(i) = 1.5 where i in 0:2 }", NULL, "",
     "f {\n  out i64 I(2)\n  out f32 F(2)\n  I(i:2) = i from f\n  F(i:2) = 1.5f32 from f\n}\n"},
    // pieces of one tensor: the indices that they share
    {"def f(float(N, M) X) -> (Y) { Y(2*i, j) = X(i, j) Y(2*i + 1, k) = 0 where k in 0:M, i in 0:N "
     "}",
     NULL, "N=2 M=3",
     "f {\n  in f32 X(2, 3)\n  out f32 Y(4, 3)\n"
     "  Y(i:4, i1:3) = (i + 1)%2 == 0 && i >= 1 ? 0f32 : X(i/2, i1) from f\n}\n"},
    {"def f(float(N) X) -> (Y) { Y(0) = 1 Y(i + 1) = X(i) }", NULL, "N=2",
     "f {\n  in f32 X(2)\n  out f32 Y(3)\n  Y(i:3) = i >= 1 ? X(i - 1) : 1f32 from f\n}\n"},
    {"def f(float(N...) X) -> (Y) { Y(i...) = X(i...) }", NULL, "",
     "N...: the number of its dimensions must be given"},
    {"def f(float(N) X) -> (Y) { Y(i) = X(i) + 1 }", NULL, "M=3",
     "t.tc:1:5: error: f: has no size or attribute of the name M"},
    {"def f(float(N) X) -> (Y) { Y(i) = X(i) + 1 }", "g", "",
     "t.tc: error: entry: must be a definition of the file (f), got g"},
    {"def f(float(N) X) -> (Y) { Y(i) = X(i) + 1 }", NULL, "N=-3", "must not be negative, got -3"},
    {"# nothing", NULL, "", "t.tc: error: must have a definition, got none"},
};

static void definitions_become_programs(void **state) {
  (void)state;
  for (size_t row = 0; row < KILN_LEN(rows); row++) {
    definition d;
    definition_begin(&d);
    kiln_status st = definition_bind(&d, rows[row].text, rows[row].entry, rows[row].sizes);
    const char *got = st == KILN_OK ? definition_text(&d) : definition_messages(&d);
    bool fits = st == KILN_OK ? strcmp(got, rows[row].want) == 0
                              : strstr(got, rows[row].want) != NULL && st == KILN_BAD_INPUT;
    if (!fits) fail_msg("row %zu: want\n%s\ngot\n%s", row, rows[row].want, got);
    definition_end(&d);
  }
}

static void accumulation_without_a_first_value_warns(void **state) {
  (void)state;
  definition d;
  definition_begin(&d);
  assert_int_equal(definition_bind(&d, rows[4].text, NULL, "M=2 K=3"), KILN_OK);
  assert_non_null(
      strstr(definition_messages(&d),
             "warning: C: reduction without initialization: it begins with the input C_in"));
  definition_end(&d);
}

static void signatures_list_sizes_in_order(void **state) {
  (void)state;
  definition d;
  definition_begin(&d);
  int n;
  kiln_tc_signature *s;
  const char *text = "\ndef f(float(M, K) A, float(K, N...) B) -> (C, D) { C(m) +=! A(m, k)\n"
                     "D(k) = A(0, k) }\ndef g() -> (float(N) O) { O(i) = 1 where i in 0:N }";
  kiln_status st = kiln_tc_signatures(&d.cx, "t.tc", text, false, &n, &s);
  if (st != KILN_OK) fail_msg("%s", definition_messages(&d));
  assert_int_equal(n, 2);
  assert_string_equal(s[0].name, "f");
  assert_int_equal(s[0].line, 2);
  assert_int_equal(s[0].n_sizes, 3);
  assert_string_equal(s[0].sizes[1], "K");
  assert_string_equal(s[0].outputs[1], "D");
  assert_int_equal(s[1].line, 4);
  assert_string_equal(s[1].sizes[0], "N");
  definition_end(&d);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(definitions_become_programs),
      cmocka_unit_test(accumulation_without_a_first_value_warns),
      cmocka_unit_test(signatures_list_sizes_in_order),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
