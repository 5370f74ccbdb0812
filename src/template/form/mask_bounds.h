// Chunks of keys that a mask leaves in a block of rows.
//
//     keys ->                       causal, rows by 2, keys by 2
//     x . . . . . . .   block 0     to(0) = 1
//     x x . . . . . .
//     x x x . . . . .   block 1     to(1) = 2
//     x x x x . . . .
#ifndef KILN_TEMPLATE_FORM_MASK_BOUNDS_H
#define KILN_TEMPLATE_FORM_MASK_BOUNDS_H

#include "analysis/masking.h"

// Scores over rows and keys, and how they are cut.
typedef struct kiln_masked_scores {
  const kiln_stmt *z; // the map that masks them
  int scores;         // the tensor that it maps
  int row, key;       // its dims
  int64_t rows, chunk;
} kiln_masked_scores;

typedef struct kiln_mask_bounds {
  const kiln_expr *from, *to; // chunks of block |block|: [from, to)
  double share;               // of all chunks, in the mean
  bool varies;                // from block to block
} kiln_mask_bounds;

// Bounds for all blocks as expressions over |block|, which the primitive `skip` accepts; false if
// no chunk is left out.
bool kiln_mask_bounds_find(kiln_ctx *cx, const kiln_masked_scores *s, kiln_symbol block,
                           kiln_mask_bounds *out);

#endif
