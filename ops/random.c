// Random numbers by a counter: the number of an element, mixed with the seed, is its value, so that
// every run and every target gives the same ones. Nodes without a seed get that of their output's
// name. The mixing is that of SplitMix64; normal numbers are Box and Muller's.
// source: ONNX RandomUniform-1, 22; RandomNormal-1, 22; Bernoulli-15, 22; Multinomial-7, 22;
// Dropout-7, 10, 12, 13, 22; Steele, Lea, Flood: Fast splittable pseudorandom number generators
#include "fission/terms.h"

#include <math.h>
#include <string.h>

// --- numbers ---

static const uint64_t golden = UINT64_C(0x9E3779B97F4A7C15);

static uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
  return z ^ (z >> 31);
}

// Any attribute, a float or an integer, or the name of the output.
static kiln_status read_seed(kiln_lower *lw, uint64_t *out) {
  const kiln_attr *seed = kiln_lower_attr(lw, "seed");
  const int value = lw->node->outputs[0];
  uint64_t z = 0;
  if (seed && seed->kind == KILN_ATTR_FLOAT) {
    memcpy(&z, &seed->u.f, sizeof seed->u.f);
  } else if (seed && seed->kind == KILN_ATTR_INT) {
    z = (uint64_t)seed->u.i;
  } else if (seed) {
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place, "attribute seed: must be a number");
  } else if (value >= 0) {
    for (const char *c = kiln_symbol_text(lw->cx, lw->graph->values[value]->name); *c; c++)
      z = mix(z + golden + (unsigned char)*c);
  }
  *out = mix(z + golden);
  return KILN_OK;
}

static const kiln_expr *word(kiln_ctx *cx, uint64_t v) {
  return kiln_int_of(cx, KILN_U64, (int64_t)v);
}

static const kiln_expr *fold_shift(kiln_ctx *cx, const kiln_expr *z, uint64_t n, uint64_t factor) {
  const kiln_expr *down = kiln_binary(cx, KILN_EXPR_SHR, z, word(cx, n));
  z = kiln_binary(cx, KILN_EXPR_BXOR, z, down);
  return factor ? kiln_mul(cx, z, word(cx, factor)) : z;
}

// The number |i| of a stream, in [0, 1), as |t|, f32 or f64.
static const kiln_expr *uniform(kiln_ctx *cx, uint64_t seed, const kiln_expr *i, kiln_dtype t) {
  const int bits = t == KILN_F64 ? 53 : 24;
  const kiln_expr *at = kiln_add(cx, kiln_cast(cx, KILN_U64, i), word(cx, 1));
  const kiln_expr *z = kiln_add(cx, word(cx, seed), kiln_mul(cx, at, word(cx, golden)));
  z = fold_shift(cx, z, 30, UINT64_C(0xBF58476D1CE4E5B9));
  z = fold_shift(cx, z, 27, UINT64_C(0x94D049BB133111EB));
  z = fold_shift(cx, z, 31, 0);
  z = kiln_binary(cx, KILN_EXPR_SHR, z, word(cx, (uint64_t)(64 - bits)));
  return kiln_mul(cx, kiln_cast(cx, t, kiln_cast(cx, KILN_I64, z)),
                  kiln_float(cx, t, ldexp(1, -bits)));
}

static const kiln_expr *normal(kiln_ctx *cx, uint64_t seed, const kiln_expr *i, kiln_dtype t) {
  const kiln_expr *first = kiln_mul(cx, i, kiln_int(cx, 2));
  const kiln_expr *second = kiln_add(cx, first, kiln_int(cx, 1));
  // In (0, 1], so that the logarithm is finite.
  const kiln_expr *u = kiln_sub(cx, kiln_float(cx, t, 1), uniform(cx, seed, first, t));
  const kiln_expr *angle =
      kiln_mul(cx, kiln_float(cx, t, 2 * 3.14159265358979323846), uniform(cx, seed, second, t));
  const kiln_expr *square = kiln_mul(cx, kiln_float(cx, t, -2), kiln_unary(cx, KILN_EXPR_LOG, u));
  return kiln_mul(cx, kiln_unary(cx, KILN_EXPR_SQRT, square), kiln_unary(cx, KILN_EXPR_COS, angle));
}

static kiln_dtype computed_in(kiln_dtype t) { return t == KILN_F64 ? KILN_F64 : KILN_F32; }

// The row-major number of the element at |index|.
static const kiln_expr *number_of(kiln_ctx *cx, int rank, const kiln_expr *const *shape,
                                  const kiln_expr *const *index) {
  const kiln_expr *n = kiln_int(cx, 0);
  for (int i = 0; i < rank; i++) n = kiln_add(cx, kiln_mul(cx, n, shape[i]), index[i]);
  return n;
}

static kiln_status read_dtype(kiln_lower *lw, kiln_dtype otherwise, bool (*ok)(kiln_dtype),
                              kiln_dtype *out) {
  int64_t code = 0;
  KILN_TRY(kiln_lower_int(lw, "dtype", kiln_dtype_onnx(otherwise), &code));
  if (kiln_dtype_of_onnx(code, out) && ok(*out)) return KILN_OK;
  return KILN_FAIL(lw->cx->diag, KILN_UNSUPPORTED, lw->place,
                   "attribute dtype: must be a type that this operator gives, got %" PRId64, code);
}

// --- fills ---

typedef enum distribution { UNIFORM, NORMAL } distribution;

static kiln_status fill(kiln_lower *lw, distribution kind, kiln_dtype t, int rank,
                        const kiln_expr *const *shape) {
  kiln_ctx *cx = lw->cx;
  uint64_t seed = 0;
  double a = 0, b = 0; // low and high, or mean and scale
  KILN_TRY(read_seed(lw, &seed));
  KILN_TRY(kiln_lower_float(lw, kind == UNIFORM ? "low" : "mean", 0, &a));
  KILN_TRY(kiln_lower_float(lw, kind == UNIFORM ? "high" : "scale", 1, &b));
  const kiln_dtype sum = computed_in(t);
  const kiln_expr *v[KILN_MAX_RANK];
  kiln_stmt *s = kiln_lower_stmt(lw, "random", t, rank, 0, shape);
  kiln_stmt_vars(cx, s, 0, rank, v);
  const kiln_expr *i = number_of(cx, rank, shape, v);
  const kiln_expr *z = kind == UNIFORM ? uniform(cx, seed, i, sum) : normal(cx, seed, i, sum);
  const double scale = kind == UNIFORM ? b - a : b;
  z = kiln_add(cx, kiln_mul(cx, z, kiln_float(cx, sum, scale)), kiln_float(cx, sum, a));
  s->body = kiln_cast(cx, t, z);
  lw->outputs[0] = kiln_lower_tensor(lw, s);
  return KILN_OK;
}

static kiln_status fill_shape(kiln_lower *lw, distribution kind) {
  int rank = 0;
  kiln_dtype t = KILN_F32;
  const int64_t *shape = NULL;
  const kiln_expr *extents[KILN_MAX_RANK];
  KILN_TRY(kiln_lower_want_inputs(lw, 0, 0));
  KILN_TRY(kiln_lower_ints(lw, "shape", &rank, &shape));
  KILN_TRY(read_dtype(lw, KILN_F32, kiln_dtype_is_float, &t));
  if (rank < 0 || rank > KILN_MAX_RANK)
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                     "attribute shape: must have at most %d extents, got %d", KILN_MAX_RANK, rank);
  for (int i = 0; i < rank; i++) extents[i] = kiln_int(lw->cx, shape[i]);
  return fill(lw, kind, t, rank, extents);
}

static kiln_status fill_like(kiln_lower *lw, distribution kind) {
  kiln_dtype t = KILN_F32;
  KILN_TRY(kiln_lower_want_inputs(lw, 1, 1));
  const kiln_tensor *x = lw->inputs[0];
  KILN_TRY(read_dtype(lw, x->dtype, kiln_dtype_is_float, &t));
  return fill(lw, kind, t, x->rank, (const kiln_expr *const *)x->shape);
}

static kiln_status lower_uniform(kiln_lower *lw) { return fill_shape(lw, UNIFORM); }
static kiln_status lower_uniform_like(kiln_lower *lw) { return fill_like(lw, UNIFORM); }
static kiln_status lower_normal(kiln_lower *lw) { return fill_shape(lw, NORMAL); }
static kiln_status lower_normal_like(kiln_lower *lw) { return fill_like(lw, NORMAL); }

// --- draws ---

static bool is_any(kiln_dtype t) {
  (void)t;
  return true;
}

static kiln_status lower_bernoulli(kiln_lower *lw) {
  kiln_ctx *cx = lw->cx;
  uint64_t seed = 0;
  kiln_dtype t = KILN_F32;
  KILN_TRY(kiln_lower_want_inputs(lw, 1, 1));
  KILN_TRY(kiln_lower_want_dtype(lw, 0, kiln_dtype_is_float, "a float"));
  const kiln_tensor *x = lw->inputs[0];
  KILN_TRY(read_dtype(lw, x->dtype, is_any, &t));
  KILN_TRY(read_seed(lw, &seed));
  const kiln_dtype sum = computed_in(x->dtype);
  const kiln_expr *v[KILN_MAX_RANK];
  kiln_stmt *s = kiln_lower_like(lw, "bernoulli", x, t, v);
  const kiln_expr *i = number_of(cx, x->rank, (const kiln_expr *const *)x->shape, v);
  const kiln_expr *p = kiln_cast(cx, sum, kiln_tensor_load(cx, x, v));
  const kiln_expr *hit = kiln_compare(cx, KILN_EXPR_LT, uniform(cx, seed, i, sum), p);
  s->body = kiln_cast(cx, t, hit);
  lw->outputs[0] = kiln_lower_tensor(lw, s);
  return KILN_OK;
}

// A statement over the rows of (N, C), maybe another dim, and the classes that it reduces.
static kiln_stmt *over_classes(kiln_lower *lw, kiln_dtype t, int n_space, kiln_combiner combiner,
                               const kiln_expr *const *extents, const kiln_expr **v) {
  kiln_stmt *s = kiln_lower_stmt(lw, "multinomial", t, n_space, 1, extents);
  kiln_stmt_vars(lw->cx, s, 0, n_space + 1, v);
  s->combiner = combiner;
  return s;
}

// A class is drawn by counting those whose cumulated weight is below a uniform number of the whole.
static kiln_status lower_multinomial(kiln_lower *lw) {
  kiln_ctx *cx = lw->cx;
  uint64_t seed = 0;
  int64_t size = 1, classes = 0;
  kiln_dtype t = KILN_I32;
  KILN_TRY(kiln_lower_want_inputs(lw, 1, 1));
  KILN_TRY(kiln_lower_want_dtype(lw, 0, kiln_dtype_is_float, "a float"));
  KILN_TRY(kiln_lower_want_rank(lw, lw->inputs[0], 2, 2));
  KILN_TRY(kiln_lower_int(lw, "sample_size", 1, &size));
  KILN_TRY(read_dtype(lw, KILN_I32, kiln_dtype_is_index, &t));
  KILN_TRY(read_seed(lw, &seed));
  const kiln_tensor *x = lw->inputs[0];
  KILN_TRY(kiln_lower_extent(lw, x, 1, &classes));
  if (size < 1 || classes < 1)
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, lw->place,
                     "sample_size and the number of classes: must be positive, got %" PRId64
                     " and %" PRId64,
                     size, classes);
  const kiln_dtype sum = computed_in(x->dtype);
  const kiln_expr *rows = x->shape[0], *all = kiln_int(cx, classes), *v[3];
  const kiln_expr *by_class[] = {rows, all, all};
  kiln_stmt *top = over_classes(lw, sum, 1, KILN_COMBINE_MAX, by_class, v);
  top->body = kiln_cast(cx, sum, kiln_tensor_load(cx, x, v));
  kiln_stmt *weights = over_classes(lw, sum, 2, KILN_COMBINE_SUM, by_class, v);
  const kiln_expr *at[] = {v[0], v[2]};
  const kiln_expr *shifted = kiln_sub(cx, kiln_cast(cx, sum, kiln_tensor_load(cx, x, at)),
                                      kiln_tensor_load(cx, kiln_lower_tensor(lw, top), v));
  weights->body = kiln_select(cx, kiln_compare(cx, KILN_EXPR_LE, v[2], v[1]),
                              kiln_unary(cx, KILN_EXPR_EXP, shifted), kiln_float(cx, sum, 0));
  const kiln_tensor *cumulated = kiln_lower_tensor(lw, weights);
  const kiln_expr *extents[] = {rows, kiln_int(cx, size), kiln_int(cx, classes - 1)};
  kiln_stmt *s = over_classes(lw, t, 2, KILN_COMBINE_SUM, extents, v);
  const kiln_expr *last[] = {v[0], kiln_int(cx, classes - 1)}, *here[] = {v[0], v[2]};
  const kiln_expr *draw = kiln_mul(cx, uniform(cx, seed, number_of(cx, 2, extents, v), sum),
                                   kiln_tensor_load(cx, cumulated, last));
  s->body =
      kiln_cast(cx, t, kiln_compare(cx, KILN_EXPR_LE, kiln_tensor_load(cx, cumulated, here), draw));
  lw->outputs[0] = kiln_lower_tensor(lw, s);
  return KILN_OK;
}

// --- Dropout ---

// The share that is dropped: 0 outside of training.
static kiln_status read_ratio(kiln_lower *lw, double *out) {
  int n = -1;
  const int64_t *training = NULL;
  const double *ratio = NULL;
  *out = 0;
  KILN_TRY(kiln_lower_const_ints(lw, 2, &n, &training));
  if (n < 1 || !training[0]) return KILN_OK;
  KILN_TRY(kiln_lower_const_floats(lw, 1, &n, &ratio));
  *out = n < 1 ? 0.5 : ratio[0];
  if (*out >= 0 && *out < 1) return KILN_OK;
  return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                   "input 1 (ratio): must lie in [0, 1), got %g", *out);
}

static kiln_status lower_dropout(kiln_lower *lw) {
  kiln_ctx *cx = lw->cx;
  double ratio = 0;
  uint64_t seed = 0;
  KILN_TRY(kiln_lower_want_inputs(lw, 1, 3));
  KILN_TRY(kiln_lower_want_dtype(lw, 0, kiln_dtype_is_float, "a float"));
  KILN_TRY(read_ratio(lw, &ratio));
  kiln_tensor *x = lw->inputs[0];
  lw->outputs[0] = x;
  if (ratio == 0 && (lw->n_outputs < 2 || lw->node->outputs[1] < 0)) return KILN_OK;
  const kiln_expr *v[KILN_MAX_RANK];
  const kiln_dtype t = lw->node->opset < 10 ? x->dtype : KILN_BOOL, sum = computed_in(x->dtype);
  kiln_stmt *mask = kiln_lower_like(lw, "mask", x, t, v);
  mask->body = kiln_number(cx, t, 1);
  const kiln_tensor *kept = kiln_lower_tensor(lw, mask);
  if (lw->n_outputs > 1) lw->outputs[1] = (kiln_tensor *)kept;
  if (ratio == 0) return KILN_OK;
  KILN_TRY(read_seed(lw, &seed));
  const kiln_expr *i = number_of(cx, x->rank, (const kiln_expr *const *)x->shape, v);
  mask->body = kiln_cast(
      cx, t, kiln_compare(cx, KILN_EXPR_GE, uniform(cx, seed, i, sum), kiln_float(cx, sum, ratio)));
  kiln_stmt *s = kiln_lower_like(lw, "dropout", x, x->dtype, v);
  const kiln_expr *stays = kiln_cast(cx, KILN_BOOL, kiln_tensor_load(cx, kept, v));
  const kiln_expr *value = kiln_mul(cx, kiln_cast(cx, sum, kiln_tensor_load(cx, x, v)),
                                    kiln_float(cx, sum, 1 / (1 - ratio)));
  s->body = kiln_cast(cx, x->dtype, kiln_select(cx, stays, value, kiln_float(cx, sum, 0)));
  lw->outputs[0] = kiln_lower_tensor(lw, s);
  return KILN_OK;
}

const kiln_op kiln_op_random[] = {
    {"", "RandomUniform", 1, 0, lower_uniform, NULL, "ops/random.c"},
    {"", "RandomUniformLike", 1, 0, lower_uniform_like, NULL, "ops/random.c"},
    {"", "RandomNormal", 1, 0, lower_normal, NULL, "ops/random.c"},
    {"", "RandomNormalLike", 1, 0, lower_normal_like, NULL, "ops/random.c"},
    {"", "Bernoulli", 15, 0, lower_bernoulli, NULL, "ops/random.c"},
    {"", "Multinomial", 7, 0, lower_multinomial, NULL, "ops/random.c"},
    {"", "Dropout", 7, 0, lower_dropout, NULL, "ops/random.c"},
    {0},
};
