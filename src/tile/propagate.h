// Propagation of tiles; private to the tile graph.
#ifndef KILN_TILE_PROPAGATE_H
#define KILN_TILE_PROPAGATE_H

#include "tile/graph.h"

// An index that is being evaluated, a sum of terms.
typedef struct kiln_tile_indexing {
  const kiln_program *p;
  const kiln_stmt *s;
  const kiln_tile_span *dims; // the dims of |s|
  const kiln_expr *index;
  int64_t size;   // of the axis or memory that it indexes
  int64_t factor; // of the current term
} kiln_tile_indexing;

// The span of the i64 expression |e|, a term of |x|'s index. Clamping at borders and constant
// tables are evaluated for the middle tile. If |e| depends on other data, sets *out_known to false
// and gives any span.
kiln_tile_span kiln_tile_span_of(kiln_ctx *cx, kiln_tile_indexing x, const kiln_expr *e,
                                 bool *out_known);

// The same as kiln_tile_propagate for a tile of which only |part| is within the result.
void kiln_tile_propagate_part(kiln_tile_graph *g, const int64_t *tile, const int64_t *part,
                              const kiln_reduce_mode *const *modes, const int64_t *const *steps);

// Bytes, in whole transactions, that a tile reads from memory through edge |edge|, 0 if another
// edge reads the same; and the bytes that it stores.
double kiln_tile_read(kiln_tile_graph *g, int edge, int transaction);
double kiln_tile_written(const kiln_tile_graph *g, int transaction);

#endif
