// Sums of terms, the normal form of index arithmetic: coef * term + ... + constant; a term is a
// simplified i64 expression of another kind than ADD and SUB. Private to analysis/simplify.c.
#ifndef KILN_ANALYSIS_SUM_H
#define KILN_ANALYSIS_SUM_H

#include "analysis/interval.h"

typedef struct kiln_sum_term {
  int64_t coef; // not 0
  const kiln_expr *e;
} kiln_sum_term;

// Lives in the scratch arena; coefficients wrap as i64 arithmetic does.
typedef struct kiln_sum {
  KILN_VEC(kiln_sum_term) terms; // distinct, in order of their first appearance
  int64_t constant;
} kiln_sum;

void kiln_sum_add_term(kiln_ctx *cx, kiln_sum *s, int64_t coef, const kiln_expr *e);
void kiln_sum_add(kiln_ctx *cx, kiln_sum *s, int64_t factor, const kiln_sum *other);
// Adds factor * |e|; inverse of kiln_sum_build.
void kiln_sum_add_expr(kiln_ctx *cx, kiln_sum *s, int64_t factor, const kiln_expr *e);
kiln_sum kiln_sum_of(kiln_ctx *cx, const kiln_expr *e);
const kiln_expr *kiln_sum_build(kiln_ctx *cx, const kiln_sum *s); // in canonical order
// Whether no intermediate result wraps: assumed for index arithmetic, to be proved for loaded data.
bool kiln_sum_is_exact(kiln_bounds *b, const kiln_sum *s);
kiln_interval kiln_sum_interval(kiln_bounds *b, const kiln_sum *s);
int64_t kiln_sum_gcd(const kiln_sum *s); // of the coefficients; 0 without terms

// A structural order of expressions, the same in every context.
int kiln_expr_order(const kiln_ctx *cx, const kiln_expr *a, const kiln_expr *b);

#endif
