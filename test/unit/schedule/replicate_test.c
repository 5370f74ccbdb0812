// replicate and use_copy: equal copies of a buffer's elements, and which of them a nest reads.
#include "unit/schedule/table.h"

#define ROWS(body) "kernel k { param f32 X[6, 8]:(8, 1) param f32 Y[6, 8]:(8, 1) " body " }"
#define SUMS "local f32 S[6]:(1) local f32 R[6]:(1) for b:1 { alloc S { alloc R { "
#define COPIES "local f32 S[6, 4]:(4, 1) local f32 R[6]:(1) for b:1 { alloc S { alloc R { "
#define BOTH "local f32 S[6, 4]:(4, 1) local f32 R[6, 4]:(4, 1) for b:1 { alloc S { alloc R { "
#define ADD                                                                                        \
  "for i:6 { S[i] = 0f32 } for m:6 { for n:8 { S[m] += X[m, n] } } for r:6 { R[r] = S[r] / 8f32 "  \
  "} "
#define ADD_COPIES                                                                                 \
  "for i:6 { for S.c:4 { S[i, S.c] = 0f32 } } for m:6 { for n:8 { for S.c1:4 { S[m, S.c1] += "     \
  "X[m, n] } } } "
#define USE "for u:6 { for v:8 { Y[u, v] = X[u, v] - R[u] } } } } }"

static const table_row rows[] = {
    {ROWS(SUMS ADD USE), "replicate S 4",
     ROWS(COPIES ADD_COPIES "for r:6 { R[r] = S[r, 0] / 8f32 } " USE), NULL},
    {ROWS(SUMS ADD USE), "replicate S 4\nreplicate R 4\nuse_copy R.c S R.c\nuse_copy u R v%8/2",
     ROWS(BOTH ADD_COPIES
          "for r:6 { for R.c:4 { R[r, R.c] = S[r, R.c] / 8f32 } } for u:6 { for v:8 "
          "{ Y[u, v] = X[u, v] - R[u, v/2] } } } } }"),
     NULL},
    {ROWS(SUMS ADD USE), "replicate S 1", NULL,
     "schedule: replicate S: error: copies must be 2 to 1024, got 1"},
    {ROWS(SUMS ADD USE), "replicate X 4", NULL,
     "schedule: replicate X: error: buffer must not be a parameter, whose elements are the "
     "caller's"},
    {ROWS(SUMS ADD USE), "use_copy u R v%4", NULL,
     "schedule: use_copy u: error: buffer R must have equal copies along its last axis: replicate "
     "it"},
    // each copy differs; a copy is not written; it is made of another one's
    {ROWS(BOTH "for i:6 { for c:4 { R[i, c] = f32(c) } } for u:6 { Y[u, 0] = R[u, 0] } } } }"),
     "use_copy u R 1", NULL,
     "schedule: use_copy u: error: buffer R must have equal copies along its last axis: replicate "
     "it"},
    {ROWS(BOTH "for i:6 { for c:3 { R[i, c] = 1f32 } } for u:6 { Y[u, 0] = R[u, 0] } } } }"),
     "use_copy u R 1", NULL,
     "schedule: use_copy u: error: buffer R must have equal copies along its last axis: replicate "
     "it"},
    {ROWS(BOTH
          "for i:6 { for c:4 { R[i, c] = 1f32 } for d:4 { R[i, d] = R[i, 0] + 1f32 } } for u:6 "
          "{ Y[u, 0] = R[u, 0] } } } }"),
     "use_copy u R 1", NULL,
     "schedule: use_copy u: error: buffer R must have equal copies along its last axis: replicate "
     "it"},
    {ROWS(BOTH "for i:6 { for c:4 { R[i, c] = 1f32 } } for u:6 { Y[u, 0] = R[u, 0] } } } }"),
     "use_copy u R 4", NULL, "schedule: use_copy u: error: the copy must be one of 4, got \"4\""},
    {ROWS(BOTH "for i:6 { for c:4 { R[i, c] = 1f32 } } for u:6 { Y[u, 0] = R[u, 0] } } } }"),
     "use_copy u R c", NULL,
     "schedule: use_copy u: error: each load of buffer R must be in loop c"},
    {ROWS(BOTH "for i:6 { for c:4 { R[i, c] = 1f32 } } for u:6 { Y[u, 0] = R[u, 1] } } } }"),
     "use_copy u R 2", NULL,
     "schedule: use_copy u: error: the nest must read the first copy of buffer R"},
};

static void rows_hold(void **state) {
  (void)state;
  for (size_t i = 0; i < KILN_LEN(rows); i++) table_run(&rows[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(rows_hold)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
