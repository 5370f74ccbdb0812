// Register tiles of contractions whose broadcast operand has no dim of its own, as a depthwise
// convolution with contiguous pixels: y(c, h, w) += x(c, h + p, w + q) * v(c, p, q). A tile is some
// vectors of w in some rows of h. Each weight is broadcast once for all of them, and a row that
// several windows share is loaded once, as the unrolled steps along p are consecutive.
#ifndef KILN_TEMPLATE_CPU_OWN_ROWS_H
#define KILN_TEMPLATE_CPU_OWN_ROWS_H

#include "template/cpu/contraction.h"

// The row dim of the tile: the innermost one along which windows of the vector operand slide; -1:
// |k| has another form.
int kiln_own_rows_dim(const kiln_contraction *k);
// Chooses rows and vectors of k->col and k->v, and the order of the reduction; gives the vectors,
// and the share of the peak.
int64_t kiln_own_rows_choose(kiln_contraction *k, double *out_efficiency);
// Elements of |load| from one index of the vector dim to the next along an axis that other dims
// move, too: 2 of x(2*w + q).
int64_t kiln_own_rows_step(const kiln_contraction *k, const kiln_expr *load);

#endif
