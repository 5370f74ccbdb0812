// Flash attention on tensor cores: a block computes some rows of the result, a warp 16 or more of
// them with all they need; keys and values go by a chunk at a time, copied to shared memory ahead.
// Scores become weights where they lie: sums of a product are the left operand of the next
// (layout.h). Nothing but keys and values leaves the registers.
//
// A causal mask is part of the map of the scores, as any mask is. Chunks that it leaves out of all
// rows of a block are not computed (mask_bounds.h), and the blocks with the most chunks run first.
// source: Dao, "FlashAttention-2", 2023
#include "template/form/flash_attention.h"
#include "template/form/mask_bounds.h"
#include "template/form/product.h"
#include "template/gpu/layout.h"
#include "template/gpu/mma.h"
#include "template/gpu/quad_reduce.h"
#include "template/gpu/warpgroup.h"

#include <math.h>
#include <string.h>

enum {
  WARP = KILN_MMA_WARP,
  PAD = KILN_MMA_PAD,
  GROUP_ROWS = KILN_WARPGROUP_ROWS,
  LINE = KILN_WARPGROUP_LINE
};

// Rows of a block and of a warp, or of a warp group; keys of a chunk; chunks in shared memory;
// whether a warp keeps its queries in registers.
typedef struct shape {
  int64_t rows, warp, chunk;
  int depth;
  bool keeps_queries, by_warpgroups;
} shape;

static const struct {
  int64_t rows, warp, chunk;
} shapes[] = {{128, 32, 64}, {128, 32, 128}, {128, 32, 32}, {128, 16, 64}, {128, 16, 128},
              {64, 16, 64},  {64, 32, 64},   {64, 16, 128}, {64, 16, 32},  {32, 16, 64},
              {32, 16, 32},  {16, 16, 64},   {16, 16, 32},  {16, 16, 16},  {128, 64, 128},
              {128, 64, 64}, {64, 64, 128},  {64, 64, 64}};

typedef struct attention {
  kiln_lowering *w;
  kiln_flash_attention f;
  shape s;
  kiln_quad_tile q;
  int64_t threads;
  bool skips; // chunks outside of |bounds| are not computed
  kiln_mask_bounds bounds;
  kiln_symbol block, over; // loops over blocks, and over chunks in one
  kiln_instr *mma, *load_left, *load_keys, *load_values, *max, *sum;
  kiln_instr *scores, *mix; // of warp groups, in the place of mma
} attention;

static const char *name_of(const attention *k, const kiln_stmt *s) {
  return kiln_symbol_text(k->w->cx, kiln_product_tensor(k->w, s));
}

static kiln_symbol loop_of(const attention *k, const kiln_stmt *s, const char *part,
                           const char *dim) {
  return kiln_product_loop(k->w, s, part, dim);
}

static kiln_symbol numbered(const attention *k, const char *name, int number) {
  return kiln_symbol_printf(k->w->cx, "%s.%d", name, number);
}

static kiln_symbol symbol(const attention *k, const char *text) {
  return kiln_symbol_of(k->w->cx, text);
}

// --- loops over fragments ---

// Maxima or sums of a chunk's rows, the nest of |s|, by |instr|.
static kiln_status reduce_rows(attention *k, const kiln_stmt *s, kiln_instr *instr) {
  kiln_symbol keys = kiln_lowering_name(k->w, "i", loop_of(k, s, "", "n")), high, pair;
  KILN_TRY(kiln_gpu_cut(k->w, &keys, 8, "o", "c", &high));
  KILN_TRY(kiln_gpu_cut(k->w, &keys, 2, "q", "e", &pair));
  return kiln_quad_reduce(&k->q, loop_of(k, s, "", "m"), 4,
                          (const kiln_symbol[]){loop_of(k, s, "", "q"), high, pair, keys}, instr);
}

// --- blocks and chunks ---

// The loops over blocks become one.
static kiln_status fuse_blocks(attention *k, bool rows_first) {
  kiln_lowering *w = k->w;
  const kiln_stmt *y = k->f.y;
  kiln_symbol loops[KILN_MAX_RANK + 1];
  int64_t extent;
  loops[rows_first ? 0 : k->f.n_batch] = symbol(k, "block.m");
  for (int d = 0; d < k->f.n_batch; d++)
    loops[d + rows_first] = loop_of(k, y, "", kiln_symbol_text(w->cx, y->dims[d].name));
  if (rows_first) KILN_TRY(kiln_reorder(&w->s, k->f.n_batch + 1, loops));
  return kiln_gpu_fuse(w, k->f.n_batch + 1, loops, &k->block, &extent);
}

// L is computed where P is.
static kiln_status merge_mark(attention *k) {
  kiln_lowering *w = k->w;
  const kiln_stmt *mark = k->f.mark;
  kiln_symbol loops[KILN_MAX_RANK + 1], block;
  int64_t extent;
  for (int d = 0; d < k->f.n_batch; d++)
    loops[d] = loop_of(k, mark, "", kiln_symbol_text(w->cx, mark->dims[d].name));
  loops[k->f.n_batch] = symbol(k, "mark.block");
  KILN_TRY(kiln_split(&w->s, loop_of(k, mark, "", "m"), k->s.rows, KILN_TAIL_EXACT,
                      loops[k->f.n_batch], symbol(k, "mark.mi")));
  KILN_TRY(kiln_gpu_fuse(w, k->f.n_batch + 1, loops, &block, &extent));
  return kiln_merge(&w->s, k->block, block, 0);
}

static kiln_status cut_blocks(attention *k) {
  k->block = symbol(k, "block.m");
  KILN_TRY(kiln_split(&k->w->s, loop_of(k, k->f.y, "", "m"), k->s.rows, KILN_TAIL_EXACT, k->block,
                      symbol(k, "y.mi")));
  if (k->skips) return KILN_OK;
  KILN_TRY(fuse_blocks(k, false));
  return k->f.mark ? merge_mark(k) : KILN_OK;
}

// The chunks of a reduction's keys in front; the rest in the order batch, m, keys, last.
static kiln_status cut_keys(attention *k, const kiln_stmt *s, const char *last, kiln_symbol *out) {
  kiln_lowering *w = k->w;
  const kiln_symbol keys = loop_of(k, s, "", "n"), inner = kiln_lowering_name(w, "i", keys);
  kiln_symbol loops[KILN_MAX_RANK + 3];
  int n = 0;
  *out = kiln_lowering_name(w, "o", keys);
  KILN_TRY(kiln_split(&w->s, keys, k->s.chunk, KILN_TAIL_EXACT, *out, inner));
  loops[n++] = *out;
  for (int d = 0; d < k->f.n_batch; d++)
    loops[n++] = loop_of(k, s, "", kiln_symbol_text(w->cx, s->dims[d].name));
  loops[n++] = loop_of(k, s, "", "m");
  loops[n++] = inner;
  loops[n++] = loop_of(k, s, "", last);
  return kiln_reorder(&w->s, n, loops);
}

static kiln_status make_stream(attention *k) {
  kiln_lowering *w = k->w;
  const kiln_flash_attention *f = &k->f;
  const kiln_stmt *const parts[] = {f->sum, f->mix, f->top};
  kiln_symbol loops[3];
  for (size_t i = 0; i < KILN_LEN(parts); i++)
    KILN_TRY(kiln_compute_at(&w->s, kiln_product_tensor(w, parts[i]), k->block, KILN_SCOPE_LOCAL));
  KILN_TRY(cut_keys(k, f->top, "q", &loops[0]));
  KILN_TRY(cut_keys(k, f->sum, "q", &loops[1]));
  KILN_TRY(cut_keys(k, f->mix, "v", &loops[2]));
  k->over = loops[0];
  KILN_TRY(
      kiln_online_softmax(&w->s, 3, loops, symbol(k, "w"), false,
                          kiln_arena_printf(&w->cx->scratch, "w.%d %% 8 / 2", k->f.n_batch + 1)));
  KILN_TRY(kiln_compute_at(&w->s, kiln_product_tensor(w, f->z), k->over, KILN_SCOPE_LOCAL));
  return kiln_compute_at(&w->s, kiln_product_tensor(w, f->x), k->over, KILN_SCOPE_LOCAL);
}

// Whether keys and values of all heads stay in the L2: then blocks of all heads may run together.
static bool fits_l2(const attention *k) {
  const double bytes = 2.0 * (double)(k->f.batch * k->f.keys * (k->f.depth + k->f.values));
  return bytes <= 0.5 * (double)k->w->m->device->levels[1].capacity_bytes;
}

static const char *text_of(const attention *k, const kiln_expr *e) {
  const kiln_expr_names none = {0};
  kiln_text text;
  kiln_text_init(&text, &k->w->cx->perm);
  kiln_expr_print(k->w->cx, e, &none, &text);
  return text.data;
}

static kiln_masked_scores scores_of(const attention *k) {
  return (kiln_masked_scores){.z = k->f.z,
                              .scores = k->f.x->out,
                              .row = k->f.n_batch,
                              .key = k->f.n_batch + 1,
                              .rows = k->s.rows,
                              .chunk = k->s.chunk};
}

// Leaves out masked chunks. Later rows of a causal mask have more chunks: their blocks begin first.
static kiln_status skip_chunks(attention *k) {
  kiln_lowering *w = k->w;
  if (!k->skips) return KILN_OK;
  KILN_TRY(kiln_skip(&w->s, k->over, text_of(k, k->bounds.from), text_of(k, k->bounds.to)));
  if (k->bounds.varies) KILN_TRY(kiln_reverse(&w->s, k->block));
  return fuse_blocks(k, k->bounds.varies && fits_l2(k));
}

// --- operands ---

// Axes of an operand's buffer that is filled ahead.
static int rank_of(const attention *k, const kiln_stmt *operand) {
  return operand->n_space + (k->s.depth > 1);
}

static kiln_status fill_ahead(attention *k, const kiln_stmt *operand) {
  const kiln_symbol buffer = kiln_product_tensor(k->w, operand);
  const int row = rank_of(k, operand) - 2;
  if (k->s.depth > 1) KILN_TRY(kiln_pipeline(&k->w->s, buffer, k->over, k->s.depth));
  return kiln_storage_align(&k->w->s, buffer, row, 2 * PAD, PAD);
}

// The same for warp groups.
static kiln_status stage_for_groups(attention *k) {
  const kiln_flash_attention *f = &k->f;
  const kiln_symbol at = k->s.depth > 1 ? k->over : k->block;
  const kiln_stmt *const chunks[] = {f->b, f->v};
  kiln_warpgroup_tile tiles[] = {{.s = f->b, .inside = 1}, {.s = f->v, .inside = 1}},
                      queries = {
                          .s = f->a, .inside = 1, .by_tma = kiln_warpgroup_has_lines(k->w, f->a)};
  for (size_t i = 0; i < KILN_LEN(tiles); i++) {
    tiles[i].by_tma = kiln_warpgroup_has_lines(k->w, chunks[i]);
    KILN_TRY(kiln_warpgroup_stage(k->w, &tiles[i], at, k->threads));
  }
  for (size_t i = 0; i < KILN_LEN(tiles); i++)
    KILN_TRY(kiln_warpgroup_fill(k->w, &tiles[i], at, k->s.depth, 1));
  KILN_TRY(kiln_warpgroup_stage(k->w, &queries, k->block, k->threads));
  return kiln_warpgroup_fill(k->w, &queries, k->block, 1, 0);
}

// The first keys and values are in flight while queries are read.
static kiln_status stage_operands(attention *k) {
  if (k->s.by_warpgroups) return stage_for_groups(k);
  const kiln_flash_attention *f = &k->f;
  kiln_symbol buffer;
  KILN_TRY(kiln_product_stage(k->w, f->b, false, 0, k->over, k->threads, WARP, &buffer));
  KILN_TRY(kiln_product_stage(k->w, f->v, false, 0, k->over, k->threads, WARP, &buffer));
  KILN_TRY(fill_ahead(k, f->b));
  KILN_TRY(fill_ahead(k, f->v));
  return kiln_product_stage(k->w, f->a, false, PAD, k->block, k->threads, WARP, &buffer);
}

// The block's queries in the lanes' registers: (.., warp, and as a left fragment).
static kiln_status keep_queries(attention *k, kiln_symbol *out) {
  kiln_lowering *w = k->w;
  const kiln_stmt *a = k->f.a;
  const int rank = a->n_space;
  kiln_stage_axis axes[KILN_MAX_RANK + 1];
  kiln_symbol warp, tile_m, tile_k, rows, depth;
  *out = kiln_lowering_name(w, "lanes", kiln_product_tensor(w, a));
  for (int d = 0; d < rank; d++) axes[d] = (kiln_stage_axis){.axis = d};
  KILN_TRY(
      kiln_stage(&w->s, kiln_product_tensor(w, a), k->block, KILN_SCOPE_LOCAL, rank, axes, *out));
  rows = numbered(k, kiln_symbol_text(w->cx, *out), rank - 2);
  depth = numbered(k, kiln_symbol_text(w->cx, *out), rank - 1);
  KILN_TRY(kiln_gpu_cut(w, &rows, k->s.warp, "w", "i", &warp));
  KILN_TRY(kiln_gpu_cut(w, &rows, KILN_MMA_M, "t", "m", &tile_m));
  KILN_TRY(kiln_gpu_cut(w, &depth, KILN_MMA_K, "t", "k", &tile_k));
  KILN_TRY(kiln_reorder(&w->s, 5, (const kiln_symbol[]){warp, tile_m, tile_k, rows, depth}));
  KILN_TRY(kiln_layout_apply_operand(w, *out, k->mma, KILN_OPERAND_LEFT,
                                     (const int64_t[]){k->s.warp, k->f.depth}));
  KILN_TRY(kiln_tensorize(&w->s, rows, k->load_left));
  KILN_TRY(kiln_bind(&w->s, warp, KILN_THREAD_Y));
  KILN_TRY(kiln_unroll(&w->s, tile_m));
  return kiln_unroll(&w->s, tile_k);
}

// --- the two products ---

static kiln_status lower_scores_of_groups(attention *k) {
  const kiln_stmt *x = k->f.x;
  KILN_TRY(kiln_quad_layout_sums(&k->q, kiln_product_tensor(k->w, x), k->s.chunk));
  KILN_TRY(kiln_quad_run_warpgroups(&k->q, loop_of(k, x, "", "m"), loop_of(k, x, "", "n"),
                                    loop_of(k, x, "", "k"), 0, k->scores));
  return kiln_quad_run_nest(&k->q, loop_of(k, x, "init.", "m"));
}

static kiln_status lower_mix_of_groups(attention *k) {
  const kiln_stmt *mix = k->f.mix;
  kiln_symbol column = loop_of(k, mix, "", "v"), lines;
  KILN_TRY(kiln_quad_layout_sums(&k->q, kiln_product_tensor(k->w, mix), k->f.values));
  KILN_TRY(kiln_gpu_cut(k->w, &column, LINE, "l", "c", &lines));
  return kiln_quad_run_warpgroups(&k->q, loop_of(k, mix, "", "m"), column,
                                  kiln_lowering_name(k->w, "i", loop_of(k, mix, "", "n")), lines,
                                  k->mix);
}

static kiln_status lower_scores(attention *k) {
  if (k->s.by_warpgroups) return lower_scores_of_groups(k);
  kiln_lowering *w = k->w;
  const kiln_flash_attention *f = &k->f;
  const kiln_symbol keys = kiln_product_tensor(w, f->b);
  kiln_symbol lanes, tile, left, left_tile;
  kiln_quad_product p;
  KILN_TRY(kiln_quad_split_product(&k->q, loop_of(k, f->x, "", "m"), loop_of(k, f->x, "", "n"),
                                   loop_of(k, f->x, "", "k"), &p));
  KILN_TRY(kiln_load_fragment(w, keys, rank_of(k, f->b), p.step, 0, &lanes, &tile));
  KILN_TRY(kiln_layout_apply_operand(w, lanes, k->mma, KILN_OPERAND_RIGHT_TRANSPOSED, NULL));
  if (k->s.keeps_queries) KILN_TRY(keep_queries(k, &left));
  else {
    KILN_TRY(kiln_load_fragment(w, kiln_product_tensor(w, f->a), f->a->n_space, p.step, 0, &left,
                                &left_tile));
    KILN_TRY(kiln_layout_apply_operand(w, left, k->mma, KILN_OPERAND_LEFT, NULL));
  }
  KILN_TRY(kiln_quad_layout_sums(&k->q, kiln_product_tensor(w, f->x), k->s.chunk));
  KILN_TRY(kiln_tensorize(&w->s, tile, k->load_keys));
  if (!k->s.keeps_queries) KILN_TRY(kiln_tensorize(&w->s, left_tile, k->load_left));
  KILN_TRY(kiln_quad_run_product(&k->q, &p, k->mma));
  return kiln_quad_run_nest(&k->q, loop_of(k, f->x, "init.", "m"));
}

static kiln_status lower_mix(attention *k) {
  if (k->s.by_warpgroups) return lower_mix_of_groups(k);
  kiln_lowering *w = k->w;
  const kiln_flash_attention *f = &k->f;
  kiln_symbol lanes, tile;
  kiln_quad_product p;
  KILN_TRY(kiln_quad_split_product(&k->q, loop_of(k, f->mix, "", "m"), loop_of(k, f->mix, "", "v"),
                                   kiln_lowering_name(w, "i", loop_of(k, f->mix, "", "n")), &p));
  KILN_TRY(kiln_load_fragment(w, kiln_product_tensor(w, f->v), rank_of(k, f->v), p.step, 1, &lanes,
                              &tile));
  KILN_TRY(kiln_layout_apply_operand(w, lanes, k->mma, KILN_OPERAND_RIGHT, NULL));
  KILN_TRY(kiln_quad_layout_sums(&k->q, kiln_product_tensor(w, f->mix), f->values));
  KILN_TRY(kiln_tensorize(&w->s, tile, k->load_values));
  return kiln_quad_run_product(&k->q, &p, k->mma);
}

// --- online softmax between the products ---

static kiln_status lower_weights(attention *k) {
  kiln_lowering *w = k->w;
  const kiln_flash_attention *f = &k->f;
  const int b = f->n_batch;
  static const char *const of_rows[] = {"w.before", "w.shift", "w.scale"};
  KILN_TRY(kiln_quad_layout_sums(&k->q, kiln_product_tensor(w, f->z), k->s.chunk));
  KILN_TRY(kiln_quad_layout_sums(&k->q, symbol(k, "w"), k->s.chunk));
  KILN_TRY(kiln_quad_layout_rows(&k->q, kiln_product_tensor(w, f->top)));
  KILN_TRY(kiln_quad_layout_rows(&k->q, kiln_product_tensor(w, f->sum)));
  KILN_TRY(kiln_quad_run_nest(&k->q, loop_of(k, f->z, "", "m")));
  KILN_TRY(reduce_rows(k, f->top, k->max));
  KILN_TRY(kiln_quad_run_nest(&k->q, numbered(k, "w", b)));
  KILN_TRY(reduce_rows(k, f->sum, k->sum));
  for (size_t i = 0; i < KILN_LEN(of_rows); i++) {
    if (!kiln_loops_find(w->s.loops, numbered(k, of_rows[i], b))) continue;
    KILN_TRY(kiln_quad_layout_rows(&k->q, symbol(k, of_rows[i])));
    KILN_TRY(kiln_quad_run_nest(&k->q, numbered(k, of_rows[i], b)));
  }
  return KILN_OK;
}

// Initializes, rescales and finishes the sums of the online softmax.
static kiln_status lower_rest(attention *k) {
  const kiln_flash_attention *f = &k->f;
  const kiln_stmt *const rows[] = {f->top, f->sum};
  static const char *const parts[] = {".scale", ".end"};
  const int b = f->n_batch;
  for (size_t i = 0; i < KILN_LEN(rows); i++)
    KILN_TRY(kiln_quad_run_nest(&k->q, loop_of(k, rows[i], "init.", "m")));
  KILN_TRY(kiln_quad_run_nest(&k->q, loop_of(k, f->mix, "init.", "m")));
  for (size_t i = 0; i < KILN_LEN(parts); i++) {
    const char *of_sum =
                   kiln_arena_printf(&k->w->cx->scratch, "%s%s", name_of(k, f->sum), parts[i]),
               *of_mix =
                   kiln_arena_printf(&k->w->cx->scratch, "%s%s", name_of(k, f->mix), parts[i]);
    KILN_TRY(kiln_quad_run_nest(&k->q, numbered(k, of_sum, b)));
    if (kiln_loops_find(k->w->s.loops, numbered(k, of_mix, b)))
      KILN_TRY(kiln_quad_run_nest(&k->q, numbered(k, of_mix, b)));
  }
  if (f->mark) KILN_TRY(kiln_quad_run_nest(&k->q, symbol(k, "mark.mi")));
  return kiln_quad_run_nest(&k->q, symbol(k, "y.mi"));
}

// The nest that puts splits together: a result a thread.
static kiln_status lower_splits(attention *k) {
  enum { THREADS = 64 };
  kiln_lowering *w = k->w;
  const kiln_stmt *y = w->root;
  kiln_symbol loops[KILN_MAX_RANK], thread;
  for (int d = 0; d < y->n_space; d++) loops[d] = kiln_lowering_loop(w, "y", "", y->dims[d].name);
  KILN_TRY(kiln_gpu_map_grid(w, y->n_space, loops, THREADS, &thread));
  for (int i = 0; i < 3; i++) {
    const kiln_stmt *s = w->p->stmts.data[w->p->stmts.n - 2 - i];
    KILN_TRY(kiln_compute_at(&w->s, kiln_product_tensor(w, s), thread, KILN_SCOPE_LOCAL));
    KILN_TRY(kiln_unroll(&w->s, loop_of(k, s, "", "split")));
  }
  return KILN_OK;
}

// --- candidates ---

static kiln_dtype half_of(const attention *k) { return k->w->p->tensors.data[k->f.v->out]->dtype; }

static kiln_instr *named(const attention *k, const char *format, ...) KILN_PRINTF(2, 3);
static kiln_instr *named(const attention *k, const char *format, ...) {
  va_list args;
  va_start(args, format);
  const char *name = kiln_arena_vprintf(&k->w->cx->scratch, format, args);
  va_end(args);
  return kiln_gpu_instr_named(k->w, name);
}

static bool find_instrs(attention *k) {
  const char *half = half_of(k) == KILN_F16 ? "f16" : "bf16",
             *who = k->s.by_warpgroups ? "group" : "quad";
  const int tiles = (int)(k->s.chunk / KILN_MMA_N), chunk = (int)k->s.chunk;
  k->max = named(k, "%s.%s.%d", who, k->f.mark ? "nanmax" : "max", tiles); // L shows it
  k->sum = named(k, "%s.sum.%d.%s", who, tiles, half);
  if (k->s.by_warpgroups) {
    k->scores = named(k, "wgmma.m64n%dk16.%s.row.col", chunk, half);
    k->mix = named(k, "wgmma.m64n%dk16.%s.lanes.row", (int)k->f.values, half);
    return k->max && k->sum && k->scores && k->mix;
  }
  k->mma = named(k, "mma.m16n8k16.%s", half);
  k->load_left = named(k, "ldmatrix.x4.%s", half);
  k->load_keys = named(k, "ldmatrix.x4.rows.%s", half);
  k->load_values = named(k, "ldmatrix.x4.trans.%s", half);
  return k->max && k->sum && k->mma && k->load_left && k->load_keys && k->load_values;
}

// Registers of a thread: sums, queries and others.
static int64_t registers_of(const attention *k) {
  enum { OTHERS = 44, OTHERS_OF_GROUPS = 28 };
  const shape *s = &k->s;
  if (s->by_warpgroups) return (s->chunk + k->f.values) / 2 + OTHERS_OF_GROUPS;
  return s->warp * (s->chunk + k->f.values) / WARP +
         (s->keeps_queries ? s->warp * k->f.depth / (2 * WARP) : s->warp / 2) + OTHERS;
}

static int64_t bytes_of(const attention *k) {
  const shape *s = &k->s;
  if (s->by_warpgroups)
    return 2 * (s->rows * k->f.depth + s->depth * s->chunk * (k->f.depth + k->f.values));
  return 2 * (s->rows * (k->f.depth + PAD) +
              s->depth * s->chunk * (k->f.depth + k->f.values + 2 * PAD));
}

// Whether warp groups can compute it: operands in whole lines.
static bool suits_groups(const attention *k) {
  enum { MAX_BATCH = 3 }; // dims in front of the sums' layout
  return k->f.depth % LINE == 0 && k->f.values % LINE == 0 && k->f.n_batch <= MAX_BATCH;
}

// The chunks that a mask leaves.
static void find_bounds(attention *k) {
  const kiln_masked_scores s = scores_of(k);
  k->skips = !k->w->strict_masks && !k->f.mark && k->f.z->n_space == k->f.n_batch + 2 &&
             kiln_mask_bounds_find(k->w->cx, &s, symbol(k, "block.m"), &k->bounds);
  if (!k->skips) k->bounds.share = 1;
}

static int64_t resident_of(const attention *k) {
  enum { KEPT = KILN_GPU_RESERVED_BYTES }; // in hand
  const kiln_gpu_block one = {k->threads, registers_of(k), bytes_of(k) + KEPT};
  return kiln_gpu_resident(&k->w->m->gpu, &one);
}

// The shape of a variant; false where the device or the sizes do not allow it.
static bool describe(attention *k, kiln_lowering *w, int variant) {
  enum { MAX_REGISTERS = 255 };
  k->w = w;
  k->s = (shape){shapes[variant].rows,
                 shapes[variant].warp,
                 shapes[variant].chunk,
                 2,
                 true,
                 shapes[variant].warp == GROUP_ROWS};
  if (k->f.rows % k->s.rows || k->f.keys % k->s.chunk || !find_instrs(k)) return false;
  if (k->s.by_warpgroups && !suits_groups(k)) return false;
  k->q = (kiln_quad_tile){w, k->f.n_batch, k->s.rows, k->s.warp, k->s.by_warpgroups};
  k->threads = k->s.rows / k->s.warp * (k->s.by_warpgroups ? KILN_WARPGROUP : WARP);
  find_bounds(k);
  if (k->s.chunk == k->f.keys) k->s.depth = 1;
  if (registers_of(k) > MAX_REGISTERS) k->s.keeps_queries = false;
  return registers_of(k) <= MAX_REGISTERS && resident_of(k) > 0;
}

// Blocks that each multiprocessor has in all.
static double blocks_of(const attention *k) {
  return kiln_gpu_each(k->w, (double)(k->f.batch * (k->f.rows / k->s.rows)));
}

// Of these, how many run at the same time.
static double at_once(const attention *k) { return fmin((double)resident_of(k), blocks_of(k)); }

// Whether products are staggered: two warp groups, whose operands come by TMA in several chunks.
// Two resident blocks hide each other's latency as well, and were faster where both fit.
static bool staggers(const attention *k) {
  enum { GROUPS = 2 };
  return k->s.by_warpgroups && k->s.depth > 1 && !k->skips && !k->f.mark &&
         k->s.rows == GROUPS * GROUP_ROWS && k->f.keys >= 2 * k->s.chunk &&
         kiln_warpgroup_has_lines(k->w, k->f.a) && kiln_warpgroup_has_lines(k->w, k->f.b) &&
         kiln_warpgroup_has_lines(k->w, k->f.v) && at_once(k) == 1;
}

static kiln_status lower_flash_attention(kiln_lowering *w, const kiln_tiling *t) {
  attention k = {.w = w};
  if (!kiln_flash_attention_is(w->p, &k.f) || !describe(&k, w, t->variant)) return KILN_INTERNAL;
  KILN_TRY(cut_blocks(&k));
  KILN_TRY(make_stream(&k));
  KILN_TRY(skip_chunks(&k));
  KILN_TRY(stage_operands(&k));
  KILN_TRY(lower_scores(&k));
  KILN_TRY(lower_weights(&k));
  KILN_TRY(lower_mix(&k));
  KILN_TRY(lower_rest(&k));
  if (k.f.mark) KILN_TRY(lower_splits(&k));
  if (staggers(&k))
    KILN_TRY(kiln_annotate(&w->s, k.over, symbol(&k, KILN_STAGGER_NOTE), symbol(&k, "1")));
  return kiln_bind(&w->s, k.block, KILN_BLOCK_X);
}

// Cycles of a multiprocessor for a chunk: of tensor cores or of shared memory, which each warp
// reads whole; then exponentials and the other work for each weight. Measured on an H200.
static double work_of(const attention *k) {
  static const double FLOPS_CYCLE = 2650, SHARED_BYTES_CYCLE = 128, WEIGHTS_CYCLE = 8.3;
  const shape *s = &k->s;
  const double both = (double)(k->f.depth + k->f.values), elems = (double)(s->rows * s->chunk),
               warps = (double)(s->rows / s->warp), products = 2 * elems * both / FLOPS_CYCLE,
               shared = 2 * both * (double)s->chunk * (warps + 1) / SHARED_BYTES_CYCLE;
  return fmax(products, shared) + elems / WEIGHTS_CYCLE;
}

// The same by warp groups, each of which has some loops, barriers and sums to scale besides. Of
// staggered products a part runs beside the other work.
static double work_of_groups(const attention *k) {
  static const double FLOPS_CYCLE = 4096, WEIGHTS_CYCLE = 13.2, GROUP_CYCLES = 140,
                      STAGGERED = 0.75;
  const double both = (double)(k->f.depth + k->f.values), elems = (double)(k->s.rows * k->s.chunk),
               groups = (double)(k->s.rows / k->s.warp);
  return (staggers(k) ? STAGGERED : 1) * 2 * elems * both / FLOPS_CYCLE + elems / WEIGHTS_CYCLE +
         groups * GROUP_CYCLES;
}

// The blocks of a multiprocessor share it. One alone is bound by latency, and fewer than four warps
// leave tensor cores idle; more warp groups hide more latency. Measured on an H200.
static double time_of(const attention *k) {
  static const double CHUNK_CYCLES = 500, ALONE_CYCLES = 750, BLOCK_NS = 4000,
                      BLOCK_OF_GROUPS_NS = 3000, CLOCK_GHZ = 1.75;
  const kiln_device *d = k->w->m->device;
  const shape *s = &k->s;
  const double warps = (double)(s->rows / s->warp),
               chunks = k->bounds.share * (double)(k->f.keys / s->chunk), each = blocks_of(k),
               resident = at_once(k);
  double step, begin_end;
  if (s->by_warpgroups) {
    step = resident * work_of_groups(k) + ALONE_CYCLES / (resident * warps);
    begin_end = BLOCK_OF_GROUPS_NS;
  } else {
    const double work = work_of(k);
    step = fmax(resident * work, CHUNK_CYCLES + work * fmax(1, 4 / warps));
    begin_end =
        BLOCK_NS + (s->depth == 1 ? 2 * d->levels[0].latency_ns : 0); // no copy is in flight
  }
  return d->launch_ns + each / resident * (chunks * step / CLOCK_GHZ + begin_end);
}

static kiln_status propose_flash_attention(kiln_lowering *w, kiln_tile_candidates *out) {
  attention k = {.w = w};
  if (!kiln_flash_attention_is(w->p, &k.f)) return KILN_OK;
  for (int i = 0; i < (int)KILN_LEN(shapes); i++) {
    if (!describe(&k, w, i)) continue;
    kiln_tile_candidate one = {.tiling.variant = i};
    one.cost.ns = time_of(&k);
    KILN_VEC_PUSH(w->proposed, out, one);
  }
  return KILN_OK;
}

const kiln_template kiln_template_gpu_flash_attention = {.name = "flash_attention",
                                                         .was = "stream",
                                                         .has_grids = true,
                                                         .kinds = 1u << KILN_GROUP_ATTENTION,
                                                         .match = kiln_flash_attention_make,
                                                         .propose = propose_flash_attention,
                                                         .lower = lower_flash_attention};
