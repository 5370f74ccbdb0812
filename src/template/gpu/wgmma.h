// GEMM by instructions of warp groups (sm_90a): the parts that templates share.
#ifndef KILN_TEMPLATE_GPU_WGMMA_H
#define KILN_TEMPLATE_GPU_WGMMA_H

#include "template/gpu/blocks.h"

enum {
  KILN_WGMMA_STEP = 64
}; // along k, to which a product is padded (kiln_product_pad) first of all

// Whether the device has wgmma instructions for the product's types.
bool kiln_wgmma_takes(const kiln_lowering *w, const kiln_product *p);
// How many blocks of m x n, a warp group for 64 rows each, run on a multiprocessor at the same
// time.
int64_t kiln_wgmma_resident(const kiln_lowering *w, const kiln_product *p, int64_t m, int64_t n);
// The sums of tiles of m x n, one an iteration of |block|, from operands that are
// software-pipelined (filled some steps ahead).
//
// gives: *out, whose y_m and y_n are those of p->y
kiln_status kiln_wgmma_multiply(kiln_lowering *w, const kiln_product *p, int64_t m, int64_t n,
                                kiln_symbol block, kiln_product_loops *out);

#endif
