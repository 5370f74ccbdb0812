// FeatureVectorizer: the inputs' features as floats, side by side, each cut or filled up with zeros
// to its entry of inputdimensions. ZipMap: the tensor of scores, (N, C), in place of a list of maps
// from labels to scores, which no tensor holds. source: ONNX FeatureVectorizer-1, ZipMap-1
#include "fission/terms.h"

// Input |i| as (N, |n|); a vector is one row.
static kiln_status take(kiln_lower *lw, int i, int64_t n, kiln_tensor **out) {
  kiln_ctx *cx = lw->cx;
  KILN_TRY(kiln_lower_want_dtype(lw, i, kiln_dtype_has_order, "numbers"));
  const kiln_tensor *x = lw->inputs[i];
  KILN_TRY(kiln_lower_want_rank(lw, x, 1, 2));
  int64_t has = 0;
  KILN_TRY(kiln_lower_extent(lw, x, x->rank - 1, &has));
  if (n < 0) n = has;
  const kiln_expr *extents[] = {x->rank == 2 ? x->shape[0] : kiln_int(cx, 1), kiln_int(cx, n)};
  kiln_stmt *s = kiln_lower_stmt(lw, "features", KILN_F32, 2, 0, extents);
  const kiln_expr *at[2];
  kiln_stmt_vars(cx, s, 0, 2, at);
  s->body = kiln_cast(cx, KILN_F32, kiln_tensor_load(cx, x, x->rank == 2 ? at : at + 1));
  if (has < n)
    s->body = kiln_select(cx, kiln_compare(cx, KILN_EXPR_LT, at[1], kiln_int(cx, has)), s->body,
                          kiln_float(cx, KILN_F32, 0));
  *out = kiln_lower_tensor(lw, s);
  return KILN_OK;
}

static kiln_status lower_vectorizer(kiln_lower *lw) {
  int n = 0;
  const int64_t *widths = NULL;
  KILN_TRY(kiln_lower_want_inputs(lw, lw->n_inputs > 0 ? lw->n_inputs : 1, -1));
  KILN_TRY(kiln_lower_ints(lw, "inputdimensions", &n, &widths));
  if (n >= 0 && n != lw->n_inputs)
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                     "attribute inputdimensions: must have an entry for each of %d inputs, got %d",
                     lw->n_inputs, n);
  kiln_tensor **parts = KILN_NEW_ARRAY(&lw->cx->perm, kiln_tensor *, lw->n_inputs);
  for (int i = 0; i < lw->n_inputs; i++) KILN_TRY(take(lw, i, n >= 0 ? widths[i] : -1, &parts[i]));
  const kiln_attr axis = kiln_attr_int(lw->cx, "axis", 1);
  const kiln_lower_callee concat = {"", "Concat", 13, lw->n_inputs, parts, 1, &axis};
  return kiln_lower_call(lw, &concat, 1, lw->outputs);
}

static kiln_status lower_zip_map(kiln_lower *lw) {
  KILN_TRY(kiln_lower_want_inputs(lw, 1, 1));
  lw->outputs[0] = lw->inputs[0];
  return KILN_OK;
}

const kiln_op kiln_op_feature_vectorizer[] = {
    {"ai.onnx.ml", "FeatureVectorizer", 1, 0, lower_vectorizer, NULL, "ops/feature_vectorizer.c"},
    {"ai.onnx.ml", "ZipMap", 1, 0, lower_zip_map, NULL, "ops/feature_vectorizer.c"},
    {0},
};
