// parallel, vectorize, unroll: which loops may run so.
#include "unit/schedule/table.h"

#define X46 "param f32 X[4, 6]:(6, 1) "
#define Y46 "param f32 Y[4, 6]:(6, 1) "
#define S4 "param f32 S[4]:(1) "

static const table_row rows[] = {
    {"kernel k { " Y46 "for i:4 { for j:6 { Y[i, j] = 0f32 } } }", "parallel i\nvectorize j",
     "kernel k { " Y46 "for i:4 parallel { for j:6 vectorized { Y[i, j] = 0f32 } } }", NULL},
    {"kernel k { " X46 S4 "for i:4 { for j:6 { S[i] += X[i, j] } } }", "parallel i\nvectorize j",
     "kernel k { " X46 S4 "for i:4 parallel { for j:6 vectorized { S[i] += X[i, j] } } }", NULL},
    {"kernel k { param f32 X[2, 3, 5]:(15, 5, 1) param f32 S[2, 3]:(3, 1) "
     "for i:2 { for j:3 { for r:5 { S[i, j] += X[i, j, r] } } } }",
     "fuse i j f\nparallel f",
     "kernel k { param f32 X[2, 3, 5]:(15, 5, 1) param f32 S[2, 3]:(3, 1) "
     "for f:6 parallel { for r:5 { S[f / 3, f % 3] += X[f / 3, f % 3, r] } } }",
     NULL},
    {"kernel k { " Y46 "for u:1 { for i:4 { for j:6 { Y[i, j] = 0f32 } } } }", "parallel i",
     "kernel k { " Y46 "for i:4 parallel { for j:6 { Y[i, j] = 0f32 } } }", NULL},
    {"kernel k { " Y46 "for i:4 { for j:6 { Y[i, j] = 0f32 } } }", "unroll i",
     "kernel k { " Y46 "for i:4 unrolled { for j:6 { Y[i, j] = 0f32 } } }", NULL},
    {"kernel k { " X46 S4 "for i:4 { for j:6 { S[i] += X[i, j] } } }", "parallel j", NULL,
     "schedule: parallel j: error: loop must be the outermost of its nest, got i around it: "
     "reorder or fuse"},
    {"kernel k { " X46 S4 "for j:6 { for i:4 { S[i] += X[i, j] } } }", "parallel j", NULL,
     "schedule: parallel j: error: loop j carries a dependence: S(j=0, i=0) and S(j=1, i=0) "
     "combine "
     "into S[0]: rfactor j first"},
    {"kernel k { " S4 "for i:3 { S[i + 1] = S[i] } }", "parallel i", NULL,
     "schedule: parallel i: error: loop i carries a dependence: S(i=1) reads S[1], which S(i=0) "
     "writes before"},
    {"kernel k { " S4 "for i:3 { S[i + 1] = S[i] } }", "vectorize i", NULL,
     "schedule: vectorize i: error: loop i carries a dependence: S(i=1) reads S[1], which S(i=0) "
     "writes before"},
    {"kernel k { " S4 "for i:3 { S[3] += S[i] } }", "vectorize i",
     "kernel k { " S4 "for i:3 vectorized { S[3] += S[i] } }", NULL},
    {"kernel k { " S4 "for i:4 { S[3] += S[i] } }", "vectorize i", NULL,
     "schedule: vectorize i: error: loop i carries a dependence: S(i=3) reads S[3], which S(i=0) "
     "writes before"},
    {"kernel k { " S4 "for i:8 { S[i / 2] += 1f32 } }", "vectorize i", NULL,
     "schedule: vectorize i: error: loop i carries a dependence: S(i=0) and S(i=1) combine into "
     "S[0]"},
    {"kernel k { " S4 "param i64 I[8]:(1) for i:8 { S[I[i]] += 1f32 } }", "parallel i", NULL,
     "schedule: parallel i: error: loop i may carry a dependence: S(i=0) and S(i=1) combine into "
     "S[?] (not all indices and conditions are affine)"},
    {"kernel k { " X46 S4 "for i:4 { for j:6 { S[i] += X[i, j] } } }", "vectorize i", NULL,
     "schedule: vectorize i: error: loop must be innermost, got loop j in it: reorder"},
};

static void rows_hold(void **state) {
  (void)state;
  for (size_t i = 0; i < KILN_LEN(rows); i++) table_run(&rows[i]);
}

// Two nests in one loop: each window of the shared buffer may be accessed by its own iteration
// only.
static void windows_keep_iterations_apart(void **state) {
  (void)state;
  static const table_row windows[] = {
      {"kernel k { workspace f32 T[12]:(1) param f32 Y[3, 4]:(4, 1) "
       "for i:3 { for j:4 { T[i*4 + j] = 1f32 } for l:4 { Y[i, l] = T[i*4 + l] } } }",
       "parallel i",
       "kernel k { workspace f32 T[12]:(1) param f32 Y[3, 4]:(4, 1) "
       "for i:3 parallel { for j:4 { T[i*4 + j] = 1f32 } for l:4 { Y[i, l] = T[i*4 + l] } } }",
       NULL},
      {"kernel k { workspace f32 T[13]:(1) param f32 Y[3, 5]:(5, 1) "
       "for i:3 { for j:4 { T[i*4 + j] = 1f32 } for l:5 { Y[i, l] = T[i*4 + l] } } }",
       "parallel i", NULL,
       "schedule: parallel i: error: loop i carries a dependence: Y(i=0, l=4) reads T[4], which "
       "T(i=1, j=0) writes after"},
  };
  for (size_t i = 0; i < KILN_LEN(windows); i++) table_run(&windows[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(rows_hold),
                                     cmocka_unit_test(windows_keep_iterations_apart)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
