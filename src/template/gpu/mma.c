// GEMM on tensor cores: a block computes a tile of the result, each of its warps a smaller one, by
// instructions of 16 x 8 products (PTX ISA, mma.m16n8k16 and its like). Operands and sums are
// fragments (layout.h).
#include "template/gpu/mma.h"

#include "template/gpu/layout.h"

#include "target/gpu/gpu.h"

#include <math.h>
#include <string.h>

enum { MMA_M = KILN_MMA_M, MMA_N = KILN_MMA_N, WARP = KILN_MMA_WARP, LOADED_AT_ONCE = 16 };

typedef kiln_mma_shape shape;
typedef kiln_mma mma;

static const struct {
  int64_t m, n, warp_m, warp_n;
} tiles[] = {{128, 256, 64, 64}, {256, 128, 64, 64}, {128, 128, 64, 64}, {128, 128, 64, 32},
             {128, 64, 64, 32},  {64, 128, 32, 64},  {64, 64, 32, 32},   {32, 64, 16, 32},
             {64, 32, 32, 16},   {32, 32, 16, 16},   {16, 64, 16, 16},   {16, 32, 16, 16},
             {16, 16, 16, 16},   {256, 16, 32, 16},  {128, 16, 32, 16},  {64, 16, 16, 16},
             {256, 32, 32, 32},  {128, 32, 32, 32},  {128, 48, 32, 48}};
enum { N_WIDE = 13, PARTS_N = 32 }; // tiles in front of those of few columns
static const int64_t k_steps[] = {64, 32, 16};

static shape shape_of(int variant) {
  const int tile = variant / (int)KILN_LEN(k_steps);
  return (shape){.m = tiles[tile].m,
                 .n = tiles[tile].n,
                 .k = k_steps[variant % (int)KILN_LEN(k_steps)],
                 .warp_m = tiles[tile].warp_m,
                 .warp_n = tiles[tile].warp_n,
                 .slice_k = 1};
}

int64_t kiln_mma_threads(const kiln_mma_shape *s) {
  return s->m / s->warp_m * (s->n / s->warp_n) * s->slice_k * WARP;
}

static kiln_symbol part(mma *m, const char *suffix, kiln_symbol loop) {
  return kiln_lowering_name(m->w, suffix, loop);
}

static kiln_status cut(mma *m, kiln_symbol *loop, int64_t factor, const char *outer,
                       const char *inner, kiln_symbol *out_outer) {
  return kiln_gpu_cut(m->w, loop, factor, outer, inner, out_outer);
}

kiln_status kiln_load_fragment(kiln_lowering *w, kiln_symbol buffer, int rank, kiln_symbol at,
                               int cut_axis, kiln_symbol *out, kiln_symbol *out_tile) {
  kiln_stage_axis axes[KILN_MAX_RANK];
  kiln_symbol loops[2], tile;
  kiln_axes_lead(axes, rank);
  *out = kiln_lowering_name(w, "lanes", buffer);
  KILN_TRY(kiln_stage(&w->s, buffer, at, KILN_SCOPE_LOCAL, rank, axes, *out));
  for (int d = 0; d < 2; d++)
    loops[d] = kiln_symbol_printf(w->cx, "%s.%d", kiln_symbol_text(w->cx, *out), rank - 2 + d);
  KILN_TRY(kiln_gpu_cut(w, &loops[cut_axis], LOADED_AT_ONCE, "o", "i", &tile));
  if (cut_axis == 1)
    KILN_TRY(kiln_reorder(&w->s, 3, (const kiln_symbol[]){tile, loops[0], loops[1]}));
  *out_tile = loops[0];
  return kiln_unroll(&w->s, tile);
}

// Sums (.., m, n) as fragments; with more axes, those in front, the last first.
static kiln_status layout_sums(mma *m) {
  kiln_stage_axis axes[KILN_MAX_RANK + 2];
  const int n = m->p.n_batch + 2, more = m->n_more;
  for (int d = 0; d < more; d++) axes[d] = (kiln_stage_axis){.axis = n + more - 1 - d};
  for (int d = 0; d < n; d++) axes[more + d] = (kiln_stage_axis){.axis = d};
  if (more) KILN_TRY(kiln_transform_layout(&m->w->s, m->sums, n + more, axes));
  return kiln_layout_apply_operand(m->w, m->sums, m->instr, KILN_OPERAND_SUMS,
                                   (const int64_t[]){m->s->warp_m, m->s->warp_n});
}

// --- the nests ---

static kiln_status bind_warps(mma *m, kiln_symbol group, kiln_symbol rows, kiln_symbol columns) {
  const kiln_symbol warp = part(m, "warp", rows);
  if (group) {
    const kiln_symbol both = part(m, "group", rows);
    KILN_TRY(kiln_fuse(&m->w->s, group, rows, both));
    rows = both;
  }
  KILN_TRY(kiln_fuse(&m->w->s, rows, columns, warp));
  return kiln_bind(&m->w->s, warp, KILN_THREAD_Y);
}

// Puts the loops in their order, those of the groups outside where there are any.
static kiln_status order(mma *m, kiln_symbol group, int n, const kiln_symbol *loops) {
  kiln_symbol all[16] = {group};
  for (int i = 0; i < n; i++) all[(group != 0) + i] = loops[i];
  return kiln_reorder(&m->w->s, n + (group != 0), all);
}

kiln_status kiln_mma_elements(kiln_mma *m, kiln_symbol group, kiln_symbol rows) {
  const kiln_loops inside = {.body = kiln_loops_find(m->w->s.loops, rows)->body};
  const kiln_symbol outer = group && !kiln_loops_find(&inside, group) ? group : rows;
  return kiln_layout_run(m->w, outer, WARP, kiln_mma_threads(m->s) / WARP);
}

static kiln_gpu_occupancy occupancy_of(const kiln_lowering *w, const kiln_product *p,
                                       const shape *s, int per) {
  enum { OTHER_REGISTERS = 72, MAX_DEPTH = 6 };
  const kiln_gpu_staged b = {.blocks = ceil((double)p->m / (double)s->m) *
                                       ceil((double)p->n / (double)s->n) * (double)p->batch,
                             .threads = kiln_mma_threads(s),
                             .registers = s->warp_m * s->warp_n / WARP + OTHER_REGISTERS,
                             .steps = p->k / s->k,
                             .step_bytes =
                                 4 / per * (s->m * (s->k + 4 * per) + s->k * (s->n + 4 * per)),
                             .max_depth = MAX_DEPTH,
                             .by_async = true};
  return kiln_gpu_occupancy_of(w, &b);
}

// Fills |buffer| some steps ahead (software pipelining). Its rows are padded against bank conflicts
// of 16-byte words in 8 rows, or |by_columns| of 4-byte words in 4 rows and 8 columns.
static kiln_status fill_ahead(mma *m, kiln_symbol buffer, int rank, bool by_columns) {
  const int row = rank - 2 + (m->depth > 1);
  const int ahead = m->depth == m->steps ? m->depth : m->depth - 1;
  if (m->depth > 1) KILN_TRY(kiln_pipeline_ahead(&m->w->s, buffer, m->l.step, m->depth, ahead));
  if (by_columns) return kiln_storage_align(&m->w->s, buffer, row, 32, 8);
  return kiln_storage_align(&m->w->s, buffer, row, 8 * m->type->per, 4 * m->type->per);
}

static kiln_status stage_left(mma *m, kiln_symbol *out) {
  *out = m->left;
  if (!m->left) return kiln_product_stage(m->w, m->p.a, false, 0, m->l.step, m->threads, WARP, out);
  return kiln_storage_align(&m->w->s, m->left, m->p.a->n_space - 2, 8 * m->type->per,
                            4 * m->type->per);
}

kiln_status kiln_mma_multiply(kiln_mma *m) {
  kiln_schedule *s = &m->w->s;
  kiln_symbol row = m->l.m, column = m->l.n, k = m->l.k, a, b, warp_m, warp_n, tile_m, tile_n, step,
              half = 0, left, right, left_tile, right_tile;
  const kiln_mma_type *type = m->type;
  KILN_TRY(kiln_product_stage(m->w, m->p.b, type->transpose_b, 0, m->l.step, m->threads, WARP, &b));
  KILN_TRY(stage_left(m, &a));
  KILN_TRY(cut(m, &row, m->s->warp_m, "w", "i", &warp_m));
  KILN_TRY(cut(m, &column, m->s->warp_n, "w", "i", &warp_n));
  KILN_TRY(cut(m, &k, 8 * type->per, "t", "k", &step));
  KILN_TRY(cut(m, &row, MMA_M, "t", "m", &tile_m));
  KILN_TRY(cut(m, &column, MMA_N, "t", "n", &tile_n));
  if (type->k < 8 * type->per) KILN_TRY(cut(m, &k, type->k, "p", "k", &half));
  KILN_TRY(
      order(m, m->group, half ? 9 : 8,
            half ? (const kiln_symbol[]){warp_m, warp_n, step, tile_m, tile_n, half, row, column, k}
                 : (const kiln_symbol[]){warp_m, warp_n, step, tile_m, tile_n, row, column, k}));
  KILN_TRY(kiln_load_fragment(m->w, a, m->p.a->n_space, step, 0, &left, &left_tile));
  KILN_TRY(kiln_load_fragment(m->w, b, m->p.b->n_space, step, type->transpose_b ? 0 : 1, &right,
                              &right_tile));
  KILN_TRY(kiln_layout_apply_operand(m->w, left, m->instr, KILN_OPERAND_LEFT, NULL));
  KILN_TRY(kiln_layout_apply_operand(
      m->w, right, m->instr, type->transpose_b ? KILN_OPERAND_RIGHT_TRANSPOSED : KILN_OPERAND_RIGHT,
      NULL));
  KILN_TRY(layout_sums(m));
  KILN_TRY(fill_ahead(m, b, m->p.b->n_space, type->per == 1));
  if (!m->left) KILN_TRY(fill_ahead(m, a, m->p.a->n_space, false));
  KILN_TRY(kiln_tensorize(s, left_tile, m->load_left));
  KILN_TRY(kiln_tensorize(s, right_tile, m->load_right));
  KILN_TRY(kiln_tensorize(s, row, m->instr));
  KILN_TRY(bind_warps(m, m->group, warp_m, warp_n));
  KILN_TRY(kiln_unroll(s, step));
  KILN_TRY(kiln_unroll(s, tile_m));
  KILN_TRY(kiln_unroll(s, tile_n));
  return half ? kiln_unroll(s, half) : KILN_OK;
}

// clang-format off
static const kiln_mma_type types[] = {
  {KILN_F16,  KILN_F16,  KILN_F32, 2, 16, "mma.m16n8k16.f16",   "ldmatrix.x4.f16",  "ldmatrix.x4.trans.f16",  false},
  {KILN_F16,  KILN_F16,  KILN_F32, 2, 8,  "mma.m16n8k8.f16",    "ldmatrix.x4.f16",  "ldmatrix.x4.trans.f16",  false},
  {KILN_BF16, KILN_BF16, KILN_F32, 2, 16, "mma.m16n8k16.bf16",  "ldmatrix.x4.bf16", "ldmatrix.x4.trans.bf16", false},
  {KILN_F32,  KILN_F32,  KILN_F32, 1, 8,  "mma.m16n8k8.tf32",   "ldmatrix.x4.tf32", "load.x4.columns.tf32",   false},
  {KILN_I8,   KILN_I8,   KILN_I32, 4, 32, "mma.m16n8k32.s8.s8", "ldmatrix.x4.s8",   "ldmatrix.x4.rows.s8",    true},
  {KILN_I8,   KILN_U8,   KILN_I32, 4, 32, "mma.m16n8k32.s8.u8", "ldmatrix.x4.s8",   "ldmatrix.x4.rows.u8",    true},
  {KILN_U8,   KILN_I8,   KILN_I32, 4, 32, "mma.m16n8k32.u8.s8", "ldmatrix.x4.u8",   "ldmatrix.x4.rows.s8",    true},
  {KILN_U8,   KILN_U8,   KILN_I32, 4, 32, "mma.m16n8k32.u8.u8", "ldmatrix.x4.u8",   "ldmatrix.x4.rows.u8",    true},
};
// clang-format on

static kiln_dtype dtype_of(const kiln_lowering *w, const kiln_stmt *s) {
  return w->p->tensors.data[s->out]->dtype;
}

const kiln_mma_type *kiln_mma_type_of(const kiln_lowering *w, const kiln_product *p) {
  for (size_t i = 0; i < KILN_LEN(types); i++) {
    const kiln_mma_type *t = &types[i];
    if (dtype_of(w, p->a) != t->left || dtype_of(w, p->b) != t->right ||
        dtype_of(w, p->t) != t->sum || (t->left == KILN_F32 && !w->m->gpu.rounds_to_tf32))
      continue;
    if (kiln_gpu_instr_named(w, t->product)) return t;
  }
  return NULL;
}

void kiln_mma_find(kiln_mma *m) {
  m->type = kiln_mma_type_of(m->w, &m->p);
  m->threads = kiln_mma_threads(m->s);
  m->instr = kiln_gpu_instr_named(m->w, m->type->product);
  m->load_left = kiln_gpu_instr_named(m->w, m->type->load_left);
  m->load_right = kiln_gpu_instr_named(m->w, m->type->load_right);
}

// Peels off columns of padding, where whole tiles of the instruction remain: these are then stored
// without a guard.
static kiln_status leave_padding(mma *m, shape *io) {
  const int64_t columns = kiln_dim_extent(&m->p.y->dims[m->p.n_batch + 1]);
  if (columns >= m->p.n || columns % MMA_N || io->warp_n != m->p.n) return KILN_OK;
  io->warp_n = columns;
  return kiln_peel(&m->w->s, m->l.y_n, columns);
}

static kiln_status lower_mma(kiln_lowering *w, const kiln_tiling *t) {
  const shape s = shape_of(t->variant);
  mma m = {.w = w, .s = &s};
  if (!kiln_product_is(w->p, &m.p)) return KILN_INTERNAL;
  kiln_mma_find(&m);
  m.steps = m.p.k / s.k;
  m.depth = occupancy_of(w, &m.p, &s, m.type->per).depth;
  m.sums = kiln_product_tensor(w, m.p.t);
  KILN_TRY(kiln_product_blocks(w, &m.p, m.s->m, m.s->n, m.s->k, &m.l));
  KILN_TRY(kiln_mma_multiply(&m));
  KILN_TRY(kiln_mma_elements(&m, 0, kiln_product_loop(w, m.p.t, "init.", "m")));
  shape stored = s;
  KILN_TRY(leave_padding(&m, &stored));
  m.s = &stored;
  KILN_TRY(kiln_mma_elements(&m, 0, m.l.y_m));
  return kiln_bind(&w->s, m.l.block, KILN_BLOCK_X);
}

// --- candidates ---

// Blocks of a multiprocessor share its L2 bandwidth, where each row of a tile costs some bytes more
// than its own; its tensor cores; and shared memory, which is written once and read by each warp,
// the right operand as if it were twice as large. Measured on an H200.
static double time_of(const kiln_lowering *w, const kiln_product *p, const shape *s, int per) {
  static const double OVERLAP = 0.88, L2_SHARE = 0.71, ROW_BYTES = 24, TILE_NS = 40, STEP_NS = 30,
                      BLOCK_NS = 1500, ELEMENT_NS = 0.225;
  const kiln_gpu_occupancy o = occupancy_of(w, p, s, per);
  const double resident = (double)o.resident, steps = (double)p->k / (double)s->k,
               warps = (double)kiln_mma_threads(s) / WARP, width = 4.0 / per;
  const kiln_gpu_mma_step one = {.flops = 2.0 * (double)(s->m * s->n * s->k) * 2 / per,
                                 .copied = width * (double)((s->m + s->n) * s->k),
                                 .read =
                                     warps * width * (double)((s->warp_m + 2 * s->warp_n) * s->k),
                                 .rows = (double)(s->m + s->k),
                                 .resident = resident,
                                 .alone = TILE_NS * (double)s->k / (8 * per),
                                 .overlap = OVERLAP,
                                 .l2_share = L2_SHARE,
                                 .row_bytes = ROW_BYTES};
  const double step =
                   kiln_gpu_mma_step_ns(w, &one) + STEP_NS + kiln_gpu_refill_ns(w, steps, o.depth),
               stored = ELEMENT_NS * o.each * (double)(s->m * s->n); // in pieces of rows
  return w->m->device->launch_ns + fmax(o.each / resident * (steps * step + BLOCK_NS), stored) +
         kiln_product_more_loads_ns(w, p->y, p->t, o.each * (double)(s->m * s->n), false);
}

bool kiln_mma_takes(const kiln_lowering *w, const kiln_product *p) {
  const kiln_mma_type *t = kiln_mma_type_of(w, p);
  return t && t->per == KILN_MMA_HALVES;
}

// Tiles of few columns are for products that have no more. Where `parallel_k` has the same tile,
// that is proposed instead, as it stores whole words, unless some are padding. Measured on an H200.
static bool suits(const kiln_product *p, int tile, const shape *s) {
  const bool is_padded = kiln_dim_extent(&p->y->dims[p->n_batch + 1]) < p->n;
  return tile < N_WIDE || (s->n == p->n && (is_padded || s->n != PARTS_N));
}

static kiln_status propose_mma(kiln_lowering *w, kiln_tile_candidates *out) {
  kiln_product p;
  if (!kiln_product_is(w->p, &p)) return KILN_OK;
  const kiln_mma_type *t = kiln_mma_type_of(w, &p);
  for (int i = 0; t && i < (int)(KILN_LEN(tiles) * KILN_LEN(k_steps)); i++) {
    const shape s = shape_of(i);
    if (s.m > p.m || s.n > p.n || p.k % s.k || s.k % (8 * t->per) ||
        !suits(&p, i / (int)KILN_LEN(k_steps), &s) || occupancy_of(w, &p, &s, t->per).depth < 1)
      continue;
    kiln_tile_candidate one = {.tiling.variant = i};
    one.cost.ns = time_of(w, &p, &s, t->per);
    KILN_VEC_PUSH(w->proposed, out, one);
  }
  return KILN_OK;
}

const kiln_template kiln_template_gpu_mma = {.name = "mma",
                                             .has_grids = true,
                                             .kinds = 1u << KILN_GROUP_CONTRACTION,
                                             .match = kiln_product_make,
                                             .propose = propose_mma,
                                             .lower = lower_mma};
