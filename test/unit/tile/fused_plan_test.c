// Plans of fused tiles: what statements are as tile operations follows from their index maps; what
// is no tile is refused with the reason.
#include "unit/schedule/kernel.h"

#include "template/form/fused_plan.h"

static const struct {
  const char *text, *plan;
} plans[] = {
    // softmax in four statements, behind a product
    {"p { in f32 A(8, 4) in f32 B(4, 6) out f32 Y(8, 6) temp f32 T(8, 6) temp f32 X(8) "
     "temp f32 E(8, 6) temp f32 S(8) "
     "T(i0:8, i1:6 | r0:4) +=! A(i0, r0) * B(r0, i1) X(i0:8 | r0:6) max=! T(i0, r0) "
     "E(i0:8, i1:6) = exp(T(i0, i1) - X(i0)) S(i0:8 | r0:6) +=! E(i0, r0) "
     "Y(i0:8, i1:6) = E(i0, i1) / S(i0) }",
     "rows m:8 n:6 k1:4\n"
     "T(m, n) product along k1\n"
     "X(m) reduction along n: T FULL\n"
     "E(m, n) map: T in place, X in place\n"
     "S(m) reduction along n: E FULL\n"
     "Y(m, n) map: E in place, S in place\n"},
    // in three, under other names of dims, the mask chosen by a condition, the left operand turned
    {"p { in f32 A(4, 8) in f32 B(6, 4) in bool M(8, 6) out f32 Y(8, 6) temp f32 T(8, 6) "
     "temp f32 X(8) temp f32 S(8) "
     "T(a:8, b:6 | c:4) +=! A(c, a) * B(b, c) "
     "X(u:8 | v:6) max=! (M(u, v) ? T(u, v) : -3e38f32) "
     "S(p:8 | q:6) +=! exp((M(p, q) ? T(p, q) : -3e38f32) - X(p)) "
     "Y(e:8, f:6) = exp((M(e, f) ? T(e, f) : -3e38f32) - X(e)) / S(e) }",
     "rows m:8 n:6 k1:4\n"
     "T(m, n) product along k1\n"
     "X(m) reduction along n: T FULL\n"
     "S(m) reduction along n: T FULL, X in place\n"
     "Y(m, n) map: T in place, X in place, S in place\n"},
    // a product of a product: its columns come in chunks; rows of two dims
    {"p { in f32 A(2, 4, 3) in f32 B(3, 9) in f32 C(9, 5) out f32 Y(2, 4, 5) temp f32 T(2, 4, 9) "
     "temp f32 H(2, 4, 9) temp f32 U(2, 4, 5) "
     "T(i0:2, i1:4, i2:9 | r0:3) +=! A(i0, i1, r0) * B(r0, i2) "
     "H(i0:2, i1:4, i2:9) = max(T(i0, i1, i2), 0f32) "
     "U(i0:2, i1:4, i2:5 | r0:9) +=! H(i0, i1, r0) * C(r0, i2) "
     "Y(i0:2, i1:4, i2:5) = U(i0, i1, i2) * 2f32 }",
     "rows m:8 k0:9 k1:3 n:5\n"
     "T(m, k0) product along k1\n"
     "H(m, k0) map: T in place\n"
     "U(m, n) product along k0: H STREAM\n"
     "Y(m, n) map: U in place\n"},
    // sums of parts of the columns: the parts are batch
    {"p { in f32 A(8, 4) in f32 B(4, 2, 3) out f32 Y(8, 2, 3) temp f32 T(8, 2, 3) temp f32 S(8, 2) "
     "T(i0:8, i1:2, i2:3 | r0:4) +=! A(i0, r0) * B(r0, i1, i2) "
     "S(i0:8, i1:2 | r0:3) +=! T(i0, i1, r0) "
     "Y(i0:8, i1:2, i2:3) = T(i0, i1, i2) / S(i0, i1) }",
     "rows m:8 b0:2 n:3 k1:4\n"
     "T(m, n) product along k1\n"
     "S(m) reduction along n: T FULL\n"
     "Y(m, n) map: T in place, S in place\n"},
    // attention: the second operand of each product is a head's own, so that heads are batch
    {"p { in f32 Q(2, 8, 4) in f32 K(2, 6, 4) in f32 V(2, 6, 5) out f32 Y(2, 8, 5) "
     "temp f32 T(2, 8, 6) temp f32 X(2, 8) temp f32 E(2, 8, 6) temp f32 S(2, 8) "
     "temp f32 P(2, 8, 6) temp f32 U(2, 8, 5) "
     "T(i0:2, i1:8, i2:6 | r0:4) +=! Q(i0, i1, r0) * K(i0, i2, r0) "
     "X(i0:2, i1:8 | r0:6) max=! T(i0, i1, r0) "
     "E(i0:2, i1:8, i2:6) = exp(T(i0, i1, i2) - X(i0, i1)) "
     "S(i0:2, i1:8 | r0:6) +=! E(i0, i1, r0) P(i0:2, i1:8, i2:6) = E(i0, i1, i2) / S(i0, i1) "
     "U(i0:2, i1:8, i2:5 | r0:6) +=! P(i0, i1, r0) * V(i0, r0, i2) "
     "Y(i0:2, i1:8, i2:5) = U(i0, i1, i2) }",
     "rows m:8 b0:2 k0:6 k1:4 n:5\n"
     "T(m, k0) product along k1\n"
     "X(m) reduction along k0: T FULL\n"
     "E(m, k0) map: T in place, X in place\n"
     "S(m) reduction along k0: E FULL\n"
     "P(m, k0) map: E in place, S in place\n"
     "U(m, n) product along k0: P FULL\n"
     "Y(m, n) map: U in place\n"},
};

static const char *print(kiln_ctx *cx, const kiln_program *p) {
  const char *why = NULL;
  kiln_fused_plan plan;
  kiln_text text;
  if (!kiln_fused_plan_make(cx, p, &plan, &why)) return why;
  kiln_text_init(&text, &cx->scratch);
  kiln_fused_plan_print(cx, p, &plan, &text);
  return text.data;
}

static void expect(const char *program, const char *want) {
  kiln_diag *diag = kiln_diag_create();
  kiln_program *p = NULL;
  kiln_ctx cx;
  assert_int_equal(kiln_ctx_init(&cx, diag), KILN_OK);
  if (kiln_program_parse(&cx, program, &p) != KILN_OK)
    fail_msg("%s: %s", program, kiln_diag_message(diag, 0));
  assert_string_equal(print(&cx, p), want);
  kiln_ctx_deinit(&cx);
  kiln_diag_destroy(diag);
}

static void plans_follow_from_index_maps(void **state) {
  (void)state;
  for (size_t i = 0; i < KILN_LEN(plans); i++) expect(plans[i].text, plans[i].plan);
}

static void what_is_no_tile_is_refused_with_the_reason(void **state) {
  static const struct {
    const char *text, *why;
  } cases[] = {
      {"p { in f32 A(8, 4) in f32 B(4, 6) out f32 Y(8, 6) temp f32 T(8, 6) "
       "T(i0:8, i1:6 | r0:4) +=! A(i0, r0) * B(r0, i1) Y(i0:8, i1:6) = T(i0, 5 - i1) }",
       "Y reads T at other places than its own"},
      {"p { in f32 A(8, 4) in f32 B(4, 8) out f32 Y(8, 8) temp f32 T(8, 8) "
       "T(i0:8, i1:8 | r0:4) +=! A(i0, r0) * B(r0, i1) Y(i0:8, i1:8) = T(i0, i1) + T(i1, i0) }",
       "two dims of T are one axis, as statements read it"},
  };
  (void)state;
  for (size_t i = 0; i < KILN_LEN(cases); i++) expect(cases[i].text, cases[i].why);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(plans_follow_from_index_maps),
                                     cmocka_unit_test(what_is_no_tile_is_refused_with_the_reason)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
