// Fragments of mma.m16n8k16: memory dealt out to the lanes of a warp as the instruction wants it. Tiles of them follow each
// other in a lane's part:
//     sums  (i, j): lane 4 (i % 8) + j % 8 / 2, its element 2 (i / 8) + j % 2
//     left  (i, k): lane 4 (i % 8) + k % 8 / 2, its element 4 (k / 8) + 2 (i / 8) + k % 2
//     right (k, j): lane 4 j + k % 8 / 2,       its element 2 (k / 8) + k % 2
// Sums of a row lie with four lanes, so that (i, j) of 16 columns of sums is where (i, k) of a left fragment is.
#ifndef KILN_TILE_GPU_FRAGMENT_H
#define KILN_TILE_GPU_FRAGMENT_H

#include "tile/lower.h"

enum { KILN_MMA_M = 16, KILN_MMA_N = 8, KILN_MMA_K = 16, KILN_MMA_WARP = 32, KILN_MMA_PAD = 8 };

// Splits |*io_loop| by |factor|: LOOP.OUTER and LOOP.INNER, which replaces it.
kiln_status kiln_gpu_cut(kiln_lowering *w, kiln_symbol *io_loop, int64_t factor, const char *outer,
                         const char *inner, kiln_symbol *out_outer);

// The axes of a transform_layout: the first |n| as they are; gives |n|.
int kiln_axes_lead(kiln_stage_axis *axes, int n);
static inline kiln_stage_axis kiln_axis_whole(int axis) { return (kiln_stage_axis){.axis = axis}; }
static inline kiln_stage_axis kiln_axis_high(int axis, int64_t block) { // the number of its block
  return (kiln_stage_axis){.axis = axis, .block = block, .outer = true};
}
static inline kiln_stage_axis kiln_axis_low(int axis, int64_t block) { // the place within it
  return (kiln_stage_axis){.axis = axis, .block = block};
}

// The layouts of buffers behind their first |n_lead| axes.
//
// Sums (m, n) of warps' tiles: warp m, warp n, i % 8, j % 8 / 2, m / 16, n / 8, i / 8, j % 2.
kiln_status kiln_deal_sums(kiln_lowering *w, kiln_symbol sums, int n_lead, int64_t warp_m,
                           int64_t warp_n);
// A left fragment (m, k): i % 8, k % 8 / 2, m / 16, k / 8, i / 8, k % 2.
kiln_status kiln_deal_left(kiln_lowering *w, kiln_symbol f, int n_lead);
// A right fragment (k, n): j, k % 8 / 2, n / 8, k / 8, k % 2.
kiln_status kiln_deal_right(kiln_lowering *w, kiln_symbol f, int n_lead);
kiln_status kiln_deal_turned(kiln_lowering *w, kiln_symbol f, int n_lead); // the same of (n, k)
// What is known of rows, (m, copies for the four lanes of a row): warp m, i % 8, copy, m / 8.
kiln_status kiln_deal_rows(kiln_lowering *w, kiln_symbol f, int n_lead, int64_t warp_m);

// Copies what a warp reads of |buffer| in an iteration of |at| to a fragment, whose axis |cut_axis| of the last two, 0
// or 1, is cut into tiles of the instruction that loads them.
//
// gives: *out, the fragment; *out_tile, the loop to tensorize when it is dealt out
kiln_status kiln_load_fragment(kiln_lowering *w, kiln_symbol buffer, int rank, kiln_symbol at,
                               int cut_axis, kiln_symbol *out, kiln_symbol *out_tile);

#endif
