// Contractions over channels moved before resampling: equal values with fewer products.
#include "unit/fixture.h"
#include "unit/rewrite/products.h"

#include "analysis/interpret.h"
#include "rewrite/rules.h"

#include <math.h>
#include <string.h>

static const float weights[2 * 5] = {1, -2, 3, 0.5, 2, -1, 4, 0.25, 1, -3};

// W is (2, 5): two channels from five, three of X, upsampled in rows and columns, and two of Z.
static const char concat[] =
    "p { in f32 X(1, 3, 2, 2) in f32 Z(1, 2, 4, 4) const f32 W(2, 5, 1, 1) = ...\n"
    "temp f32 R(1, 3, 4, 2) temp f32 U(1, 3, 4, 4) temp f32 C(1, 5, 4, 4) out f32 Y(1, 2, 4, 4)\n"
    "R(i0:1, i1:3, i2:4, i3:2) = 0.5f32*X(i0, i1, i2/2, i3) + 0.25f32*X(i0, i1, 1 - i2/2, i3)\n"
    "U(i0:1, i1:3, i2:4, i3:4) = R(0, i1, i2, i3/2)\n"
    "C(i0:1, i1:5, i2:4, i3:4) = i1 < 3 ? U(i0, i1, i2, i3) : Z(i0, i1 - 3, i2, i3)\n"
    "Y(i0:1, i1:2, i2:4, i3:4 | r0:5, r1:1, r2:1) +=! C(i0, r0, i2 + r1, i3 + r2)*W(i1, r0, r1, "
    "r2) }";
// The whole operand is upsampled.
static const char whole[] = "p { in f32 X(1, 5, 2, 2) const f32 W(2, 5) = ... temp f32 U(1, 5, 4, "
                            "4) out f32 Y(1, 2, 4, 4)\n"
                            "U(i0:1, i1:5, i2:4, i3:4) = X(0, i1, i2/2, i3/2)\n"
                            "Y(i0:1, i1:2, i2:4, i3:4 | r0:5) +=! W(i1, r0)*U(i0, r0, i2, i3) }";
// Not linear; different for some channels; two readers; a window; no upsampling.
static const char *const others[] = {
    "p { in f32 X(1, 5, 2, 2) const f32 W(2, 5) = ... temp f32 U(1, 5, 4, 4) out f32 Y(1, 2, 4, "
    "4)\n"
    "U(i0:1, i1:5, i2:4, i3:4) = exp(X(0, i1, i2/2, i3/2))\n"
    "Y(i0:1, i1:2, i2:4, i3:4 | r0:5) +=! W(i1, r0)*U(i0, r0, i2, i3) }",
    "p { in f32 X(1, 5, 2, 2) const f32 W(2, 5) = ... const f32 F(5) = ... temp f32 U(1, 5, 4, 4) "
    "out f32 Y(1, 2, 4, 4)\nU(i0:1, i1:5, i2:4, i3:4) = F(i1)*X(0, i1, i2/2, i3/2)\n"
    "Y(i0:1, i1:2, i2:4, i3:4 | r0:5) +=! W(i1, r0)*U(i0, r0, i2, i3) }",
    "p { in f32 X(1, 5, 2, 2) const f32 W(2, 5) = ... temp f32 U(1, 5, 4, 4) out f32 Y(1, 2, 4, 4) "
    "out f32 V(1, 5, 4, 4)\nU(i0:1, i1:5, i2:4, i3:4) = X(0, i1, i2/2, i3/2)\n"
    "V(i0:1, i1:5, i2:4, i3:4) = U(i0, i1, i2, i3)\n"
    "Y(i0:1, i1:2, i2:4, i3:4 | r0:5) +=! W(i1, r0)*U(i0, r0, i2, i3) }",
    "p { in f32 X(1, 5, 2, 2) const f32 W(2, 5, 2) = ... temp f32 U(1, 5, 4, 4) out f32 Y(1, 2, 3, "
    "4)\n"
    "U(i0:1, i1:5, i2:4, i3:4) = X(0, i1, i2/2, i3/2)\n"
    "Y(i0:1, i1:2, i2:3, i3:4 | r0:5, r1:2) +=! W(i1, r0, r1)*U(i0, r0, i2 + r1, i3) }",
    "p { in f32 X(1, 5, 2, 2) const f32 W(2, 5) = ... temp f32 U(1, 5, 2, 2) out f32 Y(1, 2, 2, "
    "2)\n"
    "U(i0:1, i1:5, i2:2, i3:2) = X(0, i1, 1 - i2, i3)\n"
    "Y(i0:1, i1:2, i2:2, i3:2 | r0:5) +=! W(i1, r0)*U(i0, r0, i2, i3) }",
};

static kiln_program *parse(fixture *f, const char *text) {
  kiln_program *p = NULL;
  assert_int_equal(kiln_program_parse(&f->cx, text, &p), KILN_OK);
  for (int t = 0; t < p->tensors.n; t++)
    if (p->tensors.data[t]->role == KILN_CONST) p->tensors.data[t]->data = weights;
  return p;
}

static void fill(float *x, int n) {
  for (int i = 0; i < n; i++) x[i] = sinf((float)(3 * i + 1));
}

// Output 0 of |p|, 32 elements.
static void compute(fixture *f, const kiln_program *p, float *out) {
  static float x[20], z[32];
  kiln_interpreter *in = NULL;
  const void *data = NULL;
  fill(x, 20);
  fill(z, 32);
  assert_int_equal(kiln_interpreter_create(&f->cx, p, &in), KILN_OK);
  for (int i = 0; i < p->inputs.n; i++) kiln_interpreter_bind(in, p->inputs.data[i], i ? z : x);
  assert_int_equal(kiln_interpreter_compute(in, p->outputs.data[0], &data), KILN_OK);
  memcpy(out, data, 32 * sizeof *out);
  kiln_interpreter_destroy(in);
}

static void check_same(fixture *f, const char *text, int64_t before, int64_t after) {
  float want[32], got[32];
  kiln_program *p = parse(f, text);
  compute(f, p, want);
  assert_int_equal(products(p), before);
  assert_int_equal(kiln_rule_resample(&f->cx, p), 1);
  assert_int_equal(kiln_program_verify(&f->cx, p), KILN_OK);
  assert_int_equal(products(p), after);
  compute(f, p, got);
  for (int i = 0; i < 32; i++) assert_true(fabsf(got[i] - want[i]) <= 1e-6F * (1 + fabsf(want[i])));
}

static void a_contraction_moves_in_front_of_what_enlarges(void **state) {
  check_same(*state, whole, 2 * 16 * 5, 2 * 4 * 5);
}

static void a_concatenation_is_cut_into_its_parts(void **state) {
  check_same(*state, concat, 2 * 16 * 5, 2 * 4 * 3 + 2 * 16 * 2);
}

static void what_does_not_commute_or_gain_stays(void **state) {
  fixture *f = *state;
  for (size_t i = 0; i < KILN_LEN(others); i++) {
    kiln_program *p = parse(f, others[i]);
    const int n = p->stmts.n;
    const int64_t before = products(p);
    assert_int_equal(kiln_rule_resample(&f->cx, p), 0);
    assert_int_equal(p->stmts.n, n);
    assert_int_equal(products(p), before);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {FIXTURE_TEST(a_contraction_moves_in_front_of_what_enlarges),
                                     FIXTURE_TEST(a_concatenation_is_cut_into_its_parts),
                                     FIXTURE_TEST(what_does_not_commute_or_gain_stays)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
