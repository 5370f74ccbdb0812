// Definitions with sizes, inputs and outputs computed by hand.
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
    {"def f(float(N) X) -> (Y) { Y(i, i) = X(i) }", "N=2", "1 2", "!Y: index i occurs twice"},
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

// --- calls ---

#define TWICE "def twice(float(N) X) -> (Y) { Y(i) = 2 * X(i) }\n"
#define BOTH "def both(float(N) X) -> (P, M) { P(i) = X(i) + 1 M(i) = X(i) - 1 }\n"

static const row calls[] = {
    {TWICE "def f(float(N) X) -> (Y) { Y = twice(X) }", "N=2", "1 2", "2 4"},
    {TWICE "def f(float(N) X) -> (Y) { T = twice(X) Y(i) = T(i) + X(i) }", "N=2", "1 2", "3 6"},
    {TWICE "def f(float(N) X) -> (Y) { T = twice(X) U = twice(T) Y = twice(U) }", "N=2", "1 2",
     "8 16"},
    {BOTH "def f(float(N) X) -> (A, B) { A, B = both(X) }", "N=2", "1 2", "2 3; 0 1"},
    {BOTH "def f(float(N) X) -> (A) { A = both(X) }", "N=2", "1 2", "2 3"},
    {BOTH "def f(float(N) X) -> (B) { A, B = both(X) }", "N=2", "1 2", "0 1"},
    {BOTH "def f(float(N) X) -> (Z) { Z(i) = X(i) A, B = both(X) Z(i) += A(i) * B(i) }", "N=2",
     "1 2", "1 5"},
    {"def f(float(N) X) -> (Y) { Y = f(X) }", "N=2", "1 2", "!there is no recursion"},
    {"def f(float(N) X) -> (Y) { Y = g(X) } def g(float(N) X) -> (Y) { Y = f(X) }", "N=2", "1 2",
     "!there is no recursion"},
    {TWICE "def f(float(N) X) -> (Y) { A, B = twice(X) Y(i) = A(i) }", "N=2", "1 2",
     "!in this call of twice: there must be at most 1 results, got 2"},
    {TWICE "def f(float(N, M) X) -> (Y) { Y = twice(X) }", "N=2 M=1", "1 2",
     "!in this call of twice: X: must have 1 dimensions, got 2"},
    {TWICE "def f(int32(N) X) -> (Y) { Y = twice(X) }", "N=2", "1 2",
     "!in this call of twice: X: must be f32, got i32"},
    {TWICE "def f(float(N) X) -> (Y) { Y(i) = twice(X) }", "N=2", "1 2",
     "!a definition is called by a statement of its own"},
    {TWICE "def f(float(N) X) -> (Y) { Y = twice(X(0) + 1) }", "N=2", "1 2",
     "!an argument must be a tensor or a number known beforehand"},
    {"def scale(T(a...) X, T c) -> (T Y) { Y(i...) = c * X(i...) }\n"
     "def f(float(N, M) X) -> (Y) { Y = scale(X, 3) }",
     "N=1 M=2", "1 2", "3 6"},
    {"def add(T(a...) X, T(b...) Y) -> (T Z) { Z(i...) = X(i...) + Y(i...) }\n"
     "def f(float(N, M) X, float(M) B) -> (Y) { Y = add(X, B) }",
     "N=2 M=2", "1 2 3 4; 10 20", "11 22 13 24"},
    {"def part(float(N) X, size from, size n) -> (Y) { Y(i) = X(from + i) where i in 0:n }\n"
     "def f(float(N) X) -> (Y) { Y = part(X, N - 2, 2) }",
     "N=4", "1 2 3 4", "3 4"},
    {"def part(float(N) X, size from, size n) -> (Y) { Y(i) = X(from + i) where i in 0:n }",
     "N=4 from=1 n=2", "1 2 3 4", "2 3"},
    {"def part(float(N) X, size from, size n) -> (Y) { Y(i) = X(from + i) where i in 0:n }\n"
     "def f(float(N) X) -> (Y) { Y = part(X, 3, 2) }",
     "N=4", "1 2 3 4", "!Y: in this call of part: it cannot be bound to these arguments"},
    {"def add(float(N) X, float(N) Y) -> (Z) { Z(i) = X(i) + Y(i) }\n"
     "def f(float(N) X, float(M) Y) -> (Z) { Z = add(X, Y) }",
     "N=2 M=3", "1 2 3 4 5", "!in this call of add: Y: axis 0 must have 2 elements, got 3"},
    {"def three(float(3) X) -> (Y) { Y(i) = X(i) }\ndef f(float(N) X) -> (Y) { Y = three(X) }",
     "N=2", "1 2", "!in this call of three: X: axis 0 must have 3 elements, got 2"},
    // indices of a call's result are those in the definition
    {"def next(float(N) X) -> (Y) { Y(i) = X(i - 1) }\n"
     "def f(float(N) X) -> (Y) { T = next(X) Y(i) = T(i + 1) + X(i) }",
     "N=2", "1 2", "2 4"},
    {"def sum(float(N) X) -> (S) { S +=! X(r) }\n"
     "def f(float(N) X) -> (Y) { S = sum(X) Y(i) = X(i) / S }",
     "N=2", "1 3", "0.25 0.75"},
    // the first that fits, as of operators
    {"def minus(float(N) X) -> (Y) { Y(i) = -X(i) }\ndef minus(int32(N) X) -> (Y) { Y(i) = 100 - "
     "X(i) }\n"
     "def f(int32(N) X) -> (Y) { Y = minus(X) }",
     "N=2", "1 3", "99 97"},
};

static void definitions_call_those_before_them(void **state) {
  (void)state;
  for (size_t i = 0; i < KILN_LEN(calls); i++) expect(&calls[i], i);
}

// --- boundary conditions ---

static double at(const double *x, int64_t n, int64_t i) { return i >= 0 && i < n ? x[i] : -7; }
static int64_t clamped(int64_t i, int64_t n) { return i < 0 ? 0 : i >= n ? n - 1 : i; }
static int64_t wrapped(int64_t i, int64_t n) { return ((i % n) + n) % n; }
static int64_t mirrored(int64_t i, int64_t n) {
  while (i < 0 || i >= n) i = i < 0 ? -1 - i : 2 * n - 1 - i;
  return i;
}
static int64_t reflected(int64_t i, int64_t n) {
  if (n == 1) return 0;
  while (i < 0 || i >= n) i = i < 0 ? -i : 2 * n - 2 - i;
  return i;
}

static const struct {
  const char *call;
  int64_t (*index)(int64_t i, int64_t n); // NULL: outside is -7
} boundaries[] = {
    {"constant_exterior(X, -7, %d)", NULL}, {"repeat_edge(X, %d)", clamped},
    {"repeat_image(X, %d)", wrapped},       {"mirror_image(X, %d)", mirrored},
    {"mirror_interior(X, %d)", reflected},
};

static void expect_boundary(size_t which, int n, int p) {
  static const double x[] = {3, 1, 4, 1.5, 9};
  definition d;
  definition_begin(&d);
  char call[64], text[160], data[64] = "", sizes[16];
  snprintf(call, sizeof call, boundaries[which].call, p);
  snprintf(text, sizeof text, "def f(float(N) X) -> (Y) { Y = %s }", call);
  snprintf(sizes, sizeof sizes, "N=%d", n);
  for (int i = 0; i < n; i++) snprintf(data + strlen(data), 16, " %g", x[i]);
  if (definition_bind(&d, text, NULL, sizes) != KILN_OK) fail_msg("%s", definition_messages(&d));
  const char *got = definition_run(&d, data);
  for (int i = -p; i < n + p; i++) {
    double want = boundaries[which].index ? x[boundaries[which].index(i, n)] : at(x, n, i);
    char *end = NULL;
    double v = strtod(got, &end);
    if (end == got || v != want) fail_msg("%s: N=%d: at %d want %g, got %s", call, n, i, want, got);
    got = end;
  }
  assert_string_equal(got, "");
  definition_end(&d);
}

static void boundaries_are_their_formulas(void **state) {
  (void)state;
  for (size_t which = 0; which < KILN_LEN(boundaries); which++)
    for (int n = 1; n <= 5; n++)
      for (int p = 0; p <= 7; p++) expect_boundary(which, n, p);
}

static const row stencils[] = {
    {"def blur(float(H, W) I) -> (O) { P = repeat_edge(I, 0, 1)"
     " O(h, w) = P(h, w - 1) + P(h, w) + P(h, w + 1) }",
     "H=2 W=3", "1 2 3 4 5 6", "4 6 8 13 15 17"},
    {"def conv(float(N) I, float(K) F) -> (O) { P = constant_exterior(I, 0, 1)"
     " O(i) +=! P(i + k - 1) * F(k) }",
     "N=3 K=3", "1 2 3; 1 10 100", "210 321 32"},
    {"def f(float(H, W) I) -> (O) { O = repeat_edge(I, 1) }", "H=2 W=2", "1 2 3 4",
     "!...: must have as many elements as the other packs, got 1"},
};

static void stencils_over_padded_views_keep_their_size(void **state) {
  (void)state;
  for (size_t i = 0; i < KILN_LEN(stencils); i++) expect(&stencils[i], i);
}

// --- statements, clauses, expressions ---

static const row statements[] = {
    // no type holds both the values of uint64 and a negative number
    {"def f(uint64(N) X) -> (Y) { Y(i) = X(i) < -1 }", "N=2", "1 2",
     "!the type that it meets, u64, got -1; cast the other operand, as in int64(X(i))"},
    {"def f(uint64(N) X) -> (Y) { Y(i) = int64(X(i)) < -1 }", "N=2", "1 2", "0 0"},
    {"def f(uint64(N) X) -> (Y) { Y(i) = X(i) >= 2 }", "N=2", "1 2", "0 1"},
    {"def f(uint64(N) X) -> (Y) { Y(i) = X(i) + -1 }", "N=2", "1 2", "!a number must fit the type"},
    // triangular, masked, perforated, shifted: padding by conditions
    {"def f(float(N, N) X) -> (Y) { Y(i, j) = j <= i ? X(i, j) : 0 }", "N=3", "1 2 3 4 5 6 7 8 9",
     "1 0 0 4 5 0 7 8 9"},
    {"def f(float(N) X, float(K) W, uint8(N) M) -> (Y) { Y(i) +=! M(i + k) ? X(i + k) * W(k) : 0 }",
     "N=4 K=2", "1 2 3 4; 1 10; 1 0 1 1", "1 30 43"},
    {"def f(float(N) X, float(K) W, int32(M) At) -> (Y) { Y(m) +=! X(At(m) + k) * W(k) }",
     "N=4 K=2 M=2", "1 2 3 4; 1 10; 0 2", "21 43"},
    {"def f(float(D, L) T, int32(N) I) -> (Y) { Y(n, l) = T(I(n) + 1, l) }", "D=3 L=2 N=2",
     "1 2 3 4 5 6; 0 1", "3 4 5 6"},
    // data-dependent indices are clamped
    {"def f(float(D) T, int32(N) I) -> (Y) { Y(n) = T(I(n)) }", "D=3 N=3", "1 2 3; -5 1 99",
     "1 2 3"},
    {"def f(float(N) A, float(N) B) -> (Y) { Y(i, j) = i == 0 ? A(j) : B(j) where i in 0:2 }",
     "N=2", "1 2 3 4", "1 2 3 4"},
    {"def f(float(N) X) -> (M, I) { M min=! X(r) I min=! X(r) == M ? r : N }", "N=4", "5 2 9 2",
     "2; 1"},
    {"def f(float(N) X) -> (Y) { Y(i) +=! X(2*i + k) / 3 where k in 0:3 }", "N=7", "3 3 3 6 6 6 9",
     "3 5 7"},
    {"def f(float(N) X) -> (Y) { Y(i) = X(N - 1 - i) }", "N=3", "1 2 3", "3 2 1"},
    {"def f(float(N) X) -> (Y) { Y(i) = X(3*i + 1) }", "N=6", "0 1 2 3 4 5", "1 4"},
    // a convolution: x where the whole kernel lies on I, turned around
    {"def f(float(N) I, float(X) K) -> (O) { O(x) +=! I(xp) * K(X - 1 + x - xp) where x in 0:1 }",
     "N=3 X=3", "1 2 3; 1 10 100", "123"},
    // where: parameters, names of values, exists
    {"def f(float(N) X, float c) -> (Y) { Y(i) = b * b + c where a = X(i) + c, b = 2 * a }", "N=2",
     "1 2; 1", "17 37"},
    {"def f(float(N) X) -> (Y) { Y(i) = X(i) where i in N / 2:N }", "N=4", "1 2 3 4", "3 4"},
    {"def f(float(N) X) -> (Y) { Y(i) = 2 where exists X(i + 1) }", "N=3", "1 2 3", "2 2 2"},
    {"def f(float(N) X) -> (Y) { Y(i) +=! 1.0 where exists X(i + k), k in 0:2 }", "N=3", "1 2 3",
     "2 2"},
    {"def f(float(N) X) -> (Y) { Y +=! X(r) * X(r) }", "N=3", "1 2 3", "14"},
    {"def f(float a, float b) -> (Y) { Y = a * a + b }", "", "3; 4", "13"},
    {"def f(float(N) X) -> (Y) { Y(i) = X(i) where i in 2:2 }", "N=3", "1 2 3", ""},
    {"def f(float(N) X) -> (Y) { Y +=! X(r) where r in 1:1 }", "N=3", "1 2 3", "0"},
    {"def f(int32(N) X) -> (Y) { Y(i) = X(i) / 4 - X(i) % 4 }", "N=4", "-5 5 -4 7", "-5 0 -1 -2"},
    {"def f(uint8(N) X) -> (Y) { Y(i) = X(i) + X(i) }", "N=2", "200 3", "144 6"},
    {"def f(uint8(N) X) -> (Y) { Y(i) = int32(X(i)) + X(i) }", "N=2", "200 3", "400 6"},
    // comparisons compare values; numbers are not truncated to the other operand's type
    {"def f(uint8(N) X) -> (Y) { Y(x) +=! X(r) == x - 256 ? 1 : 0 where x in 254:259 }", "N=3",
     "254 1 2", "0 0 0 1 1"},
    {"def f(int8(N) X) -> (Y) { Y(i) = X(i) < 300 && X(i) > -129 && X(i) != 255 ? 1 : 0 }", "N=2",
     "-1 127", "1 1"},
    {"def f(uint32(N) X) -> (Y) { Y(i) = X(i) > i - 5 ? 1 : 0 }", "N=2", "0 4000000000", "1 1"},
    {"def f(uint8(N) X) -> (Y) { Y(i) = X(i) + 300 }", "N=1", "1",
     "!a number must fit the type that it meets, u8, got 300; cast the other operand, as in "
     "int32("},
    {"def f(int32(N) X) -> (Y) { Y(i) = X(i) + 3000000000 }", "N=1", "1",
     "!i32, got 3000000000; cast the other operand, as in int64("},
    {"def f(uint8(N) X) -> (Y) { Y(i) = X(i) > 3 ? X(i) : -1 }", "N=1", "1", "!u8, got -1"},
    {"def f(uint8(N) X) -> (Y) { Y(i) = int32(X(i)) + 300 }", "N=1", "1", "301"},
    {"def f() -> (int8(2) Y) { Y(i) = 300 }", "", "", "!to narrower type i8"},
    {"def f(float(N) X) -> (int8(N) Y) { Y(i) = int8(X(i)) }", "N=3", "-1.7 2.5 300", "-1 2 127"},
    {"def f(float(N) X) -> (float64(N) Y) { Y(i) = X(i) / 3 }", "N=1", "1", "0.333333"},
    {"def f(bfloat16(N) X) -> (bfloat16(N) Y) { Y(i) = X(i) + 1 }", "N=2", "1 256", "2 256"},
    {"def f(float16(N) X) -> (float16 S) { S +=! X(r) }", "N=4", "2048 1 1 2", "2052"},
    {"def f(bool(N) X, int64(N) Y) -> (Z) { Z(i) = X(i) && Y(i) > 1 || !X(i) ? 1 : -1 }", "N=3",
     "1 1 0; 1 2 0", "-1 1 1"},
    {"def f(float(N) X) -> (Y) { Y(i) = X(i) > 2 ? 1 : X(i) > 1 ? 2 : 3 }", "N=3", "1 2 3",
     "3 2 1"},
    {"def f(float(N) X) -> (Y) { Y(i) = X(i) + X.d0 + X.0 }", "N=2", "1 2", "5 6"},
    {"def f(float(N, M) X) -> (Y) { Y(i) = X(i, 0) + X.1 where i in 0:X.0 }", "N=2 M=3",
     "1 2 3 4 5 6", "4 7"},
    {"def f(float(N) X) -> (P) { P *=! X(r) }", "N=3", "2 3 4", "24"},
    {"def f(float(N) X) -> (A, B) { A max=! X(r) B min=! X(r) }", "N=3", "2 3 -4", "3; -4"},
    // several statements and outputs, each in the order of the text
    {"def f(float(N, D) I) -> (O, m, s) { m(i) max=! I(i, j) s(i) +=! exp(I(i, j) - m(i))"
     " O(i, j) = exp(I(i, j) - m(i)) / s(i) }",
     "N=1 D=2", "0 0", "0.5 0.5; 0; 2"},
    {"def f(float(N) X) -> (Y) { T(i) = X(i - 1) Y(i) = T(i + 2) }", "N=3", "1 2 3", "1 2 3"},
    {"def f(float(N, M) X) -> (Y) { Y(i) +=! X(i, j) where j in 0:i + 1 }", "N=2 M=2", "1 2 3 4",
     "!the range of an index must be known beforehand"},
    {"def f(float(N) X) -> (Y) { Y(i) = X(i) <=> X(i) }", "N=1", "1", "!which Kiln does not check"},
    // the guard of a branch proves its access, another does not
    {"def f(float(N) X) -> (Y) { Y(i) = i >= 1 && i < N + 1 ? X(i - 1) : 0 where i in 0:N + 2 }",
     "N=2", "1 2", "0 1 2 0"},
    {"def f(float(N) X) -> (Y) { Y(i) = i >= 0 && i < N + 1 ? X(i - 1) : 0 where i in 0:N + 2 }",
     "N=2", "1 2", "!the subscript must stay in range: 0 <= it <= 1"},
    {"def f(float(N) X) -> (Y) { Y(i) = i % 2 == 0 ? X(i / 2) : 0 where i in 0:2 * N }", "N=2",
     "1 2", "1 0 2 0"},
    {"def f(float(N) X) -> (Y) { Y(i) = i % 2 == 0 ? X(i / 2) : 0 where i in 0:2 * N + 1 }", "N=2",
     "1 2", "!the subscript must stay in range"},
    {"def f(float(N) X) -> (Y) { Y(i) = a < 9 ? a : -a where a = X(i + 1), i in 0:N }", "N=2",
     "1 2", "!the subscript must stay in range"},
    {"def f(float(N) X) -> (float(N) Y) { Y(i) = X(i + 1) }", "N=2", "1 2",
     "!inferred: i in -1:1 from X(i + 1)"},
    {"def f(float(N) X) -> (float(N) Y) { Y(i) = X(i + 1) where i in 0:N - 1 }", "N=3", "1 2 3",
     "!got none that writes Y(2)"},
    {"def f(float(N) X) -> (float(3) Y) { Y(i) = X(i) }", "N=4", "1 2 3 4",
     "!the subscript must stay in range: 0 <= it <= 2"},
    // bounds that are not affine in the sizes; a reduction over nothing; no range for an index
    {"def f(float(N) X) -> (Y) { Y(i) = X(i % N) where i in 0:N * N }", "N=2", "1 2", "1 2 1 2"},
    {"def f(float(N) X) -> (Y) { Y(i) +=! X(i) }", "N=2", "1 2", "1 2"},
    {"def f() -> (Y) { Y(i) = 1 }", "", "", "!i: unsolved variable"},
    {"def f(float(H) I, float(KH) K) -> (O) { O(h) +=! I(h + kh) * K(kh) }", "H=3 KH=5", "",
     "!h: inferred an empty range for the variable"},
};

// Where a range begins, beside the values: Z is the index of each element of O.
#define INDEX_OF_O " Z(i) = i where exists O(i) }"

static const row origins[] = {
    {"def f(float(N) X) -> (O, Z) { O(i) = X(i - 1)" INDEX_OF_O, "N=3", "1 2 3", "1 2 3; 1 2 3"},
    {"def f(float(N) X) -> (O, Z) { O(i) = X(i + 5)" INDEX_OF_O, "N=3", "1 2 3", "1 2 3; -5 -4 -3"},
    {"def f(float(N) X) -> (O, Z) { O(i) = X(10 - i)" INDEX_OF_O, "N=3", "1 2 3", "3 2 1; 8 9 10"},
    {"def f(float(N) X) -> (O, Z) { O(i) = X(123 * i)" INDEX_OF_O, "N=3", "1 2 3", "1; 0"},
    {"def f(float(N) X) -> (O, Z) { O(i) = X(i) where i in 3:N - 1" INDEX_OF_O, "N=7",
     "0 1 2 3 4 5 6", "3 4 5; 3 4 5"},
    // padded and strided: (N - K + 1) / 2 elements from 3 on
    {"def f(float(N) X, float(K) W) -> (O, Z) { P(i) = X(i - 5) O(i) +=! P(2 * i + k) * "
     "W(k)" INDEX_OF_O,
     "N=8 K=3", "1 2 3 4 5 6 7 8; 1 0 0", "2 4 6; 3 4 5"},
    // the gradient of a convolution to its input: where all weights meet it
    {"def f(float(N) G, float(K) W) -> (O, Z) { O(i) +=! G(i - k) * W(k)" INDEX_OF_O, "N=4 K=3",
     "1 2 3 4; 1 1 1", "6 9; 2 3"},
};

static void ranges_begin_where_they_should(void **state) {
  (void)state;
  for (size_t i = 0; i < KILN_LEN(origins); i++) expect(&origins[i], i);
}

static void statements_mean_what_they_say(void **state) {
  (void)state;
  for (size_t i = 0; i < KILN_LEN(statements); i++) expect(&statements[i], i);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(statements_mean_what_they_say),
      cmocka_unit_test(ranges_begin_where_they_should),
      cmocka_unit_test(left_sides_may_be_affine),
      cmocka_unit_test(definitions_call_those_before_them),
      cmocka_unit_test(boundaries_are_their_formulas),
      cmocka_unit_test(stencils_over_padded_views_keep_their_size),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
