// skip: iterations of an online softmax whose scores are all masked are left out, and no others;
// reverse: iterations that need nothing of each other run in the opposite order.
#include "unit/schedule/table.h"

// Rows by 2 (loop t), keys by 2 (loop n). |mask| is of the row t*2 + i and the key n*2 + j.
#define HEAD                                                                                       \
  "kernel s { param f32 X[8, 8]:(8, 1) param f32 M[8]:(1) param f32 S[8]:(1) "                     \
  "local f32 D[2, 2]:(2, 1) local f32 Z[2, 2]:(2, 1) local f32 b[2]:(1) local f32 h[2]:(1) "       \
  "local f32 c[2]:(1) local f32 w[2, 2]:(2, 1) for t:4 { "
#define BODY(n, z)                                                                                 \
  "alloc D { alloc Z { alloc b { alloc h { alloc c { alloc w { "                                   \
  "for di:2 { for dj:2 { D[di, dj] = X[t*2 + di, " n " + dj] } } "                                 \
  "for zi:2 { for zj:2 { Z[zi, zj] = " z " } } "                                                   \
  "for bi:2 { b[bi] = M[t*2 + bi] } "                                                              \
  "for mi:2 { for mj:2 { M[t*2 + mi] max= Z[mi, mj] } } "                                          \
  "for hi:2 { h[hi] = M[t*2 + hi] == -inff32 ? 0f32 : M[t*2 + hi] } "                              \
  "for ci:2 { c[ci] = exp(b[ci] - h[ci]) } "                                                       \
  "for ri:2 { S[t*2 + ri] = S[t*2 + ri]*c[ri] } "                                                  \
  "for wi:2 { for wj:2 { w[wi, wj] = exp(Z[wi, wj] - h[wi]) } } "                                  \
  "for si:2 { for sj:2 { S[t*2 + si] += w[si, sj]*X[t*2 + si, " n " + sj] } } "                    \
  "} } } } } } "
#define TAIL "} } }"
#define MASKED(low) BODY("n*2", "n*2 + zj <= t*2 + zi ? D[zi, zj] : " low)
#define KERNEL(extent, body) HEAD "for n:" extent " { " body TAIL
#define FROM "n*2 + max(t - 1, 0)*2"

#define CHANGES(name)                                                                              \
  "schedule: skip n: error: iterations that are left out must change nothing, got one that "       \
  "changes buffer " name ": its scores must all be masked, by conditions on loops"

static const table_row rows[] = {
    {KERNEL("4", MASKED("-inff32")), "skip n from 0 to t + 1", KERNEL("t + 1", MASKED("-inff32")),
     NULL},
    // one chunk too few
    {KERNEL("4", MASKED("-inff32")), "skip n from 0 to max(t, 1)", NULL, CHANGES("M")},
    {KERNEL("4", MASKED("-inff32")), "skip n from 1 to 4", NULL,
     "schedule: skip n: error: iterations that are left out must change nothing, got one that "
     "changes buffer M: its scores must all be masked, by conditions on loops"},
    {KERNEL("4", MASKED("-inff32")), "skip n from 0 to t + 2", NULL,
     "schedule: skip n: error: bounds must leave iterations in [0, 4), got [0, 5)"},
    {KERNEL("4", MASKED("-inff32")), "skip n from t to t", NULL,
     "schedule: skip n: error: bounds must leave iterations in [0, 4), got [0, 0)"},
    {KERNEL("4", MASKED("-inff32")), "skip n from 0 to zi", NULL,
     "schedule: skip n: error: a bound must be of at most 4 loops around the loop, got zi"},
    {KERNEL("4", MASKED("-inff32")), "skip n to 3", NULL,
     "schedule: line 1: error: skip: must be \"skip LOOP from FIRST to END\", got 4 words"},
    // the lowest number: each row keeps key 0; a number that scores may reach is no mask
    {KERNEL("4", MASKED("-3e+38f32")), "skip n from 0 to t + 1",
     KERNEL("t + 1", MASKED("-3e+38f32")), NULL},
    {KERNEL("4", MASKED("-10000f32")), "skip n from 0 to t + 1", NULL, CHANGES("M")},
    // a window: what is masked comes first, too
    {KERNEL("4", BODY("n*2", "n*2 + zj <= t*2 + zi && n*2 + zj >= t*2 + zi - 1 ? D[zi, zj] : "
                             "-inff32")),
     "skip n from max(t - 1, 0) to t + 1",
     KERNEL("t - max(t - 1, 0) + 1", BODY(FROM, FROM " + zj <= t*2 + zi && t*2 + zi < " FROM
                                                     " + zj + 2 ? D[zi, zj] : -inff32")),
     NULL},
    // a sum of which the weights are no factor
    {HEAD "for n:4 { for i:2 { S[t*2 + i] += X[t*2 + i, n] } } } }", "skip n from 0 to 2", NULL,
     "schedule: skip n: error: loop n must look for a maximum: online_softmax first"},
    {"kernel r { param f32 A[4]:(1) param f32 B[4]:(1) for i:4 { B[i] = A[i] } }", "reverse i",
     "kernel r { param f32 A[4]:(1) param f32 B[4]:(1) for i:4 { B[3 - i] = A[3 - i] } }", NULL},
};

static void what_is_masked_is_left_out(void **state) {
  (void)state;
  for (size_t row = 0; row < KILN_LEN(rows); row++) table_run(&rows[row]);
}

static void an_order_that_matters_stays(void **state) {
  (void)state;
  kiln_ctx cx;
  kiln_diag *diag = kiln_diag_create();
  assert_int_equal(kiln_ctx_init(&cx, diag), KILN_OK);
  kiln_schedule s = {.cx = &cx,
                     .prog = kiln_program_make(&cx, "k"),
                     .loops = loops_parse(&cx, "kernel r { param f32 A[5]:(1) for i:4 { A[i + 1] = "
                                               "A[i] } }")};
  kiln_text_init(&s.script, &cx.perm);
  assert_int_equal(kiln_schedule_replay(&s, "reverse i"), KILN_BAD_INPUT);
  kiln_ctx_deinit(&cx);
  kiln_diag_destroy(diag);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_masked_is_left_out),
                                     cmocka_unit_test(an_order_that_matters_stays)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
