// Results that lie across the vectors that compute them, as those of an image whose channels lie in
// front do: a block of them is computed as vectors make it, into memory of its own, and copied from
// there, squares being turned in registers.
#ifndef KILN_TEMPLATE_CPU_TURNED_H
#define KILN_TEMPLATE_CPU_TURNED_H

#include "template/lower.h"

// The dim of the root, of which |s| is the sum, along which the result lies in a piece, where that
// is not the vectors', the last one, and is long enough for whole lines; else -1.
int kiln_turned_dim(const kiln_lowering *w, const kiln_stmt *s);
// The most of it that a block has.
int64_t kiln_turned_most(const kiln_lowering *w, int turned);
// The blocks of |n|, or a few more, that are as even as whole vectors let them be: as much of the
// dim as one has.
int64_t kiln_turned_even(const kiln_lowering *w, int turned, int64_t n);
// Copies the root's result in blocks of |block| of its dim |turned|, whose loops run over
// dims[0..n), all but the last one, and computes what they copy in the innermost, |*out_at|.
KILN_MUST_USE kiln_status kiln_turn_result(kiln_lowering *w, int n, const int *dims, int turned,
                                           int64_t block, bool is_parallel, kiln_symbol *out_at);

#endif
