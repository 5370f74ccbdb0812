// compute_at and related primitives on whole kernels: a buffer keeps no more than the script's
// place needs, and the results equal the interpreter's.
#include "unit/schedule/table.h"

typedef struct row {
  const char *program, *script;
  const char *holds; // in the text of the loops; NULL: the script is refused
  const char *error; // of the last message before the script's own
} row;

#define BLUR                                                                                       \
  "blur { in f32 X(18, 34) temp f32 H(18, 32) out f32 Y(16, 32) "                                  \
  "H(i:18, j:32) = X(i, j) + X(i, j + 1) + X(i, j + 2) "                                           \
  "Y(i:16, j:32) = H(i, j) + H(i + 1, j) + H(i + 2, j) } "
#define CLAMPED                                                                                    \
  "clamped { in f32 X(20, 30) temp f32 H(20, 30) out f32 Y(20, 30) "                               \
  "H(i:20, j:30) = X(i, max(j - 1, 0)) + X(i, j) + X(i, min(j + 1, 29)) "                          \
  "Y(i:20, j:30) = H(max(i - 1, 0), j) + H(i, j) + H(min(i + 1, 19), j) } "
#define MM                                                                                         \
  "mm { in f32 A(12, 8) in f32 B(8, 10) out f32 C(12, 10) "                                        \
  "C(i:12, j:10 | k:8) +=! A(i, k) * B(k, j) } "
#define RELU                                                                                       \
  "mm { in f32 A(12, 8) in f32 B(8, 10) in f32 D(10) temp f32 C(12, 10) out f32 Y(12, 10) "        \
  "C(i:12, j:10 | k:8) +=! A(i, k) * B(k, j) Y(i:12, j:10) = max(C(i, j) + D(j), 0f32) } "

static const row rows[] = {
    // a stencil at a row, at a tile, and at the rows of a tile
    {BLUR, "compute_at H Y.i local", "local f32 H[3, 32]", NULL},
    {BLUR,
     "tile Y.i Y.j 8 16 guard io jo ii ji\ncompute_at H jo local\nvectorize ji\nvectorize H.j",
     "local f32 H[10, 16]", NULL},
    {BLUR, "tile Y.i Y.j 8 16 guard io jo ii ji\ncompute_at H ii local\nvectorize ji\nunroll H.i",
     "local f32 H[3, 16]", NULL},
    {BLUR, "tile Y.i Y.j 6 10 guard io jo ii ji\ncompute_at H jo local", "local f32 H[8, 10]",
     NULL},
    {BLUR, "tile Y.i Y.j 6 10 shift io jo ii ji\ncompute_at H jo local", "local f32 H[8, 10]",
     NULL},
    {BLUR, "tile Y.i Y.j 6 10 peel io jo ii ji\ncompute_at H io local", NULL,
     "schedule: compute_at H: error: every use of the buffer must be inside of loop io, got one in "
     "loop Y.i.b"},
    // clamped accesses
    {CLAMPED, "split Y.i 5 guard io ii\ncompute_at H io local", "local f32 H[7, 30]", NULL},
    {CLAMPED, "compute_at H Y.i local", "local f32 H[3, 30]", NULL},
    {"one { in f32 X(20) temp f32 H(20) out f32 Y(20, 3) H(i:20) = X(i) * 2f32 "
     "Y(i:20, r:3) = H(max(min(i + r - 1, 19), 0)) }",
     "split Y.i 4 guard io ii\ncompute_at H io local", "local f32 H[6]", NULL},
    // down and up
    {"down { in f32 X(34) temp f32 H(34) out f32 Y(16) H(i:34) = X(i) + 1f32 "
     "Y(i:16) = H(2 * i) + H(2 * i + 1) + H(2 * i + 2) }",
     "split Y.i 4 guard io ii\ncompute_at H io local", "local f32 H[9]", NULL},
    {"up { in f32 X(17) temp f32 H(17) out f32 Y(32) H(i:17) = X(i) + 1f32 "
     "Y(i:32) = H(i / 2) + H((i + 1) / 2) }",
     "split Y.i 8 guard io ii\ncompute_at H io local", "local f32 H[5]", NULL},
    {"up { in f32 X(17) temp f32 H(17) out f32 Y(32) H(i:17) = X(i) + 1f32 "
     "Y(i:32) = H(i / 2) + H((i + 1) / 2) }",
     "compute_at H Y.i local", "local f32 H[2]", NULL},
    {"up { in f32 X(17) temp f32 H(17) out f32 Y(32) H(i:17) = X(i) + 1f32 "
     "Y(i:32) = H(i / 2) * 2f32 }",
     "split Y.i 8 guard io ii\ncompute_at H io local", "local f32 H[4]", NULL},
    // padding by choice, and reads of several statements
    {"pad { in f32 X(20) temp f32 H(20) out f32 Y(20) H(i:20) = X(i) + 1f32 "
     "Y(i:20 | r:3) +=! i + r - 1 < 0 || i + r - 1 >= 20 ? 0f32 : H(i + r - 1) }",
     "split Y.i 5 guard io ii\ncompute_at H io local", "local f32 H[7]", NULL},
    {"two { in f32 X(24) temp f32 H(24) temp f32 G(22) out f32 Y(20) H(i:24) = X(i) + 1f32 "
     "G(i:22) = H(i) + H(i + 2) Y(i:20) = G(i) + G(i + 2) + H(i + 4) }",
     "split Y.i 5 guard io ii\ncompute_at G io local\ncompute_at H io local", "local f32 H[9]",
     NULL},
    // chains, from the outside and from the inside
    {"chain { in f32 X(24) temp f32 H(24) temp f32 G(22) out f32 Y(20) H(i:24) = X(i) + 1f32 "
     "G(i:22) = H(i) + H(i + 2) Y(i:20) = G(i) + G(i + 2) }",
     "split Y.i 5 guard io ii\ncompute_at G io local\ncompute_at H G.i local", "local f32 H[3]",
     NULL},
    {"chain { in f32 X(24) temp f32 H(24) temp f32 G(22) out f32 Y(20) H(i:24) = X(i) + 1f32 "
     "G(i:22) = H(i) + H(i + 2) Y(i:20) = G(i) + G(i + 2) }",
     "compute_at H G.i local\nsplit Y.i 5 guard io ii\ncompute_at G io local", "local f32 G[7]",
     NULL},
    // reductions, with both their nests
    {"mm { in f32 A(12, 8) in f32 B(8, 10) temp f32 C(12, 10) out f32 Y(10, 8) "
     "C(i:12, j:10 | k:8) +=! A(i, k) * B(k, j) Y(i:10, j:8) = C(i, j) + C(i + 2, j + 2) }",
     "tile Y.i Y.j 4 4 guard io jo ii ji\ncompute_at C jo local", "local f32 C[6, 6]", NULL},
    // a scatter, whose index is data, needs the whole buffer
    {"hist { in f32 X(20) in i64 I(20) temp f32 H(20) out f32 Y(3) H(i:20) = X(i) + 1f32 "
     "Y(i:20) at (I(i)) +=! H(i) }",
     "split Y.i 5 guard io ii\ncompute_at H io local", "local f32 H[5]", NULL},
    {"look { in f32 X(3) in i64 I(20) temp f32 H(3) out f32 Y(20) H(i:3) = X(i) + 1f32 "
     "Y(i:20) = H(I(i)) }",
     "split Y.i 5 guard io ii\ncompute_at H io local", "local f32 H[3]", NULL},
    // accumulators in registers, and a cache in another layout
    {MM,
     "cache_write C CC\ntile C.copy.0 C.copy.1 4 5 guard io jo ii ji\n"
     "compute_at CC jo register\nreorder C.k C.i C.j\nvectorize C.j\nunroll C.i\nvectorize ji",
     "register f32 CC[4, 5]", NULL},
    {MM,
     "cache_write C CC\ntile C.copy.0 C.copy.1 4 5 exact io jo ii ji\nparallel io\n"
     "compute_at CC jo local",
     "local f32 CC[4, 5]", NULL},
    {MM, "cache_write C CC 1/4 0 1%4\ntile C.copy.0 C.copy.1 4 5 exact io jo ii ji",
     "workspace f32 CC[3, 12, 4]", NULL},
    {BLUR,
     "cache_write H HC\ncache_write Y YC\ncompute_at HC H.copy.0 local\n"
     "compute_at H Y.i local\ncompute_at YC Y.copy.0 local",
     "local f32 YC[1, 32]", NULL},
    {"put { in f32 X(9, 4) in i64 I(9) in f32 Z(3, 4) out f32 Y(3, 4) "
     "Y(i:9, j:4) at (I(i), j) = X(i, j) init (Z(o0, o1)) }",
     "cache_write Y YC", NULL,
     "schedule: cache_write Y: error: buffer must be written at the indices of its statement, got "
     "a "
     "scatter"},
    {BLUR, "cache_write X XC", NULL,
     "schedule: cache_write X: error: buffer must be computed by the kernel"},
    {BLUR, "compute_root H\ncompute_root Y", "workspace f32 H[18, 32]", NULL},
    {BLUR, "compute_at H Y.i local\ncompute_root H", NULL,
     "schedule: compute_root H: error: buffer must be computed in nests of its own, got it at loop "
     "Y.i: leave out the line that placed it there"},
    // a window that slides along the rows of the whole, or of a tile
    {BLUR, "compute_at H Y.i local\nstore_at H 0", "if Y.i == 0 || H.i >= 2 {", NULL},
    {BLUR, "compute_at H Y.i local\nstore_at H 0", "local f32 H[18, 32]", NULL},
    {BLUR, "compute_at H Y.i local\nstore_at H 0 fold", "local f32 H[4, 32]", NULL},
    {BLUR, "split Y.i 4 guard io ii\ncompute_at H ii local\nstore_at H 0", "local f32 H[18, 32]",
     NULL},
    {BLUR, "compute_at H Y.i local\nstore_at H 0\nstore_at H 0", NULL,
     "schedule: store_at H: error: buffer must be computed at a loop, got it kept for the whole "
     "kernel"},
    {BLUR, "parallel Y.i\ncompute_at H Y.i local\nstore_at H 0", NULL,
     "schedule: store_at H: error: loop Y.i must be serial, got parallel: do this before"},
    {BLUR, "compute_at H Y.i local\nstore_at H Y.i", NULL,
     "schedule: store_at H: error: buffer must be computed at a loop inside of loop Y.i, got one "
     "that is not"},
    {BLUR, "split Y.i 4 guard io ii\ncompute_at H ii local\ntransform_layout H 1 0\nstore_at H io",
     NULL,
     "schedule: store_at H: error: the origin of the buffer's part must be known: store_at after "
     "compute_at, before its layout changes"},
    {BLUR, "split Y.i 4 guard io ii\ncompute_at H ii local\nstore_at H io",
     "if ii == 0 || H.i >= 2 {", NULL},
    {BLUR, "split Y.i 4 guard io ii\ncompute_at H ii local\nstore_at H io", "local f32 H[6, 32]",
     NULL},
    {BLUR,
     "split Y.i 8 guard io ii\nparallel io\ncompute_at H ii local\nstore_at H io "
     "fold\nvectorize H.j\nvectorize Y.j",
     "local f32 H[4, 32]", NULL},
    {BLUR,
     "tile Y.i Y.j 8 10 guard io jo ii ji\ncompute_at H ii local\nstore_at H jo fold\n"
     "vectorize H.j\nvectorize ji",
     "local f32 H[4, 10]", NULL},
    {BLUR, "tile Y.i Y.j 8 10 shift io jo ii ji\ncompute_at H ii local\nstore_at H io fold",
     "local f32 H[4, 32]", NULL},
    {"diagonal { in f32 X(9, 9) temp f32 H(9, 9) out f32 Y(8) H(i:9, j:9) = X(i, j) + 1f32 "
     "Y(i:8) = H(i, i) + H(i + 1, i + 1) }",
     "split Y.i 4 guard io ii\ncompute_at H ii local\nstore_at H io fold", NULL,
     "schedule: store_at H: error: the part that an iteration of loop ii needs must slide along "
     "one "
     "axis to be folded: leave out fold"},
    {"diagonal { in f32 X(9, 9) temp f32 H(9, 9) out f32 Y(8) H(i:9, j:9) = X(i, j) + 1f32 "
     "Y(i:8) = H(i, i) + H(i + 1, i + 1) }",
     "split Y.i 4 guard io ii\ncompute_at H ii local\nstore_at H io", "local f32 H[5, 5]", NULL},
    {BLUR, "tile Y.i Y.j 8 10 shift io jo ii ji\ncompute_at H ii local\nstore_at H io",
     "if ii == 0 || H.i >= 2 {", NULL},
    {CLAMPED, "split Y.i 5 guard io ii\ncompute_at H ii local\nstore_at H io fold",
     "local f32 H[4, 30]", NULL},
    {CLAMPED, "split Y.i 7 guard io ii\ncompute_at H ii local\nstore_at H io", "if ii == 0 || ",
     NULL},
    {"up { in f32 X(17) temp f32 H(17) out f32 Y(32) H(i:17) = X(i) + 1f32 "
     "Y(i:32) = H(i / 2) + H((i + 1) / 2) }",
     "split Y.i 8 guard io ii\ncompute_at H ii local\nstore_at H io fold", "local f32 H[2]", NULL},
    {"down { in f32 X(34) temp f32 H(34) out f32 Y(16) H(i:34) = X(i) + 1f32 "
     "Y(i:16) = H(2 * i) + H(2 * i + 1) + H(2 * i + 2) }",
     "split Y.i 4 guard io ii\ncompute_at H ii local\nstore_at H io fold", "|| H.i >= 1 {", NULL},
    {"same { in f32 X(6, 8) temp f32 S(6) out f32 Y(6, 8) S(i:6 | k:8) +=! X(i, k) "
     "Y(i:6, j:8) = X(i, j) / (S(i) * S(i) + 1f32) }",
     "compute_at S Y.j local\nstore_at S Y.i", "if Y.j == 0 {", NULL},
    // reductions and chains that slide
    {"mm { in f32 A(12, 8) in f32 B(8, 10) temp f32 C(12, 10) out f32 Y(10, 8) "
     "C(i:12, j:10 | k:8) +=! A(i, k) * B(k, j) Y(i:10, j:8) = C(i, j) + C(i + 2, j + 2) }",
     "tile Y.i Y.j 5 4 exact io jo ii ji\ncompute_at C ii local\nstore_at C jo fold",
     "local f32 C[4, 6]", NULL},
    {"chain { in f32 X(24, 5) temp f32 H(24, 5) temp f32 G(22, 5) out f32 Y(20, 5) "
     "H(i:24, j:5) = X(i, j) + 1f32 G(i:22, j:5) = H(i, j) + H(i + 2, j) "
     "Y(i:20, j:5) = G(i, j) + G(i + 2, j) }",
     "split Y.i 10 exact io ii\ncompute_at G ii local\ncompute_at H ii local\n"
     "store_at H io fold\nstore_at G io fold",
     "local f32 H[8, 5]", NULL},
    {"chain { in f32 X(24, 5) temp f32 H(24, 5) temp f32 G(22, 5) out f32 Y(20, 5) "
     "H(i:24, j:5) = X(i, j) + 1f32 G(i:22, j:5) = H(i, j) + H(i + 2, j) "
     "Y(i:20, j:5) = G(i, j) + G(i + 2, j) }",
     "split Y.i 10 exact io ii\ncompute_at G ii local\nstore_at G io fold\ncompute_at H G.i local",
     "local f32 H[3, 5]", NULL},
    {"chain { in f32 X(24, 5) temp f32 H(24, 5) temp f32 G(22, 5) out f32 Y(20, 5) "
     "H(i:24, j:5) = X(i, j) + 1f32 G(i:22, j:5) = H(i, j) + H(i + 2, j) "
     "Y(i:20, j:5) = G(i, j) + G(i + 2, j) }",
     "split Y.i 10 exact io ii\ncompute_at G ii local\ncompute_at H ii local\nstore_at G io", NULL,
     "schedule: store_at G: error: the nests of the buffer must read buffers that live outside of "
     "loop ii, got "
     "buffer H: store_at that before"},
    {"chain { in f32 X(24, 5) temp f32 H(24, 5) temp f32 G(22, 5) out f32 Y(20, 5) "
     "H(i:24, j:5) = X(i, j) + 1f32 G(i:22, j:5) = H(i, j) + H(i + 2, j) "
     "Y(i:20, j:5) = G(i, j) + G(i + 2, j) }",
     "split G.j 5 exact go gi\nreorder go G.i gi\ncompute_at H G.i local\nstore_at H go\n"
     "compute_at G Y.i local",
     NULL,
     "schedule: compute_at G: error: iterations of loop G.i must not hand values on in a nest that "
     "moves: G(i=1, gi=0) reads H[1, 0], which H(G.i=0, i=1, j=0) writes before: do this before "
     "store_at or pipeline"},
    // iterations of a sliding window stay in order
    {BLUR, "split Y.i 4 guard io ii\ncompute_at H ii local\nstore_at H io fold\nparallel ii", NULL,
     "schedule: parallel ii: error: loop must be the outermost of its nest, got io around it: "
     "reorder or fuse"},
    // decompose_reduction
    {MM, "decompose_reduction C C.k", "for C.j:10 {\n      C[C.i, C.j] = 0f32", NULL},
    {MM, "reorder C.k C.j\ndecompose_reduction C C.k", "for C.j.init:10 {", NULL},
    {MM,
     "tile C.i C.j 5 4 guard io jo ii ji\nsplit C.k 4 guard ko ki\nreorder ko ii ji ki\n"
     "decompose_reduction C ko\nvectorize ji.init\nparallel io",
     "for ii.init:5 {", NULL},
    {MM, "tile C.i C.j 5 4 peel io jo ii ji\ndecompose_reduction C io", NULL,
     "schedule: decompose_reduction C: error: buffer must be initialised by one statement and "
     "accumulated into by one, got 1 and 3"},
    {MM, "reorder C.k C.i\ndecompose_reduction C C.j", NULL,
     "schedule: decompose_reduction C: error: loop C.k around loop C.j must not reduce: reorder it "
     "inside of that"},
    {MM, "fuse C.i C.j f\ndecompose_reduction C C.k", NULL,
     "schedule: decompose_reduction C: error: the loops of the nest that accumulates must run "
     "through the whole buffer, one axis each: decompose_reduction before fuse"},
    {MM, "split C.init.i 4 guard a b\ndecompose_reduction C C.k", "for C.j:10 {\n      C[C.i, C.j]",
     NULL},
    {"tri { in f32 A(7, 4) out f32 C(7) C(i:7 | k:4) +=! A(i, k) if i < 3 }",
     "decompose_reduction C C.k", "if C.i < 3 {", NULL},
    {"tri { in f32 A(7, 4) out f32 C(7) C(i:7 | k:4) +=! A(i, k) if k <= i }",
     "split C.i 3 guard io ii\ndecompose_reduction C ii", "for ii.init:3 {", NULL},
    {"odd { in f32 X(5, 4) out f32 T(11, 4) "
     "T(i:5, j:4 | k:4) at (i * 2 + 1, j) +=! X(i, k) init (f32(o1)) }",
     "decompose_reduction T T.k", NULL,
     "schedule: decompose_reduction T: error: the loops of the nest that accumulates must run "
     "through the whole buffer, one axis each: decompose_reduction before fuse"},
    {"init { in f32 X(5, 4) in f32 Z(5) out f32 T(5) "
     "T(i:5 | k:4) +=! X(i, k) init (Z(o0) + f32(o0)) }",
     "split T.i 2 guard a b\nreorder a T.k b\ndecompose_reduction T T.k", "for b.init:2 {", NULL},
    // reverse_compute_at
    {RELU,
     "tile C.i C.j 4 5 guard io jo ii ji\ndecompose_reduction C ii\n"
     "reverse_compute_at Y jo\nparallel io\nvectorize Y.j",
     "for Y.j:5 vectorized {", NULL},
    {RELU,
     "tile C.i C.j 5 4 guard io jo ii ji\ndecompose_reduction C C.k\n"
     "reverse_compute_at Y ii",
     "for Y.i:1 {", NULL},
    {RELU, "decompose_reduction C C.k\nreverse_compute_at Y C.k", NULL,
     "schedule: reverse_compute_at Y: error: buffer C must be written in loop C.k only: "
     "decompose_reduction at a loop inside of it"},
    {RELU, "reverse_compute_at Y C.i", "for Y.i:1 {", NULL},
    {RELU, "reorder C.k C.i\ndecompose_reduction C C.k\nreverse_compute_at Y C.i", NULL,
     "schedule: reverse_compute_at Y: error: an element of buffer C must be complete after one "
     "iteration of loop C.i, got loop C.k, whose iterations share them: reorder it inside, and "
     "split with guard or peel"},
    {BLUR, "reverse_compute_at Y H.i", NULL,
     "schedule: reverse_compute_at Y: error: axis 0 of buffer H must be read at a loop of the "
     "consumer"},
    {"scale { in f32 X(7, 9) in f32 B(9) temp f32 T(7, 9) out f32 Y(9, 7) "
     "T(i:7, j:9) = X(i, j) * 2f32 Y(j:9, i:7) = T(i, j) + B(j) }",
     "split T.j 4 guard jo ji\nreverse_compute_at Y jo", "for Y.j:4 {", NULL},
    // loops that were split before
    {BLUR,
     "split H.i 4 guard a b\nvectorize H.j\nsplit Y.j 8 guard jo ji\nreorder jo Y.i\n"
     "compute_at H Y.i local",
     NULL,
     "schedule: compute_at H: error: axis 0 of the buffer must be written by one loop over its "
     "extent in each nest: compute_at before splitting its loops"},
};

static void scripts_keep_what_is_needed(void **state) {
  (void)state;
  for (size_t i = 0; i < KILN_LEN(rows); i++) {
    test_kernel k;
    kernel_open(&k, rows[i].program, i);
    kiln_schedule s;
    assert_int_equal(kiln_schedule_begin(&k.cx, k.prog, &s), KILN_OK);
    const kiln_status st = kiln_schedule_replay(&s, rows[i].script);
    if (rows[i].error) {
      if (st != KILN_BAD_INPUT) fail_msg("not refused:\n%s", rows[i].script);
      assert_string_equal(kiln_diag_message(k.diag, 0), rows[i].error);
    } else if (st != KILN_OK) {
      fail_msg("%s\n%s", kiln_diag_message(k.diag, 0), rows[i].script);
    }
    assert_int_equal(kiln_loops_verify(&k.cx, s.loops), KILN_OK);
    if (rows[i].holds && !strstr(kernel_text(&k, s.loops), rows[i].holds))
      fail_msg("no \"%s\" in\n%s%s", rows[i].holds, rows[i].script, kernel_text(&k, s.loops));
    kernel_check(&k, s.loops, kiln_schedule_script(&s));
    kernel_check_replay(&k, &s);
    kernel_close(&k);
  }
}

#define PRODUCER "kernel t { workspace f32 P[7, 3]:(3, 1) param f32 C[7, 3]:(3, 1) "
#define CONSUMER "for ci:7 { for cj:3 { C[ci, cj] = P[ci, cj] } } }"
#define INITIALISED                                                                                \
  "kernel t { param f32 A[7, 4]:(4, 1) param f32 C[7]:(1) for o:7 { C[o] = 1f32 } "

static const table_row tables[] = {
    {INITIALISED "for i:7 { if i < 3 { for k:4 { C[i] += A[i, k] } } } }",
     "decompose_reduction C k", NULL,
     "schedule: decompose_reduction C: error: no condition but on the range of the buffer must "
     "stand around loop k: decompose_reduction at a loop outside of it"},
    {INITIALISED "for i:7 { if i < 3 { for k:4 { C[i] += A[i, k] } } } }",
     "decompose_reduction C i",
     "kernel t { param f32 A[7, 4]:(4, 1) param f32 C[7]:(1) for i.init:7 { C[i.init] = 1f32 } "
     "for i:7 { if i < 3 { for k:4 { C[i] += A[i, k] } } } }",
     NULL},
    {INITIALISED "for a:2 { for b:4 { if a*4 + b < 7 { for k:4 { C[a*4 + b] += A[a*4 + b, k] } } } "
                 "} }",
     "decompose_reduction C k",
     "kernel t { param f32 A[7, 4]:(4, 1) param f32 C[7]:(1) "
     "for a:2 { for b:4 { if a*4 + b < 7 { C[a*4 + b] = 1f32 "
     "for k:4 { C[a*4 + b] += A[a*4 + b, k] } } } } }",
     NULL},
    // elements that a condition excludes are not computed, nor are their inputs
    {PRODUCER "for i:7 { if i % 2 == 0 { for j:3 { P[i, j] = 1f32 } } } " CONSUMER,
     "reverse_compute_at C j", NULL,
     "schedule: reverse_compute_at C: error: no condition but on the range of buffer P must stand "
     "around loop j: reverse_compute_at a loop outside of it"},
    {PRODUCER "for i:9 { if i >= 2 { for j:3 { P[i - 2, j] = 1f32 } } } " CONSUMER,
     "reverse_compute_at C j",
     PRODUCER "for i:9 { if i >= 2 { for j:3 { P[i - 2, j] = 1f32 for ci:1 { if i >= 2 { "
              "for cj:1 { C[i - 2, j] = P[i - 2, j] } } } } } } }",
     NULL},
    {"kernel t { param f32 C[2, 2, 2]:(4, 2, 1) for i:2 { C[i, i, i] = 1f32 } }",
     "cache_write C D 0/2000000000 1/2000000000 2/2000000000 0%2000000000 1%2000000000 "
     "2%2000000000",
     NULL,
     "schedule: cache_write C: error: buffer D must have at most 4398046511104 elements, got more"},
    {"kernel t { param f32 C[7]:(1) for i:7 { C[i] += 1f32 } }", "cache_write C D", NULL,
     "schedule: cache_write C: error: buffer must be assigned before it is read or accumulated "
     "into"},
    {"kernel t { param f32 C[7]:(1) for i:7 { C[i] += 1f32 } }", "decompose_reduction C i", NULL,
     "schedule: decompose_reduction C: error: buffer must be initialised by one statement and "
     "accumulated into by one, got 0 and 1"},
};

static void loops_become_what_is_said(void **state) {
  (void)state;
  for (size_t i = 0; i < KILN_LEN(tables); i++) table_run(&tables[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(scripts_keep_what_is_needed),
                                     cmocka_unit_test(loops_become_what_is_said)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
