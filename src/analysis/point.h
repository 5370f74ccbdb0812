// Evaluation of index expressions at one point.
#ifndef KILN_ANALYSIS_POINT_H
#define KILN_ANALYSIS_POINT_H

#include "ir/expr.h"

// The value of |e| (an integer, or a condition on integers) at vars[n] = values; other variables
// are 0, loads are 1.
int64_t kiln_expr_at(const kiln_expr *e, int n, const kiln_symbol *vars, const int64_t *values);

#endif
