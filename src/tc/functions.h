// The functions of the notation that are compositions of others: C's and CUDA's float functions.
//
// Each is right to 1e-6 relative for float arguments; those with "wide" rows are computed in
// double. round() rounds half to even; fmin and fmax pass over NaN, min and max do not.
#ifndef KILN_TC_FUNCTIONS_H
#define KILN_TC_FUNCTIONS_H

#include "ir/expr.h"

enum { KILN_TC_MAX_ARGS = 4 };

typedef struct kiln_tc_composed {
  const char *name;
  int n_args;
  bool wide;        // computed in double
  const char *text; // over a, b, c, d; NULL: |build| makes it
  const kiln_expr *(*build)(kiln_ctx *cx, const kiln_expr *a); // of a double
} kiln_tc_composed;

const kiln_tc_composed *kiln_tc_find_composed(const char *name); // NULL: there is none

#endif
