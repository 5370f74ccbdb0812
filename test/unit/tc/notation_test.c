// Definitions, each with sizes, inputs and what comes out, computed by hand.
#include "unit/tc/definition.h"

typedef struct row {
  const char *text, *sizes, *inputs, *want; // |want|: the outputs, or "!" and part of the message
} row;

static void expect(const row *r, size_t number) {
  definition d;
  definition_begin(&d);
  kiln_status st = definition_bind(&d, r->text, NULL, r->sizes);
  const char *got = st == KILN_OK ? definition_run(&d, r->inputs) : definition_messages(&d);
  bool fits = r->want[0] == '!' ? st == KILN_BAD_INPUT && strstr(got, r->want + 1) != NULL
                                : st == KILN_OK && strcmp(got, r->want) == 0;
  if (!fits)
    fail_msg("row %zu: %s\nwant\n%s\ngot\n%s\n%s", number, r->text, r->want, got,
             st == KILN_OK ? definition_text(&d) : "");
  definition_end(&d);
}

// --- left sides ---

static const row left_sides[] = {
    {"def f(float(N) X) -> (Y) { Y(2*i) = X(i) Y(2*i + 1) = -X(i) }", "N=3", "1 2 3",
     "1 -1 2 -2 3 -3"},
    {"def f(float(N) X) -> (Y) { Y(i) = 0 where i in 0:2*N Y(2*i) = X(i) }", "N=3", "1 2 3",
     "1 0 2 0 3 0"},
    {"def f(float(N) X) -> (Y) { Y(9 - i) = X(i) }", "N=3", "1 2 3", "3 2 1"},
    {"def f(float(N) X) -> (O) { O(0) = X(0) O(1) +=! X(r) O(2) max=! X(r) }", "N=3", "1 2 3",
     "1 6 3"},
    {"def f(float(N, M) X) -> (Y) { Y(M*i + j) = X(i, j) }", "N=2 M=3", "1 2 3 4 5 6",
     "1 2 3 4 5 6"},
    {"def f(float(N) X) -> (Y) { Y(i / 2) = X(i) }", "N=2", "1 2", "!must be affine"},
    {"def f(float(N, 3) X) -> (Y) { Y(3*i + j) = X(i, j) }", "N=2", "1 2 3 4 5 6", "1 2 3 4 5 6"},
    {"def f(float(N, 3) X) -> (Y) { Y(i + 2*j) = X(i, j) }", "N=2", "1 2 3 4 5 6", "1 4 2 5 3 6"},
    {"def f(float(N, 3) X) -> (Y) { Y(i + j) = X(i, j) }", "N=2", "1 2 3 4 5 6",
     "!Y: the left side must be injective"},
    {"def f(float(N) X) -> (Y) { Y(2*i) = X(i) }", "N=3", "1 2 3",
     "!Y: every element must be written, got none that writes Y(1)"},
    {"def f(float(N) X) -> (Y) { Y(2*i) +=! X(i) }", "N=3", "1 2 3", "1 0 2 0 3"},
    {"def f(float(N, K) X) -> (Y) { Y(2*i) max=! X(i, k) Y(2*i + 1) = i where i in 0:N }",
     "N=2 K=2", "1 2 4 3", "2 0 4 1"},
    {"def f(float(N) X) -> (Y) { Y(i) = X(i) Y(i) = 7 where i in 1:2 }", "N=3", "1 2 3", "1 7 3"},
    {"def f(float(N) X) -> (Y) { Y(i) = X(i) Y(2*i) += 10 where i in 0:2 }", "N=4", "1 2 3 4",
     "11 2 13 4"},
    {"def f(float(N) X) -> (Y) { Y(i) = X(i) Y(i) *= 10 where i in 2:4 }", "N=4", "1 2 3 4",
     "1 2 30 40"},
    {"def f(float(N) X) -> (Y) { Y(i) = X(i) Y(i) += 1 where i in 2:5 }", "N=4", "1 2 3 4",
     "!the subscript must stay in range: 0 <= it <= 3"},
    {"def f(float(N) X) -> (Y) { T(2*i) = X(i) T(2*i + 1) = 0 where i in 0:N Y(i) = T(i) + T(i + "
     "1) }",
     "N=2", "1 2", "1 2 2"},
    {"def f(float(N) X) -> (Y) { Y(i, 0) = X(i) Y(i, 1) = 2 * X(i) }", "N=2", "1 2", "1 2 2 4"},
    {"def f(float(N) X) -> (Y) { Y(i, i) = X(i) }", "N=2", "1 2", "!Y: index i stands there twice"},
    {"def f(float(N) X) -> (Y) { Y(i, j) = 0 where i in 0:N, j in 0:N Y(i, i + 0) = X(i) }", "N=2",
     "1 2", "1 0 0 2"},
    {"def f(float(N) X) -> (Y) { Y(X(i)) = X(i) }", "N=2", "1 2",
     "!X: tensor accesses cannot be used on the left side"},
    {"def f(float(N) X) -> (float(M) Y) { Y(2*i) = X(i) Y(2*i + 1) = 0 }", "N=2 M=6", "1 2",
     "!got none that writes Y(4)"},
    {"def f(float(N, K) X) -> (Y) { Y(i) = 1 where i in 0:N Y(i) += X(i, k) }", "N=2 K=2",
     "1 2 3 4", "4 8"},
    {"def f(float(N) X) -> (float Y) { Y(0) = 3 Y(i + 1) = X(i) }", "N=2", "1 2", "3 1 2"},
    {"def f() -> (float(N) Y) { Y(i) = i * i }", "N=4", "", "0 1 4 9"},
};

static void left_sides_may_be_affine(void **state) {
  (void)state;
  for (size_t i = 0; i < KILN_LEN(left_sides); i++) expect(&left_sides[i], i);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(left_sides_may_be_affine),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
