// Scores of classical models: see scores.h.
#include "fission/classical/scores.h"

#include "fission/terms.h"

#include <string.h>

kiln_status kiln_lower_features(kiln_lower *lw, kiln_dtype t, kiln_tensor **out) {
  *out = NULL;
  KILN_TRY(kiln_lower_want_inputs(lw, 1, 1));
  KILN_TRY(kiln_lower_want_dtype(lw, 0, kiln_dtype_has_order, "numbers"));
  kiln_tensor *x = lw->inputs[0];
  KILN_TRY(kiln_lower_want_rank(lw, x, 1, 2));
  KILN_TRY(kiln_lower_cast(lw, x, t, &x));
  const kiln_expr *row[] = {kiln_int(lw->cx, 1), x->shape[0]};
  *out = x->rank == 1 ? kiln_lower_reshape(lw, x, 2, row) : x;
  return KILN_OK;
}

kiln_status kiln_lower_floats(kiln_lower *lw, const char *attr, int *out_n, const float **out) {
  *out_n = -1;
  *out = NULL;
  const kiln_attr *a = kiln_lower_attr(lw, attr);
  if (!a) return KILN_OK;
  if (a->kind != KILN_ATTR_FLOATS && a->n > 0)
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                     "attribute %s: must be a list of floats", attr);
  *out_n = a->n;
  *out = a->n > 0 ? a->u.floats : NULL;
  return KILN_OK;
}

// --- transforms ---

kiln_status kiln_lower_post_transform(kiln_lower *lw, kiln_post_transform *out) {
  static const char *const names[] = {"NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"};
  const char *name = NULL;
  KILN_TRY(kiln_lower_string(lw, "post_transform", "NONE", &name));
  for (size_t i = 0; i < KILN_LEN(names); i++) {
    *out = (kiln_post_transform)i;
    if (!strcmp(name, names[i])) return KILN_OK;
  }
  return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                   "attribute post_transform: must be NONE, SOFTMAX, LOGISTIC, SOFTMAX_ZERO or "
                   "PROBIT, got %s",
                   name);
}

static const kiln_expr *logistic(kiln_ctx *cx, const kiln_expr *x) {
  const kiln_expr *one = kiln_float(cx, x->dtype, 1), *zero = kiln_float(cx, x->dtype, 0);
  const kiln_expr *most = kiln_unary(cx, KILN_EXPR_ABS, x);
  const kiln_expr *v = kiln_div(
      cx, one,
      kiln_add(cx, one, kiln_unary(cx, KILN_EXPR_EXP, kiln_unary(cx, KILN_EXPR_NEG, most))));
  return kiln_select(cx, kiln_compare(cx, KILN_EXPR_LT, x, zero), kiln_sub(cx, one, v), v);
}

// sqrt(2) * erfinv(2x - 1) by Winitzki's approximation, with ONNX Runtime's constants.
static const kiln_expr *probit(kiln_ctx *cx, const kiln_expr *x) {
  const kiln_dtype t = x->dtype;
  const kiln_expr *one = kiln_float(cx, t, 1), *zero = kiln_float(cx, t, 0);
  const kiln_expr *y = kiln_sub(cx, kiln_mul(cx, kiln_float(cx, t, 2), x), one);
  const kiln_expr *log =
      kiln_unary(cx, KILN_EXPR_LOG, kiln_mul(cx, kiln_sub(cx, one, y), kiln_add(cx, one, y)));
  const kiln_expr *v = kiln_add(cx, kiln_float(cx, t, 2 / (3.14159 * 0.147)),
                                kiln_mul(cx, kiln_float(cx, t, 0.5), log));
  const kiln_expr *square =
      kiln_sub(cx, kiln_mul(cx, v, v), kiln_mul(cx, kiln_float(cx, t, 1 / 0.147), log));
  const kiln_expr *size =
      kiln_unary(cx, KILN_EXPR_SQRT, kiln_sub(cx, kiln_unary(cx, KILN_EXPR_SQRT, square), v));
  const kiln_expr *root = kiln_mul(cx, kiln_float(cx, t, 1.41421356), size);
  return kiln_select(cx, kiln_compare(cx, KILN_EXPR_LT, y, zero),
                     kiln_unary(cx, KILN_EXPR_NEG, root), root);
}

const kiln_expr *kiln_transform_element(kiln_ctx *cx, kiln_post_transform how, const kiln_expr *x) {
  if (how == KILN_POST_LOGISTIC) return logistic(cx, x);
  return how == KILN_POST_PROBIT ? probit(cx, x) : x;
}

// A reduction of the rows of |x|; |at| is the element that it looks at.
static kiln_stmt *over_rows(kiln_lower *lw, const char *name, const kiln_tensor *x,
                            kiln_combiner combiner, const kiln_expr *at[2]) {
  kiln_stmt *s = kiln_lower_stmt(lw, name, x->dtype, 1, 1, x->shape);
  kiln_stmt_vars(lw->cx, s, 0, 2, at);
  s->combiner = combiner;
  return s;
}

// exp(x - greatest) of all but zeros, which stay zeros, divided by their sum.
static kiln_tensor *softmax_zero(kiln_lower *lw, const kiln_tensor *x) {
  kiln_ctx *cx = lw->cx;
  const kiln_expr *at[2], *least = kiln_float(cx, x->dtype, 1e-7);
  kiln_stmt *top = over_rows(lw, "greatest", x, KILN_COMBINE_MAX, at);
  top->body = kiln_tensor_load(cx, x, at);
  kiln_stmt *e = kiln_lower_like(lw, "exp", x, x->dtype, at);
  const kiln_expr *here = kiln_tensor_load(cx, x, at);
  const kiln_expr *max = kiln_tensor_load(cx, kiln_lower_tensor(lw, top), at);
  const kiln_expr *is_zero =
      kiln_compare(cx, KILN_EXPR_LE, kiln_unary(cx, KILN_EXPR_ABS, here), least);
  const kiln_expr *scaled =
      kiln_mul(cx, here, kiln_unary(cx, KILN_EXPR_EXP, kiln_unary(cx, KILN_EXPR_NEG, max)));
  e->body =
      kiln_select(cx, is_zero, scaled, kiln_unary(cx, KILN_EXPR_EXP, kiln_sub(cx, here, max)));
  kiln_stmt *sum = over_rows(lw, "sum", x, KILN_COMBINE_SUM, at);
  const kiln_expr *size = kiln_unary(cx, KILN_EXPR_ABS, kiln_tensor_load(cx, x, at));
  sum->body =
      kiln_select(cx, kiln_compare(cx, KILN_EXPR_LE, size, least), kiln_float(cx, x->dtype, 0),
                  kiln_tensor_load(cx, kiln_lower_tensor(lw, e), at));
  kiln_stmt *y = kiln_lower_like(lw, NULL, x, x->dtype, at);
  y->body = kiln_div(cx, kiln_tensor_load(cx, kiln_lower_tensor(lw, e), at),
                     kiln_tensor_load(cx, kiln_lower_tensor(lw, sum), at));
  return kiln_lower_tensor(lw, y);
}

kiln_status kiln_lower_transform(kiln_lower *lw, kiln_post_transform how, kiln_tensor *scores,
                                 kiln_tensor **out) {
  kiln_ctx *cx = lw->cx;
  *out = scores;
  switch (how) {
  case KILN_POST_NONE: return KILN_OK;
  case KILN_POST_SOFTMAX_ZERO: *out = softmax_zero(lw, scores); return KILN_OK;
  case KILN_POST_SOFTMAX: {
    const kiln_attr axis = kiln_attr_int(cx, "axis", 1);
    const kiln_lower_callee softmax = {"", "Softmax", 13, 1, &scores, 1, &axis};
    return kiln_lower_call(lw, &softmax, 1, out);
  }
  case KILN_POST_LOGISTIC:
  case KILN_POST_PROBIT: break;
  }
  const kiln_expr *at[2];
  kiln_stmt *s = kiln_lower_like(lw, NULL, scores, scores->dtype, at);
  s->body = kiln_transform_element(cx, how, kiln_tensor_load(cx, scores, at));
  *out = kiln_lower_tensor(lw, s);
  return KILN_OK;
}

kiln_tensor *kiln_lower_both(kiln_lower *lw, kiln_post_transform how, double of,
                             const kiln_tensor *score) {
  kiln_ctx *cx = lw->cx;
  const kiln_expr *extents[] = {score->shape[0], kiln_int(cx, 2)}, *at[2];
  kiln_stmt *s = kiln_lower_stmt(lw, "both", score->dtype, 2, 0, extents);
  kiln_stmt_vars(cx, s, 0, 2, at);
  const kiln_expr *from[] = {at[0], kiln_int(cx, 0)};
  const kiln_expr *x = kiln_tensor_load(cx, score, from);
  const kiln_expr *is_first = kiln_compare(cx, KILN_EXPR_LT, at[1], kiln_int(cx, 1));
  const kiln_expr *other = how == KILN_POST_LOGISTIC || of == 0
                               ? kiln_unary(cx, KILN_EXPR_NEG, x)
                               : kiln_sub(cx, kiln_float(cx, x->dtype, of), x);
  s->body = kiln_select(cx, is_first, other, x);
  if (how == KILN_POST_LOGISTIC) s->body = kiln_transform_element(cx, how, s->body);
  return kiln_lower_tensor(lw, s);
}

// --- labels ---

kiln_status kiln_lower_labels(kiln_lower *lw, const char *ints, kiln_labels *out) {
  *out = (kiln_labels){0};
  KILN_TRY(kiln_lower_ints(lw, ints, &out->n, &out->at));
  if (out->n > 0) return KILN_OK;
  const kiln_attr *strings = kiln_lower_attr(lw, "classlabels_strings");
  *out = (kiln_labels){.n = strings ? strings->n : 0};
  if (out->n > 0) return KILN_OK;
  return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                   "attribute %s or classlabels_strings: must list the classes", ints);
}

static bool are_places(const kiln_labels *labels) {
  for (int i = 0; i < labels->n; i++)
    if (labels->at[i] != i) return false;
  return true;
}

kiln_status kiln_lower_label_at(kiln_lower *lw, const kiln_labels *labels,
                                const kiln_tensor *places, kiln_tensor **out) {
  if (!labels->at)
    return KILN_FAIL(lw->cx->diag, KILN_UNSUPPORTED, lw->place,
                     "output 0: labels must be integers, got strings (convert the classes to "
                     "numbers first)");
  const int64_t n = labels->n;
  const kiln_expr *at = NULL;
  const kiln_tensor *table = kiln_lower_make_const(lw, "labels", KILN_I64, 1, &n, labels->at);
  kiln_stmt *s = kiln_lower_like(lw, NULL, places, KILN_I64, &at);
  s->body = kiln_tensor_load(lw->cx, places, &at);
  if (!are_places(labels)) s->body = kiln_tensor_load(lw->cx, table, &s->body);
  *out = kiln_lower_tensor(lw, s);
  return KILN_OK;
}

kiln_status kiln_lower_greatest(kiln_lower *lw, kiln_tensor *scores, kiln_tensor **out) {
  const kiln_attr attrs[] = {kiln_attr_int(lw->cx, "axis", 1),
                             kiln_attr_int(lw->cx, "keepdims", 0)};
  const kiln_lower_callee arg = {"", "ArgMax", 13, 1, &scores, KILN_LEN(attrs), attrs};
  return kiln_lower_call(lw, &arg, 1, out);
}
