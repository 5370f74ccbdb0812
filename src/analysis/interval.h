// Intervals of expressions, memoized by node: the private half of analysis/simplify.h.
#ifndef KILN_ANALYSIS_INTERVAL_H
#define KILN_ANALYSIS_INTERVAL_H

#include "analysis/simplify.h"

// A narrower range of a variable in one branch of a SELECT.
typedef struct kiln_assumption {
  kiln_symbol var;
  kiln_interval range;
  const struct kiln_assumption *outer;
} kiln_assumption;

// The assumptions of one branch and the intervals found under them; the memo lies in the scratch
// arena of |cx|.
typedef struct kiln_bounds {
  kiln_ctx *cx;
  const kiln_ranges *ranges; // may be NULL
  const kiln_assumption *assumed;
  kiln_map known; // expression id to the number of its interval
  KILN_VEC(kiln_interval) intervals;
} kiln_bounds;

void kiln_bounds_init(kiln_bounds *b, kiln_ctx *cx, const kiln_ranges *ranges,
                      const kiln_assumption *assumed);
kiln_interval kiln_bounds_of(kiln_bounds *b, const kiln_expr *e);
kiln_interval kiln_bounds_of_var(const kiln_bounds *b, kiln_symbol var);

// The interval of an integer or a condition, given those of its arguments. |e| must not be a
// variable or a load.
kiln_interval kiln_interval_of_node(const kiln_expr *e, const kiln_interval *args);
kiln_interval kiln_interval_all(void);
kiln_interval kiln_interval_add(kiln_interval a, kiln_interval b); // infinite ends stay infinite
kiln_interval kiln_interval_scale(kiln_interval a, int64_t factor);

#endif
