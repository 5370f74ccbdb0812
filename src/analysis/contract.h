// The interpreter's fast path for contractions. Private to analysis/.
#ifndef KILN_ANALYSIS_CONTRACT_H
#define KILN_ANALYSIS_CONTRACT_H

#include "analysis/follow.h"
#include "analysis/interpret.h"

// Computes |s| into |out| when it is a sum of products of two float loads whose addresses are
// affine and in range: `Y(n, m, h, w) +=! P(n, c, h + kh, w + kw) * W(m, c, kh, kw)` and the like.
// Sums are double. False (and nothing done) when it is something else.
// Where |e| is not NULL it gets the errors of the elements, those of the factors being in
// |tensors|, for what is computed as
// |may| has it.
bool kiln_contract(const kiln_bytecode *c, const kiln_stmt *s, void *out,
                   const kiln_errors *tensors, const kiln_errors *e, const kiln_freedoms *may);

#endif
