// Skinny GEMM (GEMV): contractions with few columns. What a constant gives to each element is 1 to
// 4 results, too few for a tile of a matrix product, in the form in which GPUs run them.
//
// A convolution to 3 channels, or a product by a narrow constant matrix, with its finish becomes
//     P(.., r1, w, k) = inside ? X(.., i1 + r1 - 1, w - 1, k) : 0     K(r1, k, r2, c) = W(c, k, r1,
//     r2)     F = f32(K) T(.., i1, i2, c | k, r1, r2) +=! f32(P(.., r1, i2*s + r2, k)) * F(r1, k,
//     r2, c)     y(.., i1, i2, c) = f(T, ..)
// with k the reduction dim along which X lies side by side.
#ifndef KILN_TILE_GPU_NARROW_H
#define KILN_TILE_GPU_NARROW_H

#include "tile/tile.h"

// Brings |p|, one such contraction and maps of its results, into the form (kiln_match).
bool kiln_narrow_make(kiln_ctx *cx, const kiln_machine *m, kiln_program *p);

#endif
