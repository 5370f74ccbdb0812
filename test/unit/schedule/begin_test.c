// The naive loops of programs, and scripts: their printed text, and refusals.
#include "unit/schedule/table.h"

static const struct {
  const char *program, *loops;
} naive[] = {
    {"mm { in f32 A(4, 8) const f32 B(8, 6) = ... temp f32 C(4, 6) out f32 Y(4, 6) "
     "C(i0:4, i1:6 | r0:8) +=! A(i0, r0) * B(r0, i1) Y(i0:4, i1:6) = max(C(i0, i1), 0f32) }",
     "kernel mm { param f32 A[4, 8]:(8, 1) tensor 0 param f32 B[8, 6]:(6, 1) tensor 1 "
     "workspace f32 C[4, 6]:(6, 1) param f32 Y[4, 6]:(6, 1) tensor 3 "
     "for C.init.i0:4 { for C.init.i1:6 { C[C.init.i0, C.init.i1] = 0f32 } } "
     "for C.i0:4 { for C.i1:6 { for C.r0:8 { C[C.i0, C.i1] += A[C.i0, C.r0] * B[C.r0, C.i1] } } } "
     "for Y.i0:4 { for Y.i1:6 { Y[Y.i0, Y.i1] = max(C[Y.i0, Y.i1], 0f32) } } }"},
    {"sum { in f32 X(5) out f32 Y() Y( | r0:5) +=! X(r0) }",
     "kernel sum { param f32 X[5]:(1) tensor 0 param f32 Y[]:() tensor 1 "
     "Y[] = 0f32 for Y.r0:5 { Y[] += X[Y.r0] } }"},
    {"put { in f32 X(5) in i64 I(5) in f32 Z(9) out f32 Y(9) "
     "Y(i0:5) at (I(i0)) = X(i0) init (Z(o0)) }",
     "kernel put { param f32 X[5]:(1) tensor 0 param i64 I[5]:(1) tensor 1 param f32 Z[9]:(1) "
     "tensor 2 "
     "param f32 Y[9]:(1) tensor 3 "
     "for Y.init.o0:9 { Y[Y.init.o0] = Z[Y.init.o0] } for Y.i0:5 { Y[I[Y.i0]] = X[Y.i0] } }"},
    {"tri { in f32 X(5, 5) out f32 Y(5) Y(i0:5 | r0:5) +=! X(i0, r0) if r0 < i0 }",
     "kernel tri { param f32 X[5, 5]:(5, 1) tensor 0 param f32 Y[5]:(1) tensor 1 "
     "for Y.init.i0:5 { Y[Y.init.i0] = 0f32 } "
     "for Y.i0:5 { for Y.r0:5 { if Y.r0 < Y.i0 { Y[Y.i0] += X[Y.i0, Y.r0] } } } }"},
};

static void statements_become_naive_nests(void **state) {
  (void)state;
  for (size_t i = 0; i < KILN_LEN(naive); i++) {
    test_kernel k;
    kernel_open(&k, naive[i].program, 5);
    kiln_schedule s;
    assert_int_equal(kiln_schedule_begin(&k.cx, k.prog, &s), KILN_OK);
    assert_string_equal(kernel_text(&k, s.loops),
                        loops_text(&k.cx, loops_parse(&k.cx, naive[i].loops)));
    assert_string_equal(kiln_schedule_script(&s), "");
    kernel_check(&k, s.loops, "");
    kernel_close(&k);
  }
}

// A loop is rounded up twice: its last part runs over elements of the next one, for which the
// stored value was simplified under a range that excludes them. Nothing reads these elements, but
// two blocks must not both write them.
static void iterations_that_rounding_adds_are_no_blocks(void **state) {
  (void)state;
  static const char *const steps[] = {"split C.i1 2 round n6 n7", "split C.i0 2 exact m0 m1",
                                      "reorder n7 m1", "split n7 8 round n8 n9"};
  test_kernel k;
  kernel_open(&k,
              "f { in f64 A(3, 5) in f64 B(4, 2) temp f64 C(4, 5) out f64 D(4, 3) "
              "C(i0:4, i1:5) = i1 <= i0 ? B(i1 / 2, 0) : B(3 - i0, (i0 + i1) % 2) "
              "D(i0:4, i1:3) = i1 <= i0 ? C(i1 / 2, i1 / 2) : A(2 - i1, i0) }",
              5);
  kiln_schedule s;
  assert_int_equal(kiln_schedule_begin(&k.cx, k.prog, &s), KILN_OK);
  for (size_t i = 0; i < KILN_LEN(steps); i++)
    assert_int_equal(kiln_schedule_replay(&s, steps[i]), KILN_OK);
  kernel_check(&k, s.loops, "");
  assert_int_not_equal(kiln_schedule_replay(&s, "bind n9 block.x"), KILN_OK);
  assert_non_null(strstr(kiln_diag_message(k.diag, 0), "loop n9 carries a dependence"));
  kernel_close(&k);
}

static const char gemm[] = "mm { in f32 A(45, 8) const f32 B(8, 50) = ... in f32 D(50) temp f32 "
                           "C(45, 50) out f32 Y(45, 50) "
                           "C(i0:45, i1:50 | r0:8) +=! A(i0, r0) * B(r0, i1) "
                           "Y(i0:45, i1:50) = max(C(i0, i1) + D(i1), 0f32) }";
static const char gemm_script[] = "stage B 0 workspace Bp 1/32 0 1%32\n"
                                  "split Y.i1 32 guard n0 n1\n"
                                  "split Y.i0 28 shift mb mi\n"
                                  "split mi 14 shift m0 m1\n"
                                  "reorder mb n0 m0 m1 n1\n"
                                  "parallel mb\n"
                                  "compute_at C m0 register\n"
                                  "reorder C.r0 C.i0 C.i1\n"
                                  "unroll C.init.i0\n"
                                  "unroll C.i0\n"
                                  "unroll m1\n"
                                  "vectorize C.init.i1\n"
                                  "vectorize C.i1\n"
                                  "vectorize n1\n"
                                  "tidy\n";
static const char gemm_loops[] =
    "kernel mm { param f32 A[45, 8]:(8, 1) tensor 0 "
    "param f32 Bp[2, 8, 32]:(256, 32, 1) pack 1 (o1, o0*32 + o2) "
    "param f32 D[50]:(1) tensor 2 register f32 C[14, 32]:(32, 1) param f32 Y[45, 50]:(50, 1) "
    "tensor 4 "
    "for mb:2 parallel { for n0:2 { for m0:2 { alloc C { "
    "for C.init.i0:14 unrolled { for C.init.i1:32 vectorized { C[C.init.i0, C.init.i1] = 0f32 } } "
    "for C.r0:8 { for C.i0:14 unrolled { for C.i1:32 vectorized { "
    "C[C.i0, C.i1] += A[m0*14 + C.i0 + min(mb*28, 17), C.r0] * Bp[n0, C.r0, C.i1] } } } "
    "for m1:14 unrolled { for n1:32 vectorized { if n0*32 + n1 < 50 { "
    "Y[m0*14 + m1 + min(mb*28, 17), n0*32 + n1] = max(C[m1, n1] + D[n0*32 + n1], 0f32) } } } } } } "
    "} }";

// The packed operand is padded, so a ragged tile is computed whole; the rows of the last tile are
// computed again.
static void a_matrix_product_becomes_a_register_tile(void **state) {
  (void)state;
  test_kernel k;
  kernel_open(&k, gemm, 7);
  kiln_schedule s;
  assert_int_equal(kiln_schedule_begin(&k.cx, k.prog, &s), KILN_OK);
  if (kiln_schedule_replay(&s, gemm_script) != KILN_OK)
    fail_msg("%s", kiln_diag_message(k.diag, 0));
  assert_string_equal(kiln_schedule_script(&s), gemm_script);
  assert_string_equal(kernel_text(&k, s.loops), loops_text(&k.cx, loops_parse(&k.cx, gemm_loops)));
  assert_int_equal(kiln_loops_verify(&k.cx, s.loops), KILN_OK);
  kernel_check(&k, s.loops, gemm_script);
  kernel_check_replay(&k, &s);
  kernel_close(&k);
}

// Statements with an order of writes keep it.
static void scatters_stay_serial(void **state) {
  (void)state;
  static const struct {
    const char *program, *script, *error;
  } rows[] = {
      {"put { in f32 X(5) in i64 I(5) in f32 Z(9) out f32 Y(9) Y(i0:5) at (I(i0)) = X(i0) init "
       "(Z(o0)) }",
       "parallel Y.i0",
       "schedule: parallel Y.i0: error: loop Y.i0 may carry a dependence: Y(i0=0) and Y(i0=1) "
       "write "
       "Y[?] in order (not all indices and conditions are affine)"},
      {"put { in f32 X(5) in i64 I(5) in f32 Z(9) out f32 Y(9) Y(i0:5) at (I(i0)) = X(i0) init "
       "(Z(o0)) }",
       "split Y.i0 3 shift a b", NULL},
      {"half { in f32 X(8, 2) out f32 Y(4) Y(i0:8, i1:2) at (i0 / 2) = X(i0, i1) init (0f32) }",
       "reorder Y.i1 Y.i0",
       "schedule: reorder Y.i1: error: the new order reverses a dependence: Y(i0=0, i1=1) and "
       "Y(i0=1, i1=0) write Y[0] in order"},
      {"odd { in f32 X(4) out f32 Y(8) Y(i0:4) at (i0 * 2 + 1) = X(i0) init (0f32) }",
       "parallel Y.i0\nvectorize Y.init.o0", NULL},
      {"rows { in f32 X(5, 4) in i64 I(5, 4) in f32 Z(5, 9) out f32 Y(5, 9) "
       "Y(i0:5, i1:4) at (i0, I(i0, i1)) = X(i0, i1) init (Z(o0, o1)) }",
       "parallel Y.i0\nsplit Y.i1 3 guard a b", NULL},
      {"add { in f32 X(5, 4) in i64 I(5) in f32 Z(9, 4) out f32 Y(9, 4) "
       "Y(i0:5, i1:4) at (I(i0), i1) +=! X(i0, i1) init (Z(o0, o1)) }",
       "reorder Y.i1 Y.i0\nparallel Y.i1\nparallel Y.init.o0", NULL},
  };
  for (size_t i = 0; i < KILN_LEN(rows); i++) {
    test_kernel k;
    kernel_open(&k, rows[i].program, i + 1);
    kiln_schedule s;
    assert_int_equal(kiln_schedule_begin(&k.cx, k.prog, &s), KILN_OK);
    const kiln_status st = kiln_schedule_replay(&s, rows[i].script);
    if (rows[i].error) assert_string_equal(kiln_diag_message(k.diag, 0), rows[i].error);
    else if (st != KILN_OK) fail_msg("%s", kiln_diag_message(k.diag, 0));
    assert_int_equal(st, rows[i].error ? KILN_BAD_INPUT : KILN_OK);
    kernel_check(&k, s.loops, rows[i].script);
    kernel_close(&k);
  }
}

// Invalid scripts; messages name the line.
static void bad_scripts_are_refused(void **state) {
  (void)state;
  static const struct {
    const char *script, *error;
  } rows[] = {
      {"splt Y.i0 4 guard a b", "schedule: line 1: error: a line must begin with a primitive, got "
                                "\"splt\": did you mean \"split\"?"},
      {"# a comment\n\nsplit Y.i0 four guard a b",
       "schedule: line 3: error: split: must be a number, got \"four\""},
      {"compute_at C Y.i1 heap", "schedule: line 1: error: compute_at: must be workspace, shared, "
                                 "local or register, got \"heap\""},
      {"fuse Y.i0 Y.i1",
       "schedule: line 1: error: fuse: must be \"fuse OUTER INNER FUSED\", got 3 words"},
      {"stage B 0 workspace Bp 1x2", "schedule: line 1: error: stage: must be an axis such as 1, "
                                     "1/32, 1%32 or 1^32, got \"1x2\""},
      {"tensorize Y.i0 fma",
       "schedule: line 1: error: tensorize: must name an instruction of the target (it has none), "
       "got \"fma\""},
      {"parallel Y.i0\nparallel Y.i7",
       "schedule: line 2: error: parallel: must be legal, got a refusal"},
  };
  for (size_t i = 0; i < KILN_LEN(rows); i++) {
    test_kernel k;
    kernel_open(&k, gemm, 1);
    kiln_schedule s;
    assert_int_equal(kiln_schedule_begin(&k.cx, k.prog, &s), KILN_OK);
    assert_int_equal(kiln_schedule_replay(&s, rows[i].script), KILN_BAD_INPUT);
    bool said = false;
    for (size_t m = 0; m < kiln_diag_count(k.diag); m++)
      said |= strcmp(kiln_diag_message(k.diag, m), rows[i].error) == 0;
    if (!said) assert_string_equal(kiln_diag_message(k.diag, 0), rows[i].error);
    kernel_close(&k);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(statements_become_naive_nests),
      cmocka_unit_test(iterations_that_rounding_adds_are_no_blocks),
      cmocka_unit_test(a_matrix_product_becomes_a_register_tile),
      cmocka_unit_test(scatters_stay_serial),
      cmocka_unit_test(bad_scripts_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
