// Fragments of mma.m16n8 and how they are loaded; their layouts are in layout.h. Operands lie p to
// a register of 32 bits: 2 halves, 4 bytes, 1 of tf32; an instruction takes 8 p steps along k.
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

// Copies the part of |buffer| that a warp reads in an iteration of |at| to a fragment, whose axis
// |cut_axis| of the last two, 0 or 1, is cut into tiles of the instruction that loads them.
//
// gives: *out, the fragment; *out_tile, the loop to tensorize once it has its layout
kiln_status kiln_load_fragment(kiln_lowering *w, kiln_symbol buffer, int rank, kiln_symbol at,
                               int cut_axis, kiln_symbol *out, kiln_symbol *out_tile);

#endif
