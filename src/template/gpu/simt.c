// SIMT GEMM of any element type (product.h), tile by tile: a block computes a tile of the
// result, the threads a small tile each in registers; the operands of a step along k are copied
// to shared memory, two steps ahead of their use.
#include "template/gpu/blocks.h"

#include <math.h>

// A block's tile, the step along k, and a thread's tile.
typedef struct shape {
  int64_t m, n, k, thread_m, thread_n;
} shape;

static const shape shapes[] = {{128, 128, 16, 8, 8}, {128, 64, 16, 8, 4}, {64, 128, 16, 4, 8},
                               {64, 64, 16, 4, 4},   {32, 64, 16, 2, 4},  {64, 32, 16, 4, 2},
                               {32, 32, 16, 2, 2},   {16, 32, 16, 1, 2},  {16, 16, 16, 1, 1}};

enum { PAD = 4 }; // elements: padding against bank conflicts

// Cuts the loops |m| and |n| of a nest over the block's tile into threads and their tiles, and
// binds these.
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
  if (!k) return kiln_vectorize(&w->s, ni);
  KILN_TRY(kiln_unroll(&w->s, k));
  return kiln_unroll(&w->s, ni);
}

// Fills |buffer| some steps ahead (software pipelining), where the device has cp.async.
static kiln_status fill_ahead(kiln_lowering *w, const kiln_product *p, const shape *s,
                              kiln_symbol buffer, kiln_symbol step, int row, int64_t pad) {
  enum { DEPTH = 3, ASYNC = 80 }; // the first compute capability with cp.async
  const int64_t bytes = 4 * (s->m * (s->k + PAD) + s->k * s->n);
  const bool fills = w->m->gpu.capability >= ASYNC && p->k / s->k >= DEPTH &&
                     w->m->gpu.shared_bytes >= DEPTH * bytes;
  if (fills) KILN_TRY(kiln_pipeline(&w->s, buffer, step, DEPTH));
  return pad ? kiln_storage_align(&w->s, buffer, row + fills, 2 * pad, pad) : KILN_OK;
}

static kiln_status lower_simt(kiln_lowering *w, const kiln_tiling *t) {
  kiln_product p;
  kiln_product_loops l;
  kiln_symbol a, b;
  const shape *s = &shapes[t->variant];
  const int64_t threads = s->m / s->thread_m * (s->n / s->thread_n);
  if (!kiln_product_is(w->p, &p)) return KILN_INTERNAL;
  const kiln_symbol sums = kiln_product_tensor(w, p.t);
  KILN_TRY(kiln_product_blocks(w, &p, s->m, s->n, s->k, &l));
  KILN_TRY(kiln_product_stage(w, p.b, false, 0, l.step, threads, threads, &b));
  KILN_TRY(kiln_product_stage(w, p.a, false, 0, l.step, threads, threads, &a));
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
  KILN_TRY(fill_ahead(w, &p, s, b, l.step, p.b->n_space - 2, 0));
  KILN_TRY(fill_ahead(w, &p, s, a, l.step, p.a->n_space - 2, PAD));
  return kiln_bind(&w->s, l.block, KILN_BLOCK_X);
}

// A step along k takes as long as its multiply-adds; or its reads of shared memory, with bank
// conflicts once a thread has more than one word along n; or its copies from L2. Measured on an
// H200.
static double time_of(const kiln_lowering *w, const kiln_product *p, const shape *s) {
  static const double L2_SHARE = 0.71, STEP_NS = 30, BLOCK_NS = 1500;
  enum { WORD = 4 }; // elements
  const kiln_device *d = w->m->device;
  const double blocks = ceil((double)p->m / (double)s->m) * ceil((double)p->n / (double)s->n) *
                        (double)p->batch,
               each = kiln_gpu_each(w, blocks), steps = ceil((double)p->k / (double)s->k),
               threads = (double)(s->m / s->thread_m * (s->n / s->thread_n)),
               words = (double)(s->thread_m + s->thread_n * (s->thread_n > WORD ? 2 : 1)),
               flops = 2 * (double)(s->m * s->n * s->k);
  const double read = 4 * threads * words * (double)s->k / kiln_gpu_shared(d)->unit_bytes_ns,
               moved = 4 * (double)((s->m + s->n) * s->k) / (L2_SHARE * d->levels[1].unit_bytes_ns);
  const double step = fmax(fmax(flops / d->unit_flops_ns[KILN_PEAK_F32], read), moved);
  return d->launch_ns + each * steps * step + steps * STEP_NS + BLOCK_NS +
         kiln_product_more_loads_ns(w, p->y, p->t, each * (double)(s->m * s->n), false);
}

static kiln_status propose_simt(kiln_lowering *w, kiln_tile_candidates *out) {
  kiln_product p;
  if (!kiln_product_is(w->p, &p)) return KILN_OK;
  for (int i = 0; i < (int)KILN_LEN(shapes); i++) {
    if (shapes[i].m > p.m || shapes[i].n > p.n) continue;
    kiln_tile_candidate one = {.tiling.variant = i};
    one.cost.ns = time_of(w, &p, &shapes[i]);
    KILN_VEC_PUSH(w->proposed, out, one);
  }
  return KILN_OK;
}

const kiln_template kiln_template_gpu_simt = {.name = "simt",
                                              .was = "tiles",
                                              .has_grids = true,
                                              .kinds = 1u << KILN_GROUP_CONTRACTION,
                                              .match = kiln_product_make,
                                              .propose = propose_simt,
                                              .lower = lower_simt};
