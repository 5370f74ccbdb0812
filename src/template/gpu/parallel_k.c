// Split-K and slice-K GEMM on tensor cores, whose partial sums are added up: for products with
// fewer tiles than the machine has multiprocessors, or whose blocks would wait for the few copies
// that few warps have in flight.
//
// slice-K  groups of a block's warps take a share of every step along k each; their sums meet in
//          shared memory
// split-K  shares of the reduction are blocks of their own; their sums meet in memory, and a second
//          nest adds them up
//
//     sums(group, ..) +=! ..   parts(group, ..) = sums(..)
//     for words { t = 0   t += parts(0..groups, ..)   y = f(t, ..) }
//
// The epilogue reads the sums in shared memory, whole words a thread, where the lanes that hold
// fragments would store 4 bytes each; so it may pay with one group and one split, too.
#include "template/gpu/mma.h"
#include "template/gpu/split_k.h"

#include <math.h>

enum { MAX_WARPS = 16, MAX_DEPTH = 8 };

static const struct {
  int64_t m, n, warp_m, warp_n;
} tiles[] = {{128, 256, 64, 64}, {256, 128, 64, 64}, {128, 128, 64, 32}, {128, 64, 32, 32},
             {64, 128, 32, 32},  {64, 64, 32, 32},   {32, 64, 16, 32},   {64, 32, 32, 16},
             {32, 32, 16, 16},   {16, 64, 16, 16},   {16, 32, 16, 16},   {16, 16, 16, 16}};
static const int64_t k_steps[] = {128, 64, 32, 16}, slice_counts[] = {4, 2, 1},
                     split_counts[] = {1, 2, 4, 8, 16, 32};
enum {
  N_TILES = (int)KILN_LEN(tiles),
  N_STEPS = (int)KILN_LEN(k_steps),
  N_SLICES = (int)KILN_LEN(slice_counts),
  N_SPLITS = (int)KILN_LEN(split_counts)
};

typedef struct way {
  kiln_mma_shape s;
  int64_t split_k;
} way;

static way way_of(int variant) {
  const int tile = variant / (N_STEPS * N_SLICES * N_SPLITS);
  return (way){.s = {.m = tiles[tile].m,
                     .n = tiles[tile].n,
                     .k = k_steps[variant / (N_SLICES * N_SPLITS) % N_STEPS],
                     .warp_m = tiles[tile].warp_m,
                     .warp_n = tiles[tile].warp_n,
                     .slice_k = slice_counts[variant / N_SPLITS % N_SLICES]},
               .split_k = split_counts[variant % N_SPLITS]};
}

// --- candidates ---

static int64_t bytes_of_step(const kiln_mma_shape *s) {
  return 2 * (s->m * (s->k + KILN_MMA_PAD) + s->k * (s->n + KILN_MMA_PAD));
}
static int64_t bytes_of_parts(const kiln_mma_shape *s) {
  return 4 * s->slice_k * s->m * (s->n + KILN_MMA_PAD);
}

static kiln_gpu_occupancy occupancy_of(const kiln_lowering *w, const kiln_product *p,
                                       const way *v) {
  enum { OTHER_REGISTERS = 72 };
  const kiln_mma_shape *s = &v->s;
  const kiln_gpu_staged b = {.blocks = ceil((double)p->m / (double)s->m) *
                                       ceil((double)p->n / (double)s->n) *
                                       (double)(p->batch * v->split_k),
                             .threads = kiln_mma_threads(s),
                             .registers = s->warp_m * s->warp_n / KILN_MMA_WARP + OTHER_REGISTERS,
                             .steps = p->k / v->split_k / s->k,
                             .step_bytes = bytes_of_step(s),
                             .meet_bytes = bytes_of_parts(s),
                             .max_depth = MAX_DEPTH};
  return kiln_gpu_occupancy_of(w, &b);
}

// Elements of a word of the epilogue: the widest that divides a thread's share of the tile.
static int64_t word_of(const kiln_mma_shape *s) {
  const int64_t each = s->m * s->n / kiln_mma_threads(s);
  int64_t word = 8;
  while (word > 1 && each % word) word /= 2;
  return word;
}

static kiln_status lower_parallel_k(kiln_lowering *w, const kiln_tiling *t) {
  const way v = way_of(t->variant);
  const kiln_mma_shape *s = &v.s;
  kiln_mma m = {.w = w, .s = s};
  if (!kiln_product_is(w->p, &m.p)) return KILN_INTERNAL;
  kiln_mma_find(&m);
  m.steps = m.p.k / v.split_k / s->k;
  m.depth = occupancy_of(w, &m.p, &v).depth;
  kiln_parallel_k x = {.w = w,
                       .p = m.p,
                       .m = s->m,
                       .n = s->n,
                       .k = s->k,
                       .slice_k = s->slice_k,
                       .split_k = v.split_k,
                       .threads = m.threads,
                       .word = word_of(s)};
  KILN_TRY(kiln_parallel_k_begin(&x));
  m.l = x.l;
  m.sums = x.kept;
  m.n_more = x.n_more;
  m.group = x.group;
  KILN_TRY(kiln_mma_multiply(&m));
  const kiln_parallel_k_nest clears = kiln_parallel_k_clears(&x),
                             copies = kiln_parallel_k_copies(&x);
  KILN_TRY(kiln_mma_elements(&m, clears.group, clears.rows));
  KILN_TRY(kiln_mma_elements(&m, copies.group, copies.rows));
  return kiln_parallel_k_finish(&x);
}

// As for mma.c's, but that groups share the latency of one warp, and blocks begin while
// others end; and the second nest, which reads all sums. Measured on an H200.
static double time_of(const kiln_lowering *w, const kiln_product *p, const way *v) {
  static const double OVERLAP = 0.76, L2_SHARE = 1.16, ROW_BYTES = 49, TILE_NS = 50, STEP_NS = 9,
                      BLOCK_NS = 1550, ELEMENT_NS = 0.06;
  const kiln_mma_shape *s = &v->s;
  const kiln_gpu_occupancy o = occupancy_of(w, p, v);
  const double resident = (double)o.resident, steps = (double)p->k / (double)(v->split_k * s->k),
               warps = (double)kiln_mma_threads(s) / KILN_MMA_WARP;
  const kiln_gpu_mma_step one = {
      .flops = 2.0 * (double)(s->m * s->n * s->k),
      .copied = 2.0 * (double)((s->m + s->n) * s->k),
      .read = warps * 2.0 * (double)((s->warp_m + 2 * s->warp_n) * s->k) / (double)s->slice_k,
      .rows = (double)(s->m + s->k),
      .resident = resident,
      .alone = TILE_NS * (double)s->k / (double)(KILN_MMA_K * s->slice_k),
      .overlap = OVERLAP,
      .l2_share = L2_SHARE,
      .row_bytes = ROW_BYTES};
  const double step =
                   kiln_gpu_mma_step_ns(w, &one) + STEP_NS + kiln_gpu_refill_ns(w, steps, o.depth),
               block = steps * step + BLOCK_NS,
               finish =
                   ELEMENT_NS * (o.each - 1) * (double)(s->m * s->n); // the first is of BLOCK_NS
  const bool by_words = o.resident > 1; // a block alone waits for them as long as for pairs
  const double more =
      kiln_product_more_loads_ns(w, p->y, p->t, o.each * (double)(s->m * s->n), by_words);
  return w->m->device->launch_ns + o.each / resident * block + finish +
         (v->split_k > 1 ? kiln_split_k_finish_ns(w, p, v->split_k) : more);
}

static bool may_run(const kiln_lowering *w, const kiln_product *p, const way *v) {
  enum { MANY = 4, SHORT = 512 };
  const kiln_mma_shape *s = &v->s;
  if (s->m > p->m || s->n > p->n || p->k % (v->split_k * s->k) ||
      s->k % (s->slice_k * KILN_MMA_K) || kiln_mma_threads(s) > MAX_WARPS * KILN_MMA_WARP)
    return false;
  const kiln_gpu_occupancy o = occupancy_of(w, p, v);
  if (o.blocks > MANY * w->m->device->n_units && p->k > SHORT) return false; // others are as fast
  if (v->split_k > 1 &&
      (o.blocks > 2 * w->m->device->n_units || !kiln_split_k_fits(w, p, s->m, s->n)))
    return false;
  return o.depth > 0;
}

static kiln_status propose_parallel_k(kiln_lowering *w, kiln_tile_candidates *out) {
  kiln_product p;
  if (!kiln_product_is(w->p, &p) || !kiln_mma_takes(w, &p)) return KILN_OK;
  for (int i = 0; i < N_TILES * N_STEPS * N_SLICES * N_SPLITS; i++) {
    const way v = way_of(i);
    if (!may_run(w, &p, &v)) continue;
    kiln_tile_candidate one = {.tiling.variant = i};
    one.cost.ns = time_of(w, &p, &v);
    KILN_VEC_PUSH(w->proposed, out, one);
  }
  return KILN_OK;
}

const kiln_template kiln_template_gpu_parallel_k = {.name = "parallel_k",
                                                    .was = "parts",
                                                    .has_grids = true,
                                                    .kinds = 1u << KILN_GROUP_CONTRACTION,
                                                    .match = kiln_product_make,
                                                    .propose = propose_parallel_k,
                                                    .lower = lower_parallel_k};
