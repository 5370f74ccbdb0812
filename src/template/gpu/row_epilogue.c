// GEMM with a row-wise epilogue (strip.h): a block multiplies whole rows of the product, each
// warp or warp group its own, and runs the epilogue on the sums in registers. For a row's reduction
// each lane reduces its own columns first, and the four lanes of a quad exchange one number
// (quad_reduce.h). Results are stored by way of shared memory, in whole words.
#include "template/gpu/mma.h"

#include "support/integer.h"
#include "template/gpu/quad_reduce.h"
#include "template/form/row_epilogue.h"
#include "template/gpu/warpgroup.h"
#include "template/gpu/wgmma.h"

#include <math.h>

enum {
  WARP = KILN_MMA_WARP,
  OTHER_REGISTERS = 84, // of a thread, beside its sums,
  OF_GROUPS = 40,       // and of one of a warp group
  MAX_SUMS = 128,       // registers of a thread
  MAX_DEPTH = 4,        // steps whose operands are in shared memory or in flight
  MAX_BATCH = 3         // dims in front of the layout of sums
};

static const struct {
  int64_t m, warp_m;
} tiles[] = {{128, 32}, {128, 16}, {64, 32}, {64, 16}, {32, 16}};
static const int64_t k_steps[] = {96, 64, 48, 32, 16}, group_rows[] = {128, 64};
enum {
  N_STEPS = (int)KILN_LEN(k_steps),
  BY_GROUPS = (int)KILN_LEN(tiles) * N_STEPS, // the first variant by warp groups
  N_VARIANTS = BY_GROUPS + (int)KILN_LEN(group_rows)
};

static kiln_mma_shape shape_of(const kiln_row_epilogue *f, int variant) {
  const int tile = variant / N_STEPS;
  if (variant >= BY_GROUPS)
    return (kiln_mma_shape){.m = group_rows[variant - BY_GROUPS],
                            .n = f->p.n,
                            .k = KILN_WGMMA_STEP,
                            .warp_m = KILN_WARPGROUP_ROWS,
                            .warp_n = f->p.n,
                            .slice_k = 1};
  return (kiln_mma_shape){.m = tiles[tile].m,
                          .n = f->p.n,
                          .k = k_steps[variant % N_STEPS],
                          .warp_m = tiles[tile].warp_m,
                          .warp_n = f->p.n,
                          .slice_k = 1};
}

typedef struct epilogue {
  kiln_lowering *w;
  kiln_row_epilogue f;
  kiln_mma_shape s; // a warp group is a warp to it
  kiln_quad_tile q;
} epilogue;

static int64_t width_of(const epilogue *x) { return x->q.by_warpgroups ? KILN_WARPGROUP : WARP; }
static int64_t threads_of(const epilogue *x) { return x->s.m / x->s.warp_m * width_of(x); }

// --- blocks ---

static bool is_result(const epilogue *x, const kiln_stmt *s) {
  return x->w->p->tensors.data[s->out]->role == KILN_OUTPUT;
}

// All results in one loop over blocks, which compute a strip each.
static kiln_status cut_results(epilogue *x, kiln_symbol *out_block) {
  *out_block = 0;
  for (int i = 0; i < x->f.n; i++) {
    kiln_symbol block;
    if (!is_result(x, x->f.stmts[i])) continue;
    KILN_TRY(kiln_product_result(x->w, &x->f.p, x->f.stmts[i], x->s.m, x->s.n, threads_of(x),
                                 width_of(x), &block));
    if (*out_block) KILN_TRY(kiln_merge(&x->w->s, *out_block, block, 0));
    else *out_block = block;
  }
  return KILN_OK;
}

// Computes all statements between the sums and the results in the block's registers.
static kiln_status place(epilogue *x, kiln_symbol block) {
  for (int i = x->f.n - 1; i >= 0; i--) {
    const kiln_stmt *s = x->f.stmts[i];
    const kiln_symbol buffer = kiln_product_tensor(x->w, s);
    if (is_result(x, s)) continue;
    KILN_TRY(kiln_compute_at(&x->w->s, buffer, block, KILN_SCOPE_LOCAL));
    KILN_TRY(x->f.nests[i] == KILN_NEST_ELEMENTS ? kiln_quad_layout_sums(&x->q, buffer, x->s.n)
                                                 : kiln_quad_layout_rows(&x->q, buffer));
  }
  return KILN_OK;
}

// --- candidates ---

static int64_t bytes_of_results(const epilogue *x) {
  int64_t most = 0;
  for (int i = 0; i < x->f.n; i++) {
    const kiln_stmt *s = x->f.stmts[i];
    const int64_t bytes =
        x->s.m * (x->s.n * kiln_dtype_bytes(x->w->p->tensors.data[s->out]->dtype) + 16);
    if (is_result(x, s) && bytes > most) most = bytes;
  }
  return most;
}

static kiln_gpu_occupancy occupancy_of(const epilogue *x) {
  const kiln_mma_shape *s = &x->s;
  const int64_t depth = kiln_gpu_depth(x->f.p.k / s->k, MAX_DEPTH),
                step = 2 * (s->m * (s->k + KILN_MMA_PAD) + s->k * (s->n + KILN_MMA_PAD)),
                bytes = kiln_max_i64(depth * step, bytes_of_results(x));
  const kiln_gpu_block one = {.threads = threads_of(x),
                              .registers = s->warp_m * s->warp_n / width_of(x) +
                                           (x->q.by_warpgroups ? OF_GROUPS : OTHER_REGISTERS),
                              .shared_bytes = x->q.by_warpgroups ? 0 : bytes};
  const double blocks = ceil((double)x->f.p.m / (double)s->m) * (double)x->f.p.batch;
  kiln_gpu_occupancy o = {.blocks = blocks,
                          .each = kiln_gpu_each(x->w, blocks),
                          .resident = kiln_gpu_resident(&x->w->m->gpu, &one),
                          .depth = (int)depth};
  if (x->q.by_warpgroups)
    o.resident = kiln_min_i64(o.resident, kiln_wgmma_resident(x->w, &x->f.p, s->m, s->n));
  return o;
}

static bool describe(epilogue *x, kiln_lowering *w, int variant) {
  x->w = w;
  x->s = shape_of(&x->f, variant);
  x->q = (kiln_quad_tile){w, x->f.p.n_batch, x->s.m, x->s.warp_m, variant >= BY_GROUPS};
  if (x->s.m > x->f.p.m || x->f.p.n_batch > MAX_BATCH ||
      x->s.warp_m * x->s.warp_n / width_of(x) > MAX_SUMS)
    return false;
  if (x->q.by_warpgroups && (!kiln_wgmma_takes(w, &x->f.p) || x->s.n % KILN_WARPGROUP_LINE))
    return false;
  return (x->q.by_warpgroups || x->f.p.k % x->s.k == 0) && occupancy_of(x).resident > 0;
}

// The sums, in fragments of warps or of warp groups.
static kiln_status multiply(epilogue *x, kiln_symbol block) {
  kiln_mma m = {.w = x->w, .s = &x->s, .p = x->f.p, .sums = kiln_product_tensor(x->w, x->f.p.t)};
  if (x->q.by_warpgroups) return kiln_wgmma_multiply(x->w, &x->f.p, x->s.m, x->s.n, block, &m.l);
  kiln_mma_find(&m);
  m.steps = m.p.k / x->s.k;
  m.depth = occupancy_of(x).depth;
  KILN_TRY(kiln_product_sums(x->w, &x->f.p, x->s.k, block, &m.l));
  return kiln_mma_multiply(&m);
}

static kiln_status lower_row_epilogue(kiln_lowering *w, const kiln_tiling *t) {
  epilogue x = {.w = w};
  kiln_symbol block;
  if (!kiln_row_epilogue_is(w->p, &x.f) || !describe(&x, w, t->variant)) return KILN_INTERNAL;
  if (x.q.by_warpgroups) KILN_TRY(kiln_product_pad(w, &x.f.p, KILN_WGMMA_STEP));
  KILN_TRY(kiln_product_pack(w, &x.f.p));
  KILN_TRY(cut_results(&x, &block));
  KILN_TRY(place(&x, block));
  KILN_TRY(multiply(&x, block));
  KILN_TRY(kiln_quad_run_nest(&x.q, kiln_product_loop(w, x.f.p.t, "init.", "m")));
  for (int i = 0; i < x.f.n; i++) KILN_TRY(kiln_quad_run(&x.q, x.f.nests[i], x.f.stmts[i]));
  return kiln_bind(&w->s, block, KILN_BLOCK_X);
}

// Statements that run over all elements of a strip.
static double passes_of(const epilogue *x) {
  double n = 0;
  for (int i = 0; i < x->f.n; i++)
    n += x->f.nests[i] == KILN_NEST_ELEMENTS || x->f.nests[i] == KILN_NEST_PARTS;
  return n;
}

// A block alone is bound by latency: of its operands' copies, of its steps, and of its threads'
// passes over their sums. Where a multiprocessor has several, they are bound by its arithmetic, or
// by memory. Measured on an H200, within 25 %, most within 12.
static double time_of(const epilogue *x, const kiln_gpu_occupancy *o) {
  static const double BEGIN_END_NS = 1200, STEP_NS[] = {300, 100},
                      FLOPS_SHARE[] = {0.28, 0.78}, // warps, groups
      HELD_NS[] = {9, 6}, ELEMENT_NS = 0.03, AGAIN = 0.3;
  const kiln_device *d = x->w->m->device;
  const kiln_mma_shape *s = &x->s;
  const double k = (double)x->f.p.k, elems = (double)(s->m * s->n) * passes_of(x),
               share = FLOPS_SHARE[x->q.by_warpgroups],
               multiply =
                   2 * (double)(s->m * s->n) * k / (share * d->unit_flops_ns[KILN_PEAK_BF16]),
               steps = ceil(k / (double)s->k) * STEP_NS[x->q.by_warpgroups],
               copied = 2 * (double)(s->m + s->n) * k / d->levels[1].unit_bytes_ns;
  const kiln_gpu_rounds r = {.each = o->each,
                             .resident = (double)o->resident,
                             .alone = BEGIN_END_NS + steps + multiply +
                                      HELD_NS[x->q.by_warpgroups] * elems / (double)threads_of(x),
                             .again = AGAIN,
                             .turn = fmax(ELEMENT_NS * elems, multiply + copied)};
  return kiln_gpu_rounds_ns(x->w, &r);
}

// The tiling that |kiln explain| shows for a candidate.
static kiln_tiling tiling_of(const epilogue *x, int variant) {
  kiln_tiling t = {.variant = variant};
  for (int d = 0; d < x->f.p.n_batch; d++) t.block[d] = 1;
  t.block[x->f.p.n_batch] = x->s.m, t.block[x->f.p.n_batch + 1] = x->s.n;
  t.form = kiln_arena_printf(&x->w->cx->perm, "%s of %" PRId64 " rows",
                             x->q.by_warpgroups ? "groups" : "warps", x->s.warp_m);
  return t;
}

static kiln_status propose_row_epilogue(kiln_lowering *w, kiln_tile_candidates *out) {
  epilogue x = {.w = w};
  if (!kiln_row_epilogue_is(w->p, &x.f) || !kiln_mma_takes(w, &x.f.p)) return KILN_OK;
  for (int i = 0; i < N_VARIANTS; i++) {
    if (!describe(&x, w, i)) continue;
    const kiln_gpu_occupancy o = occupancy_of(&x);
    kiln_tile_candidate one = {.tiling = tiling_of(&x, i)};
    one.cost.ns = time_of(&x, &o);
    KILN_VEC_PUSH(w->proposed, out, one);
  }
  return KILN_OK;
}

const kiln_template kiln_template_gpu_row_epilogue = {.name = "row_epilogue",
                                                      .was = "strips",
                                                      .has_grids = true,
                                                      .kinds = 1u << KILN_GROUP_FUSED_LAYERS,
                                                      .match = kiln_row_epilogue_make,
                                                      .unites = true,
                                                      .propose = propose_row_epilogue,
                                                      .lower = lower_row_epilogue};
