// Products of extents in a normal form.
#include "fission/product.h"

#include <string.h>

kiln_factors kiln_factors_one(void) { return (kiln_factors){.constant = 1}; }

static void insert(kiln_factors *p, const kiln_expr *e) {
  int at = p->n++;
  for (; at > 0 && p->factors[at - 1]->id > e->id; at--) p->factors[at] = p->factors[at - 1];
  p->factors[at] = e;
}

void kiln_factors_mul(kiln_factors *p, const kiln_expr *e) {
  int64_t value = 0;
  if (kiln_expr_is_int(e, &value)) {
    p->constant = (int64_t)((uint64_t)p->constant * (uint64_t)value);
  } else if (e->kind == KILN_EXPR_MUL && p->n + 2 < KILN_PRODUCT_MAX) {
    kiln_factors_mul(p, e->args[0]);
    kiln_factors_mul(p, e->args[1]);
  } else if (p->n < KILN_PRODUCT_MAX) {
    insert(p, e);
  }
}

bool kiln_factors_equal(const kiln_factors *a, const kiln_factors *b) {
  return a->constant == b->constant && a->n == b->n && a->n < KILN_PRODUCT_MAX &&
         memcmp(a->factors, b->factors, sizeof(a->factors[0]) * (size_t)a->n) == 0;
}

bool kiln_factors_divide(kiln_factors *p, const kiln_factors *by) {
  if (by->constant == 0 || p->constant % by->constant != 0) return false;
  p->constant /= by->constant;
  for (int i = 0; i < by->n; i++) {
    int at = 0;
    while (at < p->n && p->factors[at] != by->factors[i]) at++;
    if (at == p->n) return false;
    memmove(&p->factors[at], &p->factors[at + 1], sizeof(p->factors[0]) * (size_t)(p->n - at - 1));
    p->n--;
  }
  return true;
}

const kiln_expr *kiln_factors_expr(kiln_ctx *cx, const kiln_factors *p) {
  const kiln_expr *e = kiln_int(cx, p->constant);
  for (int i = 0; i < p->n; i++) e = kiln_mul(cx, e, p->factors[i]);
  return e;
}
