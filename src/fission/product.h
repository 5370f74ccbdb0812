// Products of extents in a normal form: a constant times symbolic factors, so that n*12*64 and
// n*768 compare equal and -1 in a Reshape can be divided out.
#ifndef KILN_FISSION_PRODUCT_H
#define KILN_FISSION_PRODUCT_H

#include "ir/expr.h"

enum { KILN_PRODUCT_MAX = 32 };

typedef struct kiln_product {
  int64_t constant;
  int n;
  const kiln_expr *factors[KILN_PRODUCT_MAX]; // ascending by id
} kiln_product;

kiln_product kiln_product_one(void);
void kiln_product_mul(kiln_product *p,
                      const kiln_expr *e); // multiplications in |e| are taken apart
bool kiln_product_equal(const kiln_product *a, const kiln_product *b);
// p /= by; false (and |p| undefined) when |by| does not divide it factor by factor.
bool kiln_product_divide(kiln_product *p, const kiln_product *by);
const kiln_expr *kiln_product_expr(kiln_ctx *cx, const kiln_product *p);

#endif
