// Small-K GEMM on tensor cores: products whose reduction is so short that memory bounds them, or
// their epilogue. Blocks are small, so that several of a multiprocessor run at once, some of them
// computing while others copy; each runs its epilogue in registers, rounds, and stores results by
// way of shared memory, in whole words.
#include "template/gpu/mma.h"

#include "support/integer.h"

#include <math.h>

enum { WARP = KILN_MMA_WARP, MAX_K = 320, MANY = 4 };

static const struct {
  int64_t m, n, warp_m, warp_n;
} tiles[] = {{128, 128, 64, 32}, {128, 128, 32, 64}, {128, 96, 64, 48}, {128, 96, 32, 48},
             {128, 64, 64, 32},  {128, 64, 32, 32},  {64, 128, 32, 32}, {64, 96, 32, 48},
             {64, 64, 32, 32},   {128, 32, 32, 32},  {64, 32, 32, 16},  {64, 192, 32, 48},
             {128, 144, 64, 48}, {64, 144, 32, 48}};
static const int64_t k_steps[] = {96, 64, 48, 32, 16};

static kiln_mma_shape shape_of(int variant) {
  const int tile = variant / (int)KILN_LEN(k_steps);
  return (kiln_mma_shape){.m = tiles[tile].m,
                          .n = tiles[tile].n,
                          .k = k_steps[variant % (int)KILN_LEN(k_steps)],
                          .warp_m = tiles[tile].warp_m,
                          .warp_n = tiles[tile].warp_n,
                          .slice_k = 1};
}

static int64_t bytes_of_result(const kiln_lowering *w, const kiln_product *p,
                               const kiln_mma_shape *s) {
  const int64_t bytes = kiln_dtype_bytes(w->p->tensors.data[p->y->out]->dtype);
  return s->m * (s->n * bytes + 16);
}

static kiln_gpu_occupancy occupancy_of(const kiln_lowering *w, const kiln_product *p,
                                       const kiln_mma_shape *s) {
  enum { OTHER_REGISTERS = 72, MAX_DEPTH = 4 };
  const int64_t depth = kiln_gpu_depth(p->k / s->k, MAX_DEPTH),
                step = 2 * (s->m * (s->k + KILN_MMA_PAD) + s->k * (s->n + KILN_MMA_PAD));
  const kiln_gpu_block one = {.threads = kiln_mma_threads(s),
                              .registers = s->warp_m * s->warp_n / WARP + OTHER_REGISTERS,
                              .shared_bytes = kiln_max_i64(depth * step, bytes_of_result(w, p, s))};
  const double blocks =
      ceil((double)p->m / (double)s->m) * ceil((double)p->n / (double)s->n) * (double)p->batch;
  return (kiln_gpu_occupancy){.blocks = blocks,
                              .each = kiln_gpu_each(w, blocks),
                              .resident = kiln_gpu_resident(&w->m->gpu, &one),
                              .depth = (int)depth};
}

static kiln_status lower_small_k(kiln_lowering *w, const kiln_tiling *t) {
  const kiln_mma_shape s = shape_of(t->variant);
  kiln_mma m = {.w = w, .s = &s};
  if (!kiln_product_is(w->p, &m.p)) return KILN_INTERNAL;
  kiln_mma_find(&m);
  m.steps = m.p.k / s.k;
  m.depth = occupancy_of(w, &m.p, &s).depth;
  m.sums = kiln_product_tensor(w, m.p.t);
  KILN_TRY(kiln_product_blocks_shared(w, &m.p, s.m, s.n, s.k, m.threads, WARP, &m.l));
  KILN_TRY(kiln_mma_multiply(&m));
  KILN_TRY(kiln_mma_elements(&m, 0, kiln_product_loop(w, m.p.t, "init.", "m")));
  KILN_TRY(kiln_mma_elements(&m, 0, m.l.y_m));
  return kiln_bind(&w->s, m.l.block, KILN_BLOCK_X);
}

// --- candidates ---

// A multiprocessor copies, multiplies and runs epilogues one after the other, and each step of the
// blocks that run at once waits. Measured on an H200, within 9 % on average.
static double time_of(const kiln_lowering *w, const kiln_product *p, const kiln_mma_shape *s,
                      const kiln_gpu_occupancy *o) {
  static const double COPIED_SHARE = 4.3, FLOPS_SHARE = 0.28, ELEMENT_NS = 0.041, STEP_NS = 309;
  const kiln_device *d = w->m->device;
  const double copied = 2.0 * (double)((s->m + s->n) * p->k),
               flops = 2.0 * (double)(s->m * s->n * p->k);
  const double block = copied / (COPIED_SHARE * d->levels[1].unit_bytes_ns) +
                       flops / (FLOPS_SHARE * d->unit_flops_ns[KILN_PEAK_BF16]) +
                       ELEMENT_NS * (double)(s->m * s->n);
  const double steps = (double)p->k / (double)s->k;
  return d->launch_ns + o->each * (block + steps * STEP_NS / (double)o->resident) +
         kiln_product_more_loads_ns(w, p->y, p->t, o->each * (double)(s->m * s->n), false);
}

static kiln_status propose_small_k(kiln_lowering *w, kiln_tile_candidates *out) {
  kiln_product p;
  if (!kiln_product_is(w->p, &p) || !kiln_mma_takes(w, &p) || p.k > MAX_K) return KILN_OK;
  for (int i = 0; i < (int)(KILN_LEN(tiles) * KILN_LEN(k_steps)); i++) {
    const kiln_mma_shape s = shape_of(i);
    if (s.m > p.m || s.n > p.n || p.k % s.k) continue;
    const kiln_gpu_occupancy o = occupancy_of(w, &p, &s);
    if (o.resident < 1 || o.each < MANY) continue;
    kiln_tile_candidate one = {.tiling.variant = i};
    one.cost.ns = time_of(w, &p, &s, &o);
    KILN_VEC_PUSH(w->proposed, out, one);
  }
  return KILN_OK;
}

const kiln_template kiln_template_gpu_small_k = {.name = "small_k",
                                                 .was = "short",
                                                 .has_grids = true,
                                                 .kinds = 1u << KILN_GROUP_CONTRACTION,
                                                 .match = kiln_product_make,
                                                 .propose = propose_small_k,
                                                 .lower = lower_small_k};
