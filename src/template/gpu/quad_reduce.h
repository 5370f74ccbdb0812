// What the lanes of a block hold of rows: sums of matrix instructions, of which the four lanes of a
// quad have a row's (fragment.h, warpgroup.h), and what is known of each row, a copy for each
// of the four.
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

// The layouts of buffers: sums (.., rows, columns), of which a warp or group has whole rows; what
// is known of rows, (.., rows, copies).
kiln_status kiln_quad_layout_sums(const kiln_quad_tile *q, kiln_symbol sums, int64_t columns);
kiln_status kiln_quad_layout_rows(const kiln_quad_tile *q, kiln_symbol f);
// A nest over the |n| columns of sums, by the lanes that hold them.
kiln_status kiln_quad_run_elements(const kiln_quad_tile *q, kiln_symbol rows, kiln_symbol columns,
                                   int64_t n);
// A nest over (rows, copies), and what is inside, a copy a lane; nothing where there is no such
// loop.
kiln_status kiln_quad_run_rows(const kiln_quad_tile *q, kiln_symbol rows, kiln_symbol copies);
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
// The nest of |s| over sums of |columns| columns or what is known of rows, by the lanes that hold
// them.
kiln_status kiln_quad_run(const kiln_quad_tile *q, kiln_row_nest nest, const kiln_stmt *s,
                          int64_t columns);

#endif
