// Attention as ONNX Runtime's optimizers write it: projected and biased inputs, packed or not,
// caches, masks that are numbers. source: ONNX Runtime's Attention, QAttention, MultiHeadAttention,
// GroupQueryAttention, RotaryEmbedding
#include "fission/attention.h"

// Inputs and attributes of which Kiln computes the default alone.
static kiln_status want_none(kiln_lower *lw, int input, const char *name) {
  if (!kiln_lower_in(lw, input)) return KILN_OK;
  return KILN_FAIL(lw->cx->diag, KILN_UNSUPPORTED, lw->place, "%s: must be left out, got input %d",
                   name, input);
}

static kiln_status want_default(kiln_lower *lw, const char *attr, int64_t value) {
  int64_t have = 0;
  KILN_TRY(kiln_lower_int(lw, attr, value, &have));
  if (have == value) return KILN_OK;
  return KILN_FAIL(lw->cx->diag, KILN_UNSUPPORTED, lw->place,
                   "%s: must be %" PRId64 ", got %" PRId64, attr, value, have);
}

static kiln_status read_heads(kiln_lower *lw, const char *attr, int64_t *out) {
  KILN_TRY(kiln_lower_int(lw, attr, 0, out));
  if (*out > 0) return KILN_OK;
  return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place, "%s: must be positive, got %" PRId64,
                   attr, *out);
}

// --- heads of packed inputs ---

// What one of Q, K and V is of |from|: channels first, first + 1, ... of (B, S, C), or part |part|
// of (B, S, H, parts, D); with the bias of the channels from |bias_first| on.
typedef struct slice {
  const kiln_tensor *from, *bias; // bias: NULL: none
  int64_t first, part, bias_first, heads, depth;
} slice;

static kiln_status want_channels(kiln_lower *lw, const kiln_tensor *t, int axis, int64_t n) {
  int64_t have = 0;
  KILN_TRY(kiln_lower_extent(lw, t, axis, &have));
  if (have >= n) return KILN_OK;
  return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                   "%s: axis %d must have extent %" PRId64 ", got %" PRId64,
                   kiln_symbol_text(lw->cx, t->name), axis, n, have);
}

// As (B, H, S, D).
static kiln_status heads_of(kiln_lower *lw, const slice *p, kiln_tensor **out) {
  kiln_ctx *cx = lw->cx;
  const kiln_tensor *x = p->from;
  const int64_t width = p->heads * p->depth;
  if (x->rank == 3) KILN_TRY(want_channels(lw, x, 2, p->first + width));
  if (p->bias) {
    KILN_TRY(kiln_lower_want_rank(lw, p->bias, 1, 1));
    KILN_TRY(want_channels(lw, p->bias, 0, p->bias_first + width));
  }
  const kiln_expr *extents[] = {x->shape[0], kiln_int(cx, p->heads), x->shape[1],
                                kiln_int(cx, p->depth)};
  const kiln_expr *v[4];
  kiln_stmt *s = kiln_lower_stmt(lw, "heads", x->dtype, 4, 0, extents);
  kiln_stmt_vars(cx, s, 0, 4, v);
  const kiln_expr *channel = kiln_add(cx, kiln_mul(cx, v[1], extents[3]), v[3]);
  const kiln_expr *flat[] = {v[0], v[2], kiln_add(cx, channel, kiln_int(cx, p->first))};
  const kiln_expr *packed[] = {v[0], v[2], v[1], kiln_int(cx, p->part), v[3]};
  s->body = kiln_tensor_load(cx, x, x->rank == 3 ? flat : packed);
  if (p->bias) {
    const kiln_expr *at = kiln_add(cx, channel, kiln_int(cx, p->bias_first));
    s->body = kiln_add(cx, s->body, kiln_cast(cx, x->dtype, kiln_tensor_load(cx, p->bias, &at)));
  }
  *out = kiln_lower_tensor(lw, s);
  return KILN_OK;
}

// The channels of each head of (B, S, C).
static kiln_status depth_of(kiln_lower *lw, const kiln_tensor *x, int64_t heads, int64_t *out) {
  int64_t channels = 0;
  KILN_TRY(kiln_lower_want_rank(lw, x, 3, 3));
  KILN_TRY(kiln_lower_extent(lw, x, 2, &channels));
  *out = channels / heads;
  if (channels % heads == 0 && channels > 0) return KILN_OK;
  return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                   "%s: must have channels for %" PRId64 " heads, got %" PRId64,
                   kiln_symbol_text(lw->cx, x->name), heads, channels);
}

// --- masks that are numbers ---

// The bias of a mask of numbers: |filter| where it is not positive. It is (B, T) or (B, S, T), or
// tells of each element of the batch where its keys end (B), and where they begin (2 B).
static kiln_status mask_bias(kiln_lower *lw, const kiln_attention_call *a, const kiln_tensor *mask,
                             double filter, kiln_tensor **out) {
  kiln_ctx *cx = lw->cx;
  KILN_TRY(kiln_lower_want_rank(lw, mask, 1, 3));
  const kiln_expr *batch = a->q->shape[0], *keys = a->k->shape[2];
  const kiln_expr *extents[] = {batch, kiln_int(cx, 1),
                                mask->rank == 3 ? a->q->shape[2] : kiln_int(cx, 1), keys};
  const kiln_expr *v[4];
  kiln_stmt *s = kiln_lower_stmt(lw, "mask", kiln_accumulator(a->q->dtype), 4, 0, extents);
  kiln_stmt_vars(cx, s, 0, 4, v);
  const kiln_expr *hidden = NULL;
  if (mask->rank == 1) {
    const kiln_expr *end = kiln_cast(cx, KILN_I64, kiln_tensor_load(cx, mask, v));
    hidden = kiln_compare(cx, KILN_EXPR_GE, v[3], end);
    if (mask->shape[0] == kiln_lower_tidy(cx, kiln_mul(cx, batch, kiln_int(cx, 2)))) {
      const kiln_expr *at = kiln_add(cx, v[0], batch);
      const kiln_expr *first = kiln_cast(cx, KILN_I64, kiln_tensor_load(cx, mask, &at));
      hidden = kiln_binary(cx, KILN_EXPR_OR, hidden, kiln_compare(cx, KILN_EXPR_LT, v[3], first));
    } else {
      KILN_TRY(kiln_lower_want_extent(lw, mask, 0, batch));
    }
  } else {
    KILN_TRY(kiln_lower_want_extent(lw, mask, 0, batch));
    KILN_TRY(kiln_lower_want_extent(lw, mask, mask->rank - 1, keys));
    if (mask->rank == 3) KILN_TRY(kiln_lower_want_extent(lw, mask, 1, extents[2]));
    const kiln_expr *at[] = {v[0], mask->rank == 3 ? v[2] : v[3], v[3]};
    hidden = kiln_compare(cx, KILN_EXPR_LE, kiln_tensor_load(cx, mask, at),
                          kiln_number(cx, mask->dtype, 0));
  }
  const kiln_dtype t = kiln_accumulator(a->q->dtype);
  s->body = kiln_select(cx, hidden, kiln_number(cx, t, filter), kiln_number(cx, t, 0));
  *out = kiln_lower_tensor(lw, s);
  return KILN_OK;
}

// The scale, the mask of input |mask|, the bias of input |bias|, and which keys a row may see: if
// those up to its own, there must be a key for each row, or the runtimes differ.
static kiln_status read_masks(kiln_lower *lw, kiln_attention_call *a, int mask, int bias) {
  int64_t is_causal = 0;
  double filter = -10000;
  KILN_TRY(kiln_lower_int(lw, "unidirectional", 0, &is_causal));
  KILN_TRY(kiln_lower_float(lw, "mask_filter_value", filter, &filter));
  KILN_TRY(kiln_lower_float(lw, "scale", 0, &a->scale));
  a->left = -1;
  a->right = is_causal ? 0 : -1;
  a->softmax = kiln_accumulator(a->q->dtype);
  if (is_causal)
    KILN_TRY(kiln_lower_want_extent(
        lw, a->k, 2, kiln_lower_tidy(lw->cx, kiln_add(lw->cx, a->past, a->q->shape[2]))));
  a->biases[1] = kiln_lower_in(lw, bias);
  if (a->biases[1]) KILN_TRY(kiln_lower_want_dtype(lw, bias, kiln_dtype_is_float, "a float"));
  if (!kiln_lower_in(lw, mask)) return KILN_OK;
  KILN_TRY(kiln_lower_want_dtype(lw, mask, kiln_dtype_is_index, "i32 or i64"));
  return mask_bias(lw, a, lw->inputs[mask], filter, &a->biases[0]);
}

static kiln_status attend(kiln_lower *lw, const kiln_attention_call *a) {
  kiln_tensor *y = NULL;
  KILN_TRY(kiln_lower_attention(lw, a, &y, KILN_ATTENTION_WEIGHTS, NULL));
  lw->outputs[0] = kiln_lower_merge_heads(lw, y);
  return KILN_OK;
}

// --- Attention and QAttention ---

// Element |which| of (2, B, H, P, D).
static kiln_tensor *half_of(kiln_lower *lw, const kiln_tensor *both, int which) {
  kiln_ctx *cx = lw->cx;
  const kiln_expr *at[5] = {kiln_int(cx, which)};
  kiln_stmt *s =
      kiln_lower_stmt(lw, "past", both->dtype, 4, 0, (const kiln_expr *const *)both->shape + 1);
  kiln_stmt_vars(cx, s, 0, 4, at + 1);
  s->body = kiln_tensor_load(cx, both, at);
  return kiln_lower_tensor(lw, s);
}

static kiln_tensor *stacked(kiln_lower *lw, const kiln_tensor *k, const kiln_tensor *v) {
  kiln_ctx *cx = lw->cx;
  const kiln_expr *extents[5] = {kiln_int(cx, 2)}, *at[5];
  for (int i = 0; i < 4; i++) extents[1 + i] = k->shape[i];
  kiln_stmt *s = kiln_lower_stmt(lw, "present", k->dtype, 5, 0, extents);
  kiln_stmt_vars(cx, s, 0, 5, at);
  s->body = kiln_select(cx, kiln_compare(cx, KILN_EXPR_EQ, at[0], kiln_int(cx, 0)),
                        kiln_tensor_load(cx, k, at + 1), kiln_tensor_load(cx, v, at + 1));
  return kiln_lower_tensor(lw, s);
}

// The channels of Q, K and V in the product of the input with all weights.
static kiln_status read_widths(kiln_lower *lw, const kiln_tensor *product, int64_t heads,
                               int64_t out[3]) {
  int n = 0;
  const int64_t *given = NULL;
  int64_t all = 0;
  KILN_TRY(kiln_lower_ints(lw, "qkv_hidden_sizes", &n, &given));
  KILN_TRY(kiln_lower_extent(lw, product, 2, &all));
  int64_t sum = 0;
  bool fits = n < 0 || n == 3;
  for (int i = 0; i < 3 && fits; i++) {
    out[i] = n < 0 ? all / 3 : given[i];
    fits = out[i] > 0 && out[i] <= all && out[i] % heads == 0;
    sum += out[i];
  }
  if (fits && sum == all && out[0] == out[1]) return KILN_OK;
  return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                   "weights: must have channels of Q, K and V for %" PRId64 " heads, got %" PRId64
                   " in all",
                   heads, all);
}

// Input times weights, with the bias.
static kiln_status project(kiln_lower *lw, kiln_tensor **out) {
  kiln_tensor *x = lw->inputs[0], *w = lw->inputs[1], *bias = kiln_lower_in(lw, 2), *y = NULL;
  KILN_TRY(kiln_lower_want_rank(lw, x, 3, 3));
  KILN_TRY(kiln_lower_want_rank(lw, w, 2, 2));
  KILN_TRY(kiln_lower_matmul(lw, x, w, kiln_accumulator(x->dtype), &y));
  if (bias) {
    const kiln_expr *at[3];
    KILN_TRY(kiln_lower_want_rank(lw, bias, 1, 1));
    KILN_TRY(kiln_lower_want_extent(lw, bias, 0, y->shape[2]));
    kiln_stmt *s = kiln_lower_like(lw, "projection", y, y->dtype, at);
    const kiln_expr *addend = kiln_cast(lw->cx, y->dtype, kiln_tensor_load(lw->cx, bias, &at[2]));
    s->body = kiln_add(lw->cx, kiln_tensor_load(lw->cx, y, at), addend);
    y = kiln_lower_tensor(lw, s);
  }
  return kiln_lower_cast(lw, y, x->dtype, out);
}

// Attention of |all|, which Q, K and V are the channels of; the last three are inputs.
static kiln_status attend_projected(kiln_lower *lw, const kiln_tensor *all, int mask, int bias,
                                    int past_input) {
  int64_t heads = 0, widths[3];
  kiln_attention_call a = {.past = kiln_int(lw->cx, 0)};
  KILN_TRY(want_default(lw, "past_present_share_buffer", 0));
  KILN_TRY(want_default(lw, "do_rotary", 0));
  KILN_TRY(read_heads(lw, "num_heads", &heads));
  KILN_TRY(read_widths(lw, all, heads, widths));
  kiln_tensor **const to[] = {&a.q, &a.k, &a.v};
  slice part = {.from = all, .heads = heads};
  for (int i = 0; i < 3; i++) {
    part.depth = widths[i] / heads;
    KILN_TRY(heads_of(lw, &part, to[i]));
    part.first += widths[i];
  }
  const kiln_tensor *past = kiln_lower_in(lw, past_input);
  if (past) {
    KILN_TRY(kiln_lower_want_rank(lw, past, 5, 5));
    for (int axis = 1; axis < 5; axis++)
      if (axis != 3) KILN_TRY(kiln_lower_want_extent(lw, past, axis, a.k->shape[axis - 1]));
    a.past = past->shape[3];
    KILN_TRY(kiln_lower_append(lw, half_of(lw, past, 0), a.k, 2, &a.k));
    KILN_TRY(kiln_lower_append(lw, half_of(lw, past, 1), a.v, 2, &a.v));
  }
  if (kiln_lower_wants(lw, 1)) {
    KILN_TRY(kiln_lower_want_extent(lw, a.v, 3, a.k->shape[3]));
    lw->outputs[1] = stacked(lw, a.k, a.v);
  }
  KILN_TRY(read_masks(lw, &a, mask, bias));
  return attend(lw, &a);
}

static kiln_status lower_attention(kiln_lower *lw) {
  enum { MASK = 3, PAST, BIAS, PAST_LENGTH };
  kiln_tensor *all = NULL;
  KILN_TRY(kiln_lower_want_inputs(lw, 2, 7));
  KILN_TRY(kiln_lower_want_dtype(lw, 0, kiln_dtype_is_float, "a float"));
  KILN_TRY(want_none(lw, PAST_LENGTH, "past_sequence_length"));
  KILN_TRY(project(lw, &all));
  return attend_projected(lw, all, MASK, BIAS, PAST);
}

// The product is of bytes.
static kiln_status lower_quantised_attention(kiln_lower *lw) {
  enum { X, W, BIAS, X_SCALE, W_SCALE, MASK, X_ZERO, W_ZERO, PAST, NONE };
  kiln_tensor *all = NULL;
  KILN_TRY(kiln_lower_want_inputs(lw, 5, 9));
  KILN_TRY(kiln_lower_want_rank(lw, lw->inputs[X], 3, 3));
  kiln_tensor *const inputs[] = {lw->inputs[X],
                                 lw->inputs[W],
                                 lw->inputs[X_SCALE],
                                 lw->inputs[W_SCALE],
                                 kiln_lower_in(lw, X_ZERO),
                                 kiln_lower_in(lw, W_ZERO),
                                 lw->inputs[BIAS]};
  const kiln_lower_callee product = {.domain = "com.microsoft",
                                     .op = "MatMulIntegerToFloat",
                                     .opset = 1,
                                     .n_inputs = (int)KILN_LEN(inputs),
                                     .inputs = inputs};
  KILN_TRY(kiln_lower_call(lw, &product, 1, &all));
  return attend_projected(lw, all, MASK, NONE, PAST);
}

// --- MultiHeadAttention ---

enum { QUERY, KEY, VALUE, PROJECTION_BIAS, PADDING, SCORE_BIAS, OLD_KEYS, OLD_VALUES };

// Q, K and V with their parts of the bias: each of its own, K and V packed, or all three; or K and
// V as a cache has them, which get no bias.
static kiln_status read_operands(kiln_lower *lw, int64_t heads, kiln_attention_call *a) {
  const kiln_tensor *query = lw->inputs[QUERY], *key = kiln_lower_in(lw, KEY),
                    *value = kiln_lower_in(lw, VALUE);
  slice q = {.from = query, .bias = kiln_lower_in(lw, PROJECTION_BIAS), .heads = heads};
  const bool packed = query->rank == 5, packed_kv = key && key->rank == 5;
  if (packed ? (key || value) : (!key || packed_kv != !value))
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                     "query, key and value: must be three, packed as one, or packed as two");
  if (packed) {
    KILN_TRY(kiln_lower_want_extent(lw, query, 2, kiln_int(lw->cx, heads)));
    KILN_TRY(kiln_lower_want_extent(lw, query, 3, kiln_int(lw->cx, 3)));
    KILN_TRY(kiln_lower_extent(lw, query, 4, &q.depth));
  } else {
    KILN_TRY(depth_of(lw, query, heads, &q.depth));
  }
  KILN_TRY(heads_of(lw, &q, &a->q));
  slice k = q, v = q;
  k.from = packed ? query : key;
  k.bias_first = heads * q.depth;
  v.from = packed ? query : packed_kv ? key : value;
  v.bias_first = 2 * k.bias_first;
  k.part = packed ? 1 : 0;
  v.part = k.part + 1;
  if (key && key->rank == 4) {
    KILN_TRY(kiln_lower_want_rank(lw, value, 4, 4));
    a->k = lw->inputs[KEY];
    a->v = lw->inputs[VALUE];
    return KILN_OK;
  }
  if (packed_kv) {
    KILN_TRY(kiln_lower_want_extent(lw, key, 2, kiln_int(lw->cx, heads)));
    KILN_TRY(kiln_lower_want_extent(lw, key, 3, kiln_int(lw->cx, 2)));
    KILN_TRY(kiln_lower_want_extent(lw, key, 4, kiln_int(lw->cx, q.depth)));
  } else if (!packed) {
    KILN_TRY(depth_of(lw, key, heads, &k.depth));
    KILN_TRY(depth_of(lw, value, heads, &v.depth));
  }
  KILN_TRY(heads_of(lw, &k, &a->k));
  return heads_of(lw, &v, &a->v);
}

// The cache of input |input| in front of |x|.
static kiln_status append_past(kiln_lower *lw, int input, kiln_tensor **x) {
  kiln_tensor *past = kiln_lower_in(lw, input);
  if (!past) return KILN_OK;
  KILN_TRY(kiln_lower_want_rank(lw, past, 4, 4));
  for (int axis = 0; axis < 4; axis++)
    if (axis != 2) KILN_TRY(kiln_lower_want_extent(lw, past, axis, (*x)->shape[axis]));
  return kiln_lower_append(lw, past, *x, 2, x);
}

static kiln_status lower_multi_head_attention(kiln_lower *lw) {
  KILN_TRY(kiln_lower_want_inputs(lw, 1, 10));
  KILN_TRY(kiln_lower_want_dtype(lw, QUERY, kiln_dtype_is_float, "a float"));
  KILN_TRY(want_none(lw, 8, "past_sequence_length"));
  KILN_TRY(want_none(lw, 9, "cache_indirection"));
  int64_t heads = 0;
  const kiln_tensor *past = kiln_lower_in(lw, OLD_KEYS);
  kiln_attention_call a = {.past = past && past->rank == 4 ? past->shape[2] : kiln_int(lw->cx, 0)};
  KILN_TRY(read_heads(lw, "num_heads", &heads));
  KILN_TRY(read_operands(lw, heads, &a));
  KILN_TRY(append_past(lw, OLD_KEYS, &a.k));
  KILN_TRY(append_past(lw, OLD_VALUES, &a.v));
  if (kiln_lower_wants(lw, 1)) lw->outputs[1] = a.k;
  if (kiln_lower_wants(lw, 2)) lw->outputs[2] = a.v;
  KILN_TRY(read_masks(lw, &a, PADDING, SCORE_BIAS));
  return attend(lw, &a);
}

// --- GroupQueryAttention ---

enum {
  PAST_KEY = 3,
  PAST_VALUE,
  LENGTHS,
  TOTAL,
  COSINES,
  SINES,
  POSITIONS,
  GROUP_BIAS,
  SINK,
  KEY_SCALE,
  VALUE_SCALE,
  QUERY_NORM,
  KEY_NORM,
  QUERY_LENGTHS
};

// How long the new cache is: the greater of the old one and all tokens.
static kiln_status cache_length(kiln_lower *lw, const kiln_expr *rows, const kiln_expr **out) {
  kiln_ctx *cx = lw->cx;
  const kiln_tensor *past = kiln_lower_in(lw, PAST_KEY), *total = kiln_lower_in(lw, TOTAL);
  const kiln_expr *old = past ? past->shape[2] : kiln_int(cx, 0);
  *out = kiln_lower_tidy(cx, kiln_add(cx, old, rows));
  if (total->role == KILN_CONST || kiln_lower_values(lw, total)) {
    const kiln_expr *all = NULL;
    KILN_TRY(kiln_lower_scalar(lw, total, KILN_I64, "total_sequence_length", &all));
    *out = kiln_lower_tidy(cx, kiln_most(cx, old, all));
  } else if (kiln_lower_wants(lw, 1)) {
    const kiln_value *declared = lw->graph->values[lw->node->outputs[1]];
    if (declared->has_shape && declared->rank == 4 && kiln_expr_is_int(declared->shape[2], NULL))
      *out = declared->shape[2];
  }
  return KILN_OK;
}

// The old cache, then the rows of |x|, for each element of the batch where its own old rows end;
// then 0.
static kiln_status update_cache(kiln_lower *lw, int input, const kiln_tensor *lengths,
                                const kiln_expr *length, kiln_tensor **x) {
  kiln_ctx *cx = lw->cx;
  const kiln_tensor *past = kiln_lower_in(lw, input);
  const kiln_expr *rows = (*x)->shape[2], *at[4];
  const kiln_expr *extents[] = {(*x)->shape[0], (*x)->shape[1], length, (*x)->shape[3]};
  if (past) {
    KILN_TRY(kiln_lower_want_rank(lw, past, 4, 4));
    for (int axis = 0; axis < 4; axis++)
      if (axis != 2) KILN_TRY(kiln_lower_want_extent(lw, past, axis, extents[axis]));
  }
  kiln_stmt *s = kiln_lower_stmt(lw, "present", (*x)->dtype, 4, 0, extents);
  kiln_stmt_vars(cx, s, 0, 4, at);
  const kiln_expr *place = at[2], *zero = kiln_int(cx, 0);
  const kiln_expr *end = kiln_tensor_load(cx, lengths, at), *first = kiln_sub(cx, end, rows);
  const kiln_expr *old = kiln_number(cx, (*x)->dtype, 0);
  if (past && !kiln_expr_is(past->shape[2], 0)) {
    const kiln_expr *known = kiln_least(cx, past->shape[2], first);
    old = kiln_select(cx, kiln_compare(cx, KILN_EXPR_LT, place, known),
                      kiln_tensor_load(cx, past, at), old);
  }
  const kiln_expr *is_new = kiln_both(cx, kiln_compare(cx, KILN_EXPR_GE, place, first),
                                      kiln_compare(cx, KILN_EXPR_LT, place, end));
  const kiln_expr *last = kiln_sub(cx, rows, kiln_int(cx, 1));
  at[2] = kiln_most(cx, zero, kiln_least(cx, kiln_sub(cx, place, first), last));
  s->body = kiln_select(cx, is_new, kiln_tensor_load(cx, *x, at), old);
  *x = kiln_lower_tensor(lw, s);
  return KILN_OK;
}

// How many keys each element of the batch has, the new ones with it: at least S, of which the last
// may be padding.
static kiln_status key_counts(kiln_lower *lw, const kiln_expr *batch, const kiln_expr *rows,
                              const kiln_tensor **out) {
  kiln_ctx *cx = lw->cx;
  kiln_tensor *given = lw->inputs[LENGTHS];
  KILN_TRY(kiln_lower_want_dtype(lw, LENGTHS, kiln_dtype_is_index, "i32 or i64"));
  if (given->rank == 2) given = kiln_lower_reshape(lw, given, 1, &batch); // (B, 1)
  KILN_TRY(kiln_lower_want_rank(lw, given, 1, 1));
  KILN_TRY(kiln_lower_want_extent(lw, given, 0, batch));
  const kiln_expr *at[1];
  kiln_stmt *s = kiln_lower_stmt(lw, "lengths", KILN_I64, 1, 0, &batch);
  kiln_stmt_vars(cx, s, 0, 1, at);
  const kiln_expr *count = kiln_cast(cx, KILN_I64, kiln_tensor_load(cx, given, at));
  s->body = kiln_most(cx, rows, kiln_add(cx, count, kiln_int(cx, 1)));
  *out = kiln_lower_tensor(lw, s);
  return KILN_OK;
}

// Where the new rows stand: as the node says, or behind the old ones.
static kiln_status row_positions(kiln_lower *lw, const kiln_tensor *lengths, const kiln_expr *rows,
                                 const kiln_tensor **out) {
  kiln_ctx *cx = lw->cx;
  *out = kiln_lower_in(lw, POSITIONS);
  if (*out) return kiln_lower_want_dtype(lw, POSITIONS, kiln_dtype_is_index, "i32 or i64");
  const kiln_expr *extents[] = {lengths->shape[0], rows}, *at[2];
  kiln_stmt *s = kiln_lower_stmt(lw, "positions", KILN_I64, 2, 0, extents);
  kiln_stmt_vars(cx, s, 0, 2, at);
  s->body = kiln_add(cx, kiln_sub(cx, kiln_tensor_load(cx, lengths, at), rows), at[1]);
  *out = kiln_lower_tensor(lw, s);
  return KILN_OK;
}

static kiln_status rotate(kiln_lower *lw, kiln_attention_call *a) {
  int64_t is_rotary = 0, interleaved = 0, half = 0;
  KILN_TRY(kiln_lower_int(lw, "do_rotary", 0, &is_rotary));
  KILN_TRY(kiln_lower_int(lw, "rotary_interleaved", 0, &interleaved));
  if (!is_rotary) return KILN_OK;
  kiln_rotary r = {.cosines = kiln_lower_in(lw, COSINES),
                   .sines = kiln_lower_in(lw, SINES),
                   .interleaved = interleaved != 0};
  if (!r.cosines || !r.sines)
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                     "do_rotary: must come with cos_cache and sin_cache");
  KILN_TRY(kiln_lower_want_rank(lw, r.cosines, 2, 2));
  KILN_TRY(kiln_lower_extent(lw, r.cosines, 1, &half));
  r.dims = 2 * half;
  KILN_TRY(row_positions(lw, a->lengths, a->q->shape[2], &r.positions));
  KILN_TRY(kiln_lower_rotary(lw, a->q, &r, &a->q));
  return kiln_lower_rotary(lw, a->k, &r, &a->k);
}

// Each head divided by the root of its mean square.
static kiln_status normalize(kiln_lower *lw, int input, const char *attr, kiln_tensor **x) {
  if (!kiln_lower_in(lw, input)) return KILN_OK;
  double epsilon = 1e-6;
  KILN_TRY(kiln_lower_float(lw, "qk_norm_epsilon", epsilon, &epsilon));
  KILN_TRY(kiln_lower_float(lw, attr, epsilon, &epsilon));
  const kiln_attr attrs[] = {kiln_attr_float(lw->cx, "epsilon", epsilon)};
  kiln_tensor *const both[] = {*x, lw->inputs[input]};
  const kiln_lower_callee norm = {.domain = "",
                                  .op = "RMSNormalization",
                                  .opset = 23,
                                  .n_inputs = 2,
                                  .inputs = both,
                                  .n_attrs = 1,
                                  .attrs = attrs};
  return kiln_lower_call(lw, &norm, 1, x);
}

static kiln_status read_groups(kiln_lower *lw, kiln_attention_call *a) {
  int64_t heads = 0, groups = 0;
  KILN_TRY(read_heads(lw, "num_heads", &heads));
  KILN_TRY(read_heads(lw, "kv_num_heads", &groups));
  const kiln_tensor *key = kiln_lower_in(lw, KEY), *value = kiln_lower_in(lw, VALUE);
  if (!key != !value)
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                     "key and value: must come together, or be packed with query");
  slice q = {.from = lw->inputs[QUERY], .heads = heads};
  KILN_TRY(depth_of(lw, q.from, key ? heads : heads + 2 * groups, &q.depth));
  slice k = {.from = key ? key : q.from, .heads = groups, .depth = q.depth}, v = k;
  if (key) {
    KILN_TRY(depth_of(lw, key, groups, &k.depth));
    KILN_TRY(depth_of(lw, value, groups, &v.depth));
    v.from = value;
  } else {
    k.first = heads * q.depth;
    v.first = (heads + groups) * q.depth;
  }
  KILN_TRY(heads_of(lw, &q, &a->q));
  KILN_TRY(heads_of(lw, &k, &a->k));
  return heads_of(lw, &v, &a->v);
}

static kiln_status read_sight(kiln_lower *lw, kiln_attention_call *a) {
  int64_t is_causal = 1, window = -1, is_smooth = 0;
  KILN_TRY(kiln_lower_int(lw, "causal", 1, &is_causal));
  KILN_TRY(kiln_lower_int(lw, "local_window_size", -1, &window));
  KILN_TRY(kiln_lower_int(lw, "smooth_softmax", 0, &is_smooth));
  KILN_TRY(kiln_lower_float(lw, "softcap", 0, &a->softcap));
  KILN_TRY(kiln_lower_float(lw, "scale", 0, &a->scale));
  a->right = is_causal ? 0 : -1;
  a->left = window > 0 ? window - 1 : -1;
  a->softmax = kiln_accumulator(a->q->dtype);
  a->sink = kiln_lower_in(lw, SINK);
  a->has_sink = is_smooth || a->sink;
  if (a->sink) {
    KILN_TRY(kiln_lower_want_rank(lw, a->sink, 1, 1));
    KILN_TRY(kiln_lower_want_extent(lw, a->sink, 0, a->q->shape[1]));
  }
  a->biases[0] = kiln_lower_in(lw, GROUP_BIAS);
  return a->biases[0] ? kiln_lower_want_dtype(lw, GROUP_BIAS, kiln_dtype_is_float, "a float")
                      : KILN_OK;
}

static kiln_status lower_group_query_attention(kiln_lower *lw) {
  KILN_TRY(kiln_lower_want_inputs(lw, 1, 17));
  KILN_TRY(kiln_lower_want_dtype(lw, QUERY, kiln_dtype_is_float, "a float"));
  if (!kiln_lower_in(lw, LENGTHS) || !kiln_lower_in(lw, TOTAL))
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                     "seqlens_k and total_sequence_length: must be given");
  KILN_TRY(want_none(lw, KEY_SCALE, "k_scale"));
  KILN_TRY(want_none(lw, VALUE_SCALE, "v_scale"));
  KILN_TRY(want_none(lw, QUERY_LENGTHS, "query_seqlens"));
  KILN_TRY(want_default(lw, "sliding_window_cache", 0));
  KILN_TRY(want_default(lw, "kv_cache_bit_width", 0));
  kiln_attention_call a = {0};
  const kiln_expr *length = NULL;
  KILN_TRY(read_groups(lw, &a));
  KILN_TRY(key_counts(lw, a.q->shape[0], a.q->shape[2], &a.lengths));
  KILN_TRY(normalize(lw, QUERY_NORM, "q_norm_epsilon", &a.q));
  KILN_TRY(normalize(lw, KEY_NORM, "k_norm_epsilon", &a.k));
  KILN_TRY(rotate(lw, &a));
  KILN_TRY(cache_length(lw, a.q->shape[2], &length));
  KILN_TRY(
      kiln_lower_want_index(lw, lw->inputs[LENGTHS], 2, NULL, NULL, kiln_int(lw->cx, 0), length));
  KILN_TRY(update_cache(lw, PAST_KEY, a.lengths, length, &a.k));
  KILN_TRY(update_cache(lw, PAST_VALUE, a.lengths, length, &a.v));
  if (kiln_lower_wants(lw, 1)) lw->outputs[1] = a.k;
  if (kiln_lower_wants(lw, 2)) lw->outputs[2] = a.v;
  KILN_TRY(read_sight(lw, &a));
  return attend(lw, &a);
}

// --- RotaryEmbedding ---

// Positions of one number count from there.
static kiln_tensor *counted(kiln_lower *lw, const kiln_tensor *first, const kiln_expr *rows) {
  kiln_ctx *cx = lw->cx;
  const kiln_expr *extents[] = {kiln_int(cx, 1), rows}, *at[2], *zero = kiln_int(cx, 0);
  kiln_stmt *s = kiln_lower_stmt(lw, "positions", KILN_I64, 2, 0, extents);
  kiln_stmt_vars(cx, s, 0, 2, at);
  s->body = kiln_add(cx, kiln_cast(cx, KILN_I64, kiln_tensor_load(cx, first, &zero)), at[1]);
  return kiln_lower_tensor(lw, s);
}

static kiln_status lower_rotary_embedding(kiln_lower *lw) {
  KILN_TRY(kiln_lower_want_inputs(lw, 4, 4));
  KILN_TRY(kiln_lower_want_dtype(lw, 0, kiln_dtype_is_float, "a float"));
  KILN_TRY(kiln_lower_want_dtype(lw, 1, kiln_dtype_is_index, "i32 or i64"));
  kiln_tensor *x = lw->inputs[0], *positions = lw->inputs[1];
  kiln_rotary r = {.cosines = lw->inputs[2], .sines = lw->inputs[3]};
  int64_t heads = 0, interleaved = 0, half = 0, channels = 0;
  KILN_TRY(kiln_lower_int(lw, "num_heads", 0, &heads));
  KILN_TRY(kiln_lower_int(lw, "interleaved", 0, &interleaved));
  KILN_TRY(kiln_lower_want_rank(lw, x, 3, 4));
  KILN_TRY(kiln_lower_want_rank(lw, r.cosines, 2, 2));
  KILN_TRY(kiln_lower_extent(lw, r.cosines, 1, &half));
  KILN_TRY(kiln_lower_extent(lw, x, x->rank - 1, &channels));
  r.dims = 2 * half;
  r.interleaved = interleaved != 0;
  if (heads == 0 && half > 0) heads = channels / (2 * half);
  if (x->rank == 3) KILN_TRY(kiln_lower_split_heads(lw, x, heads, &x));
  const bool counts = positions->rank == 1 && kiln_expr_is(positions->shape[0], 1);
  r.positions = counts ? counted(lw, positions, x->shape[2]) : positions;
  KILN_TRY(kiln_lower_rotary(lw, x, &r, &x));
  lw->outputs[0] = lw->inputs[0]->rank == 3 ? kiln_lower_merge_heads(lw, x) : x;
  return KILN_OK;
}

const kiln_op kiln_op_multi_head_attention[] = {
    {"com.microsoft", "Attention", 1, 0, lower_attention, NULL, "ops/multi_head_attention.c"},
    {"com.microsoft", "QAttention", 1, 0, lower_quantised_attention, NULL,
     "ops/multi_head_attention.c"},
    {"com.microsoft", "MultiHeadAttention", 1, 0, lower_multi_head_attention, NULL,
     "ops/multi_head_attention.c"},
    {"com.microsoft", "GroupQueryAttention", 1, 0, lower_group_query_attention, NULL,
     "ops/multi_head_attention.c"},
    {"com.microsoft", "RotaryEmbedding", 1, 0, lower_rotary_embedding, NULL,
     "ops/multi_head_attention.c"},
    {0},
};
