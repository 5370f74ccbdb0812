// See attention.h.
#include "fission/attention.h"

#include "fission/product.h"

#include <math.h>

// --- heads and caches ---

// a / b if that is whole at all values of the dimensions; NULL otherwise.
static const kiln_expr *whole_quotient(kiln_ctx *cx, const kiln_expr *a, const kiln_expr *b) {
  kiln_factors all = kiln_factors_one(), part = kiln_factors_one();
  kiln_factors_mul(&all, a);
  kiln_factors_mul(&part, b);
  return part.constant != 0 && kiln_factors_divide(&all, &part) ? kiln_factors_expr(cx, &all)
                                                                : NULL;
}

kiln_status kiln_lower_split_heads(kiln_lower *lw, kiln_tensor *x, int64_t heads,
                                   kiln_tensor **out) {
  static const int perm[] = {0, 2, 1, 3};
  kiln_ctx *cx = lw->cx;
  int64_t channels = 0;
  KILN_TRY(kiln_lower_want_rank(lw, x, 3, 3));
  const kiln_expr *depth = heads < 1 ? NULL : whole_quotient(cx, x->shape[2], kiln_int(cx, heads));
  if (!depth) KILN_TRY(kiln_lower_extent(lw, x, 2, &channels));
  if (!depth)
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, lw->place,
                     "%s: the number of heads must be positive and divide its %" PRId64
                     " channels, got %" PRId64,
                     kiln_symbol_text(cx, x->name), channels, heads);
  const kiln_expr *shape[] = {x->shape[0], x->shape[1], kiln_int(cx, heads), depth};
  *out = kiln_lower_transpose(lw, kiln_lower_reshape(lw, x, 4, shape), perm);
  return KILN_OK;
}

kiln_tensor *kiln_lower_merge_heads(kiln_lower *lw, kiln_tensor *x) {
  static const int perm[] = {0, 2, 1, 3};
  kiln_tensor *t = kiln_lower_transpose(lw, x, perm);
  const kiln_expr *shape[] = {t->shape[0], t->shape[1], kiln_mul(lw->cx, t->shape[2], t->shape[3])};
  return kiln_lower_reshape(lw, t, 3, shape);
}

kiln_status kiln_lower_append(kiln_lower *lw, kiln_tensor *past, kiln_tensor *x, int axis,
                              kiln_tensor **out) {
  *out = x;
  if (!past) return KILN_OK;
  const kiln_attr along = kiln_attr_int(lw->cx, "axis", axis);
  kiln_tensor *const both[] = {past, x};
  const kiln_lower_callee concat = {.domain = "",
                                    .op = "Concat",
                                    .opset = 13,
                                    .n_inputs = 2,
                                    .inputs = both,
                                    .n_attrs = 1,
                                    .attrs = &along};
  return kiln_lower_call(lw, &concat, 1, out);
}

kiln_status kiln_lower_softmax_precision(kiln_lower *lw, const kiln_tensor *q, kiln_dtype *out) {
  int64_t code = 0;
  kiln_dtype t = q->dtype;
  KILN_TRY(kiln_lower_int(lw, "softmax_precision", 0, &code));
  if (code != 0 && (!kiln_dtype_of_onnx(code, &t) || !kiln_dtype_is_float(t)))
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                     "softmax_precision: must be a float type, got %" PRId64, code);
  *out = t == KILN_F64 ? KILN_F64 : KILN_F32;
  return KILN_OK;
}

// --- masks: the keys that a query attends to ---

typedef struct attention {
  kiln_lower *lw;
  const kiln_attention_call *a;
  const kiln_expr *batch, *heads, *rows, *keys; // B, H, S, T
  kiln_dtype sum;                               // of the products
} attention;

// The element of |bias| for the score at |at|; its last axis may be shorter than the keys.
static const kiln_expr *bias_at(const attention *m, const kiln_tensor *bias,
                                const kiln_expr *const *at) {
  kiln_ctx *cx = m->lw->cx;
  const kiln_expr *index[KILN_MAX_RANK];
  for (int i = 0; i < bias->rank; i++) {
    index[i] = kiln_expr_is(bias->shape[i], 1) ? kiln_int(cx, 0) : at[4 - bias->rank + i];
    if (i == bias->rank - 1 && bias->shape[i] != m->keys && !kiln_expr_is(bias->shape[i], 1))
      index[i] = kiln_least(cx, index[i], kiln_sub(cx, bias->shape[i], kiln_int(cx, 1)));
  }
  return kiln_tensor_load(cx, bias, index);
}

static bool ends_early(const attention *m, const kiln_tensor *bias) {
  int64_t have = 0, want = 0;
  return kiln_expr_is_int(bias->shape[bias->rank - 1], &have) && kiln_expr_is_int(m->keys, &want) &&
         have != 1 && have < want;
}

static const kiln_expr *length_of(const attention *m, const kiln_expr *batch) {
  kiln_ctx *cx = m->lw->cx;
  return kiln_cast(cx, KILN_I64, kiln_tensor_load(cx, m->a->lengths, &batch));
}

// The position of query row |at[2]| among the keys.
static const kiln_expr *position(const attention *m, const kiln_expr *const *at) {
  kiln_ctx *cx = m->lw->cx;
  const kiln_expr *past = m->a->past ? m->a->past : kiln_sub(cx, length_of(m, at[0]), m->rows);
  return kiln_add(cx, at[2], past);
}

// Whether query |at[2]| of |at| = (b, h, i, j) attends to key j; NULL: always. With |biases|,
// numeric biases that are -inf count as masks too.
static const kiln_expr *is_seen(const attention *m, const kiln_expr *const *at, bool biases) {
  kiln_ctx *cx = m->lw->cx;
  const kiln_attention_call *a = m->a;
  const kiln_expr *seen = NULL, *p = NULL;
  if (a->left >= 0 || a->right >= 0) p = position(m, at);
  if (a->left >= 0) {
    const kiln_expr *first = kiln_sub(cx, p, kiln_int(cx, a->left));
    seen = kiln_compare(cx, KILN_EXPR_GE, at[3], first);
  }
  if (a->right >= 0) {
    const kiln_expr *last = kiln_add(cx, p, kiln_int(cx, a->right));
    seen = kiln_both(cx, seen, kiln_compare(cx, KILN_EXPR_LE, at[3], last));
  }
  if (a->lengths)
    seen = kiln_both(cx, seen, kiln_compare(cx, KILN_EXPR_LT, at[3], length_of(m, at[0])));
  for (int i = 0; i < KILN_ATTENTION_BIASES; i++) {
    const kiln_tensor *bias = a->biases[i];
    if (!bias) continue;
    if (ends_early(m, bias)) {
      const kiln_expr *end = bias->shape[bias->rank - 1];
      seen = kiln_both(cx, seen, kiln_compare(cx, KILN_EXPR_LT, at[3], end));
    }
    const kiln_expr *value = bias_at(m, bias, at);
    if (bias->dtype == KILN_BOOL) seen = kiln_both(cx, seen, value);
    else if (biases)
      seen = kiln_both(cx, seen,
                       kiln_compare(cx, KILN_EXPR_NE, kiln_cast(cx, m->sum, value),
                                    kiln_float(cx, m->sum, -INFINITY)));
  }
  return seen;
}

static bool has_bias(const kiln_attention_call *a) {
  bool has = false;
  for (int i = 0; i < KILN_ATTENTION_BIASES; i++) has |= a->biases[i] != NULL;
  return has;
}

// Whether every row attends to some key, known at compile time.
static bool always_sees(const attention *m) {
  const kiln_attention_call *a = m->a;
  int64_t rows = 0, keys = 0, past = 0;
  if (has_bias(a) || a->lengths) return false;
  if (a->left < 0) return true;
  return kiln_expr_is_int(m->rows, &rows) && kiln_expr_is_int(m->keys, &keys) &&
         kiln_expr_is_int(a->past, &past) && rows + past - a->left <= keys;
}

// Whether the row's bounds (window and lengths, without masks) contain a key.
static const kiln_expr *sees_between(const attention *m, const kiln_expr *const *at) {
  kiln_ctx *cx = m->lw->cx;
  const kiln_attention_call *a = m->a;
  const kiln_expr *first = kiln_int(cx, 0), *end = m->keys, *p = position(m, at);
  if (a->left >= 0) first = kiln_most(cx, first, kiln_sub(cx, p, kiln_int(cx, a->left)));
  if (a->right >= 0) end = kiln_least(cx, end, kiln_add(cx, p, kiln_int(cx, a->right + 1)));
  if (a->lengths) end = kiln_least(cx, end, length_of(m, at[0]));
  return kiln_compare(cx, KILN_EXPR_LT, first, end);
}

// The extent of axis |axis| of the mask: 1 if biases and bounds do not vary along it.
static const kiln_expr *mask_extent(const attention *m, int axis) {
  kiln_ctx *cx = m->lw->cx;
  const kiln_attention_call *a = m->a;
  const kiln_expr *const full[] = {m->batch, m->heads, m->rows};
  bool varies = (axis == 0 && a->lengths) || (axis == 2 && (a->left >= 0 || a->right >= 0));
  for (int i = 0; i < KILN_ATTENTION_BIASES; i++) {
    const kiln_tensor *bias = a->biases[i];
    const int own = bias ? axis - (4 - bias->rank) : -1;
    varies |= own >= 0 && !kiln_expr_is(bias->shape[own], 1);
  }
  return varies ? full[axis] : kiln_int(cx, 1);
}

// Sets rows of |*y| (B, H, S, ..) to 0 that attend to no key.
static void zero_blind_rows(const attention *m, const kiln_tensor *seen, kiln_tensor **y) {
  kiln_ctx *cx = m->lw->cx;
  const kiln_expr *at[KILN_MAX_RANK], *row[3];
  kiln_stmt *s = kiln_lower_like(m->lw, "rows_seen", *y, (*y)->dtype, at);
  for (int i = 0; i < 3 && seen; i++)
    row[i] = kiln_expr_is(seen->shape[i], 1) ? kiln_int(cx, 0) : at[i];
  const kiln_expr *sees = seen ? kiln_tensor_load(cx, seen, row) : sees_between(m, at);
  s->body = kiln_select(cx, sees, kiln_tensor_load(cx, *y, at), kiln_number(cx, (*y)->dtype, 0));
  *y = kiln_lower_tensor(m->lw, s);
}

// Whether each row attends to some key: an OR of its mask over the keys.
static const kiln_tensor *seen_rows(const attention *m) {
  kiln_ctx *cx = m->lw->cx;
  const kiln_expr *extents[4], *at[4];
  for (int i = 0; i < 3; i++) extents[i] = mask_extent(m, i);
  extents[3] = m->keys;
  kiln_stmt *s = kiln_lower_stmt(m->lw, "seen", KILN_BOOL, 3, 1, extents);
  kiln_stmt_vars(cx, s, 0, 4, at);
  s->body = is_seen(m, at, true);
  s->combiner = KILN_COMBINE_OR;
  return kiln_lower_tensor(m->lw, s);
}

// --- the products ---

static kiln_status check_shapes(const attention *m) {
  kiln_lower *lw = m->lw;
  const kiln_attention_call *a = m->a;
  const kiln_tensor *const all[] = {a->q, a->k, a->v};
  for (size_t i = 0; i < KILN_LEN(all); i++) {
    KILN_TRY(kiln_lower_want_rank(lw, all[i], 4, 4));
    KILN_TRY(kiln_lower_want_extent(lw, all[i], 0, m->batch));
  }
  KILN_TRY(kiln_lower_want_extent(lw, a->k, 3, a->q->shape[3]));
  KILN_TRY(kiln_lower_want_extent(lw, a->v, 1, a->k->shape[1]));
  KILN_TRY(kiln_lower_want_extent(lw, a->v, 2, m->keys));
  if (a->lengths) {
    KILN_TRY(kiln_lower_want_rank(lw, a->lengths, 1, 1));
    KILN_TRY(kiln_lower_want_extent(lw, a->lengths, 0, m->batch));
  }
  const kiln_expr *const full[] = {m->batch, m->heads, m->rows, m->keys};
  for (int i = 0; i < KILN_ATTENTION_BIASES; i++) {
    const kiln_tensor *bias = a->biases[i];
    if (!bias) continue;
    KILN_TRY(kiln_lower_want_rank(lw, bias, 1, 4));
    const bool is_short = ends_early(m, bias);
    for (int axis = 0; axis < bias->rank - is_short; axis++)
      if (!kiln_expr_is(bias->shape[axis], 1))
        KILN_TRY(kiln_lower_want_extent(lw, bias, axis, full[4 - bias->rank + axis]));
  }
  return KILN_OK;
}

// K or V (B, G, T, D) with G repeated to the H heads of the queries; |turned|: transposed to (B, H,
// D, T).
static kiln_status heads_of(const attention *m, kiln_tensor *x, bool turned, kiln_tensor **out) {
  static const int perm[] = {0, 1, 3, 2};
  kiln_lower *lw = m->lw;
  kiln_ctx *cx = lw->cx;
  int64_t heads = 0, own = 0;
  *out = turned ? kiln_lower_transpose(lw, x, perm) : x;
  if (x->shape[1] == m->heads) return KILN_OK;
  const kiln_expr *group = whole_quotient(cx, m->heads, x->shape[1]);
  if (!group) KILN_TRY(kiln_lower_extent(lw, m->a->q, 1, &heads));
  if (!group) KILN_TRY(kiln_lower_extent(lw, x, 1, &own));
  if (!group)
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, lw->place,
                     "%s: its number of heads must divide the queries' %" PRId64 ", got %" PRId64,
                     kiln_symbol_text(cx, x->name), heads, own);
  const kiln_expr *extents[4], *at[4];
  for (int i = 0; i < 4; i++) extents[i] = i == 1 ? m->heads : (*out)->shape[i];
  kiln_stmt *s = kiln_lower_stmt(lw, "heads", x->dtype, 4, 0, extents);
  kiln_stmt_vars(cx, s, 0, 4, at);
  at[1] = kiln_div(cx, at[1], group);
  s->body = kiln_tensor_load(cx, *out, at);
  *out = kiln_lower_tensor(lw, s);
  return KILN_OK;
}

// The factor of the products: 1 / sqrt(D), unless the operator gives one.
static const kiln_expr *scale_of(const attention *m) {
  kiln_ctx *cx = m->lw->cx;
  const kiln_expr *depth = m->a->q->shape[3], *one = kiln_float(cx, m->sum, 1);
  int64_t n = 0;
  if (m->a->scale != 0) return kiln_float(cx, m->sum, m->a->scale);
  if (kiln_expr_is_int(depth, &n)) return kiln_float(cx, m->sum, n > 0 ? 1 / sqrt((double)n) : 0);
  depth = kiln_cast(cx, m->sum, kiln_most(cx, depth, kiln_int(cx, 1)));
  return kiln_div(cx, one, kiln_unary(cx, KILN_EXPR_SQRT, depth));
}

// The score at |stage|, over the dims of |s|.
static const kiln_expr *score(const attention *m, const kiln_tensor *products,
                              kiln_attention_stage stage, const kiln_expr *const *at) {
  kiln_ctx *cx = m->lw->cx;
  const kiln_attention_call *a = m->a;
  const kiln_expr *e = kiln_mul(cx, kiln_tensor_load(cx, products, at), scale_of(m));
  if (stage == KILN_ATTENTION_SCALED) return e;
  if (a->softcap > 0) {
    const kiln_expr *cap = kiln_float(cx, m->sum, a->softcap);
    e = kiln_mul(cx, kiln_unary(cx, KILN_EXPR_TANH, kiln_div(cx, e, cap)), cap);
  }
  if (stage == KILN_ATTENTION_CAPPED) return e;
  for (int i = 0; i < KILN_ATTENTION_BIASES; i++)
    if (a->biases[i] && a->biases[i]->dtype != KILN_BOOL)
      e = kiln_add(cx, e, kiln_cast(cx, m->sum, bias_at(m, a->biases[i], at)));
  // The mask is added as 0 or -inf, as in models, rather than selected: the load stays
  // unconditional.
  const kiln_expr *seen = is_seen(m, at, false), *zero = kiln_float(cx, m->sum, 0);
  return seen ? kiln_add(cx, e, kiln_select(cx, seen, zero, kiln_float(cx, m->sum, -INFINITY))) : e;
}

static kiln_tensor *scores(const attention *m, const char *name, const kiln_tensor *products,
                           kiln_attention_stage stage, kiln_dtype t) {
  const kiln_expr *at[4];
  kiln_stmt *s = kiln_lower_like(m->lw, name, products, t, at);
  s->body = kiln_cast(m->lw->cx, t, score(m, products, stage, at));
  return kiln_lower_tensor(m->lw, s);
}

// |x| (B, H, S, T) with the sinks appended as key T.
static kiln_tensor *with_sink(const attention *m, const kiln_tensor *x) {
  kiln_ctx *cx = m->lw->cx;
  const kiln_expr *extents[] = {x->shape[0], x->shape[1], x->shape[2],
                                kiln_lower_tidy(cx, kiln_add(cx, m->keys, kiln_int(cx, 1)))};
  const kiln_expr *at[4];
  kiln_stmt *s = kiln_lower_stmt(m->lw, "sink", x->dtype, 4, 0, extents);
  kiln_stmt_vars(cx, s, 0, 4, at);
  const kiln_expr *sink = kiln_number(cx, x->dtype, 0);
  if (m->a->sink) sink = kiln_cast(cx, x->dtype, kiln_tensor_load(cx, m->a->sink, &at[1]));
  s->body = kiln_select(cx, kiln_compare(cx, KILN_EXPR_LT, at[3], m->keys),
                        kiln_tensor_load(cx, x, at), sink);
  return kiln_lower_tensor(m->lw, s);
}

static kiln_tensor *without_sink(const attention *m, const kiln_tensor *like,
                                 const kiln_tensor *x) {
  const kiln_expr *at[4];
  kiln_stmt *s = kiln_lower_like(m->lw, "weights", like, x->dtype, at);
  s->body = kiln_tensor_load(m->lw->cx, x, at);
  return kiln_lower_tensor(m->lw, s);
}

static kiln_status weights_of(const attention *m, kiln_tensor *x, kiln_tensor **out) {
  const kiln_attr last = kiln_attr_int(m->lw->cx, "axis", -1);
  kiln_tensor *z = m->a->has_sink ? with_sink(m, x) : x;
  const kiln_lower_callee softmax = {.domain = "",
                                     .op = "Softmax",
                                     .opset = 13,
                                     .n_inputs = 1,
                                     .inputs = &z,
                                     .n_attrs = 1,
                                     .attrs = &last};
  KILN_TRY(kiln_lower_call(m->lw, &softmax, 1, out));
  if (m->a->has_sink) *out = without_sink(m, x, *out);
  return KILN_OK;
}

kiln_status kiln_lower_attention(kiln_lower *lw, const kiln_attention_call *a, kiln_tensor **out,
                                 kiln_attention_stage stage, kiln_tensor **out_stage) {
  const kiln_dtype t = a->q->dtype;
  KILN_TRY(kiln_lower_want_rank(lw, a->q, 4, 4));
  KILN_TRY(kiln_lower_want_rank(lw, a->k, 4, 4));
  const attention m = {.lw = lw,
                       .a = a,
                       .batch = a->q->shape[0],
                       .heads = a->q->shape[1],
                       .rows = a->q->shape[2],
                       .keys = a->k->shape[2],
                       .sum = kiln_accumulator(t)};
  kiln_tensor *keys = NULL, *values = NULL, *products = NULL, *weights = NULL;
  KILN_TRY(check_shapes(&m));
  KILN_TRY(heads_of(&m, a->k, true, &keys));
  KILN_TRY(heads_of(&m, a->v, false, &values));
  KILN_TRY(kiln_lower_matmul(lw, a->q, keys, m.sum, &products));
  if (out_stage && stage != KILN_ATTENTION_WEIGHTS)
    *out_stage = scores(&m, "attention_scores", products, stage, t);
  kiln_tensor *masked = scores(&m, "scores", products, KILN_ATTENTION_MASKED, a->softmax);
  if (a->modify) KILN_TRY(a->modify(a->modifier, KILN_ATTENTION_MASKED, &masked));
  KILN_TRY(weights_of(&m, masked, &weights));
  if (a->modify) KILN_TRY(a->modify(a->modifier, KILN_ATTENTION_WEIGHTS, &weights));
  else KILN_TRY(kiln_lower_cast(lw, weights, t, &weights));
  const bool guarded = a->zero_rows && !always_sees(&m);
  const kiln_tensor *seen = guarded && has_bias(a) ? seen_rows(&m) : NULL;
  if (out_stage && stage == KILN_ATTENTION_WEIGHTS) {
    if (guarded) zero_blind_rows(&m, seen, &weights);
    *out_stage = weights;
  }
  KILN_TRY(kiln_lower_matmul(lw, weights, values, m.sum, out));
  if (guarded) zero_blind_rows(&m, seen, out);
  return kiln_lower_cast(lw, *out, t, out);
}

// --- rotary positions ---

static kiln_status check_rotary(kiln_lower *lw, const kiln_tensor *x, const kiln_rotary *r,
                                int64_t *out_dims) {
  int64_t depth = 0;
  KILN_TRY(kiln_lower_extent(lw, x, 3, &depth));
  *out_dims = r->dims ? r->dims : depth;
  if (*out_dims < 2 || *out_dims % 2 != 0 || *out_dims > depth)
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                     "rotated dims: must be even, at least 2 and at most the %" PRId64
                     " of a head, got %" PRId64,
                     depth, *out_dims);
  const kiln_tensor *const caches[] = {r->cosines, r->sines};
  const kiln_expr *half = kiln_int(lw->cx, *out_dims / 2);
  for (size_t i = 0; i < KILN_LEN(caches); i++) {
    const int rank = r->positions ? 2 : 3;
    KILN_TRY(kiln_lower_want_rank(lw, caches[i], rank, rank));
    KILN_TRY(kiln_lower_want_extent(lw, caches[i], rank - 1, half));
    if (r->positions) continue;
    if (!kiln_expr_is(caches[i]->shape[0], 1))
      KILN_TRY(kiln_lower_want_extent(lw, caches[i], 0, x->shape[0]));
    KILN_TRY(kiln_lower_want_extent(lw, caches[i], 1, x->shape[2]));
  }
  if (!r->positions) return KILN_OK;
  KILN_TRY(kiln_lower_want_rank(lw, r->positions, 2, 2));
  if (!kiln_expr_is(r->positions->shape[0], 1))
    KILN_TRY(kiln_lower_want_extent(lw, r->positions, 0, x->shape[0]));
  return kiln_lower_want_extent(lw, r->positions, 1, x->shape[2]);
}

// The element of a sine or cosine cache for row (b, s) and pair |pair|.
static kiln_status cached(kiln_lower *lw, const kiln_rotary *r, const kiln_tensor *cache,
                          const kiln_expr *const *row, const kiln_expr *pair, kiln_dtype t,
                          const kiln_expr **out) {
  kiln_ctx *cx = lw->cx;
  const kiln_tensor *places = r->positions ? r->positions : cache;
  const kiln_expr *at[] = {kiln_expr_is(places->shape[0], 1) ? kiln_int(cx, 0) : row[0], row[1],
                           pair};
  if (r->positions) {
    const kiln_expr *in_cache[] = {NULL, pair};
    KILN_TRY(kiln_lower_index(lw, r->positions, at, cache, 0, &in_cache[0]));
    *out = kiln_cast(cx, t, kiln_tensor_load(cx, cache, in_cache));
  } else {
    *out = kiln_cast(cx, t, kiln_tensor_load(cx, cache, at));
  }
  return KILN_OK;
}

static const kiln_expr *moved(kiln_ctx *cx, const kiln_tensor *x, const kiln_expr *const *at,
                              int64_t by, kiln_dtype t) {
  const kiln_expr *index[] = {at[0], at[1], at[2], kiln_add(cx, at[3], kiln_int(cx, by))};
  return kiln_cast(cx, t, kiln_tensor_load(cx, x, index));
}

kiln_status kiln_lower_rotary(kiln_lower *lw, kiln_tensor *x, const kiln_rotary *r,
                              kiln_tensor **out) {
  kiln_ctx *cx = lw->cx;
  const kiln_dtype t = kiln_accumulator(x->dtype);
  int64_t dims = 0, depth = 0;
  KILN_TRY(kiln_lower_want_rank(lw, x, 4, 4));
  KILN_TRY(check_rotary(lw, x, r, &dims));
  KILN_TRY(kiln_lower_extent(lw, x, 3, &depth));
  const int64_t apart = r->interleaved ? 1 : dims / 2;
  const kiln_expr *at[4], *cosine = NULL, *sine = NULL;
  kiln_stmt *s = kiln_lower_like(lw, "rotary", x, x->dtype, at);
  const kiln_expr *d = at[3], *two = kiln_int(cx, 2), *row[] = {at[0], at[2]};
  const kiln_expr *pair =
      r->interleaved ? kiln_div(cx, d, two) : kiln_mod(cx, d, kiln_int(cx, apart));
  if (dims < depth) pair = kiln_least(cx, pair, kiln_int(cx, dims / 2 - 1));
  KILN_TRY(cached(lw, r, r->cosines, row, pair, t, &cosine));
  KILN_TRY(cached(lw, r, r->sines, row, pair, t, &sine));
  const kiln_expr *is_first =
      r->interleaved ? kiln_compare(cx, KILN_EXPR_EQ, kiln_mod(cx, d, two), kiln_int(cx, 0))
                     : kiln_compare(cx, KILN_EXPR_LT, d, kiln_int(cx, apart));
  const kiln_expr *other =
      kiln_select(cx, is_first, kiln_unary(cx, KILN_EXPR_NEG, moved(cx, x, at, apart, t)),
                  moved(cx, x, at, -apart, t));
  const kiln_expr *own = moved(cx, x, at, 0, t);
  const kiln_expr *turned = kiln_add(cx, kiln_mul(cx, own, cosine), kiln_mul(cx, other, sine));
  if (dims < depth)
    turned = kiln_select(cx, kiln_compare(cx, KILN_EXPR_LT, d, kiln_int(cx, dims)), turned, own);
  s->body = kiln_cast(cx, x->dtype, turned);
  kiln_stmt_tidy(cx, s);
  *out = kiln_lower_tensor(lw, s);
  return KILN_OK;
}
