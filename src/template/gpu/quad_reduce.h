// Quad (4-lane) reductions of an MMA fragment. The sums of a row lie with the four lanes of a quad
// (layout.h); a row's reduction result has four copies, one for each of these lanes:
//
//     row of sums   0 1 | 2 3 | 4 5 | 6 7 | 8 9 ..      quad.sum: each lane adds up its columns,
//     lane          0     1     2     3     0                     then two shuffles
#ifndef KILN_TEMPLATE_GPU_QUAD_REDUCE_H
#define KILN_TEMPLATE_GPU_QUAD_REDUCE_H

#include "template/form/row_stmt.h"
#include "template/lower.h"

typedef struct kiln_quad_tile {
  kiln_lowering *w;
  int n_lead;         // axes in front of the rows
  int64_t rows, warp; // of a block, and of a warp or a warp group
  bool by_warpgroups; // by warp groups, of 64 rows
} kiln_quad_tile;

// Layouts of buffers: sums (.., rows, columns), of which a warp or warp group has whole rows;
// results of row reductions, (.., rows, copies).
kiln_status kiln_quad_layout_sums(const kiln_quad_tile *q, kiln_symbol sums, int64_t columns);
kiln_status kiln_quad_layout_rows(const kiln_quad_tile *q, kiln_symbol f);
// Runs a nest by the threads that hold the elements of its largest fragment; does nothing if no
// loop |rows| exists.
kiln_status kiln_quad_run_nest(const kiln_quad_tile *q, kiln_symbol rows);
// A nest over (rows, inner[0..n_inner)), the first of them the copies, by |instr|, which takes the
// rows of all lanes at once.
kiln_status kiln_quad_reduce(const kiln_quad_tile *q, kiln_symbol rows, int n_inner,
                             const kiln_symbol *inner, kiln_instr *instr);
// The loops of a product's nest by mma: over warps, steps, tiles, and in an instruction.
typedef struct kiln_quad_product {
  kiln_symbol warp, step, tile_m, tile_n, m, n, k;
} kiln_quad_product;
kiln_status kiln_quad_split_product(const kiln_quad_tile *q, kiln_symbol m, kiln_symbol n,
                                    kiln_symbol k, kiln_quad_product *out);
kiln_status kiln_quad_run_product(const kiln_quad_tile *q, const kiln_quad_product *p,
                                  kiln_instr *mma);
// A product by warp groups: |column| and |lines|, where its columns come in these (0: they do not),
// and |depth| inside.
kiln_status kiln_quad_run_warpgroups(const kiln_quad_tile *q, kiln_symbol rows, kiln_symbol column,
                                     kiln_symbol depth, kiln_symbol lines, kiln_instr *instr);
// Runs the nest of |s|, over sums or over row results, by the lanes that hold them.
kiln_status kiln_quad_run(const kiln_quad_tile *q, kiln_row_nest nest, const kiln_stmt *s);

#endif
