// GEMM by blocks: common parts of its templates (tiles of the result, staged operands). product.h
// defines a product.
#ifndef KILN_TEMPLATE_GPU_BLOCKS_H
#define KILN_TEMPLATE_GPU_BLOCKS_H

#include "template/gpu/grid.h"
#include "template/form/product.h"

kiln_symbol kiln_product_tensor(const kiln_lowering *w, const kiln_stmt *s);
kiln_symbol kiln_product_loop(kiln_lowering *w, const kiln_stmt *s, const char *part,
                              const char *dim);

bool kiln_product_is_packed(const kiln_lowering *w,
                            const kiln_stmt *operand); // a constant's elements

// The loops of a product that was cut into blocks.
typedef struct kiln_product_loops {
  kiln_symbol block;    // over the tiles of the result; not bound yet
  kiln_symbol step, k;  // of the reduction: the steps, and k within one
  kiln_symbol m, n;     // of the sums within a tile, and
  kiln_symbol y_m, y_n; // of their epilogue
} kiln_product_loops;
// Rounds the reduction up to a multiple of |step|, with zeros in both operands; before anything
// else.
kiln_status kiln_product_pad(kiln_lowering *w, const kiln_product *p, int64_t step);
// Cuts the result into tiles of m x n, a block each, whose sums are memory of the block's threads,
// and the reduction into steps of |k|. Constants are packed.
kiln_status kiln_product_blocks(kiln_lowering *w, const kiln_product *p, int64_t m, int64_t n,
                                int64_t k, kiln_product_loops *out);
// The same with results by way of shared memory: the epilogue computes a tile there, which
// |threads| threads, |width| along x, copy in words.
kiln_status kiln_product_blocks_shared(kiln_lowering *w, const kiln_product *p, int64_t m,
                                       int64_t n, int64_t k, int64_t threads, int64_t width,
                                       kiln_product_loops *out);
// The steps of that: packs constants; tiles |result|, which is p->y or another one of the same
// axes, over the blocks *out_block; computes the sums of one iteration of |block| in steps of |k|.
kiln_status kiln_product_pack(kiln_lowering *w, const kiln_product *p);
kiln_status kiln_product_result(kiln_lowering *w, const kiln_product *p, const kiln_stmt *result,
                                int64_t m, int64_t n, int64_t threads, int64_t width,
                                kiln_symbol *out_block);
kiln_status kiln_product_sums(kiln_lowering *w, const kiln_product *p, int64_t k, kiln_symbol block,
                              kiln_product_loops *out);
// The steps of kiln_product_blocks: packs constants and names the loops; splits the nest over
// loops[0..n_outer + 2), the last two a map's rows and columns, into tiles, over which the loops
// BLOCK.m and BLOCK.n run.
kiln_status kiln_product_begin(kiln_lowering *w, const kiln_product *p, kiln_product_loops *out);
kiln_status kiln_product_tile(kiln_lowering *w, const char *block, int n_outer,
                              const kiln_symbol *loops, int64_t m, int64_t n,
                              kiln_product_loops *io);
// Rows of tiles in a group (L2 rasterization), of |rows|: consecutive blocks take a column of the
// group, then the next column.
int64_t kiln_product_group(int64_t rows);
// Stages the part of an operand that an iteration of |at| reads in shared memory: copies or
// computes it.
//
// gives: *out_buffer, which the product reads now; out_loops[2], over the last two axes of its tile
kiln_status kiln_product_stage_whole(kiln_lowering *w, const kiln_stmt *operand, kiln_symbol at,
                                     kiln_symbol *out_buffer, kiln_symbol *out_loops);
// The same by |threads| threads, |width| along x. |inside|: which of its last two axes, 0 or 1, the
// caller makes the contiguous one.
kiln_status kiln_product_stage_words(kiln_lowering *w, const kiln_stmt *operand, int inside,
                                     kiln_symbol at, int64_t threads, int64_t width,
                                     kiln_symbol *out_buffer);
// The same, of the last axis. |transpose|: its last two axes change places. |align|: padding
// against bank conflicts: rows begin |align| elements off a multiple of 2 |align|; 0: no padding.
//
// gives: *out_buffer, which the product reads now
kiln_status kiln_product_stage(kiln_lowering *w, const kiln_stmt *operand, bool transpose,
                               int64_t align, kiln_symbol at, int64_t threads, int64_t width,
                               kiln_symbol *out_buffer);

#endif
