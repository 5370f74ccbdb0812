// Products of extents in normal form, a constant times symbolic factors: n*12*64 and n*768 compare
// equal, and the -1 of a Reshape is a quotient.
#ifndef KILN_FISSION_PRODUCT_H
#define KILN_FISSION_PRODUCT_H

#include "ir/expr.h"

enum { KILN_PRODUCT_MAX = 32 };

typedef struct kiln_factors {
  int64_t constant;
  int n;
  const kiln_expr *factors[KILN_PRODUCT_MAX]; // ascending by id
} kiln_factors;

kiln_factors kiln_factors_one(void);
void kiln_factors_mul(kiln_factors *p,
                      const kiln_expr *e); // flattens multiplications in |e|
bool kiln_factors_equal(const kiln_factors *a, const kiln_factors *b);
// p /= by; false (and |p| undefined) if |by| does not divide it factor by factor.
bool kiln_factors_divide(kiln_factors *p, const kiln_factors *by);
const kiln_expr *kiln_factors_expr(kiln_ctx *cx, const kiln_factors *p);

#endif
