// Propagation of tiles: private to the tile graph.
#ifndef KILN_TILE_PROPAGATE_H
#define KILN_TILE_PROPAGATE_H

#include "tile/graph.h"

// An index that is taken apart, a sum of terms.
typedef struct kiln_tile_indexing {
  const kiln_program *p;
  const kiln_stmt *s;
  const kiln_tile_span *dims; // those of |s|
  const kiln_expr *index;
  int64_t size;   // of the axis or the memory that it is the index of
  int64_t factor; // of the term at hand
} kiln_tile_indexing;

// The span of the i64 expression |e|, a term of |x|'s index. Clamping at borders and constant
// tables are evaluated for a tile in the middle. Sets *out_known to false, and gives an arbitrary
// span, if |e| depends on other data.
kiln_tile_span kiln_tile_span_of(kiln_ctx *cx, kiln_tile_indexing x, const kiln_expr *e,
                                 bool *out_known);

// As kiln_tile_propagate, for a tile of which only |part| is in the result.
void kiln_tile_propagate_part(kiln_tile_graph *g, const int64_t *tile, const int64_t *part,
                              const kiln_reduce_mode *const *modes, const int64_t *const *steps);

// Bytes, in whole transactions, that a tile reads through edge |edge| from memory; 0 where another
// edge reads that already. What it stores there.
double kiln_tile_read(kiln_tile_graph *g, int edge, int transaction);
double kiln_tile_written(const kiln_tile_graph *g, int transaction);

#endif
