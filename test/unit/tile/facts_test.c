// The table of facts: tensors without facts have none, nor have those whose numbers were reused.
#include "unit/schedule/kernel.h"

#include "tile/facts.h"

static void what_was_not_noted_is_zero(void **state) {
  (void)state;
  kiln_ctx cx;
  kiln_facts facts = {0};
  assert_int_equal(kiln_ctx_init(&cx, NULL), KILN_OK);
  assert_int_equal(kiln_fact_of(NULL, 3).kernel, 0);
  assert_int_equal(kiln_fact_of(&facts, 3).kernel, 0);
  kiln_fact_at(&cx, &facts, 3)->kernel = 7;
  assert_int_equal(kiln_fact_of(&facts, 3).kernel, 7);
  assert_false(kiln_fact_of(&facts, 3).waits);
  for (int t = 0; t < 3; t++) assert_int_equal(kiln_fact_of(&facts, t).kernel, 0);
  assert_int_equal(kiln_fact_of(&facts, 4).kernel, 0);
  kiln_ctx_deinit(&cx);
}

static void numbers_that_others_get_say_nothing_of_them(void **state) {
  (void)state;
  kiln_ctx cx;
  kiln_facts facts = {0};
  assert_int_equal(kiln_ctx_init(&cx, NULL), KILN_OK);
  for (int t = 0; t < 5; t++) kiln_fact_at(&cx, &facts, t)->assembled = true;
  kiln_facts_cut(&facts, 3);
  kiln_facts_cut(&facts, 8);
  assert_true(kiln_fact_of(&facts, 2).assembled);
  assert_false(kiln_fact_of(&facts, 4).assembled);
  kiln_fact_at(&cx, &facts, 4)->waits = true;
  for (int t = 3; t < 5; t++) assert_false(kiln_fact_of(&facts, t).assembled);
  kiln_ctx_deinit(&cx);
}

// Of bytes, by their data: 40, 80, c0 are 64, -128, -64.
static void constants_are_small_by_their_data(void **state) {
  (void)state;
  static const char text[] = "p { const i8 A(3) = 0x40c000 const i8 B(2) = 0x4080 const u8 C(2) = "
                             "0x0101 in i8 D(2) out i8 Y(2) Y(i0:2) = A(i0) + B(i0) + D(i0) }";
  kiln_ctx cx;
  kiln_program *p = NULL;
  kiln_facts facts = {0};
  kiln_text shown;
  const uint32_t panels[] = {0, 6, 0, 0, 0};
  assert_int_equal(kiln_ctx_init(&cx, NULL), KILN_OK);
  assert_int_equal(kiln_program_parse(&cx, text, &p), KILN_OK);
  kiln_facts_note_constants(&cx, p, panels, &facts);
  kiln_text_init(&shown, &cx.perm);
  kiln_facts_print(&cx, p, &facts, "# ", &shown);
  assert_string_equal(shown.data, "# small A\n# panels 6 B\n");
  kiln_ctx_deinit(&cx);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_was_not_noted_is_zero),
      cmocka_unit_test(numbers_that_others_get_say_nothing_of_them),
      cmocka_unit_test(constants_are_small_by_their_data),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
