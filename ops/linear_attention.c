// LinearAttention, unrolled over the tokens, of a named extent the most: each updates a state
// (B, G, D, E), which heads of queries read in groups. source: ONNX LinearAttention-27
#include "fission/attention.h"

#include <math.h>
#include <string.h>

enum { QUERY, KEY, VALUE, STATE, DECAY, BETA, MAX_TOKENS = 4096 };

typedef struct linear {
  kiln_lower *lw;
  const kiln_tensor *q, *k, *v;  // (B, T, heads * channels)
  const kiln_tensor *decay;      // (B, T, G) or (B, T, G * D), of which exp is taken; NULL: none
  const kiln_tensor *beta;       // (B, T, G or 1); NULL: the state is not corrected
  int64_t heads, groups;         // H, G
  int64_t tokens, depth, values; // T, or its greatest value; D, E
  double scale;
  kiln_dtype sum;
} linear;

static kiln_status read_rule(linear *m) {
  kiln_lower *lw = m->lw;
  const char *rule = NULL;
  KILN_TRY(kiln_lower_string(lw, "update_rule", "gated_delta", &rule));
  const bool gated = !strcmp(rule, "gated") || !strcmp(rule, "gated_delta"),
             delta = !strcmp(rule, "delta") || !strcmp(rule, "gated_delta");
  m->decay = kiln_lower_in(lw, DECAY);
  m->beta = kiln_lower_in(lw, BETA);
  if (!gated && !delta && strcmp(rule, "linear") != 0)
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                     "update_rule: must be linear, gated, delta or gated_delta, got %s", rule);
  if (gated == (m->decay != NULL) && delta == (m->beta != NULL)) return KILN_OK;
  return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                   "update_rule %s: must have %s decay and %s beta", rule, gated ? "a" : "no",
                   delta ? "a" : "no");
}

static kiln_status read_heads(linear *m) {
  kiln_lower *lw = m->lw;
  int64_t q = 0, k = 0, v = 0;
  KILN_TRY(kiln_lower_int(lw, "q_num_heads", 0, &m->heads));
  KILN_TRY(kiln_lower_int(lw, "kv_num_heads", 0, &m->groups));
  KILN_TRY(kiln_lower_extent(lw, m->q, 2, &q));
  KILN_TRY(kiln_lower_extent(lw, m->k, 2, &k));
  KILN_TRY(kiln_lower_extent(lw, m->v, 2, &v));
  if (m->groups < 1 || m->heads < 1 || m->heads % m->groups != 0)
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                     "q_num_heads: must be a multiple of kv_num_heads, got %" PRId64
                     " and %" PRId64,
                     m->heads, m->groups);
  m->depth = q / m->heads;
  m->values = v / m->groups;
  if (m->depth < 1 || m->depth * m->heads != q || m->depth * m->groups != k || m->values < 1 ||
      m->values * m->groups != v)
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                     "query, key and value: must have channels for %" PRId64 ", %" PRId64
                     " and as many heads, got %" PRId64 ", %" PRId64 " and %" PRId64,
                     m->heads, m->groups, q, k, v);
  return KILN_OK;
}

// (B, T, one of |widths|).
static kiln_status want_tokens(linear *m, const kiln_tensor *t, int64_t one, int64_t other) {
  kiln_lower *lw = m->lw;
  int64_t width = 0;
  if (!t) return KILN_OK;
  KILN_TRY(kiln_lower_want_rank(lw, t, 3, 3));
  for (int i = 0; i < 2; i++) KILN_TRY(kiln_lower_want_extent(lw, t, i, m->q->shape[i]));
  KILN_TRY(kiln_lower_extent(lw, t, 2, &width));
  if (width == one || width == other) return KILN_OK;
  return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                   "%s: axis 2 must have extent %" PRId64 " or %" PRId64 ", got %" PRId64,
                   kiln_symbol_text(lw->cx, t->name), one, other, width);
}

static kiln_status read_node(linear *m) {
  kiln_lower *lw = m->lw;
  KILN_TRY(kiln_lower_want_inputs(lw, 3, 6));
  for (int i = QUERY; i <= VALUE; i++) {
    KILN_TRY(kiln_lower_want_dtype(lw, i, kiln_dtype_is_float, "a float"));
    KILN_TRY(kiln_lower_want_rank(lw, lw->inputs[i], 3, 3));
  }
  m->q = lw->inputs[QUERY];
  m->k = lw->inputs[KEY];
  m->v = lw->inputs[VALUE];
  m->sum = kiln_accumulator(m->q->dtype);
  KILN_TRY(read_rule(m));
  KILN_TRY(read_heads(m));
  KILN_TRY(want_tokens(m, m->k, m->groups * m->depth, m->groups * m->depth));
  KILN_TRY(want_tokens(m, m->v, m->groups * m->values, m->groups * m->values));
  KILN_TRY(want_tokens(m, m->decay, m->groups, m->groups * m->depth));
  KILN_TRY(want_tokens(m, m->beta, m->groups, 1));
  KILN_TRY(kiln_lower_float(lw, "scale", 0, &m->scale));
  if (m->scale == 0) m->scale = 1 / sqrt((double)m->depth);
  KILN_TRY(kiln_lower_steps(lw, m->q, 1, &m->tokens));
  if (m->tokens >= 1 && m->tokens <= MAX_TOKENS) return KILN_OK;
  return KILN_FAIL(lw->cx->diag, KILN_UNSUPPORTED, lw->place,
                   "query: must have 1 to %d tokens, got %" PRId64, MAX_TOKENS, m->tokens);
}

// --- a token ---

// Channel |c| of head |h| of |width| channels each.
static const kiln_expr *element(const linear *m, const kiln_tensor *t, int64_t token,
                                const kiln_expr *batch, const kiln_expr *h, int64_t width,
                                const kiln_expr *c) {
  kiln_ctx *cx = m->lw->cx;
  const kiln_expr *at[] = {batch, kiln_int(cx, token),
                           kiln_add(cx, kiln_mul(cx, h, kiln_int(cx, width)), c)};
  return kiln_cast(cx, m->sum, kiln_tensor_load(cx, t, at));
}

// The old state at (b, g, d, e), decayed; NULL: 0.
static const kiln_expr *decayed(const linear *m, const kiln_tensor *state, int64_t token,
                                const kiln_expr *const *at) {
  kiln_ctx *cx = m->lw->cx;
  if (!state) return NULL;
  const kiln_expr *s = kiln_cast(cx, m->sum, kiln_tensor_load(cx, state, at));
  if (!m->decay) return s;
  const bool by_channel = !kiln_expr_is(m->decay->shape[2], m->groups);
  const kiln_expr *g = by_channel ? element(m, m->decay, token, at[0], at[1], m->depth, at[2])
                                  : element(m, m->decay, token, at[0], at[1], 1, kiln_int(cx, 0));
  return kiln_mul(cx, s, kiln_unary(cx, KILN_EXPR_EXP, g));
}

// What the decayed state says of the key: (B, G, E).
static const kiln_tensor *retrieved(const linear *m, const kiln_tensor *state, int64_t token) {
  kiln_ctx *cx = m->lw->cx;
  const kiln_expr *extents[] = {m->q->shape[0], kiln_int(cx, m->groups), kiln_int(cx, m->values),
                                kiln_int(cx, m->depth)};
  const kiln_expr *v[4];
  kiln_stmt *s = kiln_lower_stmt(m->lw, "retrieved", m->sum, 3, 1, extents);
  kiln_stmt_vars(cx, s, 0, 4, v);
  const kiln_expr *at[] = {v[0], v[1], v[3], v[2]};
  s->body = kiln_mul(cx, decayed(m, state, token, at),
                     element(m, m->k, token, v[0], v[1], m->depth, v[3]));
  s->combiner = KILN_COMBINE_SUM;
  return kiln_lower_tensor(m->lw, s);
}

// decayed state + key x value, of which beta takes what is not yet retrieved.
static const kiln_tensor *next_state(const linear *m, const kiln_tensor *state, int64_t token) {
  kiln_ctx *cx = m->lw->cx;
  const kiln_tensor *known = state && m->beta ? retrieved(m, state, token) : NULL;
  const kiln_expr *extents[] = {m->q->shape[0], kiln_int(cx, m->groups), kiln_int(cx, m->depth),
                                kiln_int(cx, m->values)};
  const kiln_expr *v[4], *zero = kiln_int(cx, 0);
  kiln_stmt *s = kiln_lower_stmt(m->lw, "state", m->sum, 4, 0, extents);
  kiln_stmt_vars(cx, s, 0, 4, v);
  const kiln_expr *at[] = {v[0], v[1], v[3]}, *old = decayed(m, state, token, v);
  const kiln_expr *value = element(m, m->v, token, v[0], v[1], m->values, v[3]);
  if (known) value = kiln_sub(cx, value, kiln_tensor_load(cx, known, at));
  if (m->beta) {
    const bool is_shared = kiln_expr_is(m->beta->shape[2], 1);
    value = kiln_mul(cx, value, element(m, m->beta, token, v[0], is_shared ? zero : v[1], 1, zero));
  }
  s->body = kiln_mul(cx, element(m, m->k, token, v[0], v[1], m->depth, v[2]), value);
  if (old) s->body = kiln_add(cx, old, s->body);
  if (!kiln_expr_is_int(m->q->shape[1], NULL)) { // behind the last token the state stays
    const kiln_expr *is = kiln_compare(cx, KILN_EXPR_LT, kiln_int(cx, token), m->q->shape[1]);
    const kiln_expr *stays =
        state ? kiln_cast(cx, m->sum, kiln_tensor_load(cx, state, v)) : kiln_float(cx, m->sum, 0);
    s->body = kiln_select(cx, is, s->body, stays);
  }
  return kiln_lower_tensor(m->lw, s);
}

// What the queries read: (B, H, 1, E).
static kiln_tensor *read_state(const linear *m, const kiln_tensor *state, int64_t token) {
  kiln_ctx *cx = m->lw->cx;
  const kiln_expr *extents[] = {m->q->shape[0], kiln_int(cx, m->heads), kiln_int(cx, 1),
                                kiln_int(cx, m->values), kiln_int(cx, m->depth)};
  const kiln_expr *v[5];
  kiln_stmt *s = kiln_lower_stmt(m->lw, "output", m->sum, 4, 1, extents);
  kiln_stmt_vars(cx, s, 0, 5, v);
  const kiln_expr *at[] = {v[0], kiln_div(cx, v[1], kiln_int(cx, m->heads / m->groups)), v[4],
                           v[3]};
  s->body = kiln_mul(cx, element(m, m->q, token, v[0], v[1], m->depth, v[4]),
                     kiln_tensor_load(cx, state, at));
  s->combiner = KILN_COMBINE_SUM;
  return kiln_lower_tensor(m->lw, s);
}

// The outputs of all tokens (B, H, T, E) as (B, T, H * E), scaled.
static kiln_status join(const linear *m, kiln_tensor *const *outputs) {
  kiln_lower *lw = m->lw;
  kiln_ctx *cx = lw->cx;
  const kiln_attr axis = kiln_attr_int(cx, "axis", 2);
  const kiln_lower_callee concat = {.domain = "",
                                    .op = "Concat",
                                    .opset = 13,
                                    .n_inputs = (int)m->tokens,
                                    .inputs = outputs,
                                    .n_attrs = 1,
                                    .attrs = &axis};
  kiln_tensor *all = NULL;
  KILN_TRY(kiln_lower_call(lw, &concat, 1, &all));
  const kiln_expr *at[4],
      *extents[] = {all->shape[0], all->shape[1], m->q->shape[1], all->shape[3]};
  kiln_stmt *s = kiln_lower_stmt(lw, "scaled", m->q->dtype, 4, 0, extents);
  kiln_stmt_vars(cx, s, 0, 4, at);
  const kiln_expr *y =
      kiln_mul(cx, kiln_tensor_load(cx, all, at), kiln_float(cx, m->sum, m->scale));
  s->body = kiln_cast(cx, m->q->dtype, y);
  lw->outputs[0] = kiln_lower_merge_heads(lw, kiln_lower_tensor(lw, s));
  return KILN_OK;
}

static kiln_status lower_linear_attention(kiln_lower *lw) {
  kiln_ctx *cx = lw->cx;
  linear m = {.lw = lw};
  KILN_TRY(read_node(&m));
  const kiln_tensor *state = kiln_lower_in(lw, STATE);
  const kiln_dtype t = state ? state->dtype : m.q->dtype;
  if (state) {
    const kiln_expr *const want[] = {m.q->shape[0], kiln_int(cx, m.groups), kiln_int(cx, m.depth),
                                     kiln_int(cx, m.values)};
    KILN_TRY(kiln_lower_want_rank(lw, state, 4, 4));
    for (int i = 0; i < 4; i++) KILN_TRY(kiln_lower_want_extent(lw, state, i, want[i]));
  }
  kiln_tensor **outputs = KILN_NEW_ARRAY(&cx->perm, kiln_tensor *, (size_t)m.tokens);
  for (int64_t i = 0; i < m.tokens; i++) {
    state = next_state(&m, state, i);
    outputs[i] = read_state(&m, state, i);
  }
  KILN_TRY(join(&m, outputs));
  if (!kiln_lower_wants(lw, 1)) return KILN_OK;
  return kiln_lower_cast(lw, lw->prog->tensors.data[state->id], t, &lw->outputs[1]);
}

const kiln_op kiln_op_linear_attention[] = {
    {"", "LinearAttention", 27, 0, lower_linear_attention, NULL, "ops/linear_attention.c"},
    {0},
};
