// Support vector machines: kernels of rows and support vectors, and what is made of them. Of more
// than one pair of classes each pair votes. source: ONNX SVMRegressor-1, SVMClassifier-1; labels
// and scores of two classes are ONNX Runtime's
#include "fission/classical/scores.h"
#include "fission/terms.h"

#include <string.h>

typedef struct machine {
  kiln_lower *lw;
  kiln_tensor *x; // (N, F)
  int64_t n_features;
  int n_vectors, n_coefficients;
  const float *vectors, *coefficients;
  enum { LINEAR, POLY, RBF, SIGMOID } kernel;
  double gamma, coef0, degree;
  int n_rho;
  const float *rho;
} machine;

static kiln_status wrong(const machine *m, const char *what) {
  return KILN_FAIL(m->lw->cx->diag, KILN_BAD_INPUT, m->lw->place, "%s", what);
}

static kiln_status read_machine(kiln_lower *lw, int64_t n_vectors, machine *m) {
  static const char *const kernels[] = {"LINEAR", "POLY", "RBF", "SIGMOID"};
  const char *kernel = NULL;
  int n_params = 0, n = 0;
  const float *params = NULL;
  *m = (machine){.lw = lw};
  KILN_TRY(kiln_lower_features(lw, KILN_F32, &m->x));
  KILN_TRY(kiln_lower_extent(lw, m->x, 1, &m->n_features));
  KILN_TRY(kiln_lower_floats(lw, "support_vectors", &n, &m->vectors));
  KILN_TRY(kiln_lower_floats(lw, "coefficients", &m->n_coefficients, &m->coefficients));
  KILN_TRY(kiln_lower_floats(lw, "rho", &m->n_rho, &m->rho));
  KILN_TRY(kiln_lower_floats(lw, "kernel_params", &n_params, &params));
  KILN_TRY(kiln_lower_string(lw, "kernel_type", "LINEAR", &kernel));
  int k = 0;
  while (k < 4 && strcmp(kernel, kernels[k]) != 0) k++;
  if (k == 4) return wrong(m, "attribute kernel_type: must be LINEAR, POLY, RBF or SIGMOID");
  if (n_params >= 3) {
    m->gamma = (double)params[0];
    m->coef0 = (double)params[1];
    m->degree = (double)params[2];
  } else if (k != LINEAR && n_vectors > 0) {
    return wrong(m, "attribute kernel_params: must be gamma, coef0 and degree");
  }
  m->kernel = n_vectors > 0 ? k : LINEAR;
  if (n_vectors < 0 || n_vectors > INT32_MAX || (n_vectors > 0 && n != n_vectors * m->n_features))
    return wrong(m, "attribute support_vectors: must be a number for each vector and feature");
  m->n_vectors = (int)n_vectors;
  if (m->n_rho < 1 || m->n_coefficients < 1)
    return wrong(m, "attributes rho and coefficients: must not be empty");
  return KILN_OK;
}

// X W^T of |n| rows of weights, in the form that products have.
static kiln_status multiply(const machine *m, const char *name, kiln_tensor *x, int64_t width,
                            int64_t n, const float *rows, kiln_tensor **out) {
  float *turned = KILN_NEW_ARRAY(&m->lw->cx->scratch, float, n *width);
  for (int64_t i = 0; i < n; i++)
    for (int64_t f = 0; f < width; f++) turned[f * n + i] = rows[i * width + f];
  const int64_t shape[] = {width, n};
  kiln_tensor *weights = kiln_lower_make_const(m->lw, name, KILN_F32, 2, shape, turned);
  return kiln_lower_matmul(m->lw, x, weights, KILN_F32, out);
}

// The squared distances of rows and support vectors; differences first, which keeps small ones.
static kiln_tensor *distances(const machine *m) {
  kiln_ctx *cx = m->lw->cx;
  const int64_t shape[] = {m->n_vectors, m->n_features};
  const kiln_tensor *vectors =
      kiln_lower_make_const(m->lw, "vectors", KILN_F32, 2, shape, m->vectors);
  const kiln_expr *extents[] = {m->x->shape[0], kiln_int(cx, shape[0]), kiln_int(cx, shape[1])};
  const kiln_expr *d[3];
  kiln_stmt *s = kiln_lower_stmt(m->lw, "distances", KILN_F32, 2, 1, extents);
  kiln_stmt_vars(cx, s, 0, 3, d);
  const kiln_expr *at[] = {d[0], d[2]};
  const kiln_expr *off =
      kiln_sub(cx, kiln_tensor_load(cx, m->x, at), kiln_tensor_load(cx, vectors, &d[1]));
  s->body = kiln_mul(cx, off, off);
  s->combiner = KILN_COMBINE_SUM;
  return kiln_lower_tensor(m->lw, s);
}

// The kernel of each row and support vector: (N, vectors).
static kiln_status find_kernels(const machine *m, kiln_tensor **out) {
  kiln_ctx *cx = m->lw->cx;
  if (m->kernel == RBF) *out = distances(m);
  else KILN_TRY(multiply(m, "vectors", m->x, m->n_features, m->n_vectors, m->vectors, out));
  if (m->kernel == LINEAR) return KILN_OK;
  const kiln_expr *at[2];
  kiln_stmt *s = kiln_lower_like(m->lw, "kernels", *out, KILN_F32, at);
  const kiln_expr *e = kiln_tensor_load(cx, *out, at);
  e = kiln_mul(cx, e, kiln_float(cx, KILN_F32, m->kernel == RBF ? -m->gamma : m->gamma));
  if (m->kernel != RBF) e = kiln_add(cx, e, kiln_float(cx, KILN_F32, m->coef0));
  if (m->kernel == RBF) e = kiln_unary(cx, KILN_EXPR_EXP, e);
  if (m->kernel == SIGMOID) e = kiln_unary(cx, KILN_EXPR_TANH, e);
  if (m->kernel == POLY) e = kiln_power(cx, e, kiln_float(cx, KILN_F32, m->degree));
  s->body = e;
  *out = kiln_lower_tensor(m->lw, s);
  return KILN_OK;
}

// |scores| (N, C) + rho: for each of C, or one for all.
static kiln_tensor *add_rho(const machine *m, const kiln_tensor *scores, bool of_each) {
  kiln_ctx *cx = m->lw->cx;
  const int64_t n = of_each ? m->n_rho : 1;
  const kiln_tensor *rho = kiln_lower_make_const(m->lw, "rho", KILN_F32, 1, &n, m->rho);
  const kiln_expr *at[2], *zero = kiln_int(cx, 0);
  kiln_stmt *s = kiln_lower_like(m->lw, "scores", scores, KILN_F32, at);
  s->body = kiln_add(cx, kiln_tensor_load(cx, scores, at),
                     kiln_tensor_load(cx, rho, of_each ? &at[1] : &zero));
  return kiln_lower_tensor(m->lw, s);
}

static kiln_status lower_regressor(kiln_lower *lw) {
  kiln_ctx *cx = lw->cx;
  machine m;
  int64_t n_vectors = 0, one_class = 0;
  kiln_tensor *x = NULL, *y = NULL;
  KILN_TRY(kiln_lower_int(lw, "n_supports", 0, &n_vectors));
  KILN_TRY(kiln_lower_int(lw, "one_class", 0, &one_class));
  KILN_TRY(read_machine(lw, n_vectors, &m));
  const int64_t width = n_vectors > 0 ? n_vectors : m.n_features;
  if (m.n_coefficients != width)
    return wrong(&m, "attribute coefficients: must be one for each support vector, or feature");
  x = m.x;
  if (n_vectors > 0) KILN_TRY(find_kernels(&m, &x));
  KILN_TRY(multiply(&m, "coefficients", x, width, 1, m.coefficients, &y));
  y = add_rho(&m, y, false);
  if (one_class) {
    const kiln_expr *at[2];
    kiln_stmt *s = kiln_lower_like(lw, NULL, y, KILN_F32, at);
    const kiln_expr *inside =
        kiln_compare(cx, KILN_EXPR_GT, kiln_tensor_load(cx, y, at), kiln_float(cx, KILN_F32, 0));
    s->body = kiln_select(cx, inside, kiln_float(cx, KILN_F32, 1), kiln_float(cx, KILN_F32, -1));
    y = kiln_lower_tensor(lw, s);
  }
  lw->outputs[0] = y;
  return KILN_OK;
}

// --- classes ---

typedef struct classifier {
  machine m;
  kiln_labels labels;
  const int64_t *per_class; // support vectors of each class, which follow each other
  int n_pairs;
  int64_t *firsts, *seconds; // the classes of each pair
  const float *prob_a, *prob_b;
  bool has_probability;
  kiln_post_transform how;
  kiln_tensor *kernels, *pairs; // (N, vectors), (N, pairs)
} classifier;

// Of pair (i, j) the coefficients of i's vectors stand in row j - 1, those of j's in row i.
static kiln_status score_pairs(classifier *c) {
  const machine *m = &c->m;
  const int n_classes = c->labels.n, n = m->n_vectors;
  float *rows = KILN_NEW_ARRAY(&m->lw->cx->scratch, float, (int64_t)c->n_pairs *n);
  for (int p = 0; p < c->n_pairs; p++) {
    int64_t at = 0;
    for (int k = 0; k < n_classes; k++) {
      const int64_t row = k == c->firsts[p] ? c->seconds[p] - 1 : c->firsts[p];
      const bool takes_part = k == c->firsts[p] || k == c->seconds[p];
      for (int64_t v = 0; v < c->per_class[k]; v++, at++)
        if (takes_part) rows[(int64_t)p * n + at] = m->coefficients[row * n + at];
    }
  }
  KILN_TRY(multiply(m, "coefficients", c->kernels, n, c->n_pairs, rows, &c->pairs));
  c->pairs = add_rho(m, c->pairs, true);
  return KILN_OK;
}

static const kiln_tensor *list_classes(const classifier *c, const char *name,
                                       const int64_t *classes) {
  const int64_t n = c->n_pairs;
  return kiln_lower_make_const(c->m.lw, name, KILN_I64, 1, &n, classes);
}

// The votes of the pairs for each class: (N, C).
static kiln_tensor *count_votes(const classifier *c) {
  kiln_ctx *cx = c->m.lw->cx;
  const kiln_tensor *firsts = list_classes(c, "firsts", c->firsts),
                    *seconds = list_classes(c, "seconds", c->seconds);
  const kiln_expr *extents[] = {c->m.x->shape[0], kiln_int(cx, c->labels.n),
                                kiln_int(cx, c->n_pairs)};
  const kiln_expr *d[3];
  kiln_stmt *s = kiln_lower_stmt(c->m.lw, "votes", KILN_I32, 2, 1, extents);
  kiln_stmt_vars(cx, s, 0, 3, d);
  const kiln_expr *at[] = {d[0], d[2]};
  const kiln_expr *is_first = kiln_compare(cx, KILN_EXPR_GT, kiln_tensor_load(cx, c->pairs, at),
                                           kiln_float(cx, KILN_F32, 0));
  const kiln_expr *winner = kiln_select(cx, is_first, kiln_tensor_load(cx, firsts, &d[2]),
                                        kiln_tensor_load(cx, seconds, &d[2]));
  s->body = kiln_cast(cx, KILN_I32, kiln_compare(cx, KILN_EXPR_EQ, winner, d[1]));
  s->combiner = KILN_COMBINE_SUM;
  return kiln_lower_tensor(c->m.lw, s);
}

// --- probabilities of classes from those of pairs ---
// source: Wu, Lin, Weng: Probability estimates for multi-class classification by pairwise coupling,
// JMLR 5 (2004), algorithm 2: p minimises p^T Q p, improved class by class. The state of a row is
// p, Qp, pQp, the step and whether it has converged; one statement writes an element of it at a
// time.

enum { LOOPS = 100, MAX_COUPLED = 32 };

// R(n, i, j): the probability of i against j.
static kiln_tensor *pair_probabilities(const classifier *c) {
  kiln_ctx *cx = c->m.lw->cx;
  const int64_t n_pairs = c->n_pairs, n = c->labels.n;
  int64_t *pair_of = KILN_NEW_ARRAY(&cx->scratch, int64_t, n * n);
  for (int p = 0; p < n_pairs; p++)
    pair_of[c->firsts[p] * n + c->seconds[p]] = pair_of[c->seconds[p] * n + c->firsts[p]] = p;
  const int64_t square[] = {n, n};
  const kiln_tensor *of = kiln_lower_make_const(c->m.lw, "pair_of", KILN_I64, 2, square, pair_of),
                    *a = kiln_lower_make_const(c->m.lw, "prob_a", KILN_F32, 1, &n_pairs, c->prob_a),
                    *b = kiln_lower_make_const(c->m.lw, "prob_b", KILN_F32, 1, &n_pairs, c->prob_b);
  const kiln_expr *extents[] = {c->m.x->shape[0], kiln_int(cx, n), kiln_int(cx, n)}, *d[3];
  kiln_stmt *s = kiln_lower_stmt(c->m.lw, "against", KILN_F32, 3, 0, extents);
  kiln_stmt_vars(cx, s, 0, 3, d);
  const kiln_expr *pair = kiln_tensor_load(cx, of, &d[1]), *at[] = {d[0], pair};
  const kiln_expr *one = kiln_float(cx, KILN_F32, 1), *least = kiln_float(cx, KILN_F32, 1e-7);
  const kiln_expr *v =
      kiln_add(cx, kiln_mul(cx, kiln_tensor_load(cx, c->pairs, at), kiln_tensor_load(cx, a, &pair)),
               kiln_tensor_load(cx, b, &pair));
  const kiln_expr *p = kiln_sub(cx, one, kiln_transform_element(cx, KILN_POST_LOGISTIC, v));
  p = kiln_least(cx, kiln_most(cx, p, least), kiln_float(cx, KILN_F32, 1 - 1e-7));
  s->body = kiln_select(cx, kiln_compare(cx, KILN_EXPR_LT, d[1], d[2]), p, kiln_sub(cx, one, p));
  return kiln_lower_tensor(c->m.lw, s);
}

// Q(n, i, j) = -R(j, i) R(i, j), and on the diagonal the sum of R(k, i)^2 over the others.
static kiln_tensor *couple(const classifier *c, const kiln_tensor *r) {
  kiln_ctx *cx = c->m.lw->cx;
  const kiln_expr *n = kiln_int(cx, c->labels.n), *d[4];
  const kiln_expr *sums[] = {c->m.x->shape[0], n, n};
  kiln_stmt *sum = kiln_lower_stmt(c->m.lw, "diagonal", KILN_F32, 2, 1, sums);
  kiln_stmt_vars(cx, sum, 0, 3, d);
  const kiln_expr *other[] = {d[0], d[2], d[1]}, *of = kiln_tensor_load(cx, r, other);
  sum->body = kiln_select(cx, kiln_compare(cx, KILN_EXPR_EQ, d[1], d[2]),
                          kiln_float(cx, KILN_F32, 0), kiln_mul(cx, of, of));
  sum->combiner = KILN_COMBINE_SUM;
  kiln_stmt *s = kiln_lower_stmt(c->m.lw, "q", KILN_F32, 3, 0, sums);
  kiln_stmt_vars(cx, s, 0, 3, d);
  const kiln_expr *turned[] = {d[0], d[2], d[1]};
  const kiln_expr *product =
      kiln_mul(cx, kiln_unary(cx, KILN_EXPR_NEG, kiln_tensor_load(cx, r, turned)),
               kiln_tensor_load(cx, r, d));
  s->body = kiln_select(cx, kiln_compare(cx, KILN_EXPR_EQ, d[1], d[2]),
                        kiln_tensor_load(cx, kiln_lower_tensor(c->m.lw, sum), d), product);
  return kiln_lower_tensor(c->m.lw, s);
}

typedef struct descent {
  kiln_ctx *cx;
  int n;
  const kiln_tensor *state, *q;
  const kiln_expr *row;
} descent;

// p is at 0, Qp at n, pQp at 2n, the step at 2n + 1, whether it has converged at 2n + 2.
static const kiln_expr *held(const descent *z, const kiln_expr *place) {
  const kiln_expr *at[] = {z->row, place};
  return kiln_tensor_load(z->cx, z->state, at);
}

static const kiln_expr *held_at(const descent *z, int64_t place) {
  return held(z, kiln_int(z->cx, place));
}

static const kiln_expr *plus(const descent *z, const kiln_expr *e, int64_t by) {
  return kiln_add(z->cx, e, kiln_int(z->cx, by));
}

static const kiln_expr *q_at(const descent *z, const kiln_expr *i, const kiln_expr *j) {
  const kiln_expr *at[] = {z->row, i, j};
  return kiln_tensor_load(z->cx, z->q, at);
}

typedef struct assignment {
  const kiln_expr *place, *value;
} assignment;

static assignment choose(const descent *z, const kiln_expr *when, assignment a, assignment b) {
  return (assignment){kiln_select(z->cx, when, a.place, b.place),
                      kiln_select(z->cx, when, a.value, b.value)};
}

// Step |m| of a loop before its improvements: Qp, pQp, whether all of Qp are near it.
static assignment evaluate(const descent *z, const kiln_expr *m) {
  kiln_ctx *cx = z->cx;
  const kiln_expr *i = kiln_least(cx, m, kiln_int(cx, z->n - 1)), *sum = NULL, *all = NULL;
  const kiln_expr *error = kiln_float(cx, KILN_F32, 0);
  for (int j = 0; j < z->n; j++) {
    const kiln_expr *p = held_at(z, j), *qp = held_at(z, z->n + j);
    const kiln_expr *of = kiln_mul(cx, q_at(z, i, kiln_int(cx, j)), p);
    const kiln_expr *product = kiln_mul(cx, p, qp);
    sum = sum ? kiln_add(cx, sum, of) : of;
    all = all ? kiln_add(cx, all, product) : product;
    error = kiln_most(
        cx, error, kiln_unary(cx, KILN_EXPR_ABS, kiln_sub(cx, qp, held_at(z, 2 * (int64_t)z->n))));
  }
  const kiln_expr *is_near =
      kiln_compare(cx, KILN_EXPR_LT, error, kiln_float(cx, KILN_F32, 0.005 / z->n));
  const assignment qp = {plus(z, i, z->n), sum}, pqp = {kiln_int(cx, 2 * z->n), all},
                   done = {kiln_int(cx, 2 * z->n + 2), kiln_cast(cx, KILN_F32, is_near)};
  return choose(z, kiln_compare(cx, KILN_EXPR_LT, m, kiln_int(cx, z->n)), qp,
                choose(z, kiln_compare(cx, KILN_EXPR_EQ, m, kiln_int(cx, z->n)), pqp, done));
}

// Step |m| of the improvement of class |i|: the step, pQp, Qp, p.
static assignment improve(const descent *z, const kiln_expr *i, const kiln_expr *m) {
  kiln_ctx *cx = z->cx;
  const kiln_expr *last = kiln_int(cx, z->n - 1), *zero = kiln_int(cx, 0);
  const kiln_expr *step = held_at(z, 2 * z->n + 1), *pqp = held_at(z, 2 * (int64_t)z->n),
                  *qp = held(z, plus(z, i, z->n)), *q = q_at(z, i, i);
  const kiln_expr *grown = kiln_add(cx, kiln_float(cx, KILN_F32, 1), step);
  const kiln_expr *square = kiln_mul(
      cx, step, kiln_add(cx, kiln_mul(cx, step, q), kiln_mul(cx, kiln_float(cx, KILN_F32, 2), qp)));
  const assignment is_step = {kiln_int(cx, 2 * z->n + 1), kiln_div(cx, kiln_sub(cx, pqp, qp), q)};
  const assignment is_pqp = {kiln_int(cx, 2 * z->n),
                             kiln_div(cx, kiln_div(cx, kiln_add(cx, pqp, square), grown), grown)};
  const kiln_expr *j = kiln_most(cx, zero, kiln_least(cx, plus(z, m, -2), last));
  const kiln_expr *at_qp = plus(z, j, z->n);
  const assignment is_qp = {
      at_qp, kiln_div(cx, kiln_add(cx, held(z, at_qp), kiln_mul(cx, step, q_at(z, i, j))), grown)};
  const kiln_expr *k = kiln_most(cx, zero, plus(z, m, -2 - z->n));
  const kiln_expr *own =
      kiln_select(cx, kiln_compare(cx, KILN_EXPR_EQ, k, i), step, kiln_float(cx, KILN_F32, 0));
  const assignment is_p = {k, kiln_div(cx, kiln_add(cx, held(z, k), own), grown)};
  const assignment rest =
      choose(z, kiln_compare(cx, KILN_EXPR_LT, m, kiln_int(cx, 2 + z->n)), is_qp, is_p);
  return choose(z, kiln_compare(cx, KILN_EXPR_LT, m, kiln_int(cx, 1)), is_step,
                choose(z, kiln_compare(cx, KILN_EXPR_EQ, m, kiln_int(cx, 1)), is_pqp, rest));
}

static kiln_status find_probabilities(const classifier *c, kiln_tensor **out) {
  kiln_lower *lw = c->m.lw;
  kiln_ctx *cx = lw->cx;
  const int n = c->labels.n, per_class = 2 + 2 * n;
  if (n > MAX_COUPLED)
    return KILN_FAIL(cx->diag, KILN_UNSUPPORTED, lw->place,
                     "probabilities: must be of at most %d classes, got %d", MAX_COUPLED, n);
  const kiln_tensor *q = couple(c, pair_probabilities(c));
  const kiln_expr *rows = c->m.x->shape[0], *o[2], *v[3];
  const kiln_expr *shape[] = {rows, kiln_int(cx, 2 * n + 3)};
  const kiln_expr *extents[] = {rows, kiln_int(cx, LOOPS), kiln_int(cx, n + 2 + n * per_class)};
  kiln_stmt *s = kiln_lower_scatter_new(lw, "coupling", KILN_F32, 2, shape, 1, 2, extents, o);
  const kiln_tensor *state = kiln_lower_tensor(lw, s);
  kiln_stmt_vars(cx, s, 0, 3, v);
  const descent z = {cx, n, state, q, v[0]};
  s->init = kiln_select(cx, kiln_compare(cx, KILN_EXPR_LT, o[1], kiln_int(cx, n)),
                        kiln_float(cx, KILN_F32, 1.0 / n), kiln_float(cx, KILN_F32, 0));
  const kiln_expr *begin = kiln_int(cx, n + 2), *zero = kiln_int(cx, 0);
  const kiln_expr *m = kiln_most(cx, zero, kiln_sub(cx, v[2], begin));
  const kiln_expr *i = kiln_div(cx, m, kiln_int(cx, per_class));
  const assignment a = choose(&z, kiln_compare(cx, KILN_EXPR_LT, v[2], begin), evaluate(&z, v[2]),
                              improve(&z, i, kiln_mod(cx, m, kiln_int(cx, per_class))));
  s->index[0] = v[0];
  s->index[1] = a.place;
  s->body = a.value;
  s->guard = kiln_compare(cx, KILN_EXPR_EQ, held_at(&z, 2 * n + 2), kiln_float(cx, KILN_F32, 0));
  const kiln_expr *results[] = {rows, kiln_int(cx, n)}, *at[2];
  kiln_stmt *y = kiln_lower_stmt(lw, "probabilities", KILN_F32, 2, 0, results);
  kiln_stmt_vars(cx, y, 0, 2, at);
  y->body = kiln_tensor_load(cx, state, at);
  *out = kiln_lower_tensor(lw, y);
  return KILN_OK;
}

// --- the operator ---

static kiln_status read_classes(kiln_lower *lw, classifier *c) {
  int n_per_class = 0, n_a = 0, n_b = 0;
  int64_t n_vectors = 0;
  *c = (classifier){0};
  KILN_TRY(kiln_lower_labels(lw, "classlabels_ints", &c->labels));
  KILN_TRY(kiln_lower_ints(lw, "vectors_per_class", &n_per_class, &c->per_class));
  for (int i = 0; i < n_per_class; i++) {
    if (c->per_class[i] < 0 || c->per_class[i] > INT32_MAX) n_vectors = INT64_MIN / 2;
    n_vectors += c->per_class[i];
  }
  KILN_TRY(read_machine(lw, n_vectors, &c->m));
  KILN_TRY(kiln_lower_floats(lw, "prob_a", &n_a, &c->prob_a));
  KILN_TRY(kiln_lower_floats(lw, "prob_b", &n_b, &c->prob_b));
  KILN_TRY(kiln_lower_post_transform(lw, &c->how));
  const int64_t n = c->labels.n, n_pairs = n * (n - 1) / 2;
  c->has_probability = n_a > 0;
  if (n < 2 || n >= 1 << 12) return wrong(&c->m, "classes: must be 2 to 4095");
  const bool fits = n_per_class == n && c->m.n_rho >= n_pairs &&
                    c->m.n_coefficients >= (n - 1) * n_vectors &&
                    (n_a <= 0 || (n_a >= n_pairs && n_b == n_a));
  if (n_vectors > 0 && !fits)
    return wrong(&c->m, "attributes: vectors_per_class must be of all classes, rho, prob_a and "
                        "prob_b of all pairs, coefficients of all vectors and all but one class");
  if (n_vectors == 0 && c->m.n_coefficients != n * c->m.n_features)
    return wrong(&c->m, "attribute coefficients: must be one for each class and feature");
  c->n_pairs = (int)n_pairs;
  c->m.n_rho = n_vectors > 0 ? (int)n_pairs : 1;
  c->firsts = KILN_NEW_ARRAY(&lw->cx->perm, int64_t, n_pairs);
  c->seconds = KILN_NEW_ARRAY(&lw->cx->perm, int64_t, n_pairs);
  for (int64_t i = 0, p = 0; i < n; i++)
    for (int64_t j = i + 1; j < n; j++, p++) {
      c->firsts[p] = i;
      c->seconds[p] = j;
    }
  return KILN_OK;
}

// Without support vectors: a product with the coefficients.
static kiln_status classify_linear(classifier *c, kiln_tensor **scores, kiln_tensor **places) {
  const machine *m = &c->m;
  if (c->labels.n == 2)
    return KILN_FAIL(m->lw->cx->diag, KILN_UNSUPPORTED, m->lw->place,
                     "two classes without support vectors: implementations differ in what their "
                     "label is; LinearClassifier says it");
  KILN_TRY(multiply(m, "coefficients", m->x, m->n_features, c->labels.n, m->coefficients, scores));
  *scores = add_rho(m, *scores, false);
  KILN_TRY(kiln_lower_greatest(m->lw, *scores, places));
  return kiln_lower_transform(m->lw, c->how, *scores, scores);
}

static kiln_status classify(classifier *c, kiln_tensor **scores, kiln_tensor **places) {
  kiln_lower *lw = c->m.lw;
  KILN_TRY(find_kernels(&c->m, &c->kernels));
  KILN_TRY(score_pairs(c));
  KILN_TRY(kiln_lower_greatest(lw, count_votes(c), places));
  *scores = c->pairs;
  if (!kiln_lower_wants(lw, 1)) return KILN_OK;
  if (c->has_probability) {
    KILN_TRY(find_probabilities(c, scores));
  } else if (c->n_pairs == 1) {
    if (c->how == KILN_POST_PROBIT) return wrong(&c->m, "attribute post_transform: PROBIT");
    *scores = kiln_lower_both(lw, c->how, c->how == KILN_POST_NONE ? 0 : 1, c->pairs);
    return KILN_OK;
  }
  return kiln_lower_transform(lw, c->how, *scores, scores);
}

static kiln_status lower_classifier(kiln_lower *lw) {
  classifier c;
  kiln_tensor *scores = NULL, *places = NULL;
  KILN_TRY(read_classes(lw, &c));
  KILN_TRY(c.m.n_vectors > 0 ? classify(&c, &scores, &places)
                             : classify_linear(&c, &scores, &places));
  if (kiln_lower_wants(lw, 0))
    KILN_TRY(kiln_lower_label_at(lw, &c.labels, places, &lw->outputs[0]));
  if (kiln_lower_wants(lw, 1)) lw->outputs[1] = scores;
  return KILN_OK;
}

const kiln_op kiln_op_svm[] = {
    {"ai.onnx.ml", "SVMRegressor", 1, 0, lower_regressor, NULL, "ops/svm.c"},
    {"ai.onnx.ml", "SVMClassifier", 1, 0, lower_classifier, NULL, "ops/svm.c"},
    {0},
};
