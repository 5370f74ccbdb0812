// Steps that would change the meaning, each with the message that names the two instances and the
// element; next to some of them similar steps that are legal, which shows that the refusal is
// exact.
#include "unit/schedule/table.h"

#define A9 "param f32 A[9]:(1) "
#define B9 "param f32 B[9]:(1) "
#define X46 "param f32 X[4, 6]:(6, 1) "
#define S4 "param f32 S[4]:(1) "
#define G55 "param f32 G[5, 5]:(5, 1) "
#define T9 "workspace f32 T[9]:(1) "

static const table_row parallel_rows[] = {
    // reductions
    {"kernel k { " X46 S4 "for j:6 { for i:4 { S[i] += X[i, j] } } }", "parallel j", NULL,
     "schedule: parallel j: error: loop j carries a dependence: S(j=0, i=0) and S(j=1, i=0) "
     "combine "
     "into S[0]: rfactor j first"},
    {"kernel k { param f32 C[1]:(1) param f32 X[8]:(1) for C.k:8 { C[0] max=! X[C.k] } }",
     "parallel C.k", NULL,
     "schedule: parallel C.k: error: loop C.k carries a dependence: C(k=0) and C(k=1) combine into "
     "C[0]: rfactor C.k first"},
    {"kernel k { " S4 "for i:8 { S[i / 2] += 1f32 } }", "vectorize i", NULL,
     "schedule: vectorize i: error: loop i carries a dependence: S(i=0) and S(i=1) combine into "
     "S[0]"},
    // a recurrence, and one that skips what it writes
    {"kernel k { " A9 "for i:8 { A[i + 1] = A[i] * 2f32 } }", "parallel i", NULL,
     "schedule: parallel i: error: loop i carries a dependence: A(i=1) reads A[1], which A(i=0) "
     "writes before"},
    {"kernel k { " A9 "for i:8 { A[i + 1] = A[i] * 2f32 } }", "vectorize i", NULL,
     "schedule: vectorize i: error: loop i carries a dependence: A(i=1) reads A[1], which A(i=0) "
     "writes before"},
    {"kernel k { " A9 "for i:4 { A[2*i + 1] = A[2*i] } }", "parallel i",
     "kernel k { " A9 "for i:4 parallel { A[i*2 + 1] = A[i*2] } }", NULL},
    // an update in place that reads later elements; one that reads only its own
    {"kernel k { " A9 "for i:8 { A[i] = A[i + 1] } }", "parallel i", NULL,
     "schedule: parallel i: error: loop i carries a dependence: A(i=0) reads A[1], which A(i=1) "
     "writes after"},
    {"kernel k { " A9 "for i:9 { A[i] = A[i] + 1f32 } }", "parallel i",
     "kernel k { " A9 "for i:9 parallel { A[i] = A[i] + 1f32 } }", NULL},
    // the reverse of a row in place: halves that meet in the middle only
    {"kernel k { " A9 "for i:9 { A[i] = A[8 - i] } }", "parallel i", NULL,
     "schedule: parallel i: error: loop i carries a dependence: A(i=0) reads A[8], which A(i=8) "
     "writes after"},
    {"kernel k { " A9 "for i:4 { A[i] = A[8 - i] } }", "parallel i",
     "kernel k { " A9 "for i:4 parallel { A[i] = A[8 - i] } }", NULL},
    // scatters
    {"kernel k { " S4 "param i64 I[8]:(1) for i:8 { S[I[i]] += 1f32 } }", "parallel i", NULL,
     "schedule: parallel i: error: loop i may carry a dependence: S(i=0) and S(i=1) combine into "
     "S[?] (not all indices and conditions are affine)"},
    {"kernel k { " S4 "param i64 I[8]:(1) param f32 V[8]:(1) for i:8 { S[I[i]] = V[i] } }",
     "parallel i", NULL,
     "schedule: parallel i: error: loop i may carry a dependence: S(i=0) and S(i=1) write S[?] in "
     "order (not all indices and conditions are affine)"},
    {"kernel k { " A9 "param f32 V[8]:(1) for i:8 { A[i / 2] = V[i] } }", "parallel i", NULL,
     "schedule: parallel i: error: loop i carries a dependence: A(i=0) and A(i=1) write A[0] in "
     "order"},
    {"kernel k { " A9 "param f32 V[9]:(1) for i:9 { A[0] = V[3] } }", "parallel i",
     "kernel k { " A9 "param f32 V[9]:(1) for i:9 parallel { A[0] = V[3] } }", NULL},
    // conditions count
    {"kernel k { " A9 "for i:9 { if i < 4 { A[i + 5] = A[i] } } }", "parallel i",
     "kernel k { " A9 "for i:9 parallel { if i < 4 { A[i + 5] = A[i] } } }", NULL},
    {"kernel k { " A9 "for i:9 { if i < 5 { A[i + 4] = A[i] } } }", "parallel i", NULL,
     "schedule: parallel i: error: loop i carries a dependence: A(i=4) reads A[4], which A(i=0) "
     "writes before"},
    {"kernel k { " A9 "for i:8 { A[i] = i < 7 ? 0f32 : A[8] } }", "parallel i",
     "kernel k { " A9 "for i:8 parallel { A[i] = i < 7 ? 0f32 : A[8] } }", NULL},
    // floor and modulo
    {"kernel k { param f32 A[64]:(1) for i:32 { A[i + 32] = A[i / 8 * 8 + (i + 1) % 8] } }",
     "parallel i",
     "kernel k { param f32 A[64]:(1) for i:32 parallel { A[i + 32] = A[i / 8 * 8 + (i + 1) % 8] } "
     "}",
     NULL},
    {"kernel k { param f32 A[32]:(1) for i:32 { A[i] = A[i / 8 * 8 + (i + 1) % 8] } }",
     "parallel i", NULL,
     "schedule: parallel i: error: loop i carries a dependence: A(i=0) reads A[1], which A(i=1) "
     "writes after"},
    // bind needs what parallel does
    {"kernel k { " X46 S4 "for i:4 { for j:6 { S[i] += X[i, j] } } }", "bind j thread.x", NULL,
     "schedule: bind j: error: loop j carries a dependence: S(i=0, j=0) and S(i=0, j=1) combine "
     "into "
     "S[0]: rfactor j first"},
};

static const table_row reorder_rows[] = {
    // the wavefront (i, j) -> (i + 1, j - 1), and one that leans forward
    {"kernel k { " G55 "for i:4 { for j:4 { G[i + 1, j] = G[i, j + 1] } } }", "reorder j i", NULL,
     "schedule: reorder j: error: the new order reverses a dependence: G(i=1, j=0) reads G[1, 1], "
     "which G(i=0, j=1) writes before"},
    {"kernel k { " G55 "for i:4 { for j:4 { G[i + 1, j + 1] = G[i, j] } } }", "reorder j i",
     "kernel k { " G55 "for j:4 { for i:4 { G[i + 1, j + 1] = G[i, j] } } }", NULL},
    // a stencil over time, in place
    {"kernel k { " A9 "for t:3 { for i:7 { A[i + 1] = A[i] + A[i + 2] } } }", "reorder i t", NULL,
     "schedule: reorder i: error: the new order reverses a dependence: A(t=0, i=1) reads A[1], "
     "which A(t=1, i=0) writes after"},
    // parallel loops around a loop must stay legal when it becomes parallel
    {"kernel k { " G55 "for i:4 { for j:4 thread.x { G[i + 1, j + 1] = G[i, j] } } }",
     "reorder j i", NULL,
     "schedule: reorder j: error: loop j carries a dependence: G(j=1, i=1) reads G[1, 1], which "
     "G(j=0, i=0) writes before"},
    // a sum may be reordered; a sum and its init may not
    {"kernel k { " X46 S4 "for i:4 { for j:6 { S[i] += X[i, j] } } }", "reorder j i",
     "kernel k { " X46 S4 "for j:6 { for i:4 { S[i] += X[i, j] } } }", NULL},
    // tiles of a wavefront
    {"kernel k { " G55 "for i:4 { for j:4 { G[i + 1, j] = G[i, j + 1] } } }",
     "tile i j 2 2 exact io jo ii ji", NULL,
     "schedule: tile i: reorder io: error: the new order reverses a dependence: G(io=0, ii=1, "
     "jo=0, "
     "ji=1) reads G[1, 2], which G(io=0, ii=0, jo=1, ji=0) writes before"},
    // last writer wins
    {"kernel k { " A9 X46 "for i:4 { for j:6 { A[i + j] = X[i, j] } } }", "reorder j i", NULL,
     "schedule: reorder j: error: the new order reverses a dependence: A(i=0, j=1) and A(i=1, j=0) "
     "write A[1] in order"},
    {"kernel k { " S4 "param i64 I[4, 6]:(6, 1) " X46
     "for i:4 { for j:6 { S[I[i, j]] = X[i, j] } } }",
     "reorder j i", NULL,
     "schedule: reorder j: error: the new order may reverse a dependence: S(i=0, j=1) and S(i=1, "
     "j=0) write S[?] in order (not all indices and conditions are affine)"},
    // iterations that are repeated
    {"kernel k { " A9 "for i:9 { A[i] = A[i] * 2f32 } }", "split i 2 shift a b", NULL,
     "schedule: split i: error: loop i: a shifted tail runs iterations again: A(i=0) reads A[0], "
     "which A(i=0) writes after: use guard"},
};

static const table_row merge_rows[] = {
    {"kernel k { " T9 A9 "for i:9 { T[i] = A[i] } for j:9 { A[j] = T[j] } }", "merge i j",
     "kernel k { " T9 A9 "for i:9 { T[i] = A[i] A[i] = T[i] } }", NULL},
    // reads ahead
    {"kernel k { " T9 A9 B9 "for i:9 { T[i] = A[i] } for j:7 { B[j] = T[j] + T[j + 2] } }",
     "merge i j", NULL,
     "schedule: merge i: error: loop j must not run ahead of i: B(j=0) reads T[2], which T(i=2) "
     "writes before: merge with shift 2"},
    {"kernel k { " T9 A9 B9 "for i:9 { T[i] = A[i] } for j:7 { B[j] = T[j] + T[j + 2] } }",
     "merge i j 2",
     "kernel k { " T9 A9 B9 "for i:9 { T[i] = A[i] if i >= 2 { B[i - 2] = T[i - 2] + T[i] } } }",
     NULL},
    // overwrites elements that the first loop still reads
    {"kernel k { " A9 B9 "for i:8 { B[i] = A[i] } for j:8 { A[j + 1] = 0f32 } }", "merge i j", NULL,
     "schedule: merge i: error: loop j must not run ahead of i: B(i=1) reads A[1], which A(j=0) "
     "writes after: merge with shift 1"},
    // sums into one buffer commute; a sum and a reader of it do not
    {"kernel k { " A9 B9 S4 "for i:9 { S[0] += A[i] } for j:9 { S[0] += B[j] } }", "merge i j",
     "kernel k { " A9 B9 S4 "for i:9 { S[0] += A[i] S[0] += B[i] } }", NULL},
    {"kernel k { " A9 B9 S4 "for i:9 { S[0] += A[i] } for j:9 { B[j] = S[0] } }", "merge i j", NULL,
     "schedule: merge i: error: loop j must not run ahead of i: B(j=0) reads S[0], which S(i=1) "
     "writes before: merge with shift 8"},
    // a data-dependent index
    {"kernel k { param i64 I[9]:(1) " T9 A9 B9
     "for i:9 { T[i] = A[i] } for j:9 { B[j] = T[I[j]] } }",
     "merge i j", NULL,
     "schedule: merge i: error: loop j must not run ahead of i: B(j=0) reads T[1], which T(i=1) "
     "writes before (not all indices and conditions are affine)"},
};

static const table_row partial_rows[] = {
    // the third element is padding without a value
    {"kernel k { param f32 X[2, 2]:(2, 1) workspace f32 C[3]:(1) for i:2 { C[i] = 0f32 } "
     "for r:2 { for j:3 { if j < 2 { C[j] += X[j, r] } } } }",
     "rfactor r P", NULL,
     "schedule: rfactor r: error: a nest with conditions must not reach padding, which buffer C "
     "may have: rfactor before its layout is changed, or before split with guard"},
};

static void iterations_at_once(void **state) {
  (void)state;
  for (size_t i = 0; i < KILN_LEN(parallel_rows); i++) table_run(&parallel_rows[i]);
}

static void loops_in_another_order(void **state) {
  (void)state;
  for (size_t i = 0; i < KILN_LEN(reorder_rows); i++) table_run(&reorder_rows[i]);
}

static void loops_that_become_one(void **state) {
  (void)state;
  for (size_t i = 0; i < KILN_LEN(merge_rows); i++) table_run(&merge_rows[i]);
}

static void results_in_parts(void **state) {
  (void)state;
  for (size_t i = 0; i < KILN_LEN(partial_rows); i++) table_run(&partial_rows[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(iterations_at_once), cmocka_unit_test(loops_in_another_order),
      cmocka_unit_test(loops_that_become_one), cmocka_unit_test(results_in_parts)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
