// Matrix products on tensor cores by instructions of warp groups, 128 threads (sm_90a): a block computes a tile of the
// result, each of its groups some rows of it. The operands of a step along k lie in shared memory, swizzled as the
// instruction wants them, and are filled some steps ahead; the instructions of a step go on while the threads prepare
// the next one. Results go through shared memory, so that whole words reach their rows. Where there are few tiles, the
// reduction is split, and each split is a block of its own (gpu_splits.h).
#include "tile/gpu_splits.h"
#include "tile/gpu_warps.h"

#include <math.h>
#include <string.h>

enum {
  GROUP = KILN_WARPS,
  ROWS = KILN_WARPS_ROWS,
  STEP = 64,
  INSTR_K = 16,
  LINE = KILN_WARPS_LINE,
  WORD = 16
};

// A block's tile and a group's rows.
typedef struct shape {
  int64_t m, n, group_m;
} shape;

static const shape shapes[] = {{256, 128, 64}, {128, 256, 64}, {256, 128, 128}, {128, 192, 64},
                               {128, 128, 64}, {64, 256, 64},  {64, 192, 64},   {128, 64, 64},
                               {64, 128, 64},  {64, 64, 64}};

static const int64_t split_counts[] = {1, 2, 3, 4, 6, 8};
enum { N_SHAPES = (int)KILN_LEN(shapes), N_VARIANTS = N_SHAPES * (int)KILN_LEN(split_counts) };

// How many steps' operands a block holds, how many steps ahead they are asked for, and how many blocks run at once on a
// multiprocessor; .depth 0: none does.
typedef struct slots {
  int depth, ahead;
  int64_t resident;
} slots;

typedef struct wgmma {
  kiln_lowering *w;
  kiln_product p;
  kiln_product_loops l;
  shape s;
  int64_t splits;
  kiln_symbol sums; // (.., m, n), or, of a split, (.., m, n, 1)
  int64_t threads;
  slots slots;
} wgmma;

static int64_t threads_of(const shape *s) { return s->m / s->group_m * GROUP; }

static kiln_dtype dtype_of(const kiln_lowering *w, const kiln_stmt *s) {
  return w->p->tensors.data[s->out]->dtype;
}

// The sums as (part, .., m, n), where a split has parts of its own, and then as groups hold them.
static kiln_status deal_sums(wgmma *g) {
  kiln_stage_axis axes[KILN_MAX_RANK + 3];
  const bool is_part = g->splits > 1;
  const int n = g->p.n_batch;
  (void)kiln_axes_lead(axes, n);
  if (is_part) {
    axes[n] = kiln_axis_whole(n + 2), axes[n + 1] = kiln_axis_whole(n);
    axes[n + 2] = kiln_axis_whole(n + 1);
    KILN_TRY(kiln_transform_layout(&g->w->s, g->sums, n + 3, axes));
  }
  return kiln_warps_sums(g->w, g->sums, n + is_part, g->s.group_m);
}

// --- operands ---

// Whether neighbours along k lie side by side.
static bool has_k_inside(const kiln_lowering *w, const kiln_product *p, const kiln_stmt *operand) {
  int64_t strides[KILN_MAX_RANK];
  int tensor = 0;
  const int k = operand->n_space - (operand == p->a ? 1 : 2);
  if (kiln_product_is_packed(w, operand) ||
      !kiln_product_reads(w->cx, w->p, operand, &tensor, strides))
    return operand == p->a;
  return strides[k] == 1;
}

// Whether boxes can be copied: rows of neighbours, a multiple of 16 bytes apart.
static bool comes_in_boxes(const kiln_lowering *w, const kiln_stmt *operand) {
  enum { WORD_ELEMS = 8 };
  int64_t strides[KILN_MAX_RANK];
  int tensor = 0;
  const int n = operand->n_space;
  if (kiln_product_is_packed(w, operand))
    return kiln_dim_extent(&operand->dims[n - 1]) % WORD_ELEMS == 0;
  if (!kiln_product_reads(w->cx, w->p, operand, &tensor, strides)) return false;
  const int inside = strides[n - 1] == 1 ? n - 1 : n - 2;
  const int64_t pitch = strides[inside == n - 1 ? n - 2 : n - 1];
  bool are_rows = strides[inside] == 1 && pitch % WORD_ELEMS == 0 &&
                  pitch >= kiln_dim_extent(&operand->dims[inside]);
  for (int d = 0; d + 2 < n; d++)
    are_rows &= strides[d] % pitch == 0 || kiln_dim_extent(&operand->dims[d]) == 1;
  return are_rows;
}

// Whether an operand comes in boxes, in a block's tiles of |tile| rows or columns of |extent|: those of splits are padded, of
// which boxes do not know.
static bool fits_boxes(const kiln_lowering *w, const kiln_stmt *operand, int64_t splits,
                       int64_t extent, int64_t tile) {
  return comes_in_boxes(w, operand) && (splits == 1 || extent % tile == 0);
}

static const char *type_of(const wgmma *g) {
  return dtype_of(g->w, g->p.a) == KILN_F16 ? "f16" : "bf16";
}

// How an operand comes to shared memory.
static kiln_warps_tile tile_of(const wgmma *g, const kiln_stmt *s) {
  const bool is_a = s == g->p.a;
  return (kiln_warps_tile){
      .s = s,
      .inside = has_k_inside(g->w, &g->p, s) == is_a,
      .in_boxes = fits_boxes(g->w, s, g->splits, is_a ? g->p.m : g->p.n, is_a ? g->s.m : g->s.n)};
}

static kiln_status multiply(wgmma *g) {
  kiln_schedule *s = &g->w->s;
  kiln_symbol row = g->l.m, column = g->l.n, k = g->l.k, group, part, lines = 0, sixteen;
  kiln_warps_tile a = tile_of(g, g->p.a), b = tile_of(g, g->p.b);
  const bool a_has_k = a.inside == 1, b_has_k = b.inside == 0;
  const char *name =
      kiln_arena_printf(&g->w->cx->scratch, "wgmma.m64n%" PRId64 "k16.%s.%s.%s", g->s.n, type_of(g),
                        a_has_k ? "row" : "col", b_has_k ? "col" : "row");
  KILN_TRY(kiln_warps_stage(g->w, &b, g->l.step, g->threads));
  KILN_TRY(kiln_warps_stage(g->w, &a, g->l.step, g->threads));
  KILN_TRY(kiln_gpu_cut(g->w, &row, g->s.group_m, "g", "i", &group));
  KILN_TRY(kiln_gpu_cut(g->w, &row, ROWS, "t", "r", &part));
  if (!b_has_k) KILN_TRY(kiln_gpu_cut(g->w, &column, LINE, "l", "c", &lines));
  KILN_TRY(kiln_gpu_cut(g->w, &k, INSTR_K, "t", "k", &sixteen));
  const kiln_symbol order[] = {
      group, sixteen, part, row, b_has_k ? column : lines, b_has_k ? k : column, k};
  KILN_TRY(kiln_reorder(s, b_has_k ? 6 : 7, order));
  KILN_TRY(deal_sums(g));
  KILN_TRY(kiln_warps_fill(g->w, &b, g->l.step, g->slots.depth, g->slots.ahead));
  KILN_TRY(kiln_warps_fill(g->w, &a, g->l.step, g->slots.depth, g->slots.ahead));
  KILN_TRY(kiln_tensorize(s, row, kiln_warps_instr(g->w, name)));
  KILN_TRY(kiln_bind(s, group, KILN_THREAD_Y));
  KILN_TRY(kiln_unroll(s, sixteen));
  return kiln_unroll(s, part);
}

static double blocks_of(const kiln_product *p, const shape *s, int64_t splits) {
  return ceil((double)p->m / (double)s->m) * ceil((double)p->n / (double)s->n) *
         (double)(p->batch * splits);
}

// Whether so many slots hold all steps, in boxes. Of constants it does not pay: blocks copy these beside the launch before
// them, if there is room for both.
static bool is_whole(const kiln_lowering *w, const kiln_product *p, const shape *s, int64_t splits,
                     int64_t n_slots) {
  enum { MAX_STEPS = 32 };
  const int64_t steps = p->k / splits / STEP;
  return n_slots >= steps && steps <= MAX_STEPS && fits_boxes(w, p->a, splits, p->m, s->m) &&
         fits_boxes(w, p->b, splits, p->n, s->n) && !kiln_product_is_packed(w, p->a) &&
         !kiln_product_is_packed(w, p->b);
}

// Where all steps fit all are on their way at once, and nothing is filled again; blocks that are alone on a multiprocessor
// may take all of its memory for it.
static slots slots_of(const kiln_lowering *w, const kiln_product *p, const shape *s,
                      int64_t splits) {
  enum { MAX_DEPTH = 6, OTHER_REGISTERS = 64, RESERVED = 1024, FEW = 3 };
  const kiln_gpu *g = &w->m->gpu;
  const int64_t bytes = 2 * STEP * (s->m + s->n), threads = threads_of(s),
                steps = p->k / splits / STEP,
                registers = s->group_m * s->n / GROUP + OTHER_REGISTERS;
  int64_t resident = g->registers / (threads * registers);
  if (resident > 2) resident = 2;
  while (resident > 1 && (g->shared_bytes - RESERVED) / resident / bytes < FEW) resident--;
  if (resident < 1) return (slots){0};
  int64_t depth = ((g->shared_bytes + RESERVED) / resident - RESERVED) / bytes;
  const bool is_alone = blocks_of(p, s, splits) <= w->m->device->n_units;
  if (is_whole(w, p, s, splits, is_alone ? g->shared_bytes / bytes : depth))
    return (slots){(int)steps, (int)steps, is_alone ? 1 : resident};
  if (depth > MAX_DEPTH) depth = MAX_DEPTH;
  if (depth > steps + 1) depth = steps + 1;
  return (slots){(int)depth,
                 depth > 2 ? (int)depth - 2 : 1, // a step's instructions may go on in the next
                 resident};
}

static kiln_status lower_whole(wgmma *g) {
  kiln_lowering *w = g->w;
  g->sums = kiln_product_tensor(w, g->p.t);
  KILN_TRY(kiln_product_blocks_shared(w, &g->p, g->s.m, g->s.n, STEP, g->threads, GROUP, &g->l));
  KILN_TRY(multiply(g));
  KILN_TRY(kiln_warps_elements(w, g->s.group_m, kiln_product_loop(w, g->p.t, "init.", "m"),
                               kiln_product_loop(w, g->p.t, "init.", "n")));
  KILN_TRY(kiln_warps_elements(w, g->s.group_m, g->l.y_m, g->l.y_n));
  return kiln_bind(&w->s, g->l.block, KILN_BLOCK_X);
}

// Blocks of splits store the sums of their part, which a second nest adds up.
static kiln_status lower_splits(wgmma *g) {
  kiln_lowering *w = g->w;
  const kiln_product *p = &g->p;
  const int n = p->n_batch;
  const char *name = kiln_symbol_text(w->cx, kiln_product_tensor(w, p->t)),
             *whole = kiln_arena_printf(&w->cx->scratch, "%s.all", name);
  const kiln_symbol all = kiln_symbol_of(w->cx, whole);
  kiln_symbol k = kiln_product_loop(w, p->t, "", "k"), split, loops[KILN_MAX_RANK + 1];
  g->sums = kiln_symbol_printf(w->cx, "%s.block", name);
  KILN_TRY(kiln_product_begin(w, p, &g->l));
  KILN_TRY(kiln_splits_pad(w, p, g->s.m, g->s.n));
  KILN_TRY(kiln_gpu_cut(g->w, &k, p->k / g->splits, "split", "part", &split));
  KILN_TRY(kiln_sums_factor(w, p, split, 0, k, all));
  KILN_TRY(kiln_cache_write(&w->s, all, g->sums, 0, NULL));
  KILN_TRY(kiln_split(&w->s, k, STEP, KILN_TAIL_EXACT, g->l.step, g->l.k));
  for (int d = 0; d < n + 3; d++)
    loops[d] = kiln_symbol_printf(w->cx, "%s.copy.%d", whole, d ? d - 1 : n + 2);
  KILN_TRY(kiln_reorder(&w->s, n + 3, loops));
  KILN_TRY(kiln_product_tile(w, n + 1, loops, g->s.m, g->s.n, &g->l));
  KILN_TRY(kiln_compute_at(&w->s, g->sums, g->l.block, KILN_SCOPE_LOCAL));
  KILN_TRY(kiln_reorder(&w->s, 4, (const kiln_symbol[]){g->l.step, g->l.m, g->l.n, g->l.k}));
  KILN_TRY(multiply(g));
  KILN_TRY(kiln_warps_elements(w, g->s.group_m, kiln_symbol_printf(w->cx, "%s.init.%d", whole, n),
                               kiln_symbol_printf(w->cx, "%s.init.%d", whole, n + 1)));
  KILN_TRY(kiln_warps_elements(w, g->s.group_m, g->l.y_m, g->l.y_n));
  KILN_TRY(kiln_splits_finish(w, p, all));
  return kiln_bind(&w->s, g->l.block, KILN_BLOCK_X);
}

static kiln_status lower_wgmma(kiln_lowering *w, const kiln_tiling *t) {
  wgmma g = {
      .w = w, .s = shapes[t->variant % N_SHAPES], .splits = split_counts[t->variant / N_SHAPES]};
  if (!kiln_product_is(w->p, &g.p)) return KILN_INTERNAL;
  g.threads = threads_of(&g.s);
  g.slots = slots_of(w, &g.p, &g.s, g.splits);
  return g.splits > 1 ? lower_splits(&g) : lower_whole(&g);
}

// --- candidates ---

// A multiprocessor's blocks take turns at its tensor cores and at shared memory, which is written once and read by each
// instruction. Where threads copy the rows, they do it less well, the fewer they are; where boxes do, four groups wait for
// each other. Measured on an H200.
static double time_of(const kiln_lowering *w, const kiln_product *p, const shape *s,
                      int64_t splits) {
  static const double BOXES = 0.78, BOXES_OF_FOUR = 0.70, MANY = 0.65, FEW = 0.58, STEP_NS = 20;
  const bool are_many = threads_of(s) > 2 * GROUP;
  const double share = comes_in_boxes(w, p->a) ? (are_many ? BOXES_OF_FOUR : BOXES)
                       : are_many              ? MANY
                                               : FEW;
  const kiln_device *d = w->m->device;
  const slots held = slots_of(w, p, s, splits);
  const double blocks = blocks_of(p, s, splits),
               begin_end = held.resident > 1          ? 3200 // ns of a block, or of two at once
                           : held.ahead == held.depth ? 2400 // of one that waits once
                                                      : 3600,
               each = ceil(blocks / d->n_units), steps = (double)(p->k / splits) / STEP,
               copied = 2.0 * (double)(s->m + s->n) * STEP,
               read = 2.0 * STEP * (double)s->m / ROWS * (double)(ROWS + s->n),
               flops = 2.0 * (double)(s->m * s->n) * STEP;
  const double step = fmax(flops / (share * d->unit_flops_ns[KILN_PEAK_BF16]),
                           (copied + read) / d->levels[2].unit_bytes_ns);
  return d->launch_ns + each * steps * (step + STEP_NS) +
         ceil(each / (double)held.resident) * begin_end +
         (splits > 1 ? kiln_splits_finish_ns(w, p, splits) : 0);
}

static bool may_split(const kiln_lowering *w, const kiln_product *p, const shape *s,
                      int64_t splits) {
  enum { MAX_BATCH = 2 };
  const double tiles =
      ceil((double)p->m / (double)s->m) * ceil((double)p->n / (double)s->n) * (double)p->batch;
  return p->n_batch <= MAX_BATCH && s->m < 2 * p->m && p->k % (splits * STEP) == 0 &&
         p->k / splits >= 2 * STEP && tiles < 2 * w->m->device->n_units &&
         kiln_splits_fit(w, p, s->m, s->n);
}

static kiln_status propose_wgmma(kiln_lowering *w, kiln_tile_candidates *out) {
  enum { MAX_BATCH = 3 }; // dims in front of the sums' layout
  kiln_product p;
  if (strcmp(w->m->gpu.arch, "sm_90a") || !kiln_product_is(w->p, &p)) return KILN_OK;
  const kiln_dtype t = dtype_of(w, p.a);
  if (!kiln_dtype_is_half(t) || dtype_of(w, p.b) != t || dtype_of(w, p.t) != KILN_F32 ||
      p.k % STEP || p.k < 2 * STEP || p.n_batch > MAX_BATCH)
    return KILN_OK;
  for (int i = 0; i < N_VARIANTS; i++) {
    const shape *s = &shapes[i % N_SHAPES];
    const int64_t splits = split_counts[i / N_SHAPES];
    if (s->n > p.n || (splits > 1 ? !may_split(w, &p, s, splits) : s->m > p.m) ||
        slots_of(w, &p, s, splits).depth < 2)
      continue;
    kiln_tile_candidate one = {.family = &kiln_family_gpu_wgmma, .tiling.variant = i};
    one.cost.ns = time_of(w, &p, s, splits);
    KILN_VEC_PUSH(w->proposed, out, one);
  }
  return KILN_OK;
}

const kiln_family kiln_family_gpu_wgmma = {"wgmma", propose_wgmma, lower_wgmma, .by_loops = false};
