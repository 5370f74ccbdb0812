// Transposed results, contiguous along a dim other than that of the vectors, as images with
// channels first: a block is computed into local memory and copied from there, squares being
// transposed in registers.
#ifndef KILN_TEMPLATE_CPU_TURNED_H
#define KILN_TEMPLATE_CPU_TURNED_H

#include "template/lower.h"

// The dim of the root, of which |s| is the sum, along which the result is contiguous, where that is
// not the vector dim, the last one, and is long enough for whole lines; else -1.
int kiln_turned_dim(const kiln_lowering *w, const kiln_stmt *s);
// The largest block along it.
int64_t kiln_turned_most(const kiln_lowering *w, int turned);
// The block along it where it is split into |n| blocks, or a few more, as even as whole vectors
// allow.
int64_t kiln_turned_even(const kiln_lowering *w, int turned, int64_t n);
// Copies the root's result in blocks of |block| along its dim |turned|, in loops over dims[0..n),
// all but the last one, and computes a block in the innermost of them, |*out_at|.
KILN_MUST_USE kiln_status kiln_turn_result(kiln_lowering *w, int n, const int *dims, int turned,
                                           int64_t block, bool is_parallel, kiln_symbol *out_at);

#endif
