// Matrix products (gpu_product.h) tile by tile: a block computes a tile of the result, the threads a small tile
// each in registers; what a step along k reads is copied to shared memory, two steps ahead of its use.
#include "tile/gpu_blocks.h"

#include <math.h>

// A block's tile, the step along k, and a thread's tile.
typedef struct shape {
  int64_t m, n, k, thread_m, thread_n;
} shape;

static const shape shapes[] = {{128, 128, 16, 8, 8}, {128, 64, 16, 8, 4}, {64, 128, 16, 4, 8},
                               {64, 64, 16, 4, 4},   {32, 64, 16, 2, 4},  {64, 32, 16, 4, 2},
                               {32, 32, 16, 2, 2},   {16, 32, 16, 1, 2},  {16, 16, 16, 1, 1}};

enum { PAD = 4 }; // elements, so that rows in shared memory begin in other banks

// Cycles that a multiprocessor needs to hide: blocks fewer than the units leave some idle.
static const double EFFICIENCY = 0.8;

// Cuts the loops |m| and |n| of a nest over the block's tile into threads and their tiles, and binds these.
static kiln_status cut_threads(kiln_lowering *w, const shape *s, kiln_symbol m, kiln_symbol n,
                               kiln_symbol k) {
  const kiln_symbol mo = kiln_lowering_name(w, "o", m), mi = kiln_lowering_name(w, "i", m),
                    no = kiln_lowering_name(w, "o", n), ni = kiln_lowering_name(w, "i", n),
                    thread = kiln_lowering_name(w, "t", m);
  KILN_TRY(kiln_split(&w->s, m, s->thread_m, KILN_TAIL_EXACT, mo, mi));
  KILN_TRY(kiln_split(&w->s, n, s->thread_n, KILN_TAIL_EXACT, no, ni));
  const kiln_symbol order[] = {mo, no, k ? k : mi, k ? mi : ni, ni};
  KILN_TRY(kiln_reorder(&w->s, k ? 5 : 4, order));
  KILN_TRY(kiln_fuse(&w->s, mo, no, thread));
  KILN_TRY(kiln_bind(&w->s, thread, KILN_THREAD_X));
  KILN_TRY(kiln_unroll(&w->s, mi));
  return kiln_unroll(&w->s, ni);
}

static kiln_status lower_tiles(kiln_lowering *w, const kiln_tiling *t) {
  kiln_product p;
  kiln_product_loops l;
  kiln_symbol a, b;
  const shape *s = &shapes[t->variant];
  const int64_t threads = s->m / s->thread_m * (s->n / s->thread_n);
  if (!kiln_product_is(w->p, &p)) return KILN_INTERNAL;
  const kiln_symbol sums = kiln_product_tensor(w, p.t);
  KILN_TRY(kiln_product_blocks(w, &p, s->m, s->n, s->k, &l));
  KILN_TRY(kiln_product_stage(w, p.b, false, 0, l.step, threads, threads, &b));
  KILN_TRY(kiln_product_stage(w, p.a, true, PAD, l.step, threads, threads, &a));
  KILN_TRY(cut_threads(w, s, l.m, l.n, l.k));
  KILN_TRY(cut_threads(w, s, kiln_product_loop(w, p.t, "init.", "m"),
                       kiln_product_loop(w, p.t, "init.", "n"), 0));
  KILN_TRY(cut_threads(w, s, l.y_m, l.y_n, 0));
  kiln_stage_axis axes[KILN_MAX_RANK] = {0};
  const int n = p.n_batch;
  for (int d = 0; d < n; d++) axes[d].axis = d;
  axes[n] = (kiln_stage_axis){.axis = n, .block = s->thread_m, .outer = true};
  axes[n + 1] = (kiln_stage_axis){.axis = n + 1, .block = s->thread_n, .outer = true};
  axes[n + 2] = (kiln_stage_axis){.axis = n, .block = s->thread_m};
  axes[n + 3] = (kiln_stage_axis){.axis = n + 1, .block = s->thread_n};
  KILN_TRY(kiln_transform_layout(&w->s, sums, n + 4, axes));
  return kiln_bind(&w->s, l.block, KILN_BLOCK_X);
}

// A block's tile moves m + n operands for m * n products; too few blocks leave units idle.
static double time_of(const kiln_lowering *w, const kiln_product *p, const shape *s) {
  const kiln_device *d = w->m->device;
  const double blocks = ceil((double)p->m / (double)s->m) * ceil((double)p->n / (double)s->n) *
                        (double)p->batch,
               units = d->n_units, waves = ceil(blocks / units),
               reuse = (double)(s->thread_m * s->thread_n) / (double)(s->thread_m + s->thread_n),
               share =
                   EFFICIENCY * fmin(1, reuse / 4); // shared memory gives a quarter of the operands
  const double flops = 2 * (double)(s->m * s->n) * (double)p->k,
               bytes = 4.0 * (double)((s->m + s->n) * p->k);
  const double compute = waves * flops / (share * d->unit_flops_ns[KILN_PEAK_F32]),
               memory = waves * bytes / d->levels[1].unit_bytes_ns;
  return d->launch_ns + fmax(compute, memory);
}

static kiln_status propose_tiles(kiln_lowering *w, kiln_tile_candidates *out) {
  kiln_product p;
  if (!kiln_product_is(w->p, &p)) return KILN_OK;
  for (int i = 0; i < (int)KILN_LEN(shapes); i++) {
    if (shapes[i].m > p.m || shapes[i].n > p.n) continue;
    kiln_tile_candidate one = {.family = &kiln_family_gpu_tiles, .tiling.variant = i};
    one.cost.ns = time_of(w, &p, &shapes[i]);
    KILN_VEC_PUSH(&w->cx->perm, out, one);
  }
  return KILN_OK;
}

const kiln_family kiln_family_gpu_tiles = {"tiles", propose_tiles, lower_tiles};
