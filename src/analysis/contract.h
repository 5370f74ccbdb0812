// The interpreter's fast path for contractions. Private to analysis/.
#ifndef KILN_ANALYSIS_CONTRACT_H
#define KILN_ANALYSIS_CONTRACT_H

#include "analysis/rounding_error.h"
#include "analysis/interpret.h"

// Computes |s| into |out| if it is a sum of products of two float loads with affine addresses in
// range, as `Y(n, m, h, w) +=! P(n, c, h + kh, w + kw) * W(m, c, kh, kw)`. Sums are double. False,
// with nothing computed, otherwise. If |e| is not NULL it gets the error bounds of the elements:
// |tensors| has those of the factors, |may| the numeric freedoms of the computation that is judged.
bool kiln_contract(const kiln_bytecode *c, const kiln_stmt *s, void *out,
                   const kiln_errors *tensors, const kiln_errors *e, const kiln_freedoms *may);

#endif
