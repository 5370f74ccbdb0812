// Back-to-back GEMM fusion (mlp.h): a block computes whole rows of the result, and has their
// operand in shared memory; weights of both products go by a chunk of hidden elements at a time,
// copied ahead. Hidden elements are computed where they lie: sums of a product are the left
// operand of the next (layout.h).
#include "template/gpu/layout.h"
#include "template/gpu/mma.h"

#include "support/integer.h"
#include "template/form/b2b_gemm.h"
#include "template/gpu/quad_reduce.h"
#include "template/gpu/warpgroup.h"

#include <math.h>

enum {
  WARP = KILN_MMA_WARP,
  PAD = KILN_MMA_PAD,
  LINE = KILN_WARPGROUP_LINE,
  RESERVED = 1024, // bytes of a block's shared memory
  OTHER_REGISTERS = 64,
  MAX_REGISTERS = 255,
  MAX_DEPTH = 3 // chunks in shared memory or in flight
};

// Rows of a block and of a warp, or of a warp group; hidden elements of a chunk.
static const struct {
  int64_t rows, warp, chunk;
} shapes[] = {{128, 32, 64}, {128, 32, 32}, {128, 16, 64},  {128, 16, 32}, {64, 16, 64},
              {64, 16, 32},  {64, 32, 32},  {32, 16, 32},   {64, 16, 16},  {32, 16, 16},
              {128, 64, 64}, {64, 64, 64},  {128, 64, 128}, {64, 64, 128}};

typedef struct b2b {
  kiln_lowering *w;
  kiln_b2b_gemm f;
  kiln_quad_tile q;
  int64_t chunk, threads;
  int depth; // chunks whose weights are in shared memory or in flight
  kiln_instr *first, *second, *load_left, *load_right;
} b2b;

static kiln_symbol loop_of(const b2b *x, const kiln_stmt *s, const char *part, const char *dim) {
  return kiln_product_loop(x->w, s, part, dim);
}

// --- operands ---

typedef struct operands {
  kiln_symbol rows, first, second; // buffers: of I, of J and of B
} operands;

// All operands, for warp groups.
static kiln_status stage_for_groups(b2b *x, const kiln_product_loops *l) {
  kiln_lowering *w = x->w;
  const kiln_stmt *const weights[] = {x->f.j, x->f.p.b};
  kiln_warpgroup_tile rows = {.s = x->f.i,
                              .inside = 1,
                              .by_tma = kiln_warpgroup_has_lines(w, x->f.i)},
                      tiles[] = {{.s = x->f.j, .inside = 1}, {.s = x->f.p.b, .inside = 1}};
  for (size_t i = 0; i < KILN_LEN(tiles); i++) {
    tiles[i].by_tma =
        kiln_product_is_packed(w, weights[i]) || kiln_warpgroup_has_lines(w, weights[i]);
    KILN_TRY(kiln_warpgroup_stage(w, &tiles[i], l->step, x->threads));
  }
  for (size_t i = 0; i < KILN_LEN(tiles); i++)
    KILN_TRY(kiln_warpgroup_fill(w, &tiles[i], l->step, x->depth, 1));
  KILN_TRY(kiln_warpgroup_stage(w, &rows, l->block, x->threads));
  return kiln_warpgroup_fill(w, &rows, l->block, 1, 0);
}

// Stages weights, which are filled ahead, their rows padded against bank conflicts.
static kiln_status stage_weights(b2b *x, const kiln_product_loops *l, const kiln_stmt *s,
                                 kiln_symbol *out) {
  kiln_lowering *w = x->w;
  KILN_TRY(kiln_product_stage(w, s, false, 0, l->step, x->threads, WARP, out));
  if (x->depth > 1) KILN_TRY(kiln_pipeline(&w->s, *out, l->step, x->depth));
  return kiln_storage_align(&w->s, *out, x->depth > 1, 2 * PAD, PAD);
}

static kiln_status stage_operands(b2b *x, const kiln_product_loops *l, operands *out) {
  KILN_TRY(stage_weights(x, l, x->f.j, &out->first));
  KILN_TRY(stage_weights(x, l, x->f.p.b, &out->second));
  return kiln_product_stage(x->w, x->f.i, false, PAD, l->block, x->threads, WARP, &out->rows);
}

// A step's part of a chunk of weights, as a right fragment.
static kiln_status load_weights(b2b *x, kiln_symbol buffer, kiln_symbol step) {
  const int slots = x->depth > 1; // an axis in front
  kiln_symbol lanes, tile;
  KILN_TRY(kiln_load_fragment(x->w, buffer, 2 + slots, step, 1, &lanes, &tile));
  KILN_TRY(kiln_layout_apply_operand(x->w, lanes, x->first, KILN_OPERAND_RIGHT, NULL));
  return kiln_tensorize(&x->w->s, tile, x->load_right);
}

// --- the two products ---

static kiln_status multiply_first(b2b *x, const operands *o) {
  kiln_lowering *w = x->w;
  kiln_symbol left, left_tile;
  kiln_quad_product p;
  KILN_TRY(kiln_quad_split_product(&x->q, loop_of(x, x->f.x, "", "m"), loop_of(x, x->f.x, "", "k"),
                                   loop_of(x, x->f.x, "", "d"), &p));
  KILN_TRY(kiln_load_fragment(w, o->rows, 2, p.step, 0, &left, &left_tile));
  KILN_TRY(kiln_layout_apply_operand(w, left, x->first, KILN_OPERAND_LEFT, NULL));
  KILN_TRY(load_weights(x, o->first, p.step));
  KILN_TRY(kiln_quad_layout_sums(&x->q, kiln_product_tensor(w, x->f.x), x->chunk));
  KILN_TRY(kiln_tensorize(&w->s, left_tile, x->load_left));
  return kiln_quad_run_product(&x->q, &p, x->first);
}

static kiln_status multiply_second(b2b *x, const kiln_product_loops *l, const operands *o) {
  kiln_quad_product p;
  KILN_TRY(kiln_quad_split_product(&x->q, l->m, l->n, l->k, &p));
  KILN_TRY(load_weights(x, o->second, p.step));
  KILN_TRY(kiln_quad_layout_sums(&x->q, kiln_product_tensor(x->w, x->f.p.t), x->f.p.n));
  return kiln_quad_run_product(&x->q, &p, x->second);
}

// A product by warp groups, the columns of its right operand in lines.
static kiln_status multiply_groups(b2b *x, const kiln_stmt *s, int64_t columns, kiln_symbol rows,
                                   kiln_symbol column, kiln_symbol depth, kiln_instr *instr) {
  kiln_symbol lines;
  KILN_TRY(kiln_quad_layout_sums(&x->q, kiln_product_tensor(x->w, s), columns));
  KILN_TRY(kiln_gpu_cut(x->w, &column, LINE, "l", "c", &lines));
  return kiln_quad_run_warpgroups(&x->q, rows, column, depth, lines, instr);
}

static kiln_status multiply(b2b *x, const kiln_product_loops *l) {
  const kiln_stmt *first = x->f.x;
  operands o;
  if (x->q.by_warpgroups) {
    KILN_TRY(stage_for_groups(x, l));
    KILN_TRY(multiply_groups(x, first, x->chunk, loop_of(x, first, "", "m"),
                             loop_of(x, first, "", "k"), loop_of(x, first, "", "d"), x->first));
    return multiply_groups(x, x->f.p.t, x->f.p.n, l->m, l->n, l->k, x->second);
  }
  KILN_TRY(stage_operands(x, l, &o));
  KILN_TRY(multiply_first(x, &o));
  return multiply_second(x, l, &o);
}

// --- candidates ---

static bool find_instrs(b2b *x) {
  kiln_lowering *w = x->w;
  const char *half = w->p->tensors.data[x->f.i->out]->dtype == KILN_F16 ? "f16" : "bf16";
  kiln_arena *a = &w->cx->scratch;
  if (x->q.by_warpgroups) {
    x->first = kiln_gpu_instr_named(
        w, kiln_arena_printf(a, "wgmma.m64n%dk16.%s.row.row", (int)x->chunk, half));
    x->second = kiln_gpu_instr_named(
        w, kiln_arena_printf(a, "wgmma.m64n%dk16.%s.lanes.row", (int)x->f.p.n, half));
    return x->first && x->second;
  }
  x->first = x->second = kiln_gpu_instr_named(w, kiln_arena_printf(a, "mma.m16n8k16.%s", half));
  x->load_left = kiln_gpu_instr_named(w, kiln_arena_printf(a, "ldmatrix.x4.%s", half));
  x->load_right = kiln_gpu_instr_named(w, kiln_arena_printf(a, "ldmatrix.x4.trans.%s", half));
  return x->first && x->load_left && x->load_right;
}

static int64_t bytes_of(const b2b *x) {
  const int64_t pad = x->q.by_warpgroups ? 0 : PAD,
                chunk = x->f.depth * (x->chunk + pad) + x->chunk * (x->f.p.n + pad),
                operand = 2 * (x->q.rows * (x->f.depth + pad) + x->depth * chunk),
                y = kiln_dtype_bytes(x->w->p->tensors.data[x->f.p.y->out]->dtype),
                result = x->q.rows * (x->f.p.n * y + 16);
  return (operand > result ? operand : result) + RESERVED;
}

static bool describe(b2b *x, kiln_lowering *w, int variant) {
  const kiln_gpu *g = &w->m->gpu;
  const kiln_product *p = &x->f.p;
  x->w = w;
  x->q = (kiln_quad_tile){w, 0, shapes[variant].rows, shapes[variant].warp,
                          shapes[variant].warp == KILN_WARPGROUP_ROWS};
  x->chunk = shapes[variant].chunk;
  if (x->q.rows > p->m || p->k % x->chunk || !find_instrs(x)) return false;
  if (x->q.by_warpgroups && (p->n % LINE || x->f.depth % LINE)) return false;
  const int64_t width = x->q.by_warpgroups ? KILN_WARPGROUP : WARP, chunks = p->k / x->chunk,
                registers = x->q.warp * (x->chunk + x->chunk / 2 + p->n) / width + OTHER_REGISTERS;
  x->threads = x->q.rows / x->q.warp * width;
  x->depth = (int)kiln_gpu_depth(chunks, MAX_DEPTH);
  while (x->depth > 1 && bytes_of(x) > g->shared_bytes) x->depth--;
  const kiln_gpu_block one = {x->threads, registers, bytes_of(x)};
  return registers <= MAX_REGISTERS && kiln_gpu_resident(g, &one) > 0;
}

static kiln_status lower_b2b_gemm(kiln_lowering *w, const kiln_tiling *t) {
  b2b x = {.w = w};
  kiln_product_loops l;
  kiln_symbol block;
  if (!kiln_b2b_gemm_is(w->p, &x.f) || !describe(&x, w, t->variant)) return KILN_INTERNAL;
  const kiln_product *p = &x.f.p;
  const int64_t width = x.q.by_warpgroups ? KILN_WARPGROUP : WARP;
  const kiln_symbol hidden = kiln_product_tensor(w, p->a), sums = kiln_product_tensor(w, x.f.x);
  KILN_TRY(kiln_product_pack(w, p));
  if (kiln_product_is_packed(w, x.f.j))
    KILN_TRY(kiln_prepack(&w->s, kiln_product_tensor(w, x.f.j)));
  KILN_TRY(kiln_product_result(w, p, p->y, x.q.rows, p->n, x.threads, width, &block));
  KILN_TRY(kiln_product_sums(w, p, x.chunk, block, &l));
  KILN_TRY(kiln_compute_at(&w->s, hidden, l.step, KILN_SCOPE_LOCAL));
  KILN_TRY(kiln_compute_at(&w->s, sums, l.step, KILN_SCOPE_LOCAL));
  KILN_TRY(kiln_quad_layout_sums(&x.q, hidden, x.chunk));
  KILN_TRY(multiply(&x, &l));
  KILN_TRY(kiln_quad_run_nest(&x.q, loop_of(&x, x.f.x, "init.", "m")));
  KILN_TRY(kiln_quad_run_nest(&x.q, loop_of(&x, p->a, "", "m")));
  KILN_TRY(kiln_quad_run_nest(&x.q, loop_of(&x, p->t, "init.", "m")));
  KILN_TRY(kiln_quad_run_nest(&x.q, l.y_m));
  return kiln_bind(&w->s, block, KILN_BLOCK_X);
}

// A block alone is bound by latency; where a multiprocessor has several, they share its tensor
// cores, its L2 bandwidth for weights, which each warp reads, and its arithmetic on hidden
// elements. Measured on an H200, 46 candidates with a GELU between: within 25 %, most within 10.
static double time_of(const b2b *x) {
  static const double BEGIN_END_NS = 1900, CHUNK_NS[] = {325, 835}, FLOPS_SHARE[] = {0.4, 0.8},
                      READ_SHARE = 0.5, HIDDEN_NS = 0.022, FEW_WARPS = 6;
  const kiln_device *d = x->w->m->device;
  const kiln_product *p = &x->f.p;
  const double rows = (double)x->q.rows, k = (double)p->k, both = (double)(x->f.depth + p->n),
               share = FLOPS_SHARE[x->q.by_warpgroups], warps = (double)(x->threads / WARP),
               read = x->q.by_warpgroups
                          ? 0
                          : READ_SHARE * warps * 2 * k * both / kiln_gpu_shared(d)->unit_bytes_ns,
               multiply = 2 * rows * k * both / (share * d->unit_flops_ns[KILN_PEAK_BF16]) + read,
               alone = BEGIN_END_NS + k / (double)x->chunk * CHUNK_NS[x->q.by_warpgroups] +
                       multiply * fmax(1, FEW_WARPS / warps),
               each = kiln_gpu_each(x->w, ceil((double)p->m / rows)),
               more =
                   kiln_product_more_loads_ns(x->w, p->a, x->f.x, each * rows * k, false) +
                   kiln_product_more_loads_ns(x->w, p->y, p->t, each * rows * (double)p->n, false);
  const kiln_gpu_rounds r = {.each = each,
                             .resident = each, // what further rounds take is in |turn|
                             .alone = alone,
                             .turn = multiply + 2 * k * both / d->levels[1].unit_bytes_ns +
                                     HIDDEN_NS * rows * k};
  return kiln_gpu_rounds_ns(x->w, &r) + more;
}

static kiln_status propose_b2b_gemm(kiln_lowering *w, kiln_tile_candidates *out) {
  b2b x = {.w = w};
  if (!kiln_b2b_gemm_is(w->p, &x.f)) return KILN_OK;
  for (int i = 0; i < (int)KILN_LEN(shapes); i++) {
    if (!describe(&x, w, i)) continue;
    kiln_tile_candidate one = {
        .tiling = {.variant = i,
                   .block = {x.q.rows, x.f.p.n},
                   .form = kiln_arena_printf(&w->cx->perm, "%s of %d rows, chunks of %d",
                                             x.q.by_warpgroups ? "groups" : "warps", (int)x.q.warp,
                                             (int)x.chunk)}};
    one.cost.ns = time_of(&x);
    KILN_VEC_PUSH(w->proposed, out, one);
  }
  return KILN_OK;
}

const kiln_template kiln_template_gpu_b2b_gemm = {.name = "b2b_gemm",
                                                  .was = "mlps",
                                                  .has_grids = true,
                                                  .kinds = 1u << KILN_GROUP_FUSED_LAYERS,
                                                  .match = kiln_b2b_gemm_make,
                                                  .unites = true,
                                                  .propose = propose_b2b_gemm,
                                                  .lower = lower_b2b_gemm};
