// Witnesses against a look at every point: random systems of conditions, as two accesses of a tile
// give them, and the rows that a search without proof must leave open.
#include "analysis/witness.h"

#include "unit/fixture.h"

enum { N_VARS = 4, N_RANDOM = 3000, BUDGET = 20000 };

static const char *const names[N_VARS] = {"a", "b", "c", "d"};

static const kiln_expr *parse(kiln_ctx *cx, const char *text) {
  static const kiln_expr_names none = {.bracket = '['};
  const kiln_expr *e = NULL;
  assert_int_equal(kiln_expr_parse(cx, &text, &none, &e), KILN_OK);
  return e;
}

static bool find(kiln_ctx *cx, const int *extents, int n, const char *const *texts, int budget) {
  kiln_symbol vars[N_VARS];
  const kiln_expr *sizes[N_VARS], *conds[N_VARS];
  for (int k = 0; k < N_VARS; k++) vars[k] = kiln_symbol_printf(cx, "%s", names[k]);
  for (int k = 0; k < N_VARS; k++) sizes[k] = kiln_int(cx, extents[k]);
  for (int i = 0; i < n; i++) conds[i] = parse(cx, texts[i]);
  return kiln_find_witness(cx, N_VARS, vars, sizes, n, conds, budget);
}

// --- random systems ---

// A condition `x/p%q*r + y  OP  z*s + w/t`, evaluated here by its numbers.
typedef struct condition {
  int vars[4], p, q, r, s, t;
  const char *op;
} condition;

static condition random_condition(uint64_t *seed) {
  static const char *const ops[] = {"==", "==", "!=", "<", "<="};
  condition c = {.op = ops[random_below(seed, KILN_LEN(ops))]};
  for (int i = 0; i < 4; i++) c.vars[i] = random_below(seed, N_VARS);
  c.p = 1 + random_below(seed, 4);
  c.q = 1 + random_below(seed, 5);
  c.r = 1 + random_below(seed, 9);
  c.s = 1 + random_below(seed, 9);
  c.t = 1 + random_below(seed, 4);
  return c;
}

static bool holds(const condition *c, const int *at) {
  const int x = at[c->vars[0]] / c->p % c->q * c->r + at[c->vars[1]],
            y = at[c->vars[2]] * c->s + at[c->vars[3]] / c->t;
  if (c->op[0] == '=') return x == y;
  if (c->op[0] == '!') return x != y;
  return c->op[1] ? x <= y : x < y;
}

static bool all_hold(int n, const condition *c, const int *at) {
  for (int i = 0; i < n; i++)
    if (!holds(&c[i], at)) return false;
  return true;
}

static bool has_point(const int *extents, int n, const condition *c) {
  int at[N_VARS];
  for (at[0] = 0; at[0] < extents[0]; at[0]++)
    for (at[1] = 0; at[1] < extents[1]; at[1]++)
      for (at[2] = 0; at[2] < extents[2]; at[2]++)
        for (at[3] = 0; at[3] < extents[3]; at[3]++)
          if (all_hold(n, c, at)) return true;
  return false;
}

static bool find_random(kiln_ctx *cx, const int *extents, int n, const condition *c) {
  char texts[3][64];
  const char *list[3];
  for (int i = 0; i < n; i++) {
    snprintf(texts[i], sizeof texts[i], "%s/%d%%%d*%d + %s %s %s*%d + %s/%d", names[c[i].vars[0]],
             c[i].p, c[i].q, c[i].r, names[c[i].vars[1]], c[i].op, names[c[i].vars[2]], c[i].s,
             names[c[i].vars[3]], c[i].t);
    list[i] = texts[i];
  }
  return find(cx, extents, n, list, BUDGET);
}

// In boxes that the budget exhausts the search is also complete.
static void a_witness_is_found_where_there_is_one(void **state) {
  fixture *f = *state;
  uint64_t seed = 7;
  int n_points = 0;
  for (int i = 0; i < N_RANDOM; i++) {
    int extents[N_VARS];
    condition c[3];
    for (int k = 0; k < N_VARS; k++) extents[k] = 1 + random_below(&seed, 6);
    const int n = 1 + random_below(&seed, 3);
    for (int k = 0; k < n; k++) c[k] = random_condition(&seed);
    const bool expected = has_point(extents, n, c);
    n_points += expected;
    if (find_random(&f->cx, extents, n, c) != expected) fail_msg("system %d: not %d", i, expected);
  }
  assert_in_range(n_points, N_RANDOM / 4, N_RANDOM - N_RANDOM / 20); // both answers are asked for
}

static const struct {
  const char *conds[3];
  int budget;
  bool found;
} rows[] = {
    {{"a == 15", "b == 15"}, BUDGET, true},
    {{"a == 15", "b == 15"}, 20, false},         // the budget is spent
    {{"a < b", "b < a"}, BUDGET, false},         // there is none
    {{"a % (b - b) == 1"}, BUDGET, false},       // x % 0 is 0
    {{"a*b == 77", "c*d == 143"}, BUDGET, true}, // not affine
    {{"max(a, b) == 3", "min(a, b) == 3", "!(c == d)"}, BUDGET, true},
};

static void rows_are_found_or_left_open(void **state) {
  fixture *f = *state;
  static const int extents[N_VARS] = {16, 16, 16, 16};
  for (size_t i = 0; i < KILN_LEN(rows); i++) {
    int n = 0;
    while (n < 3 && rows[i].conds[n]) n++;
    if (find(&f->cx, extents, n, rows[i].conds, rows[i].budget) != rows[i].found)
      fail_msg("row %zu: not %d", i, rows[i].found);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      FIXTURE_TEST(a_witness_is_found_where_there_is_one),
      FIXTURE_TEST(rows_are_found_or_left_open),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
