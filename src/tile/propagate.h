// Propagation of tiles: private to the tile graph.
#ifndef KILN_TILE_PROPAGATE_H
#define KILN_TILE_PROPAGATE_H

#include "tile/graph.h"

// The index b0, b1, ... of a tile along dim |d| of the result.
kiln_symbol kiln_tile_index(kiln_ctx *cx, int d);

// The span of the i64 expression |e| over the dims of |s|, whose spans are |dims|. Indices that bend
// at a border give what they do in a tile in the middle; sets *out_known to false, and gives
// something, when |e| depends on data.
kiln_tile_span kiln_tile_span_of(kiln_ctx *cx, const kiln_stmt *s, const kiln_tile_span *dims,
                                 const kiln_expr *e, bool *out_known);

// As kiln_tile_propagate, for a tile of which only |part| is in the result.
void kiln_tile_propagate_part(kiln_tile_graph *g, const int64_t *tile, const int64_t *part,
                              const kiln_reduce_mode *const *modes, const int64_t *const *steps);

// Bytes, in whole transactions, that a tile reads through edge |edge| from memory; 0 where another
// edge reads that already. What it stores there.
double kiln_tile_read(const kiln_tile_graph *g, int edge, int transaction);
double kiln_tile_written(const kiln_tile_graph *g, int transaction);

#endif
