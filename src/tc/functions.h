// Functions of the notation that are composed of others: the float functions of C and CUDA.
//
// Each has a relative error of at most 1e-6 for float arguments; rows marked "wide" are computed in
// double. round() rounds half to even; fmin and fmax ignore NaN, min and max propagate it.
#ifndef KILN_TC_FUNCTIONS_H
#define KILN_TC_FUNCTIONS_H

#include "ir/expr.h"

enum { KILN_TC_MAX_ARGS = 4 };

typedef struct kiln_tc_composed {
  const char *name;
  int n_args;
  bool wide;        // computed in double
  const char *text; // in terms of a, b, c, d; NULL: use |build|
  const kiln_expr *(*build)(kiln_ctx *cx, const kiln_expr *a); // of a double
} kiln_tc_composed;

const kiln_tc_composed *kiln_tc_find_composed(const char *name); // NULL: there is none

#endif
