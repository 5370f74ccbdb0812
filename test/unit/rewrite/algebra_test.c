// What the rules of linear algebra save.
#include "unit/rewrite/algebra.h"

static int64_t products(const kiln_program *p) {
  int64_t n = 0, extent = 0;
  for (int i = 0; i < p->stmts.n; i++) {
    const kiln_stmt *s = p->stmts.data[i];
    int64_t domain = s->n_reduce > 0;
    for (int d = 0; d < s->n_space + s->n_reduce; d++)
      domain *= kiln_expr_is_int(s->dims[d].extent, &extent) ? extent : 0;
    n += domain;
  }
  return n;
}

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
