// The number of operations in a program's reductions.
#ifndef KILN_TEST_REWRITE_PRODUCTS_H
#define KILN_TEST_REWRITE_PRODUCTS_H

#include "ir/prim.h"

// The iterations of all reductions of |p|.
static int64_t products(const kiln_program *p) {
  int64_t n = 0, extent = 0;
  for (int i = 0; i < p->stmts.n; i++) {
    const kiln_stmt *s = p->stmts.data[i];
    int64_t domain = s->n_reduce > 0;
    for (int d = 0; d < s->n_space + s->n_reduce; d++)
      domain *= kiln_expr_is_int(s->dims[d].extent, &extent) ? extent : 0;
    n += domain;
  }
  return n;
}

#endif
