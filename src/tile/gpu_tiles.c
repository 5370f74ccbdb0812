// Matrix products (gpu_product.h) tile by tile: a block computes a tile of the result, the threads a small tile
// each in registers; what a step along k reads is copied to shared memory, two steps ahead of its use.
#include "tile/gpu.h"
#include "tile/gpu_product.h"

#include <math.h>

// A block's tile, the step along k, and a thread's tile.
typedef struct shape {
  int64_t m, n, k, thread_m, thread_n;
} shape;

static const shape shapes[] = {{128, 128, 16, 8, 8}, {128, 64, 16, 8, 4}, {64, 128, 16, 4, 8},
                               {64, 64, 16, 4, 4},   {32, 64, 16, 2, 4},  {64, 32, 16, 4, 2},
                               {32, 32, 16, 2, 2},   {16, 32, 16, 1, 2},  {16, 16, 16, 1, 1}};

// Cycles that a multiprocessor needs to hide: blocks fewer than the units leave some idle.
static const double EFFICIENCY = 0.8;

static const char *name_of(const kiln_lowering *w, const kiln_stmt *s) {
  return kiln_symbol_text(w->cx, w->p->tensors.data[s->out]->name);
}

static kiln_symbol loop(kiln_lowering *w, const kiln_stmt *s, const char *part, const char *dim) {
  return kiln_lowering_loop(w, name_of(w, s), part, kiln_symbol_of(w->cx, dim));
}

static kiln_symbol named(kiln_lowering *w, const char *name) { return kiln_symbol_of(w->cx, name); }

// Cuts the result into the blocks' tiles; the blocks are the grid.
static kiln_status cut_blocks(kiln_lowering *w, const kiln_product *p, const shape *s,
                              kiln_symbol *out_block) {
  kiln_symbol outer[KILN_MAX_RANK];
  int64_t extent;
  for (int d = 0; d < p->n_batch; d++)
    outer[d] = kiln_lowering_loop(w, "y", "", w->root->dims[d].name);
  outer[p->n_batch] = named(w, "block.m");
  outer[p->n_batch + 1] = named(w, "block.n");
  KILN_TRY(kiln_tile(&w->s, loop(w, p->y, "", "m"), loop(w, p->y, "", "n"), s->m, s->n,
                     KILN_TAIL_SHIFT, outer[p->n_batch], outer[p->n_batch + 1], named(w, "y.mi"),
                     named(w, "y.ni")));
  return kiln_gpu_fuse(w, p->n_batch + 2, outer, out_block, &extent);
}

// Cuts the loops |m| and |n| of a nest over the block's tile into threads and their tiles, and binds these.
static kiln_status cut_threads(kiln_lowering *w, const shape *s, kiln_symbol m, kiln_symbol n,
                               kiln_symbol k, bool unrolls) {
  const kiln_symbol mo = kiln_lowering_name(w, "o", m), mi = kiln_lowering_name(w, "i", m),
                    no = kiln_lowering_name(w, "o", n), ni = kiln_lowering_name(w, "i", n),
                    thread = kiln_lowering_name(w, "t", m);
  KILN_TRY(kiln_split(&w->s, m, s->thread_m, KILN_TAIL_EXACT, mo, mi));
  KILN_TRY(kiln_split(&w->s, n, s->thread_n, KILN_TAIL_EXACT, no, ni));
  const kiln_symbol order[] = {mo, no, k ? k : mi, k ? mi : ni, ni};
  KILN_TRY(kiln_reorder(&w->s, k ? 5 : 4, order));
  KILN_TRY(kiln_fuse(&w->s, mo, no, thread));
  KILN_TRY(kiln_bind(&w->s, thread, KILN_THREAD_X));
  if (!unrolls) return KILN_OK;
  KILN_TRY(kiln_unroll(&w->s, mi));
  return kiln_unroll(&w->s, ni);
}

// Copies what a step reads of |operand| to shared memory, k outermost, and deals the copying out along the
// axis in which the source lies.
static kiln_status stage_operand(kiln_lowering *w, const kiln_stmt *operand, bool turns,
                                 kiln_symbol at, int64_t threads) {
  const kiln_symbol buffer = w->p->tensors.data[operand->out]->name;
  const int first = operand->n_space - 2;
  kiln_symbol loops[KILN_MAX_RANK];
  for (int d = 0; d < 2; d++)
    loops[d] = kiln_lowering_loop(w, name_of(w, operand), "", operand->dims[first + d].name);
  const kiln_loop *nest = kiln_loops_find(w->s.loops, loops[0]);
  if (nest) {
    KILN_TRY(kiln_compute_at(&w->s, buffer, at, KILN_SCOPE_SHARED));
  } else { // a constant, packed
    kiln_stage_axis axes[KILN_MAX_RANK] = {0};
    const kiln_symbol copy = kiln_symbol_printf(w->cx, "%s.tile", name_of(w, operand));
    for (int d = 0; d < operand->n_space; d++) axes[d].axis = d;
    KILN_TRY(kiln_stage(&w->s, buffer, at, KILN_SCOPE_SHARED, operand->n_space, axes, copy));
    for (int d = 0; d < 2; d++)
      loops[d] = kiln_symbol_printf(w->cx, "%s.%d", kiln_symbol_text(w->cx, copy), first + d);
    KILN_TRY(kiln_gpu_deal(w, 2, loops, threads));
    return KILN_OK;
  }
  KILN_TRY(kiln_gpu_deal(w, 2, loops, threads));
  if (!turns) return KILN_OK;
  kiln_stage_axis axes[KILN_MAX_RANK] = {0};
  for (int d = 0; d < operand->n_space; d++) axes[d].axis = d;
  axes[first].axis = first + 1;
  axes[first + 1].axis = first;
  return kiln_transform_layout(&w->s, buffer, operand->n_space, axes);
}

static bool is_const(const kiln_lowering *w, const kiln_stmt *operand) {
  const kiln_loads loads = kiln_stmt_loads(w->cx, &w->cx->scratch, w->p, operand);
  return loads.n == 1 && w->p->tensors.data[loads.data[0]->u.tensor]->role == KILN_CONST;
}

static kiln_status lower_tiles(kiln_lowering *w, const kiln_tiling *t) {
  kiln_product p;
  kiln_symbol block;
  const shape *s = &shapes[t->variant];
  const int64_t threads = s->m / s->thread_m * (s->n / s->thread_n);
  if (!kiln_product_is(w->p, &p)) return KILN_INTERNAL;
  const kiln_symbol sums = w->p->tensors.data[p.t->out]->name, step = named(w, "step.k");
  if (is_const(w, p.a)) KILN_TRY(kiln_prepack(&w->s, w->p->tensors.data[p.a->out]->name));
  if (is_const(w, p.b)) KILN_TRY(kiln_prepack(&w->s, w->p->tensors.data[p.b->out]->name));
  KILN_TRY(cut_blocks(w, &p, s, &block));
  KILN_TRY(kiln_compute_at(&w->s, sums, block, KILN_SCOPE_LOCAL));
  const kiln_symbol m = loop(w, p.t, "", "m"), n = loop(w, p.t, "", "n"), k = loop(w, p.t, "", "k");
  KILN_TRY(kiln_split(&w->s, k, s->k, KILN_TAIL_EXACT, step, named(w, "step.ki")));
  KILN_TRY(kiln_reorder(&w->s, 2, (const kiln_symbol[]){step, m}));
  KILN_TRY(stage_operand(w, p.b, false, step, threads));
  KILN_TRY(stage_operand(w, p.a, true, step, threads));
  KILN_TRY(cut_threads(w, s, m, n, named(w, "step.ki"), true));
  KILN_TRY(cut_threads(w, s, loop(w, p.t, "init.", "m"), loop(w, p.t, "init.", "n"), 0, true));
  KILN_TRY(cut_threads(w, s, named(w, "y.mi"), named(w, "y.ni"), 0, true));
  kiln_stage_axis axes[KILN_MAX_RANK] = {0};
  const int b = p.n_batch;
  for (int d = 0; d < b; d++) axes[d].axis = d;
  axes[b] = (kiln_stage_axis){.axis = b, .block = s->thread_m, .outer = true};
  axes[b + 1] = (kiln_stage_axis){.axis = b + 1, .block = s->thread_n, .outer = true};
  axes[b + 2] = (kiln_stage_axis){.axis = b, .block = s->thread_m};
  axes[b + 3] = (kiln_stage_axis){.axis = b + 1, .block = s->thread_n};
  KILN_TRY(kiln_transform_layout(&w->s, sums, b + 4, axes));
  return kiln_bind(&w->s, block, KILN_BLOCK_X);
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
