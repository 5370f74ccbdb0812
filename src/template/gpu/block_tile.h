// Tiles of a block with what they need of other statements: overlapped tiling on a GPU.
//
//   for block {                    a tile of the result's elements
//     shared T; for thread { T }   a producer's box, halo included, distributed over the threads
//     for thread { U; Y }          the tile's elements; U in a thread's registers
//   }
//
// A producer is computed in shared memory, or in the registers of the threads that read it, where
// computing it anew for each of them takes fewer instructions. Sums are added up in registers.
//
// source: Verdoolaege et al., Polyhedral parallel code generation for CUDA (TACO 2013);
//         Ragan-Kelley et al., Halide (PLDI 2013), compute_at with shared memory
#ifndef KILN_TEMPLATE_GPU_BLOCK_TILE_H
#define KILN_TEMPLATE_GPU_BLOCK_TILE_H

#include "template/gpu/grid.h"

// Sizes of a tile, by loop of the result's nest, the contiguous one last (0: the loop is not cut,
// and all of it belongs to a tile), and of a block.
typedef struct kiln_block_shape {
  int64_t size[2 * KILN_MAX_RANK];
  int64_t threads[2]; // along x and y
} kiln_block_shape;
enum { KILN_MOST_BLOCK_SHAPES = 24 };

// Proposes shapes for a result of |n| loops of |extents|: 128 to 512 threads a block where there is
// so much to do, the contiguous loop along x.
//
// gives: the number of shapes in |out|, at most KILN_MOST_BLOCK_SHAPES
int kiln_block_shapes(const kiln_machine *m, int n, const int64_t *extents, kiln_block_shape *out);

// A statement whose elements are computed in a block.
typedef struct kiln_block_stmt {
  const kiln_stmt *stmt;
  kiln_symbol at; // the innermost loop around its elements that is not unrolled
} kiln_block_stmt;

typedef struct kiln_block_tile {
  kiln_lowering *w;
  kiln_block_shape shape;
  kiln_symbol block; // over the tiles
  int n;             // statements that are placed, readers before what they read
  kiln_block_stmt stmts[KILN_MAX_MEMBERS];
} kiln_block_tile;

// The loops over the elements of |s|: of a reduction, whose sums go to a buffer NAME.sums, those
// that copy them.
int kiln_block_loops(kiln_lowering *w, const kiln_stmt *s, kiln_symbol *out);
// Lets the nests of the reduction |s| compute NAME.sums.
kiln_status kiln_block_keep_sums(kiln_lowering *w, const kiln_stmt *s);
// Cuts n loops into tiles of |shape|.
//
// gives: out_tiles[*out_n_tiles], the loops over tiles; out_points[*out_n_points], those within one
kiln_status kiln_block_cut(kiln_lowering *w, int n, const kiln_symbol *loops,
                           const kiln_block_shape *shape, int *out_n_tiles, kiln_symbol *out_tiles,
                           int *out_n_points, kiln_symbol *out_points);
// Makes the n loops over tiles t->block, and binds it.
kiln_status kiln_block_bind(kiln_block_tile *t, int n, const kiln_symbol *tiles);
// Distributes a tile's loops over the threads; |s|, which writes the elements, stays in memory, and
// its sums are kept (kiln_block_keep_sums).
kiln_status kiln_block_add_result(kiln_block_tile *t, const kiln_stmt *s, int n,
                                  const kiln_symbol *points);
// Computes |s|, whose readers all are placed, in the block: in shared memory or in registers.
kiln_status kiln_block_add_producer(kiln_block_tile *t, const kiln_stmt *s);
// Copies parameters that the block's threads read repeatedly to shared memory: all of them, or only
// those that neighbouring threads read across their rows.
//
// gives: adds a line to |comments| (NULL: none) for each
kiln_status kiln_block_stage(kiln_block_tile *t, bool all, kiln_text *comments);

// Whether the reduction |s| has so few results that threads must share one's terms.
bool kiln_block_is_long(const kiln_lowering *w, const kiln_stmt *s);
// Maps such a reduction, in nests of its own: several threads, and blocks, take parts of the terms
// of a result, which are combined in order.
kiln_status kiln_block_reduce(kiln_lowering *w, const kiln_stmt *s);

// The predicted time of the nest that |loop| is in; infinite if it cannot run.
double kiln_block_price(kiln_lowering *w, kiln_symbol loop);

#endif
