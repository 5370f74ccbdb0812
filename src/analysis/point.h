// Evaluation of index expressions at one point.
#ifndef KILN_ANALYSIS_POINT_H
#define KILN_ANALYSIS_POINT_H

#include "ir/expr.h"

// The value of |e|, integers or a condition on them, where vars[n] have these values and all other
// variables are 0. What is loaded is taken for 1.
int64_t kiln_expr_at(const kiln_expr *e, int n, const kiln_symbol *vars, const int64_t *values);

#endif
