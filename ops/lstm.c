// LSTM, GRU and RNN, unrolled over time, or a loop of the plan where they have many steps. The
// product of the input with its weights is one contraction over all steps and gates; each step adds
// the product with the previous state and a few elementwise statements. Steps behind the end of a
// sequence keep the state. source: ONNX LSTM-1, 7, 14, 22; GRU-1, 3, 7, 14, 22; RNN-1, 7, 14, 22
#include "fission/flow/kept.h"
#include "fission/terms.h"

#include <string.h>

enum { MAX_STEPS = 4096 }; // that are unrolled

typedef struct activation {
  const char *name;
  double alpha, beta;
} activation;

// Scale and zero point of weights that are codes, for each direction or for each of its columns.
typedef struct quantisation {
  const kiln_tensor *scale, *zero; // (dirs) or (dirs, gates); NULL: the weights are floats
} quantisation;

typedef struct recurrent {
  kiln_lower *lw;
  const kiln_tensor *x, *w, *r, *b, *lengths, *initial_h, *initial_c, *peepholes;
  quantisation q_w, q_r;
  bool turned;                      // w and r are (dirs, in, gates) instead of (dirs, gates, in)
  int n_gates, n_activations;       // in one direction
  int64_t steps, hidden, n_dirs;    // hidden: the size of the state
  bool batch_first, reverse_only;   // layout = 1; direction = reverse
  bool linear_before_reset, couple; // couple: input_forget
  double clip;                      // 0: none
  activation activations[6];
  bool is_kept; // as a loop: each direction's part of Y is a tensor of its steps
  const kiln_expr *batch;
  const kiln_expr *length;     // of all sequences, at most |steps|; NULL: it is |steps|
  kiln_dtype sum;              // of the contractions
  const kiln_tensor *lasts;    // (steps, n): whether a sequence has the step; NULL: each has all
  const kiln_tensor **outputs; // [n_dirs * steps], the parts of Y; kept, [n_dirs]
} recurrent;

// --- scalar functions ---

static const kiln_expr *number(const recurrent *m, double v) {
  return kiln_float(m->lw->cx, m->sum, v);
}

static const kiln_expr *sigmoid(const recurrent *m, const kiln_expr *x) {
  kiln_ctx *cx = m->lw->cx;
  const kiln_expr *e = kiln_unary(cx, KILN_EXPR_EXP, kiln_unary(cx, KILN_EXPR_NEG, x));
  return kiln_div(cx, number(m, 1), kiln_add(cx, number(m, 1), e));
}

static const kiln_expr *relu(const recurrent *m, const kiln_expr *x) {
  return kiln_most(m->lw->cx, x, number(m, 0));
}

static const kiln_expr *above(const recurrent *m, const kiln_expr *x, double bound,
                              const kiln_expr *otherwise) {
  kiln_ctx *cx = m->lw->cx;
  return kiln_select(cx, kiln_compare(cx, KILN_EXPR_GE, x, number(m, bound)), x, otherwise);
}

static const kiln_expr *scale_shift(const recurrent *m, const kiln_expr *x, const activation *f) {
  kiln_ctx *cx = m->lw->cx;
  return kiln_add(cx, kiln_mul(cx, number(m, f->alpha), x), number(m, f->beta));
}

static const kiln_expr *apply(const recurrent *m, const activation *f, const kiln_expr *x) {
  kiln_ctx *cx = m->lw->cx;
  const kiln_expr *alpha = number(m, f->alpha), *one = number(m, 1);
  if (m->clip > 0) x = kiln_most(cx, number(m, -m->clip), kiln_least(cx, x, number(m, m->clip)));
  if (!strcmp(f->name, "Sigmoid")) return sigmoid(m, x);
  if (!strcmp(f->name, "Tanh")) return kiln_unary(cx, KILN_EXPR_TANH, x);
  if (!strcmp(f->name, "Relu")) return relu(m, x);
  if (!strcmp(f->name, "Affine")) return scale_shift(m, x, f);
  if (!strcmp(f->name, "LeakyRelu")) return above(m, x, 0, kiln_mul(cx, alpha, x));
  if (!strcmp(f->name, "ThresholdedRelu")) return above(m, x, f->alpha, number(m, 0));
  if (!strcmp(f->name, "ScaledTanh"))
    return kiln_mul(cx, alpha, kiln_unary(cx, KILN_EXPR_TANH, kiln_mul(cx, number(m, f->beta), x)));
  if (!strcmp(f->name, "HardSigmoid"))
    return kiln_most(cx, number(m, 0), kiln_least(cx, one, scale_shift(m, x, f)));
  if (!strcmp(f->name, "Elu"))
    return above(m, x, 0, kiln_mul(cx, alpha, kiln_unary(cx, KILN_EXPR_EXPM1, x)));
  if (!strcmp(f->name, "Softsign"))
    return kiln_div(cx, x, kiln_add(cx, one, kiln_unary(cx, KILN_EXPR_ABS, x)));
  const kiln_expr *tail = kiln_unary(
      cx, KILN_EXPR_EXP, kiln_unary(cx, KILN_EXPR_NEG, kiln_unary(cx, KILN_EXPR_ABS, x)));
  return kiln_add(cx, relu(m, x), kiln_unary(cx, KILN_EXPR_LOG1P, tail)); // Softplus
}

// --- reading the node ---

// The defaults of alpha and beta per function. source: ONNX RNN
static bool activation_defaults(const char *name, activation *out) {
  static const activation rows[] = {{"Sigmoid", 0, 0},      {"Tanh", 0, 0},
                                    {"Relu", 0, 0},         {"Affine", 1, 0},
                                    {"LeakyRelu", 0.01, 0}, {"ThresholdedRelu", 1, 0},
                                    {"ScaledTanh", 1, 1},   {"HardSigmoid", 0.2, 0.5},
                                    {"Elu", 1, 0},          {"Softsign", 0, 0},
                                    {"Softplus", 0, 0}};
  for (size_t i = 0; i < KILN_LEN(rows); i++) {
    if (strcmp(rows[i].name, name) != 0) continue;
    *out = rows[i];
    return true;
  }
  return false;
}

static bool takes_alpha(const char *name) {
  return !strcmp(name, "Affine") || !strcmp(name, "LeakyRelu") ||
         !strcmp(name, "ThresholdedRelu") || !strcmp(name, "ScaledTanh") ||
         !strcmp(name, "HardSigmoid") || !strcmp(name, "Elu");
}

static bool takes_beta(const char *name) {
  return !strcmp(name, "Affine") || !strcmp(name, "ScaledTanh") || !strcmp(name, "HardSigmoid");
}

// alpha and beta are listed for the functions that take them only. Names may be those of two
// directions, whatever runs: RNN's default in the standard is.
static kiln_status read_activations(recurrent *m, const char *const *defaults) {
  kiln_lower *lw = m->lw;
  const kiln_attr *names = kiln_lower_attr(lw, "activations");
  const kiln_attr *alphas = kiln_lower_attr(lw, "activation_alpha");
  const kiln_attr *betas = kiln_lower_attr(lw, "activation_beta");
  const int n = (int)m->n_dirs * m->n_activations, most = 2 * m->n_activations;
  if ((names && (names->kind != KILN_ATTR_STRINGS || (names->n != n && names->n != most))) ||
      (alphas && alphas->kind != KILN_ATTR_FLOATS) || (betas && betas->kind != KILN_ATTR_FLOATS))
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                     "activations: must be %d names, with lists of floats for alpha and beta", n);
  for (int i = 0, a = 0, b = 0; i < n; i++) {
    const char *name =
        names ? kiln_symbol_text(lw->cx, names->u.strings[i]) : defaults[i % m->n_activations];
    activation *f = &m->activations[i];
    if (!activation_defaults(name, f))
      return KILN_FAIL(lw->cx->diag, KILN_UNSUPPORTED, lw->place,
                       "activations: must be known functions, got %s", name);
    if (alphas && a < alphas->n && takes_alpha(name)) f->alpha = (double)alphas->u.floats[a++];
    if (betas && b < betas->n && takes_beta(name)) f->beta = (double)betas->u.floats[b++];
  }
  return KILN_OK;
}

static kiln_status read_direction(recurrent *m) {
  const char *direction = NULL;
  KILN_TRY(kiln_lower_string(m->lw, "direction", "forward", &direction));
  m->n_dirs = !strcmp(direction, "bidirectional") ? 2 : 1;
  m->reverse_only = !strcmp(direction, "reverse");
  if (m->n_dirs == 2 || m->reverse_only || !strcmp(direction, "forward")) return KILN_OK;
  return KILN_FAIL(m->lw->cx->diag, KILN_BAD_INPUT, m->lw->place,
                   "direction: must be forward, reverse or bidirectional, got %s", direction);
}

static kiln_status want_extent(recurrent *m, const kiln_tensor *t, int axis, int64_t want) {
  return kiln_lower_want_extent(m->lw, t, axis, kiln_int(m->lw->cx, want));
}

// (dir, n, h), or (n, dir, h) with the batch first.
static kiln_status check_state(recurrent *m, const kiln_tensor *state) {
  if (!state) return KILN_OK;
  KILN_TRY(kiln_lower_want_rank(m->lw, state, 3, 3));
  KILN_TRY(want_extent(m, state, m->batch_first ? 1 : 0, m->n_dirs));
  KILN_TRY(kiln_lower_want_extent(m->lw, state, m->batch_first ? 0 : 1, m->batch));
  return want_extent(m, state, 2, m->hidden);
}

// Whether the node will be folded.
static bool all_constant(const kiln_lower *lw) {
  for (int i = 0; i < lw->n_inputs; i++)
    if (lw->inputs[i] && lw->inputs[i]->role != KILN_CONST) return false;
  return true;
}

// A length that has a bound is one of all sequences.
static kiln_status read_steps(recurrent *m) {
  const int axis = m->batch_first ? 1 : 0;
  const kiln_expr *steps = m->x->shape[axis];
  int64_t most = 0;
  if (!kiln_expr_is_int(steps, NULL) && kiln_lower_most(m->lw, steps, &most) &&
      most <= MAX_STEPS / m->n_dirs) {
    m->steps = most;
    m->length = steps;
    return KILN_OK;
  }
  return kiln_lower_extent(m->lw, m->x, axis, &m->steps);
}

static kiln_status check_shapes(recurrent *m) {
  const kiln_tensor *const ranks[] = {m->b, m->peepholes};
  KILN_TRY(kiln_lower_want_rank(m->lw, m->x, 3, 3));
  KILN_TRY(kiln_lower_want_rank(m->lw, m->w, 3, 3));
  KILN_TRY(kiln_lower_want_rank(m->lw, m->r, 3, 3));
  for (size_t i = 0; i < KILN_LEN(ranks); i++)
    if (ranks[i]) KILN_TRY(kiln_lower_want_rank(m->lw, ranks[i], 2, 2));
  if (m->lengths) KILN_TRY(kiln_lower_want_rank(m->lw, m->lengths, 1, 1));
  KILN_TRY(read_steps(m));
  const int rows_at = m->turned ? 2 : 1, in_at = m->turned ? 1 : 2;
  KILN_TRY(kiln_lower_extent(m->lw, m->r, in_at, &m->hidden));
  const int64_t rows = m->n_gates * m->hidden;
  KILN_TRY(kiln_lower_want_extent(m->lw, m->x, 2, m->w->shape[in_at]));
  KILN_TRY(want_extent(m, m->w, 0, m->n_dirs));
  KILN_TRY(want_extent(m, m->w, rows_at, rows));
  KILN_TRY(want_extent(m, m->r, 0, m->n_dirs));
  KILN_TRY(want_extent(m, m->r, rows_at, rows));
  KILN_TRY(want_extent(m, m->b, 0, m->n_dirs));
  KILN_TRY(want_extent(m, m->b, 1, 2 * rows));
  KILN_TRY(want_extent(m, m->peepholes, 1, 3 * m->hidden));
  KILN_TRY(want_extent(m, m->peepholes, 0, m->n_dirs));
  m->batch = m->x->shape[m->batch_first ? 0 : 1];
  KILN_TRY(check_state(m, m->initial_h));
  KILN_TRY(check_state(m, m->initial_c));
  KILN_TRY(kiln_lower_want_extent(m->lw, m->lengths, 0, m->batch));
  if (m->steps * m->n_dirs <= MAX_STEPS) return KILN_OK;
  m->is_kept = m->lw->counts && m->lw->counts->regions && !all_constant(m->lw);
  if (m->is_kept) return KILN_OK;
  return KILN_FAIL(m->lw->cx->diag, KILN_UNSUPPORTED, m->lw->place,
                   "must have at most %d steps, got %" PRId64, MAX_STEPS, m->steps);
}

static kiln_status read_node(recurrent *m, const char *const *activations) {
  kiln_lower *lw = m->lw;
  int64_t layout = 0, before = 0, couple = 0;
  KILN_TRY(kiln_lower_want_inputs(lw, 3, m->turned ? 12 : m->n_gates == 4 ? 8 : 6));
  KILN_TRY(kiln_lower_want_dtype(lw, 0, kiln_dtype_is_float, "a float"));
  KILN_TRY(kiln_lower_int(lw, "layout", 0, &layout));
  KILN_TRY(kiln_lower_int(lw, "linear_before_reset", 0, &before));
  KILN_TRY(kiln_lower_int(lw, "input_forget", 0, &couple));
  KILN_TRY(kiln_lower_float(lw, "clip", 0, &m->clip));
  KILN_TRY(read_direction(m));
  KILN_TRY(read_activations(m, activations));
  m->batch_first = layout != 0;
  m->linear_before_reset = before != 0;
  m->couple = couple != 0;
  m->x = lw->inputs[0];
  m->w = lw->inputs[1];
  m->r = lw->inputs[2];
  m->b = kiln_lower_in(lw, 3);
  m->lengths = kiln_lower_in(lw, 4);
  m->initial_h = kiln_lower_in(lw, 5);
  m->initial_c = kiln_lower_in(lw, 6);
  m->peepholes = kiln_lower_in(lw, 7);
  m->sum = kiln_accumulator(m->x->dtype);
  KILN_TRY(check_shapes(m));
  m->outputs = KILN_NEW_ARRAY(&lw->cx->perm, const kiln_tensor *, m->n_dirs * m->steps);
  return KILN_OK;
}

// --- statements ---

static const kiln_expr *load(const recurrent *m, const kiln_tensor *t, const kiln_expr *const *at) {
  return kiln_cast(m->lw->cx, m->sum, kiln_tensor_load(m->lw->cx, t, at));
}

// Which rows of R's bias belong into the product with x: all, but the candidate's of a GRU that
// resets after the product.
static bool adds_state_bias(const recurrent *m, int64_t gate) {
  return !(m->linear_before_reset && m->n_gates == 3 && gate == 2);
}

// Part |dir| of |t| (dirs, ..), which stays in place if it is constant.
static kiln_tensor *part_of_direction(const recurrent *m, const kiln_tensor *t, int dir) {
  kiln_ctx *cx = m->lw->cx;
  const kiln_expr *at[KILN_MAX_RANK] = {kiln_int(cx, dir)};
  int64_t shape[KILN_MAX_RANK];
  if (t->role == KILN_CONST && t->data && kiln_tensor_static_shape(t, shape)) {
    const size_t bytes = t->bytes / (size_t)m->n_dirs;
    kiln_const c = {.dtype = t->dtype,
                    .rank = t->rank - 1,
                    .data = (const char *)t->data + (size_t)dir * bytes,
                    .bytes = bytes};
    for (int i = 1; i < t->rank; i++) c.shape[i - 1] = shape[i];
    return kiln_tensor_make_const(cx, m->lw->prog, kiln_symbol_text(cx, t->name), &c);
  }
  kiln_stmt *s = kiln_lower_stmt(m->lw, "direction", t->dtype, t->rank - 1, 0,
                                 (const kiln_expr *const *)t->shape + 1);
  kiln_stmt_vars(cx, s, 0, t->rank - 1, at + 1);
  s->body = kiln_tensor_load(cx, t, at);
  return kiln_lower_tensor(m->lw, s);
}

// The product of |x| (.., in), quantised as a whole, with the codes |weights| of one direction.
static kiln_status multiply_codes(const recurrent *m, kiln_tensor *x, const kiln_tensor *weights,
                                  const quantisation *q, int dir, kiln_tensor **out) {
  kiln_tensor *const operands[] = {x, part_of_direction(m, weights, dir),
                                   part_of_direction(m, q->scale, dir),
                                   part_of_direction(m, q->zero, dir)};
  const kiln_lower_callee product = {.domain = "com.microsoft",
                                     .op = "DynamicQuantizeMatMul",
                                     .opset = 1,
                                     .n_inputs = 4,
                                     .inputs = operands};
  return kiln_lower_call(m->lw, &product, 1, out);
}

static kiln_status float_product(recurrent *m, int dir, kiln_tensor **out) {
  kiln_ctx *cx = m->lw->cx;
  const kiln_expr *extents[] = {m->length ? m->length : kiln_int(cx, m->steps), m->batch,
                                kiln_int(cx, m->n_gates * m->hidden), m->w->shape[2]};
  kiln_stmt *s = kiln_lower_stmt(m->lw, "input_gates", m->sum, 3, 1, extents);
  const kiln_expr *v[4];
  kiln_stmt_vars(cx, s, 0, 4, v);
  const kiln_expr *at_x[] = {v[m->batch_first ? 1 : 0], v[m->batch_first ? 0 : 1], v[3]};
  const kiln_expr *at_w[] = {kiln_int(cx, dir), v[2], v[3]};
  s->body = kiln_mul(cx, load(m, m->x, at_x), load(m, m->w, at_w));
  s->combiner = KILN_COMBINE_SUM;
  *out = kiln_lower_tensor(m->lw, s);
  return KILN_OK;
}

// G(t, n, g) = sum_i x(t, n, i) * w(dir, g, i), then the biases.
static kiln_status input_product(recurrent *m, int dir, const kiln_tensor **out) {
  kiln_ctx *cx = m->lw->cx;
  const int64_t rows = m->n_gates * m->hidden;
  kiln_tensor *product = NULL;
  const kiln_expr *v[3];
  KILN_TRY(m->q_w.scale ? multiply_codes(m, m->lw->inputs[0], m->w, &m->q_w, dir, &product)
                        : float_product(m, dir, &product));
  *out = product;
  if (!m->b) return KILN_OK;
  kiln_stmt *biased = kiln_lower_like(m->lw, "input_gates_biased", product, m->sum, v);
  const kiln_expr *own[] = {kiln_int(cx, dir), v[2]};
  const kiln_expr *state[] = {kiln_int(cx, dir), kiln_add(cx, v[2], kiln_int(cx, rows))};
  const kiln_expr *more = load(m, m->b, state);
  if (!adds_state_bias(m, 2)) {
    const kiln_expr *early = kiln_compare(cx, KILN_EXPR_LT, v[2], kiln_int(cx, 2 * m->hidden));
    more = kiln_select(cx, early, more, number(m, 0));
  }
  biased->body =
      kiln_add(cx, kiln_tensor_load(cx, product, v), kiln_add(cx, load(m, m->b, own), more));
  *out = kiln_lower_tensor(m->lw, biased);
  return KILN_OK;
}

// Y(t, dir, n, h), or (n, t, dir, h) with the batch first. The states have such axes as well, t and
// dir of extent 1, so that each is stored where Y is, in place.
static void state_axes(const recurrent *m, const kiln_expr *t, const kiln_expr *dir,
                       const kiln_expr *n, const kiln_expr *h, const kiln_expr **out) {
  const kiln_expr *const plain[] = {t, dir, n, h}, *const first[] = {n, t, dir, h};
  memcpy(out, m->batch_first ? first : plain, sizeof plain);
}

// The element (n, h) of |t|: a state, or a statement of a step.
static const kiln_expr *load_state(const recurrent *m, const kiln_tensor *t, const kiln_expr *n,
                                   const kiln_expr *h) {
  const kiln_expr *zero = kiln_int(m->lw->cx, 0), *at[4] = {n, h};
  if (t->rank == 4) state_axes(m, zero, zero, n, h, at);
  return load(m, t, at);
}

// The product of state (n, h) with rows [first, first + count) of R: (n, g); of codes, with all.
static kiln_status state_product(recurrent *m, int dir, const kiln_tensor *state, int64_t first,
                                 int64_t count, const kiln_tensor **out) {
  kiln_ctx *cx = m->lw->cx;
  const kiln_expr *extents[] = {m->batch, kiln_int(cx, count), kiln_int(cx, m->hidden)};
  if (m->q_r.scale) {
    const kiln_expr *const shape[] = {m->batch, extents[2]};
    kiln_tensor *y = NULL,
                *h = kiln_lower_reshape(m->lw, m->lw->prog->tensors.data[state->id], 2, shape);
    KILN_TRY(multiply_codes(m, h, m->r, &m->q_r, dir, &y));
    *out = y;
    return KILN_OK;
  }
  kiln_stmt *s = kiln_lower_stmt(m->lw, "state_gates", m->sum, 2, 1, extents);
  const kiln_expr *v[3];
  kiln_stmt_vars(cx, s, 0, 3, v);
  const kiln_expr *at_r[] = {kiln_int(cx, dir), kiln_add(cx, v[1], kiln_int(cx, first)), v[2]};
  s->body = kiln_mul(cx, load_state(m, state, v[0], v[2]), load(m, m->r, at_r));
  s->combiner = KILN_COMBINE_SUM;
  *out = kiln_lower_tensor(m->lw, s);
  return KILN_OK;
}

// A statement (n, h) of one step; |v| gets its vars.
static kiln_stmt *cell(recurrent *m, const char *name, const kiln_expr **v) {
  const kiln_expr *extents[] = {m->batch, kiln_int(m->lw->cx, m->hidden)};
  kiln_stmt *s = kiln_lower_stmt(m->lw, name, m->sum, 2, 0, extents);
  kiln_stmt_vars(m->lw->cx, s, 0, 2, v);
  return s;
}

// The same for a state, or a part of Y.
static kiln_stmt *hidden(recurrent *m, const char *name, kiln_dtype t, const kiln_expr **v) {
  kiln_ctx *cx = m->lw->cx;
  const kiln_expr *one = kiln_int(cx, 1), *extents[4], *vars[4];
  state_axes(m, one, one, m->batch, kiln_int(cx, m->hidden), extents);
  kiln_stmt *s = kiln_lower_stmt(m->lw, name, t, 4, 0, extents);
  kiln_stmt_vars(cx, s, 0, 4, vars);
  v[0] = vars[m->batch_first ? 0 : 2];
  v[1] = vars[3];
  return s;
}

// The initial state of a direction, (n, h), or with the axes of Y if |is_hidden|; zeros when
// |given| is NULL.
static const kiln_tensor *initial(recurrent *m, const kiln_tensor *given, int dir, bool is_hidden) {
  kiln_ctx *cx = m->lw->cx;
  const kiln_expr *v[2];
  kiln_stmt *s = is_hidden ? hidden(m, "initial", m->sum, v) : cell(m, "initial", v);
  const kiln_expr *d = kiln_int(cx, dir);
  const kiln_expr *at[] = {m->batch_first ? v[0] : d, m->batch_first ? d : v[0], v[1]};
  s->body = given ? load(m, given, at) : number(m, 0);
  return kiln_lower_tensor(m->lw, s);
}

// Whether step t is one of sequence n: (t, n).
static const kiln_tensor *all_lasts(recurrent *m) {
  kiln_ctx *cx = m->lw->cx;
  const kiln_expr *extents[] = {kiln_int(cx, m->steps), m->batch}, *v[2];
  kiln_stmt *s = kiln_lower_stmt(m->lw, "lasts", KILN_BOOL, 2, 0, extents);
  kiln_stmt_vars(cx, s, 0, 2, v);
  const kiln_expr *length =
      m->lengths ? kiln_cast(cx, KILN_I64, kiln_tensor_load(cx, m->lengths, &v[1])) : m->length;
  if (m->lengths && m->length) length = kiln_least(cx, length, m->length);
  s->body = kiln_compare(cx, KILN_EXPR_LT, v[0], length);
  return kiln_lower_tensor(m->lw, s);
}

// The gate |g| of a step: its input part at (t, n, g*hidden + h), plus its state part.
typedef struct step {
  recurrent *m;
  int dir;
  int64_t t;
  const kiln_tensor *inputs, *lasts, *states; // (steps, n, rows), (steps, n), (n, rows)
} step;

// The element of |whole| of this step at |rest|; of a loop, |whole| is a row.
static const kiln_expr *at_step(const step *p, const kiln_tensor *whole, int n_rest,
                                const kiln_expr *const *rest) {
  kiln_ctx *cx = p->m->lw->cx;
  const kiln_expr *at[KILN_MAX_RANK] = {kiln_int(cx, p->t)};
  const int first = p->m->is_kept ? 0 : 1;
  for (int i = 0; i < n_rest; i++) at[first + i] = rest[i];
  return kiln_tensor_load(cx, whole, at);
}

static const kiln_expr *input_part(const step *p, int gate, const kiln_expr *const *v) {
  kiln_ctx *cx = p->m->lw->cx;
  const kiln_expr *at[] = {NULL, v[0], kiln_add(cx, v[1], kiln_int(cx, gate * p->m->hidden))};
  if (!p->m->length) return at_step(p, p->inputs, 2, at + 1);
  const kiln_expr *last = kiln_sub(cx, p->m->length, kiln_int(cx, 1));
  at[0] = kiln_most(cx, kiln_int(cx, 0), kiln_least(cx, kiln_int(cx, p->t), last));
  return kiln_tensor_load(cx, p->inputs, at);
}

static const kiln_expr *state_part(const step *p, int gate, const kiln_expr *const *v) {
  kiln_ctx *cx = p->m->lw->cx;
  const kiln_expr *at[] = {v[0], kiln_add(cx, v[1], kiln_int(cx, gate * p->m->hidden))};
  return kiln_tensor_load(cx, p->states, at);
}

static const kiln_expr *gate_sum(const step *p, int gate, const kiln_expr *const *v) {
  return kiln_add(p->m->lw->cx, input_part(p, gate, v), state_part(p, gate, v));
}

static const kiln_expr *lasts(const step *p, const kiln_expr *n) {
  return at_step(p, p->lasts, 1, &n);
}

// |fresh| while the sequence lasts, else the state as it was.
static const kiln_expr *held(const step *p, const kiln_expr *fresh, const kiln_tensor *before,
                             const kiln_expr *const *v) {
  recurrent *m = p->m;
  kiln_ctx *cx = m->lw->cx;
  if (!m->lasts) return fresh;
  return kiln_select(cx, lasts(p, v[0]), fresh, load_state(m, before, v[0], v[1]));
}

static const activation *activation_of(const step *p, int i) {
  return &p->m->activations[p->dir * p->m->n_activations + i];
}

// P(dir, which*hidden + h) * c, of the peepholes i, o, f.
static const kiln_expr *peep(const step *p, int which, const kiln_expr *sum, const kiln_tensor *c,
                             const kiln_expr *const *v) {
  recurrent *m = p->m;
  kiln_ctx *cx = m->lw->cx;
  if (!m->peepholes) return sum;
  const kiln_expr *at[] = {kiln_int(cx, p->dir),
                           kiln_add(cx, v[1], kiln_int(cx, which * m->hidden))};
  return kiln_add(cx, sum, kiln_mul(cx, load(m, m->peepholes, at), kiln_tensor_load(cx, c, v)));
}

// Gates i, o, f, c. *c and *h are replaced by the next states.
static kiln_status lstm_step(step *p, const kiln_tensor **h, const kiln_tensor **c) {
  recurrent *m = p->m;
  kiln_ctx *cx = m->lw->cx;
  const kiln_expr *v[2];
  KILN_TRY(state_product(m, p->dir, *h, 0, 4 * m->hidden, &p->states));
  kiln_stmt *s = cell(m, "cell", v);
  const activation *f = activation_of(p, 0);
  const kiln_expr *in = apply(m, f, peep(p, 0, gate_sum(p, 0, v), *c, v));
  const kiln_expr *forget = m->couple ? kiln_sub(cx, number(m, 1), in)
                                      : apply(m, f, peep(p, 2, gate_sum(p, 2, v), *c, v));
  const kiln_expr *candidate = apply(m, activation_of(p, 1), gate_sum(p, 3, v));
  const kiln_expr *kept = kiln_mul(cx, forget, kiln_tensor_load(cx, *c, v));
  s->body = held(p, kiln_add(cx, kept, kiln_mul(cx, in, candidate)), *c, v);
  const kiln_tensor *next = kiln_lower_tensor(m->lw, s);
  kiln_stmt *o = hidden(m, "hidden", m->sum, v);
  const kiln_expr *out = apply(m, f, peep(p, 1, gate_sum(p, 1, v), next, v));
  activation squash = *activation_of(p, 2);
  const double clip = m->clip;
  m->clip = 0; // only the inputs of the gates are clipped
  out = kiln_mul(cx, out, apply(m, &squash, kiln_tensor_load(cx, next, v)));
  m->clip = clip;
  o->body = held(p, out, *h, v);
  *c = next;
  *h = kiln_lower_tensor(m->lw, o);
  return KILN_OK;
}

// r * h, the state that the candidate of a GRU sees.
static const kiln_tensor *reset_state(step *p, const kiln_tensor *h) {
  recurrent *m = p->m;
  const kiln_expr *v[2];
  kiln_stmt *s = cell(m, "reset", v);
  const kiln_expr *r = apply(m, activation_of(p, 0), gate_sum(p, 1, v));
  s->body = kiln_mul(m->lw->cx, r, load_state(m, h, v[0], v[1]));
  return kiln_lower_tensor(m->lw, s);
}

// Gates z, r, h.
static kiln_status gru_step(step *p, const kiln_tensor **h, const kiln_tensor **c) {
  recurrent *m = p->m;
  kiln_ctx *cx = m->lw->cx;
  const kiln_tensor *after = NULL;
  const kiln_expr *v[2], *candidate = NULL;
  (void)c;
  KILN_TRY(
      state_product(m, p->dir, *h, 0, (m->linear_before_reset ? 3 : 2) * m->hidden, &p->states));
  if (!m->linear_before_reset)
    KILN_TRY(state_product(m, p->dir, reset_state(p, *h), 2 * m->hidden, m->hidden, &after));
  kiln_stmt *s = hidden(m, "hidden", m->sum, v);
  const kiln_expr *z = apply(m, activation_of(p, 0), gate_sum(p, 0, v));
  if (m->linear_before_reset) {
    const kiln_expr *r = apply(m, activation_of(p, 0), gate_sum(p, 1, v));
    const kiln_expr *part = state_part(p, 2, v);
    const kiln_expr *row = kiln_add(cx, v[1], kiln_int(cx, 5 * m->hidden));
    const kiln_expr *at[] = {kiln_int(cx, p->dir), row};
    if (m->b) part = kiln_add(cx, part, load(m, m->b, at));
    candidate = kiln_add(cx, input_part(p, 2, v), kiln_mul(cx, r, part));
  } else {
    candidate = kiln_add(cx, input_part(p, 2, v), kiln_tensor_load(cx, after, v));
  }
  candidate = apply(m, activation_of(p, 1), candidate);
  const kiln_expr *rest = kiln_mul(cx, kiln_sub(cx, number(m, 1), z), candidate);
  const kiln_expr *next = kiln_add(cx, rest, kiln_mul(cx, z, load_state(m, *h, v[0], v[1])));
  s->body = held(p, next, *h, v);
  *h = kiln_lower_tensor(m->lw, s);
  return KILN_OK;
}

static kiln_status rnn_step(step *p, const kiln_tensor **h, const kiln_tensor **c) {
  recurrent *m = p->m;
  const kiln_expr *v[2];
  (void)c;
  KILN_TRY(state_product(m, p->dir, *h, 0, m->hidden, &p->states));
  kiln_stmt *s = hidden(m, "hidden", m->sum, v);
  s->body = held(p, apply(m, activation_of(p, 0), gate_sum(p, 0, v)), *h, v);
  *h = kiln_lower_tensor(m->lw, s);
  return KILN_OK;
}

// --- outputs ---

// The state after step |v_t|, by comparisons that halve the steps.
static const kiln_expr *state_at(const recurrent *m, int dir, int64_t first, int64_t end,
                                 const kiln_expr *const *v) {
  kiln_ctx *cx = m->lw->cx;
  const int at_t = m->batch_first ? 1 : 0, at_dir = at_t + 1;
  if (end == first) return kiln_number(cx, m->x->dtype, 0); // no step, no element
  if (end - first == 1) {
    const kiln_expr *at[] = {v[0], v[1], v[2], v[3]};
    at[at_t] = kiln_sub(cx, v[at_t], kiln_int(cx, first));
    at[at_dir] = kiln_sub(cx, v[at_dir], kiln_int(cx, dir));
    return kiln_tensor_load(cx, m->outputs[dir * m->steps + first], at);
  }
  const int64_t middle = (first + end) / 2;
  return kiln_select(cx, kiln_compare(cx, KILN_EXPR_LT, v[at_t], kiln_int(cx, middle)),
                     state_at(m, dir, first, middle, v), state_at(m, dir, middle, end, v));
}

// The part of Y that a step's state |h| is: 0 behind the end of a sequence.
static const kiln_tensor *part_of(const step *p, const kiln_tensor *h) {
  recurrent *m = p->m;
  kiln_ctx *cx = m->lw->cx;
  const kiln_expr *v[2];
  if (!m->lasts && h->dtype == m->x->dtype) return h;
  kiln_stmt *s = hidden(m, "part", m->x->dtype, v);
  s->body = load_state(m, h, v[0], v[1]);
  if (m->lasts) s->body = kiln_select(cx, lasts(p, v[0]), s->body, number(m, 0));
  s->body = kiln_cast(cx, m->x->dtype, s->body);
  return kiln_lower_tensor(m->lw, s);
}

// The part of Y that direction |dir| is, whose steps a loop gives as rows.
static const kiln_expr *rows_at(const recurrent *m, int dir, const kiln_expr *const *v) {
  const int at_t = m->batch_first ? 1 : 0;
  const kiln_expr *at[] = {v[at_t], v[0], v[1], v[2], v[3]};
  at[1 + at_t] = at[2 + at_t] = kiln_int(m->lw->cx, 0);
  return kiln_tensor_load(m->lw->cx, m->outputs[dir], at);
}

static const kiln_expr *direction_at(const recurrent *m, int dir, const kiln_expr *const *v) {
  return m->is_kept ? rows_at(m, dir, v) : state_at(m, dir, 0, m->steps, v);
}

// Y, the parts side by side.
static kiln_tensor *all_states(recurrent *m) {
  kiln_ctx *cx = m->lw->cx;
  const kiln_expr *extents[4], *v[4];
  state_axes(m, m->length ? m->length : kiln_int(cx, m->steps), kiln_int(cx, m->n_dirs), m->batch,
             kiln_int(cx, m->hidden), extents);
  kiln_stmt *s = kiln_lower_stmt(m->lw, "states", m->x->dtype, 4, 0, extents);
  kiln_stmt_vars(cx, s, 0, 4, v);
  const kiln_expr *d = v[m->batch_first ? 2 : 1];
  s->body = direction_at(m, 0, v);
  if (m->n_dirs == 2)
    s->body = kiln_select(cx, kiln_compare(cx, KILN_EXPR_LT, d, kiln_int(cx, 1)), s->body,
                          direction_at(m, 1, v));
  return kiln_lower_tensor(m->lw, s);
}

// (dir, n, h), or (n, dir, h), of the last state of each direction.
static kiln_tensor *last_state(recurrent *m, const kiln_tensor *const *last) {
  kiln_ctx *cx = m->lw->cx;
  const kiln_expr *dirs = kiln_int(cx, m->n_dirs), *hidden = kiln_int(cx, m->hidden), *v[3];
  const kiln_expr *extents[] = {m->batch_first ? m->batch : dirs, m->batch_first ? dirs : m->batch,
                                hidden};
  kiln_stmt *s = kiln_lower_stmt(m->lw, "last_state", m->x->dtype, 3, 0, extents);
  kiln_stmt_vars(cx, s, 0, 3, v);
  const kiln_expr *n = v[m->batch_first ? 0 : 1];
  const kiln_expr *y = load_state(m, last[0], n, v[2]);
  if (m->n_dirs == 2)
    y = kiln_select(cx, kiln_compare(cx, KILN_EXPR_LT, v[m->batch_first ? 1 : 0], kiln_int(cx, 1)),
                    y, load_state(m, last[1], n, v[2]));
  s->body = kiln_cast(cx, m->x->dtype, y);
  return kiln_lower_tensor(m->lw, s);
}

typedef kiln_status (*step_fn)(step *, const kiln_tensor **, const kiln_tensor **);

static kiln_status unroll(step *p, step_fn run, const kiln_tensor **h, const kiln_tensor **c) {
  recurrent *m = p->m;
  const bool backwards = p->dir == 1 || m->reverse_only;
  for (int64_t k = 0; k < m->steps; k++) {
    p->t = backwards ? m->steps - 1 - k : k;
    KILN_TRY(run(p, h, c));
    m->outputs[p->dir * m->steps + p->t] = part_of(p, *h);
  }
  return KILN_OK;
}

// --- steps as a loop ---

static kiln_tensor *placeholder(const recurrent *m, const char *name, const kiln_tensor *like,
                                int first_axis) {
  return kiln_tensor_make(m->lw->cx, m->lw->prog, name, like->dtype, KILN_INPUT,
                          like->rank - first_axis,
                          (const kiln_expr *const *)like->shape + first_axis);
}

// Lets the loop give |whole| a row at a time.
static const kiln_tensor *read_rows(const recurrent *m, kiln_kept_loop *loop, bool backwards,
                                    const kiln_tensor *whole) {
  const kiln_tensor *row = placeholder(m, "row", whole, 1);
  const kiln_loop_row r = {whole->id, row->id, backwards, false};
  KILN_VEC_PUSH(&m->lw->cx->perm, &loop->rows, r);
  return row;
}

// The result of a state: |first| before the loop, |in| in an iteration and |next| behind it.
static void end_state(const recurrent *m, kiln_kept_loop *loop, const kiln_tensor *first,
                      const kiln_tensor *in, const kiln_tensor *next, const kiln_tensor **out) {
  *out = placeholder(m, "state", in, 0);
  const kiln_loop_state s = {first->id, in->id, next->id, (*out)->id};
  KILN_VEC_PUSH(&m->lw->cx->perm, &loop->states, s);
}

static kiln_status keep(step *p, step_fn run, const kiln_tensor **h, const kiln_tensor **c) {
  recurrent *m = p->m;
  kiln_ctx *cx = m->lw->cx;
  const bool backwards = p->dir == 1 || m->reverse_only, has_cell = *c != NULL;
  const kiln_tensor *first_h = *h, *first_c = *c;
  kiln_kept_loop loop = {.place = kiln_node_place(cx, m->lw->graph, m->lw->node),
                         .count = -1,
                         .condition = -1,
                         .iteration = -1,
                         .made = -1,
                         .most = m->steps};
  p->inputs = read_rows(m, &loop, backwards, p->inputs);
  if (m->lasts) p->lasts = read_rows(m, &loop, backwards, m->lasts);
  const kiln_tensor *in_h = placeholder(m, "state", first_h, 0),
                    *in_c = has_cell ? placeholder(m, "state", first_c, 0) : NULL;
  *h = in_h;
  *c = in_c;
  loop.first = m->lw->prog->stmts.n;
  KILN_TRY(run(p, h, c));
  const kiln_tensor *part = part_of(p, *h);
  loop.end = m->lw->prog->stmts.n;
  end_state(m, &loop, first_h, in_h, *h, h);
  if (has_cell) end_state(m, &loop, first_c, in_c, *c, c);
  const kiln_expr *shape[KILN_MAX_RANK] = {kiln_int(cx, m->steps)};
  for (int a = 0; a < part->rank; a++) shape[1 + a] = part->shape[a];
  kiln_tensor *whole =
      kiln_tensor_make(cx, m->lw->prog, "rows", part->dtype, KILN_INPUT, part->rank + 1, shape);
  const kiln_loop_row made = {whole->id, part->id, backwards, true};
  KILN_VEC_PUSH(&cx->perm, &loop.rows, made);
  m->outputs[p->dir] = whole;
  KILN_VEC_PUSH(&cx->perm, &m->lw->counts->regions->all, loop);
  return KILN_OK;
}

static kiln_status lower_recurrent(recurrent *m, step_fn run) {
  kiln_lower *lw = m->lw;
  const kiln_tensor *last_h[2] = {NULL}, *last_c[2] = {NULL};
  if (m->lengths || m->length) m->lasts = all_lasts(m);
  for (int dir = 0; dir < m->n_dirs; dir++) {
    step p = {.m = m, .dir = dir, .lasts = m->lasts};
    KILN_TRY(input_product(m, dir, &p.inputs));
    last_h[dir] = initial(m, m->initial_h, dir, m->is_kept);
    if (m->n_gates == 4) last_c[dir] = initial(m, m->initial_c, dir, false);
    KILN_TRY((m->is_kept ? keep : unroll)(&p, run, &last_h[dir], &last_c[dir]));
  }
  lw->outputs[0] = all_states(m);
  if (lw->n_outputs > 1) lw->outputs[1] = last_state(m, last_h);
  if (lw->n_outputs > 2 && m->n_gates == 4) lw->outputs[2] = last_state(m, last_c);
  return KILN_OK;
}

static kiln_status lower_lstm(kiln_lower *lw) {
  static const char *const activations[] = {"Sigmoid", "Tanh", "Tanh"};
  recurrent m = {.lw = lw, .n_gates = 4, .n_activations = 3};
  KILN_TRY(read_node(&m, activations));
  return lower_recurrent(&m, lstm_step);
}

// The scale and the zero point of inputs |at| and |at| + 1.
static kiln_status read_quantisation(recurrent *m, int at, quantisation *q) {
  kiln_lower *lw = m->lw;
  q->scale = kiln_lower_in(lw, at);
  q->zero = kiln_lower_in(lw, at + 1);
  if (!q->scale || !q->zero)
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                     "inputs %d and %d: must be a scale and a zero point", at, at + 1);
  for (int i = 0; i < 2; i++) {
    const kiln_tensor *t = i ? q->zero : q->scale;
    KILN_TRY(kiln_lower_want_rank(lw, t, 1, 2));
    KILN_TRY(want_extent(m, t, 0, m->n_dirs));
    if (t->rank == 2) KILN_TRY(want_extent(m, t, 1, m->n_gates * m->hidden));
  }
  return KILN_OK;
}

static bool is_byte(kiln_dtype t) { return t == KILN_U8 || t == KILN_I8; }

static kiln_status lower_quantised_lstm(kiln_lower *lw) {
  static const char *const activations[] = {"Sigmoid", "Tanh", "Tanh"};
  recurrent m = {.lw = lw, .n_gates = 4, .n_activations = 3, .turned = true};
  KILN_TRY(read_node(&m, activations));
  for (int i = 1; i <= 2; i++) KILN_TRY(kiln_lower_want_dtype(lw, i, is_byte, "u8 or i8"));
  KILN_TRY(read_quantisation(&m, 8, &m.q_w));
  KILN_TRY(read_quantisation(&m, 10, &m.q_r));
  return lower_recurrent(&m, lstm_step);
}

static kiln_status lower_gru(kiln_lower *lw) {
  static const char *const activations[] = {"Sigmoid", "Tanh"};
  recurrent m = {.lw = lw, .n_gates = 3, .n_activations = 2};
  KILN_TRY(read_node(&m, activations));
  return lower_recurrent(&m, gru_step);
}

static kiln_status lower_rnn(kiln_lower *lw) {
  static const char *const activations[] = {"Tanh"};
  recurrent m = {.lw = lw, .n_gates = 1, .n_activations = 1};
  KILN_TRY(read_node(&m, activations));
  return lower_recurrent(&m, rnn_step);
}

const kiln_op kiln_op_lstm[] = {
    {"", "LSTM", 1, 0, lower_lstm, NULL, "ops/lstm.c"},
    {"com.microsoft", "DynamicQuantizeLSTM", 1, 0, lower_quantised_lstm, NULL, "ops/lstm.c"},
    {"", "GRU", 3, 0, lower_gru, NULL, "ops/lstm.c"},
    {"", "RNN", 1, 0, lower_rnn, NULL, "ops/lstm.c"},
    {0},
};
