// NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss: a gather of the target's class, then plain
// reductions. source: ONNX NegativeLogLikelihoodLoss-12, 13, 22; SoftmaxCrossEntropyLoss-12, 13
#include "fission/terms.h"

#include <string.h>

typedef struct loss {
  kiln_lower *lw;
  const kiln_tensor *scores, *target, *weights; // (N, C, d...), (N, d...), (C) or NULL
  kiln_dtype sum;
  bool ignores;
  int64_t ignored;
  const char *reduction;
} loss;

// Classes that are not ignored must be some of the scores'.
static kiln_status want_classes(const loss *l) {
  kiln_ctx *cx = l->lw->cx;
  const kiln_expr *t = kiln_lower_element(l->lw, l->target), *when = NULL;
  if (l->ignores) when = kiln_compare(cx, KILN_EXPR_NE, t, kiln_int(cx, l->ignored));
  return kiln_lower_want_index(l->lw, l->target, 1, t, when, kiln_int(cx, 0), l->scores->shape[1]);
}

static kiln_status read_loss(kiln_lower *lw, loss *out) {
  KILN_TRY(kiln_lower_want_inputs(lw, 2, 3));
  KILN_TRY(kiln_lower_want_dtype(lw, 0, kiln_dtype_is_float, "a float"));
  KILN_TRY(kiln_lower_want_dtype(lw, 1, kiln_dtype_is_index, "i32 or i64"));
  *out = (loss){.lw = lw,
                .scores = lw->inputs[0],
                .target = lw->inputs[1],
                .weights = kiln_lower_in(lw, 2),
                .sum = kiln_accumulator(lw->inputs[0]->dtype),
                .ignores = kiln_lower_attr(lw, "ignore_index") != NULL};
  KILN_TRY(kiln_lower_want_rank(lw, out->scores, 2, KILN_MAX_RANK));
  KILN_TRY(kiln_lower_want_rank(lw, out->target, out->scores->rank - 1, out->scores->rank - 1));
  if (out->weights) KILN_TRY(kiln_lower_want_rank(lw, out->weights, 1, 1));
  KILN_TRY(kiln_lower_want_choice(lw, out->target, out->scores->shape[1]));
  KILN_TRY(kiln_lower_int(lw, "ignore_index", 0, &out->ignored));
  KILN_TRY(want_classes(out));
  KILN_TRY(kiln_lower_want_extent(lw, out->weights, 0, out->scores->shape[1]));
  for (int i = 0; i < out->target->rank; i++)
    KILN_TRY(kiln_lower_want_extent(lw, out->target, i, out->scores->shape[i ? i + 1 : 0]));
  KILN_TRY(kiln_lower_string(lw, "reduction", "mean", &out->reduction));
  if (!strcmp(out->reduction, "none") || !strcmp(out->reduction, "mean") ||
      !strcmp(out->reduction, "sum"))
    return KILN_OK;
  return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                   "reduction: must be none, mean or sum, got %s", out->reduction);
}

// The class at |at|, and (NULL for always) whether it counts. Classes out of range are clamped, so
// that nothing is read outside.
static const kiln_expr *class_at(const loss *l, const kiln_expr *const *at,
                                 const kiln_expr **out_counts) {
  kiln_ctx *cx = l->lw->cx;
  const kiln_expr *t = kiln_cast(cx, KILN_I64, kiln_tensor_load(cx, l->target, at));
  const kiln_expr *last = kiln_sub(cx, l->scores->shape[1], kiln_int(cx, 1));
  *out_counts = l->ignores ? kiln_compare(cx, KILN_EXPR_NE, t, kiln_int(cx, l->ignored)) : NULL;
  return kiln_most(cx, kiln_int(cx, 0), kiln_least(cx, t, last));
}

static const kiln_expr *when(const loss *l, const kiln_expr *counts, const kiln_expr *value) {
  kiln_ctx *cx = l->lw->cx;
  return counts ? kiln_select(cx, counts, value, kiln_number(cx, l->sum, 0)) : value;
}

static const kiln_expr *weight_of(const loss *l, const kiln_expr *class) {
  kiln_ctx *cx = l->lw->cx;
  if (!l->weights) return kiln_number(cx, l->sum, 1);
  return kiln_cast(cx, l->sum, kiln_tensor_load(cx, l->weights, &class));
}

// -w(t) * scores(n, t, d...), 0 where ignored.
static const kiln_tensor *each_loss(const loss *l, const kiln_tensor *log_probabilities) {
  kiln_ctx *cx = l->lw->cx;
  const kiln_expr *at[KILN_MAX_RANK], *from[KILN_MAX_RANK], *counts = NULL;
  kiln_stmt *s = kiln_lower_like(l->lw, "loss", l->target, l->sum, at);
  const kiln_expr *class = class_at(l, at, &counts);
  from[0] = at[0];
  from[1] = class;
  for (int i = 1; i < l->target->rank; i++) from[i + 1] = at[i];
  const kiln_expr *score = kiln_cast(cx, l->sum, kiln_tensor_load(cx, log_probabilities, from));
  const kiln_expr *value = kiln_unary(cx, KILN_EXPR_NEG, score);
  if (l->weights) value = kiln_mul(cx, value, weight_of(l, class));
  s->body = when(l, counts, value);
  return kiln_lower_tensor(l->lw, s);
}

static const kiln_tensor *each_weight(const loss *l) {
  const kiln_expr *at[KILN_MAX_RANK], *counts = NULL;
  kiln_stmt *s = kiln_lower_like(l->lw, "loss_weight", l->target, l->sum, at);
  const kiln_expr *class = class_at(l, at, &counts);
  s->body = when(l, counts, weight_of(l, class));
  return kiln_lower_tensor(l->lw, s);
}

static const kiln_tensor *total(const loss *l, const kiln_tensor *t) {
  kiln_ctx *cx = l->lw->cx;
  const kiln_expr *at[KILN_MAX_RANK];
  kiln_stmt *s = kiln_lower_stmt(l->lw, "loss_sum", l->sum, 0, t->rank, t->shape);
  kiln_stmt_vars(cx, s, 0, t->rank, at);
  s->body = kiln_tensor_load(cx, t, at);
  s->combiner = KILN_COMBINE_SUM;
  return kiln_lower_tensor(l->lw, s);
}

static kiln_status reduce(const loss *l, const kiln_tensor *log_probabilities) {
  kiln_lower *lw = l->lw;
  kiln_ctx *cx = lw->cx;
  const kiln_tensor *each = each_loss(l, log_probabilities), *sum = each;
  const bool mean = !strcmp(l->reduction, "mean");
  if (strcmp(l->reduction, "none") != 0) sum = total(l, each);
  if (!mean && sum->dtype == l->scores->dtype) {
    lw->outputs[0] = lw->prog->tensors.data[sum->id];
    return KILN_OK;
  }
  const bool weighted = mean && (l->weights || l->ignores);
  const kiln_tensor *divisor = weighted ? total(l, each_weight(l)) : NULL;
  const kiln_expr *at[KILN_MAX_RANK];
  kiln_stmt *s = kiln_lower_like(lw, "loss_mean", sum, l->scores->dtype, at);
  const kiln_expr *value = kiln_tensor_load(cx, sum, at);
  const kiln_expr *count = kiln_multiply_all(cx, l->target->rank, l->target->shape);
  if (weighted) value = kiln_div(cx, value, kiln_tensor_load(cx, divisor, at));
  else if (mean) value = kiln_div(cx, value, kiln_cast(cx, l->sum, count));
  s->body = kiln_cast(cx, l->scores->dtype, value);
  lw->outputs[0] = kiln_lower_tensor(lw, s);
  return KILN_OK;
}

static kiln_status lower_nll(kiln_lower *lw) {
  loss l;
  KILN_TRY(read_loss(lw, &l));
  return reduce(&l, l.scores);
}

// The place of (n, d...) without the class axis, over the dims |v| of a tensor with it.
static void drop_class(const kiln_expr *const *v, int rank, const kiln_expr **out) {
  out[0] = v[0];
  for (int i = 2; i < rank; i++) out[i - 1] = v[i];
}

// combine over the class axis of |value|(x(n, c, d...), ...); dims (n, d... | c).
static kiln_stmt *class_stmt(const loss *l, const char *name, const kiln_expr **out_full,
                             const kiln_expr **out_short) {
  kiln_ctx *cx = l->lw->cx;
  const int rank = l->scores->rank;
  const kiln_expr *extents[KILN_MAX_RANK];
  drop_class((const kiln_expr *const *)l->scores->shape, rank, extents);
  extents[rank - 1] = l->scores->shape[1];
  kiln_stmt *s = kiln_lower_stmt(l->lw, name, l->sum, rank - 1, 1, extents);
  kiln_stmt_vars(cx, s, 0, rank - 1, out_short);
  out_full[0] = out_short[0];
  out_full[1] = kiln_stmt_var(cx, s, rank - 1);
  for (int i = 2; i < rank; i++) out_full[i] = out_short[i - 1];
  return s;
}

// x - max - log(sum(exp(x - max))) over the classes.
static kiln_tensor *log_softmax(const loss *l) {
  kiln_ctx *cx = l->lw->cx;
  const kiln_expr *full[KILN_MAX_RANK], *rest[KILN_MAX_RANK];
  kiln_stmt *top = class_stmt(l, "class_max", full, rest);
  top->body = kiln_cast(cx, l->sum, kiln_tensor_load(cx, l->scores, full));
  top->combiner = KILN_COMBINE_MAX;
  const kiln_tensor *m = kiln_lower_tensor(l->lw, top);
  kiln_stmt *sum = class_stmt(l, "class_sum", full, rest);
  const kiln_expr *x = kiln_cast(cx, l->sum, kiln_tensor_load(cx, l->scores, full));
  sum->body = kiln_unary(cx, KILN_EXPR_EXP, kiln_sub(cx, x, kiln_tensor_load(cx, m, rest)));
  sum->combiner = KILN_COMBINE_SUM;
  const kiln_tensor *z = kiln_lower_tensor(l->lw, sum);
  kiln_stmt *y = kiln_lower_like(l->lw, "log_probabilities", l->scores, l->sum, full);
  drop_class(full, l->scores->rank, rest);
  x = kiln_cast(cx, l->sum, kiln_tensor_load(cx, l->scores, full));
  const kiln_expr *shifted = kiln_sub(cx, x, kiln_tensor_load(cx, m, rest));
  y->body = kiln_sub(cx, shifted, kiln_unary(cx, KILN_EXPR_LOG, kiln_tensor_load(cx, z, rest)));
  return kiln_lower_tensor(l->lw, y);
}

static kiln_status lower_softmax_cross_entropy(kiln_lower *lw) {
  loss l;
  KILN_TRY(read_loss(lw, &l));
  kiln_tensor *log_probabilities = log_softmax(&l);
  KILN_TRY(reduce(&l, log_probabilities));
  if (lw->n_outputs < 2) return KILN_OK;
  return kiln_lower_cast(lw, log_probabilities, l.scores->dtype, &lw->outputs[1]);
}

const kiln_op kiln_op_losses[] = {
    {"", "NegativeLogLikelihoodLoss", 12, 0, lower_nll, NULL, "ops/losses.c"},
    {"", "SoftmaxCrossEntropyLoss", 12, 0, lower_softmax_cross_entropy, NULL, "ops/losses.c"},
    {0},
};
