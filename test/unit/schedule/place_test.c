// compute_at, inline, stage, rfactor, stream_k, tensorize: where values are computed and stored.
#include "unit/schedule/table.h"

#include "schedule/instr.h"

#define MM                                                                                         \
  "kernel mm { param f32 A[30, 8]:(8, 1) param f32 B[8, 20]:(20, 1) workspace f32 C[30, 20]:(20, " \
  "1) "                                                                                            \
  "param f32 Y[30, 20]:(20, 1) "                                                                   \
  "for ci:30 { for cj:20 { C[ci, cj] = 0f32 } } "                                                  \
  "for i:30 { for j:20 { for r:8 { C[i, j] += A[i, r] * B[r, j] } } } "                            \
  "for m:30 { for n:20 { Y[m, n] = max(C[m, n], 0f32) } } }"
#define MM_PARAMS "kernel mm { param f32 A[30, 8]:(8, 1) param f32 B[8, 20]:(20, 1) "
#define BLUR                                                                                       \
  "kernel b { param f32 X[12, 8]:(8, 1) workspace f32 H[12, 8]:(8, 1) param f32 Y[10, 8]:(8, 1) "  \
  "for hi:12 { for hj:8 { H[hi, hj] = X[hi, hj] + 1f32 } } "                                       \
  "for i:10 { for j:8 { Y[i, j] = H[i, j] + H[i + 2, j] } } }"

static const table_row rows[] = {
    // a register tile: the box of a shifted tail begins where the tile does
    {MM,
     "split m 14 shift m0 m1\nsplit n 10 guard n0 n1\nreorder m0 n0 m1 n1\ncompute_at C n0 "
     "register",
     MM_PARAMS
     "register f32 C[14, 10]:(10, 1) param f32 Y[30, 20]:(20, 1) "
     "for m0:3 { for n0:2 { alloc C { for ci:14 { for cj:10 { C[ci, cj] = 0f32 } } "
     "for i:14 { for j:10 { for r:8 { C[i, j] += A[i + min(m0*14, 16), r]*B[r, n0*10 + j] } } } "
     "for m1:14 { for n1:10 { Y[m1 + min(m0*14, 16), n0*10 + n1] = max(C[m1, n1], 0f32) } } } } } "
     "}",
     NULL},
    // a guarded tail over an operand that is not padded: the box moves inwards
    {MM, "split n 16 guard n0 n1\nreorder n0 m n1\ncompute_at C m local",
     MM_PARAMS "local f32 C[1, 16]:(16, 1) param f32 Y[30, 20]:(20, 1) "
               "for n0:2 { for m:30 { alloc C { for ci:1 { for cj:16 { C[0, cj] = 0f32 } } "
               "for i:1 { for j:16 { for r:8 { C[0, j] += A[m, r]*B[r, j + min(n0*16, 4)] } } } "
               "for n1:16 { if n0*16 + n1 < 20 { Y[m, n0*16 + n1] = max(C[0, n0*16 + n1 - "
               "min(n0*16, 4)], 0f32) } } } } } }",
     NULL},
    {BLUR, "compute_at H i local",
     "kernel b { param f32 X[12, 8]:(8, 1) local f32 H[3, 8]:(8, 1) param f32 Y[10, 8]:(8, 1) "
     "for i:10 { alloc H { for hi:3 { for hj:8 { H[hi, hj] = X[hi + i, hj] + 1f32 } } "
     "for j:8 { Y[i, j] = H[0, j] + H[2, j] } } } }",
     NULL},
    {BLUR, "compute_at H hi local", NULL,
     "schedule: compute_at H: error: loop hi must be a loop of a consumer, got one that computes "
     "the buffer"},
    {BLUR, "compute_at X i local", NULL,
     "schedule: compute_at X: error: buffer must be a workspace, as temporaries are before they "
     "are placed"},
    {BLUR, "compute_at Z i local", NULL,
     "schedule: compute_at Z: error: buffer must be one of the kernel's, got \"Z\""},
    {"kernel b { workspace f32 H[8]:(1) param f32 Y[8]:(1) param f32 Z[8]:(1) for h:8 { H[h] = "
     "1f32 } "
     "for i:8 { Y[i] = H[i] } for j:8 { Z[j] = H[j] } }",
     "compute_at H i local", NULL,
     "schedule: compute_at H: error: every use of the buffer must be inside of loop i, got one in "
     "loop j"},
    // inline
    {BLUR, "inline H",
     "kernel b { param f32 X[12, 8]:(8, 1) param f32 Y[10, 8]:(8, 1) "
     "for i:10 { for j:8 { Y[i, j] = X[i, j] + 1f32 + (X[i + 2, j] + 1f32) } } }",
     NULL},
    {MM, "inline C", NULL,
     "schedule: inline C: error: buffer must be assigned by one statement without a reduction: use "
     "compute_at"},
    // stage
    {"kernel t { param f32 X[6, 8]:(8, 1) param f32 Y[8, 6]:(6, 1) for i:8 { for j:6 { Y[i, j] = "
     "X[j, i] } } }",
     "split i 4 guard i0 i1\nstage X i0 local T 1 0",
     "kernel t { param f32 X[6, 8]:(8, 1) param f32 Y[8, 6]:(6, 1) local f32 T[4, 6]:(6, 1) "
     "for i0:2 { alloc T { for T.0:4 { for T.1:6 { T[T.0, T.1] = X[T.1, i0*4 + T.0] } } "
     "for i1:4 { for j:6 { Y[i0*4 + i1, j] = T[i1, j] } } } } }",
     NULL},
    {"kernel t { param f32 X[6, 7]:(7, 1) param f32 Y[7, 6]:(6, 1) for i:7 { for j:6 { Y[i, j] = "
     "X[j, i] } } }",
     "stage X 0 workspace T 1/4 0 1%4",
     "kernel t { param f32 X[6, 7]:(7, 1) param f32 Y[7, 6]:(6, 1) workspace f32 T[2, 6, 4]:(24, "
     "4, 1) "
     "for T.0:2 { for T.1:6 { for T.2:4 { T[T.0, T.1, T.2] = T.0*4 + T.2 < 7 ? X[T.1, T.0*4 + T.2] "
     ": 0f32 } } } "
     "for i:7 { for j:6 { Y[i, j] = T[i / 4, j, i % 4] } } }",
     NULL},
    {"kernel t { param f32 X[6, 8]:(8, 1) param f32 Y[6]:(1) for i:6 { for j:8 { Y[i] += X[i, j] } "
     "} }",
     "stage X i workspace T 1 0",
     "kernel t { param f32 X[6, 8]:(8, 1) param f32 Y[6]:(1) workspace f32 T[6, 8, 1]:(8, 1, 1) "
     "for i:6 { for T.0:8 { for T.1:1 { T[i, T.0, 0] = X[i, T.0] } } for j:8 { Y[i] += T[i, j, 0] "
     "} } }",
     NULL},
    {"kernel t { param f32 X[6, 8]:(8, 1) param f32 Y[6]:(1) for i:6 { for j:8 { Y[i] += X[i, j] } "
     "} }",
     "stage X i local T 0 1/2 1%4", NULL,
     "schedule: stage X: error: axis 2: each part of source axis 1 must be named once"},
    {"kernel t { param f32 X[6, 8]:(8, 1) param f32 Y[6]:(1) for i:6 { for j:8 { Y[i] += X[i, j] } "
     "} }",
     "stage X i local T 1", NULL,
     "schedule: stage X: error: source axis 0 must be named whole, or as / block and % block"},
    // rfactor
    {"kernel s { param f32 X[6, 30]:(30, 1) param f32 Y[6]:(1) for i:6 { for r:30 { Y[i] += X[i, "
     "r] } } }",
     "split r 8 guard r0 r1\nrfactor r1 P\nvectorize r1\nvectorize P.1",
     "kernel s { param f32 X[6, 30]:(30, 1) param f32 Y[6]:(1) local f32 P[1, 8]:(8, 1) "
     "for i:6 { alloc P { for P.init.0:1 { for P.init.1:8 { P[0, P.init.1] = 0f32 } } "
     "for r0:4 { for r1:8 vectorized { if r0*8 + r1 < 30 { P[0, r1] += X[i, r0*8 + r1] } } } "
     "for P.0:1 { for P.1:8 vectorized { Y[i] += P[0, P.1] } } } } }",
     NULL},
    {"kernel s { param f32 X[6, 30]:(30, 1) param f32 Y[6]:(1) for i:6 { for r:30 { Y[i] += X[i, "
     "r] } } }",
     "rfactor i P", NULL,
     "schedule: rfactor i: error: loop must be a reduction loop, got one that indexes buffer Y"},
    // stream_k
    {"kernel s { param f32 X[6, 5]:(5, 1) param f32 Y[6]:(1) for i:6 { for r:5 { Y[i] += X[i, r] } "
     "} }",
     "split i 2 exact io ii\nreorder io r ii\nportion r 5 P S b u",
     "kernel s { param f32 X[6, 5]:(5, 1) param f32 Y[6]:(1) workspace f32 P[5, 2, 2]:(4, 2, 1) "
     "local f32 S[2]:(1) for b:5 { alloc S { for u:3 { if u == 0 || (b*3 + u)%5 == 0 { for "
     "S.init.0:2 { S[S.init.0] = 0f32 } } for ii:2 { S[ii] += X[(b*3 + u)/5*2 + ii, (b*3 + u)%5] } "
     "if u == 2 || (b*3 + u)%5 == 4 { for S.copy.0:2 { P[b, (b*3 + u)/5 - b*3/5, S.copy.0] = "
     "S[S.copy.0] } } } } } for P.0:6 { for P.1:3 { if P.1 + P.0/2*2/3 < (P.0/2*2 + 1)/3 + 2 { "
     "Y[P.0] += P[P.1 + P.0/2 + P.0/2*2/3, P.0/2 - (P.1*3 + P.0/2*3 + P.0/2*2/3*3)/5, P.0%2] } } } "
     "}",
     NULL},
    {"kernel s { param f32 X[6, 5]:(5, 1) param f32 Y[6]:(1) for i:6 { for r:5 { Y[i] += X[i, r] } "
     "} }",
     "stream_k r 6 P S b u",
     "kernel s { param f32 X[6, 5]:(5, 1) param f32 Y[6]:(1) workspace f32 P[6, 1, 1]:(1, 1, 1) "
     "local f32 S[1]:(1) for b:6 { alloc S { for u:5 { if u == 0 { for S.init.0:1 { S[0] = 0f32 } "
     "} S[0] += X[b, u] if u == 4 { for S.copy.0:1 { P[b, 0, 0] = S[0] } } } } } for P.0:6 { for "
     "P.1:1 { Y[P.0] += P[P.0, 0, 0] } } }",
     NULL},
    {"kernel s { param f32 X[6, 5]:(5, 1) param f32 Y[6]:(1) for i:6 { for r:5 { Y[i] += X[i, r] } "
     "} }",
     "split r 3 guard ro ri\nportion ro 4 P S b u",
     "kernel s { param f32 X[6, 5]:(5, 1) param f32 Y[6]:(1) workspace f32 P[4, 2, 1]:(2, 1, 1) "
     "local f32 S[1]:(1) for b:4 { alloc S { for u:3 { if u == 0 || (b + u)%2 == 0 { for "
     "S.init.0:1 { S[0] = 0f32 } } for ri:3 { if (b + u)%2*3 + ri < 5 { S[0] += X[b + (b + u)/2, "
     "(b + u)%2*3 + ri] } } if u == 2 || (b + u)%2 == 1 { for S.copy.0:1 { P[b, (b + u)/2 - b/2, "
     "0] = S[0] } } } } } for P.0:6 { for P.1:2 { if P.1 + P.0*2/3 <= (P.0*2 + 1)/3 { Y[P.0] += "
     "P[P.1 + P.0*2/3, P.0 - P.1 - (P.1 + P.0*2/3)/2 - P.0*2/3, 0] } } } }",
     NULL},
    {"kernel s { param f32 X[6, 5]:(5, 1) param f32 Y[6]:(1) for i:6 { for r:5 { Y[i] += X[i, r] } "
     "} }",
     "stream_k r 4 P S b u", NULL,
     "schedule: stream_k r: error: portions must divide the 30 iterations, got 4"},
    {"kernel s { param f32 X[2097152, 2]:(2, 1) param f32 Y[2097152]:(1) for i:2097152 { for r:2 { "
     "Y[i] += X[i, r] } } }",
     "stream_k r 4 P S b u", NULL,
     "schedule: stream_k r: error: tiles and portions must be at most 1048576, got 2097152 and 4"},
    {"kernel s { param f32 X[6, 5]:(5, 1) param f32 Y[6]:(1) for i:6 { for r:5 { Y[i] += X[i, r] } "
     "} }",
     "stream_k r 5 P P b u", NULL,
     "schedule: stream_k r: error: new buffers, and new loops, must have two names"},
    {"kernel s { param f32 X[6, 5]:(5, 1) param f32 Y[6]:(1) for i:6 { for r:5 { Y[i] += X[i, r] } "
     "} }",
     "stream_k i 5 P S b u", NULL,
     "schedule: stream_k i: error: axis 0 of buffer Y must be reached element by element, by loops "
     "within the loop and those around it: tile its loops exactly"},
    {"kernel s { param f32 X[6, 6]:(6, 1) param f32 Y[6]:(1) for ro:2 { for i:6 { for r:3 { Y[i] "
     "+= X[i, ro*3 + r] } } } }",
     "stream_k r 4 P S b u", NULL,
     "schedule: stream_k r: error: the loops around must index buffer Y, got loop ro"},
    {"kernel s { param f32 X[6, 5]:(5, 1) param f32 Y[6]:(1) for io:2 { for r:5 { for ii:4 { if "
     "io*4 + ii < 6 { Y[io*4 + ii] += X[io*4 + ii, r] } } } } }",
     "stream_k r 2 P S b u", NULL,
     "schedule: stream_k r: error: axis 0 of buffer Y must be reached element by element, by loops "
     "within the loop and those around it: tile its loops exactly"},
    {"kernel s { param f32 X[6, 5]:(5, 1) param f32 Y[6]:(1) for i:6 { for r:5 { if i < r { Y[i] "
     "+= X[i, r] } } } }",
     "stream_k r 2 P S b u", NULL,
     "schedule: stream_k r: error: conditions in the loop must be the same for all elements of "
     "buffer Y"},
    {"kernel s { param f32 X[6, 5]:(5, 1) param f32 Y[6]:(1) param f32 Z[6]:(1) for i:6 { Z[i] = "
     "0f32 for r:5 { Y[i] += X[i, r] } } }",
     "stream_k r 2 P S b u", NULL,
     "schedule: stream_k r: error: the loops around must hold nothing but it"},
    {"kernel s { param f32 X[6, 5]:(5, 1) param f32 Y[6]:(1) for i:6 { for r:5 { Y[i] += X[i, "
     "r]*Y[0] } } }",
     "stream_k r 2 P S b u", NULL,
     "schedule: stream_k r: error: buffer Y must not be read in the loop"},
    {"kernel s { param f32 X[6, 5]:(5, 1) param f32 Y[6]:(1) for i:6 parallel { for r:5 { Y[i] += "
     "X[i, r] } } }",
     "stream_k r 2 P S b u", NULL,
     "schedule: stream_k r: error: loop i must be serial, got parallel: do this before"},
};

static void rows_hold(void **state) {
  (void)state;
  for (size_t i = 0; i < KILN_LEN(rows); i++) table_run(&rows[i]);
}

// --- instructions ---

static const kiln_instr dot4_row = {
    .name = "dot4",
    .meaning = "def dot4(float(2) A, float(4, 2) B, float(4) C) -> (D) { D(i) = C(i) "
               "D(i) += A(k) * B(i, k) }",
    .spelling = "none",
    .is_there = true,
    .strides = {{1}, {1}, {2, 1}}};

static const char dots[] =
    "dots { in f32 A(6, 8) in f32 B(8, 12) temp f32 C(6, 12) out f32 Y(6, 12) "
    "C(i0:6, i1:12 | r0:8) +=! A(i0, r0) * B(r0, i1) Y(i0:6, i1:12) = C(i0, i1) }";

// Loops with an instruction parse as they print; without the target's table they are refused.
static void check_round_trip(test_kernel *k, const kiln_loops *l, kiln_instr *dot4) {
  const kiln_instr_table table = {&k->cx, 1, dot4};
  kiln_loops *again = NULL;
  const char *text = kernel_text(k, l);
  assert_non_null(strstr(text, "instr dot4("));
  assert_int_equal(kiln_loops_parse_with(&k->cx, text, kiln_instr_find_in, &table, &again),
                   KILN_OK);
  assert_int_equal(kiln_loops_verify(&k->cx, again), KILN_OK);
  assert_string_equal(kernel_text(k, again), text);
  assert_int_equal(kiln_loops_parse(&k->cx, text, &again), KILN_BAD_INPUT);
  assert_non_null(strstr(kernel_message(k), "a known instruction before this place"));
  kiln_diag_clear(k->diag);
}

static void a_nest_becomes_an_instruction(void **state) {
  (void)state;
  test_kernel k;
  kernel_open(&k, dots, 3);
  kiln_instr dot4 = dot4_row;
  kiln_schedule s;
  assert_int_equal(kiln_schedule_begin(&k.cx, k.prog, &s), KILN_OK);
  s.instrs = &dot4;
  s.n_instrs = 1;
  const char *script =
      "stage B 0 workspace Bp 1/4 0/2 1%4 0%2\nsplit C.i1 4 guard n0 n1\nsplit C.r0 2 guard k0 k1\n"
      "reorder n0 C.i0 k0 n1 k1\n";
  assert_int_equal(kiln_schedule_replay(&s, script), KILN_OK);
  assert_int_equal(kiln_schedule_replay(&s, "tensorize n1 dot4"), KILN_OK);
  kernel_check(&k, s.loops, kiln_schedule_script(&s));
  kernel_check_replay(&k, &s);
  check_round_trip(&k, s.loops, &dot4);
  // without the packing the elements of b lie elsewhere
  assert_int_equal(kiln_schedule_begin(&k.cx, k.prog, &s), KILN_OK);
  assert_int_equal(
      kiln_schedule_replay(
          &s, "split C.i1 4 guard n0 n1\nsplit C.r0 2 guard k0 k1\nreorder n0 C.i0 k0 n1 k1"),
      KILN_OK);
  kiln_diag_clear(k.diag);
  assert_int_equal(kiln_tensorize(&s, kiln_symbol_of(&k.cx, "n1"), &dot4), KILN_BAD_INPUT);
  assert_string_equal(kernel_message(&k),
                      "schedule: tensorize n1: error: dot4: operand B (buffer B) must have "
                      "neighbours along loop n1 "
                      "2 elements apart, got 1: stage it with that axis innermost");
  kernel_close(&k);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(rows_hold),
                                     cmocka_unit_test(a_nest_becomes_an_instruction)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
