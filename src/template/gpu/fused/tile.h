// The fused tile template: a block computes some whole rows of any statements that share them
// (form/fused_tile.h). propose.c proposes tilings, price.c prices them, lower.c writes one as a
// script.
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
  int64_t chunk;             // columns at a time that the next product reduces
  int depth;                 // steps whose operands are in shared memory or in flight
} kiln_fused_shape;

typedef struct kiln_fused {
  kiln_lowering *w;
  kiln_fused_tile f;
  kiln_instr *instr;  // of the first product; NULL: products run by multiply-adds
  int64_t least_step; // of the matrix instructions
  kiln_fused_shape s;
  kiln_symbol parts[KILN_FUSED_STATEMENTS];  // of a reduction, the loop over the threads of a row
  kiln_symbol chunks[KILN_FUSED_STATEMENTS]; // of a product, the loop over chunks of its terms
} kiln_fused;

enum { KILN_FUSED_WARP = 32 };

static inline int64_t kiln_fused_warps(const kiln_fused_shape *s) {
  return s->warps[0] * s->warps[1];
}

// --- axes (shape.c)

// What statements do along an axis: tiles have it as columns, and are stored; products reduce it;
// reductions of rows do.
typedef struct kiln_fused_use {
  bool columns, stored, terms, reduced;
} kiln_fused_use;
kiln_fused_use kiln_fused_use_of(const kiln_fused *x, kiln_symbol axis);
// Whether the axis is taken a chunk at a time: only a product reads what has such columns.
bool kiln_fused_streams(const kiln_fused *x, kiln_symbol axis);
// The extent of |dim| rounded up to what the threads take; and what of it they take at a time.
int64_t kiln_fused_padded(const kiln_fused *x, const kiln_dim *dim);
int64_t kiln_fused_width(const kiln_fused *x, const kiln_dim *dim);
// The layout of a tile of |width| columns; false: the threads do not fill it.
bool kiln_fused_layout(const kiln_fused *x, int64_t width, kiln_layout *out);
bool kiln_fused_has_columns(const kiln_fused_statement *t);
bool kiln_fused_is_left_factor(const kiln_fused *x, int i);
// The columns of |s|, behind its rows; the terms of a product or reduction.
const kiln_dim *kiln_fused_columns(const kiln_fused *x, const kiln_stmt *s);
const kiln_dim *kiln_fused_terms(const kiln_stmt *s);
// The product of statement |t|.
kiln_product kiln_fused_product(const kiln_fused *x, const kiln_fused_statement *t);

// --- prices (price.c)

// Sets the depth of x->s.
void kiln_fused_find_depth(kiln_fused *x);
// units: nanoseconds
// gives: INFINITY if a block needs more than a multiprocessor has
double kiln_fused_price(const kiln_fused *x);

kiln_status kiln_fused_lower(kiln_fused *x);

#endif
