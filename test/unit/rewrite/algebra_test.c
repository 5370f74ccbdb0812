// Multiplications saved by the rules of linear algebra.
#include "unit/rewrite/algebra.h"
#include "unit/rewrite/products.h"

static void there_are_fewer_multiplications(void **state) {
  fixture *f = *state;
  kiln_program *p = random_program(f, reassociate[0].text, 1),
               *heads = random_program(f, reassociate[2].text, 1);
  assert_int_equal(products(p), 12 * 12 * (2 + 3));
  run_rule(f, p, "reassociate");
  assert_int_equal(products(p), 2 * 12 * 3 + 12 * 2 * 3);
  assert_int_equal(products(heads), 2 * 12 * 12 * (2 + 3));
  run_rule(f, heads, "reassociate");
  assert_int_equal(products(heads), 2 * 2 * 3 * 12 + 12 * 3 * 2 * 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {FIXTURE_TEST(there_are_fewer_multiplications)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
