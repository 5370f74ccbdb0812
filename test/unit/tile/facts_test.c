// The table of facts: nothing is known of tensors that nobody noted anything of, nor of those whose
// numbers were given back.
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

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_was_not_noted_is_zero),
      cmocka_unit_test(numbers_that_others_get_say_nothing_of_them),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
