// GEMM by the instructions mma.m16n8: common parts of the templates that use them.
//
// A block computes a tile of the result, its warps smaller ones, whose sums are fragments
// (layout.h). With slice-K, groups of warps share each step along k, and have sums of their own.
#ifndef KILN_TEMPLATE_GPU_MMA_H
#define KILN_TEMPLATE_GPU_MMA_H

#include "template/gpu/blocks.h"

// Operands lie p to a register of 32 bits: 2 halves, 4 bytes, 1 of tf32; an instruction takes 8 p
// steps along k.
enum {
  KILN_MMA_M = 16,
  KILN_MMA_N = 8,
  KILN_MMA_K = 16, // of halves
  KILN_MMA_HALVES = 2,
  KILN_MMA_WARP = 32,
  KILN_MMA_PAD = 8
};

// A block's tile, the step along k, a warp's tile, and the groups of warps that share a step
// (slice-K).
typedef struct kiln_mma_shape {
  int64_t m, n, k, warp_m, warp_n, slice_k;
} kiln_mma_shape;

// The types of an instruction's operands and sums, |per| elements of operands to a register; |k|
// terms at a time of the 8 |per| whose operands are loaded at once.
typedef struct kiln_mma_type {
  kiln_dtype left, right, sum;
  int per, k;
  const char *product, *load_left, *load_right; // instructions
  bool transpose_b;                             // the right operand lies in rows along k
} kiln_mma_type;

// The state of a product's lowering.
typedef struct kiln_mma {
  kiln_lowering *w;
  const kiln_mma_type *type;
  kiln_product p;
  kiln_product_loops l;
  const kiln_mma_shape *s;
  int64_t threads;   // of a block
  int64_t steps;     // along k, of a block
  int depth;         // stages of the circular buffer: steps in shared memory or in flight
  kiln_symbol left;  // p.a in shared memory, where it was computed there; 0: it is copied
  kiln_symbol sums;  // the buffer in which the warps add up: (.., m, n) and |n_more| axes
  int n_more;        // the last of them is that of the groups where there are several
  kiln_symbol group; // the loop over groups of warps, around l.m; 0: there is one group
  kiln_instr *instr, *load_left, *load_right;
} kiln_mma;

int64_t kiln_mma_threads(const kiln_mma_shape *s);
// The instruction for the types of |p|'s operands and sums; NULL: there is none.
const kiln_mma_type *kiln_mma_type_of(const kiln_lowering *w, const kiln_product *p);
bool kiln_mma_takes(const kiln_lowering *w, const kiln_product *p); // as products of halves
// needs: m->w, m->p
void kiln_mma_find(kiln_mma *m); // the instructions and the number of threads
// Copies the operands of a step to shared memory, |depth| - 1 steps ahead, or all steps at once if
// |depth| stages hold them, and multiplies them there: the nest of the loops m->l and m->group.
kiln_status kiln_mma_multiply(kiln_mma *m);
// Copies the part of |buffer| that a warp reads in an iteration of |at| to a fragment, whose axis
// |cut_axis| of the last two, 0 or 1, is cut into tiles of the instruction that loads them.
//
// gives: *out, the fragment; *out_tile, the loop to tensorize once it has its layout
kiln_status kiln_load_fragment(kiln_lowering *w, kiln_symbol buffer, int rank, kiln_symbol at,
                               int cut_axis, kiln_symbol *out, kiln_symbol *out_tile);
// Runs a nest over the elements of the block's tile by the lanes that hold their sums; |group| as
// in kiln_mma, outside or inside of |rows|.
kiln_status kiln_mma_elements(kiln_mma *m, kiln_symbol group, kiln_symbol rows);

#endif
