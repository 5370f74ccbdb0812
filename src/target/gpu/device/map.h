// Tensor maps of TMA copies: how the tensor memory accelerator sees their sources.
#ifndef KILN_TARGET_GPU_DEVICE_MAP_H
#define KILN_TARGET_GPU_DEVICE_MAP_H

#include "target/gpu/nest.h"

enum { KILN_MAP_COORDINATES = 6 }; // at most

// |operand| at the begin of its tile.
const kiln_expr *kiln_tile_begin(kiln_ctx *cx, const kiln_expr *operand);
// The number of the map of the copy |tma|, whose rows |sharers| blocks of a cluster share, among
// n->maps; adds it where there is none.
int kiln_device_map_of(kiln_gpu_nest *n, const kiln_loop *tma, int64_t sharers);
// The place of a copy's first element in its map: column, row; or in im2col mode channel, column,
// row, image, right, down.
//
// gives: their number; in |out|, room for KILN_MAP_COORDINATES
int kiln_device_place_of(const kiln_gpu_nest *n, const kiln_loop *tma, int map,
                         const kiln_expr **out);
bool kiln_device_map_is_same(const kiln_gpu_map *a, const kiln_gpu_map *b);

#endif
