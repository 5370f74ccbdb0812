// Kernels that are one contraction (a matrix product or a convolution) and its epilogue.
//
// Candidates: the whole reduction in registers, or steps of it whose panels stay in the L2 beside a
// block of the other operand; on all threads, or on one where the fork costs more than it gives. A
// vector operand that is no constant is read in place, or packed a block at a time, or once. A
// result that is contiguous along another dim than the vectors' is computed block by block and
// transposed.
#include "support/integer.h"
#include "template/cpu/address.h"
#include "template/cpu/turned.h"

#include <math.h>
#include <string.h>

enum {
  ON_ONE_THREAD = 1,
  TURNS = 2,
  PACKS_STEPS = 4,
  PACKS_ONCE = 8,
  KEEPS_PANELS = 16
}; // flags of kiln_tiling.variant

// The contraction of a program of two statements, or of three where the first decodes an operand;
// of other programs, any statement.
static const kiln_stmt *contraction_of(const kiln_lowering *w) {
  const int n = w->p->stmts.n;
  return w->p->stmts.data[n > 1 ? n - 2 : 0];
}

static kiln_contraction_node node_of(const kiln_lowering *w, const kiln_tiling *t) {
  kiln_contraction_node node = {.stmt = contraction_of(w),
                                .decoded = w->p->stmts.n == 3 ? w->p->stmts.data[0] : NULL,
                                .finish = w->root,
                                .step = t->step[0],
                                .packs = t->variant & PACKS_STEPS  ? KILN_PACKS_STEPS
                                         : t->variant & PACKS_ONCE ? KILN_PACKS_ONCE
                                                                   : KILN_PACKS_AS_NEEDED,
                                .keeps_panels = t->variant & KEEPS_PANELS,
                                .is_parallel = !(t->variant & ON_ONE_THREAD)};
  for (int d = 0; t->variant & TURNS && d + 1 < node.stmt->n_space; d++)
    node.pieces[d] = t->block[d];
  return node;
}

static bool has_form(const kiln_lowering *w) {
  const int n = w->p->stmts.n;
  return (n == 2 || n == 3) && w->root->n_space == contraction_of(w)->n_space;
}

// --- transposed results ---

// Nanoseconds of storing a transposed result: lane by lane, or through blocks, the last of which
// overlaps.
static double storing_ns(const kiln_lowering *w, const kiln_tiling *t, int n_threads) {
  const double cycles_scattered = 8, cycles_turned = 0.7; // an element
  const kiln_device *d = w->m->device;
  const int turned = kiln_turned_dim(w, contraction_of(w));
  if (!d || turned < 0) return 0;
  const bool turns = t->variant & TURNS;
  const int64_t extent = kiln_lowering_extent(w->root, turned),
                block = turns ? t->block[turned] : extent;
  const double cycle_ns = 4.0 * w->lanes / d->unit_flops_ns[KILN_PEAK_F32],
               stored = (double)(kiln_divide_up(extent, block) * block) / (double)extent;
  return (turns ? cycles_turned : cycles_scattered) * cycle_ns * stored *
         (double)kiln_tensor_elems(w->p->tensors.data[w->root->out]) / n_threads;
}

static double turned_ns(kiln_lowering *w, const kiln_tiling *t) {
  const kiln_contraction_node node = node_of(w, t);
  kiln_contraction k;
  return kiln_contraction_is(w, &node) && kiln_contraction_describe(w, &node, &k) == KILN_OK
             ? kiln_contraction_cost(&k, 1).ns + storing_ns(w, t, 1)
             : INFINITY;
}

// Blocks are some lines of the result along its dim |turned|, one index of the others: of the
// evenest blocks, those with which the tiles, which are cut anew in each, cost least.
static void choose_blocks(kiln_lowering *w, int turned, kiln_tiling *io) {
  enum { TRIES = 8 };
  const int64_t extent = kiln_lowering_extent(w->root, turned),
                fewest = kiln_divide_up(extent, kiln_turned_most(w, turned));
  int64_t best = 0;
  double least = INFINITY;
  for (int d = 0; d + 1 < w->root->n_space; d++) io->block[d] = 1;
  for (int64_t n = fewest; n < fewest + TRIES; n++) {
    io->block[turned] = kiln_turned_even(w, turned, n);
    if (best && io->block[turned] < 2 * w->lanes) break;
    const double ns = turned_ns(w, io);
    if (best && ns >= least * 0.999) continue;
    least = ns;
    best = io->block[turned];
  }
  io->block[turned] = best;
}

// The dims of the blocks in the order of their loops: |turned| innermost, or, with k->n_around rows
// around the batch, those, the batch, and the other rows.
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

static kiln_status lower_turned(kiln_lowering *w, kiln_contraction_node *node) {
  const int turned = kiln_turned_dim(w, node->stmt);
  int dims[KILN_MAX_RANK];
  kiln_contraction k;
  KILN_TRY(kiln_contraction_describe(w, node, &k));
  const int n = order_blocks(&k, turned, dims);
  KILN_TRY(
      kiln_turn_result(w, n, dims, turned, node->pieces[turned], node->is_parallel, &node->at));
  node->is_parallel = false;
  node->is_turned = true;
  memset(node->pieces, 0, sizeof node->pieces); // they are made
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

// gives: false where it reads a constant in panels that no other program has
static bool push_one(kiln_lowering *w, int64_t step, int variant, kiln_tile_candidates *out) {
  kiln_tile_candidate one = {.tiling.step[0] = step, .tiling.variant = variant};
  if (variant & TURNS) choose_blocks(w, kiln_turned_dim(w, contraction_of(w)), &one.tiling);
  const kiln_contraction_node node = node_of(w, &one.tiling);
  kiln_contraction k;
  if (!kiln_contraction_is(w, &node) || kiln_contraction_describe(w, &node, &k) != KILN_OK)
    return true;
  one.wants_panels = kiln_contraction_wants_panels(&k);
  if (step && k.v.extent % k.v.tile != 0 && k.v.block != k.v.extent) return !one.wants_panels;
  one.cost = kiln_contraction_cost(&k, w->n_threads);
  one.cost.ns += storing_ns(w, &one.tiling, w->n_threads);
  kiln_tile_cost alone = kiln_contraction_cost(&k, 1);
  alone.ns += storing_ns(w, &one.tiling, 1);
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

// As many rows of a matrix as a core streams at once, whole rows each: at most |most|.
static int64_t few_rows(int64_t extent, int64_t most) {
  int64_t rows = most;
  while (extent % rows != 0) rows--;
  return rows > 2 ? rows : 0;
}

// Candidates that stream whole rows of the vector operand, all rows of the other one being in one
// register tile: more of them at a time where their sums take longer to load and store.
static void push_by_rows(kiln_lowering *w, const kiln_contraction *k, int64_t extent,
                         kiln_tile_candidates *out) {
  enum { FEW = 8, MANY = 32 };
  if (!kiln_contraction_is_one_tile(k)) return;
  const int64_t few = few_rows(extent, FEW), many = few_rows(extent, MANY);
  if (few) push_candidate(w, few, 0, out);
  if (many > few && kiln_contraction_rows(k) > 1) push_candidate(w, many, 0, out);
}

// Whether a panel of one of |n| chunks of the reduction takes at most a tenth of the L2.
static bool is_small(const kiln_contraction *k, int64_t n) {
  enum { SHARE = 10 };
  return kiln_contraction_panel_bytes(k) / (double)n * SHARE <= (double)k->w->m->l2_bytes;
}

// Longest chain of roundings in a sum of |depth| terms by chunks of |chunk|; 0: one chunk.
static int64_t roundings(int64_t depth, int64_t chunk) {
  return chunk ? chunk + depth / chunk : depth;
}

// The depth from which a sum in one chunk loses digits, and the longest chain of roundings that
// does not.
enum { LONG_DEPTH = 1 << 16, MOST_ROUNDINGS = 1 << 12 };

static bool keeps_digits(const kiln_contraction *k, const kiln_tile_candidate *c, int64_t extent) {
  return roundings(k->depth, k->depth / extent * c->tiling.step[0]) <= MOST_ROUNDINGS;
}

static bool moves_in_sums(const kiln_contraction *k, const kiln_expr *at) {
  for (int r = k->c->n_space; r < k->c->n_space + k->c->n_reduce; r++)
    if (kiln_expr_uses(at, k->c->dims[r].name)) return true;
  return false;
}

// Whether an operand that could be read in place can be packed: its index must give the panel of an
// element, which that of a window does not.
static bool can_pack(const kiln_contraction *k) {
  kiln_address a;
  if (!k->direct || !kiln_address_read(k, k->b, &a)) return false;
  for (int i = 0; i < a.n; i++)
    if (kiln_expr_uses(a.digits[i].e, k->v.dim) && moves_in_sums(k, a.digits[i].e)) return false;
  return true;
}

// Keeps only the candidates of a long sum that preserve its digits, where there are any.
static void keep_digits(kiln_lowering *w, const kiln_contraction *k, int64_t extent, int first,
                        kiln_tile_candidates *io) {
  int n = first;
  for (int64_t parts = 2; parts < extent; parts++) { // the fewest that are enough, too
    if (extent % parts != 0 || roundings(k->depth, k->depth / parts) > MOST_ROUNDINGS) continue;
    push_candidate(w, extent / parts, 0, io);
    if (can_pack(k)) push_candidate(w, extent / parts, PACKS_ONCE, io);
    break;
  }
  for (int i = first; i < io->n; i++)
    if (keeps_digits(k, &io->data[i], extent)) io->data[n++] = io->data[i];
  if (n > first) io->n = n;
}

static kiln_status propose_contraction(kiln_lowering *w, kiln_tile_candidates *out) {
  enum { MIN_DEPTH = 256, PACKED_DEPTH = 512, MAX_STEPS = 3 };
  const int before = out->n;
  kiln_contraction k;
  const kiln_contraction_node node = node_of(w, &(kiln_tiling){0});
  if (!has_form(w) || !kiln_contraction_is(w, &node)) return KILN_OK;
  if (kiln_turned_dim(w, contraction_of(w)) >= 0 && !node.decoded) push_candidate(w, 0, TURNS, out);
  push_candidate(w, 0, 0, out);
  if (node.decoded) return KILN_OK;
  KILN_TRY(kiln_contraction_describe(w, &node, &k));
  const int64_t extent = kiln_dim_extent(kiln_contraction_stepped(&k));
  if (k.point_by_point) return KILN_OK;
  const bool is_whole = k.v.extent % w->lanes == 0, is_even = is_whole && k.col >= 0;
  const bool packs = can_pack(&k);
  if (packs) push_candidate(w, 0, PACKS_ONCE, out);
  if (k.direct && is_whole) push_by_rows(w, &k, extent, out);
  bool has_small = k.direct; // operands packed at run time are read in whole rows
  const int64_t first = k.direct ? kiln_divide_up(extent, PACKED_DEPTH) : 2;
  for (int64_t n = first, taken = 0; is_even && (packs || !k.direct) && n < extent; n++) {
    if (extent % n != 0) continue;
    if (k.depth / n < MIN_DEPTH || (taken >= MAX_STEPS && has_small)) break;
    if (taken++ >= MAX_STEPS && !is_small(&k, n)) continue;
    has_small |= is_small(&k, n);
    if (k.direct) push_candidate(w, extent / n, PACKS_STEPS, out);
    push_candidate(w, extent / n, k.direct ? PACKS_ONCE : 0, out);
  }
  if (k.depth >= LONG_DEPTH && kiln_dtype_is_float(k.c->body->dtype))
    keep_digits(w, &k, extent, before, out);
  return KILN_OK;
}

const kiln_template kiln_template_contraction = {.name = "contraction",
                                                 .kinds = 1u << KILN_GROUP_CONTRACTION,
                                                 .propose = propose_contraction,
                                                 .lower = lower_contraction};
