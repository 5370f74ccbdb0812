// Kernels that are one contraction (a matrix product or a convolution) and the map behind it.
//
// Candidates: the whole reduction in registers, or steps of it whose panels stay in the L2 beside a
// block of the other operand; on all threads, or on one where the fork costs more than it gives.
#include "tile/contraction.h"

enum { ON_ONE_THREAD = 1 }; // kiln_tiling.variant

static kiln_contraction_node node_of(const kiln_lowering *w, const kiln_tiling *t) {
  return (kiln_contraction_node){.stmt = w->p->stmts.data[0],
                                 .finish = w->root,
                                 .step = t->step[0],
                                 .is_parallel = t->variant != ON_ONE_THREAD};
}

static bool has_form(const kiln_lowering *w) {
  return w->p->stmts.n == 2 && w->root->n_space == w->p->stmts.data[0]->n_space;
}

static kiln_status lower_contraction(kiln_lowering *w, const kiln_tiling *t) {
  const kiln_contraction_node node = node_of(w, t);
  if (!has_form(w))
    return KILN_FAIL(w->cx->diag, KILN_BAD_INPUT, "lowering: contraction",
                     "must have two statements over the same dims");
  return kiln_lowering_contraction_node(w, &node, NULL);
}

static void push_candidate(kiln_lowering *w, int64_t step, kiln_tile_candidates *out) {
  kiln_tile_candidate one = {.family = &kiln_family_contraction, .tiling.step[0] = step};
  const kiln_contraction_node node = node_of(w, &one.tiling);
  kiln_contraction k;
  if (!kiln_contraction_is(w, &node) || kiln_contraction_describe(w, &node, &k) != KILN_OK) return;
  if (step && k.v.extent % k.v.tile != 0) return;
  one.cost = kiln_contraction_cost(&k, w->n_threads);
  const kiln_tile_cost alone = kiln_contraction_cost(&k, 1);
  if (alone.ns <= one.cost.ns) {
    one.cost = alone;
    one.tiling.variant = ON_ONE_THREAD;
  }
  KILN_VEC_PUSH(&w->cx->perm, out, one);
}

static kiln_status propose_contraction(kiln_lowering *w, kiln_tile_candidates *out) {
  enum { MIN_DEPTH = 256, MAX_STEPS = 3 };
  kiln_contraction k;
  const kiln_contraction_node node = node_of(w, &(kiln_tiling){0});
  if (!has_form(w) || !kiln_contraction_is(w, &node)) return KILN_OK;
  push_candidate(w, 0, out);
  KILN_TRY(kiln_contraction_describe(w, &node, &k));
  const int64_t extent = kiln_dim_extent(kiln_contraction_stepped(&k));
  const bool is_even = k.v.extent % w->lanes == 0 && !k.direct && k.col >= 0;
  for (int64_t n = 2, taken = 0; is_even && n < extent && taken < MAX_STEPS; n++) {
    if (extent % n != 0) continue;
    if (k.depth / n < MIN_DEPTH) break;
    push_candidate(w, extent / n, out);
    taken++;
  }
  return KILN_OK;
}

const kiln_family kiln_family_contraction = {"contraction", propose_contraction, lower_contraction};
