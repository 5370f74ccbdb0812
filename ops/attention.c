// Attention and RotaryEmbedding of the default domain. source: ONNX Attention-23, 24, 25;
// RotaryEmbedding-23
#include "fission/attention.h"

enum { Q, K, V, MASK, PAST_KEY, PAST_VALUE, LENGTHS };

static kiln_status want_float(kiln_lower *lw, int i) {
  return kiln_lower_want_dtype(lw, i, kiln_dtype_is_float, "a float");
}

// Q, K and V as (B, H, S, D), and the caches behind them.
static kiln_status read_operands(kiln_lower *lw, kiln_attention_call *a) {
  kiln_tensor **const to[] = {&a->q, &a->k, &a->v};
  int64_t heads[3];
  KILN_TRY(kiln_lower_int(lw, "q_num_heads", 0, &heads[Q]));
  KILN_TRY(kiln_lower_int(lw, "kv_num_heads", 0, &heads[K]));
  heads[V] = heads[K];
  for (int i = Q; i <= V; i++) {
    KILN_TRY(want_float(lw, i));
    KILN_TRY(kiln_lower_want_rank(lw, lw->inputs[i], lw->inputs[Q]->rank, lw->inputs[Q]->rank));
    KILN_TRY(kiln_lower_want_rank(lw, lw->inputs[i], 3, 4));
    *to[i] = lw->inputs[i];
    if (lw->inputs[i]->rank == 3)
      KILN_TRY(kiln_lower_split_heads(lw, lw->inputs[i], heads[i], to[i]));
  }
  return KILN_OK;
}

static kiln_status want_cache(kiln_lower *lw, const kiln_tensor *past, const kiln_tensor *x) {
  KILN_TRY(kiln_lower_want_rank(lw, past, 4, 4));
  for (int axis = 0; axis < 4; axis++)
    if (axis != 2) KILN_TRY(kiln_lower_want_extent(lw, past, axis, x->shape[axis]));
  return KILN_OK;
}

static kiln_status read_caches(kiln_lower *lw, kiln_attention_call *a) {
  kiln_ctx *cx = lw->cx;
  kiln_tensor *keys = kiln_lower_in(lw, PAST_KEY), *values = kiln_lower_in(lw, PAST_VALUE);
  a->lengths = kiln_lower_in(lw, LENGTHS);
  if (!keys != !values || (keys && a->lengths))
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, lw->place,
                     "past_key and past_value must come together and without nonpad_kv_seqlen");
  if (a->lengths) KILN_TRY(kiln_lower_want_dtype(lw, LENGTHS, kiln_dtype_is_index, "i32 or i64"));
  if (!a->lengths) a->past = keys && keys->rank == 4 ? keys->shape[2] : kiln_int(cx, 0);
  if (!keys) return KILN_OK;
  KILN_TRY(want_cache(lw, keys, a->k));
  KILN_TRY(want_cache(lw, values, a->v));
  KILN_TRY(kiln_lower_append(lw, keys, a->k, 2, &a->k));
  return kiln_lower_append(lw, values, a->v, 2, &a->v);
}

static kiln_status read_mask(kiln_lower *lw, kiln_attention_call *a) {
  const kiln_tensor *mask = kiln_lower_in(lw, MASK);
  if (mask && mask->dtype != KILN_BOOL && !kiln_dtype_is_float(mask->dtype))
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                     "input %d: must be bool or a float, got %s", MASK,
                     kiln_dtype_text(mask->dtype));
  a->biases[0] = kiln_lower_in(lw, MASK);
  return KILN_OK;
}

static kiln_status read_bounds(kiln_lower *lw, kiln_attention_call *a) {
  int64_t is_causal = 0;
  KILN_TRY(kiln_lower_int(lw, "is_causal", 0, &is_causal));
  KILN_TRY(kiln_lower_int(lw, "left_window_size", -1, &a->left));
  KILN_TRY(kiln_lower_int(lw, "right_window_size", -1, &a->right));
  if (a->left < -1 || a->right < -1)
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                     "window sizes: must be -1 or not negative, got %" PRId64 " and %" PRId64,
                     a->left, a->right);
  if (is_causal) a->right = 0;
  return KILN_OK;
}

static kiln_status lower_attention(kiln_lower *lw) {
  KILN_TRY(kiln_lower_want_inputs(lw, 3, 7));
  kiln_attention_call a = {.zero_rows = true};
  int64_t mode = 0;
  KILN_TRY(read_operands(lw, &a));
  KILN_TRY(read_caches(lw, &a));
  KILN_TRY(read_mask(lw, &a));
  KILN_TRY(read_bounds(lw, &a));
  KILN_TRY(kiln_lower_softmax_precision(lw, a.q, &a.softmax));
  KILN_TRY(kiln_lower_float(lw, "softcap", 0, &a.softcap));
  KILN_TRY(kiln_lower_float(lw, "scale", 0, &a.scale));
  KILN_TRY(kiln_lower_int(lw, "qk_matmul_output_mode", 0, &mode));
  if (mode < KILN_ATTENTION_SCALED || mode > KILN_ATTENTION_WEIGHTS)
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                     "qk_matmul_output_mode: must be in [0, 3], got %" PRId64, mode);
  if (kiln_lower_wants(lw, 1)) lw->outputs[1] = a.k;
  if (kiln_lower_wants(lw, 2)) lw->outputs[2] = a.v;
  kiln_tensor *y = NULL;
  KILN_TRY(kiln_lower_attention(lw, &a, &y, (kiln_attention_stage)mode,
                                kiln_lower_wants(lw, 3) ? &lw->outputs[3] : NULL));
  lw->outputs[0] = lw->inputs[Q]->rank == 3 ? kiln_lower_merge_heads(lw, y) : y;
  return KILN_OK;
}

static kiln_status lower_rotary_embedding(kiln_lower *lw) {
  KILN_TRY(kiln_lower_want_inputs(lw, 3, 4));
  KILN_TRY(want_float(lw, 0));
  kiln_tensor *x = lw->inputs[0];
  kiln_rotary r = {
      .cosines = lw->inputs[1], .sines = lw->inputs[2], .positions = kiln_lower_in(lw, 3)};
  int64_t heads = 0, interleaved = 0;
  KILN_TRY(kiln_lower_int(lw, "num_heads", 0, &heads));
  KILN_TRY(kiln_lower_int(lw, "interleaved", 0, &interleaved));
  KILN_TRY(kiln_lower_int(lw, "rotary_embedding_dim", 0, &r.dims));
  r.interleaved = interleaved != 0;
  if (r.positions) KILN_TRY(kiln_lower_want_dtype(lw, 3, kiln_dtype_is_index, "i32 or i64"));
  KILN_TRY(kiln_lower_want_rank(lw, x, 3, 4));
  if (x->rank == 3) KILN_TRY(kiln_lower_split_heads(lw, x, heads, &x));
  KILN_TRY(kiln_lower_rotary(lw, x, &r, &x));
  lw->outputs[0] = lw->inputs[0]->rank == 3 ? kiln_lower_merge_heads(lw, x) : x;
  return KILN_OK;
}

const kiln_op kiln_op_attention[] = {
    {"", "Attention", 23, 0, lower_attention, NULL, "ops/attention.c"},
    {"", "RotaryEmbedding", 23, 0, lower_rotary_embedding, NULL, "ops/attention.c"},
    {0},
};
