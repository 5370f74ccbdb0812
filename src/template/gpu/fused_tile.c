// Proposes tilings of fused tiles: how many rows a block has, and how its threads share them.
#include "template/gpu/fused_tile.h"

#include "support/integer.h"
#include "template/gpu/grid.h"

#include <math.h>

enum { WARP = KILN_FUSED_WARP, RESERVED = 1024, MAX_REGISTERS = 96, OTHER_REGISTERS = 40 };

// Warps along rows and columns.
static const struct {
  int64_t m, n;
} warps[] = {{4, 1}, {8, 1}, {2, 2}, {4, 2}, {2, 4}, {1, 4}, {1, 8}};
static const int64_t thread_rows[] = {8, 4, 2}, lanes[] = {8, 16}, step_sizes[] = {16, 8, 32};
enum {
  N_ROWS = (int)KILN_LEN(thread_rows),
  N_LANES = (int)KILN_LEN(lanes),
  N_STEPS = (int)KILN_LEN(step_sizes),
  N_VARIANTS = (int)KILN_LEN(warps) * N_ROWS * N_LANES * N_STEPS
};

static kiln_fused_shape shape_of(bool by_mma, int variant) {
  const int w = variant / (N_ROWS * N_LANES * N_STEPS);
  const int64_t tiles = thread_rows[variant / (N_STEPS * N_LANES) % N_ROWS] / 2;
  kiln_fused_shape s = {.step = step_sizes[variant % N_STEPS],
                        .lanes_n = lanes[variant / N_STEPS % N_LANES],
                        .by_mma = by_mma,
                        .warps = {warps[w].m, warps[w].n},
                        .depth = 1};
  s.rows = s.warps[0] * (by_mma ? KILN_MMA_M * tiles : 2 * tiles * (WARP / s.lanes_n));
  return s;
}

// --- what a block has ---

static bool is_tile(const kiln_fused_statement *t) {
  return t->nest == KILN_NEST_SUMS || t->nest == KILN_NEST_TILE;
}

// A result by row alone is one column.
static int64_t columns_of(const kiln_fused *x, const kiln_stmt *s) {
  const int d = x->f.n_batch + 1;
  return kiln_fused_columns(&x->s, d < s->n_space ? kiln_dim_extent(&s->dims[d]) : 1);
}

static double bytes_of(const kiln_fused *x, const kiln_stmt *s) {
  return kiln_dtype_bytes(x->w->p->tensors.data[s->out]->dtype);
}

// Elements of the widest tile of a block.
static int64_t widest(const kiln_fused *x) {
  int64_t most = 0;
  for (int i = 0; i < x->f.n; i++)
    if (is_tile(&x->f.all[i]) && columns_of(x, x->f.all[i].s) > most)
      most = columns_of(x, x->f.all[i].s);
  return most * x->s.rows;
}

// Bytes of a step's operands of product |t| in shared memory.
static double step_bytes(const kiln_fused *x, const kiln_fused_statement *t) {
  const kiln_stmt *a = x->f.all[t->left].s, *b = x->f.all[t->right].s;
  const double columns = (double)(columns_of(x, t->s) + 4), step = (double)x->s.step;
  const double left = x->f.all[t->left].nest == KILN_NEST_OPERAND
                          ? (double)x->s.rows * (step + 4) * bytes_of(x, a)
                          : 0;
  return left + step * columns * bytes_of(x, b);
}

typedef struct demand {
  double shared, registers, blocks, resident, each;
} demand;

// Bytes of a block's shared memory.
static double shared_of(const kiln_fused *x) {
  double operands = 0, kept = 0;
  for (int i = 0; i < x->f.n; i++) {
    const kiln_fused_statement *t = &x->f.all[i];
    const double rows = (double)x->s.rows;
    if (t->nest == KILN_NEST_SUMS) operands = fmax(operands, x->s.depth * step_bytes(x, t));
    if (t->nest == KILN_NEST_REDUCED)
      operands = fmax(operands, 4 * rows * (double)(x->s.warps[1] * x->s.lanes_n + 1));
    if (t->nest == KILN_NEST_REDUCED || t->nest == KILN_NEST_BY_ROW) kept += 4 * rows;
  }
  return operands + kept + RESERVED;
}

// Stages for as many steps as half of the shared memory holds, where copies are not waited for.
static void find_depth(kiln_fused *x) {
  enum { ASYNC = 80, MOST = 4 };
  int64_t steps = MOST + 1;
  for (int i = 0; i < x->f.n; i++) {
    const kiln_stmt *s = x->f.all[i].s;
    if (x->f.all[i].nest == KILN_NEST_SUMS)
      steps = kiln_min_i64(steps, kiln_divide_up(kiln_dim_extent(&s->dims[s->n_space]), x->s.step));
  }
  const int64_t ahead = steps > 2 ? steps - 1 : steps; // see target/gpu/pipeline.c
  x->s.depth = x->w->m->gpu.capability < ASYNC ? 1 : (int)kiln_min_i64(ahead, MOST);
  while (x->s.depth > 1 && 2 * shared_of(x) > (double)x->w->m->gpu.shared_bytes) x->s.depth--;
}

static demand demand_of(const kiln_fused *x) {
  const kiln_gpu *g = &x->w->m->gpu;
  const double threads = (double)(kiln_fused_warps(&x->s) * WARP);
  demand d = {.registers = (double)widest(x) / threads, .shared = shared_of(x)};
  d.blocks = ceil((double)x->f.m / (double)x->s.rows) * (double)x->f.batch;
  d.each = ceil(d.blocks / x->w->m->device->n_units);
  d.resident = fmin(floor(g->max_resident / threads),
                    floor(((double)g->shared_bytes + RESERVED) / d.shared));
  if (g->registers)
    d.resident = fmin(
        d.resident, floor((double)g->registers / (threads * (2 * d.registers + OTHER_REGISTERS))));
  return d;
}

// --- the price ---

// The products of a block: their instructions, one block alone; and what they copy from the L2.
typedef struct products {
  double multiply_ns, steps, copied;
} products;

static products products_of(const kiln_fused *x) {
  static const double SHARE[] = {0.6, 0.28}; // of the peak: multiply-adds, matrix instructions
  const kiln_device *d = x->w->m->device;
  const double peak = d->unit_flops_ns[x->s.by_mma ? KILN_PEAK_BF16 : KILN_PEAK_F32];
  products all = {0};
  for (int i = 0; i < x->f.n; i++) {
    const kiln_fused_statement *t = &x->f.all[i];
    if (t->nest != KILN_NEST_SUMS) continue;
    const double k = (double)kiln_dim_extent(&t->s->dims[t->s->n_space]),
                 steps = ceil(k / (double)x->s.step),
                 elems = (double)(x->s.rows * columns_of(x, t->s));
    all.multiply_ns += 2 * elems * k / (SHARE[x->s.by_mma] * peak);
    all.steps += steps;
    all.copied += steps * step_bytes(x, t);
  }
  return all;
}

// Elements of a block that maps and reductions visit, all passes together.
static double visits_of(const kiln_fused *x) {
  double n = 0;
  for (int i = 0; i < x->f.n; i++) {
    const kiln_fused_statement *t = &x->f.all[i];
    if (t->nest == KILN_NEST_TILE || t->nest == KILN_NEST_RESULT || t->nest == KILN_NEST_REDUCED)
      n += (double)(x->s.rows * columns_of(x, t->s));
  }
  return n;
}

static double meetings_of(const kiln_fused *x) {
  double n = 0;
  for (int i = 0; i < x->f.n; i++) n += x->f.all[i].nest == KILN_NEST_REDUCED;
  return n;
}

// A block alone is bound by latency: of its steps, its threads' passes over their elements, and the
// meetings of its reductions. Where a multiprocessor has several, they are bound by its arithmetic,
// or by memory.
static double time_of(const kiln_fused *x, const demand *d) {
  static const double BEGIN_END_NS = 1200, STEP_NS = 300, HELD_NS = 9, MEET_NS = 500,
                      ELEMENT_NS = 0.03, AGAIN = 0.3;
  const kiln_device *dev = x->w->m->device;
  const products p = products_of(x);
  const double visits = visits_of(x), threads = (double)(kiln_fused_warps(&x->s) * WARP),
               waits = p.steps * (STEP_NS + (x->s.depth < 3 ? dev->levels[0].latency_ns : 0)),
               alone = BEGIN_END_NS + waits + p.multiply_ns + HELD_NS * visits / threads +
                       MEET_NS * meetings_of(x),
               turn = p.multiply_ns + p.copied / dev->levels[1].unit_bytes_ns,
               rounds = fmax(1, d->each / d->resident),
               memory = kiln_gpu_param_bytes(x->w) / dev->levels[0].all_bytes_ns;
  return dev->launch_ns + alone * (1 + AGAIN * (rounds - 1)) +
         fmax(memory, (d->each - 1) * fmax(ELEMENT_NS * visits, turn));
}

// --- candidates ---

// Whether a matrix instruction takes the types of each product, whose operands are in memory.
static bool by_mma(const kiln_fused *x) {
  bool all = true;
  for (int i = 0; i < x->f.n; i++) {
    if (x->f.all[i].nest != KILN_NEST_SUMS) continue;
    const kiln_product p = kiln_fused_product(x, &x->f.all[i]);
    all &= kiln_mma_type_of(x->w, &p) && x->f.all[x->f.all[i].left].nest == KILN_NEST_OPERAND;
  }
  return all;
}

static bool describe(kiln_fused *x, int variant) {
  x->s = shape_of(by_mma(x), variant);
  if (x->s.by_mma && (x->s.lanes_n != lanes[0] || x->s.step < KILN_PRODUCT_STEP)) return false;
  kiln_layout l;
  for (int i = 0; i < x->f.n; i++)
    if (is_tile(&x->f.all[i]) &&
        !kiln_fused_layout(x, kiln_dim_extent(&x->f.all[i].s->dims[x->f.n_batch + 1]), &l))
      return false;
  find_depth(x);
  const demand d = demand_of(x);
  return x->s.rows <= x->f.m && d.registers <= MAX_REGISTERS && d.registers >= 4 &&
         d.resident >= 1 && kiln_fused_warps(&x->s) * WARP <= x->w->m->gpu.max_threads;
}

static kiln_tiling tiling_of(const kiln_fused *x, int variant) {
  kiln_tiling t = {.variant = variant};
  for (int d = 0; d < x->f.n_batch; d++) t.block[d] = 1;
  t.block[x->f.n_batch] = x->s.rows;
  t.form = kiln_arena_printf(&x->w->cx->perm, "%d x %d warps, %d steps of %d", (int)x->s.warps[0],
                             (int)x->s.warps[1], x->s.depth, (int)x->s.step);
  return t;
}

static kiln_status propose_fused_tile(kiln_lowering *w, kiln_tile_candidates *out) {
  static const double NEAR = 1.5;
  kiln_fused x = {.w = w};
  double ns[N_VARIANTS], least = INFINITY;
  if (!w->m->device || !kiln_fused_tile_is(w->cx, w->p, &x.f)) return KILN_OK;
  for (int i = 0; i < N_VARIANTS; i++) {
    ns[i] = INFINITY;
    if (!describe(&x, i)) continue;
    const demand d = demand_of(&x);
    ns[i] = time_of(&x, &d);
    least = fmin(least, ns[i]);
  }
  for (int i = 0; i < N_VARIANTS; i++) {
    if (!isfinite(ns[i]) || ns[i] > NEAR * least || !describe(&x, i)) continue;
    kiln_tile_candidate one = {.tiling = tiling_of(&x, i)};
    one.cost.ns = ns[i];
    KILN_VEC_PUSH(w->proposed, out, one);
  }
  return KILN_OK;
}

static kiln_status lower_fused_tile(kiln_lowering *w, const kiln_tiling *t) {
  kiln_fused x = {.w = w};
  if (!kiln_fused_tile_is(w->cx, w->p, &x.f) || !describe(&x, t->variant)) return KILN_INTERNAL;
  return kiln_fused_lower(&x);
}

const kiln_template kiln_template_gpu_fused_tile = {.name = "fused_tile",
                                                    .has_grids = true,
                                                    .kinds = 1u << KILN_GROUP_FUSED_LAYERS,
                                                    .match = kiln_fused_tile_make,
                                                    .unites = true,
                                                    .propose = propose_fused_tile,
                                                    .lower = lower_fused_tile};
