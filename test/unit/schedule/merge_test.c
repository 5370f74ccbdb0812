// merge: two loops become one, the second some iterations behind; and refusals.
#include "unit/schedule/table.h"

#define CHAIN                                                                                      \
  "kernel k { param f32 X[12]:(1) workspace f32 B[10]:(1) param f32 Y[8]:(1) "                     \
  "for i:10 { B[i] = X[i] + X[i + 2] } for j:8 { Y[j] = B[j] + B[j + 2] } }"
#define CHAIN_PARAMS "kernel k { param f32 X[12]:(1) workspace f32 B[10]:(1) param f32 Y[8]:(1) "
#define SUM                                                                                        \
  "kernel s { param f32 X[6, 5]:(5, 1) param f32 S[6]:(1) for i:6 { S[i] = 0f32 } "                \
  "for j:6 { for r:5 { S[j] += X[j, r] } } }"
#define THREE                                                                                      \
  "kernel t { param f32 X[9]:(1) workspace f32 A[9]:(1) param f32 B[9]:(1) param f32 C[9]:(1) "    \
  "for i:9 { A[i] = X[i] } for j:9 { B[j] = A[j] } for k:9 { C[k] = A[k] + 1f32 } }"

static const table_row rows[] = {
    {SUM, "merge i j",
     "kernel s { param f32 X[6, 5]:(5, 1) param f32 S[6]:(1) "
     "for i:6 { S[i] = 0f32 for r:5 { S[i] += X[i, r] } } }",
     NULL},
    // a stencil's consumer runs two iterations behind
    {CHAIN, "merge i j 2",
     CHAIN_PARAMS "for i:10 { B[i] = X[i] + X[i + 2] if i >= 2 { Y[i - 2] = B[i - 2] + B[i] } } }",
     NULL},
    // a larger shift than necessary, past the end of the first loop
    {CHAIN, "merge i j 3",
     CHAIN_PARAMS "for i:11 { if i < 10 { B[i] = X[i] + X[i + 2] } if i >= 3 { Y[i - 3] = B[i - 3] "
                  "+ B[i - 1] } } }",
     NULL},
    // under the second one's name
    {SUM, "merge i j 0 second",
     "kernel s { param f32 X[6, 5]:(5, 1) param f32 S[6]:(1) "
     "for j:6 { S[j] = 0f32 for r:5 { S[j] += X[j, r] } } }",
     NULL},
    {CHAIN, "merge i j 2 second",
     CHAIN_PARAMS "for j:10 { B[j] = X[j] + X[j + 2] if j >= 2 { Y[j - 2] = B[j - 2] + B[j] } } }",
     NULL},
    // an independent statement between the loops moves behind both
    {THREE, "merge i k",
     "kernel t { param f32 X[9]:(1) workspace f32 A[9]:(1) param f32 B[9]:(1) param f32 C[9]:(1) "
     "for i:9 { A[i] = X[i] C[i] = A[i] + 1f32 } for j:9 { B[j] = A[j] } }",
     NULL},
    // inner loops, once they are siblings
    {"kernel n { param f32 X[4, 5]:(5, 1) param f32 A[4, 5]:(5, 1) param f32 B[4, 3]:(3, 1) "
     "for i:4 { for j:5 { A[i, j] = X[i, j] } } for k:4 { for l:3 { B[k, l] = A[k, l] } } }",
     "merge i k\nmerge j l",
     "kernel n { param f32 X[4, 5]:(5, 1) param f32 A[4, 5]:(5, 1) param f32 B[4, 3]:(3, 1) "
     "for i:4 { for j:5 { A[i, j] = X[i, j] if j < 3 { B[i, j] = A[i, j] } } } }",
     NULL},
    {CHAIN, "merge j i", NULL,
     "schedule: merge j: error: loop i must stand behind loop j in the same body, got it before "
     "that: name the one that stands first"},
    {"kernel n { param f32 X[4, 5]:(5, 1) param f32 A[4, 5]:(5, 1) param f32 B[4, 3]:(3, 1) "
     "for i:4 { for j:5 { A[i, j] = X[i, j] } } for k:4 { for l:3 { B[k, l] = A[k, l] } } }",
     "merge j l", NULL,
     "schedule: merge j: error: loop l must stand behind loop j in the same body: merge i k "
     "before"},
    // loops in the guard of an earlier shift: merging others does not help
    {"kernel n { param f32 X[4, 5]:(5, 1) param f32 A[4, 5]:(5, 1) param f32 B[3, 5]:(5, 1) "
     "for i:4 { for j:5 { A[i, j] = X[i, j] } if i >= 1 { for l:5 { B[i - 1, l] = A[i, l] } } } }",
     "merge j l", NULL,
     "schedule: merge j: error: loop l must stand behind loop j in the same body, got one in a "
     "condition"},
    {"kernel n { param f32 A[5]:(1) param f32 B[4, 5]:(5, 1) "
     "for j:5 { A[j] = 0f32 } for k:4 { for l:5 { B[k, l] = 1f32 } } }",
     "merge j l", NULL,
     "schedule: merge j: error: loop l must stand behind loop j in the same body, got one further "
     "inside"},
    {CHAIN, "merge i i", NULL,
     "schedule: merge i: error: loop i must stand behind loop i in the same body, got one in the "
     "other"},
    {CHAIN, "merge i j -1", NULL, "schedule: merge i: error: shift must be 0 or positive, got -1"},
    {CHAIN, "merge i k", NULL,
     "schedule: merge i: error: loop must be one of the kernel's, got \"k\""},
    {"kernel b { param f32 X[4]:(1) workspace f32 A[4]:(1) workspace f32 B[4]:(1) param f32 "
     "C[4]:(1) "
     "for i:4 { A[i] = X[i] } for j:4 { B[j] = A[j] } for k:4 { C[k] = B[k] + A[k] } }",
     "merge i k", NULL,
     "schedule: merge i: error: statements between loops i and k must be independent of the order, "
     "got one that shares buffer B with the second: merge that before"},
};

static void merge_keeps_the_meaning_or_says_why_not(void **state) {
  (void)state;
  for (size_t i = 0; i < KILN_LEN(rows); i++) table_run(&rows[i]);
}

// A refusal names the least legal shift, and merging with it succeeds.
static void a_refused_merge_is_legal_with_more_shift(void **state) {
  (void)state;
  static const struct {
    const char *merge;
    bool legal;
  } tries[] = {{"merge B.i0 Y.i0", false},
               {"merge B.i0 Y.i0 1", false},
               {"merge B.i0 Y.i0 2", true},
               {"merge B.i0 Y.i0 5", true}};
  for (size_t i = 0; i < KILN_LEN(tries); i++) {
    test_kernel k;
    kiln_schedule s;
    kernel_open(&k,
                "p { in f32 X(40) temp f32 B(38) out f32 Y(36) B(i0:38) = X(i0) + X(i0 + 2) "
                "Y(i0:36) = B(i0) + B(i0 + 2) }",
                i);
    assert_int_equal(kiln_schedule_begin(&k.cx, k.prog, &s), KILN_OK);
    const kiln_status st = kiln_schedule_replay(&s, tries[i].merge);
    if ((st == KILN_OK) != tries[i].legal) fail_msg("%s: %s", tries[i].merge, kernel_message(&k));
    kernel_check(&k, s.loops, tries[i].merge);
    if (st == KILN_OK) kernel_check_replay(&k, &s);
    kernel_close(&k);
  }
}

// The number of expressions made by merging |n| nests into the last: a kernel of n results.
static uint32_t expressions_of(int n) {
  kiln_ctx cx;
  kiln_diag *diag = kiln_diag_create();
  kiln_text text, script;
  assert_int_equal(kiln_ctx_init(&cx, diag), KILN_OK);
  kiln_text_init(&text, &cx.perm);
  kiln_text_init(&script, &cx.perm);
  kiln_text_add(&text, "kernel k { param f32 X[4, 5]:(5, 1) ");
  for (int k = 0; k < n; k++) kiln_text_printf(&text, "param f32 Z%d[4, 5]:(5, 1) ", k);
  for (int k = 0; k < n; k++)
    kiln_text_printf(&text, "for r%d:4 { for c%d:5 { Z%d[r%d, c%d] = X[r%d, c%d] + %df32 } } ", k,
                     k, k, k, k, k, k, k + 1);
  kiln_text_add(&text, "}");
  for (int k = n - 2; k >= 0; k--)
    kiln_text_printf(&script, "merge r%d r%d 0 second\nmerge c%d c%d 0 second\n", k, n - 1, k,
                     n - 1);
  kiln_schedule s = {
      .cx = &cx, .prog = kiln_program_make(&cx, "k"), .loops = loops_parse(&cx, text.data)};
  kiln_text_init(&s.script, &cx.perm);
  const uint32_t before = kiln_var(&cx, kiln_symbol_of(&cx, "before"))->id;
  if (kiln_schedule_replay(&s, script.data) != KILN_OK) fail_msg("%s", kiln_diag_message(diag, 0));
  assert_null(s.loops->body->next);
  const uint32_t made = kiln_var(&cx, kiln_symbol_of(&cx, "after"))->id - before;
  kiln_ctx_deinit(&cx);
  kiln_diag_destroy(diag);
  return made;
}

static void merging_into_the_last_takes_work_in_proportion(void **state) {
  (void)state;
  const uint32_t few = expressions_of(10), many = expressions_of(40);
  if (many > 5 * few) fail_msg("%u expressions for 10 nests, %u for 40", few, many);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(merge_keeps_the_meaning_or_says_why_not),
      cmocka_unit_test(a_refused_merge_is_legal_with_more_shift),
      cmocka_unit_test(merging_into_the_last_takes_work_in_proportion),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
