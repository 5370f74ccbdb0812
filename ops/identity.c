// Identity, and Dropout where nothing is dropped: the output is the input itself.
// source: ONNX Identity-1, 13, 14, 16, 19, 21; Dropout-7, 10, 12, 13, 22
#include "fission/terms.h"

static kiln_status lower_identity(kiln_lower *lw) {
  KILN_TRY(kiln_lower_want_inputs(lw, 1, 1));
  lw->outputs[0] = lw->inputs[0];
  return KILN_OK;
}

static kiln_status check_inference(kiln_lower *lw) {
  int n = -1;
  const int64_t *training = NULL;
  KILN_TRY(kiln_lower_const_ints(lw, 2, &n, &training));
  if (n < 1 || !training[0]) return KILN_OK;
  const double *ratio = NULL;
  KILN_TRY(kiln_lower_const_floats(lw, 1, &n, &ratio));
  if (n == 1 && ratio[0] == 0) return KILN_OK;
  return KILN_FAIL(lw->cx->diag, KILN_UNSUPPORTED, lw->place,
                   "training_mode: must be false, got true with a ratio above 0");
}

static kiln_status lower_dropout(kiln_lower *lw) {
  KILN_TRY(kiln_lower_want_inputs(lw, 1, 3));
  KILN_TRY(check_inference(lw));
  kiln_tensor *x = lw->inputs[0];
  lw->outputs[0] = x;
  if (lw->n_outputs < 2 || lw->node->outputs[1] < 0) return KILN_OK;
  const kiln_expr *index[KILN_MAX_RANK];
  const kiln_dtype t = lw->node->opset < 10 ? x->dtype : KILN_BOOL;
  kiln_stmt *s = kiln_lower_like(lw, "mask", x, t, index);
  s->body = kiln_number(lw->cx, t, 1);
  lw->outputs[1] = kiln_lower_tensor(lw, s);
  return KILN_OK;
}

const kiln_op kiln_op_identity[] = {
    {"", "Identity", 1, 0, lower_identity, NULL, "ops/identity.c"},
    {"", "Dropout", 7, 0, lower_dropout, NULL, "ops/identity.c"},
    {0},
};
