// Register tiles of contractions whose broadcast operand has no dim of its own, as of a convolution
// channel by channel whose pixels lie in rows: y(c, h, w) += x(c, h + p, w + q) * v(c, p, q). A
// tile is some vectors of w in some rows of h. Each weight is broadcast once for all of them, and a
// row that lies in several windows is loaded once, as steps along p, which are written out, follow
// each other.
#ifndef KILN_TEMPLATE_CPU_OWN_ROWS_H
#define KILN_TEMPLATE_CPU_OWN_ROWS_H

#include "template/cpu/contraction.h"

// The dim of such a tile's rows: the innermost one along which windows of the vector operand slide;
// -1: |k| is none of them.
int kiln_own_rows_dim(const kiln_contraction *k);
// Chooses rows and vectors of k->col and k->v, and the order of the reduction; gives the vectors,
// and the share of the peak.
int64_t kiln_own_rows_choose(kiln_contraction *k, double *out_efficiency);
// Elements of |load| from one index of the vector dim to the next along an axis that other dims
// move, too: 2 of x(2*w + q).
int64_t kiln_own_rows_step(const kiln_contraction *k, const kiln_expr *load);

#endif
