// Search for a point of a box of integers where conditions hold: a proof that instances meet which
// costs a hundredth of isl's sample of the set.
#ifndef KILN_ANALYSIS_WITNESS_H
#define KILN_ANALYSIS_WITNESS_H

#include "ir/expr.h"

// Whether a point with 0 <= vars[k] < extents[k] was found where all |conds| hold. Backtracks over
// the variables in order, the smallest values first; a value is left out when the interval of a
// condition, over the variables behind it, is false. False says nothing: the budget is spent, an
// expression depends on data, or there is no such point.
//
// cost: at most |budget| nodes of expressions are evaluated, some 20 ns each
bool kiln_find_witness(kiln_ctx *cx, int n_vars, const kiln_symbol *vars,
                       const kiln_expr *const *extents, int n_conds, const kiln_expr *const *conds,
                       int budget);

#endif
