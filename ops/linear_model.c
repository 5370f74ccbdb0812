// LinearRegressor and LinearClassifier: a product with the coefficients, intercepts, a post
// transform, and the label of the greatest score. source: ONNX LinearRegressor-1,
// LinearClassifier-1; of one score for two classes the label is that of its sign, and the scores
// are 1 - s and s, or both logistic, as in ONNX Runtime
#include "fission/classical/scores.h"
#include "fission/terms.h"

// X W^T + B, (N, C): coefficients (C, F).
static kiln_status score(kiln_lower *lw, int64_t n_classes, int n_intercepts,
                         const float *intercepts, kiln_tensor **out) {
  kiln_ctx *cx = lw->cx;
  int n = 0;
  const float *coefficients = NULL;
  kiln_tensor *x = NULL, *products = NULL;
  int64_t features = 0;
  KILN_TRY(kiln_lower_features(lw, KILN_F32, &x));
  KILN_TRY(kiln_lower_extent(lw, x, 1, &features));
  KILN_TRY(kiln_lower_floats(lw, "coefficients", &n, &coefficients));
  if (n_classes < 1 || n != n_classes * features)
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, lw->place,
                     "attribute coefficients: must be %" PRId64 " x %" PRId64 " numbers, got %d",
                     n_classes, features, n);
  float *turned = KILN_NEW_ARRAY(&cx->scratch, float, n + 1);
  for (int64_t c = 0; c < n_classes; c++)
    for (int64_t f = 0; f < features; f++)
      turned[f * n_classes + c] = coefficients[c * features + f];
  const int64_t shape[] = {features, n_classes};
  kiln_tensor *weights = kiln_lower_make_const(lw, "coefficients", KILN_F32, 2, shape, turned);
  KILN_TRY(kiln_lower_matmul(lw, x, weights, KILN_F32, &products));
  *out = products;
  if (n_intercepts != n_classes) return KILN_OK;
  const kiln_tensor *added =
      kiln_lower_make_const(lw, "intercepts", KILN_F32, 1, &n_classes, intercepts);
  const kiln_expr *at[2];
  kiln_stmt *s = kiln_lower_like(lw, "scores", products, KILN_F32, at);
  s->body = kiln_add(cx, kiln_tensor_load(cx, products, at), kiln_tensor_load(cx, added, &at[1]));
  *out = kiln_lower_tensor(lw, s);
  return KILN_OK;
}

static kiln_status lower_regressor(kiln_lower *lw) {
  int64_t targets = 1;
  int n = 0;
  const float *intercepts = NULL;
  kiln_post_transform how = KILN_POST_NONE;
  kiln_tensor *scores = NULL;
  KILN_TRY(kiln_lower_int(lw, "targets", 1, &targets));
  KILN_TRY(kiln_lower_floats(lw, "intercepts", &n, &intercepts));
  KILN_TRY(kiln_lower_post_transform(lw, &how));
  KILN_TRY(score(lw, targets, n, intercepts, &scores));
  if (targets == 1 && how != KILN_POST_PROBIT) how = KILN_POST_NONE;
  return kiln_lower_transform(lw, how, scores, &lw->outputs[0]);
}

// The places of the labels of single scores, (N, 1): 1 where they are positive.
static kiln_tensor *choose_by_sign(kiln_lower *lw, const kiln_tensor *scores) {
  kiln_ctx *cx = lw->cx;
  const kiln_expr *const *extents = scores->shape;
  kiln_stmt *s = kiln_lower_stmt(lw, "class", KILN_I64, 1, 0, extents);
  const kiln_expr *at[] = {kiln_stmt_var(cx, s, 0), kiln_int(cx, 0)};
  const kiln_expr *positive =
      kiln_compare(cx, KILN_EXPR_GT, kiln_tensor_load(cx, scores, at), kiln_float(cx, KILN_F32, 0));
  s->body = kiln_cast(cx, KILN_I64, positive);
  return kiln_lower_tensor(lw, s);
}

// One score: the label is that of its sign; two labels have two scores.
static kiln_status choose_of_two(kiln_lower *lw, kiln_post_transform how, kiln_labels *labels,
                                 kiln_tensor **scores, kiln_tensor **places) {
  static const int64_t sign[] = {0, 1};
  *places = choose_by_sign(lw, *scores);
  if (labels->n == 2 && how != KILN_POST_PROBIT) *scores = kiln_lower_both(lw, how, 1, *scores);
  else if (how == KILN_POST_PROBIT) KILN_TRY(kiln_lower_transform(lw, how, *scores, scores));
  if (labels->n != 2) *labels = (kiln_labels){2, sign};
  return KILN_OK;
}

static kiln_status lower_classifier(kiln_lower *lw) {
  int n = 0;
  const float *intercepts = NULL;
  kiln_post_transform how = KILN_POST_NONE;
  kiln_labels labels;
  kiln_tensor *scores = NULL, *places = NULL;
  KILN_TRY(kiln_lower_floats(lw, "intercepts", &n, &intercepts));
  KILN_TRY(kiln_lower_post_transform(lw, &how));
  KILN_TRY(kiln_lower_labels(lw, "classlabels_ints", &labels));
  const int n_scores = n > 0 ? n : labels.n;
  KILN_TRY(score(lw, n_scores, n, intercepts, &scores));
  if (n_scores > 1 && labels.n < n_scores)
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                     "labels: must be one for each of %d classes, got %d", n_scores, labels.n);
  if (n_scores == 1) {
    KILN_TRY(choose_of_two(lw, how, &labels, &scores, &places));
  } else {
    KILN_TRY(kiln_lower_greatest(lw, scores, &places));
    KILN_TRY(kiln_lower_transform(lw, how, scores, &scores));
  }
  if (kiln_lower_wants(lw, 0)) KILN_TRY(kiln_lower_label_at(lw, &labels, places, &lw->outputs[0]));
  if (kiln_lower_wants(lw, 1)) lw->outputs[1] = scores;
  return KILN_OK;
}

const kiln_op kiln_op_linear_model[] = {
    {"ai.onnx.ml", "LinearRegressor", 1, 0, lower_regressor, NULL, "ops/linear_model.c"},
    {"ai.onnx.ml", "LinearClassifier", 1, 0, lower_classifier, NULL, "ops/linear_model.c"},
    {0},
};
