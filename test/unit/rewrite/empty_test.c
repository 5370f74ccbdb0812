// Statements with empty domains become fills.
#include "unit/fixture.h"

#include "rewrite/empty.h"

static const struct {
  const char *name, *before, *after;
} rows[] = {
    {"no elements", "in f32 X(0, 0) out f32 Y(0, 0) Y(i0:0, i1:0) = X(i0, i1) + X(i1, i0)",
     "Y(i0:0, i1:0) = 0f32"},
    {"a sum of nothing", "in f32 X(3, 0) out f32 Y(3) Y(i0:3 | r0:0) +=! X(i0, r0)",
     "Y(i0:3) = 0f32"},
    {"a product of nothing", "in i64 X(3, 0) out i64 Y(3) Y(i0:3 | r0:0) *=! X(i0, r0)",
     "Y(i0:3) = 1"},
    {"a maximum of nothing", "in f32 X(0) out f32 Y() Y(| r0:0) max=! X(r0)", "Y() = -inff32"},
    {"behind a condition that never holds",
     "in f32 X(0) in f32 Z(4) out f32 Y(4) Y(i0:4) = i0 < 0 ? X(i0) : Z(i0)",
     "Y(i0:4) = i0 < 0 ? 0f32 : Z(i0)"},
    {"some elements", "in f32 X(1, 3) out f32 Y(3) Y(i0:3 | r0:1) +=! X(r0, i0)",
     "Y(i0:3 | r0:1) +=! X(r0, i0)"},
};

static void statements_without_instances_become_fills(void **state) {
  fixture *f = *state;
  for (size_t row = 0; row < KILN_LEN(rows); row++) {
    kiln_program *p = NULL;
    char text[256];
    snprintf(text, sizeof text, "p { %s }", rows[row].before);
    assert_int_equal(kiln_program_parse(&f->cx, text, &p), KILN_OK);
    kiln_program_fold_empty(&f->cx, p);
    assert_int_equal(kiln_program_verify(&f->cx, p), KILN_OK);
    kiln_text got;
    kiln_text_init(&got, &f->cx.perm);
    kiln_stmt_print(&f->cx, p, p->stmts.data[0], &got);
    if (!strstr(got.data, rows[row].after)) fail_msg("%s: %s", rows[row].name, got.data);
  }
}

// T keeps its initial value if nothing is scattered.
static void scatters_of_nothing_leave_what_was_there(void **state) {
  fixture *f = *state;
  kiln_program *p = NULL;
  static const char text[] = "p { in f32 X(3) in i64 I(0) in f32 U(0) out f32 Y(3) "
                             "Y(i0:0) at (I(i0)) = U(i0) init (X(o0)) }";
  if (kiln_program_parse(&f->cx, text, &p) != KILN_OK) fail_msg("%s", "the scatter does not parse");
  kiln_program_fold_empty(&f->cx, p);
  assert_int_equal(kiln_program_verify(&f->cx, p), KILN_OK);
  kiln_text got;
  kiln_text_init(&got, &f->cx.perm);
  kiln_stmt_print(&f->cx, p, p->stmts.data[0], &got);
  if (!strstr(got.data, "Y(i0:3) = X(i0)")) fail_msg("%s", got.data);
}

int main(void) {
  const struct CMUnitTest tests[] = {FIXTURE_TEST(statements_without_instances_become_fills),
                                     FIXTURE_TEST(scatters_of_nothing_leave_what_was_there)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
