// Asynchronous programs as device loops: they compute what they should, and each of their mutations
// is found without a card.
#include "target/sim/device.h"

#include "analysis/interpret.h"
#include "schedule/instr.h"
#include "target/gpu/device/device.h"
#include "target/gpu/gpu.h"

#include "unit/fixture.h"

enum { MAX_ELEMS = 4 * 64 * 64 };

typedef struct program {
  const char *text;
  int64_t block[3];
  int64_t n_x, n_y;
  kiln_dtype x;
  float (*expected)(const float *x, int64_t i);
} program;

// --- cp.async: a circular buffer of three stages, filled two steps ahead ---

static float sum_of_steps(const float *x, int64_t i) {
  float sum = 0;
  for (int k = 0; k < 8; k++) sum += x[256 * k + 255 - i];
  return sum;
}

static const program copies = {
    "kernel k { param f32 X[8, 256]:(256, 1) param f32 Y[256]:(1) shared f32 S[3, 256]:(256, 1) "
    "local f32 sums[4]:(1) alloc S { alloc sums { "
    "for t0:64 thread.x { for e0:4 { sums[e0] = 0f32 } } "
    "for k0:2 { for t1:64 thread.x { copy.async(S[k0, 4*t1], X[k0, 4*t1]) } copy.commit() } "
    "for k:8 { copy.wait(1) barrier.block() "
    "if k + 2 < 8 { for t2:64 thread.x { copy.async(S[(k + 2) % 3, 4*t2], X[k + 2, 4*t2]) } } "
    "copy.commit() "
    "for t3:64 thread.x { for e3:4 { sums[e3] += S[k % 3, 255 - 4*t3 - e3] } } } "
    "for t4:64 thread.x { for e4:4 { Y[4*t4 + e4] = sums[e4] } } } } }",
    {64, 1, 1},
    2048,
    256,
    KILN_F32,
    sum_of_steps};

// --- TMA: a producer warp and consumers, mbarriers of two stages ---

static float sum_of_parts(const float *x, int64_t i) {
  float sum = 0;
  for (int k = 0; k < 4; k++)
    for (int e = 0; e < 32; e++) sum += x[4096 * k + i / 2 * 64 + i % 2 * 32 + e];
  return sum;
}

static const program stages = {
    "kernel k { param f16 X[4, 64, 64]:(4096, 64, 1) param f32 Y[128]:(1) "
    "shared f16 S[2, 64, 64]:(4096, 64, 1) swizzled shared u64 full[2]:(1) shared u64 empty[2]:(1) "
    "local u32 phases[1]:(1) local f32 sum[1]:(1) "
    "alloc S { alloc full { alloc empty { alloc phases { alloc sum { "
    "mbarrier.init(full[0], 2, 1) mbarrier.init(empty[0], 2, 4) barrier.block() "
    "role.consumers g(0, 1, 1) { for t0:128 thread.x { sum[0] = 0f32 } "
    "for k:4 { mbarrier.wait(full[k % 2], phases[0]) "
    "for t1:128 thread.x { for e:32 { sum[0] += f32(S[k % 2, t1/2, t1 % 2*32 + e]) } } "
    "mbarrier.arrive(empty[k % 2]) } "
    "for t2:128 thread.x { Y[t2] = sum[0] } } "
    "role.producer(1) { for p:4 { mbarrier.await(empty[p % 2], (p/2 + 1) % 2) "
    "mbarrier.expect(full[p % 2], 8192) "
    "instr tma.64x64.f16(S[p % 2, _0, _1], X[p, _0, _1], full[p % 2], 0, 0, 0, 64*p) } } } } } } } "
    "}",
    {128, 2, 1},
    16384,
    128,
    KILN_F16,
    sum_of_parts};

// --- named barriers: two groups of consumers that use one buffer in turns ---

static float turned(const float *x, int64_t i) {
  float sum = 0;
  for (int k = 0; k < 3; k++) sum += x[256 * k + i / 128 * 128 + 127 - i % 128];
  return sum;
}

static const program turns = {
    "kernel k { param f32 X[3, 256]:(256, 1) param f32 Y[256]:(1) shared f32 S[128]:(1) local f32 "
    "sum[1]:(1) alloc S { alloc sum { role.consumers g(0, 1, 2) { "
    "if g == 1 { barrier.arrive(3, 256) } "
    "for t0:128 thread.x { sum[0] = 0f32 } "
    "for k:3 { barrier.sync(3 + g, 256) "
    "for t1:128 thread.x { S[t1] = X[k, 128*g + t1] } barrier.sync(1 + g, 128) "
    "for t2:128 thread.x { sum[0] += S[127 - t2] } barrier.arrive(4 - g, 256) } "
    "for t3:128 thread.x { Y[128*g + t3] = sum[0] } } } } }",
    {128, 2, 1},
    768,
    256,
    KILN_F32,
    turned};

// --- instructions of a warp group ---

static float square(const float *x, int64_t i) { // X X^T of 64 x 16, as lanes have it
  const int64_t t = i / 32, e = i % 32, warp = t / 32, lane = t % 32;
  const int64_t row = warp * 16 + e / 2 % 2 * 8 + lane / 4,
                column = e / 4 * 8 + lane % 4 * 2 + e % 2;
  float sum = 0;
  for (int k = 0; k < 16; k++) sum += x[64 * row + k] * x[64 * column + k];
  return sum;
}

static const program products = {
    "kernel k { param f16 X[64, 64]:(64, 1) param f32 Y[128, 32]:(32, 1) shared f16 S[64, 64]:(64, "
    "1) swizzled local f32 sums[32]:(1) alloc S { alloc sums { "
    "for t0:128 thread.x { for e0:32 { S[t0/2, t0 % 2*32 + e0] = X[t0/2, t0 % 2*32 + e0] } } "
    "fence.async() barrier.block() "
    "for t1:128 thread.x { for e1:32 { sums[e1] = 0f32 } } "
    "wgmma.fence() instr wgmma.m64n64k16.f16.row.col(sums[0], S[_0, _1], S[_0, _1]) "
    "wgmma.commit() wgmma.wait(0) "
    "for t2:128 thread.x { for e2:32 { Y[t2, e2] = sums[e2] } } } } }",
    {128, 1, 1},
    4096,
    4096,
    KILN_F16,
    square};

// --- loads of a warp's fragments ---

static float lane_of(const float *x, int64_t i) { // rows of 32 bytes, 48 apart
  const int64_t t = i / 8, e = i % 8;
  return x[16 * (e / 2 % 2 * 8 + t / 4) + e / 4 * 8 + t % 4 * 2 + e % 2];
}

static const program fragments = {
    "kernel k { param f16 X[16, 16]:(16, 1) param f32 Y[32, 8]:(8, 1) shared f16 S[16, 24]:(24, 1) "
    "local f16 own[8]:(1) alloc S { alloc own { "
    "for t0:32 thread.x { for e0:8 { S[t0/2, t0 % 2*8 + e0] = X[t0/2, t0 % 2*8 + e0] } } "
    "barrier.warp() instr ldmatrix.x4.f16(own[0], S[_0, _1]) "
    "for t1:32 thread.x { for e1:8 { Y[t1, e1] = f32(own[e1]) } } } } }",
    {32, 1, 1},
    256,
    256,
    KILN_F16,
    lane_of};

// --- runs ---

static const kiln_gpu_map matrix = {
    .arg = 0, .box_rows = 64, .box_columns = 64, .columns = 64, .rows = {256}, .pitches = {64}};

static kiln_status run_by(fixture *f, const program *p, const char *text, const kiln_gpu_map *map,
                          float *x, float *y) {
  kiln_machine m;
  kiln_loops *l = NULL;
  static uint16_t halves[MAX_ELEMS];
  assert_int_equal(kiln_gpu_machine_named(&f->cx, "cuda:sm_90a", &m), KILN_OK);
  kiln_instr_table table = {.cx = &f->cx};
  table.instrs = kiln_gpu_instrs(&f->cx, &m, &table.n);
  KILN_TRY(kiln_device_parse(&f->cx, text, kiln_instr_find_in, &table, &l));
  KILN_TRY(kiln_device_verify(&f->cx, l));
  for (int64_t i = 0; i < p->n_x; i++) {
    x[i] = (float)(i * 7 % 23 - 11);
    if (p->x == KILN_F16) kiln_element_set(KILN_F16, halves, i, (double)x[i]);
  }
  void *args[] = {p->x == KILN_F16 ? (void *)halves : (void *)x, y};
  kiln_sim_launch launch = {.grid = {1, 1, 1},
                            .cluster = 1,
                            .warp = 32,
                            .registers = m.gpu.registers,
                            .n_maps = 1,
                            .maps = map};
  memcpy(launch.block, p->block, sizeof launch.block);
  return kiln_sim_run_device(&f->cx, l, &launch, args, NULL);
}

static kiln_status run(fixture *f, const program *p, const char *text, float *x, float *y) {
  return run_by(f, p, text, &matrix, x, y);
}

static const program *const programs[] = {&copies, &stages, &turns, &products, &fragments};

static void programs_compute_what_they_should(void **state) {
  fixture *f = *state;
  static float x[MAX_ELEMS], y[MAX_ELEMS];
  for (size_t i = 0; i < KILN_LEN(programs); i++) {
    if (run(f, programs[i], programs[i]->text, x, y) != KILN_OK)
      fail_msg("%d: %s", (int)i, kiln_diag_message(f->diag, kiln_diag_count(f->diag) - 1));
    for (int64_t k = 0; k < programs[i]->n_y; k++)
      if (y[k] != programs[i]->expected(x, k))
        fail_msg("%d: element %d: %g, not %g", (int)i, (int)k, (double)y[k],
                 (double)programs[i]->expected(x, k));
  }
}

static const struct {
  const char *what;
  const program *of;
  const char *from, *to;
  const char *report;
} mutations[] = {
    {"one group too few is waited for", &copies, "copy.wait(1)", "copy.wait(2)", "race"},
    {"no group is waited for", &copies, "copy.wait(1) ", "", "race"},
    {"no barrier", &copies, "barrier.block() ", "", "must be written before"},
    {"a warp's barrier", &copies, "barrier.block()", "barrier.warp()", "must be written before"},
    {"the barrier before the wait", &copies, "copy.wait(1) barrier.block()",
     "barrier.block() copy.wait(1)", "race"},
    {"two stages", &copies, "S[(k + 2) % 3, 4*t2]", "S[k % 3, 4*t2]", "race"},
    {"the stage that comes next is filled", &copies, "(k + 2) % 3", "(k + 1) % 3", "race"},
    {"filled one step ahead", &copies, "for k0:2", "for k0:1", "race"},
    {"no commit", &copies, "copy.commit() for t3", "for t3", "race"},
    {"a barrier in half of the steps", &copies, "barrier.block()", "if k < 4 { barrier.block() }",
     "race"},
    {"a barrier of half of the warps", &copies, "barrier.block()",
     "for h:64 thread.x { if h < 32 { barrier.block() } }", "race"},
    {"a barrier of half of a warp", &copies, "barrier.block()",
     "for h:64 thread.x { if h < 16 { barrier.block() } }", "parts the threads of a warp"},
    {"a copy beyond the end", &copies, "if k + 2 < 8", "if k + 2 < 9", "must lie in [0, 8)"},
    {"a copy from within a word", &copies, "X[k0, 4*t1]", "X[k0, (4*t1 + 2) % 252]",
     "accesses 16 bytes at once"},
    {"a copy to within a word", &copies, "S[k0, 4*t1]", "S[k0, (4*t1 + 1) % 252]",
     "accesses 16 bytes at once"},
    {"a vector load from within a word", &copies, "for e0:4 { sums[e0] = 0f32 }",
     "for e0:4 vectorized { sums[e0] = X[0, (4*t0 + 2) % 252 + e0] }", "accesses 16 bytes at once"},
    {"a vector store to within a word", &copies, "for e4:4 { Y[4*t4 + e4] =",
     "for e4:4 vectorized { Y[(4*t4 + 2) % 252 + e4] =", "accesses 16 bytes at once"},
    {"nobody waits for full stages", &stages, "mbarrier.wait(full[k % 2], phases[0]) ", "",
     "must be written before"},
    {"no stage is released", &stages, "mbarrier.arrive(empty[k % 2]) ", "", "deadlock"},
    {"a stage is released before its use", &stages,
     "for t1:128 thread.x { for e:32 { sum[0] += f32(S[k % 2, t1/2, t1 % 2*32 + e]) } } "
     "mbarrier.arrive(empty[k % 2])",
     "mbarrier.arrive(empty[k % 2]) for t1:128 thread.x { for e:32 { sum[0] += f32(S[k % 2, t1/2, "
     "t1 % 2*32 + e]) } }",
     "race"},
    {"the producer waits for no empty stage", &stages,
     "mbarrier.await(empty[p % 2], (p/2 + 1) % 2) ", "", "all 1 have arrived"},
    {"the producer's first phase is the other", &stages, "(p/2 + 1) % 2", "p/2 % 2", "deadlock"},
    {"the producer's phase never turns", &stages, "(p/2 + 1) % 2", "1", "all 1 have arrived"},
    {"the wrong stage is waited for", &stages, "mbarrier.wait(full[k % 2]",
     "mbarrier.wait(full[(k + 1) % 2]", "race"},
    {"the wrong stage is released", &stages, "mbarrier.arrive(empty[k % 2])",
     "mbarrier.arrive(empty[0])", "deadlock"},
    {"the wrong stage is filled", &stages, "(S[p % 2,", "(S[(p + 1) % 2,", "race"},
    {"the copy lands at the wrong barrier", &stages, "X[p, _0, _1], full[p % 2],",
     "X[p, _0, _1], full[0],", "deadlock"},
    {"too few bytes are expected", &stages, "8192", "4096", "4096 bytes too many"},
    {"too many bytes are expected", &stages, "8192", "8194", "2 bytes too few"},
    {"more bytes are expected than an mbarrier counts", &stages, "8192", "1056768",
     "1048575 bytes to be copied at most"},
    {"more arrivals than an mbarrier counts", &stages, "mbarrier.init(empty[0], 2, 4)",
     "mbarrier.init(empty[0], 2, 1048576)", "1 to 1048575 arrivals"},
    {"nobody waits for the last copy", &stages, "for k:4", "for k:3", "before its block ends"},
    {"a copy's columns begin within a word", &stages, "0, 0, 0, 64*p)", "0, 0, 4, 64*p)",
     "a multiple of 8 elements"},
    {"a copy's rows are others", &stages, "0, 0, 0, 64*p)", "0, 0, 0, 64*p + 1)",
     "by its tensor map"},
    {"a copy has no row", &stages, "0, 0, 0, 64*p)", "0, 0, 0)", "2 coordinates, got 1"},
    {"a row beyond 32 bits", &stages, "0, 0, 0, 64*p)", "0, 0, 0, 64*p + 4294967296)",
     "must fit its bits"},
    {"a copy to another block than there are", &stages, "0, 0, 0, 64*p)", "3, 0, 0, 64*p)",
     "the cluster's 1 blocks"},
    {"a copy by a map that is not there", &stages, "0, 0, 0, 64*p)", "0, 1, 0, 64*p)",
     "one of 1 tensor maps"},
    {"a copy to memory that is not swizzled", &stages, " swizzled", "", "a swizzled buffer"},
    {"a copy within a period of the swizzle", &stages, "(4096, 64, 1) swizzled",
     "(4160, 64, 1) swizzled", "a multiple of 1024 bytes"},
    {"no bytes are expected", &stages, "mbarrier.expect(full[p % 2], 8192) ", "", "deadlock"},
    {"one warp too few must release", &stages, "mbarrier.init(empty[0], 2, 4)",
     "mbarrier.init(empty[0], 2, 3)", "race"},
    {"one warp too many must release", &stages, "mbarrier.init(empty[0], 2, 4)",
     "mbarrier.init(empty[0], 2, 5)", "deadlock"},
    {"barriers are used before all know of them", &stages,
     "mbarrier.init(empty[0], 2, 4) barrier.block()", "mbarrier.init(empty[0], 2, 4)",
     "behind the initialisation"},
    {"the producer ends too early", &stages, "for p:4", "for p:3", "deadlock"},
    {"threads of a group take more registers than there are", &turns, "g(0, 1, 2) {",
     "g(0, 1, 2) { registers.set(256)", "no more registers"},
    {"registers in no eights", &turns, "g(0, 1, 2) {", "g(0, 1, 2) { registers.set(100)",
     "a multiple of 8"},
    {"nobody waits for a turn", &turns, "barrier.sync(3 + g, 256) ", "", "race"},
    {"a turn is given before the use", &turns,
     "for t2:128 thread.x { sum[0] += S[127 - t2] } barrier.arrive(4 - g, 256)",
     "barrier.arrive(4 - g, 256) for t2:128 thread.x { sum[0] += S[127 - t2] }", "race"},
    {"no turn is given", &turns, "barrier.arrive(4 - g, 256) ", "", "deadlock"},
    {"nobody has the first turn", &turns, "if g == 1 { barrier.arrive(3, 256) } ", "", "deadlock"},
    {"both have the first turn", &turns, "if g == 1 { barrier.arrive(3, 256) }",
     "barrier.arrive(4 - g, 256)", "race"},
    {"the other group's barrier", &turns, "barrier.sync(1 + g, 128)", "barrier.sync(2, 256)",
     "deadlock"},
    {"a group does not wait for itself", &turns, "barrier.sync(1 + g, 128) ", "",
     "must be written before"},
    {"half of a group waits for itself", &turns, "barrier.sync(1 + g, 128)",
     "barrier.sync(1 + g, 64)", "more than 64 threads"},
    {"a barrier of a part of a warp", &turns, "barrier.sync(1 + g, 128)",
     "barrier.sync(1 + g, 100)", "of whole warps of 32 threads"},
    {"one barrier of both sizes", &turns, "barrier.sync(1 + g, 128)", "barrier.sync(4 - g, 128)",
     "as many threads as others say"},
    {"rows begin within a word", &fragments, "S[16, 24]:(24, 1)", "S[16, 20]:(20, 1)",
     "accesses 16 bytes at once"},
    {"a row is read from within a word", &fragments, "own[0], S[_0, _1])", "own[0], S[_0, _1 + 4])",
     "accesses 16 bytes at once"},
    {"rows are read before all have come", &fragments, "barrier.warp() ", "", "race"},
    {"sums are read under way", &products, "wgmma.wait(0) ", "", "before it waits for"},
    {"one group of instructions too few is waited for", &products, "wgmma.wait(0)", "wgmma.wait(1)",
     "before it waits for"},
    {"instructions are not committed", &products, "wgmma.commit() ", "", "before it waits for"},
    {"sums are cleared without a fence", &products, "wgmma.fence() ", "", "behind a wgmma.fence"},
    {"operands are written without a fence", &products, "fence.async() ", "",
     "without a fence.async"},
    {"operands are read before all have come", &products, "barrier.block() ", "", "race"},
    {"an operand begins within a word", &products, "S[_0, _1], S[_0, _1])",
     "S[_0, _1], S[_0, _1 + 4])", "from a multiple of 16 bytes on"},
    {"an operand begins within a period of the swizzle", &products, "sums[0], S[_0, _1],",
     "sums[0], S[(_0 + 4) % 64, _1],", "in the first 128 of a period"},
    {"an operand is not swizzled", &products, " swizzled", "", "a swizzled buffer"},
    {"an operand is overwritten under way", &products, "wgmma.wait(0)",
     "for t9:128 thread.x { S[t9/2, t9 % 2] = X[0, 0] } wgmma.wait(0)", "race"},
};

// |text| with the first |from| in it replaced.
static const char *mutated(fixture *f, const char *text, const char *from, const char *to) {
  const char *at = strstr(text, from);
  if (!at) fail_msg("'%s' is not in the program", from);
  return kiln_arena_printf(&f->cx.perm, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
}

static void every_mutation_is_found(void **state) {
  fixture *f = *state;
  static float x[MAX_ELEMS], y[MAX_ELEMS];
  int missed = 0;
  for (size_t i = 0; i < KILN_LEN(mutations); i++) {
    const char *text = mutated(f, mutations[i].of->text, mutations[i].from, mutations[i].to);
    const kiln_status st = run(f, mutations[i].of, text, x, y);
    const char *message =
        st == KILN_OK ? "nothing" : kiln_diag_message(f->diag, kiln_diag_count(f->diag) - 1);
    if (st == KILN_INTERNAL && strstr(message, mutations[i].report)) continue;
    missed++;
    print_message("%s: expected '%s', got %s\n", mutations[i].what, mutations[i].report, message);
  }
  assert_int_equal(missed, 0);
}

// Tensor maps that the hardware refuses, or that are of another matrix.
static const struct {
  kiln_gpu_map map;
  const char *report;
} maps[] = {
    {{.box_rows = 64, .box_columns = 64, .columns = 64, .rows = {256}, .pitches = {68}},
     "a pitch in bytes of the tensor map must be a multiple of 16"},
    {{.box_rows = 64,
      .box_columns = 64,
      .columns = 64,
      .rows = {256},
      .pitches = {INT64_C(1) << 39}},
     "a pitch in bytes of the tensor map must be"},
    {{.box_rows = 257, .box_columns = 64, .columns = 64, .rows = {256}, .pitches = {64}},
     "the number of a box's rows of the tensor map must be a multiple of 1 from 1 to 256, got 257"},
    {{.box_rows = 64, .box_columns = 128, .columns = 64, .rows = {256}, .pitches = {64}},
     "the bytes of a box's row of the tensor map must be a multiple of 16 from 16 to 128, got 256"},
    {{.box_rows = 64, .box_columns = 60, .columns = 64, .rows = {256}, .pitches = {64}},
     "the bytes of a box's row of the tensor map must be a multiple of 16"},
    {{.box_rows = 64, .box_columns = 64, .rows = {256}, .pitches = {64}}, "the number of columns"},
    {{.box_rows = 64, .box_columns = 64, .columns = 64, .pitches = {64}}, "an extent"},
    {{.box_rows = 32, .box_columns = 64, .columns = 64, .rows = {256}, .pitches = {64}},
     "must have a box of 64 x 64, got 32 x 64"},
    {{.box_rows = 64, .box_columns = 64, .columns = 32, .rows = {256}, .pitches = {64}},
     "must read element 32 of X at row 0, column 32, got element -1 by its tensor map"},
    {{.box_rows = 64, .box_columns = 64, .columns = 64, .rows = {128}, .pitches = {64}},
     "got element -1 by its tensor map"},
    {{.box_rows = 64, .box_columns = 64, .columns = 64, .rows = {256}, .pitches = {128}},
     "must read element 64 of X at row 1, column 0, got element 128 by its tensor map"},
    {{.box_rows = 64,
      .box_columns = 64,
      .columns = 64,
      .rows = {64, 4, 1},
      .pitches = {64, 4096, 16384},
      .steps = {9, 1}},
     "a stride of windows"},
    {{.box_rows = 64,
      .box_columns = 64,
      .columns = 64,
      .rows = {64, 4, 1},
      .pitches = {64, 4096, 16384},
      .steps = {1, 1},
      .lower = {0, -129}},
     "a lower corner"},
};

static void every_wrong_tensor_map_is_found(void **state) {
  fixture *f = *state;
  static float x[MAX_ELEMS], y[MAX_ELEMS];
  for (size_t i = 0; i < KILN_LEN(maps); i++) {
    const kiln_status st = run_by(f, &stages, stages.text, &maps[i].map, x, y);
    const char *message =
        st == KILN_OK ? "nothing" : kiln_diag_message(f->diag, kiln_diag_count(f->diag) - 1);
    if (st != KILN_INTERNAL || !strstr(message, maps[i].report))
      fail_msg("expected '%s', got %s", maps[i].report, message);
  }
}

static void a_report_names_both_places(void **state) {
  fixture *f = *state;
  static float x[MAX_ELEMS], y[MAX_ELEMS];
  assert_int_equal(run(f, &copies, mutated(f, copies.text, "copy.wait(1) ", ""), x, y),
                   KILN_INTERNAL);
  assert_string_equal(
      kiln_diag_message(f->diag, 0),
      "sim: device loops of k: error: buffer S: race: thread 0 reads element 255 in `sums[e3] += "
      "S[k%3, 255 - 4*t3 - e3]`, which a copy of thread 63 is not waited for: `copy.async(S[k0, "
      "4*t1], X[k0, 4*t1])`");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      FIXTURE_TEST(programs_compute_what_they_should),
      FIXTURE_TEST(every_mutation_is_found),
      FIXTURE_TEST(every_wrong_tensor_map_is_found),
      FIXTURE_TEST(a_report_names_both_places),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
