// Direct convolution (patch.h) on tensor cores: a block copies its input tile with halo (the patch)
// to shared memory once, and its weights. Each warp computes some rows of 16 results or more, step
// by step along the terms of a window, which its lanes read from the patch in pairs, as fragments
// (layout.h). A lane's sums are neighbours of the result, so that it stores whole words.
#include "support/integer.h"
#include "template/gpu/layout.h"
#include "template/gpu/mma.h"
#include "template/form/direct_conv.h"

#include <math.h>

enum { WARP = KILN_MMA_WARP, MAX_WARPS = 8, LANES = 4, EIGHT = 8 };

// A block's tile of the result, and a warp's part of its rows and columns.
typedef struct shape {
  int64_t y, x, n, warp_y, warp_x;
} shape;

typedef struct conv {
  kiln_lowering *w;
  kiln_direct_conv f;
  shape s;
  kiln_mma m; // its instructions
  int64_t threads;
  kiln_symbol block;
} conv;

static int64_t threads_of(const shape *s) { return s->y / s->warp_y * (s->x / s->warp_x) * WARP; }

static kiln_symbol tensor_of(const conv *g, const kiln_stmt *s) {
  return kiln_product_tensor(g->w, s);
}
// The loop over dim |d| of |s|, from its last: 0 the columns, 1 the length, 2 the rows.
static kiln_symbol loop_of(const conv *g, const kiln_stmt *s, const char *part, int from_last) {
  return kiln_lowering_loop(g->w, kiln_symbol_text(g->w->cx, tensor_of(g, s)), part,
                            s->dims[s->n_space - 1 - from_last].name);
}
static kiln_status cut(conv *g, kiln_symbol *loop, int64_t factor, const char *outer,
                       const char *inner, kiln_symbol *out_outer) {
  return kiln_gpu_cut(g->w, loop, factor, outer, inner, out_outer);
}
static kiln_status unroll(conv *g, int n, const kiln_symbol *loops) {
  for (int i = 0; i < n; i++) KILN_TRY(kiln_unroll(&g->w->s, loops[i]));
  return KILN_OK;
}

// --- blocks, and their input tiles ---

static kiln_status cut_blocks(conv *g) {
  kiln_lowering *w = g->w;
  kiln_schedule *s = &w->s;
  const kiln_stmt *y = g->f.of.y;
  const int last = y->n_space - 1;
  kiln_symbol order[KILN_MAX_RANK + 3];
  int64_t extent;
  const int64_t sizes[] = {g->s.y, g->s.x, g->s.n};
  for (int d = 0; d + 2 < last; d++) order[d] = loop_of(g, y, "", last - d);
  for (int i = 0; i < 3; i++) {
    const kiln_symbol loop = loop_of(g, y, "", 2 - i);
    order[last - 2 + i] = kiln_lowering_name(w, "o", loop);
    order[last + 1 + i] = kiln_lowering_name(w, "i", loop);
    KILN_TRY(
        kiln_split(s, loop, sizes[i], KILN_TAIL_SHIFT, order[last - 2 + i], order[last + 1 + i]));
  }
  KILN_TRY(kiln_reorder(s, last + 4, order));
  return kiln_gpu_fuse(w, last + 1, order, &g->block, &extent);
}

// Rounds in which threads load the patch: pixels of a round, and rounds whose loads are in flight
// before their stores.
typedef struct rounds {
  int64_t rows, columns, at_once;
} rounds;

static rounds rounds_of(const conv *g, int64_t rows, int64_t columns) {
  enum { MAX_AT_ONCE = 16 };
  rounds t = {.columns = columns};
  while (t.columns > g->threads) t.columns = (t.columns + 1) / 2;
  t.rows = g->threads / t.columns;
  if (t.rows > rows) t.rows = rows;
  const int64_t n = kiln_divide_up(rows, t.rows), parts = kiln_divide_up(n, MAX_AT_ONCE);
  t.at_once = kiln_divide_up(n, parts);
  return t;
}

// The patch, by pixels: those of a round are contiguous, and all rounds are whole, so that the
// loads of several are in flight.
static kiln_status fill_patch(conv *g) {
  enum { PAIR = 2 };
  kiln_lowering *w = g->w;
  kiln_schedule *s = &w->s;
  const kiln_stmt *p = g->f.p;
  const kiln_symbol rows = loop_of(g, p, "", 2), columns = loop_of(g, p, "", 1);
  KILN_TRY(kiln_compute_at(s, tensor_of(g, p), g->block, KILN_SCOPE_SHARED));
  const rounds t = rounds_of(g, kiln_gpu_extent(w, rows), kiln_gpu_extent(w, columns));
  const kiln_symbol turn = kiln_lowering_name(w, "o", rows),
                    in_turn = kiln_lowering_name(w, "i", rows),
                    some = kiln_lowering_name(w, "s", turn), one = kiln_lowering_name(w, "r", turn),
                    part = kiln_lowering_name(w, "o", columns),
                    column = kiln_lowering_name(w, "i", columns);
  KILN_TRY(kiln_pad(s, rows, t.rows * t.at_once));
  KILN_TRY(kiln_split(s, rows, t.rows, KILN_TAIL_EXACT, turn, in_turn));
  KILN_TRY(kiln_split(s, turn, t.at_once, KILN_TAIL_EXACT, some, one));
  KILN_TRY(kiln_split(s, columns, t.columns, KILN_TAIL_GUARD, part, column));
  KILN_TRY(kiln_reorder(s, 5, (const kiln_symbol[]){in_turn, column, part, some, one}));
  KILN_TRY(
      kiln_gpu_distribute_cyclic(w, 2, (const kiln_symbol[]){in_turn, column}, g->threads, WARP));
  KILN_TRY(kiln_unroll(s, one));
  KILN_TRY(kiln_vectorize(s, loop_of(g, p, "", 0)));
  return kiln_storage_align(s, tensor_of(g, p), p->n_space - 3, PAIR, 0);
}

// --- the product ---

// The loops over a warp's part of a nest, and those that its lanes share.
typedef struct nest {
  kiln_symbol warp_y, warp_x, y, tile, x;
} nest;

static kiln_status cut_rows(conv *g, kiln_symbol y, kiln_symbol x, nest *out) {
  *out = (nest){.y = y, .x = x};
  KILN_TRY(cut(g, &out->y, g->s.warp_y, "w", "i", &out->warp_y));
  KILN_TRY(cut(g, &out->x, g->s.warp_x, "w", "i", &out->warp_x));
  return cut(g, &out->x, KILN_MMA_M, "t", "m", &out->tile);
}

static kiln_status bind_warps(conv *g, const nest *x) {
  const kiln_symbol warp = kiln_lowering_name(g->w, "warp", x->warp_y);
  KILN_TRY(kiln_fuse(&g->w->s, x->warp_y, x->warp_x, warp));
  return kiln_bind(&g->w->s, warp, KILN_THREAD_Y);
}

static kiln_status bind_lanes(conv *g, kiln_symbol rows, kiln_symbol columns) {
  const kiln_symbol lane = kiln_lowering_name(g->w, "lane", rows);
  KILN_TRY(kiln_fuse(&g->w->s, rows, columns, lane));
  return kiln_bind(&g->w->s, lane, KILN_THREAD_X);
}

// A nest over the block's tile, by the lanes that hold its sums: those of |run| columns lie with
// four lanes, |word| at a time side by side.
static kiln_status by_element(conv *g, kiln_symbol y, kiln_symbol x, kiln_symbol columns,
                              int64_t run, int64_t word) {
  nest r;
  kiln_symbol runs, quad, words, half;
  KILN_TRY(cut_rows(g, y, x, &r));
  KILN_TRY(cut(g, &r.x, EIGHT, "h", "g", &half));
  KILN_TRY(cut(g, &columns, run, "o", "c", &runs));
  KILN_TRY(cut(g, &columns, run / LANES, "q", "e", &quad));
  KILN_TRY(cut(g, &columns, word, "w", "v", &words));
  const kiln_symbol order[] = {r.warp_y, r.warp_x, r.x,  quad,  r.y,
                               r.tile,   half,     runs, words, columns};
  KILN_TRY(kiln_reorder(&g->w->s, (int)KILN_LEN(order), order));
  KILN_TRY(bind_lanes(g, r.x, quad));
  KILN_TRY(bind_warps(g, &r));
  KILN_TRY(unroll(g, 5, (const kiln_symbol[]){r.y, r.tile, half, runs, words}));
  return kiln_vectorize(&g->w->s, columns);
}

// Stores (.., rows, length, columns) as fragments of (length, columns), those of a warp's rows one
// after the other.
static kiln_status layout_rows(conv *g, kiln_symbol buffer, kiln_operand operand) {
  const int64_t *extents = kiln_layout_extents(g->w, buffer, 3);
  kiln_layout one, all;
  if (!extents) return KILN_INTERNAL;
  const int64_t warp_x = kiln_min_i64(g->s.warp_x, extents[1]),
                warp_y = kiln_min_i64(g->s.warp_y, extents[0]);
  if (!kiln_layout_of_operand(g->w->cx, g->m.instr, operand, extents + 1,
                              (const int64_t[]){warp_x, extents[2]}, &one) ||
      !kiln_layout_stacked(&one, extents[0], warp_y, &all))
    return KILN_INTERNAL;
  return kiln_layout_apply(g->w, buffer, &all);
}

// The fragment of a warp's step, read from the patch by its lanes.
static kiln_status lower_terms(conv *g, kiln_symbol step) {
  const kiln_stmt *a = g->f.of.a;
  const kiln_symbol buffer = tensor_of(g, a);
  kiln_symbol rows = loop_of(g, a, "", 2), length = loop_of(g, a, "", 1), k = loop_of(g, a, "", 0),
              tile, half, eight, quad;
  KILN_TRY(kiln_compute_at(&g->w->s, buffer, step, KILN_SCOPE_LOCAL));
  KILN_TRY(cut(g, &length, KILN_MMA_M, "t", "m", &tile));
  KILN_TRY(cut(g, &length, EIGHT, "h", "g", &half));
  KILN_TRY(cut(g, &k, EIGHT, "o", "c", &eight));
  KILN_TRY(cut(g, &k, 2, "q", "e", &quad));
  KILN_TRY(
      kiln_reorder(&g->w->s, 7, (const kiln_symbol[]){length, quad, rows, tile, eight, half, k}));
  KILN_TRY(bind_lanes(g, length, quad));
  KILN_TRY(unroll(g, 4, (const kiln_symbol[]){rows, tile, eight, half}));
  KILN_TRY(kiln_vectorize(&g->w->s, k));
  return layout_rows(g, buffer, KILN_OPERAND_LEFT);
}

static kiln_status multiply(conv *g) {
  const kiln_product *p = &g->f.of;
  const kiln_stmt *t = p->t;
  nest r;
  kiln_symbol columns = loop_of(g, t, "", 0), k = kiln_product_loop(g->w, t, "", "k"), step, tile_n,
              b, right, right_tile;
  KILN_TRY(cut_rows(g, loop_of(g, t, "", 2), loop_of(g, t, "", 1), &r));
  KILN_TRY(cut(g, &columns, KILN_MMA_N, "t", "n", &tile_n));
  KILN_TRY(cut(g, &k, KILN_MMA_K, "t", "k", &step));
  const kiln_symbol order[] = {r.warp_y, r.warp_x, step, r.y, r.tile, tile_n, r.x, columns, k};
  KILN_TRY(kiln_reorder(&g->w->s, (int)KILN_LEN(order), order));
  KILN_TRY(kiln_product_stage(g->w, p->b, false, KILN_MMA_PAD, g->block, g->threads, WARP, &b));
  KILN_TRY(kiln_load_fragment(g->w, b, p->b->n_space, step, 1, &right, &right_tile));
  KILN_TRY(lower_terms(g, step));
  KILN_TRY(fill_patch(g));
  KILN_TRY(kiln_layout_apply_operand(g->w, right, g->m.instr, KILN_OPERAND_RIGHT, NULL));
  KILN_TRY(layout_rows(g, tensor_of(g, t), KILN_OPERAND_SUMS));
  KILN_TRY(kiln_tensorize(&g->w->s, right_tile, g->m.load_right));
  KILN_TRY(kiln_tensorize(&g->w->s, r.x, g->m.instr));
  KILN_TRY(bind_warps(g, &r));
  return unroll(g, 4, (const kiln_symbol[]){step, r.y, r.tile, tile_n});
}

static kiln_status lower_direct_conv(kiln_lowering *w, const kiln_tiling *t) {
  enum { WORD = 8 };
  conv g = {.w = w, .s = {t->block[0], t->block[1], t->block[2], t->tile[0], t->tile[1]}};
  if (!kiln_direct_conv_is(w->cx, w->p, &g.f)) return KILN_INTERNAL;
  const kiln_mma_shape s = {
      .m = g.s.x, .n = g.s.n, .warp_m = g.s.warp_x, .warp_n = g.s.n, .slice_k = 1};
  g.m = (kiln_mma){.w = w, .p = g.f.of, .s = &s};
  kiln_mma_find(&g.m);
  g.threads = threads_of(&g.s);
  const kiln_stmt *sum = g.f.of.t, *y = g.f.of.y;
  const int64_t part = g.f.run / LANES;
  KILN_TRY(kiln_prepack(&w->s, tensor_of(&g, g.f.of.b)));
  KILN_TRY(cut_blocks(&g));
  KILN_TRY(kiln_compute_at(&w->s, tensor_of(&g, sum), g.block, KILN_SCOPE_LOCAL));
  KILN_TRY(multiply(&g));
  KILN_TRY(by_element(&g, loop_of(&g, sum, "init.", 2), loop_of(&g, sum, "init.", 1),
                      loop_of(&g, sum, "init.", 0), EIGHT, 2));
  KILN_TRY(by_element(&g, kiln_lowering_name(w, "i", loop_of(&g, y, "", 2)),
                      kiln_lowering_name(w, "i", loop_of(&g, y, "", 1)),
                      kiln_lowering_name(w, "i", loop_of(&g, y, "", 0)), g.f.run,
                      part < WORD ? part : WORD));
  return kiln_bind(&w->s, g.block, KILN_BLOCK_X);
}

// --- candidates ---

// Of the patch: its rows and columns, in elements of P.
static int64_t rows_of(const conv *g) { return g->f.stride[0] * (g->s.y - 1) + g->f.window[0]; }
static int64_t columns_of(const conv *g) { return g->f.stride[1] * (g->s.x - 1) + g->f.window[1]; }

static int64_t bytes_of(const conv *g) { // of shared memory
  const rounds t = rounds_of(g, rows_of(g), columns_of(g));
  const int64_t unit = t.rows * t.at_once, rows = kiln_round_up(rows_of(g), unit);
  return 2 * (rows * (columns_of(g) * g->f.channels + 1) + g->f.of.k * (g->s.n + KILN_MMA_PAD));
}

static int64_t registers_of(const conv *g) { // sums, the operands of a step, and others
  enum { OTHERS = 14, UNIT = 8 };
  const int64_t rows = g->s.warp_y * g->s.warp_x,
                n = rows * g->s.n / WARP + (rows + g->s.n) / 4 + OTHERS;
  return kiln_round_up(n, UNIT);
}

static int64_t resident_of(const conv *g) {
  const kiln_gpu_block one = {g->threads, registers_of(g), bytes_of(g)};
  return kiln_gpu_resident(&g->w->m->gpu, &one);
}

// Cycles of a multiprocessor's four schedulers for a block, all its warps at work.
static double cycles_of(const conv *g) {
  static const double PRODUCT = 7, READ = 0.36, ELEMENT = 3.5, TURN = 10, WARP_BEGINS = 27;
  enum { SCHEDULERS = 4, WORD = 8, MMA = KILN_MMA_M * KILN_MMA_N * KILN_MMA_K };
  const kiln_direct_conv *f = &g->f;
  const shape *s = &g->s;
  const int64_t rows = rows_of(g), columns = columns_of(g);
  const rounds t = rounds_of(g, rows, columns);
  const double warps = (double)g->threads / WARP, elems = (double)(s->y * s->x * s->n),
               part = (double)(s->warp_y * s->warp_x), k = (double)f->of.k,
               times = ceil((double)rows / (double)t.rows) *
                       ceil((double)columns / (double)t.columns) * (double)f->channels,
               weights = 2 * k * (double)s->n / (WORD * WARP);
  return PRODUCT * elems * k / (MMA * SCHEDULERS) +
         READ * warps * k / KILN_MMA_K * LANES * (part + (double)s->n) / KILN_MMA_M +
         ELEMENT * elems / (WARP * SCHEDULERS) + TURN * (times * warps + weights) / SCHEDULERS +
         WARP_BEGINS * warps;
}

// Blocks that run at the same time share a multiprocessor, which stores their results; a warp alone
// does not hide its latency. Measured on an H200.
static double time_of(const conv *g) {
  static const double CLOCK_GHZ = 1.75, STORED = 1.2, BLOCK_NS = 100, ALONE = 9;
  const kiln_direct_conv *f = &g->f;
  const shape *s = &g->s;
  const kiln_device *d = g->w->m->device;
  const double blocks = ceil((double)f->rows / (double)s->y) *
                        ceil((double)f->of.m / (double)s->x) * ((double)f->of.n / (double)s->n) *
                        (double)(f->of.batch / f->rows),
               each = kiln_gpu_each(g->w, blocks), resident = fmin(each, (double)resident_of(g)),
               warps = (double)g->threads / WARP, work = cycles_of(g) / CLOCK_GHZ,
               bytes = (double)(s->y * s->x * s->n) *
                       (double)kiln_dtype_bytes(g->w->p->tensors.data[f->of.y->out]->dtype),
               stores = STORED * bytes * d->n_units / d->levels[0].all_bytes_ns;
  return d->launch_ns + each * (fmax(work, stores) + (BLOCK_NS + ALONE * work / warps) / resident);
}

static bool may_run(conv *g) {
  enum { MAX_REGISTERS = 176 };
  const kiln_direct_conv *f = &g->f;
  const int64_t warps = g->threads / WARP;
  // With a boundary map (reflection, say) isl does not decide whether threads of several rows race.
  if (f->bends && rounds_of(g, rows_of(g), columns_of(g)).rows > 1) return false;
  return g->s.y <= f->rows && g->s.x <= f->of.m && f->of.n % g->s.n == 0 && g->s.n % f->run == 0 &&
         warps <= MAX_WARPS && registers_of(g) <= MAX_REGISTERS && resident_of(g) > 0;
}

static kiln_status propose_direct_conv(kiln_lowering *w, kiln_tile_candidates *out) {
  static const int64_t columns[] = {64, 32, 16}, counts[] = {1, 2, 4, 7, 8}, parts[] = {1, 2, 4};
  conv g = {.w = w};
  if (!kiln_direct_conv_is(w->cx, w->p, &g.f) || !kiln_mma_takes(w, &g.f.of)) return KILN_OK;
  const int n_counts = (int)KILN_LEN(counts), n_parts = (int)KILN_LEN(parts);
  for (int i = 0; i < (int)KILN_LEN(columns) * n_counts * n_counts * n_parts * n_parts; i++) {
    const int64_t part_x = KILN_MMA_M * parts[i % n_parts], part_y = parts[i / n_parts % n_parts];
    const int at = i / (n_parts * n_parts);
    g.s = (shape){.warp_x = part_x,
                  .warp_y = part_y,
                  .x = part_x * counts[at % n_counts],
                  .y = part_y * counts[at / n_counts % n_counts],
                  .n = columns[at / (n_counts * n_counts)]};
    g.threads = threads_of(&g.s);
    if (!may_run(&g)) continue;
    kiln_tile_candidate one = {
        .tiling = {.block = {g.s.y, g.s.x, g.s.n}, .tile = {g.s.warp_y, g.s.warp_x}}};
    one.cost.ns = time_of(&g);
    KILN_VEC_PUSH(w->proposed, out, one);
  }
  return KILN_OK;
}

const kiln_template kiln_template_gpu_direct_conv = {.name = "direct_conv",
                                                     .was = "patches",
                                                     .has_grids = true,
                                                     .kinds = 1u << KILN_GROUP_CONTRACTION,
                                                     .match = kiln_direct_conv_make,
                                                     .propose = propose_direct_conv,
                                                     .lower = lower_direct_conv};
