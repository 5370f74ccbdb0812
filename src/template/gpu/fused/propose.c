// Proposes tilings of fused tiles: how many rows a block has, and how its threads share them.
#include "template/gpu/fused/tile.h"

#include <math.h>

enum { WARP = KILN_FUSED_WARP };

// Warps along rows and columns.
static const struct {
  int64_t m, n;
} warps[] = {{4, 1}, {8, 1}, {2, 2}, {4, 2}, {2, 4}, {1, 4}, {1, 8}};
static const int64_t thread_rows[] = {8, 4, 2}, lanes[] = {8, 16}, steps[] = {16, 8, 32},
                     chunks[] = {64, 32, 128};
enum {
  N_ROWS = (int)KILN_LEN(thread_rows),
  N_LANES = (int)KILN_LEN(lanes),
  N_STEPS = (int)KILN_LEN(steps),
  N_SHAPES = (int)KILN_LEN(warps) * N_ROWS * N_LANES * N_STEPS, // with the first chunk
  N_VARIANTS = N_SHAPES * (int)KILN_LEN(chunks)
};

static kiln_fused_shape shape_of(bool by_mma, int variant) {
  const int shape = variant % N_SHAPES, w = shape / (N_ROWS * N_LANES * N_STEPS);
  const int64_t tiles = thread_rows[shape / (N_STEPS * N_LANES) % N_ROWS] / 2;
  kiln_fused_shape s = {.step = steps[shape % N_STEPS],
                        .lanes_n = lanes[shape / N_STEPS % N_LANES],
                        .by_mma = by_mma,
                        .chunk = chunks[variant / N_SHAPES],
                        .warps = {warps[w].m, warps[w].n},
                        .depth = 1};
  s.rows = s.warps[0] * (by_mma ? KILN_MMA_M * tiles : 2 * tiles * (WARP / s.lanes_n));
  return s;
}

// Finds the matrix instructions that take the types of all products; they leave sums alike.
static void find_instrs(kiln_fused *x) {
  x->least_step = KILN_PRODUCT_STEP;
  for (int i = 0; i < x->f.n; i++) {
    if (x->f.all[i].nest != KILN_NEST_SUMS) continue;
    const kiln_product p = kiln_fused_product(x, &x->f.all[i]);
    const kiln_mma_type *t = kiln_mma_type_of(x->w, &p);
    x->instr = t ? kiln_gpu_instr_named(x->w, t->product) : NULL;
    if (!t) return;
    if (8 * t->per > x->least_step) x->least_step = 8 * t->per;
  }
}

static bool has_chunks(const kiln_fused *x) {
  for (int i = 0; i < x->f.n; i++)
    if (x->f.all[i].nest == KILN_NEST_SUMS &&
        kiln_fused_streams(x, kiln_fused_terms(x->f.all[i].s)->name))
      return true;
  return false;
}

// Whether a left factor that is computed ends with a step: behind it there are no zeros, which
// matrix instructions need.
static bool ends_with_steps(const kiln_fused *x) {
  for (int i = 0; i < x->f.n; i++) {
    const kiln_fused_statement *t = &x->f.all[i];
    if (t->nest != KILN_NEST_SUMS || x->f.all[t->left].nest == KILN_NEST_OPERAND) continue;
    const kiln_dim *terms = kiln_fused_terms(t->s);
    if (kiln_fused_padded(x, terms) != kiln_dim_extent(terms)) return false;
  }
  return true;
}

static bool has_layouts(const kiln_fused *x) {
  for (int i = 0; i < x->f.n; i++) {
    const kiln_fused_statement *t = &x->f.all[i];
    kiln_layout l;
    if (t->nest == KILN_NEST_OPERAND || !kiln_fused_has_columns(t)) continue;
    if (!kiln_fused_layout(x, kiln_fused_width(x, kiln_fused_columns(x, t->s)), &l)) return false;
  }
  return true;
}

static bool describe(kiln_fused *x, int variant) {
  x->s = shape_of(x->instr != NULL, variant);
  if (x->s.by_mma && (x->s.lanes_n != lanes[0] || x->s.step < x->least_step)) return false;
  if (variant >= N_SHAPES && !has_chunks(x)) return false;
  if (x->s.rows > x->f.m || !has_layouts(x) || (x->s.by_mma && !ends_with_steps(x))) return false;
  kiln_fused_find_depth(x);
  return true;
}

// The tiling that |kiln explain| shows for a candidate.
static kiln_tiling tiling_of(const kiln_fused *x, int variant) {
  kiln_tiling t = {.variant = variant};
  for (int d = 0; d < x->f.n_batch; d++) t.block[d] = 1;
  t.block[x->f.n_batch] = x->s.rows;
  t.form = kiln_arena_printf(&x->w->cx->perm, "%d x %d warps, %d steps of %d", (int)x->s.warps[0],
                             (int)x->s.warps[1], x->s.depth, (int)x->s.step);
  if (has_chunks(x))
    t.form = kiln_arena_printf(&x->w->cx->perm, "%s, chunks of %d", t.form, (int)x->s.chunk);
  return t;
}

// Of the many, those that may be the fastest.
static kiln_status propose_fused_tile(kiln_lowering *w, kiln_tile_candidates *out) {
  static const double NEAR = 1.5;
  kiln_fused x = {.w = w};
  double ns[N_VARIANTS], least = INFINITY;
  if (!w->m->device || !kiln_fused_tile_is(w->cx, w->p, &x.f)) return KILN_OK;
  find_instrs(&x);
  for (int i = 0; i < N_VARIANTS; i++) {
    ns[i] = describe(&x, i) ? kiln_fused_price(&x) : INFINITY;
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
  if (!kiln_fused_tile_is(w->cx, w->p, &x.f)) return KILN_INTERNAL;
  find_instrs(&x);
  if (!describe(&x, t->variant)) return KILN_INTERNAL;
  return kiln_fused_lower(&x);
}

const kiln_template kiln_template_gpu_fused_tile = {.name = "fused_tile",
                                                    .has_grids = true,
                                                    .kinds = 1u << KILN_GROUP_FUSED_LAYERS,
                                                    .match = kiln_fused_tile_make,
                                                    .unites = true,
                                                    .propose = propose_fused_tile,
                                                    .lower = lower_fused_tile};
