// split, peel, fuse, reorder, hoist: resulting loops, and refusals.
#include "schedule/nest.h"
#include "unit/schedule/table.h"

#define A12 "param f32 A[12]:(1) "
#define A10 "param f32 A[10]:(1) "
#define X46 "param f32 X[4, 6]:(6, 1) "
#define Y46 "param f32 Y[4, 6]:(6, 1) "

static const table_row rows[] = {
    // split
    {"kernel k { " A12 "for i:12 { A[i] = 0f32 } }", "split i 4 guard i0 i1",
     "kernel k { " A12 "for i0:3 { for i1:4 { A[i0*4 + i1] = 0f32 } } }", NULL},
    {"kernel k { " A10 "for i:10 { A[i] = 0f32 } }", "split i 4 guard i0 i1",
     "kernel k { " A10 "for i0:3 { for i1:4 { if i0*4 + i1 < 10 { A[i0*4 + i1] = 0f32 } } } }",
     NULL},
    {"kernel k { " A10 "for i:10 { A[i] = 0f32 } }", "split i 4 shift i0 i1",
     "kernel k { " A10 "for i0:3 { for i1:4 { A[i1 + min(i0*4, 6)] = 0f32 } } }", NULL},
    {"kernel k { " A10 "for i:10 { A[i] = 0f32 } }", "split i 16 guard i0 i1",
     "kernel k { " A10 "for i0:1 { for i1:16 { if i1 < 10 { A[i1] = 0f32 } } } }", NULL},
    {"kernel k { " A12 "for i:12 { A[i] = 0f32 } }", "split i 0 guard a b", NULL,
     "schedule: split i: error: factor must be positive, got 0"},
    {"kernel k { " A12 "for i:12 { A[i] = 0f32 } }", "split j 4 guard a b", NULL,
     "schedule: split j: error: loop must be one of the kernel's, got \"j\""},
    {"kernel k { " A12 "for i:12 { A[i] = 0f32 } }", "split i 4 guard i b", NULL,
     "schedule: split i: error: name of a new loop must be free, got \"i\""},
    {"kernel k { " A10 "for i:10 { A[i] = 0f32 } }", "split i 11 shift a b", NULL,
     "schedule: split i: error: factor of a shifted tail must be at most the extent 10, got 11"},
    {"kernel k { " A10 "for i:10 { A[i] += 1f32 } }", "split i 4 shift a b", NULL,
     "schedule: split i: error: loop i: a shifted tail recomputes elements, so the loop must only "
     "assign buffer A, "
     "got a reduction into it: use guard"},
    {"kernel k { " A12 "for i:12 vectorized { A[i] = 0f32 } }", "split i 4 guard a b", NULL,
     "schedule: split i: error: loop i must be serial, got vectorized: do this before"},
    {"kernel k { " A12 "for i:12 { A[i] = 0f32 } }", "split i 4 exact i0 i1",
     "kernel k { " A12 "for i0:3 { for i1:4 { A[i0*4 + i1] = 0f32 } } }", NULL},
    {"kernel k { " A10 "for i:10 { A[i] = 0f32 } }", "split i 4 exact i0 i1", NULL,
     "schedule: split i: error: factor must divide the extent 10, got 4: use guard, shift, peel or "
     "round"},
    {"kernel k { " A10 "for i:10 { A[i] = 0f32 } }", "split i 4 peel i0 i1",
     "kernel k { " A10 "for i0:2 { for i1:4 { A[i0*4 + i1] = 0f32 } } for i.b:2 { A[i.b + 8] = "
     "0f32 } }",
     NULL},
    {"kernel k { " A12 "for i:12 { A[i] = 0f32 } }", "split i 4 peel i0 i1",
     "kernel k { " A12 "for i0:3 { for i1:4 { A[i0*4 + i1] = 0f32 } } }", NULL},
    {"kernel k { " A10 "for i:10 { A[i] = 0f32 } }", "split i 16 peel i0 i1", NULL,
     "schedule: split i: error: factor of a peeled tail must be at most the extent 10, got 16"},
    {"kernel k { " A10 "for i:10 { A[i] += 1f32 } }", "split i 4 round i0 i1",
     "kernel k { " A10 "for i0:3 { for i1:4 { if i0*4 + i1 < 10 { A[i0*4 + i1] += 1f32 } } } }",
     NULL},
    {"kernel k { workspace f32 T[10]:(1) " A10
     "for i:10 { T[i] = 1f32 } for j:10 { A[j] = T[j] } }",
     "split i 4 round i0 i1",
     "kernel k { workspace f32 T[12]:(1) " A10
     "for i0:3 { for i1:4 { T[i0*4 + i1] = 1f32 } } for j:10 { A[j] = T[j] } }",
     NULL},
    // tile
    {"kernel k { " Y46 "for i:4 { for j:6 { Y[i, j] = 0f32 } } }", "tile i j 2 4 guard io jo ii ji",
     "kernel k { " Y46 "for io:2 { for jo:2 { for ii:2 { for ji:4 { if jo*4 + ji < 6 { Y[io*2 + "
     "ii, jo*4 + ji] = 0f32 } } } } } }",
     NULL},
    {"kernel k { " Y46 "for i:4 { for j:6 { Y[i, j] = 0f32 } } }", "tile j i 4 2 shift jo io ji ii",
     "kernel k { " Y46 "for jo:2 { for io:2 { for ji:4 { for ii:2 { Y[io*2 + ii, ji + min(jo*4, "
     "2)] = 0f32 } } } } }",
     NULL},
    {"kernel k { " Y46 "for i:4 { for j:6 { Y[i, j] = 0f32 } } }", "tile i j 3 4 peel io jo ii ji",
     "kernel k { " Y46 "for io:1 { for jo:1 { for ii:3 { for ji:4 { Y[ii, ji] = 0f32 } } } "
     "for ii.b.b:3 { for j.b.b:2 { Y[ii.b.b, j.b.b + 4] = 0f32 } } } "
     "for i.b:1 { for j.b:6 { Y[3, j.b] = 0f32 } } }",
     NULL},
    {"kernel k { " Y46 "for i:4 { for j:6 { Y[i, j] = 0f32 } } }", "tile i j 2 4 exact io jo ii ji",
     NULL,
     "schedule: tile i: split j: error: factor must divide the extent 6, got 4: use guard, shift, "
     "peel or round"},
    {"kernel k { " A12 "for i:6 { for j:6 { A[i + j + 1] = A[i + j] } } }",
     "tile i j 2 2 guard io jo ii ji", NULL,
     "schedule: tile i: reorder io: error: the new order reverses a dependence: A(io=0, ii=0, "
     "jo=1, "
     "ji=0) reads A[2], which A(io=0, ii=1, jo=0, ji=0) writes after"},
    // peel
    {"kernel k { " A12 "for i:12 { if i < 10 { A[i] = 0f32 } } }", "peel i 10",
     "kernel k { " A12 "for i:10 { A[i] = 0f32 } }", NULL},
    {"kernel k { " A12 "for i:12 { if i % 3 < 2 { A[i] = 0f32 } } }", "peel i 8",
     "kernel k { " A12 "for i:8 { if i % 3 < 2 { A[i] = 0f32 } } "
     "for i.b:4 { if (i.b + 2) % 3 < 2 { A[i.b + 8] = 0f32 } } }",
     NULL},
    {"kernel k { " A12 "for i:12 { A[i] = 0f32 } }", "peel i 12", NULL,
     "schedule: peel i: error: cut must lie inside the extent 12, got 12"},
    // fuse
    {"kernel k { " Y46 "for i:4 { for j:6 { Y[i, j] = 0f32 } } }", "fuse i j f",
     "kernel k { " Y46 "for f:24 { Y[f / 6, f % 6] = 0f32 } }", NULL},
    {"kernel k { " A12 Y46 "for i:4 { A[i] = 1f32 for j:6 { Y[i, j] = 0f32 } } }", "fuse i j f",
     NULL,
     "schedule: fuse i: error: loop j must be the only thing in loop i: reorder them together"},
    // reorder
    {"kernel k { " X46 Y46 "for i:4 { for j:6 { Y[i, j] = X[i, j] } } }", "reorder j i",
     "kernel k { " X46 Y46 "for j:6 { for i:4 { Y[i, j] = X[i, j] } } }", NULL},
    {"kernel k { " X46 "param f32 S[4]:(1) for i:4 { for j:6 { S[i] += X[i, j] } } }",
     "reorder j i",
     "kernel k { " X46 "param f32 S[4]:(1) for j:6 { for i:4 { S[i] += X[i, j] } } }", NULL},
    {"kernel k { " Y46 "for i:4 { for j:6 { if i < 3 { Y[i, j] = 0f32 } } } }",
     "split j 3 guard a b\nreorder a i b",
     "kernel k { " Y46 "for a:2 { for i:4 { for b:3 { if i < 3 { Y[i, a*3 + b] = 0f32 } } } } }",
     NULL},
    {"kernel k { " Y46 "for i:4 { if i < 3 { for j:6 { Y[i, j] = 0f32 } } } }", "reorder j i",
     "kernel k { " Y46 "for j:6 { for i:4 { if i < 3 { Y[i, j] = 0f32 } } } }", NULL},
    {"kernel k { " A12
     "param f32 B[4, 12]:(12, 1) for i:4 { A[i] = 1f32 for j:6 { B[i, j] = A[i] } } }",
     "reorder j i", NULL,
     "schedule: reorder j: error: loops must be nested with nothing between, got more than one "
     "statement in loop i"},
    {"kernel k { " A12 "for i:6 { for j:6 { A[i + j + 1] = A[i + j] } } }", "reorder j i", NULL,
     "schedule: reorder j: error: the new order reverses a dependence: A(i=0, j=2) reads A[2], "
     "which "
     "A(i=1, j=0) writes after"},
    // hoist
    {"kernel k { " Y46
     "param f32 C[4]:(1) for i:4 { for j:6 { if C[i] < 1f32 { Y[i, j] = 0f32 } } } }",
     "hoist j",
     "kernel k { " Y46
     "param f32 C[4]:(1) for i:4 { if C[i] < 1f32 { for j:6 { Y[i, j] = 0f32 } } } }",
     NULL},
    {"kernel k { " Y46 "for i:4 { for j:6 { if j < 5 && i < 3 { Y[i, j] = 0f32 } } } }", "hoist j",
     "kernel k { " Y46 "for i:4 { if i < 3 { for j:6 { if j < 5 { Y[i, j] = 0f32 } } } } }", NULL},
    {"kernel k { " A12 "for i:6 { for j:4 { if A[i] < 1f32 { A[i + 1] += A[j + 8] } } } }",
     "hoist j",
     "kernel k { " A12 "for i:6 { if A[i] < 1f32 { for j:4 { A[i + 1] += A[j + 8] } } } }", NULL},
    {"kernel k { " A12 "for i:6 { for j:5 { if A[3] < 1f32 { A[i + j] = 2f32 } } } }", "hoist j",
     NULL,
     "schedule: hoist j: error: loop j may change its condition: if(i=0, j=4) reads A[3], which "
     "A(i=0, j=3) writes before (not all indices and conditions are affine)"},
    {"kernel k { " Y46 "for i:4 { for j:6 { if j < 5 { Y[i, j] = 0f32 } } } }", "hoist j", NULL,
     "schedule: hoist j: error: a condition must be the same in all iterations of the loop"},
    {"kernel k { " Y46 "for i:4 { for j:6 { Y[i, j] = 0f32 } } }", "hoist j", NULL,
     "schedule: hoist j: error: a condition must stand around the whole body of the loop"},
    {"kernel k { " Y46 "for i:4 { for j:6 { Y[i, j] = 0f32 } } }", "reorder j j", NULL,
     "schedule: reorder j: error: each loop must be named once, got j twice"},
};

static void rows_hold(void **state) {
  (void)state;
  for (size_t i = 0; i < KILN_LEN(rows); i++) table_run(&rows[i]);
}

// Unlimited nesting would overflow the walks' paths.
static void loops_are_nested_a_bounded_number_deep(void **state) {
  (void)state;
  kiln_ctx cx;
  kiln_diag *diag = kiln_diag_create();
  assert_int_equal(kiln_ctx_init(&cx, diag), KILN_OK);
  kiln_loops *l = loops_parse(&cx, "kernel k { param f32 A[4]:(1) for i:4 { A[i] = 0f32 } }");
  kiln_schedule s = {.cx = &cx, .prog = kiln_program_make(&cx, "k"), .loops = l};
  kiln_text_init(&s.script, &cx.perm);
  kiln_symbol inner = kiln_symbol_of(&cx, "i");
  kiln_status st = KILN_OK;
  int n = 0;
  for (; n < 200 && st == KILN_OK; n++) {
    const kiln_symbol loop = inner;
    inner = kiln_symbol_printf(&cx, "i%d", n);
    st = kiln_split(&s, loop, 1, KILN_TAIL_GUARD, 0, inner);
  }
  assert_int_equal(st, KILN_BAD_INPUT);
  assert_int_equal(n, KILN_MAX_DEPTH - 1);
  assert_string_equal(kiln_diag_message(diag, 0),
                      "schedule: split i125: error: loops must be nested at most 128 deep");
  assert_int_equal(kiln_loops_verify(&cx, s.loops), KILN_OK);
  kiln_ctx_deinit(&cx);
  kiln_diag_destroy(diag);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(rows_hold),
                                     cmocka_unit_test(loops_are_nested_a_bounded_number_deep)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
