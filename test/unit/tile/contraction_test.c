// The contraction template: every candidate gives the reference interpreter's results, and the
// expected candidates are proposed.
#include "unit/tile/lowering.h"
#include "unit/share.h"

#include "template/cpu/contraction.h"
#include "tile/panels.h"

static const kiln_machine machine = {.target = &kiln_target_cpu,
                                     .vector_bytes = 32,
                                     .n_vector_regs = 16,
                                     .l1_bytes = 32 << 10,
                                     .l2_bytes = 1 << 16,
                                     .n_cores = 2};
static const kiln_machine vectors_of_64 = {.target = &kiln_target_cpu,
                                           .vector_bytes = 64,
                                           .n_vector_regs = 32,
                                           .l1_bytes = 32 << 10,
                                           .l2_bytes = 1 << 18,
                                           .n_cores = 2};

static const kiln_machine small_l1 = {.target = &kiln_target_cpu,
                                      .vector_bytes = 32,
                                      .n_vector_regs = 16,
                                      .l1_bytes = 8 << 10,
                                      .l2_bytes = 1 << 17,
                                      .n_cores = 2};

static const kiln_machine small_vectors = {.target = &kiln_target_cpu,
                                           .vector_bytes = 16,
                                           .n_vector_regs = 16,
                                           .l1_bytes = 16 << 10,
                                           .l2_bytes = 160 << 10,
                                           .n_cores = 2};

typedef struct contraction_case {
  const char *name, *text;
  const char *step; // a line that a candidate's script must have; NULL: any
  const char *never;
  const kiln_machine *on;
} contraction_case;

static const contraction_case cases[] = {
    {"a result that lies across the vectors",
     "p { in f32 X(40, 12) const f32 V(12, 20) = ... const f32 B(20) = ... temp f32 t0(40, 20) "
     "out f32 y(40, 20) order(1, 0) t0(i0:40, i1:20 | r0:12) +=! X(i0, r0) * V(r0, i1) "
     "y(i0:40, i1:20) = t0(i0, i1) + B(i1) }",
     "cache_write y y.turned", NULL, &machine},
    {"the same, of a convolution with ragged blocks",
     "p { in f32 X(2, 5, 39, 6) const f32 V(10, 6, 3, 3) = ... temp f32 t0(2, 3, 37, 10) "
     "out f32 y(2, 3, 37, 10) order(0, 3, 1, 2) t0(i0:2, i1:3, i2:37, i3:10 | r0:6, r1:3, r2:3) "
     "+=! X(i0, i1 + r1, i2 + r2, r0) * V(i3, r0, r1, r2) "
     "y(i0:2, i1:3, i2:37, i3:10) = t0(i0, i1, i2, i3) }",
     "cache_write y y.turned", NULL, &machine},
    {"in blocks that are as even as they can be",
     "p { in f32 X(68, 12) const f32 V(12, 20) = ... temp f32 t0(68, 20) "
     "out f32 y(68, 20) order(1, 0) t0(i0:68, i1:20 | r0:12) +=! X(i0, r0) * V(r0, i1) "
     "y(i0:68, i1:20) = t0(i0, i1) }",
     "split y.copy.0 40 shift", "split y.copy.0 64", &machine},
    {"and squares of them are turned: rows run inside of the vectors' loop",
     "p { in f32 X(68, 12) const f32 V(12, 20) = ... temp f32 t0(68, 20) "
     "out f32 y(68, 20) order(1, 0) t0(i0:68, i1:20 | r0:12) +=! X(i0, r0) * V(r0, i1) "
     "y(i0:68, i1:20) = t0(i0, i1) }",
     "reorder y.copy.0.i.o y.copy.1 y.copy.0.i.i", NULL, &machine},
    {"the lines of the next block are asked for where the L2 does not hold the result",
     "p { in f32 X(1024, 12) const f32 V(12, 20) = ... temp f32 t0(1024, 20) "
     "out f32 y(1024, 20) order(1, 0) t0(i0:1024, i1:20 | r0:12) +=! X(i0, r0) * V(r0, i1) "
     "y(i0:1024, i1:20) = t0(i0, i1) }",
     "prefetch y y.copy.0.o 1 y.i", NULL, &machine},
    {"but not where it does",
     "p { in f32 X(128, 12) const f32 V(12, 20) = ... temp f32 t0(128, 20) "
     "out f32 y(128, 20) order(1, 0) t0(i0:128, i1:20 | r0:12) +=! X(i0, r0) * V(r0, i1) "
     "y(i0:128, i1:20) = t0(i0, i1) }",
     NULL, "prefetch y", &machine},
    {"many rows of one vector leave no registers to several steps",
     "p { in f32 X(42, 12) const f32 V(12, 8) = ... temp f32 t0(42, 8) out f32 y(42, 8) "
     "t0(i0:42, i1:8 | r0:12) +=! X(i0, r0) * V(r0, i1) y(i0:42, i1:8) = t0(i0, i1) }",
     "split y.i0 14", "unroll t0.r0", &machine},
    {"few do",
     "p { in f32 X(6, 12) const f32 V(12, 8) = ... temp f32 t0(6, 8) out f32 y(6, 8) "
     "t0(i0:6, i1:8 | r0:12) +=! X(i0, r0) * V(r0, i1) y(i0:6, i1:8) = t0(i0, i1) }",
     "unroll t0.r0", NULL, &machine},
    {"nor do windows that slide along them, whose steps share elements",
     "p { in f32 X(2, 3, 18) const f32 V(24, 2, 3, 3) = ... temp f32 t0(1, 8, 24) "
     "out f32 y(1, 8, 24) t0(i0:1, i1:8, i2:24 | r0:2, r1:3, r2:3) +=! "
     "X(r0, 2*i0 + r1, 2*i1 + r2) * V(i2, r0, r1, r2) y(i0:1, i1:8, i2:24) = t0(i0, i1, i2) }",
     "unroll t0.i1", "unroll t0.r2", &machine},
    {"unless a tile is small",
     "p { in f32 X(2, 5, 6) const f32 V(8, 2, 3, 3) = ... temp f32 t0(1, 2, 8) "
     "out f32 y(1, 2, 8) t0(i0:1, i1:2, i2:8 | r0:2, r1:3, r2:3) +=! "
     "X(r0, 2*i0 + r1, 2*i1 + r2) * V(i2, r0, r1, r2) y(i0:1, i1:2, i2:8) = t0(i0, i1, i2) }",
     "unroll t0.r2", NULL, &machine},
    {"of a deep window's channels there are chunks whose panels are small",
     "p { in f32 X(4, 5, 512) const f32 V(24, 512, 3, 3) = ... temp f32 t0(2, 3, 24) "
     "out f32 y(2, 3, 24) t0(i0:2, i1:3, i2:24 | r0:512, r1:3, r2:3) +=! "
     "X(i0 + r1, i1 + r2, r0) * V(i2, r0, r1, r2) y(i0:2, i1:3, i2:24) = t0(i0, i1, i2) }",
     "split t0.r0 32 exact", NULL, &small_vectors},
    {"too short for whole lines",
     "p { in f32 X(9, 12) const f32 V(12, 20) = ... temp f32 t0(9, 20) "
     "out f32 y(9, 20) order(1, 0) t0(i0:9, i1:20 | r0:12) +=! X(i0, r0) * V(r0, i1) "
     "y(i0:9, i1:20) = t0(i0, i1) }",
     NULL, "turned", &machine},
    {"an operand that changes is packed by blocks",
     "p { in f32 X(29, 512) in f32 V(512, 48) temp f32 t0(29, 48) out f32 y(29, 48) "
     "t0(i0:29, i1:48 | r0:512) +=! X(i0, r0) * V(r0, i1) y(i0:29, i1:48) = t0(i0, i1) * 2f32 }",
     "stage V t0.part.2 local V.panels", NULL, &machine},
    {"the same, of a batch",
     "p { in f32 X(2, 9, 512) in f32 V(2, 512, 16) temp f32 t0(2, 9, 16) out f32 y(2, 9, 16) "
     "t0(i0:2, i1:9, i2:16 | r0:512) +=! X(i0, i1, r0) * V(i0, r0, i2) "
     "y(i0:2, i1:9, i2:16) = t0(i0, i1, i2) }",
     "stage V t0.part.3 local V.panels", NULL, &machine},
    {"and once, few panels at a time",
     "p { in f32 X(9, 24) in f32 V(24, 288) temp f32 t0(9, 288) out f32 y(9, 288) "
     "t0(i0:9, i1:288 | r0:24) +=! X(i0, r0) * V(r0, i1) y(i0:9, i1:288) = t0(i0, i1) }",
     "reorder V.panels.0.o V.panels.1 V.panels.0.i V.panels.2", NULL, &machine},
    {"of one axis that counts channels and pixels, panels of pixels",
     "p { in f32 X(2700) in f32 V(9, 75) temp f32 t0(9, 36) out f32 y(9, 36) "
     "t0(i0:9, i1:36 | r0:75) +=! V(i0, r0) * X(r0*36 + i1) y(i0:9, i1:36) = t0(i0, i1) }",
     "view X 0 36\nstage X 0 workspace X.panels 1/8 0 1%8", NULL, &machine},
    {"of images, too",
     "p { in f32 X(5400) in f32 V(9, 75) temp f32 t0(2, 9, 36) out f32 y(2, 9, 36) "
     "t0(i0:2, i1:9, i2:36 | r0:75) +=! V(i1, r0) * X(i0*2700 + r0*36 + i2) "
     "y(i0:2, i1:9, i2:36) = t0(i0, i1, i2) }",
     "view X 0 2700\nview X 1 36\nstage X 0 workspace X.panels 2/8 0 1 2%8", NULL, &machine},
    {"not where windows overlap: it says of no panel what belongs to it",
     "p { in f32 X(111) in f32 V(9, 75) temp f32 t0(9, 36) out f32 y(9, 36) "
     "t0(i0:9, i1:36 | r0:75) +=! V(i0, r0) * X(r0 + i1) y(i0:9, i1:36) = t0(i0, i1) }",
     NULL, "stage X", &machine},
    {"a window of each channel along rows: several rows at a time, what two of them read loaded "
     "once",
     "p { in f32 X(3, 12, 40) const f32 V(3, 3, 3) = ... temp f32 t0(3, 10, 38) "
     "out f32 y(3, 10, 38) t0(i0:3, i1:10, i2:38 | r0:3, r1:3) +=! "
     "X(i0, i1 + r0, i2 + r1) * V(i0, r0, r1) y(i0:3, i1:10, i2:38) = t0(i0, i1, i2) }",
     "reorder t0.r1 t0.r0 t0.i1 t0.i2\nunroll t0.i1\nvectorize t0.i2\nunroll t0.r0", "t0.r0.o",
     &machine},
    {"whose taps lie apart",
     "p { in f32 X(3, 20, 44) const f32 V(3, 5, 2) = ... temp f32 t0(3, 8, 41) "
     "out f32 y(3, 8, 41) t0(i0:3, i1:8, i2:41 | r0:5, r1:2) +=! "
     "X(i0, i1 + 3*r0, i2 + 3*r1) * V(i0, r0, r1) y(i0:3, i1:8, i2:41) = t0(i0, i1, i2) }",
     "unroll t0.i1", NULL, &machine},
    {"that steps over pixels: those of each phase lie together",
     "p { in f32 X(3, 21, 80) const f32 V(3, 3, 3) = ... temp f32 t0(3, 10, 39) "
     "out f32 y(3, 10, 39) t0(i0:3, i1:10, i2:39 | r0:3, r1:3) +=! "
     "X(i0, 2*i1 + r0, 2*i2 + r1) * V(i0, r0, r1) y(i0:3, i1:10, i2:39) = t0(i0, i1, i2) }",
     "stage X 0 workspace X.panels 0 1 2%2 2/2", NULL, &machine},
    {"of three, of an odd row",
     "p { in f32 X(2, 17, 29) const f32 V(2, 4, 5) = ... temp f32 t0(2, 5, 9) "
     "out f32 y(2, 5, 9) t0(i0:2, i1:5, i2:9 | r0:4, r1:5) +=! "
     "X(i0, 3*i1 + r0, 3*i2 + r1) * V(i0, r0, r1) y(i0:2, i1:5, i2:9) = t0(i0, i1, i2) }",
     "stage X 0 workspace X.panels 0 1 2%3 2/3", NULL, &machine},
    {"one row reads a few rows of an operand at a time, to their ends",
     "p { in f32 X(1, 24) in f32 V(24, 96) temp f32 t0(1, 96) out f32 y(1, 96) "
     "t0(i0:1, i1:96 | r0:24) +=! X(i0, r0) * V(r0, i1) y(i0:1, i1:96) = t0(i0, i1) + 1f32 }",
     "split t0.r0 8 exact", NULL, &machine},
    {"so do few rows, and more of them where sums are many",
     "p { in f32 X(5, 64) in f32 V(64, 96) temp f32 t0(5, 96) out f32 y(5, 96) "
     "t0(i0:5, i1:96 | r0:64) +=! X(i0, r0) * V(r0, i1) y(i0:5, i1:96) = t0(i0, i1) + 1f32 }",
     "split t0.r0 32 exact", NULL, &machine},
    {"more rows than a register tile has do not",
     "p { in f32 X(40, 64) in f32 V(64, 96) temp f32 t0(40, 96) out f32 y(40, 96) "
     "t0(i0:40, i1:96 | r0:64) +=! X(i0, r0) * V(r0, i1) y(i0:40, i1:96) = t0(i0, i1) + 1f32 }",
     NULL, "split t0.r0 8 exact", &machine},
    {"a constant that the L2 does not hold is asked for ahead where all rows are one tile",
     "p { in f32 X(8, 2048) const f32 V(2048, 48) = ... temp f32 t0(8, 48) out f32 y(8, 48) "
     "t0(i0:8, i1:48 | r0:2048) +=! X(i0, r0) * V(r0, i1) y(i0:8, i1:48) = t0(i0, i1) }",
     "prefetch V.panels t0.r0.o 16", NULL, &vectors_of_64},
    {"so is a panel that tiles of rows read again, and that the L1 does not hold",
     "p { in f32 X(40, 512) const f32 V(512, 48) = ... temp f32 t0(40, 48) out f32 y(40, 48) "
     "t0(i0:40, i1:48 | r0:512) +=! X(i0, r0) * V(r0, i1) y(i0:40, i1:48) = t0(i0, i1) }",
     "prefetch V.panels t0.r0.o 16", NULL, &vectors_of_64},
    {"but where loads leave room for that alone",
     "p { in f32 X(40, 512) const f32 V(512, 48) = ... temp f32 t0(40, 48) out f32 y(40, 48) "
     "t0(i0:40, i1:48 | r0:512) +=! X(i0, r0) * V(r0, i1) y(i0:40, i1:48) = t0(i0, i1) }",
     NULL, "prefetch V.panels t0.r0.o 8", &machine},
    {"a constant's next panel is asked for by the tiles of rows that read this one",
     "p { in f32 X(40, 128) const f32 V(128, 96) = ... temp f32 t0(40, 96) out f32 y(40, 96) "
     "t0(i0:40, i1:96 | r0:128) +=! X(i0, r0) * V(r0, i1) y(i0:40, i1:96) = t0(i0, i1) }",
     "prefetch V.panels y.i1.o 1 t0.r0.o", NULL, &machine},
    {"in steps as well",
     "p { in f32 X(40, 1024) const f32 V(1024, 96) = ... temp f32 t0(40, 96) out f32 y(40, 96) "
     "t0(i0:40, i1:96 | r0:1024) +=! X(i0, r0) * V(r0, i1) y(i0:40, i1:96) = t0(i0, i1) }",
     "prefetch V.panels t0.part.1.o 1 t0.r0.i.o", NULL, &vectors_of_64},
    {"in steps a last tile of vectors may not be whole, where tiles that are would be small",
     "p { in f32 X(8, 512) const f32 V(512, 208) = ... temp f32 t0(8, 208) out f32 y(8, 208) "
     "t0(i0:8, i1:208 | r0:512) +=! X(i0, r0) * V(r0, i1) y(i0:8, i1:208) = t0(i0, i1) }",
     "split t0.part.1 24 guard", NULL, &machine},
    {"of a window's channels, too: the panels of a chunk lie together",
     "p { in f32 X(6, 7, 256) const f32 V(48, 256, 3, 2) = ... temp f32 t0(4, 6, 48) out f32 y(4, "
     "6, 48) "
     "t0(i0:4, i1:6, i2:48 | r0:256, r1:3, r2:2) +=! X(i0 + r1, i1 + r2, r0) * V(i2, r0, r1, r2) "
     "y(i0:4, i1:6, i2:48) = t0(i0, i1, i2) }",
     "stage V 0 workspace V.panels 1/64 0/16 2 3 1%64 0%16", NULL, &machine},
    {"all rows pass a panel where those that fit beside it would be fewer than its columns",
     "p { in f32 X(40, 256) const f32 V(256, 96) = ... temp f32 t0(40, 96) out f32 y(40, 96) "
     "t0(i0:40, i1:96 | r0:256) +=! X(i0, r0) * V(r0, i1) y(i0:40, i1:96) = t0(i0, i1) }",
     "reorder y.i1.o y.i0.o y.i0.i y.i1.i", "y.i0.o.b", &machine},
    {"not one that the L1 holds",
     "p { in f32 X(40, 128) const f32 V(128, 48) = ... temp f32 t0(40, 48) out f32 y(40, 48) "
     "t0(i0:40, i1:48 | r0:128) +=! X(i0, r0) * V(r0, i1) y(i0:40, i1:48) = t0(i0, i1) }",
     NULL, "prefetch V.panels t0.r0", &machine},
    {"nor one that stays in the L2",
     "p { in f32 X(8, 256) const f32 V(256, 48) = ... temp f32 t0(8, 48) out f32 y(8, 48) "
     "t0(i0:8, i1:48 | r0:256) +=! X(i0, r0) * V(r0, i1) y(i0:8, i1:48) = t0(i0, i1) }",
     NULL, "prefetch", &vectors_of_64},
    {"rows that many panels pass are copied, a block of whole tiles at a time",
     "p { in f32 X(120, 160) const f32 V(160, 144) = ... temp f32 t0(120, 144) out f32 y(120, 144) "
     "t0(i0:120, i1:144 | r0:160) +=! X(i0, r0) * V(r0, i1) y(i0:120, i1:144) = t0(i0, i1) }",
     "stage X y.i0.b local X.rows 0/6 1/4 0%6 1%4", NULL, &small_l1},
    {"those of a last block that overlaps the one before, too",
     "p { in f32 X(121, 160) const f32 V(160, 144) = ... temp f32 t0(121, 144) out f32 y(121, 144) "
     "t0(i0:121, i1:144 | r0:160) +=! X(i0, r0) * V(r0, i1) y(i0:121, i1:144) = t0(i0, i1) }",
     "stage X y.i0.b local X.rows", NULL, &small_l1},
    {"of an operand with one axis",
     "p { in f32 X(19200) const f32 V(160, 144) = ... temp f32 t0(120, 144) out f32 y(120, 144) "
     "t0(i0:120, i1:144 | r0:160) +=! X(i0*160 + r0) * V(r0, i1) y(i0:120, i1:144) = t0(i0, i1) }",
     "view X 0 160", NULL, &small_l1},
    {"of one whose rows lie in parts",
     "p { in f32 X(19200) const f32 V(160, 144) = ... temp f32 t0(120, 144) out f32 y(120, 144) "
     "t0(i0:120, i1:144 | r0:160) +=! X(r0/80*9600 + i0*80 + r0%80) * V(r0, i1) "
     "y(i0:120, i1:144) = t0(i0, i1) }",
     "stage X y.i0.b local X.rows 1/6 0 2/4 1%6 2%4", NULL, &small_l1},
    {"not of one that is read again",
     "p { in f32 X(120, 160) const f32 V(160, 160) = ... temp f32 t0(120, 160) out f32 y(120, 160) "
     "t0(i0:120, i1:160 | r0:160) +=! X(i0, r0) * V(r0, i1) "
     "y(i0:120, i1:160) = t0(i0, i1) + X(i0, i1) }",
     NULL, "X.rows", &small_l1},
    {"nor where parts are no whole chunks",
     "p { in f32 X(19200) const f32 V(160, 144) = ... temp f32 t0(120, 144) out f32 y(120, 144) "
     "t0(i0:120, i1:144 | r0:160) +=! X(r0/10*1200 + i0*10 + r0%10) * V(r0, i1) "
     "y(i0:120, i1:144) = t0(i0, i1) }",
     NULL, "X.rows", &small_l1},
    {"nor where a tile's rows stay in the L1",
     "p { in f32 X(240, 80) const f32 V(80, 224) = ... temp f32 t0(240, 224) out f32 y(240, 224) "
     "t0(i0:240, i1:224 | r0:80) +=! X(i0, r0) * V(r0, i1) y(i0:240, i1:224) = t0(i0, i1) }",
     NULL, "X.rows", &small_l1},
    {"one row reads several panels at a time of a constant that the L2 does not hold",
     "p { in f32 X(256) const f32 V(256, 192) = ... temp f32 t0(192) out f32 y(192) "
     "t0(i0:192 | r0:256) +=! X(r0) * V(r0, i0) y(i0:192) = t0(i0) }",
     "split t0.i0 24 exact t0.i0.o t0.i0.i", NULL, &machine},
    {"so do few rows, of narrower panels",
     "p { in f32 X(3, 256) const f32 V(256, 192) = ... temp f32 t0(3, 192) out f32 y(3, 192) "
     "t0(i0:3, i1:192 | r0:256) +=! X(i0, r0) * V(r0, i1) y(i0:3, i1:192) = t0(i0, i1) }",
     "split t0.i1 8 exact t0.i1.o t0.i1.i", NULL, &machine},
    {"all groups read a piece of an image that the L2 does not hold, and ask for the next one",
     "p { in f32 X(50176) const f32 V(16, 8, 8, 3, 3) = ... temp f32 t0(2, 12, 12, 16, 8) "
     "out f32 y(2, 12, 12, 16, 8) t0(i0:2, i1:12, i2:12, i3:16, i4:8 | r0:8, r1:3, r2:3) +=! "
     "X(i0*25088 + i1*1792 + r1*1792 + i2*128 + r2*128 + i3*8 + r0) * V(i3, i4, r0, r1, r2) "
     "y(i0:2, i1:12, i2:12, i3:16, i4:8) = t0(i0, i1, i2, i3, i4) }",
     "prefetch X y.i", "reorder y.i3 y.i0", &machine},
    {"few groups, too, which would wait for lines that are not asked for",
     "p { in f32 X(25600) const f32 V(2, 32, 32, 1, 1) = ... temp f32 t0(4, 10, 10, 2, 32) "
     "out f32 y(4, 10, 10, 2, 32) t0(i0:4, i1:10, i2:10, i3:2, i4:32 | r0:32, r1:1, r2:1) +=! "
     "X(i0*6400 + i1*640 + r1*640 + i2*64 + r2*64 + i3*32 + r0) * V(i3, i4, r0, r1, r2) "
     "y(i0:4, i1:10, i2:10, i3:2, i4:32) = t0(i0, i1, i2, i3, i4) }",
     "prefetch X y.i", "reorder y.i3 y.i0", &machine},
    {"not where an image's groups lie apart",
     "p { in f32 X(50176) const f32 V(16, 8, 8, 3, 3) = ... temp f32 t0(2, 16, 12, 12, 8) "
     "out f32 y(2, 16, 12, 12, 8) t0(i0:2, i3:16, i1:12, i2:12, i4:8 | r0:8, r1:3, r2:3) +=! "
     "X(i0*25088 + i3*1568 + i1*112 + r1*112 + i2*8 + r2*8 + r0) * V(i3, i4, r0, r1, r2) "
     "y(i0:2, i3:16, i1:12, i2:12, i4:8) = t0(i0, i3, i1, i2, i4) }",
     "reorder y.i3 y.i0", "prefetch X", &machine},
    {"nor where the L2 holds it: then groups that share lines follow each other",
     "p { in f32 X(2048) const f32 V(4, 4, 4, 3, 3) = ... temp f32 t0(2, 6, 6, 4, 4) "
     "out f32 y(2, 6, 6, 4, 4) t0(i0:2, i1:6, i2:6, i3:4, i4:4 | r0:4, r1:3, r2:3) +=! "
     "X(i0*1024 + i1*128 + r1*128 + i2*16 + r2*16 + i3*4 + r0) * V(i3, i4, r0, r1, r2) "
     "y(i0:2, i1:6, i2:6, i3:4, i4:4) = t0(i0, i1, i2, i3, i4) }",
     NULL, "prefetch X", &machine},
    {"channels in front: the tiles ask for the next row of each",
     "p { in f32 X(50176) const f32 V(32, 32) = ... temp f32 t0(2, 28, 28, 32) "
     "out f32 y(2, 28, 28, 32) t0(i0:2, i1:28, i2:28, i3:32 | r0:32) +=! "
     "X(i0*25088 + r0*784 + i1*28 + i2) * V(i3, r0) "
     "y(i0:2, i1:28, i2:28, i3:32) = t0(i0, i1, i2, i3) }",
     "view X 1 784\nview X 2 28\nprefetch X y.i1 1 y.i3.o", NULL, &machine},
    {"of rows that are long, for the next part",
     "p { in f32 X(32, 4096) const f32 V(32, 32) = ... temp f32 t0(4096, 32) "
     "out f32 y(4096, 32) t0(i1:4096, i2:32 | r0:32) +=! X(r0, i1) * V(i2, r0) "
     "y(i1:4096, i2:32) = t0(i1, i2) }",
     "prefetch X y.i1.o.b 1 y.i2.o", NULL, &machine},
    {"in the steps of the sums where few tiles would ask for much",
     "p { in f32 X(256, 1024) const f32 V(16, 256) = ... temp f32 t0(1024, 16) "
     "out f32 y(1024, 16) t0(i1:1024, i2:16 | r0:256) +=! X(r0, i1) * V(i2, r0) "
     "y(i1:1024, i2:16) = t0(i1, i2) }",
     "prefetch X y.i1.o.b 1 t0.r0.o", NULL, &machine},
    {"not of few channels, as many as a core follows",
     "p { in f32 X(8, 16384) const f32 V(32, 8) = ... temp f32 t0(16384, 32) "
     "out f32 y(16384, 32) t0(i1:16384, i2:32 | r0:8) +=! X(r0, i1) * V(i2, r0) "
     "y(i1:16384, i2:32) = t0(i1, i2) }",
     NULL, "prefetch X", &machine},
    {"nor of an image that the L2 holds",
     "p { in f32 X(32, 64) const f32 V(32, 32) = ... temp f32 t0(64, 32) "
     "out f32 y(64, 32) t0(i1:64, i2:32 | r0:32) +=! X(r0, i1) * V(i2, r0) "
     "y(i1:64, i2:32) = t0(i1, i2) }",
     NULL, "prefetch X", &machine},
    {"a constant is packed once",
     "p { in f32 X(9, 512) const f32 V(512, 16) = ... temp f32 t0(9, 16) out f32 y(9, 16) "
     "t0(i0:9, i1:16 | r0:512) +=! X(i0, r0) * V(r0, i1) y(i0:9, i1:16) = t0(i0, i1) }",
     "stage V 0 workspace V.panels", "local V.panels", &machine},
};

static const contraction_case shared_cases[] = {
    {"a constant is read in panels that others have",
     "p { in f32 X(1, 64) const f32 V(64, 96) = ... temp f32 t0(1, 96) out f32 y(1, 96) "
     "t0(i0:1, i1:96 | r0:64) +=! X(i0, r0) * V(r0, i1) y(i0:1, i1:96) = t0(i0, i1) }",
     "stage V 0 workspace V.panels 1/16 0 1%16", NULL, &machine},
    {"and of one's own",
     "p { in f32 X(1, 64) const f32 V(64, 96) = ... temp f32 t0(1, 96) out f32 y(1, 96) "
     "t0(i0:1, i1:96 | r0:64) +=! X(i0, r0) * V(r0, i1) y(i0:1, i1:96) = t0(i0, i1) }",
     "stage V 0 workspace V.panels 1/48 0 1%48", NULL, &machine},
};

static kiln_tile_candidates propose(test_kernel *k, const kiln_machine *m, const char *text,
                                    uint32_t panels, kiln_lowering *out) {
  kiln_tile_candidates all = {0};
  *out = lowering_open(k, m, text);
  kiln_facts *facts = KILN_NEW(&k->cx.perm, kiln_facts);
  kiln_fact_at(&k->cx, facts, 1)->panels = panels; // V
  out->facts = facts;
  lowering_expect_ok(k, out, kiln_template_contraction.propose(out, &all));
  return all;
}

// |panels|: those in which other programs have V (tile/panels.h).
static void check_candidates(size_t i, const contraction_case *row, uint32_t panels) {
  bool is_there = !row->step;
  int n = 1;
  for (int c = 0; c < n; c++) {
    test_kernel k;
    kiln_lowering w;
    const kiln_tile_candidates all = propose(&k, row->on, row->text, panels, &w);
    n = all.n;
    if (n == 0) fail_msg("%s: no candidate", row->name);
    lowering_expect_ok(&k, &w, kiln_template_contraction.lower(&w, &all.data[c].tiling));
    const char *script = kiln_schedule_script(&w.s);
    if (row->step) is_there |= strstr(script, row->step) != NULL;
    if (row->never && strstr(script, row->never)) fail_msg("%s: %s", row->name, script);
    if (test_takes(i << 8 | (unsigned)c)) lowering_expect_right(&k, &w);
    kernel_close(&k);
  }
  if (!is_there) fail_msg("%s: no candidate has %s", row->name, row->step);
}

static void every_candidate_computes_what_the_program_says(void **state) {
  (void)state;
  for (size_t i = 0; i < KILN_LEN(cases); i++) check_candidates(i, &cases[i], 0);
}

static void constants_are_proposed_in_panels_that_others_have(void **state) {
  (void)state;
  for (size_t i = 0; i < KILN_LEN(shared_cases); i++)
    check_candidates(i, &shared_cases[i], kiln_panels_bit(0, 2));
}

// The script of the cheapest candidate for |rows| x 3072 by 3072 x |cols|, both given at run time,
// on a core with 2 MiB of L2 in sets of 16.
static const char *cheapest(test_kernel *k, int rows, int cols) {
  static kiln_machine wide = {.target = &kiln_target_cpu,
                              .vector_bytes = 64,
                              .n_vector_regs = 32,
                              .has_fma = true,
                              .l1_bytes = 48 << 10,
                              .l2_bytes = 2 << 20,
                              .l3_bytes = 64 << 20,
                              .ways = {12, 16, 16},
                              .clock_ghz = 2.5,
                              .n_cores = 2};
  char text[512];
  kiln_lowering w;
  kiln_tile_candidates all = {0};
  int best = 0;
  snprintf(text, sizeof text,
           "p { in f32 X(%d, 3072) in f32 V(3072, %d) temp f32 t0(%d, %d) out f32 y(%d, %d) "
           "t0(i0:%d, i1:%d | r0:3072) +=! X(i0, r0) * V(r0, i1) y(i0:%d, i1:%d) = t0(i0, i1) }",
           rows, cols, rows, cols, rows, cols, rows, cols, rows, cols);
  w = lowering_open(k, &wide, text);
  wide.device = kiln_device_make_nominal(&k->cx, &wide);
  w.n_threads = 1;
  lowering_expect_ok(k, &w, kiln_template_contraction.propose(&w, &all));
  for (int i = 1; i < all.n; i++)
    if (all.data[i].cost.ns < all.data[best].cost.ns) best = i;
  lowering_expect_ok(k, &w, kiln_template_contraction.lower(&w, &all.data[best].tiling));
  return kiln_schedule_script(&w.s);
}

// Rows of 3072 bytes map to 384 of the 2048 sets: a panel of them, however small, does not stay in
// the L2 from one tile to the next, and is copied. If all rows of the other operand are one tile,
// nothing is read twice, so nothing is copied, and rows are read to their ends.
static void panels_that_meet_in_few_sets_are_copied(void **state) {
  (void)state;
  test_kernel k;
  const char *script = cheapest(&k, 128, 768);
  if (!strstr(script, "V.panels")) fail_msg("%s", script);
  kernel_close(&k);
  script = cheapest(&k, 8, 3072);
  if (strstr(script, "V.panels") || !strstr(script, "split t0.r0")) fail_msg("%s", script);
  kernel_close(&k);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_candidate_computes_what_the_program_says),
      cmocka_unit_test(constants_are_proposed_in_panels_that_others_have),
      cmocka_unit_test(panels_that_meet_in_few_sets_are_copied),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
