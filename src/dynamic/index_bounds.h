// Bounds of the indices that a run computes beyond the extents it needs.
//
// A run also computes elements that nobody reads, up to the ends of its bucket's maximum. There an
// index that depends on the dimensions may be out of bounds (when rows are reversed, the last few
// would come before the first), and so may one that is loaded, where nothing was computed: such
// indices are clamped, unless their ranges or the conditions around them prove that they need not.
#ifndef KILN_DYNAMIC_INDEX_BOUNDS_H
#define KILN_DYNAMIC_INDEX_BOUNDS_H

#include "ir/prim.h"
#include "kiln/module.h"

typedef struct kiln_index_bounds {
  const kiln_program *p; // extents of axes are numbers
  int n_dims;
  const kiln_symbol *names; // variables of the dimensions
  int64_t least[KILN_MAX_DIMS], most[KILN_MAX_DIMS];
  // Tensors whose elements may be any number: indices that load these are clamped, as are those
  // that use the dimensions. NULL: there are none.
  const kiln_bits *loose;
} kiln_index_bounds;

// Clamps indices of |e|, an expression of |s|.
const kiln_expr *kiln_bound_indices(kiln_ctx *cx, const kiln_index_bounds *b, const kiln_stmt *s,
                                    const kiln_expr *e);

#endif
