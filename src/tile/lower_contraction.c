// Kernels that are one contraction (a matrix product or a convolution) and the map behind it.
#include "tile/node.h"

static kiln_status lower_contraction(kiln_lowering *w, const kiln_tiling *t) {
  (void)t;
  if (w->p->stmts.n != 2)
    return KILN_FAIL(w->cx->diag, KILN_BAD_INPUT, "lowering: contraction",
                     "must have two statements");
  const kiln_contraction_node node = {
      .stmt = w->p->stmts.data[0], .finish = w->root, .is_parallel = true};
  return kiln_lowering_contraction_node(w, &node, NULL);
}

static kiln_status propose_contraction(kiln_lowering *w, kiln_tile_candidates *out) {
  KILN_VEC_PUSH(&w->cx->perm, out, (kiln_tile_candidate){.family = &kiln_family_contraction});
  return KILN_OK;
}

const kiln_family kiln_family_contraction = {"contraction", propose_contraction, lower_contraction};
