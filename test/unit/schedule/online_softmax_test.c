// online_softmax: sums weighted by exp(x - M) share a loop with the maximum M; the results where x
// is -inf, infinite, large or NaN; and refusals.
#include "unit/schedule/table.h"

#define HEAD                                                                                       \
  "kernel s { param f32 X[2, 8]:(8, 1) workspace f32 M[2]:(1) param f32 S[2]:(1) "                 \
  "for a:2 { M[a] = -inff32 } for b:2 { S[b] = 0f32 } "
#define MAXIMA "for n:4 { for i:2 { for j:2 { M[i] max= X[i, n*2 + j] } } } "
#define SUMS "for m:4 { for k:2 { for l:2 { S[k] += exp(X[k, m*2 + l] - M[k]) } } } "

#define COPIES                                                                                     \
  "kernel s { param f32 X[8]:(1) workspace f32 M[2]:(1) param f32 S[2]:(1) "                       \
  "for a:2 { M[a] = -inff32 } for b:2 { S[b] = 0f32 } "                                            \
  "for n:4 { for j:2 { for i:2 { M[i] max= X[n*2 + j] } } } "                                      \
  "for m:4 { for l:2 { for k:2 { S[k] += "
#define COPIES_END " } } } }"

static const table_row rows[] = {
    // one chunk: nothing is rescaled
    {"kernel s { param f32 X[4]:(1) workspace f32 M[1]:(1) param f32 S[1]:(1) for a:1 { M[0] = "
     "-inff32 } for b:1 { S[0] = 0f32 } for n:1 { for j:4 { M[0] max= X[n*4 + j] } } "
     "for m:1 { for l:4 { S[0] += exp(X[m*4 + l] - M[0]) } } }",
     "online_softmax w n m",
     "kernel s { param f32 X[4]:(1) workspace f32 M[1]:(1) param f32 S[1]:(1) "
     "local f32 w.shift[1]:(1) local f32 w[4]:(1) "
     "for a:1 { M[0] = -inff32 } for b:1 { S[0] = 0f32 } for n:1 { alloc w.shift { alloc w { "
     "for j:4 { M[0] max= X[j] } for w.shift.0:1 { w.shift[0] = M[0] == -inff32 ? 0f32 : M[0] } "
     "for w.0:4 { w[w.0] = exp(X[w.0] - w.shift[0]) } for l:4 { S[0] += w[l] } } } } "
     "for S.end.0:1 { S[0] = M[0] == -inff32 ? nanf32 : S[0] } }",
     NULL},
    // weights that would be subnormal are 0, and none is computed
    {"kernel s { param f32 X[4]:(1) workspace f32 M[1]:(1) param f32 S[1]:(1) for a:1 { M[0] = "
     "-inff32 } for b:1 { S[0] = 0f32 } for n:1 { for j:4 { M[0] max= X[n*4 + j] } } "
     "for m:1 { for l:4 { S[0] += exp(X[m*4 + l] - M[0]) } } }",
     "stream w n m flush",
     "kernel s { param f32 X[4]:(1) workspace f32 M[1]:(1) param f32 S[1]:(1) "
     "local f32 w.shift[1]:(1) local f32 w[4]:(1) "
     "for a:1 { M[0] = -inff32 } for b:1 { S[0] = 0f32 } for n:1 { alloc w.shift { alloc w { "
     "for j:4 { M[0] max= X[j] } for w.shift.0:1 { w.shift[0] = M[0] == -inff32 ? 0f32 : M[0] } "
     "for w.0:4 { w[w.0] = X[w.0] - w.shift[0] < -87.33654f32 ? 0f32 : "
     "exp(max(X[w.0] - w.shift[0], -87.33654f32)) } for l:4 { S[0] += w[l] } } } } "
     "for S.end.0:1 { S[0] = M[0] == -inff32 ? nanf32 : S[0] } }",
     NULL},
    {HEAD MAXIMA "for m:4 { for k:2 { for l:2 { S[k] += pow(2f32, X[k, m*2 + l] - M[k]) } } } }",
     "online_softmax w n m flush", NULL,
     "schedule: online_softmax w: error: weights to be flushed must be powers of e in f32 or f64"},
    // rounded weights, with the maximum's copy
    {COPIES "f32(f16(exp(X[m*2 + l] - M[k])))" COPIES_END, "online_softmax w n m copy 1 - w.0",
     "kernel s { param f32 X[8]:(1) workspace f32 M[2]:(1) param f32 S[2]:(1) "
     "local f32 w.before[2]:(1) local f32 w.shift[2]:(1) local f32 w.scale[2]:(1) "
     "local f16 w[2]:(1) for a:2 { M[a] = -inff32 } for b:2 { S[b] = 0f32 } for n:4 { "
     "alloc w.before { alloc w.shift { alloc w.scale { alloc w { "
     "for w.before.0:2 { w.before[w.before.0] = M[w.before.0] } "
     "for j:2 { for i:2 { M[i] max= X[n*2 + j] } } "
     "for w.shift.0:2 { w.shift[w.shift.0] = M[w.shift.0] == -inff32 ? 0f32 : M[w.shift.0] } "
     "for w.scale.0:2 { w.scale[w.scale.0] = exp(w.before[w.scale.0] - w.shift[w.scale.0]) } "
     "for S.scale.0:2 { S[S.scale.0] = S[S.scale.0]*w.scale[S.scale.0] } "
     "for w.0:2 { w[w.0] = f16(exp(X[n*2 + w.0] - w.shift[1 - w.0])) } "
     "for l:2 { for k:2 { S[k] += f32(w[l]) } } } } } } } "
     "for S.end.0:2 { S[S.end.0] = M[S.end.0] == -inff32 ? nanf32 : S[S.end.0] } }",
     NULL},
    {COPIES "exp(X[m*2 + l] - M[k])" COPIES_END, "online_softmax w n m copy w.0 + 1", NULL,
     "schedule: online_softmax w: error: the copy must be in [0, 2) and of loops w.K, got \"w.0 + "
     "1\""},
    {COPIES "exp(X[m*2 + l] - M[k])" COPIES_END, "online_softmax w n m copy m % 2", NULL,
     "schedule: online_softmax w: error: the copy must be in [0, 2) and of loops w.K, got \"m % "
     "2\""},
    {HEAD MAXIMA SUMS "}", "online_softmax w n m copy 0", NULL,
     "schedule: online_softmax w: error: the maximum must have copies, got none"},
    {HEAD MAXIMA SUMS "}", "online_softmax w m n", NULL,
     "schedule: online_softmax w: error: loop n must stand behind loop m in the same body"},
    {HEAD MAXIMA SUMS "}", "online_softmax w n", NULL,
     "schedule: line 1: error: online_softmax: must be \"online_softmax "
     "NAME LOOP LOOP... [flush] [copy EXPRESSION]\", got 3 words"},
    {HEAD MAXIMA SUMS "}", "online_softmax w i k", NULL,
     "schedule: online_softmax w: error: loop i must be a reduction loop, got one that indexes "
     "buffer M"},
    {HEAD MAXIMA SUMS "}", "online_softmax X n m", NULL,
     "schedule: online_softmax X: error: name of a new buffer must be free, got \"X\""},
    // chunks of different lengths
    {HEAD MAXIMA "for m:2 { for k:2 { for l:4 { S[k] += exp(X[k, m*4 + l] - M[k]) } } } }",
     "online_softmax w n m", NULL,
     "schedule: online_softmax w: error: loops must have one extent, got 4 of n and 2 of m"},
    // nothing moves
    {HEAD MAXIMA "for m:4 { for k:2 { for l:2 { S[k] += X[k, m*2 + l] } } } }",
     "online_softmax w n m", NULL,
     "schedule: online_softmax w: error: a sum must be weighted by exp(x - M), M being the maximum "
     "that "
     "one "
     "of the loops looks for, got none: merge the loops"},
    // dependence through another function, which no factor corrects
    {HEAD MAXIMA "for m:4 { for k:2 { for l:2 { S[k] += X[k, m*2 + l] - M[k] } } } }",
     "online_softmax w n m", NULL,
     "schedule: online_softmax w: error: the terms of buffer S must depend on results of the other "
     "loops only through exp(x - M), M being the maximum of x, or through factors of the whole "
     "sum"},
    {HEAD MAXIMA "for m:4 { for k:2 { for l:2 { S[k] max= exp(X[k, m*2 + l] - M[k]) } } } }",
     "online_softmax w n m", NULL,
     "schedule: online_softmax w: error: the terms of buffer S must depend on results of the other "
     "loops only through exp(x - M), M being the maximum of x, or through factors of the whole "
     "sum"},
    // weights of other values than the maximum's, of another row, or of more rows
    {HEAD MAXIMA "for m:4 { for k:2 { for l:2 { S[k] += exp(X[k, m*2 + l]*2f32 - M[k]) } } } }",
     "online_softmax w n m", NULL,
     "schedule: online_softmax w: error: the weights of buffer S, exp(x - M), must be of all x of "
     "which buffer M is the maximum"},
    {HEAD MAXIMA "for m:4 { for k:2 { for l:2 { S[k] += exp(X[1 - k, m*2 + l] - M[k]) } } } }",
     "online_softmax w n m", NULL,
     "schedule: online_softmax w: error: the weights of buffer S, exp(x - M), must be of all x of "
     "which buffer M is the maximum"},
    {HEAD "for n:4 { for i:2 { for j:2 { if n*2 + j < 7 { M[i] max= X[i, n*2 + j] } } } } " SUMS
          "}",
     "online_softmax w n m", NULL,
     "schedule: online_softmax w: error: the weights of buffer S, exp(x - M), must be of all x of "
     "which buffer M is the maximum"},
    // a sum with an initial value, or initialised elsewhere
    {"kernel s { param f32 X[2, 8]:(8, 1) workspace f32 M[2]:(1) param f32 S[2]:(1) "
     "for a:2 { M[a] = -inff32 } for b:2 { S[b] = 1f32 } " MAXIMA SUMS "}",
     "online_softmax w n m", NULL,
     "schedule: online_softmax w: error: buffer S must be set to 0 before loop m, all of it and by "
     "one "
     "nest "
     "in the same body: compute_at or decompose_reduction before"},
    {"kernel s { param f32 X[2, 8]:(8, 1) workspace f32 M[2]:(1) param f32 S[2]:(1) "
     "for a:2 { M[a] = -inff32 } " MAXIMA SUMS "}",
     "online_softmax w n m", NULL,
     "schedule: online_softmax w: error: buffer S must be set to 0 before loop m, all of it and by "
     "one "
     "nest "
     "in the same body: compute_at or decompose_reduction before"},
    // part of the buffer only
    {"kernel s { param f32 X[3, 8]:(8, 1) workspace f32 M[3]:(1) param f32 S[3]:(1) "
     "for a:3 { M[a] = -inff32 } for b:3 { S[b] = 0f32 } " MAXIMA SUMS "}",
     "online_softmax w n m", NULL,
     "schedule: online_softmax w: error: axis 0 of buffer M must be the index of one loop in loop "
     "n, over "
     "all "
     "of it: compute_at the buffer where the loop is, and online_softmax before splitting its "
     "loops"},
    // some rows have no summand
    {HEAD "for n:4 { for i:2 { for j:2 { if n*2 + j < i { M[i] max= X[i, n*2 + j] } } } } " SUMS
          "}",
     "online_softmax w n m", NULL,
     "schedule: online_softmax w: error: conditions in loop n must be about the loops that reduce "
     "alone, "
     "and "
     "hold where they begin"},
    // two reductions in one loop
    {HEAD "for n:4 { for i:2 { for j:2 { M[i] max= X[i, n*2 + j] S[i] += 1f32 } } } " SUMS "}",
     "online_softmax w n m", NULL,
     "schedule: online_softmax w: error: loop n must hold one reduction and nothing else"},
    // a statement between reads the sum's input
    {HEAD MAXIMA "for c:2 { X[c, 0] = 1f32 } " SUMS "}", "online_softmax w n m", NULL,
     "schedule: online_softmax w: error: statements between loops n and m must be independent of "
     "the order, got one that shares a buffer with the second"},
};

static void online_softmax_makes_the_loops_or_says_why_not(void **state) {
  (void)state;
  for (size_t i = 0; i < KILN_LEN(rows); i++) table_run(&rows[i]);
}

// Masked, large, infinite and NaN scores, by row: the results equal the reference's where those are
// finite, and are NaN where they are.
#define ATTENTION(score)                                                                           \
  "attention { in f32 X(9, 12) in f32 V(12, 5) temp f32 Z(9, 12) temp f32 M(9) temp f32 E(9, 12) " \
  "temp f32 S(9) temp f32 P(9, 12) temp f32 Y(9, 5) out f32 O(9, 5) "                              \
  "Z(i0:9, i1:12) = " score " M(i0:9 | r0:12) max=! Z(i0, r0) "                                    \
  "E(i0:9, i1:12) = exp(Z(i0, i1) - M(i0)) S(i0:9 | r0:12) +=! E(i0, r0) "                         \
  "P(i0:9, i1:12) = E(i0, i1) / S(i0) Y(i0:9, i1:5 | r0:12) +=! P(i0, r0) * V(r0, i1) "            \
  "O(i0:9, i1:5) = Y(i0, i1) + 1f32 }"

static const char *const chunks[] = {"1", "3", "4", "5", "12"};

static void check_scores(const char *text, const char *chunk, const char *flush, uint64_t seed) {
  test_kernel k;
  kiln_schedule s;
  char script[1024];
  snprintf(
      script, sizeof script,
      "inline P\ninline E\nsplit O.i0 4 shift o i\ncompute_at Y o local\ncompute_at S o local\n"
      "compute_at M o local\nsplit M.r0 %s guard m M.n\nreorder m M.n M.i0\n"
      "split S.r0 %s guard s S.n\nreorder s S.n S.i0\nsplit Y.r0 %s guard y Y.n\n"
      "reorder y Y.i0 Y.n Y.i1\nonline_softmax w m s y%s\ncompute_at Z m local\n",
      chunk, chunk, chunk, flush);
  kernel_open(&k, text, seed);
  assert_int_equal(kiln_schedule_begin(&k.cx, k.prog, &s), KILN_OK);
  if (kiln_schedule_replay(&s, script) != KILN_OK) fail_msg("%s", kernel_message(&k));
  kernel_check(&k, s.loops, script);
  kernel_check_replay(&k, &s);
  kernel_close(&k);
}

static void streamed_attention_is_the_references_for_any_scores(void **state) {
  (void)state;
  static const char *const texts[] = {
      ATTENTION("X(i0, i1)"),
      ATTENTION("X(i0, i1) * 10000f32"),
      ATTENTION("X(i0, i1) * -10000f32"),
      ATTENTION("(i1 < i0 ? -inff32 : X(i0, i1))"),
      ATTENTION("(i1 > i0 ? -inff32 : X(i0, i1))"),
      ATTENTION("(i0 % 3 == 0 ? -inff32 : X(i0, i1))"),
      ATTENTION("(i1 == i0 ? inff32 : X(i0, i1))"),
      ATTENTION("(i1 == i0 ? nanf32 : X(i0, i1))"),
      ATTENTION("(i1 == i0 ? nanf32 : -inff32)"),
      ATTENTION("(i1 == 5 ? X(i0, i1) * 10000f32 : -inff32)"),
      ATTENTION("(i1 > i0 ? X(i0, i1) - 95f32 : X(i0, i1))"),
      ATTENTION("X(i0, i1) * 30f32"),
  };
  for (size_t i = 0; i < KILN_LEN(texts); i++)
    for (size_t c = 0; c < KILN_LEN(chunks); c++) {
      check_scores(texts[i], chunks[c], "", i);
      check_scores(texts[i], chunks[c], " flush", i);
    }
}

// The sum itself, read by other statements, is NaN if all scores are masked; so is its logarithm.
static void a_masked_rows_sum_is_nan(void **state) {
  (void)state;
  test_kernel k;
  kiln_schedule s;
  kernel_open(&k,
              "lse { in f32 X(6, 8) temp f32 Z(6, 8) temp f32 M(6) temp f32 S(6) out f32 L(6) "
              "Z(i0:6, i1:8) = i0 == 2 ? -inff32 : X(i0, i1) M(i0:6 | r0:8) max=! Z(i0, r0) "
              "S(i0:6 | r0:8) +=! exp(Z(i0, r0) - M(i0)) L(i0:6) = log(S(i0)) + M(i0) }",
              3);
  assert_int_equal(kiln_schedule_begin(&k.cx, k.prog, &s), KILN_OK);
  const char *script = "split M.r0 2 exact m M.n\nreorder m M.i0 M.n\nsplit S.r0 2 exact s S.n\n"
                       "reorder s S.i0 S.n\nonline_softmax w m s\n";
  if (kiln_schedule_replay(&s, script) != KILN_OK) fail_msg("%s", kernel_message(&k));
  kernel_check(&k, s.loops, script);
  kernel_close(&k);
}

// A maximum that has other readers keeps NaN.
static void a_maximum_that_is_read_again_is_nan(void **state) {
  (void)state;
  test_kernel k;
  kiln_schedule s;
  kernel_open(&k,
              "top { in f32 X(6, 8) temp f32 Z(6, 8) temp f32 M(6) temp f32 S(6) out f32 L(6) "
              "Z(i0:6, i1:8) = i0 * 8 + i1 == 19 ? nanf32 : X(i0, i1) "
              "M(i0:6 | r0:8) max=! Z(i0, r0) S(i0:6 | r0:8) +=! exp(Z(i0, r0) - M(i0)) "
              "L(i0:6) = S(i0) > 0f32 ? 1f32 : M(i0) }",
              3);
  assert_int_equal(kiln_schedule_begin(&k.cx, k.prog, &s), KILN_OK);
  const char *script = "split L.i0 2 exact o i\ncompute_at S o local\ncompute_at M o local\n"
                       "split M.r0 2 exact m M.n\nreorder m M.i0 M.n\nsplit S.r0 2 exact s S.n\n"
                       "reorder s S.i0 S.n\nonline_softmax w m s\n";
  if (kiln_schedule_replay(&s, script) != KILN_OK) fail_msg("%s", kernel_message(&k));
  kernel_check(&k, s.loops, script);
  kernel_close(&k);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(online_softmax_makes_the_loops_or_says_why_not),
      cmocka_unit_test(streamed_attention_is_the_references_for_any_scores),
      cmocka_unit_test(a_masked_rows_sum_is_nan),
      cmocka_unit_test(a_maximum_that_is_read_again_is_nan),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
