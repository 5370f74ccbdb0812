// Dependences: accesses of two statements, the smallest instances that conflict, and undecided
// queries.
#include "analysis/dependence.h"

#include "unit/loops.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

typedef struct bench {
  kiln_ctx cx;
  kiln_diag *diag;
  kiln_loops *l;
  kiln_dependence_accesses touches; // to buffer 0
} bench;

static void open_bench(bench *b, const char *text) {
  b->diag = kiln_diag_create();
  assert_int_equal(kiln_ctx_init(&b->cx, b->diag), KILN_OK);
  b->l = loops_parse(&b->cx, text);
  b->touches = kiln_dependence_accesses_of(&b->cx, b->l, 0);
}

static void close_bench(bench *b) {
  kiln_ctx_deinit(&b->cx);
  kiln_diag_destroy(b->diag);
}

// |a| and |b| are indices of accesses to buffer 0; |order| is over the loops of |a| and, primed, of
// |b|.
typedef struct row {
  const char *loops;
  int a, b, n_shared;
  const char *order;
  kiln_dependence_verdict verdict;
  int64_t at_a[2], at_b[2], element; // of the witness, in the loops around
} row;

static const row rows[] = {
    {"kernel k { param f32 A[9]:(1) for i:8 { A[i + 1] = A[i] } }",
     1,
     0,
     0,
     "i < \"i'\"",
     KILN_MEETS,
     {0},
     {1},
     1},
    {"kernel k { param f32 A[9]:(1) for i:8 { A[i + 1] = A[i] } }",
     0,
     1,
     0,
     "i < \"i'\"",
     KILN_NEVER,
     {0},
     {0},
     0},
    {"kernel k { param f32 A[9]:(1) for i:4 { A[2*i + 1] = A[2*i] } }",
     1,
     0,
     0,
     NULL,
     KILN_NEVER,
     {0},
     {0},
     0},
    {"kernel k { param f32 A[64]:(1) for i:32 { A[i / 8 * 8 + (i + 3) % 8] = A[i] } }",
     1,
     0,
     0,
     "i < \"i'\"",
     KILN_MEETS,
     {0},
     {3},
     3},
    {"kernel k { param f32 A[9]:(1) for t:3 { for i:3 { if i == 2 { A[i] = A[t] } } } }",
     1,
     0,
     1,
     NULL,
     KILN_MEETS,
     {2, 2},
     {2, 2},
     2},
    {"kernel k { param f32 A[9]:(1) for i:8 { A[i] = i < 7 ? 0f32 : A[8] } }",
     1,
     0,
     0,
     NULL,
     KILN_NEVER,
     {0},
     {0},
     0},
    {"kernel k { param f32 A[9]:(1) param i64 I[8]:(1) for i:8 { A[I[i]] = A[i] } }",
     1,
     0,
     0,
     "i < \"i'\"",
     KILN_MAY_MEET,
     {0},
     {1},
     0},
    {"kernel k { param f32 A[9]:(1) param i64 I[8]:(1) for i:8 { if I[i] > 0 { A[i] = A[i + 1] } } "
     "}",
     0,
     1,
     0,
     "i > \"i'\"",
     KILN_NEVER,
     {0},
     {0},
     0},
};

static const kiln_expr *parse(bench *b, const char *text) {
  static const kiln_expr_names none = {.bracket = '['};
  const kiln_expr *e = NULL;
  assert_int_equal(kiln_expr_parse(&b->cx, &text, &none, &e), KILN_OK);
  return e;
}

static void instances_meet_where_they_must(void **state) {
  (void)state;
  for (size_t i = 0; i < KILN_LEN(rows); i++) {
    const row *r = &rows[i];
    bench b;
    kiln_polyhedra p;
    kiln_dependence_witness m;
    open_bench(&b, r->loops);
    const kiln_access_pair pair = {&b.touches.data[r->a], &b.touches.data[r->b], r->n_shared};
    const kiln_expr *order = r->order ? parse(&b, r->order) : NULL;
    kiln_polyhedra_init(&b.cx, KILN_POLYHEDRA_BUDGET, &p);
    kiln_access_pair_witness(&p, &pair, order != NULL, &order, &m);
    kiln_polyhedra_deinit(&p);
    for (int again = 0; again < 2; again++)
      if (kiln_access_pair_verdict(&b.cx, &pair, order != NULL, &order) != m.verdict)
        fail_msg("row %zu: another verdict without a witness", i);
    if (m.verdict != r->verdict) fail_msg("row %zu: verdict %d", i, (int)m.verdict);
    for (int k = 0; k < 2 && m.verdict != KILN_NEVER; k++) {
      if (k < pair.a->n_loops) assert_int_equal(m.a[k], r->at_a[k]);
      if (k < pair.b->n_loops) assert_int_equal(m.b[k], r->at_b[k]);
    }
    assert_true(m.is_known[0] == (r->verdict == KILN_MEETS));
    if (r->verdict == KILN_MEETS) assert_int_equal(m.element[0], r->element);
    close_bench(&b);
  }
}

// Loads come before the store of their statement; a branch is a condition of its loads.
static void touches_stand_in_the_order_of_the_text(void **state) {
  (void)state;
  bench b;
  open_bench(&b, "kernel k { param f32 A[9]:(1) param f32 S[1]:(1) "
                 "for i:8 { S[0] += i < 3 ? A[i] : A[8 - i] A[i] max= 1f32 } }");
  assert_int_equal(b.touches.n, 3);
  for (int i = 0; i < 3; i++) {
    assert_int_equal(b.touches.data[i].write, i == 2);
    assert_int_equal(b.touches.data[i].n_conds, i < 2);
    assert_int_equal(kiln_dependence_access_depth(&b.touches.data[i], kiln_symbol_of(&b.cx, "i")),
                     0);
    assert_int_equal(kiln_dependence_access_depth(&b.touches.data[i], kiln_symbol_of(&b.cx, "j")),
                     -1);
  }
  assert_int_equal(b.touches.data[2].combiner, KILN_COMBINE_MAX);
  close_bench(&b);
}

// A budget that is too small makes a query undecided, never wrong.
static void a_spent_budget_decides_nothing(void **state) {
  (void)state;
  bench b;
  kiln_polyhedra p;
  kiln_dependence_witness m;
  open_bench(&b, rows[3].loops);
  const kiln_access_pair pair = {&b.touches.data[1], &b.touches.data[0], 0};
  kiln_polyhedra_init(&b.cx, 1, &p);
  kiln_access_pair_witness(&p, &pair, 0, NULL, &m);
  assert_true(kiln_polyhedra_failed(&p));
  kiln_polyhedra_deinit(&p);
  assert_int_equal(m.verdict, KILN_UNDECIDED);
  close_bench(&b);
}

static void the_farthest_distance_is_found(void **state) {
  (void)state;
  bench b;
  kiln_polyhedra p;
  int64_t most = 0;
  open_bench(&b, "kernel k { param f32 A[9]:(1) param f32 B[9]:(1) "
                 "for i:9 { A[i] = 1f32 } for j:7 { B[j] = A[j] + A[j + 2] } }");
  const kiln_expr *ahead = parse(&b, "i - \"j'\"");
  kiln_polyhedra_init(&b.cx, KILN_POLYHEDRA_BUDGET, &p);
  for (int i = 1; i < 3; i++) {
    const kiln_access_pair pair = {&b.touches.data[0], &b.touches.data[i], 0};
    assert_true(kiln_access_pair_max(&p, &pair, ahead, &most));
    assert_int_equal(most, i == 1 ? 0 : 2);
  }
  kiln_polyhedra_deinit(&p);
  close_bench(&b);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(instances_meet_where_they_must),
      cmocka_unit_test(touches_stand_in_the_order_of_the_text),
      cmocka_unit_test(a_spent_budget_decides_nothing),
      cmocka_unit_test(the_farthest_distance_is_found),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
