// Fragments of mma.m16n8: tiles distributed over the lanes of a warp as the instruction wants them
// (thread-value layouts), of operands that lie p to a register of 32 bits: 2 halves, 4 bytes, 1 of
// tf32; 8 p steps along k. Tiles of them follow each other in a lane's part:
//     sums  (i, j): lane 4 (i % 8) + j % 8 / 2,   its element 2 (i / 8) + j % 2
//     left  (i, k): lane 4 (i % 8) + k % 4p / p,  its element 2p (k / 4p) + p (i / 8) + k % p
//     right (k, j): lane 4 j + k % 4p / p,        its element p (k / 4p) + k % p
// Sums of a row lie with four lanes, so that (i, j) of 16 columns of sums is where (i, k) of a left
// fragment of halves is.
#ifndef KILN_TEMPLATE_GPU_FRAGMENT_H
#define KILN_TEMPLATE_GPU_FRAGMENT_H

#include "template/lower.h"

enum {
  KILN_MMA_M = 16,
  KILN_MMA_N = 8,
  KILN_MMA_K = 16, // of halves
  KILN_MMA_HALVES = 2,
  KILN_MMA_WARP = 32,
  KILN_MMA_PAD = 8
};

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
kiln_status kiln_fragment_layout_sums(kiln_lowering *w, kiln_symbol sums, int n_lead,
                                      int64_t warp_m, int64_t warp_n);
// A left fragment (m, k), |per| = p elements a register:
// i % 8, k % 4p / p, m / 16, k / 4p, i / 8, k % p.
kiln_status kiln_fragment_layout_left(kiln_lowering *w, kiln_symbol f, int n_lead, int per);
// A right fragment (k, n): j, k % 4p / p, n / 8, k / 4p, k % p.
kiln_status kiln_fragment_layout_right(kiln_lowering *w, kiln_symbol f, int n_lead, int per);
kiln_status kiln_fragment_layout_transposed(kiln_lowering *w, kiln_symbol f, int n_lead,
                                            int per); // of (n, k)
// Row-wise values, (m, copies for the four lanes of a row): warp m, i % 8, copy, m / 8.
kiln_status kiln_fragment_layout_rows(kiln_lowering *w, kiln_symbol f, int n_lead, int64_t warp_m);

// Copies the part of |buffer| that a warp reads in an iteration of |at| to a fragment, whose axis
// |cut_axis| of the last two, 0 or 1, is cut into tiles of the instruction that loads them.
//
// gives: *out, the fragment; *out_tile, the loop to tensorize once it has its layout
kiln_status kiln_load_fragment(kiln_lowering *w, kiln_symbol buffer, int rank, kiln_symbol at,
                               int cut_axis, kiln_symbol *out, kiln_symbol *out_tile);

#endif
