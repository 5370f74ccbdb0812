// Errors in the text: each with its message, its line and a caret.
#include "unit/tc/harness.h"

static const struct {
  const char *text, *message;
} cases[] = {
    {"def f(float(N) X) -> (Y) { Y(i) = X(i) + }",
     "t.tc:1:42: error: syntax: expected an expression, got '}'\n"
     "  def f(float(N) X) -> (Y) { Y(i) = X(i) + }\n"
     "                                           ^"},
    {"def f(float(N, K) X) -> (Y) {\n  Y(i) = X(i, k)\n}",
     "t.tc:2:15: error: Y: = includes reduction variable 'k' but does not specify a reduction\n"
     "    Y(i) = X(i, k)\n"
     "                ^"},
    {"def f(float(N) X) -> (Y) { X(i) = 1.0 where i in 0:N Y(i) = X(i) }",
     "X: TC inputs are immutable"},
    {"def f(float(N) X) -> (Y) { Y(i) += X(i) }", "reduction without initialization"},
    {"def f(float(N) X) -> (Y) { Y(i) = X(i, i) }", "X: expected 1 dimensions but found 2"},
    {"def f(float(N) X) -> (Y) { Y(i) = g(X(i)) }", "g: undefined variable"},
    {"def f(float(N) X) -> (Y) { Y(i) = Y(i) + X(i) }", "Y: undefined variable"},
    {"def f(float(N) X) -> (Y, Z) { Y(i) = X(i) }", "Z: no statement writes this output"},
    {"def f(float(N) X, float(N) X) -> (Y) { Y(i) = X(i) }", "X: already defined"},
    {"def f(float(N) exp) -> (Y) { Y(i) = exp(i) }", "exp: is built in and cannot be redefined"},
    {"def f(float(N) X) -> (Y) { Y(i) = X(i) where i in X(0):N }",
     "tensor accesses cannot be used"},
    {"def f(float(N) X) -> (Y) { Y(i) = pow(X(i)) }", "pow: expected 2 arguments but found 1"},
    {"def f(float(N) X) -> (Y) { Y(i) = a where a = X(i) * b, b = 2 }",
     "b: is used before the clause that defines it"},
    {"def f(float(N) X) -> (Y) { Y(i) = X(i) where i = 2 }", "i: already defined"},
    {"def f(float(N) X) -> (Y) { Y(i) = X(i) where i in 0:2, i in 0:3 }", "i: already defined"},
    {"def f(float(N) X) -> (Y) { Y(i) = X(i) * a where a = 1, a = 2 }", "a: already defined"},
    {"def f(float(N) X) -> (Y) { Y(i) = X where X = 2 }", "X: already defined"},
    {"def f(float(N) X) -> (Y) { Y(i) = X(i) where exp = 2 }", "exp: is built in"},
    {"def f(float(N) X) -> (Y) { Y(i, i) = X(i) }", "Y: index i occurs twice"},
    {"def f(float(N) X) -> (Y) { Y(i) = X(i) where q in 0:3 }", "q: is no index"},
    {"def f(float(N...) X) -> (Y) { Y(i...) = X(i...) + i... }", "a pack may only be an index"},
    {"def f(Q(N) X) -> (Y) { Y(i) = X(i) }", "X: no type is called Q"},
    {"def f(float(N) X) -> (int8 Y) { Y(i) = X(i) }",
     "attempting to assign type f32 to narrower type i8 without an explicit cast"},
    {"def f(float(N) X) -> (Y) { Y(i) = band(X(i), 1) }", "the operands must be integers"},
    {"def f(float(N) X) -> (Y) { require X(0) > 0, \"no\" Y(i) = X(i) }", "require: must hold of"},
    {"def f(float(A, B, C, D, E, F1, G1, H1, K) X) -> (Y) { Y(i) = 1 }",
     "at most 8 dimensions are allowed here"},
    {"def f(float(N) X) -> (Y) { Y(i) = X(i) @ 1 }", "got '@'"},
    {"def f(float(N) X) -> (Y) { Y(i) = X(i)", "got the end of the file"},
    {"onnx A 3..1\ndef f(float(N) X) -> (Y) { Y(i) = X(i) }", "the opsets must rise"},
    {"onnx A 1..3\nonnx A 2..\ndef f(float(N) X) -> (Y) { Y(i) = X(i) }", "two headers hold"},
    {"onnx A 1.. = g\ndef f(float(N) X) -> (Y) { Y(i) = X(i) }", "no such definition"},
    {"def f(float(N) X) -> (Y) { Y(i) = X(99999999999999999999) }", "got '99999999999999999999'"},
};

static void mistakes_have_a_place_and_a_caret(void **state) {
  (void)state;
  for (size_t row = 0; row < KILN_LEN(cases); row++) {
    harness h;
    harness_begin(&h);
    const char *text = cases[row].text;
    bool has_place = strncmp(cases[row].message, "t.tc:", 5) == 0; // its lines are counted
    if (strncmp(text, "onnx", 4) != 0 && !has_place)
      text = kiln_arena_printf(&h.cx.perm, "onnx A 1..\n%s", text);
    kiln_status st = kiln_tc_check(&h.cx, "t.tc", text);
    const char *messages = harness_messages(&h);
    if (st == KILN_OK) fail_msg("row %zu: want an error, got none", row);
    if (strstr(messages, cases[row].message) == NULL)
      fail_msg("row %zu: want %s, got %s", row, cases[row].message, messages);
    harness_end(&h);
  }
}

// A long or deep text must not exhaust the stack.
static void deep_texts_are_refused(void **state) {
  (void)state;
  static const char *const units[] = {"(", "-", "1+", "1?", "min(1,", "X("};
  for (size_t row = 0; row < KILN_LEN(units); row++) {
    harness h;
    harness_begin(&h);
    kiln_text t;
    kiln_text_init(&t, &h.cx.perm);
    kiln_text_add(&t, "def f(float(N) X) -> (Y) { Y(i) = ");
    for (int i = 0; i < 100000; i++) kiln_text_add(&t, units[row]);
    assert_int_equal(kiln_tc_check(&h.cx, "t.tc", t.data), KILN_BAD_INPUT);
    harness_end(&h);
  }
}

static void unmet_requirements_give_their_text(void **state) {
  (void)state;
  harness h;
  harness_begin(&h);
  harness_inputs(&h, "f32 A(3)");
  const char *text = "onnx P 1.. (p = 3)\n"
                     "def f(float(N) X) -> (Y) { require p == 1, \"P: p must be 1\" Y(i) = X(i) }";
  assert_int_equal(harness_lower(&h, "P", "p.tc", text, 1), KILN_UNSUPPORTED);
  assert_string_equal(harness_messages(&h), "model: node: error: P: p must be 1\n");
  harness_end(&h);
}

static void shapes_that_do_not_fit_name_the_node(void **state) {
  (void)state;
  static const struct {
    const char *inputs, *message;
  } rows[] = {
      {"f32 A(3, 4); f32 B(5)", "model: node: error: B: dimensions must be equal or 1"},
      {"f32 A(3, 4); i64 B(4)", "model: node: error: Add: B: must be f32, got i64"},
      {"f32 A(3, 4)", "model: node: error: Add: B: input 1 must be given"},
      {"f32 A(3); f32 B(3); f32 C(3)", "at most 2 inputs"},
  };
  for (size_t row = 0; row < KILN_LEN(rows); row++) {
    harness h;
    harness_begin(&h);
    harness_inputs(&h, rows[row].inputs);
    const char *text =
        "onnx Add 7..\ndef add(T(a...) A, T(b...) B) -> (T C) { C(i...) = A(i...) + B(i...) }";
    kiln_status st = harness_lower(&h, "Add", "ops/add.tc", text, 1);
    const char *messages = harness_messages(&h);
    assert_true(st == KILN_BAD_INPUT || st == KILN_UNSUPPORTED);
    if (strstr(messages, rows[row].message) == NULL)
      fail_msg("row %zu: want %s, got %s", row, rows[row].message, messages);
    harness_end(&h);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(mistakes_have_a_place_and_a_caret),
      cmocka_unit_test(deep_texts_are_refused),
      cmocka_unit_test(unmet_requirements_give_their_text),
      cmocka_unit_test(shapes_that_do_not_fit_name_the_node),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
