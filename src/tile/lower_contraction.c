// Kernels that are one contraction (a matrix product or a convolution) and the map behind it.
//
// Candidates: the whole reduction in registers, or steps of it whose panels stay in the L2 beside a
// block of the other operand; on all threads, or on one where the fork costs more than it gives. A
// vector operand that changes from run to run is read as it lies, or copied a block at a time, or once. A
// result that does not lie along the vectors is computed block by block and copied from there.
#include "support/integer.h"
#include "tile/contraction.h"

enum {
  ON_ONE_THREAD = 1,
  TURNS = 2,
  PACKS_STEPS = 4,
  PACKS_ONCE = 8,
  KEEPS_PANELS = 16
}; // flags of kiln_tiling.variant

// The contraction of a program of two statements, or of three, whose first then decodes an operand; any of another's.
static const kiln_stmt *contraction_of(const kiln_lowering *w) {
  const int n = w->p->stmts.n;
  return w->p->stmts.data[n > 1 ? n - 2 : 0];
}

static kiln_contraction_node node_of(const kiln_lowering *w, const kiln_tiling *t) {
  return (kiln_contraction_node){.stmt = contraction_of(w),
                                 .decoded = w->p->stmts.n == 3 ? w->p->stmts.data[0] : NULL,
                                 .finish = w->root,
                                 .step = t->step[0],
                                 .packs = t->variant & PACKS_STEPS  ? KILN_PACKS_STEPS
                                          : t->variant & PACKS_ONCE ? KILN_PACKS_ONCE
                                                                    : KILN_PACKS_AS_NEEDED,
                                 .keeps_panels = t->variant & KEEPS_PANELS,
                                 .is_parallel = !(t->variant & ON_ONE_THREAD)};
}

static bool has_form(const kiln_lowering *w) {
  const int n = w->p->stmts.n;
  return (n == 2 || n == 3) && w->root->n_space == contraction_of(w)->n_space;
}

// --- results that lie across the vectors ---

// Whether a boundary map is read: its border runs apart from the rest (interior.c), which sees no tile
// loops behind a copy.
static bool reads_borders(const kiln_lowering *w) {
  const kiln_stmt *s = contraction_of(w);
  const kiln_loads loads = kiln_stmt_loads(w->cx, &w->cx->scratch, w->p, s);
  for (int i = 0; i < loads.n; i++)
    for (int d = 0; d < s->n_space; d++)
      if (kiln_load_bends(w->cx, loads.data[i], s->dims[d].name)) return true;
  return false;
}

// The dim along which the result lies in a piece, where that is not the vectors' and is long enough for
// whole lines; else -1.
static int turned_dim(const kiln_lowering *w) {
  int64_t strides[KILN_MAX_RANK];
  kiln_tensor_strides(w->p->tensors.data[w->root->out], strides);
  const int last = w->root->n_space - 1;
  if (reads_borders(w)) return -1;
  for (int d = 0; d < last && strides[last] != 1; d++)
    if (strides[d] == 1 && kiln_lowering_extent(w->root, d) >= 2 * w->lanes) return d;
  return -1;
}

// A block of the dim: some lines of the result, as long as it stays in a part of the L2 with all vectors.
static int64_t turned_block(const kiln_lowering *w, int d) {
  enum { MOST_VECTORS = 8 };
  const int64_t row = 4 * kiln_lowering_extent(w->root, w->root->n_space - 1),
                extent = kiln_lowering_extent(w->root, d);
  int64_t block = MOST_VECTORS * w->lanes;
  while (block > 2 * w->lanes && (block > extent || block * row > w->m->l2_bytes / 4)) block /= 2;
  return block;
}

// The dims of the blocks, as their loops run: |turned| inside, or so many of the rows around the batch's as |k| has it.
static int order_blocks(const kiln_contraction *k, int turned, int *dims) {
  int n = 0;
  for (int pass = 0; pass < 3; pass++)
    for (int d = 0, row = 0; d < k->n_dims; d++) {
      const bool is_batch = kiln_contraction_is_batch(k, d), is_around = row < k->n_around;
      const int when = k->n_around == 0 ? d == turned : is_batch ? 1 : is_around ? 0 : 2;
      row += !is_batch;
      if (pass == when) dims[n++] = d;
    }
  return n;
}

// Splits the copy of the result into blocks and runs them on the threads; |*out_at|: the loop around
// one.
static kiln_status turn_result(kiln_lowering *w, const kiln_contraction *k, int turned,
                               bool is_parallel, kiln_symbol *out_at) {
  const kiln_tensor *y = w->p->tensors.data[w->root->out];
  const int last = w->root->n_space - 1;
  const int64_t block = turned_block(w, turned);
  kiln_symbol loops[KILN_MAX_RANK + 1], first = 0;
  int64_t extents[KILN_MAX_RANK + 1];
  int dims[KILN_MAX_RANK], fused = 0;
  const kiln_symbol along = kiln_symbol_printf(w->cx, "%s.copy.%d",
                                               kiln_symbol_text(w->cx, y->name), turned),
                    o = kiln_lowering_name(w, "o", along);
  const int n = order_blocks(k, turned, dims);
  for (int i = 0; i < n; i++) {
    const int64_t extent = kiln_lowering_extent(w->root, dims[i]);
    loops[i] = dims[i] == turned ? o
                                 : kiln_symbol_printf(w->cx, "%s.copy.%d",
                                                      kiln_symbol_text(w->cx, y->name), dims[i]);
    extents[i] = dims[i] == turned ? kiln_divide_up(extent, block) : extent;
  }
  loops[n] = kiln_symbol_printf(w->cx, "%s.copy.%d", kiln_symbol_text(w->cx, y->name), last);
  loops[n + 1] = kiln_lowering_name(w, "i", along);
  KILN_TRY(kiln_split(&w->s, along, block, KILN_TAIL_SHIFT, o, loops[n + 1]));
  KILN_TRY(kiln_reorder(&w->s, n + 2, loops));
  KILN_TRY(kiln_lowering_vectorize_map(w, loops[n + 1], y->dtype));
  if (is_parallel) KILN_TRY(kiln_lowering_parallel(w, n, loops, extents, &first, &fused));
  *out_at = n > fused ? loops[n - 1] : first;
  return KILN_OK;
}

static kiln_status lower_turned(kiln_lowering *w, kiln_contraction_node *node) {
  const kiln_symbol y = w->p->tensors.data[w->root->out]->name,
                    block = kiln_symbol_printf(w->cx, "%s.turned", kiln_symbol_text(w->cx, y));
  kiln_contraction k;
  KILN_TRY(kiln_contraction_describe(w, node, &k));
  KILN_TRY(kiln_cache_write(&w->s, y, block, 0, NULL));
  KILN_TRY(turn_result(w, &k, turned_dim(w), node->is_parallel, &node->at));
  KILN_TRY(kiln_compute_at(&w->s, block, node->at, KILN_SCOPE_LOCAL));
  node->is_parallel = false;
  return kiln_lowering_contraction_node(w, node, NULL);
}

static kiln_status lower_contraction(kiln_lowering *w, const kiln_tiling *t) {
  kiln_contraction_node node = node_of(w, t);
  if (!has_form(w))
    return KILN_FAIL(w->cx->diag, KILN_BAD_INPUT, "lowering: contraction",
                     "must be two statements over the same dims, one that decodes aside");
  return t->variant & TURNS ? lower_turned(w, &node)
                            : kiln_lowering_contraction_node(w, &node, NULL);
}

// Nanoseconds that storing across the lines takes: lane by lane, or by way of a block.
static double storing_ns(const kiln_lowering *w, bool turns, int n_threads) {
  const double cycles_scattered = 8, cycles_turned = 1.5; // an element
  const kiln_device *d = w->m->device;
  if (!d || turned_dim(w) < 0) return 0;
  const double cycle_ns = 4.0 * w->lanes / d->unit_flops_ns[KILN_PEAK_F32];
  return (turns ? cycles_turned : cycles_scattered) * cycle_ns *
         (double)kiln_tensor_elems(w->p->tensors.data[w->root->out]) / n_threads;
}

// gives: false where it reads a constant in panels that no other program has
static bool push_one(kiln_lowering *w, int64_t step, int variant, kiln_tile_candidates *out) {
  kiln_tile_candidate one = {
      .family = &kiln_family_contraction, .tiling.step[0] = step, .tiling.variant = variant};
  const kiln_contraction_node node = node_of(w, &one.tiling);
  kiln_contraction k;
  if (!kiln_contraction_is(w, &node) || kiln_contraction_describe(w, &node, &k) != KILN_OK)
    return true;
  one.wants_panels = kiln_contraction_wants_panels(&k);
  if (step && k.v.extent % k.v.tile != 0) return !one.wants_panels;
  one.cost = kiln_contraction_cost(&k, w->n_threads);
  one.cost.ns += storing_ns(w, variant & TURNS, w->n_threads);
  kiln_tile_cost alone = kiln_contraction_cost(&k, 1);
  alone.ns += storing_ns(w, variant & TURNS, 1);
  if (alone.ns <= one.cost.ns) {
    one.cost = alone;
    one.tiling.variant |= ON_ONE_THREAD;
  }
  KILN_VEC_PUSH(w->proposed, out, one);
  return !one.wants_panels;
}

static void push_candidate(kiln_lowering *w, int64_t step, int variant, kiln_tile_candidates *out) {
  if (!push_one(w, step, variant, out)) (void)push_one(w, step, variant | KEEPS_PANELS, out);
}

// As many rows of a matrix as a core reads at once, each from its begin to its end: at most |most|.
static int64_t few_rows(int64_t extent, int64_t most) {
  int64_t rows = most;
  while (extent % rows != 0) rows--;
  return rows > 2 ? rows : 0;
}

// Candidates that read rows of the vector operand to their ends, as all rows of the other one are in one
// register tile: more of them at a time where their sums take longer to load and store.
static void push_by_rows(kiln_lowering *w, const kiln_contraction *k, int64_t extent,
                         kiln_tile_candidates *out) {
  enum { FEW = 8, MANY = 32 };
  if (!kiln_contraction_is_one_tile(k)) return;
  const int64_t few = few_rows(extent, FEW), many = few_rows(extent, MANY);
  if (few) push_candidate(w, few, 0, out);
  if (many > few && kiln_contraction_rows(k) > 1) push_candidate(w, many, 0, out);
}

static kiln_status propose_contraction(kiln_lowering *w, kiln_tile_candidates *out) {
  enum { MIN_DEPTH = 256, PACKED_DEPTH = 512, MAX_STEPS = 3 };
  kiln_contraction k;
  const kiln_contraction_node node = node_of(w, &(kiln_tiling){0});
  if (!has_form(w) || !kiln_contraction_is(w, &node)) return KILN_OK;
  if (turned_dim(w) >= 0 && !node.decoded) push_candidate(w, 0, TURNS, out);
  push_candidate(w, 0, 0, out);
  if (node.decoded) return KILN_OK;
  KILN_TRY(kiln_contraction_describe(w, &node, &k));
  const int64_t extent = kiln_dim_extent(kiln_contraction_stepped(&k));
  if (k.point_by_point) return KILN_OK;
  const bool is_whole = k.v.extent % w->lanes == 0, is_even = is_whole && k.col >= 0;
  if (k.direct) push_candidate(w, 0, PACKS_ONCE, out);
  if (k.direct && is_whole) push_by_rows(w, &k, extent, out);
  const int64_t first = k.direct ? kiln_divide_up(extent, PACKED_DEPTH) : 2;
  for (int64_t n = first, taken = 0; is_even && n < extent && taken < MAX_STEPS; n++) {
    if (extent % n != 0) continue;
    if (k.depth / n < MIN_DEPTH) break;
    if (k.direct) push_candidate(w, extent / n, PACKS_STEPS, out);
    push_candidate(w, extent / n, k.direct ? PACKS_ONCE : 0, out);
    taken++;
  }
  return KILN_OK;
}

const kiln_family kiln_family_contraction = {"contraction", propose_contraction, lower_contraction,
                                             .by_loops = false};
