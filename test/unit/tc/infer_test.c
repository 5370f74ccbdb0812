// Range inference: the goldens of Tensor Comprehensions, as extents of the first output.
#include "unit/tc/harness.h"

typedef struct golden {
  const char *inputs, *def; // the definition without its name
  const char *shape;        // NULL: |error| is part of the message
  const char *error;
} golden;

static const golden goldens[] = {
    {"f32 X(N)", "(float(N) I) -> (O) { O(i) = I(123 * i) }", "(N + 122)/123", NULL},
    {"f32 X(N)", "(float(N) I) -> (O) { O(i) = I(i - 1) }", "N", NULL},
    {"f32 X(N)", "(float(N) I) -> (O) { O(i) = I(i + 5) }", "N", NULL},
    {"f32 X(N)", "(float(N) B) -> (A) { A(i) = B(10 - i) }", "N", NULL},
    {"f32 X(N)", "(float(N) B) -> (A) { A(i) = B(2 * i) }", "(N + 1)/2", NULL},
    {"f32 X(N)", "(float(N) B) -> (A) { A(i) = B(2 * i) + B(2 * i + 1) }", "N/2", NULL},
    {"f32 X(N); f32 Y(K)", "(float(N) B, float(K) W) -> (A) { A(i) +=! B(i + k) * W(k) }",
     "N - K + 1", NULL},
    {"f32 X(A, B, C)", "(float(A, B, C) I) -> (O) { O(i, j, k) = I(j, i + j, k) }",
     "B - A + 1, A, C", NULL},
    {"f32 X(N, C, H, W); f32 Y(M, C, KH, KW)",
     "(float(N, C, H, W) I, float(M, C, KH, KW) W1) -> (O)"
     "{ O(n, m, h, w) +=! I(n, r_c, h + r_kh, w + r_kw) * W1(m, r_c, r_kh, r_kw) }",
     "N, M, H - KH + 1, W - KW + 1", NULL},
    {"f32 X(20, 30); f32 Y(3, 4)",
     "(float(H, W) I, float(KH, KW) K) -> (O) { P(h, w) = I(h - 5, w - 7)"
     " O(h, w) +=! P(2 * h + kh, 3 * w + kw) * K(kh, kw) }",
     "9, 9", NULL},
    {"f32 X(5, 6); f32 Y(4, 5, 7)",
     "(float(J, K) B, float(I1, J1, K1) A) -> (O) { O(i, j, k) = B(j, k) + A(i, j, k) }", "4, 5, 6",
     NULL},
    {"f32 X(A, B, C); f32 Y(D, E, F)",
     "(float(B0, B1, B2) B, float(A0, A1, A2) A) -> (O) { O(j, k, l) +=! B(j, k, l) + A(i, j, k) }",
     "min(A, E), min(B, F), C", NULL},
    {"f32 X(H, W); f32 Y(KH, KW)",
     "(float(H, W) I, float(KH, KW) K) -> (O) { P(h, w) = I(h - 5, w - 7)"
     " O(h, w) +=! P(2 * h + kh, 3 * w + kw) * K(kh, kw) }",
     "(H - KH + 1)/2, (W - KW + 1)/3", NULL},
    {"f32 X(10, 19, 10)", "(float(N, NM, M) I) -> (O) { O(i, j) = I(i, i + j, j) }", "10, 10",
     NULL},
    {"f32 X(10, 18, 10)", "(float(N, NM, M) I) -> (O) { O(i, j) = I(i, i + j, j) }", NULL,
     "the subscript must stay in range: 0 <= it <= 17"},
    {"f32 X(40, 40)", "(float(N, M) I) -> (O) { O(i, j) = I(10 + i - j, i + j) }", NULL,
     "i: unsolved variable"},
    {"f32 X(40, 40)", "(float(N, M) I) -> (O) { O(i, j) = I(10 + i - j, i + j) where i in 0:10 }",
     "10, 11", NULL},
    {"f32 X(N)", "(float(N) I) -> (O) { O(i) = I(i) where i in 3:N - 1 }", "N - 4", NULL},
    {"f32 X(9)", "(float(N) I) -> (O) { O(i) = I(i) where i in 8:4 }", NULL, "an empty range"},
    {"f32 X(9)", "(float(N) I) -> (O) { O(i) = I(i) where i in 0:N + 1 }", NULL,
     "the subscript must stay in range: 0 <= it <= 8"},
    {"f32 X(9)", "(float(N) I) -> (O) { O(i, j) = I(i) }", NULL, "j: unsolved variable"},
    {"f32 X(N); i32 S(1)", "(float(N) B, int32(ONE) S) -> (A) { A(i) = B(S(0) * i) }", NULL,
     "i: unsolved variable"},
    {"f32 X(9)", "(float(N) I) -> (O) { O(i) = 1.5 where exists I(i) }", "9", NULL},
    {"f32 X(30)", "(float(N) I) -> (O) { O(i, j, k) = I(i + j + k) }", NULL, "unsolved variable"},
    {"f32 E(D, K); i32 I(B, L)",
     "(float(D1, K) E, int32(B, L) I) -> (O)"
     " { O(b, k) +=! E(I(b, l), k) }",
     "B, K", NULL},
    {"f32 X(H, W); f32 Y(KH, KW)",
     "(float(H, W) B, float(KH, KW) K) -> (O)"
     " { O(h, w) +=! B(2 * h + 3 * w + kh, 2 * w + kw) * K(kh, kw) }",
     "(H - KH - (W - KW)/2)/2 - (W - KW)/2 + 1, (W - KW)/2 + 1", NULL},
    {"f32 X(9, 9, 9)", "(float(L, M, N) A) -> (O) { O(i, j) = A(i + j, i + j, i + j) }", NULL,
     "unsolved variable: could not infer its range; use a where clause"},
    {"f32 X(2, 3, 2, 4, 5)",
     "(float(A, B, C, D, E) I) -> (O) { O(i, j, k) = I(i, j, i, k, 2 * i + j) }", "2, 3, 4", NULL},
    {"f32 X(2, 3, 2, 4, 4)",
     "(float(A, B, C, D, E) I) -> (O) { O(i, j, k) = I(i, j, i, k, 2 * i + j) }", NULL,
     "inferred: i in 0:2 from I(i, j, i, k, 2 * i + j), j in 0:3"},
    {"f32 X(4); f32 Y(6)", "(float(H) I, float(KH) K) -> (O) { O(h) +=! I(h + kh) * K(kh) }", NULL,
     "h: inferred an empty range for the variable"},
    {"f32 X(N)", "(float(N) X) -> (O) { O(i) = i >= 2 ? X(i - 2) : 0 where i in 0:X.d0 + 2 }",
     "N + 2", NULL},
};

static const char *shape_text(harness *h, const kiln_tensor *t) {
  kiln_text s;
  kiln_text_init(&s, &h->cx.perm);
  for (int i = 0; i < t->rank; i++) {
    if (i > 0) kiln_text_add(&s, ", ");
    kiln_expr_print(&h->cx, t->shape[i], NULL, &s);
  }
  return s.data;
}

static void expect_golden(size_t row) {
  const golden *g = &goldens[row];
  harness h;
  harness_begin(&h);
  harness_inputs(&h, g->inputs);
  const char *text = kiln_arena_printf(&h.cx.perm, "onnx Test 1..\ndef test%s\n", g->def);
  kiln_status st = harness_lower(&h, "Test", "test.tc", text, 1);
  const char *messages = harness_messages(&h);
  if (g->shape != NULL) {
    if (st != KILN_OK) fail_msg("row %zu: %s", row, messages);
    const char *shape = shape_text(&h, h.outputs[0]);
    if (strcmp(shape, g->shape) != 0) fail_msg("row %zu: want %s, got %s", row, g->shape, shape);
  } else {
    if (st == KILN_OK) fail_msg("row %zu: want an error, got none", row);
    if (strstr(messages, g->error) == NULL)
      fail_msg("row %zu: want %s, got %s", row, g->error, messages);
  }
  harness_end(&h);
}

static void ranges_are_the_goldens(void **state) {
  (void)state;
  for (size_t row = 0; row < KILN_LEN(goldens); row++) expect_golden(row);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(ranges_are_the_goldens)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
