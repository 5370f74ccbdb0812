// CumSum and CumProd: each element reduces those before it, by a guard on the reduction.
// source: ONNX CumSum-11, 14; CumProd-26
#include "fission/terms.h"

#include <string.h>

typedef struct scan {
  int axis;
  bool exclusive, reverse;
} scan;

static kiln_status read_scan(kiln_lower *lw, scan *c) {
  KILN_TRY(kiln_lower_want_inputs(lw, 2, 2));
  KILN_TRY(kiln_lower_want_dtype(lw, 0, kiln_dtype_is_number, "numbers"));
  int64_t exclusive = 0, reverse = 0;
  int n = 0;
  const int64_t *axis = NULL;
  KILN_TRY(kiln_lower_int(lw, "exclusive", 0, &exclusive));
  KILN_TRY(kiln_lower_int(lw, "reverse", 0, &reverse));
  KILN_TRY(kiln_lower_const_ints(lw, 1, &n, &axis));
  if (n != 1)
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                     "input 1 (axis): must have one element, got %d", n);
  c->exclusive = exclusive != 0;
  c->reverse = reverse != 0;
  return kiln_lower_axis(lw, axis[0], lw->inputs[0]->rank, false, &c->axis);
}

static kiln_status lower_scan(kiln_lower *lw) {
  kiln_ctx *cx = lw->cx;
  scan c = {0};
  KILN_TRY(read_scan(lw, &c));
  kiln_tensor *x = lw->inputs[0];
  const kiln_expr *extents[KILN_MAX_RANK + 1], *index[KILN_MAX_RANK];
  for (int a = 0; a < x->rank; a++) extents[a] = x->shape[a];
  extents[x->rank] = x->shape[c.axis];
  kiln_stmt *s = kiln_lower_stmt(lw, NULL, kiln_accumulator(x->dtype), x->rank, 1, extents);
  kiln_stmt_vars(cx, s, 0, x->rank, index);
  const kiln_expr *here = index[c.axis], *r = kiln_stmt_var(cx, s, x->rank);
  index[c.axis] = r;
  const bool product = strcmp(kiln_symbol_text(cx, lw->node->op), "CumProd") == 0;
  s->combiner = product ? KILN_COMBINE_PROD : KILN_COMBINE_SUM;
  s->body = kiln_cast(cx, kiln_accumulator(x->dtype), kiln_tensor_load(cx, x, index));
  s->guard = kiln_compare(cx, c.exclusive ? KILN_EXPR_LT : KILN_EXPR_LE, c.reverse ? here : r,
                          c.reverse ? r : here);
  return kiln_lower_cast(lw, kiln_lower_tensor(lw, s), x->dtype, &lw->outputs[0]);
}

const kiln_op kiln_op_cumsum[] = {
    {"", "CumSum", 11, 0, lower_scan, NULL, "ops/cumsum.c"},
    {"", "CumProd", 26, 0, lower_scan, NULL, "ops/cumsum.c"},
    {0},
};
