// One step of Adagrad, Adam and Momentum: R, T, and then all tensors, all their gradients, all of
// each of their states. source: ONNX Adagrad-1, Adam-1, Momentum-1 of ai.onnx.preview.training
#include "fission/terms.h"

#include <string.h>

typedef struct step {
  kiln_lower *lw;
  int n;                   // tensors that are optimized
  const kiln_tensor *rate; // adjusted, a scalar
  kiln_dtype t;            // of what is computed
} step;

// Tensor |k| of a group of inputs, 0 those that are optimized, at the place of |v|.
static const kiln_expr *input(const step *p, int group, int k, const kiln_expr *const *v) {
  return kiln_cast(p->lw->cx, p->t,
                   kiln_tensor_load(p->lw->cx, p->lw->inputs[2 + group * p->n + k], v));
}

static kiln_status attribute(const step *p, const char *name, double otherwise,
                             const kiln_expr **out) {
  double v = 0;
  KILN_TRY(kiln_lower_float(p->lw, name, otherwise, &v));
  *out = kiln_float(p->lw->cx, p->t, v);
  return KILN_OK;
}

static kiln_status read_step(kiln_lower *lw, int n_states, step *out) {
  *out = (step){.lw = lw, .n = (lw->n_inputs - 2) / (2 + n_states)};
  if (out->n < 1 || lw->n_inputs != 2 + out->n * (2 + n_states) ||
      lw->n_outputs > out->n * (1 + n_states))
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                     "inputs: must be R, T and %d tensors for each that is optimized, got %d",
                     2 + n_states, lw->n_inputs);
  KILN_TRY(kiln_lower_want_inputs(lw, lw->n_inputs, lw->n_inputs));
  KILN_TRY(kiln_lower_want_dtype(lw, 0, kiln_dtype_is_float, "a float"));
  out->t = lw->inputs[0]->dtype;
  for (int i = 2 + out->n; i < lw->n_inputs; i++) {
    const kiln_tensor *x = lw->inputs[2 + (i - 2) % out->n];
    KILN_TRY(kiln_lower_want_rank(lw, lw->inputs[i], x->rank, x->rank));
    for (int a = 0; a < x->rank; a++)
      KILN_TRY(kiln_lower_want_extent(lw, lw->inputs[i], a, x->shape[a]));
  }
  return KILN_OK;
}

// A statement like tensor |k|; its result is output |group| of the tensor, where that is wanted.
static kiln_stmt *result(const step *p, const char *name, int group, int k, const kiln_expr **v) {
  const kiln_tensor *x = p->lw->inputs[2 + k];
  kiln_stmt *s = kiln_lower_like(p->lw, name, x, x->dtype, v);
  const int output = group * p->n + k;
  if (output < p->lw->n_outputs) p->lw->outputs[output] = kiln_lower_tensor(p->lw, s);
  return s;
}

// G + norm_coefficient * X, at the place of |v|.
static const kiln_expr *gradient(const step *p, int k, const kiln_expr *norm,
                                 const kiln_expr *const *v) {
  kiln_ctx *cx = p->lw->cx;
  return kiln_add(cx, kiln_mul(cx, norm, input(p, 0, k, v)), input(p, 1, k, v));
}

// The rate as a scalar of its own, so that it is computed once.
static void set_rate(step *p, const kiln_expr *rate) {
  kiln_stmt *s = kiln_lower_stmt(p->lw, "rate", p->t, 0, 0, NULL);
  s->body = rate;
  p->rate = kiln_lower_tensor(p->lw, s);
}

static const kiln_expr *rate_of(const step *p) {
  return kiln_tensor_load(p->lw->cx, p->rate, NULL);
}

static kiln_status read_scalars(const step *p, const kiln_expr **rate, const kiln_expr **count) {
  KILN_TRY(kiln_lower_scalar(p->lw, p->lw->inputs[0], p->t, "R", rate));
  return kiln_lower_scalar(p->lw, p->lw->inputs[1], p->t, "T", count);
}

static kiln_status lower_adagrad(kiln_lower *lw) {
  kiln_ctx *cx = lw->cx;
  step p;
  const kiln_expr *norm, *decay, *epsilon, *rate, *count, *v[KILN_MAX_RANK];
  KILN_TRY(read_step(lw, 1, &p));
  KILN_TRY(read_scalars(&p, &rate, &count));
  KILN_TRY(attribute(&p, "norm_coefficient", 0, &norm));
  KILN_TRY(attribute(&p, "decay_factor", 0, &decay));
  KILN_TRY(attribute(&p, "epsilon", 1e-6, &epsilon));
  const kiln_expr *one = kiln_float(cx, p.t, 1);
  set_rate(&p, kiln_div(cx, rate, kiln_add(cx, one, kiln_mul(cx, count, decay))));
  for (int k = 0; k < p.n; k++) {
    kiln_stmt *h = result(&p, "squares", 1, k, v);
    const kiln_tensor *squares = kiln_lower_tensor(lw, h);
    const kiln_expr *g = gradient(&p, k, norm, v);
    h->body = kiln_cast(cx, squares->dtype, kiln_add(cx, input(&p, 2, k, v), kiln_mul(cx, g, g)));
    kiln_stmt *x = result(&p, "adagrad", 0, k, v);
    g = gradient(&p, k, norm, v);
    const kiln_expr *sum = kiln_cast(cx, p.t, kiln_tensor_load(cx, squares, v));
    const kiln_expr *root = kiln_add(cx, kiln_unary(cx, KILN_EXPR_SQRT, sum), epsilon);
    const kiln_expr *move = kiln_div(cx, kiln_mul(cx, rate_of(&p), g), root);
    x->body = kiln_cast(cx, squares->dtype, kiln_sub(cx, input(&p, 0, k, v), move));
  }
  return KILN_OK;
}

// The part |keep| of |old| and the rest of |fresh|.
static const kiln_expr *mixed(kiln_ctx *cx, const kiln_expr *keep, const kiln_expr *old,
                              const kiln_expr *fresh) {
  const kiln_expr *rest = kiln_sub(cx, kiln_float(cx, keep->dtype, 1), keep);
  return kiln_add(cx, kiln_mul(cx, keep, old), kiln_mul(cx, rest, fresh));
}

static const kiln_expr *one_minus_power(kiln_ctx *cx, const kiln_expr *base, const kiln_expr *n) {
  return kiln_sub(cx, kiln_float(cx, base->dtype, 1), kiln_binary(cx, KILN_EXPR_POW, base, n));
}

static kiln_status lower_adam(kiln_lower *lw) {
  kiln_ctx *cx = lw->cx;
  step p;
  const kiln_expr *norm, *after, *alpha, *beta, *epsilon, *rate, *count, *v[KILN_MAX_RANK];
  KILN_TRY(read_step(lw, 2, &p));
  KILN_TRY(read_scalars(&p, &rate, &count));
  KILN_TRY(attribute(&p, "norm_coefficient", 0, &norm));
  KILN_TRY(attribute(&p, "norm_coefficient_post", 0, &after));
  KILN_TRY(attribute(&p, "alpha", (double)0.9f, &alpha));
  KILN_TRY(attribute(&p, "beta", (double)0.999f, &beta));
  KILN_TRY(attribute(&p, "epsilon", (double)1e-6f, &epsilon));
  const kiln_expr *root = kiln_unary(cx, KILN_EXPR_SQRT, one_minus_power(cx, beta, count));
  const kiln_expr *adjusted =
      kiln_div(cx, kiln_mul(cx, rate, root), one_minus_power(cx, alpha, count));
  const kiln_expr *later = kiln_compare(cx, KILN_EXPR_GT, count, kiln_float(cx, p.t, 0));
  set_rate(&p, kiln_select(cx, later, adjusted, rate));
  for (int k = 0; k < p.n; k++) {
    kiln_stmt *first = result(&p, "mean", 1, k, v), *second = result(&p, "squares", 2, k, v);
    const kiln_dtype t = lw->inputs[2 + k]->dtype;
    const kiln_expr *g = gradient(&p, k, norm, v);
    // Both have the dims of |v|, which are named alike.
    first->body = kiln_cast(cx, t, mixed(cx, alpha, input(&p, 2, k, v), g));
    second->body = kiln_cast(cx, t, mixed(cx, beta, input(&p, 3, k, v), kiln_mul(cx, g, g)));
    kiln_stmt *x = result(&p, "adam", 0, k, v);
    const kiln_expr *mean =
        kiln_cast(cx, p.t, kiln_tensor_load(cx, kiln_lower_tensor(lw, first), v));
    const kiln_expr *square =
        kiln_cast(cx, p.t, kiln_tensor_load(cx, kiln_lower_tensor(lw, second), v));
    const kiln_expr *size = kiln_add(cx, kiln_unary(cx, KILN_EXPR_SQRT, square), epsilon);
    const kiln_expr *move = kiln_div(cx, kiln_mul(cx, rate_of(&p), mean), size);
    const kiln_expr *moved = kiln_sub(cx, input(&p, 0, k, v), move);
    x->body = kiln_cast(cx, t, kiln_mul(cx, kiln_sub(cx, kiln_float(cx, p.t, 1), after), moved));
  }
  return KILN_OK;
}

static kiln_status lower_momentum(kiln_lower *lw) {
  kiln_ctx *cx = lw->cx;
  step p;
  const char *mode = NULL;
  const kiln_expr *norm, *alpha, *beta, *rate, *count, *v[KILN_MAX_RANK];
  KILN_TRY(read_step(lw, 1, &p));
  KILN_TRY(read_scalars(&p, &rate, &count));
  KILN_TRY(attribute(&p, "norm_coefficient", 0, &norm));
  KILN_TRY(attribute(&p, "alpha", 0, &alpha));
  KILN_TRY(attribute(&p, "beta", 0, &beta));
  KILN_TRY(kiln_lower_string(lw, "mode", "standard", &mode));
  const bool nesterov = !strcmp(mode, "nesterov");
  if (!nesterov && strcmp(mode, "standard") != 0)
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, lw->place,
                     "mode: must be standard or nesterov, got %s", mode);
  const kiln_expr *later = kiln_compare(cx, KILN_EXPR_GT, count, kiln_float(cx, p.t, 0));
  const kiln_expr *share = kiln_select(cx, later, beta, kiln_float(cx, p.t, 1));
  for (int k = 0; k < p.n; k++) {
    kiln_stmt *m = result(&p, "momentum", 1, k, v);
    const kiln_tensor *momentum = kiln_lower_tensor(lw, m);
    const kiln_expr *g = gradient(&p, k, norm, v);
    const kiln_expr *old = kiln_mul(cx, alpha, input(&p, 2, k, v));
    m->body = kiln_cast(cx, momentum->dtype, kiln_add(cx, old, kiln_mul(cx, share, g)));
    kiln_stmt *x = result(&p, "moved", 0, k, v);
    const kiln_expr *fresh = kiln_cast(cx, p.t, kiln_tensor_load(cx, momentum, v));
    if (nesterov) fresh = kiln_add(cx, gradient(&p, k, norm, v), kiln_mul(cx, alpha, fresh));
    x->body =
        kiln_cast(cx, momentum->dtype, kiln_sub(cx, input(&p, 0, k, v), kiln_mul(cx, rate, fresh)));
  }
  return KILN_OK;
}

const kiln_op kiln_op_optimizers[] = {
    {"ai.onnx.preview.training", "Adagrad", 1, 0, lower_adagrad, NULL, "ops/optimizers.c"},
    {"ai.onnx.preview.training", "Adam", 1, 0, lower_adam, NULL, "ops/optimizers.c"},
    {"ai.onnx.preview.training", "Momentum", 1, 0, lower_momentum, NULL, "ops/optimizers.c"},
    {0},
};
