// Grid mapping, which all templates for GPUs share: loops as a grid of blocks and their threads.
// The templates, each in a file of its name:
//
// Attention and matrix products (fused kernels first):
//   flash_attention    attention on tensor cores
//   row_epilogue       a GEMM whose epilogue works on whole rows (softmax, LayerNorm)
//   norm_prologue      a GEMM of rows that are normalized as they are read
//   b2b_gemm           two GEMMs back to back: the second multiplies a map of the first's results
//   fused_tile         any products, maps and reductions of the same rows (fused/)
//   direct_conv        convolutions of few channels, from an input tile with halo
//   wgmma              GEMM by instructions of warp groups (sm_90a), warp specialization, stream-K
//   mma                GEMM by instructions of warps
//   parallel_k         the same with slice-K (warps) and split-K (blocks)
//   small_k            GEMM with a short reduction, bound by memory
//   simt_fma           f32 GEMM by multiply-adds of threads
//   simt               GEMM and convolution of any type, the same
//   gemv               skinny GEMM: 1 to 4 columns, all of some neighbours a thread
// Reductions:
//   welford            two-stage reduction of sums and squares (means and variances)
//   grid_reduce        two-stage reduction: the fewest and longest sums, many blocks each
//   block_reduce       few long sums, several threads each
//   row_reduce         rows (softmax, normalization), a block or a warp each
//   sliding_window_1d  long windows along one dim, tiled through shared memory
//   sliding_window     depthwise convolution and pooling, some neighbours a thread
// Maps:
//   transpose          tiled transpose through shared memory
//   pointwise          an element of the result, or a vector of them, a thread
//   fallback           each statement in nests of its own
#ifndef KILN_TEMPLATE_GPU_GRID_H
#define KILN_TEMPLATE_GPU_GRID_H

#include "price/gpu_work.h"
#include "template/gpu/occupancy.h"
#include "template/lower.h"

enum { KILN_GPU_THREADS = 256 }; // of a block, where nothing else is said

// Maps the iterations of n >= 1 perfectly nested loops, the outermost first, to a grid of blocks of
// |threads| threads: the loops are fused, split and bound.
//
// gives: *out_thread, the loop over the threads of a block
kiln_status kiln_gpu_map_grid(kiln_lowering *w, int n, const kiln_symbol *loops, int64_t threads,
                              kiln_symbol *out_thread);
// Cyclic distribution within a block: each of |threads| threads, |width| along x, takes every
// |threads|-th iteration.
kiln_status kiln_gpu_distribute_cyclic(kiln_lowering *w, int n, const kiln_symbol *loops,
                                       int64_t threads, int64_t width);
// The n loops, perfectly nested, as one; n == 1: the loop itself.
kiln_status kiln_gpu_fuse(kiln_lowering *w, int n, const kiln_symbol *loops, kiln_symbol *out,
                          int64_t *out_extent);
// Cuts the reduction loop |loop| of the sums |of|, whose other loops are outer[0..n_outer), into
// parts for |n| threads, each added up in registers: NAME.sums beside NAME, which is |of|.|suffix|.
kiln_status kiln_gpu_factor(kiln_lowering *w, kiln_symbol loop, int64_t n, kiln_symbol of,
                            const char *suffix, int n_outer, const kiln_symbol *outer,
                            kiln_symbol *out);
// A reduction whose results are one a element of the kernel's result.
typedef struct kiln_gpu_reduction {
  const kiln_stmt *s;
  // Neighbouring threads take terms of one sum, which are contiguous; else neighbouring sums.
  bool along;
  int64_t elems, terms;
} kiln_gpu_reduction;
// Whether |s| computes an element for each element of |w|'s result, unconditionally.
bool kiln_gpu_is_by_element(const kiln_lowering *w, const kiln_stmt *s);
// Whether |s| is a reduction by element; *out only then.
bool kiln_gpu_reduction_of(const kiln_lowering *w, const kiln_stmt *s, kiln_gpu_reduction *out);
// Whether template `block_reduce` runs all of |w|, and gives each multiprocessor a block.
bool kiln_gpu_block_reduce_fills(const kiln_lowering *w);
// The machine's instruction |name|; NULL: it lacks it.
kiln_instr *kiln_gpu_instr_named(const kiln_lowering *w, const char *name);
// Bytes of all that the kernel reads and stores, each once.
double kiln_gpu_param_bytes(const kiln_lowering *w);
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

// The extent of |loop|, which is there and constant.
int64_t kiln_gpu_extent(const kiln_lowering *w, kiln_symbol loop);

#endif
