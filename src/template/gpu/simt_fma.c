// SIMT GEMM: matrix products of floats by multiply-adds of threads: a block computes a tile of the
// result, its threads small tiles in registers, from operands that are copied to shared memory
// some steps along k ahead. Where there are fewer tiles than multiprocessors, the reduction is
// split, and groups of a block's threads share its steps (split_k.h).
//
// An operand lies in shared memory as in memory, so that it is copied word by word without waiting:
// in rows along k, of which a thread reads four neighbours at once for each of its rows, or in rows
// along m or n, of which it reads four of its own. Either way a load brings 16 bytes for four
// multiply-adds of each of the other operand's elements.
//
// Lanes are numbered so that lanes 2i and 2i + 1 read the same words of one operand, and lanes i
// and i + 2 of the other: the hardware serves 16 lanes at once then. A thread's rows and columns
// are strided as far as the tile allows, so that neighbouring lanes read contiguous words.
#include "template/gpu/layout.h"
#include "template/gpu/split_k.h"

#include <math.h>

enum { WARP = 32, WORD = 4, PAD = 4, MAX_WARPS = 16, MAX_DEPTH = 5 };

// A block's tile, a thread's, and the lanes of a warp along m.
typedef struct tile {
  int64_t m, n, thread_m, thread_n, lanes_m;
} tile;

static const tile tiles[] = {{128, 128, 8, 8, 4}, {128, 64, 8, 8, 4}, {64, 128, 8, 8, 4},
                             {96, 96, 8, 4, 4},   {64, 64, 8, 8, 4},  {64, 64, 8, 4, 4},
                             {64, 64, 4, 4, 4},   {64, 32, 8, 4, 4},  {32, 64, 8, 8, 4},
                             {32, 64, 4, 8, 8},   {32, 64, 4, 4, 4},  {32, 32, 4, 4, 4},
                             {48, 48, 6, 4, 8},   {16, 32, 4, 4, 4}};
static const int64_t k_steps[] = {32, 16, 64}, slice_counts[] = {1, 2, 4, 8},
                     split_counts[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128, 256};
enum {
  N_STEPS = (int)KILN_LEN(k_steps),
  N_SLICES = (int)KILN_LEN(slice_counts),
  N_SPLITS = (int)KILN_LEN(split_counts),
  N_VARIANTS = (int)KILN_LEN(tiles) * N_STEPS * N_SLICES * N_SPLITS
};

typedef struct way {
  tile t;
  int64_t k, slice_k, split_k;
} way;

static way way_of(int variant) {
  return (way){.t = tiles[variant / (N_STEPS * N_SLICES * N_SPLITS)],
               .k = k_steps[variant / (N_SLICES * N_SPLITS) % N_STEPS],
               .slice_k = slice_counts[variant / N_SPLITS % N_SLICES],
               .split_k = split_counts[variant % N_SPLITS]};
}

static int64_t lanes_n(const tile *t) { return WARP / t->lanes_m; }
static int64_t slots_m(const tile *t) { return t->m / t->thread_m; }
static int64_t slots_n(const tile *t) { return t->n / t->thread_n; }
static int64_t warps_of(const way *v) {
  return slots_m(&v->t) * slots_n(&v->t) / WARP * v->slice_k;
}
static int64_t threads_of(const way *v) { return warps_of(v) * WARP; }

// The state of a product's lowering.
typedef struct work {
  kiln_lowering *w;
  kiln_product p;
  kiln_product_loops l;
  way v;
  int depth;        // steps whose operands are in shared memory or in flight
  int64_t unit_m,   // neighbouring rows of a thread, and
      unit_n;       // columns: those of a word where the operand lies along m or n
  kiln_symbol sums; // (.., m, n) and |n_more| axes
  int n_more;
  kiln_symbol group; // the loop over groups, around l.m; 0: there is one
} work;

// Whether an operand's tile lies in rows along k.
static bool lies_along_k(const kiln_lowering *w, const kiln_product *p, const kiln_stmt *operand) {
  const bool is_a = operand == p->a;
  const int side = operand->n_space - (is_a ? 2 : 1), k = operand->n_space - (is_a ? 1 : 2);
  if (kiln_product_is_packed(w, operand)) return is_a;
  if (kiln_stmt_reads_words(w->cx, w->p, operand, k, WORD)) return true;
  return is_a && !kiln_stmt_reads_words(w->cx, w->p, operand, side, WORD);
}

// Neighbours of a thread along m or n: a word where the operand is contiguous along it, else 1.
static int64_t unit_of(const kiln_lowering *w, const kiln_product *p, const kiln_stmt *operand) {
  return lies_along_k(w, p, operand) ? 1 : WORD;
}

// --- lowering ---

// Runs a nest over the elements of the block's tile by the threads that hold their sums.
static kiln_status run_elements(work *x, kiln_symbol group, kiln_symbol rows) {
  const kiln_loops inside = {.body = kiln_loops_find(x->w->s.loops, rows)->body};
  const kiln_symbol outer = group && !kiln_loops_find(&inside, group) ? group : rows;
  return kiln_layout_run(x->w, outer, WARP, warps_of(&x->v));
}

// The same of the products, k around a thread's sums.
static kiln_status run_products(work *x) {
  const kiln_product_loops *l = &x->l;
  kiln_symbol order[4] = {l->k};
  int n = 1;
  if (x->group) order[n++] = x->group;
  order[n++] = l->m;
  order[n++] = l->n;
  KILN_TRY(kiln_reorder(&x->w->s, n, order));
  KILN_TRY(kiln_layout_run(x->w, l->k, WARP, warps_of(&x->v)));
  return kiln_unroll(&x->w->s, l->k);
}

// Thread-value layout of the sums; axes behind (.., m, n) in front, the last first.
static kiln_status layout_sums(work *x) {
  kiln_stage_axis axes[KILN_MAX_RANK + 4];
  const tile *t = &x->v.t;
  const int rank = x->p.n_batch + 2;
  const kiln_simt_tile sums = {.extents = {t->m, t->n},
                               .warps = {slots_m(t) / t->lanes_m, slots_n(t) / lanes_n(t)},
                               .lanes = {t->lanes_m, lanes_n(t)},
                               .unit = {x->unit_m, x->unit_n},
                               .interleaves = true};
  kiln_layout l;
  for (int d = 0; d < x->n_more; d++) axes[d] = kiln_axis_whole(rank + x->n_more - 1 - d);
  for (int d = 0; d < rank; d++) axes[x->n_more + d] = kiln_axis_whole(d);
  if (x->n_more) KILN_TRY(kiln_transform_layout(&x->w->s, x->sums, rank + x->n_more, axes));
  return kiln_layout_of_simt(&sums, &l) ? kiln_layout_apply(x->w, x->sums, &l) : KILN_INTERNAL;
}

// Copies an operand's step to shared memory, some steps ahead of its use.
static kiln_status stage(work *x, const kiln_stmt *operand) {
  const bool along_k = lies_along_k(x->w, &x->p, operand), is_a = operand == x->p.a;
  kiln_symbol buffer;
  KILN_TRY(kiln_product_stage(x->w, operand, along_k != is_a, 0, x->l.step, threads_of(&x->v), WARP,
                              &buffer));
  if (x->depth > 1) KILN_TRY(kiln_pipeline(&x->w->s, buffer, x->l.step, x->depth));
  const int row = operand->n_space - 2 + (x->depth > 1);
  return along_k ? kiln_storage_align(&x->w->s, buffer, row, 2 * PAD, PAD) : KILN_OK;
}

static kiln_status multiply(work *x) {
  KILN_TRY(stage(x, x->p.b));
  KILN_TRY(stage(x, x->p.a));
  KILN_TRY(layout_sums(x));
  return run_products(x);
}

static kiln_status lower_whole(work *x) {
  kiln_lowering *w = x->w;
  x->sums = kiln_product_tensor(w, x->p.t);
  KILN_TRY(kiln_product_blocks(w, &x->p, x->v.t.m, x->v.t.n, x->v.k, &x->l));
  KILN_TRY(kiln_reorder(&w->s, 4, (const kiln_symbol[]){x->l.step, x->l.m, x->l.n, x->l.k}));
  KILN_TRY(multiply(x));
  KILN_TRY(run_elements(x, 0, kiln_product_loop(w, x->p.t, "init.", "m")));
  KILN_TRY(run_elements(x, 0, x->l.y_m));
  return kiln_bind(&w->s, x->l.block, KILN_BLOCK_X);
}

// Sums of split-K and slice-K; without slice-K threads store their sums from registers.
static kiln_status lower_parallel_k(work *x) {
  kiln_parallel_k parts = {.w = x->w,
                           .p = x->p,
                           .m = x->v.t.m,
                           .n = x->v.t.n,
                           .k = x->v.k,
                           .slice_k = x->v.slice_k,
                           .split_k = x->v.split_k,
                           .threads = threads_of(&x->v),
                           .word = WORD};
  if (x->v.slice_k == 1) KILN_TRY(kiln_parallel_k_begin_in_registers(&parts));
  else KILN_TRY(kiln_parallel_k_begin(&parts));
  x->l = parts.l;
  x->sums = parts.kept;
  x->n_more = parts.n_more;
  x->group = parts.group;
  KILN_TRY(multiply(x));
  const kiln_parallel_k_nest clears = kiln_parallel_k_clears(&parts),
                             copies = kiln_parallel_k_copies(&parts);
  KILN_TRY(run_elements(x, clears.group, clears.rows));
  KILN_TRY(run_elements(x, copies.group, copies.rows));
  return kiln_parallel_k_finish(&parts);
}

// --- candidates ---

static kiln_gpu_occupancy occupancy_of(const kiln_lowering *w, const kiln_product *p,
                                       const way *v) {
  enum { OTHER_REGISTERS = 24 };
  const tile *t = &v->t;
  const kiln_gpu_staged b = {
      .blocks = ceil((double)p->m / (double)t->m) * ceil((double)p->n / (double)t->n) *
                (double)(p->batch * v->split_k),
      .threads = threads_of(v),
      .registers = t->thread_m * t->thread_n + WORD * t->thread_m + t->thread_n + OTHER_REGISTERS,
      .steps = p->k / v->split_k / v->k,
      .step_bytes = 4 * (t->m * (v->k + PAD) + t->n * (v->k + PAD)),
      .meet_bytes = v->slice_k > 1 ? 4 * v->slice_k * t->m * (t->n + 2 * PAD) : 0,
      .max_depth = MAX_DEPTH,
      .by_async = true};
  return kiln_gpu_occupancy_of(w, &b);
}

static kiln_status lower_simt_fma(kiln_lowering *w, const kiln_tiling *t) {
  work x = {.w = w, .v = way_of(t->variant)};
  if (!kiln_product_is(w->p, &x.p)) return KILN_INTERNAL;
  x.depth = occupancy_of(w, &x.p, &x.v).depth;
  x.unit_m = unit_of(w, &x.p, x.p.a);
  x.unit_n = unit_of(w, &x.p, x.p.b);
  return x.v.slice_k * x.v.split_k > 1 ? lower_parallel_k(&x) : lower_whole(&x);
}

// A step along k takes as long as its multiply-adds, one a clock for each scheduler with a ready
// warp; or its reads of shared memory; or its copies from L2. Then the groups' sums are combined,
// and results are stored.
static double time_of(const kiln_lowering *w, const kiln_product *p, const way *v) {
  static const double L2_SHARE = 0.71, BUSY = 0.95, LOW = 2, ENOUGH = 16, BESIDE = 0.15,
                      STEP_NS = 20, BLOCK_NS = 1500, TURN_NS = 700, MEET_NS = 250,
                      HALF = 2; // rounds of a load through the banks
  const tile *t = &v->t;
  const kiln_device *d = w->m->device;
  const kiln_gpu_occupancy o = occupancy_of(w, p, v);
  const double tm = (double)t->thread_m, tn = (double)t->thread_n, warps = (double)warps_of(v),
               resident = (double)o.resident, shared = kiln_gpu_shared(d)->unit_bytes_ns,
               l2 = L2_SHARE * d->levels[1].unit_bytes_ns,
               steps = (double)p->k / (double)(v->split_k * v->k), elems = (double)(t->m * t->n),
               k = (double)v->k, copied = 4 * (double)(t->m + t->n) * k,
               loads = (tm + tn) / WORD * warps * k / (double)v->slice_k;
  const double begun = 1 + (tm + tn) / (WORD * tm * tn),
               fma_ns = 2 * elems * k / d->unit_flops_ns[KILN_PEAK_F32] * begun / BUSY *
                        (1 + LOW / fmin(warps * resident, ENOUGH)),
               shared_ns = (loads * HALF * 4 * WARP + copied) / shared, moved_ns = copied / l2;
  const double busy = fmax(fmax(fma_ns + BESIDE * (shared_ns + moved_ns), shared_ns), moved_ns),
               step = busy + (STEP_NS + kiln_gpu_refill_ns(w, steps, o.depth)) / resident,
               meet = v->slice_k > 1 ? MEET_NS + 8 * elems * (double)v->slice_k / shared : 0,
               store = 4 * elems / l2;
  return d->launch_ns + BLOCK_NS + TURN_NS * (o.each / resident - 1) +
         o.each * (steps * step + store) + o.each / resident * meet +
         (v->split_k > 1 ? kiln_split_k_finish_ns(w, p, v->split_k) : 0);
}

static bool are_floats(const kiln_lowering *w, const kiln_product *p) {
  const kiln_stmt *const all[] = {p->a, p->b, p->t};
  for (int i = 0; i < (int)KILN_LEN(all); i++)
    if (w->p->tensors.data[all[i]->out]->dtype != KILN_F32) return false;
  return p->t->combiner == KILN_COMBINE_SUM;
}

// Axes of the sums as layout_sums has them.
static int axes_of(const kiln_product *p, const way *v, int64_t unit_m, int64_t unit_n) {
  enum { WARPS_AND_LANES = 5, SLOTS = 2 };
  return p->n_batch + (v->slice_k > 1) + (v->split_k > 1) + WARPS_AND_LANES + SLOTS + (unit_m > 1) +
         (unit_n > 1);
}

static bool may_run(const kiln_lowering *w, const kiln_product *p, const way *v) {
  enum { FEW = 2, MOST = 4 }; // blocks of a multiprocessor: tiles, with splits
  const tile *t = &v->t;
  const int64_t slice = v->k / v->slice_k;
  if (t->m > p->m || t->n > p->n || p->k % (v->split_k * v->k) || slice < WORD || slice > 16 ||
      warps_of(v) > MAX_WARPS || threads_of(v) > w->m->gpu.max_threads)
    return false;
  const kiln_gpu_occupancy o = occupancy_of(w, p, v);
  const double units = w->m->device->n_units;
  if (o.depth == 0) return false;
  if (v->slice_k == 1 && v->split_k == 1) return true;
  if (o.blocks > FEW * units * (double)v->split_k ||
      (v->slice_k > 1 && t->m * t->n % (WORD * threads_of(v))))
    return false;
  return v->split_k == 1 || (o.blocks <= MOST * units && kiln_split_k_fits(w, p, t->m, t->n));
}

// Of the many, those that may be the fastest.
static kiln_status propose_simt_fma(kiln_lowering *w, kiln_tile_candidates *out) {
  enum { MAX_AXES = KILN_MAX_RANK + 3 }; // of a layout
  static const double NEAR = 1.5;
  kiln_product p;
  double ns[N_VARIANTS], least = INFINITY;
  if (!kiln_product_is(w->p, &p) || !are_floats(w, &p)) return KILN_OK;
  const int64_t unit_m = unit_of(w, &p, p.a), unit_n = unit_of(w, &p, p.b);
  for (int i = 0; i < N_VARIANTS; i++) {
    const way v = way_of(i);
    const bool may = v.t.thread_m % unit_m == 0 && v.t.thread_n % unit_n == 0 &&
                     axes_of(&p, &v, unit_m, unit_n) <= MAX_AXES && may_run(w, &p, &v);
    ns[i] = may ? time_of(w, &p, &v) : INFINITY;
    least = fmin(least, ns[i]);
  }
  for (int i = 0; i < N_VARIANTS; i++) {
    if (!isfinite(ns[i]) || ns[i] > NEAR * least) continue;
    kiln_tile_candidate one = {.tiling.variant = i};
    one.cost.ns = ns[i];
    KILN_VEC_PUSH(w->proposed, out, one);
  }
  return KILN_OK;
}

const kiln_template kiln_template_gpu_simt_fma = {.name = "simt_fma",
                                                  .was = "fma",
                                                  .has_grids = true,
                                                  .kinds = 1u << KILN_GROUP_CONTRACTION,
                                                  .match = kiln_product_make,
                                                  .propose = propose_simt_fma,
                                                  .lower = lower_simt_fma};
