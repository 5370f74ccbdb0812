// CumSum and CumProd.
// source: ONNX CumSum-11, 14; CumProd-26
#include "fission/scan.h"
#include "fission/terms.h"

#include <string.h>

static kiln_status read_scan(kiln_lower *lw, kiln_scan *c) {
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
  const bool product = strcmp(kiln_symbol_text(lw->cx, lw->node->op), "CumProd") == 0;
  c->combiner = product ? KILN_COMBINE_PROD : KILN_COMBINE_SUM;
  return kiln_lower_axis(lw, axis[0], lw->inputs[0]->rank, false, &c->axis);
}

static kiln_status lower_scan(kiln_lower *lw) {
  kiln_scan c = {0};
  KILN_TRY(read_scan(lw, &c));
  return kiln_lower_cast(lw, kiln_lower_scan(lw, &c, lw->inputs[0]), lw->inputs[0]->dtype,
                         &lw->outputs[0]);
}

const kiln_op kiln_op_cumsum[] = {
    {"", "CumSum", 11, 0, lower_scan, NULL, "ops/cumsum.c"},
    {"", "CumProd", 26, 0, lower_scan, NULL, "ops/cumsum.c"},
    {0},
};
