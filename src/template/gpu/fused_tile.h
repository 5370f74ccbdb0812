// The fused tile template: a block computes some whole rows of any statements that share them
// (form/fused_tile.h). fused_tile.c proposes tilings, fused_lower.c writes one as a script.
//
// Elements lie in the threads' registers, in the layout of the product's sums (layout.h), and maps
// run where they lie. A reduction along a row is a thread's own part, then, through shared memory,
// those of the threads that share the row. Left factors of products that are computed lie in shared
// memory; other operands are copied there step by step.
#ifndef KILN_TEMPLATE_GPU_FUSED_TILE_H
#define KILN_TEMPLATE_GPU_FUSED_TILE_H

#include "template/form/fused_tile.h"
#include "template/gpu/layout.h"
#include "template/gpu/mma.h"

// How a block's threads share a tile of |rows| rows.
typedef struct kiln_fused_shape {
  int64_t rows, step; // of the block; terms of a product at a time
  bool by_mma;        // products run on matrix instructions; else on multiply-adds of threads
  int64_t warps[2], lanes_n; // along rows and columns; lanes of a warp along columns
  int depth;                 // steps whose operands are in shared memory or in flight
} kiln_fused_shape;

typedef struct kiln_fused {
  kiln_lowering *w;
  kiln_fused_tile f;
  kiln_fused_shape s;
  kiln_symbol parts[KILN_FUSED_STATEMENTS]; // of a reduction, the loop over the threads of a row
} kiln_fused;

enum { KILN_FUSED_WARP = 32 };

static inline int64_t kiln_fused_warps(const kiln_fused_shape *s) {
  return s->warps[0] * s->warps[1];
}
// |columns| rounded up to what the threads of a row take, and their layout.
int64_t kiln_fused_columns(const kiln_fused_shape *s, int64_t columns);
bool kiln_fused_layout(const kiln_fused *x, int64_t columns, kiln_layout *out);
// The product of statement |t|, whose operands are statements of their own.
kiln_product kiln_fused_product(const kiln_fused *x, const kiln_fused_statement *t);
kiln_status kiln_fused_lower(kiln_fused *x);

#endif
