// Matrix products on tensor cores whose sums are added up in parts, for products with fewer tiles than the machine has
// multiprocessors, or blocks that would wait for what a few warps can ask for.
//
// groups   of a block's warps take a share of every step along k each; their sums meet in shared memory
// splits   of the reduction are blocks of their own; their sums meet in memory, and a second nest adds them up
//
//     sums(group, ..) +=! ..  parts(group, ..) = sums(..)  for words { t = 0  t += parts(0..groups, ..)  y = f(t, ..) }
//
// What follows the product reads the sums in shared memory, whole words a thread, where the lanes that added them up
// would store 4 bytes each; so one group and one split may be worth it as well.
#include "tile/gpu_mma.h"
#include "tile/gpu_splits.h"

#include <math.h>

enum { MAX_WARPS = 16, MAX_DEPTH = 8, RESERVED = 1024, BANKS = 32 };

static const struct {
  int64_t m, n, warp_m, warp_n;
} tiles[] = {{128, 256, 64, 64}, {256, 128, 64, 64}, {128, 128, 64, 32}, {128, 64, 32, 32},
             {64, 128, 32, 32},  {64, 64, 32, 32},   {32, 64, 16, 32},   {64, 32, 32, 16},
             {32, 32, 16, 16},   {16, 64, 16, 16},   {16, 32, 16, 16},   {16, 16, 16, 16}};
static const int64_t k_steps[] = {128, 64, 32, 16}, group_counts[] = {4, 2, 1},
                     split_counts[] = {1, 2, 4, 8, 16, 32};
enum {
  N_TILES = (int)KILN_LEN(tiles),
  N_STEPS = (int)KILN_LEN(k_steps),
  N_GROUPS = (int)KILN_LEN(group_counts),
  N_SPLITS = (int)KILN_LEN(split_counts)
};

typedef struct way {
  kiln_mma_shape s;
  int64_t splits;
} way;

static way way_of(int variant) {
  const int tile = variant / (N_STEPS * N_GROUPS * N_SPLITS);
  return (way){.s = {.m = tiles[tile].m,
                     .n = tiles[tile].n,
                     .k = k_steps[variant / (N_GROUPS * N_SPLITS) % N_STEPS],
                     .warp_m = tiles[tile].warp_m,
                     .warp_n = tiles[tile].warp_n,
                     .groups = group_counts[variant / N_SPLITS % N_GROUPS]},
               .splits = split_counts[variant % N_SPLITS]};
}

// Elements of a word of the finish: as many as a thread may have of its share of the tile.
static int64_t word_of(const kiln_mma_shape *s) {
  const int64_t each = s->m * s->n / kiln_mma_threads(s);
  int64_t word = 8;
  while (word > 1 && each % word) word /= 2;
  return word;
}

// --- lowering ---

typedef struct parts {
  kiln_mma m;
  int64_t splits;
  const char *whole, // names of buffers: what the tiles' nest writes where it is no result,
      *sums;         // and that in which the groups' sums meet
  kiln_symbol block; // what a split's block adds up; 0: there is one split
} parts;

static kiln_symbol named(const parts *x, const char *buffer, const char *part, int axis) {
  return kiln_symbol_printf(x->m.w->cx, "%s%s.%d", buffer, part, axis);
}

// The reduction in splits and steps, and each step in groups: their sums become parts.
static kiln_status split_sums(parts *x) {
  kiln_lowering *w = x->m.w;
  kiln_schedule *s = &w->s;
  const kiln_symbol t = kiln_product_tensor(w, x->m.p.t);
  const char *name = kiln_symbol_text(w->cx, t);
  kiln_symbol k = kiln_product_loop(w, x->m.p.t, "", "k"), split = 0;
  x->whole = x->sums = name;
  if (x->splits > 1) {
    KILN_TRY(kiln_splits_pad(w, &x->m.p, x->m.s->m, x->m.s->n));
    const kiln_symbol all = kiln_symbol_printf(w->cx, "%s.all", name);
    x->block = kiln_symbol_printf(w->cx, "%s.block", name);
    KILN_TRY(kiln_gpu_cut(w, &k, x->m.p.k / x->splits, "split", "part", &split));
    KILN_TRY(kiln_sums_factor(w, &x->m.p, split, 0, k, all));
    x->m.n_more++;
    KILN_TRY(kiln_cache_write(s, all, x->block, 0, NULL));
    x->whole = kiln_symbol_text(w->cx, all);
    x->sums = kiln_symbol_text(w->cx, x->block);
  }
  KILN_TRY(kiln_split(s, k, x->m.s->k, KILN_TAIL_EXACT, x->m.l.step, x->m.l.k));
  if (x->m.s->groups > 1) {
    const kiln_symbol meet = kiln_symbol_printf(w->cx, "%s.parts", name), step = x->m.l.k;
    x->m.group = kiln_symbol_of(w->cx, "group");
    x->m.l.k = kiln_symbol_of(w->cx, "group.ki");
    KILN_TRY(
        kiln_split(s, step, x->m.s->k / x->m.s->groups, KILN_TAIL_EXACT, x->m.group, x->m.l.k));
    KILN_TRY(kiln_reorder(s, 2, (const kiln_symbol[]){x->m.group, x->m.l.step}));
    KILN_TRY(kiln_sums_factor(w, &x->m.p, x->m.group, split, x->m.l.step, meet));
    x->m.n_more++;
    x->sums = kiln_symbol_text(w->cx, meet);
  }
  x->m.sums = kiln_symbol_printf(w->cx, "%s.kept", x->sums);
  return kiln_cache_write(s, kiln_symbol_of(w->cx, x->sums), x->m.sums, 0, NULL);
}

// Cuts what reads the sums into the blocks' tiles: the result, or the sums of splits.
static kiln_status cut_tiles(parts *x) {
  kiln_lowering *w = x->m.w;
  const kiln_product *p = &x->m.p;
  const int n = p->n_batch;
  kiln_symbol loops[KILN_MAX_RANK + 3];
  if (x->splits == 1) {
    for (int d = 0; d < n + 2; d++)
      loops[d] = kiln_lowering_loop(w, "y", "", w->root->dims[d].name);
    return kiln_product_tile(w, n, loops, x->m.s->m, x->m.s->n, &x->m.l);
  }
  loops[0] = named(x, x->whole, ".copy", n + 2);
  for (int d = 0; d < n + 2; d++) loops[1 + d] = named(x, x->whole, ".copy", d);
  KILN_TRY(kiln_reorder(&w->s, n + 3, loops));
  return kiln_product_tile(w, n + 1, loops, x->m.s->m, x->m.s->n, &x->m.l);
}

// The tiles' nest by words of a tile in order, dealt out to the threads.
//
// gives: *out_round, the loop over the words of a thread; *out_lane, over a word's elements
static kiln_status deal_words(parts *x, kiln_symbol *out_round, kiln_symbol *out_lane) {
  kiln_lowering *w = x->m.w;
  kiln_schedule *s = &w->s;
  const kiln_symbol words = kiln_lowering_name(w, "w", x->m.l.y_n),
                    all = kiln_lowering_name(w, "f", x->m.l.y_m),
                    thread = kiln_lowering_name(w, "t", x->m.l.y_m),
                    row = kiln_lowering_name(w, "y", thread),
                    column = kiln_lowering_name(w, "x", thread);
  *out_lane = kiln_lowering_name(w, "v", x->m.l.y_n);
  *out_round = kiln_lowering_name(w, "o", x->m.l.y_m);
  KILN_TRY(kiln_split(s, x->m.l.y_n, word_of(x->m.s), KILN_TAIL_EXACT, words, *out_lane));
  KILN_TRY(kiln_fuse(s, x->m.l.y_m, words, all));
  KILN_TRY(kiln_split(s, all, x->m.threads, KILN_TAIL_EXACT, *out_round, thread));
  KILN_TRY(kiln_reorder(s, 2, (const kiln_symbol[]){thread, *out_round}));
  KILN_TRY(kiln_split(s, thread, KILN_MMA_WARP, KILN_TAIL_EXACT, row, column));
  KILN_TRY(kiln_bind(s, row, KILN_THREAD_Y));
  return kiln_bind(s, column, KILN_THREAD_X);
}

static kiln_status combine_groups(parts *x, kiln_symbol round) {
  kiln_lowering *w = x->m.w;
  const int column = x->m.p.n_batch + 1;
  if (!x->block)
    return kiln_sums_combine(w, &x->m.p, kiln_product_tensor(w, x->m.p.t),
                             kiln_product_loop(w, x->m.p.t, "init.", "n"), 0, x->sums, round);
  return kiln_sums_combine(w, &x->m.p, x->block, named(x, x->whole, ".init", column),
                           named(x, x->whole, ".init", column + 1), x->sums, round);
}

// Where the groups' sums meet: a group's behind the other's, rows in other banks than their neighbours.
static kiln_status place_parts(parts *x) {
  kiln_lowering *w = x->m.w;
  const int n = x->m.p.n_batch + 2, more = x->m.n_more;
  const kiln_symbol buffer = kiln_symbol_of(w->cx, x->sums);
  kiln_stage_axis axes[KILN_MAX_RANK + 2];
  for (int d = 0; d < more; d++) axes[d] = (kiln_stage_axis){.axis = n + more - 1 - d};
  for (int d = 0; d < n; d++) axes[more + d] = (kiln_stage_axis){.axis = d};
  if (more) KILN_TRY(kiln_transform_layout(&w->s, buffer, n + more, axes));
  return kiln_storage_align(&w->s, buffer, n - 2 + more, BANKS, KILN_MMA_PAD);
}

static kiln_status run_elements(parts *x) {
  kiln_lowering *w = x->m.w;
  const int row = x->m.p.n_batch, last = row + 1 + x->m.n_more;
  kiln_symbol rows = named(x, x->sums, ".init", row), columns = named(x, x->sums, ".init", row + 1);
  if (!x->m.group) { // the sums are those of the whole
    rows = x->splits > 1 ? named(x, x->whole, ".init", row)
                         : kiln_product_loop(w, x->m.p.t, "init.", "m");
    columns = x->splits > 1 ? named(x, x->whole, ".init", row + 1)
                            : kiln_product_loop(w, x->m.p.t, "init.", "n");
  }
  KILN_TRY(
      kiln_mma_elements(&x->m, x->m.group ? named(x, x->sums, ".init", last) : 0, rows, columns));
  return kiln_mma_elements(&x->m, x->m.group ? named(x, x->sums, ".copy", last) : 0,
                           named(x, x->sums, ".copy", row), named(x, x->sums, ".copy", row + 1));
}

// --- candidates ---

static int64_t bytes_of_step(const kiln_mma_shape *s) {
  return 2 * (s->m * (s->k + KILN_MMA_PAD) + s->k * (s->n + KILN_MMA_PAD));
}
static int64_t bytes_of_parts(const kiln_mma_shape *s) {
  return 4 * s->groups * s->m * (s->n + KILN_MMA_PAD);
}

// How the blocks of a product share the multiprocessors.
typedef struct occupancy {
  double blocks, each; // all of them, and of the multiprocessor that has most
  int64_t resident;    // of one that run at the same time
  int depth; // steps along k whose operands are in shared memory or under way; 0: none fits
} occupancy;

static occupancy occupancy_of(const kiln_lowering *w, const kiln_product *p, const way *v) {
  enum { OTHER_REGISTERS = 72 };
  const kiln_mma_shape *s = &v->s;
  const kiln_gpu *g = &w->m->gpu;
  const int64_t threads = kiln_mma_threads(s), steps = p->k / v->splits / s->k,
                bytes = bytes_of_step(s),
                registers = s->warp_m * s->warp_n / KILN_MMA_WARP + OTHER_REGISTERS;
  occupancy o = {.blocks = ceil((double)p->m / (double)s->m) * ceil((double)p->n / (double)s->n) *
                           (double)(p->batch * v->splits),
                 .resident = g->registers / (threads * registers)};
  o.each = ceil(o.blocks / w->m->device->n_units);
  if (o.resident > g->max_resident / threads) o.resident = g->max_resident / threads;
  if ((double)o.resident > o.each) o.resident = (int64_t)o.each;
  if (o.resident < 1) o.resident = 1;
  while (o.resident > 1 && (g->shared_bytes / o.resident < 3 * bytes ||
                            g->shared_bytes / o.resident - RESERVED < bytes_of_parts(s)))
    o.resident--;
  const int64_t room = g->shared_bytes / o.resident - RESERVED, fit = room / bytes,
                ahead =
                    steps > 2 ? steps - 1 : steps, // a slot is used again: see target/gpu/ahead.c
      most = ahead < MAX_DEPTH ? ahead : MAX_DEPTH;
  if (room >= bytes_of_parts(s)) o.depth = (int)(fit < most ? fit : most);
  return o;
}

static kiln_status lower_parts(kiln_lowering *w, const kiln_tiling *t) {
  const way v = way_of(t->variant);
  parts x = {.m = {.w = w, .s = &v.s}, .splits = v.splits};
  kiln_symbol round, lane;
  if (!kiln_product_is(w->p, &x.m.p)) return KILN_INTERNAL;
  const kiln_product *p = &x.m.p;
  kiln_mma_find(&x.m);
  x.m.depth = occupancy_of(w, p, &v).depth;
  KILN_TRY(kiln_product_begin(w, p, &x.m.l));
  KILN_TRY(split_sums(&x));
  KILN_TRY(cut_tiles(&x));
  KILN_TRY(deal_words(&x, &round, &lane));
  if (x.m.group) KILN_TRY(combine_groups(&x, round));
  KILN_TRY(kiln_vectorize(&w->s, lane));
  KILN_TRY(kiln_compute_at(&w->s, kiln_symbol_of(w->cx, x.sums), x.m.l.block, KILN_SCOPE_SHARED));
  KILN_TRY(kiln_compute_at(&w->s, x.m.sums, x.m.l.block, KILN_SCOPE_LOCAL));
  const kiln_symbol nest[] = {x.m.l.step, x.m.l.m, x.m.l.n, x.m.l.k, x.m.group};
  KILN_TRY(kiln_reorder(&w->s, x.m.group ? 5 : 4, nest));
  KILN_TRY(place_parts(&x));
  KILN_TRY(kiln_mma_multiply(&x.m));
  KILN_TRY(run_elements(&x));
  if (x.splits > 1) KILN_TRY(kiln_splits_finish(w, p, kiln_symbol_of(w->cx, x.whole)));
  return kiln_bind(&w->s, x.m.l.block, KILN_BLOCK_X);
}

// As for gpu_mma.c's, but that groups share what one warp would wait for, and blocks begin while others end; and the
// second nest, which reads all sums. Measured on an H200.
static double time_of(const kiln_lowering *w, const kiln_product *p, const way *v) {
  static const double FLOPS_BYTE = 16, OVERLAP = 0.76, L2_SHARE = 1.16, ROW_BYTES = 49,
                      TILE_NS = 50, STEP_NS = 9, BLOCK_NS = 1550, ELEMENT_NS = 0.06;
  const kiln_mma_shape *s = &v->s;
  const kiln_device *d = w->m->device;
  const occupancy o = occupancy_of(w, p, v);
  const double shared = d->levels[2].unit_bytes_ns, resident = (double)o.resident,
               steps = (double)p->k / (double)(v->splits * s->k),
               warps = (double)kiln_mma_threads(s) / KILN_MMA_WARP,
               copied = 2.0 * (double)((s->m + s->n) * s->k),
               read =
                   warps * 2.0 * (double)((s->warp_m + 2 * s->warp_n) * s->k) / (double)s->groups,
               flops = 2.0 * (double)(s->m * s->n * s->k);
  const double one = flops / fmin(d->unit_flops_ns[KILN_PEAK_BF16], FLOPS_BYTE * shared) +
                     (copied + read) / shared,
               all = o.resident > 1 ? OVERLAP * resident * one : one,
               moved = resident * (copied + ROW_BYTES * (double)(s->m + s->k)) /
                       (L2_SHARE * d->levels[1].unit_bytes_ns),
               alone = TILE_NS * (double)s->k / (double)(KILN_MMA_K * s->groups);
  const bool waits = steps > 1 && o.depth < 3; // for what it has just asked for
  const double step =
                   fmax(fmax(all, moved), alone) + STEP_NS + (waits ? d->levels[0].latency_ns : 0),
               block = steps * step + BLOCK_NS,
               finish =
                   ELEMENT_NS * (o.each - 1) * (double)(s->m * s->n); // the first is of BLOCK_NS
  return d->launch_ns + o.each / resident * block + finish +
         (v->splits > 1 ? kiln_splits_finish_ns(w, p, v->splits) : 0);
}

static bool may_run(const kiln_lowering *w, const kiln_product *p, const way *v) {
  enum { MANY = 4, SHORT = 512 };
  const kiln_mma_shape *s = &v->s;
  if (s->m > p->m || s->n > p->n || p->k % (v->splits * s->k) || s->k % (s->groups * KILN_MMA_K) ||
      kiln_mma_threads(s) > MAX_WARPS * KILN_MMA_WARP)
    return false;
  const occupancy o = occupancy_of(w, p, v);
  if (o.blocks > MANY * w->m->device->n_units && p->k > SHORT) return false; // others do as well
  if (v->splits > 1 && (o.blocks > 2 * w->m->device->n_units || !kiln_splits_fit(w, p, s->m, s->n)))
    return false;
  return o.depth > 0;
}

static kiln_status propose_parts(kiln_lowering *w, kiln_tile_candidates *out) {
  kiln_product p;
  if (!kiln_product_is(w->p, &p) || !kiln_mma_takes(w, &p)) return KILN_OK;
  for (int i = 0; i < N_TILES * N_STEPS * N_GROUPS * N_SPLITS; i++) {
    const way v = way_of(i);
    if (!may_run(w, &p, &v)) continue;
    kiln_tile_candidate one = {.family = &kiln_family_gpu_parts, .tiling.variant = i};
    one.cost.ns = time_of(w, &p, &v);
    KILN_VEC_PUSH(w->proposed, out, one);
  }
  return KILN_OK;
}

const kiln_family kiln_family_gpu_parts = {"parts", propose_parts, lower_parts, .by_loops = false};
