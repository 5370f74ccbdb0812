// Search for an integer point of a box that satisfies conditions: proves that two accesses conflict
// at a hundredth of the cost of isl's sample of the set.
#ifndef KILN_ANALYSIS_WITNESS_H
#define KILN_ANALYSIS_WITNESS_H

#include "ir/expr.h"

// Whether a point with 0 <= vars[k] < extents[k] was found that satisfies all |conds|. Backtracking
// search, variable by variable; a value is rejected if interval arithmetic over the unassigned
// variables refutes a condition. False is inconclusive: there is no such point, the budget is
// spent, or an expression depends on data.
//
// cost: at most |budget| expression nodes are evaluated, some 20 ns each
bool kiln_find_witness(kiln_ctx *cx, int n_vars, const kiln_symbol *vars,
                       const kiln_expr *const *extents, int n_conds, const kiln_expr *const *conds,
                       int budget);

#endif
