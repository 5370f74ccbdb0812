// GEMM with a normalization prologue (norm.h): a block copies whole rows to shared memory,
// reduces them (mean and variance, say), and computes the elements of its left operand from both,
// a step along k at a time. For short rows: each tile of the result's columns reads them anew.
#include "template/gpu/mma.h"

#include "support/integer.h"
#include "template/form/norm_prologue.h"
#include "template/gpu/quad_reduce.h"

#include <math.h>

enum { WARP = KILN_MMA_WARP, OTHER_REGISTERS = 84, MAX_DEPTH = 3 };

// Tiles, of so many warps that each reduces 16 or 32 rows of the block.
static const struct {
  int64_t m, n, warp_m, warp_n;
} tiles[] = {{128, 256, 64, 64}, {128, 192, 64, 48}, {128, 128, 64, 32}, {128, 96, 64, 48},
             {128, 64, 64, 32},  {64, 256, 32, 128}, {64, 192, 32, 96},  {64, 144, 16, 144},
             {64, 128, 32, 64},  {64, 96, 32, 48},   {64, 64, 32, 32},   {64, 32, 16, 32},
             {32, 128, 16, 128}, {32, 64, 16, 64},   {32, 32, 16, 32}};
static const int64_t k_steps[] = {96, 64, 48, 32, 16};
enum { N_STEPS = (int)KILN_LEN(k_steps), N_VARIANTS = (int)KILN_LEN(tiles) * N_STEPS };

typedef struct prologue {
  kiln_lowering *w;
  kiln_norm_prologue f;
  kiln_mma_shape s;
  kiln_quad_tile q;
  int depth;        // steps whose operands are in shared memory or in flight
  int64_t resident; // blocks of a multiprocessor that run at the same time
} prologue;

static int64_t bytes_of(const prologue *x) {
  const kiln_mma_shape *s = &x->s;
  const int64_t bytes = kiln_dtype_bytes(x->w->p->tensors.data[x->f.x->out]->dtype),
                row = (x->f.p.k + KILN_MMA_PAD) * bytes + 4 * KILN_QUAD * x->f.n_shared,
                step = 2 * (s->m * (s->k + KILN_MMA_PAD) + s->k * (s->n + KILN_MMA_PAD)),
                result =
                    s->m *
                    (s->n * kiln_dtype_bytes(x->w->p->tensors.data[x->f.p.y->out]->dtype) + 16),
                all = s->m * row + x->depth * step;
  return kiln_max_i64(all, result);
}

static bool describe(prologue *x, kiln_lowering *w, int variant) {
  const int tile = variant / N_STEPS;
  x->w = w;
  x->s = (kiln_mma_shape){.m = tiles[tile].m,
                          .n = tiles[tile].n,
                          .k = k_steps[variant % N_STEPS],
                          .warp_m = tiles[tile].warp_m,
                          .warp_n = tiles[tile].warp_n,
                          .slice_k = 1};
  const int64_t threads = kiln_mma_threads(&x->s);
  x->q = (kiln_quad_tile){w, 0, x->s.m, x->s.m * WARP / threads, false};
  x->depth = (int)kiln_gpu_depth(x->f.p.k / x->s.k, MAX_DEPTH);
  const kiln_gpu_block one = {threads, x->s.warp_m * x->s.warp_n / WARP + OTHER_REGISTERS,
                              bytes_of(x)};
  x->resident = kiln_gpu_resident(&w->m->gpu, &one);
  return x->s.m <= x->f.p.m && x->s.n <= x->f.p.n && x->f.p.k % x->s.k == 0 && x->resident > 0;
}

// Computes the rows' statistics in the block, and the elements that these are computed from.
static kiln_status place(prologue *x, kiln_symbol block, int64_t threads) {
  kiln_symbol buffer;
  for (int i = x->f.n - 1; i >= 0; i--) {
    const bool is_shared = i >= x->f.n - x->f.n_shared;
    const kiln_symbol rows = kiln_product_tensor(x->w, x->f.stmts[i]);
    KILN_TRY(
        kiln_compute_at(&x->w->s, rows, block, is_shared ? KILN_SCOPE_SHARED : KILN_SCOPE_LOCAL));
    if (!is_shared) KILN_TRY(kiln_quad_layout_rows(&x->q, rows));
  }
  return kiln_product_stage(x->w, x->f.x, false, KILN_MMA_PAD, block, threads, WARP, &buffer);
}

static kiln_status lower_norm_prologue(kiln_lowering *w, const kiln_tiling *t) {
  prologue x = {.w = w};
  if (!kiln_norm_prologue_is(w->p, &x.f) || !describe(&x, w, t->variant)) return KILN_INTERNAL;
  kiln_mma m = {.w = w, .s = &x.s, .p = x.f.p, .sums = kiln_product_tensor(w, x.f.p.t)};
  kiln_mma_find(&m);
  m.steps = m.p.k / x.s.k;
  m.depth = x.depth;
  KILN_TRY(kiln_product_blocks_shared(w, &m.p, x.s.m, x.s.n, x.s.k, m.threads, WARP, &m.l));
  KILN_TRY(kiln_mma_multiply(&m));
  KILN_TRY(place(&x, m.l.block, m.threads));
  for (int i = 0; i < x.f.n; i++) KILN_TRY(kiln_quad_run(&x.q, x.f.nests[i], x.f.stmts[i]));
  KILN_TRY(kiln_mma_elements(&m, 0, kiln_product_loop(w, m.p.t, "init.", "m")));
  KILN_TRY(kiln_mma_elements(&m, 0, m.l.y_m));
  return kiln_bind(&w->s, m.l.block, KILN_BLOCK_X);
}

// --- candidates ---

// As for row_epilogue.c: a block alone is bound by latency, several share the multiprocessor.
static double time_of(const prologue *x) {
  static const double BEGIN_END_NS = 4000, STEP_NS = 400, HELD_NS = 9, ELEMENT_NS = 0.03,
                      AGAIN = 0.3, FLOPS_SHARE = 0.28, FINISH = 2;
  const kiln_device *d = x->w->m->device;
  const kiln_mma_shape *s = &x->s;
  double passes = 2; // copied, and the operand's elements
  for (int i = 0; i < x->f.n; i++) passes += x->f.nests[i] == KILN_NEST_PARTS;
  const double k = (double)x->f.p.k, elems = (double)s->m * (passes * k + FINISH * (double)s->n),
               multiply =
                   2 * (double)(s->m * s->n) * k / (FLOPS_SHARE * d->unit_flops_ns[KILN_PEAK_BF16]),
               blocks =
                   ceil((double)x->f.p.m / (double)s->m) * ceil((double)x->f.p.n / (double)s->n);
  const kiln_gpu_rounds r = {.each = kiln_gpu_each(x->w, blocks),
                             .resident = (double)x->resident,
                             .alone = BEGIN_END_NS + k / (double)s->k * STEP_NS + multiply +
                                      HELD_NS * elems / (double)kiln_mma_threads(s),
                             .again = AGAIN,
                             .turn = ELEMENT_NS * elems + multiply};
  return kiln_gpu_rounds_ns(x->w, &r);
}

static kiln_status propose_norm_prologue(kiln_lowering *w, kiln_tile_candidates *out) {
  prologue x = {.w = w};
  if (!kiln_norm_prologue_is(w->p, &x.f) || !kiln_mma_takes(w, &x.f.p)) return KILN_OK;
  for (int i = 0; i < N_VARIANTS; i++) {
    if (!describe(&x, w, i)) continue;
    kiln_tile_candidate one = {.tiling = {.variant = i, .block = {x.s.m, x.s.n}}};
    one.cost.ns = time_of(&x);
    KILN_VEC_PUSH(w->proposed, out, one);
  }
  return KILN_OK;
}

const kiln_template kiln_template_gpu_norm_prologue = {.name = "norm_prologue",
                                                       .was = "norms",
                                                       .has_grids = true,
                                                       .kinds = 1u << KILN_GROUP_FUSED_LAYERS,
                                                       .match = kiln_norm_prologue_make,
                                                       .unites = true,
                                                       .propose = propose_norm_prologue,
                                                       .lower = lower_norm_prologue};
