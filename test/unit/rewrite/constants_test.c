// Folding of statements that read constants only.
#include "unit/fixture.h"

#include "rewrite/constants.h"

static void folded_statements_go_and_the_others_stay(void **state) {
  fixture *f = *state;
  kiln_program *p = NULL;
  int n = 0;
  // E is computed from V and W alone; Y reads it, and X
  static const char text[] =
      "p { in f32 X(3) const f32 V(3) = 0x0000803f0000004000004040 const f32 W(3) = "
      "0x0000803f0000803f0000803f temp f32 E(3) temp f32 T(3) out f32 Y(3)"
      " E(i0:3) = V(i0) + W(i0) T(i0:3) = X(i0) * E(i0) Y(i0:3) = T(i0) + E(i0) }";
  assert_int_equal(kiln_program_parse(&f->cx, text, &p), KILN_OK);
  assert_int_equal(kiln_program_fold_constants(&f->cx, p, &n), KILN_OK);
  assert_int_equal(kiln_program_verify(&f->cx, p), KILN_OK);
  assert_int_equal(n, 1);
  assert_int_equal(p->stmts.n, 2);
  int n_constants = 0;
  for (int t = 0; t < p->tensors.n; t++) {
    const kiln_tensor *x = p->tensors.data[t];
    if (x->role != KILN_CONST) continue;
    n_constants++;
    assert_int_equal(x->def, -1);
    assert_int_equal(x->bytes, 12);
    const float want[] = {2, 3, 4};
    assert_memory_equal(x->data, want, sizeof want);
  }
  assert_int_equal(n_constants, 1); // V and W have no reader left
}

// T transposes W, which packing can do; E merges two of its axes.
static void moves_that_join_axes_are_folded(void **state) {
  fixture *f = *state;
  kiln_program *p = NULL;
  int n = 0;
  static const char text[] =
      "p { in f32 X(4) const f32 W(2, 2) = 0x0000803f000000400000404000008040 temp f32 T(2, 2) "
      "temp f32 E(4) out f32 Y(4) T(i0:2, i1:2) = W(i1, i0) E(i0:4) = W(i0 % 2, i0 / 2) "
      "Y(i0:4) = X(i0) * E(i0) + T(0, i0 % 2) }";
  assert_int_equal(kiln_program_parse(&f->cx, text, &p), KILN_OK);
  assert_int_equal(kiln_program_fold_constants(&f->cx, p, &n), KILN_OK);
  assert_int_equal(kiln_program_verify(&f->cx, p), KILN_OK);
  assert_int_equal(n, 1);
  assert_int_equal(p->stmts.n, 2);
  for (int t = 0; t < p->tensors.n; t++) {
    const kiln_tensor *x = p->tensors.data[t];
    const float want[] = {1, 3, 2, 4};
    if (x->role == KILN_CONST && x->rank == 1) assert_memory_equal(x->data, want, sizeof want);
  }
}

// E decodes floats from integers with fewer bits, in every run; T takes bits of floats.
static void what_decodes_bits_of_constants_stays(void **state) {
  fixture *f = *state;
  kiln_program *p = NULL;
  int n = 0;
  static const char text[] =
      "p { in f32 X(8) const i32 W(1) = 0x21436587 const f32 V(8) = ... temp f32 E(8) temp f32 "
      "T(8) "
      "out f32 Y(8) E(i0:8) = f32(band(shr(W(i0 / 8), i32(i0 % 8 * 4)), 15i32)) "
      "T(i0:8) = f32(shr(bitcast_u32(V(i0)), 16u32)) Y(i0:8) = X(i0) * E(i0) + T(i0) }";
  if (kiln_program_parse(&f->cx, text, &p) != KILN_OK)
    fail_msg("%s", kiln_diag_message(f->diag, 0));
  assert_true(kiln_stmt_decodes(&f->cx, p, p->stmts.data[0]));
  for (int i = 1; i < p->stmts.n; i++) assert_false(kiln_stmt_decodes(&f->cx, p, p->stmts.data[i]));
  assert_int_equal(kiln_program_fold_constants(&f->cx, p, &n), KILN_OK);
  assert_int_equal(n, 1);
  assert_int_equal(p->stmts.n, 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {FIXTURE_TEST(folded_statements_go_and_the_others_stay),
                                     FIXTURE_TEST(moves_that_join_axes_are_folded),
                                     FIXTURE_TEST(what_decodes_bits_of_constants_stays)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
