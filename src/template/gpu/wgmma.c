// GEMM by instructions of warp groups (wgmma), 128 threads each (sm_90a): a block computes a tile
// of the result, each of its warp groups some rows of it. The operands of a step along k lie in
// shared memory, swizzled, in the stages of a circular buffer that are filled some steps ahead; the
// instructions of a step run while the threads prepare the next one. The last step may reach beyond
// the reduction's end: TMA copies bring zeros from there. Results go through shared memory, so that
// rows are stored in whole words. Where there are few tiles: split-K, each split a block of its own
// (split_k.h), or stream-K, equal shares of all tiles' steps for each block. Where there are many:
// persistent blocks with warp specialization.
#include "template/gpu/wgmma.h"

#include "template/gpu/split_k.h"
#include "template/gpu/layout.h"
#include "template/gpu/warpgroup.h"
#include "price/gpu_work.h"

#include "support/integer.h"
#include "target/gpu/im2col.h"
#include "target/instr.h"

#include <math.h>
#include <string.h>

enum {
  GROUP = KILN_WARPGROUP,
  ROWS = KILN_WARPGROUP_ROWS,
  STEP = KILN_WGMMA_STEP,
  INSTR_K = 16,
  LINE = KILN_WARPGROUP_LINE,
  WORD = 16
};

// A block's tile and a warp group's rows; |consumers|: with warp specialization, 0 without.
// Persistent blocks take tile after tile.
typedef struct shape {
  int64_t m, n, group_m;
  int consumers;
  bool is_persistent;
} shape;

static const shape shapes[] = {
    {256, 128, 64, 0, false}, {128, 256, 64, 0, false}, {256, 128, 128, 0, false},
    {128, 192, 64, 0, false}, {128, 128, 64, 0, false}, {64, 256, 64, 0, false},
    {64, 192, 64, 0, false},  {128, 64, 64, 0, false},  {64, 128, 64, 0, false},
    {64, 64, 64, 0, false},   {128, 128, 128, 2, true}, {64, 64, 64, 1, false}};

static const int64_t split_counts[] = {1, 2, 3, 4, 6, 8}, cluster_sizes[] = {1, 2, 4};
enum {
  N_SHAPES = (int)KILN_LEN(shapes),
  N_PLAIN = N_SHAPES - 2,                           // those without warp specialization
  N_ALONE = N_SHAPES * (int)KILN_LEN(split_counts), // variants without clusters
  N_WHOLE = N_ALONE * (int)KILN_LEN(cluster_sizes), // with clusters, too
  N_VARIANTS = N_WHOLE + 2 * N_PLAIN                // stream-K, without and with a producer warp
};

// The circular buffer: its stages, how many steps ahead they are filled, and how many blocks with
// it run at once on a multiprocessor; .depth 0: none does.
typedef struct stages {
  int depth, ahead;
  int64_t resident;
} stages;

// How operands are copied: by TMA as rows, in im2col mode (target/gpu/im2col.h), or by threads.
typedef struct product {
  kiln_product p;
  bool a_is_rows, a_is_im2col, b_is_rows;
} product;

// A way to run a product.
typedef struct variant {
  shape s;
  int64_t split_k, cluster;
  // Blocks of stream-K: each takes as many consecutive steps of all tiles as any other; 0: a block
  // has its own tile, or a split of it.
  int64_t stream_k;
} variant;

typedef struct wgmma {
  kiln_lowering *w;
  kiln_product p;
  product all;
  kiln_product_loops l;
  variant v;
  kiln_symbol sums; // (.., m, n), or, of a split, (.., m, n, 1)
  int64_t threads;
  stages stages;
} wgmma;

static int64_t threads_of(const shape *s) { return s->m / s->group_m * GROUP; }

static int64_t tiles_of(const kiln_product *p, const shape *s) {
  return kiln_divide_up(p->m, s->m) * kiln_divide_up(p->n, s->n) * p->batch;
}

static int64_t steps_of_tile(const kiln_product *p) { return kiln_divide_up(p->k, STEP); }

// As many blocks as divide the steps of all tiles, but no more than there are multiprocessors.
static int64_t stream_k_blocks(const kiln_lowering *w, const kiln_product *p, const shape *s) {
  const int64_t steps = tiles_of(p, s) * steps_of_tile(p);
  int64_t n = w->m->device->n_units;
  while (steps % n) n--;
  return n;
}

static variant variant_of(const kiln_lowering *w, const kiln_product *p, int i) {
  if (i < N_WHOLE)
    return (variant){.s = shapes[i % N_SHAPES],
                     .split_k = split_counts[i % N_ALONE / N_SHAPES],
                     .cluster = cluster_sizes[i / N_ALONE]};
  variant v = {.s = shapes[(i - N_WHOLE) % N_PLAIN], .split_k = 1, .cluster = 1};
  v.s.consumers = (i - N_WHOLE) / N_PLAIN;
  v.stream_k = stream_k_blocks(w, p, &v.s);
  return v;
}

// Whether blocks store sums that a second nest adds up.
static bool has_partial_sums(const variant *v) { return v->split_k > 1 || v->stream_k; }

static int64_t blocks_of(const kiln_product *p, const variant *v) {
  return v->stream_k ? v->stream_k : tiles_of(p, &v->s) * v->split_k;
}

// Steps of a block.
static int64_t steps_of(const kiln_product *p, const variant *v) {
  return tiles_of(p, &v->s) * steps_of_tile(p) / blocks_of(p, v);
}

static kiln_dtype dtype_of(const kiln_lowering *w, const kiln_stmt *s) {
  return w->p->tensors.data[s->out]->dtype;
}

// The sums as (split, .., m, n), where there are several splits, in the layout of warp groups.
static kiln_status layout_sums(wgmma *g) {
  kiln_stage_axis axes[KILN_MAX_RANK + 3];
  const bool is_part = g->v.split_k > 1;
  const int n = g->p.n_batch;
  (void)kiln_axes_lead(axes, n);
  if (is_part) {
    axes[n] = kiln_axis_whole(n + 2), axes[n + 1] = kiln_axis_whole(n);
    axes[n + 2] = kiln_axis_whole(n + 1);
    KILN_TRY(kiln_transform_layout(&g->w->s, g->sums, n + 3, axes));
  }
  const int64_t *extents = kiln_layout_extents(g->w, g->sums, 2);
  kiln_layout l;
  if (!kiln_layout_of_sums(g->w, true, extents, (const int64_t[]){g->v.s.group_m, extents[1]}, &l))
    return KILN_INTERNAL;
  return kiln_layout_apply(g->w, g->sums, &l);
}

// Runs a nest over the block's tile by the threads that hold its sums.
static kiln_status run_elements(wgmma *g, kiln_symbol rows) {
  return kiln_layout_run(g->w, rows, GROUP, g->v.s.m / g->v.s.group_m);
}

// --- operands ---

// Whether the operand is contiguous along k.
static bool has_k_inside(const kiln_lowering *w, const kiln_product *p, const kiln_stmt *operand) {
  int64_t strides[KILN_MAX_RANK];
  int tensor = 0;
  const int k = operand->n_space - (operand == p->a ? 1 : 2);
  if (kiln_product_is_packed(w, operand)) return operand == p->a;
  if (!kiln_product_reads(w->cx, w->p, operand, &tensor, strides))
    return operand == p->a || kiln_stmt_reads_words(w->cx, w->p, operand, k, WORD / 2);
  return strides[k] == 1;
}

// Whether the end of dim |k| of an operand's last two is an end of its tensor, where a copy beyond
// it brings zeros: the end of each row, |inside|, or of the last row.
static bool ends_at(const kiln_lowering *w, const kiln_stmt *operand, int k, int inside) {
  const kiln_expr *load = operand->body;
  const kiln_tensor *x = w->p->tensors.data[load->u.tensor];
  int64_t sizes[KILN_MAX_RANK];
  if (load->n_args != operand->n_space || !kiln_tensor_static_shape(x, sizes)) return false;
  for (int d = 0; d < operand->n_space; d++) {
    if (load->args[d] != kiln_var(w->cx, operand->dims[d].name)) return false;
    if (d < operand->n_space - 2 && k != inside && sizes[d] > 1) return false;
  }
  return sizes[k] == kiln_dim_extent(&operand->dims[k]);
}

// Whether TMA can copy an operand: contiguous rows, a multiple of 16 bytes apart, tiles that begin
// at such a multiple (the last one ends with the rows), and zeros where the last step is longer.
static bool can_tma(const kiln_lowering *w, const kiln_product *p, const kiln_stmt *operand) {
  enum { WORD_ELEMS = 8 };
  int64_t strides[KILN_MAX_RANK];
  int tensor = 0;
  const int n = operand->n_space;
  if (kiln_product_is_packed(w, operand))
    return kiln_dim_extent(&operand->dims[n - 1]) % WORD_ELEMS == 0;
  if (!kiln_product_reads(w->cx, w->p, operand, &tensor, strides)) return false;
  const int inside = strides[n - 1] == 1 ? n - 1 : n - 2;
  const int64_t pitch = strides[inside == n - 1 ? n - 2 : n - 1];
  const int64_t columns = kiln_dim_extent(&operand->dims[inside]);
  const bool is_along_k = inside == (operand == p->a ? n - 1 : n - 2);
  bool are_rows = strides[inside] == 1 && pitch % WORD_ELEMS == 0 && pitch >= columns &&
                  (is_along_k || columns % WORD_ELEMS == 0);
  for (int d = 0; d + 2 < n; d++)
    are_rows &= strides[d] % pitch == 0 || kiln_dim_extent(&operand->dims[d]) == 1;
  return are_rows &&
         (p->k % STEP == 0 || ends_at(w, operand, operand == p->a ? n - 1 : n - 2, inside));
}

// Whether im2col-mode TMA can copy an operand: rows of a step's 64 channels, each the same element
// of the next window.
static bool can_im2col(const kiln_lowering *w, const kiln_stmt *operand) {
  kiln_ctx *cx = w->cx;
  const int n = operand->n_space;
  kiln_im2col window;
  int64_t extents[KILN_MAX_RANK + 1], sizes[KILN_MAX_RANK], strides[KILN_MAX_RANK];
  kiln_symbol vars[KILN_MAX_RANK + 1];
  bool steps[KILN_MAX_RANK + 1] = {0};
  const kiln_expr *where = NULL, *load = kiln_instr_copied(cx, operand->body, &where),
                  *index[KILN_MAX_RANK];
  if (kiln_dim_extent(&operand->dims[n - 1]) % STEP) return false;
  if (load->kind != KILN_EXPR_LOAD || operand->guard || operand->init ||
      (where && kiln_expr_has_load(where)))
    return false;
  const kiln_tensor *x = w->p->tensors.data[load->u.tensor];
  if (x->role != KILN_INPUT || !kiln_tensor_static_shape(x, sizes)) return false;
  kiln_tensor_strides(x, strides);
  for (int d = 0; d < n; d++) {
    vars[d] = operand->dims[d].name;
    extents[d] = kiln_dim_extent(&operand->dims[d]);
  }
  // k = 64 * step + channel
  const kiln_symbol k = vars[n - 1], step = kiln_symbol_of(cx, "im2col.step"),
                    channel = kiln_symbol_of(cx, "im2col.channel");
  const kiln_expr *at =
      kiln_add(cx, kiln_mul(cx, kiln_var(cx, step), kiln_int(cx, STEP)), kiln_var(cx, channel));
  vars[n - 1] = step, vars[n] = channel;
  extents[n] = STEP, extents[n - 1] /= STEP;
  steps[n - 1] = true;
  kiln_ranges r;
  kiln_ranges_init(&r, &cx->scratch);
  for (int d = 0; d <= n; d++) kiln_ranges_push(&r, vars[d], 0, extents[d] - 1);
  for (int i = 0; i < load->n_args; i++)
    index[i] = kiln_simplify(cx, kiln_expr_substitute(cx, load->args[i], 1, &k, &at), &r);
  if (where) where = kiln_simplify(cx, kiln_expr_substitute(cx, where, 1, &k, &at), &r);
  const kiln_im2col_read read = {.is_draft = w->s.is_draft,
                                 .n_vars = n + 1,
                                 .vars = vars,
                                 .extents = extents,
                                 .steps = steps,
                                 .row = vars[n - 2],
                                 .channel = channel,
                                 .rank = load->n_args,
                                 .sizes = sizes,
                                 .strides = strides,
                                 .index = index,
                                 .where = where};
  return kiln_im2col_find(cx, &read, &window);
}

static product product_of(const kiln_lowering *w, const kiln_product *p) {
  product all = {.p = *p}, *out = &all;
  out->a_is_rows = can_tma(w, &out->p, out->p.a);
  out->b_is_rows = can_tma(w, &out->p, out->p.b);
  out->a_is_im2col = !out->a_is_rows && can_im2col(w, out->p.a);
  return all;
}

// Whether TMA can copy an operand's tiles: with partial sums they are padded, which only im2col
// mode can, as there are zeros behind the last window.
static bool a_fits_tma(const product *all, const variant *v) {
  return all->a_is_im2col || (all->a_is_rows && (!has_partial_sums(v) || all->p.m % v->s.m == 0));
}
static bool b_fits_tma(const product *all, const variant *v) {
  return all->b_is_rows && (!has_partial_sums(v) || all->p.n % v->s.n == 0);
}

static const char *type_of(const wgmma *g) {
  return dtype_of(g->w, g->p.a) == KILN_F16 ? "f16" : "bf16";
}

// How an operand comes to shared memory.
static kiln_warpgroup_tile tile_of(const wgmma *g, const kiln_stmt *s) {
  const bool is_a = s == g->p.a;
  return (kiln_warpgroup_tile){.s = s,
                               .inside = has_k_inside(g->w, &g->p, s) == is_a,
                               .by_tma =
                                   is_a ? a_fits_tma(&g->all, &g->v) : b_fits_tma(&g->all, &g->v),
                               .is_im2col = is_a && g->all.a_is_im2col};
}

static kiln_status multiply(wgmma *g) {
  kiln_schedule *s = &g->w->s;
  kiln_symbol row = g->l.m, column = g->l.n, k = g->l.k, group, part, lines = 0, sixteen;
  kiln_warpgroup_tile a = tile_of(g, g->p.a), b = tile_of(g, g->p.b);
  const bool a_has_k = a.inside == 1, b_has_k = b.inside == 0;
  const char *name =
      kiln_arena_printf(&g->w->cx->scratch, "wgmma.m64n%" PRId64 "k16.%s.%s.%s", g->v.s.n,
                        type_of(g), a_has_k ? "row" : "col", b_has_k ? "col" : "row");
  // constants first: their copies do not wait for earlier launches
  const bool a_comes_first = kiln_product_is_packed(g->w, g->p.a);
  kiln_warpgroup_tile *const tiles[] = {a_comes_first ? &a : &b, a_comes_first ? &b : &a};
  for (size_t i = 0; i < KILN_LEN(tiles); i++)
    KILN_TRY(kiln_warpgroup_stage(g->w, tiles[i], g->l.step, g->threads));
  KILN_TRY(kiln_gpu_cut(g->w, &row, g->v.s.group_m, "g", "i", &group));
  KILN_TRY(kiln_gpu_cut(g->w, &row, ROWS, "t", "r", &part));
  if (!b_has_k) KILN_TRY(kiln_gpu_cut(g->w, &column, LINE, "l", "c", &lines));
  KILN_TRY(kiln_gpu_cut(g->w, &k, INSTR_K, "t", "k", &sixteen));
  const kiln_symbol order[] = {
      group, sixteen, part, row, b_has_k ? column : lines, b_has_k ? k : column, k};
  KILN_TRY(kiln_reorder(s, b_has_k ? 6 : 7, order));
  KILN_TRY(layout_sums(g));
  for (size_t i = 0; i < KILN_LEN(tiles); i++)
    KILN_TRY(kiln_warpgroup_fill(g->w, tiles[i], g->l.step, g->stages.depth, g->stages.ahead));
  KILN_TRY(kiln_tensorize(s, row, kiln_gpu_instr_named(g->w, name)));
  KILN_TRY(kiln_bind(s, group, KILN_THREAD_Y));
  KILN_TRY(kiln_unroll(s, sixteen));
  return kiln_unroll(s, part);
}

// Whether so many stages hold all steps, by TMA. It does not pay for constants: blocks copy these
// while the launch before them runs, if there is room for both.
static bool is_whole(const kiln_lowering *w, const product *all, const variant *v,
                     int64_t n_stages) {
  enum { MAX_STEPS = 32 };
  const kiln_product *p = &all->p;
  const int64_t steps = steps_of(p, v);
  return n_stages >= steps && steps <= MAX_STEPS && a_fits_tma(all, v) && b_fits_tma(all, v) &&
         !kiln_product_is_packed(w, p->a) && !kiln_product_is_packed(w, p->b);
}

// Stages with warp specialization. Persistent blocks have a buffer for each consumer's results, and
// a number of stages that divides the steps, if there is one, so that the next tile's first stages
// are filled while the last ones of this tile are used.
static stages specialized_stages(const kiln_lowering *w, const kiln_product *p, const shape *s,
                                 int64_t steps) {
  enum { MAX_DEPTH = 6, FEW = 3, OTHER = 1024, PAD = 16 };
  const int64_t bytes = 2 * STEP * (s->m + s->n),
                row = s->n * kiln_dtype_bytes(dtype_of(w, p->y)) + PAD,
                kept = s->is_persistent ? s->consumers * s->m * row : 0,
                most = (w->m->gpu.shared_bytes - kept - OTHER) / bytes;
  const int64_t fit = most < MAX_DEPTH ? most : MAX_DEPTH;
  if (fit >= steps) return (stages){(int)steps, 1, 1};
  int64_t depth = fit;
  while (s->is_persistent && depth >= FEW && steps % depth) depth--;
  if (depth < FEW) depth = fit;
  return depth < FEW ? (stages){0} : (stages){(int)depth, 1, 1};
}

// Where the stages hold all steps, all copies are issued at once and no stage is refilled; blocks
// that are alone on a multiprocessor may take all of its shared memory for it. Otherwise a stage is
// refilled while the next step's instructions run; in a cluster two steps later, so that no block
// waits for another's release.
static stages stages_of(const kiln_lowering *w, const product *all, const variant *v) {
  enum { MAX_DEPTH = 6, LATE = 2, OTHER_REGISTERS = 64, RESERVED = 1024, FEW = 3 };
  const int64_t late = v->cluster > 1 ? LATE : 0, most = MAX_DEPTH + late;
  const kiln_gpu *g = &w->m->gpu;
  const kiln_product *p = &all->p;
  const shape *s = &v->s;
  const int64_t bytes = 2 * STEP * (s->m + s->n), threads = threads_of(s), steps = steps_of(p, v),
                registers = s->group_m * s->n / GROUP + OTHER_REGISTERS;
  const bool is_alone = blocks_of(p, v) <= w->m->device->n_units;
  if (s->consumers) return specialized_stages(w, p, s, steps);
  const kiln_gpu_block one = {.threads = threads, .registers = registers};
  int64_t resident = kiln_gpu_resident(g, &one);
  if (resident > 2) resident = 2;
  if ((v->stream_k || (late && is_alone)) && resident > 1) resident = 1;
  while (resident > 1 && (g->shared_bytes - RESERVED) / resident / bytes < FEW) resident--;
  if (resident < 1) return (stages){0};
  int64_t depth = ((g->shared_bytes + RESERVED) / resident - RESERVED) / bytes;
  if (is_whole(w, all, v, is_alone ? g->shared_bytes / bytes : depth))
    return (stages){(int)steps, (int)steps, is_alone ? 1 : resident};
  if (depth > most) depth = most;
  if (depth > steps + 1) depth = steps + 1;
  const int64_t ahead = depth - 2 - late;
  return (stages){(int)depth, ahead > 1 ? (int)ahead : 1, resident};
}

// One persistent block for each multiprocessor; they take the tiles cyclically.
static kiln_status make_persistent(wgmma *g) {
  kiln_schedule *s = &g->w->s;
  const kiln_symbol tiles = g->l.block, turn = kiln_symbol_of(g->w->cx, "block.turn");
  g->l.block = kiln_symbol_of(g->w->cx, "block");
  KILN_TRY(kiln_split(s, tiles, g->w->m->device->n_units, KILN_TAIL_GUARD, turn, g->l.block));
  KILN_TRY(kiln_reorder(s, 2, (const kiln_symbol[]){g->l.block, turn}));
  return kiln_warp_specialize(s, turn, g->v.s.consumers);
}

static kiln_status bind_blocks(wgmma *g) {
  if (g->v.s.is_persistent) KILN_TRY(make_persistent(g));
  KILN_TRY(kiln_bind(&g->w->s, g->l.block, KILN_BLOCK_X));
  if (g->v.cluster > 1) KILN_TRY(kiln_cluster(&g->w->s, g->l.block, g->v.cluster));
  return g->v.s.consumers && !g->v.s.is_persistent
             ? kiln_warp_specialize(&g->w->s, g->l.block, g->v.s.consumers)
             : KILN_OK;
}

static kiln_status lower_whole(wgmma *g) {
  kiln_lowering *w = g->w;
  g->sums = kiln_product_tensor(w, g->p.t);
  KILN_TRY(kiln_product_pad(w, &g->p, STEP));
  KILN_TRY(
      kiln_product_blocks_shared(w, &g->p, g->v.s.m, g->v.s.n, STEP, g->threads, GROUP, &g->l));
  KILN_TRY(multiply(g));
  KILN_TRY(run_elements(g, kiln_product_loop(w, g->p.t, "init.", "m")));
  KILN_TRY(run_elements(g, g->l.y_m));
  return bind_blocks(g);
}

// Split-K: blocks store partial sums, which a second nest adds up.
static kiln_status lower_split_k(wgmma *g) {
  kiln_lowering *w = g->w;
  const kiln_product *p = &g->p;
  const int n = p->n_batch;
  const char *name = kiln_symbol_text(w->cx, kiln_product_tensor(w, p->t)),
             *whole = kiln_arena_printf(&w->cx->scratch, "%s.all", name);
  const kiln_symbol all = kiln_symbol_of(w->cx, whole);
  kiln_symbol k = kiln_product_loop(w, p->t, "", "k"), split, loops[KILN_MAX_RANK + 1];
  g->sums = kiln_symbol_printf(w->cx, "%s.block", name);
  KILN_TRY(kiln_product_pad(w, p, STEP));
  KILN_TRY(kiln_product_begin(w, p, &g->l));
  KILN_TRY(kiln_split_k_pad(w, p, g->v.s.m, g->v.s.n));
  KILN_TRY(kiln_gpu_cut(g->w, &k, STEP * steps_of(p, &g->v), "split", "part", &split));
  KILN_TRY(kiln_split_k_factor(w, p, split, 0, k, all));
  KILN_TRY(kiln_cache_write(&w->s, all, g->sums, 0, NULL));
  KILN_TRY(kiln_split(&w->s, k, STEP, KILN_TAIL_EXACT, g->l.step, g->l.k));
  for (int d = 0; d < n + 3; d++)
    loops[d] = kiln_symbol_printf(w->cx, "%s.copy.%d", whole, d ? d - 1 : n + 2);
  KILN_TRY(kiln_reorder(&w->s, n + 3, loops));
  KILN_TRY(kiln_product_tile(w, "block", n + 1, loops, g->v.s.m, g->v.s.n, &g->l));
  KILN_TRY(kiln_compute_at(&w->s, g->sums, g->l.block, KILN_SCOPE_LOCAL));
  KILN_TRY(kiln_reorder(&w->s, 4, (const kiln_symbol[]){g->l.step, g->l.m, g->l.n, g->l.k}));
  KILN_TRY(multiply(g));
  KILN_TRY(run_elements(g, kiln_symbol_printf(w->cx, "%s.init.%d", whole, n)));
  KILN_TRY(run_elements(g, g->l.y_m));
  KILN_TRY(kiln_split_k_finish(w, p, all));
  return bind_blocks(g);
}

// Stream-K: blocks store partial sums of each tile that they worked on, which a second nest adds
// up.
static kiln_status lower_stream_k(wgmma *g) {
  kiln_lowering *w = g->w;
  const kiln_product *p = &g->p;
  const int n = p->n_batch;
  const char *name = kiln_symbol_text(w->cx, kiln_product_tensor(w, p->t)),
             *kept = kiln_arena_printf(&w->cx->scratch, "%s.block", name);
  const kiln_symbol all = kiln_symbol_printf(w->cx, "%s.all", name),
                    k = kiln_product_loop(w, p->t, "", "k"), step = kiln_symbol_of(w->cx, "tile.k");
  g->sums = kiln_symbol_of(w->cx, kept);
  KILN_TRY(kiln_product_pad(w, p, STEP));
  KILN_TRY(kiln_product_begin(w, p, &g->l));
  KILN_TRY(kiln_split_k_pad(w, p, g->v.s.m, g->v.s.n));
  KILN_TRY(kiln_split(&w->s, k, STEP, KILN_TAIL_EXACT, step, g->l.k));
  KILN_TRY(kiln_tile(&w->s, g->l.m, g->l.n, g->v.s.m, g->v.s.n, KILN_TAIL_EXACT,
                     kiln_symbol_of(w->cx, "tile.m"), kiln_symbol_of(w->cx, "tile.n"), g->l.y_m,
                     g->l.y_n));
  g->l.m = g->l.y_m, g->l.n = g->l.y_n;
  KILN_TRY(kiln_reorder(&w->s, 4, (const kiln_symbol[]){step, g->l.m, g->l.n, g->l.k}));
  g->l.block = kiln_symbol_of(w->cx, "block");
  KILN_TRY(kiln_stream_k(&w->s, step, g->v.stream_k, all, g->sums, g->l.block, g->l.step));
  KILN_TRY(multiply(g));
  KILN_TRY(run_elements(g, kiln_symbol_printf(w->cx, "%s.init.%d", kept, n)));
  KILN_TRY(run_elements(g, kiln_symbol_printf(w->cx, "%s.copy.%d", kept, n)));
  KILN_TRY(kiln_parallel_k_add(w, p, all));
  return bind_blocks(g);
}

static wgmma wgmma_of(kiln_lowering *w, const product *all, const variant *v) {
  return (wgmma){.w = w,
                 .p = all->p,
                 .all = *all,
                 .v = *v,
                 .threads = threads_of(&v->s),
                 .stages = stages_of(w, all, v)};
}

static kiln_status lower_wgmma(kiln_lowering *w, const kiln_tiling *t) {
  kiln_product p;
  if (!kiln_product_is(w->p, &p)) return KILN_INTERNAL;
  const product all = product_of(w, &p);
  const variant v = variant_of(w, &p, t->variant);
  wgmma g = wgmma_of(w, &all, &v);
  return g.v.stream_k ? lower_stream_k(&g) : g.v.split_k > 1 ? lower_split_k(&g) : lower_whole(&g);
}

// --- tiles for templates with an epilogue of their own ---

static variant tile_variant(int64_t m, int64_t n) {
  return (variant){.s = {m, n, ROWS, 0, false}, .split_k = 1, .cluster = 1};
}

int64_t kiln_wgmma_resident(const kiln_lowering *w, const kiln_product *p, int64_t m, int64_t n) {
  const product all = product_of(w, p);
  const variant v = tile_variant(m, n);
  const stages held = stages_of(w, &all, &v);
  return held.depth < 2 && steps_of(p, &v) > 1 ? 0 : held.resident;
}

kiln_status kiln_wgmma_multiply(kiln_lowering *w, const kiln_product *p, int64_t m, int64_t n,
                                kiln_symbol block, kiln_product_loops *out) {
  const product all = product_of(w, p);
  const variant v = tile_variant(m, n);
  wgmma g = wgmma_of(w, &all, &v);
  KILN_TRY(kiln_product_sums(w, p, STEP, block, &g.l));
  g.sums = kiln_product_tensor(w, p->t);
  *out = g.l;
  return multiply(&g);
}

// --- candidates ---

// The time of a tile's epilogue, but for the few instructions that storing hides. Measured on an
// H200.
static double finish_of(const kiln_lowering *w, const kiln_product *p, const shape *s) {
  static const double HIDDEN = 6, INSTR_NS = 0.011; // of an element
  const double instrs = kiln_gpu_instrs_of(w->cx, p->y->body) - HIDDEN;
  return INSTR_NS * fmax(instrs, 0) * (double)(s->m * s->n) +
         kiln_product_more_loads_ns(w, p->y, p->t, (double)(s->m * s->n), false);
}

// Persistent blocks begin once; a tile's epilogue overlaps the next tile's steps, as far as those
// suffice. Measured on an H200.
static double persistent_ns(const kiln_lowering *w, const kiln_product *p, const variant *v,
                            double step) {
  static const double BEGIN_END = 1800, TILE_NS = 250, STORED_BYTES_NS = 20;
  const kiln_device *d = w->m->device;
  const shape *s = &v->s;
  const double result = kiln_dtype_bytes(dtype_of(w, p->y)),
               stored = (double)(s->m * s->n) * result / STORED_BYTES_NS,
               tile =
                   fmax((double)steps_of(p, v) * step + TILE_NS, fmax(stored, finish_of(w, p, s))),
               bytes = (double)p->batch * (2.0 * (double)(p->m + p->n) * (double)p->k +
                                           result * (double)p->m * (double)p->n);
  return d->launch_ns + fmax(kiln_gpu_each(w, (double)blocks_of(p, v)) * tile + BEGIN_END,
                             bytes / d->levels[0].all_bytes_ns);
}

// The time of partial sums: the second nest, and of stream-K also the stores between a block's
// tiles, where no instructions run. A tile has as many as splits; of stream-K, one more than blocks
// begin in it.
static double partial_sums_ns(const kiln_lowering *w, const kiln_product *p, const variant *v) {
  const double tiles = (double)tiles_of(p, &v->s), stream_k = (double)v->stream_k,
               ends = ceil((double)steps_of(p, v) / (double)steps_of_tile(p)),
               bytes = 4 * (double)(v->s.m * v->s.n);
  if (!v->stream_k) return kiln_split_k_finish_ns(w, p, (double)v->split_k);
  return kiln_split_k_finish_ns(w, p, (tiles + stream_k) / tiles) +
         ends * bytes / w->m->device->levels[1].unit_bytes_ns;
}

// The least time of all blocks' reads with stream-K: blocks are at different steps, so that
// operands beyond the L2's capacity are read from memory each time. Measured on an H200, from 42 to
// 71 MB of operands.
static double stream_k_read_ns(const kiln_lowering *w, const kiln_product *p, const variant *v) {
  static const double SCATTERED = 0.5; // of the memory's bandwidth
  const kiln_mem_level *memory = &w->m->device->levels[0], *l2 = &w->m->device->levels[1];
  const double operands = 2.0 * (double)(p->batch * (p->m + p->n) * p->k),
               held = fmin(1, (double)l2->capacity_bytes / operands),
               bytes = 2.0 * (double)(v->s.m + v->s.n) * STEP *
                       (double)(steps_of(p, v) * blocks_of(p, v));
  return bytes * (held / l2->all_bytes_ns + (1 - held) / (SCATTERED * memory->all_bytes_ns));
}

// Blocks of a multiprocessor share its tensor cores and its shared memory, which is written once
// and read by each instruction. Where threads copy the operands, it is slower the fewer they are;
// with TMA, four warp groups wait for each other. A block's epilogue overlaps another block's
// steps, if there is one. Measured on an H200.
static double time_of(const kiln_lowering *w, const product *all, const variant *v) {
  static const double TMA = 0.78, TMA_OF_FOUR = 0.70, TMA_OF_CONSUMERS = 0.77, MANY = 0.65,
                      FEW = 0.58, STEP_NS = 20;
  const shape *s = &v->s;
  const bool are_many = threads_of(s) > 2 * GROUP;
  const kiln_product *p = &all->p;
  const bool by_tma = v->stream_k ? a_fits_tma(all, v) : all->a_is_rows || all->a_is_im2col;
  const double share = s->is_persistent ? TMA_OF_CONSUMERS
                       : by_tma         ? (are_many ? TMA_OF_FOUR : TMA)
                       : are_many       ? MANY
                                        : FEW;
  const kiln_device *d = w->m->device;
  const stages held = stages_of(w, all, v);
  const double blocks = (double)blocks_of(p, v),
               begin_end = held.resident > 1          ? 3200 // ns of a block, or of two at once
                           : s->consumers             ? 2600 // of one with a producer warp
                           : held.ahead == held.depth ? 2400 // of one that waits once
                                                      : 3600,
               each = kiln_gpu_each(w, blocks), steps = (double)steps_of(p, v),
               copied = 2.0 * (double)(s->m + s->n) * STEP,
               read = 2.0 * STEP * (double)s->m / ROWS * (double)(ROWS + s->n),
               flops = 2.0 * (double)(s->m * s->n) * STEP;
  const double step = fmax(flops / (share * d->unit_flops_ns[KILN_PEAK_BF16]),
                           (copied + read) / kiln_gpu_shared(d)->unit_bytes_ns);
  if (s->is_persistent) return persistent_ns(w, p, v, step + STEP_NS);
  const double finish = has_partial_sums(v) ? partial_sums_ns(w, p, v)
                                            : (each - 1) * finish_of(w, p, s) /
                                                  (double)held.resident; // the first is begin_end's
  const double all_steps = each * steps * (step + STEP_NS),
               read_ns = v->stream_k ? stream_k_read_ns(w, p, v) : 0;
  return d->launch_ns + fmax(all_steps, read_ns) + ceil(each / (double)held.resident) * begin_end +
         finish;
}

static bool can_split_k(const kiln_lowering *w, const kiln_product *p, const variant *v) {
  enum { MAX_BATCH = 2 };
  const shape *s = &v->s;
  return p->n_batch <= MAX_BATCH && s->m < 2 * p->m && steps_of_tile(p) % v->split_k == 0 &&
         steps_of(p, v) >= 2 && tiles_of(p, s) < 2 * w->m->device->n_units &&
         kiln_split_k_fits(w, p, s->m, s->n);
}

// Whether a producer warp can issue all copies: of persistent blocks with more than a tile each, or
// of no more than a block for each multiprocessor.
static bool can_specialize(const kiln_lowering *w, const product *all, const shape *s) {
  return all->a_is_rows && all->b_is_rows &&
         (tiles_of(&all->p, s) > w->m->device->n_units) == s->is_persistent;
}

// --- clusters ---

// TMA multicast: how many blocks of a cluster share each copy of |a|, whose tiles have the same
// rows, and each of |b|, whose tiles have the same columns.
typedef struct multicast {
  int64_t a, b;
} multicast;

static multicast multicast_of(const kiln_product *p, const variant *v) {
  const int64_t group = kiln_product_group(kiln_divide_up(p->m, v->s.m)),
                b = v->cluster < group ? v->cluster : group;
  return (multicast){v->cluster / b, b};
}

// Whether all blocks can be in clusters that multicast.
static bool can_cluster(const kiln_lowering *w, const product *all, const variant *v) {
  const kiln_device *d = w->m->device;
  const int level = kiln_device_level(d, "cluster");
  const multicast share = multicast_of(&all->p, v);
  if (v->cluster == 1) return true;
  return level >= 0 && v->cluster <= d->levels[level].n_sharing && !v->s.consumers &&
         !all->a_is_im2col && a_fits_tma(all, v) && b_fits_tma(all, v) &&
         kiln_divide_up(all->p.n, v->s.n) % share.a == 0 && blocks_of(&all->p, v) % v->cluster == 0;
}

// The time of waiting for all blocks of a cluster in front of refilling a stage. Measured on an
// H200, for each wave of blocks.
static double hand_over_ns(const kiln_lowering *w, const product *all, const variant *v) {
  static const double HAND_OVER_NS = 1500;
  const stages held = stages_of(w, all, v);
  const double at_once = (double)w->m->device->n_units * (double)held.resident;
  if (v->cluster == 1 || held.depth >= steps_of(&all->p, v)) return 0;
  return HAND_OVER_NS * log2((double)v->cluster) * ceil((double)blocks_of(&all->p, v) / at_once);
}

// Bytes that all blocks read of the L2, and that clusters multicast.
static void count_bytes(const kiln_lowering *w, const kiln_product *p, const variant *v,
                        kiln_tile_cost *io) {
  const shape *s = &v->s;
  const double rows = 2.0 * STEP * (double)steps_of(p, v) * (double)blocks_of(p, v);
  const multicast share = multicast_of(p, v);
  io->bytes[kiln_device_level(w->m->device, "L2")] =
      rows * ((double)s->m / (double)share.a + (double)s->n / (double)share.b);
  if (v->cluster > 1)
    io->bytes[kiln_device_level(w->m->device, "cluster")] = rows * (double)(s->m + s->n);
}

// --- all of them ---

// Whether stream-K differs from whole tiles and from split-K, and TMA copies the operands as rows;
// with warp specialization, the producer warp must be able to issue all copies.
static bool can_stream_k(const kiln_lowering *w, const product *all, const variant *v) {
  enum { LEAST_STAGES = 3 }; // with a producer warp
  const int64_t steps = steps_of(&all->p, v), tile = steps_of_tile(&all->p);
  return steps % tile && tile % steps && can_split_k(w, &all->p, v) && all->a_is_rows &&
         all->b_is_rows &&
         (!v->s.consumers ||
          (a_fits_tma(all, v) && b_fits_tma(all, v) && stages_of(w, all, v).depth >= LEAST_STAGES));
}

static bool may_be(const kiln_lowering *w, const product *all, const variant *v) {
  const kiln_product *p = &all->p;
  const shape *s = &v->s;
  return s->n <= p->n &&
         (v->stream_k      ? can_stream_k(w, all, v)
          : v->split_k > 1 ? can_split_k(w, p, v)
                           : s->m <= p->m) &&
         (!s->consumers || v->stream_k || (v->split_k == 1 && can_specialize(w, all, s))) &&
         stages_of(w, all, v).depth >= 2 && can_cluster(w, all, v);
}

// The tiling that |kiln explain| shows for a candidate.
static kiln_tiling tiling_of(const kiln_lowering *w, const kiln_product *p, int i) {
  const variant v = variant_of(w, p, i);
  kiln_tiling t = {.variant = i};
  kiln_text form;
  kiln_text_init(&form, &w->cx->perm);
  for (int d = 0; d < p->n_batch; d++) t.block[d] = 1;
  t.block[p->n_batch] = v.s.m, t.block[p->n_batch + 1] = v.s.n;
  kiln_text_printf(&form, "groups of %" PRId64 " rows", v.s.group_m);
  if (v.split_k > 1) kiln_text_printf(&form, ", split-K %" PRId64, v.split_k);
  if (v.stream_k) kiln_text_printf(&form, ", stream-K of %" PRId64 " blocks", v.stream_k);
  if (v.s.consumers) kiln_text_printf(&form, ", %d consumers", v.s.consumers);
  if (v.cluster > 1) kiln_text_printf(&form, ", clusters of %" PRId64, v.cluster);
  t.form = form.data;
  return t;
}

bool kiln_wgmma_takes(const kiln_lowering *w, const kiln_product *p) {
  enum { MAX_BATCH = 3 }; // dims in front of the sums' layout
  const kiln_dtype t = dtype_of(w, p->a);
  return w->m->gpu.has_wgmma && kiln_dtype_is_half(t) && dtype_of(w, p->b) == t &&
         dtype_of(w, p->t) == KILN_F32 && p->n_batch <= MAX_BATCH;
}

static kiln_status propose_wgmma(kiln_lowering *w, kiln_tile_candidates *out) {
  kiln_product p;
  if (!kiln_product_is(w->p, &p) || !kiln_wgmma_takes(w, &p) || p.k <= STEP) return KILN_OK;
  const product all = product_of(w, &p);
  for (int i = 0; i < N_VARIANTS; i++) {
    const variant v = variant_of(w, &p, i);
    if (!may_be(w, &all, &v)) continue;
    kiln_tile_candidate one = {.tiling = tiling_of(w, &p, i)};
    one.cost.ns = time_of(w, &all, &v) + hand_over_ns(w, &all, &v);
    count_bytes(w, &p, &v, &one.cost);
    KILN_VEC_PUSH(w->proposed, out, one);
  }
  return KILN_OK;
}

const kiln_template kiln_template_gpu_wgmma = {.name = "wgmma",
                                               .has_grids = true,
                                               .kinds = 1u << KILN_GROUP_CONTRACTION,
                                               .match = kiln_product_make,
                                               .propose = propose_wgmma,
                                               .lower = lower_wgmma};
