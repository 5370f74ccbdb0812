// Affine forms over atoms.
#ifndef KILN_ANALYSIS_TERMS_H
#define KILN_ANALYSIS_TERMS_H

#include "ir/expr.h"

// e = sum(coef * atom) + constant; an atom is a variable or a subexpression that is not affine.
typedef struct kiln_term {
  const kiln_expr *atom;
  int64_t coef;
} kiln_term;
typedef struct kiln_terms {
  kiln_term *data;
  int n, cap;
  int64_t constant;
} kiln_terms;
kiln_terms kiln_terms_of(kiln_ctx *cx, const kiln_expr *e);

#endif
