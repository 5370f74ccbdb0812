// Mixtures of experts: each token's rows of the experts that a router chose, weighted. Few rows
// read their expert's weights each; many are sorted by expert into blocks of rows that share them.
// source: ONNX Runtime's MoE, QMoE
#include "fission/bits.h"
#include "fission/scan.h"
#include "support/integer.h"

#include <limits.h>
#include <math.h>
#include <string.h>

enum { FC1, FC2, FC3, LAYERS, MOST_ROWS = 64, TILE = 8, LANES = 32 };

typedef enum activation { RELU, GELU, SILU, IDENTITY, SWIGLU } activation;

// The weights of one layer of all experts: floats (E, N, K), or numbers of few bits in u8, packed
// along K.
typedef struct layer {
  kiln_tensor *weights;    // NULL: no layer
  kiln_tensor *scales;     // (E, N), or (E, N, K / block); NULL: floats
  kiln_tensor *zeros;      // packed along the last axis of |scales|; NULL: 2^(bits - 1)
  const kiln_tensor *bias; // (E, N), or NULL
  kiln_bit_packing pack;   // |block|: all of K where the rows have one scale
  int64_t n, k;
  int64_t lanes; // rows that are interleaved
} layer;

typedef struct mixture {
  kiln_lower *lw;
  kiln_tensor *x, *router;      // (T, H), (T, E)
  const kiln_tensor *shares_of; // (T, E): of the sum, instead of the router's softmax; or NULL
  layer fc[LAYERS];
  int64_t experts, chosen, hidden, inner; // E, k, H, I
  activation activation;
  bool normalizes;
  int64_t fusion; // of swiglu: 1: gates and values alternate in fc1, 2: they follow each other
  double alpha, beta, limit;
  kiln_dtype sum;
  kiln_tensor *choice;    // (T, k), i64
  const kiln_expr *slots; // T * k, one for each token and choice
  int64_t rows;           // of a block
  const kiln_expr *blocks;
  const kiln_tensor *expert_of; // (blocks); NULL: a block is a slot
  const kiln_tensor *slot_of;   // (blocks * rows)
  const kiln_tensor *place_of;  // (slots): its row
} mixture;

static const kiln_expr *number(const mixture *m, int64_t value) {
  return kiln_int(m->lw->cx, value);
}

// --- the node ---

static kiln_status read_activation(mixture *m) {
  static const char *const names[] = {"relu", "gelu", "silu", "identity", "swiglu"};
  kiln_lower *lw = m->lw;
  const char *name = NULL;
  KILN_TRY(kiln_lower_string(lw, "activation_type", "relu", &name));
  for (size_t i = 0; i < KILN_LEN(names); i++) {
    if (strcmp(name, names[i]) != 0) continue;
    m->activation = (activation)i;
    return KILN_OK;
  }
  return KILN_FAIL(lw->cx->diag, KILN_UNSUPPORTED, lw->place,
                   "activation_type: must be relu, gelu, silu, identity or swiglu, got %s", name);
}

static kiln_status want_zero(kiln_lower *lw, const char *attr) {
  int64_t have = 0;
  KILN_TRY(kiln_lower_int(lw, attr, 0, &have));
  if (have == 0) return KILN_OK;
  return KILN_FAIL(lw->cx->diag, KILN_UNSUPPORTED, lw->place, "%s: must be 0, got %" PRId64, attr,
                   have);
}

static kiln_status read_attributes(mixture *m) {
  kiln_lower *lw = m->lw;
  int64_t normalizes = 0;
  KILN_TRY(read_activation(m));
  KILN_TRY(kiln_lower_int(lw, "k", 1, &m->chosen));
  KILN_TRY(kiln_lower_int(lw, "normalize_routing_weights", 0, &normalizes));
  KILN_TRY(kiln_lower_int(lw, "swiglu_fusion", 0, &m->fusion));
  KILN_TRY(kiln_lower_float(lw, "activation_alpha", 1, &m->alpha));
  KILN_TRY(kiln_lower_float(lw, "activation_beta", 0, &m->beta));
  KILN_TRY(kiln_lower_float(lw, "swiglu_limit", INFINITY, &m->limit));
  KILN_TRY(want_zero(lw, "use_sparse_mixer"));
  KILN_TRY(want_zero(lw, "swiglu_limit_after_activation"));
  m->normalizes = normalizes != 0;
  if (m->fusion >= 0 && m->fusion <= 2) return KILN_OK;
  return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                   "swiglu_fusion: must be 0, 1 or 2, got %" PRId64, m->fusion);
}

// Tokens (T, H), the router's (T, E), and the sizes.
static kiln_status read_tokens(mixture *m) {
  kiln_lower *lw = m->lw;
  kiln_ctx *cx = lw->cx;
  m->x = lw->inputs[0];
  m->router = lw->inputs[1];
  for (int i = 0; i < 2; i++)
    KILN_TRY(kiln_lower_want_dtype(lw, i, kiln_dtype_is_float, "a float"));
  KILN_TRY(kiln_lower_want_rank(lw, m->x, 2, 3));
  KILN_TRY(kiln_lower_want_rank(lw, m->router, 2, 2));
  KILN_TRY(kiln_lower_extent(lw, m->x, m->x->rank - 1, &m->hidden));
  KILN_TRY(kiln_lower_extent(lw, m->router, 1, &m->experts));
  const kiln_expr *tokens = kiln_lower_tidy(cx, kiln_multiply_all(cx, m->x->rank - 1, m->x->shape));
  const kiln_expr *shape[] = {tokens, number(m, m->hidden)};
  if (m->x->rank == 3) m->x = kiln_lower_reshape(lw, m->x, 2, shape);
  KILN_TRY(kiln_lower_want_extent(lw, m->router, 0, tokens));
  m->sum = kiln_accumulator(m->x->dtype);
  m->slots = kiln_lower_tidy(cx, kiln_mul(cx, tokens, number(m, m->chosen)));
  if (m->chosen >= 1 && m->chosen <= m->experts && m->hidden > 0) return KILN_OK;
  return KILN_FAIL(cx->diag, KILN_BAD_INPUT, lw->place,
                   "k: must lie in [1, %" PRId64 "], got %" PRId64, m->experts, m->chosen);
}

static bool is_u8(kiln_dtype t) { return t == KILN_U8; }

static kiln_status want_shape(kiln_lower *lw, const kiln_tensor *t, int rank,
                              const int64_t *shape) {
  if (!t) return KILN_OK;
  KILN_TRY(kiln_lower_want_rank(lw, t, rank, rank));
  for (int i = 0; i < rank; i++)
    KILN_TRY(kiln_lower_want_extent(lw, t, i, kiln_int(lw->cx, shape[i])));
  return KILN_OK;
}

// The scales and zero points of inputs |scales| and |zeros|, and the weights' packing.
static kiln_status read_scales(mixture *m, layer *l, const char *bits, int scales, int zeros) {
  kiln_lower *lw = m->lw;
  int64_t all = 4, block = 0;
  KILN_TRY(kiln_lower_int(lw, "expert_weight_bits", all, &all));
  KILN_TRY(kiln_lower_int(lw, bits, all, &l->pack.bits));
  KILN_TRY(kiln_lower_int(lw, "block_size", 0, &block));
  if (l->pack.bits != 2 && l->pack.bits != 4 && l->pack.bits != 8)
    return KILN_FAIL(lw->cx->diag, KILN_UNSUPPORTED, lw->place,
                     "%s: must be 2, 4 or 8, got %" PRId64, bits, l->pack.bits);
  l->pack.per_byte = 8 / l->pack.bits;
  l->pack.block = block > 0 ? block : l->k;
  if (l->k % l->pack.per_byte != 0 || l->pack.block % l->pack.per_byte != 0 ||
      l->k % l->pack.block != 0)
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                     "block_size: must divide the %" PRId64 " columns of the weights, got %" PRId64,
                     l->k, l->pack.block);
  l->scales = kiln_lower_in(lw, scales);
  l->zeros = kiln_lower_in(lw, zeros);
  if (!l->scales)
    return KILN_FAIL(lw->cx->diag, KILN_UNSUPPORTED, lw->place, "scales: must be given, got none");
  KILN_TRY(kiln_lower_want_dtype(lw, scales, kiln_dtype_is_float, "a float"));
  const int64_t blocks = l->k / l->pack.block, per = l->pack.per_byte;
  const int64_t of_blocks[] = {m->experts, l->n, blocks}, of_rows[] = {m->experts, l->n};
  const int64_t packed_blocks[] = {m->experts, l->n, kiln_divide_up(blocks, per)},
                packed_rows[] = {m->experts, kiln_divide_up(l->n, per)};
  const int rank = block > 0 ? 3 : 2;
  KILN_TRY(want_shape(lw, l->scales, rank, block > 0 ? of_blocks : of_rows));
  if (l->zeros) KILN_TRY(kiln_lower_want_dtype(lw, zeros, is_u8, "u8"));
  return want_shape(lw, l->zeros, rank, block > 0 ? packed_blocks : packed_rows);
}

// Layer |l| of N x K weights: where its inputs are, scales = -1 for floats.
typedef struct places {
  int weights, scales, zeros, bias;
  const char *bits;
} places;

static kiln_status read_layer(mixture *m, layer *l, const places *at, int64_t n, int64_t k) {
  kiln_lower *lw = m->lw;
  l->n = n;
  l->k = k;
  l->weights = kiln_lower_in(lw, at->weights);
  if (!l->weights) return KILN_OK;
  KILN_TRY(kiln_lower_want_dtype(lw, at->weights, at->scales < 0 ? kiln_dtype_is_float : is_u8,
                                 at->scales < 0 ? "a float" : "u8"));
  if (at->scales >= 0) KILN_TRY(read_scales(m, l, at->bits, at->scales, at->zeros));
  const int64_t shape[] = {m->experts, n, at->scales < 0 ? k : k / l->pack.per_byte};
  KILN_TRY(want_shape(lw, l->weights, 3, shape));
  l->bias = kiln_lower_in(lw, at->bias);
  return want_shape(lw, l->bias, 2, shape);
}

// The inner width I: fc1 has I rows, or 2 I of gates and values.
static kiln_status read_layers(mixture *m, const places *at) {
  kiln_lower *lw = m->lw;
  int64_t rows = 0;
  const kiln_tensor *first = lw->inputs[at[FC1].weights];
  const bool is_fused = m->activation == SWIGLU && m->fusion > 0;
  KILN_TRY(kiln_lower_want_rank(lw, first, 3, 3));
  KILN_TRY(kiln_lower_extent(lw, first, 1, &rows));
  m->inner = is_fused ? rows / 2 : rows;
  if (rows < 1 || (is_fused && rows % 2 != 0))
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                     "fc1_experts_weights: must have an even number of rows, got %" PRId64, rows);
  KILN_TRY(read_layer(m, &m->fc[FC1], &at[FC1], rows, m->hidden));
  KILN_TRY(read_layer(m, &m->fc[FC2], &at[FC2], m->hidden, m->inner));
  KILN_TRY(read_layer(m, &m->fc[FC3], &at[FC3], m->inner, m->hidden));
  const bool has_third = m->fc[FC3].weights != NULL;
  if (has_third != (m->activation == SWIGLU && !is_fused) && (is_fused || !has_third))
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                     "fc3_experts_weights: must be given if swiglu_fusion is 0, and else left out");
  return KILN_OK;
}

// --- routing ---

// The k experts of each token, and their logits.
static kiln_status choose(mixture *m, kiln_tensor **out_logits) {
  kiln_lower *lw = m->lw;
  const int64_t one = 1;
  kiln_tensor *k = kiln_lower_make_const(lw, "k", KILN_I64, 1, &one, &m->chosen);
  kiln_tensor *const both[] = {m->router, k};
  const kiln_lower_callee top = {
      .domain = "", .op = "TopK", .opset = 11, .n_inputs = 2, .inputs = both};
  kiln_tensor *outputs[2];
  KILN_TRY(kiln_lower_call(lw, &top, 2, outputs));
  *out_logits = outputs[0];
  m->choice = outputs[1];
  return KILN_OK;
}

// A statement over (T), reduced over the last axis of |t| (T, n) with |combiner|; |at|: the index.
static kiln_stmt *over_row(const mixture *m, const char *name, const kiln_tensor *t,
                           kiln_combiner combiner, const kiln_expr **at) {
  kiln_stmt *s = kiln_lower_stmt(m->lw, name, m->sum, 1, 1, (const kiln_expr *const *)t->shape);
  kiln_stmt_vars(m->lw->cx, s, 0, 2, at);
  s->combiner = combiner;
  return s;
}

static const kiln_expr *wide(const mixture *m, const kiln_tensor *t, const kiln_expr *const *at) {
  return kiln_cast(m->lw->cx, m->sum, kiln_tensor_load(m->lw->cx, t, at));
}

// exp of |logits| less the greatest of the row.
static kiln_tensor *exponentials(const mixture *m, const kiln_tensor *logits,
                                 const kiln_tensor *greatest) {
  kiln_ctx *cx = m->lw->cx;
  const kiln_expr *at[KILN_MAX_RANK];
  kiln_stmt *s = kiln_lower_like(m->lw, "exponentials", logits, m->sum, at);
  const kiln_expr *less = kiln_sub(cx, wide(m, logits, at), kiln_tensor_load(cx, greatest, at));
  s->body = kiln_unary(cx, KILN_EXPR_EXP, less);
  return kiln_lower_tensor(m->lw, s);
}

// What each choice counts before it is divided: (T, k).
static kiln_tensor *given_shares(const mixture *m) {
  kiln_ctx *cx = m->lw->cx;
  const kiln_expr *at[KILN_MAX_RANK];
  kiln_stmt *s = kiln_lower_like(m->lw, "given_shares", m->choice, m->sum, at);
  at[1] = kiln_tensor_load(cx, m->choice, at);
  s->body = wide(m, m->shares_of, at);
  return kiln_lower_tensor(m->lw, s);
}

// The weights of the sum over a token's experts (T, k).
static kiln_tensor *weigh(const mixture *m, const kiln_tensor *logits) {
  kiln_lower *lw = m->lw;
  kiln_ctx *cx = lw->cx;
  const kiln_expr *at[KILN_MAX_RANK];
  kiln_tensor *parts = NULL;
  const kiln_tensor *all = NULL;
  if (m->shares_of) {
    all = parts = given_shares(m);
    if (!m->normalizes) return parts;
  } else {
    kiln_stmt *top = over_row(m, "greatest", logits, KILN_COMBINE_MAX, at);
    top->body = wide(m, logits, at);
    const kiln_tensor *greatest = kiln_lower_tensor(lw, top);
    parts = exponentials(m, logits, greatest);
    all = m->normalizes ? parts : exponentials(m, m->router, greatest);
  }
  kiln_stmt *s = over_row(m, "total", all, KILN_COMBINE_SUM, at);
  s->body = kiln_tensor_load(cx, all, at);
  const kiln_tensor *total = kiln_lower_tensor(lw, s);
  s = kiln_lower_like(lw, "shares", parts, m->sum, at);
  s->body = kiln_binary(cx, KILN_EXPR_DIV, kiln_tensor_load(cx, parts, at),
                        kiln_tensor_load(cx, total, at));
  return kiln_lower_tensor(lw, s);
}

// The expert of a slot.
static const kiln_expr *expert_at(const mixture *m, const kiln_expr *slot) {
  kiln_ctx *cx = m->lw->cx;
  const kiln_expr *k = number(m, m->chosen);
  const kiln_expr *const at[] = {kiln_div(cx, slot, k), kiln_mod(cx, slot, k)};
  return kiln_tensor_load(cx, m->choice, at);
}

// --- blocks of rows of one expert ---

// As many as each expert has on average, up to a tile of registers, then a quarter, so that few are
// empty; one row where the rows are not more than the experts.
static int64_t rows_of_block(const mixture *m) {
  int64_t slots = 0, rows = 1;
  if (!kiln_expr_is_int(m->slots, &slots)) return MOST_ROWS / 4;
  while (rows < MOST_ROWS && rows * m->experts * (rows < TILE ? 1 : 4) < slots) rows *= 2;
  return rows;
}

static const kiln_expr *is_of(const mixture *m, const kiln_expr *slot, const kiln_expr *expert) {
  kiln_ctx *cx = m->lw->cx;
  return kiln_select(cx, kiln_compare(cx, KILN_EXPR_EQ, expert_at(m, slot), expert),
                     kiln_number(cx, KILN_I32, 1), kiln_number(cx, KILN_I32, 0));
}

// How many slots before each are of the same expert, for every expert: (slots, E).
static kiln_tensor *count_before(const mixture *m) {
  kiln_lower *lw = m->lw;
  const kiln_expr *const extents[] = {m->slots, number(m, m->experts)};
  const kiln_expr *v[2];
  const kiln_scan before = {0, true, false, KILN_COMBINE_SUM};
  kiln_stmt *s = kiln_lower_stmt(lw, "is_of", KILN_I32, 2, 0, extents);
  kiln_stmt_vars(lw->cx, s, 0, 2, v);
  s->body = is_of(m, v[0], v[1]);
  return kiln_lower_scan(lw, &before, kiln_lower_tensor(lw, s));
}

// The number of blocks of each expert (E).
static kiln_tensor *count_blocks(const mixture *m) {
  kiln_lower *lw = m->lw;
  kiln_ctx *cx = lw->cx;
  const kiln_expr *const extents[] = {number(m, m->experts), m->slots};
  const kiln_expr *v[2];
  kiln_stmt *s = kiln_lower_stmt(lw, "counts", KILN_I32, 1, 1, extents);
  kiln_stmt_vars(cx, s, 0, 2, v);
  s->body = is_of(m, v[1], v[0]);
  s->combiner = KILN_COMBINE_SUM;
  const kiln_tensor *counts = kiln_lower_tensor(lw, s);
  s = kiln_lower_like(lw, "blocks", counts, KILN_I32, v);
  s->body = kiln_ceil_div(cx, kiln_cast(cx, KILN_I64, kiln_tensor_load(cx, counts, v)),
                          number(m, m->rows));
  s->body = kiln_cast(cx, KILN_I32, s->body);
  return kiln_lower_tensor(lw, s);
}

// The expert of each block: as many as end at it or before; the last for blocks of no rows.
static void find_experts(mixture *m, const kiln_tensor *blocks, const kiln_tensor *first) {
  kiln_lower *lw = m->lw;
  kiln_ctx *cx = lw->cx;
  const kiln_expr *const extents[] = {m->blocks, number(m, m->experts)};
  const kiln_expr *v[2];
  kiln_stmt *s = kiln_lower_stmt(lw, "ended", KILN_I64, 1, 1, extents);
  kiln_stmt_vars(cx, s, 0, 2, v);
  const kiln_expr *end =
      kiln_add(cx, kiln_tensor_load(cx, first, &v[1]), kiln_tensor_load(cx, blocks, &v[1]));
  const kiln_expr *ends = kiln_compare(cx, KILN_EXPR_LE, kiln_cast(cx, KILN_I64, end), v[0]);
  s->body = kiln_select(cx, ends, kiln_int(cx, 1), kiln_int(cx, 0));
  s->combiner = KILN_COMBINE_SUM;
  const kiln_tensor *ended = kiln_lower_tensor(lw, s);
  s = kiln_lower_like(lw, "expert", ended, KILN_I64, v);
  s->body = kiln_least(cx, kiln_tensor_load(cx, ended, v), number(m, m->experts - 1));
  m->expert_of = kiln_lower_tensor(lw, s);
}

// The row of each slot, and the slot of each row; rows that no slot has compute slot 0.
static void place_slots(mixture *m, const kiln_tensor *first) {
  kiln_lower *lw = m->lw;
  kiln_ctx *cx = lw->cx;
  const kiln_tensor *before = count_before(m);
  const kiln_expr *v[1], *axes[1];
  kiln_stmt *s = kiln_lower_stmt(lw, "place", KILN_I64, 1, 0, &m->slots);
  kiln_stmt_vars(cx, s, 0, 1, v);
  const kiln_expr *expert = expert_at(m, v[0]);
  const kiln_expr *const own[] = {v[0], expert};
  const kiln_expr *start = kiln_cast(cx, KILN_I64, kiln_tensor_load(cx, first, &expert));
  s->body = kiln_add(cx, kiln_mul(cx, start, number(m, m->rows)),
                     kiln_cast(cx, KILN_I64, kiln_tensor_load(cx, before, own)));
  m->place_of = kiln_lower_tensor(lw, s);
  const kiln_expr *shape = kiln_lower_tidy(cx, kiln_mul(cx, m->blocks, number(m, m->rows)));
  s = kiln_lower_scatter_new(lw, "slot", KILN_I64, 1, &shape, 1, 0, &m->slots, axes);
  kiln_stmt_vars(cx, s, 0, 1, v);
  s->init = kiln_int(cx, 0);
  s->index[0] = kiln_tensor_load(cx, m->place_of, v);
  s->body = v[0];
  m->slot_of = kiln_lower_tensor(lw, s);
}

static void make_blocks(mixture *m) {
  kiln_ctx *cx = m->lw->cx;
  m->rows = rows_of_block(m);
  m->blocks = m->slots;
  if (m->rows == 1) return;
  // an expert leaves at most rows - 1 rows of its last block
  const kiln_expr *most = kiln_add(cx, m->slots, number(m, m->experts * (m->rows - 1)));
  m->blocks = kiln_lower_tidy(cx, kiln_div(cx, most, number(m, m->rows)));
  const kiln_scan before = {0, true, false, KILN_COMBINE_SUM};
  const kiln_tensor *blocks = count_blocks(m), *first = kiln_lower_scan(m->lw, &before, blocks);
  find_experts(m, blocks, first);
  place_slots(m, first);
}

// --- layers ---

static const kiln_expr *expert_of_block(const mixture *m, const kiln_expr *block) {
  return m->expert_of ? kiln_tensor_load(m->lw->cx, m->expert_of, &block) : expert_at(m, block);
}

// The tokens of the blocks' rows: (blocks, rows, H).
static kiln_tensor *gather_tokens(const mixture *m) {
  kiln_ctx *cx = m->lw->cx;
  const kiln_expr *const extents[] = {m->blocks, number(m, m->rows), number(m, m->hidden)};
  const kiln_expr *v[3];
  kiln_stmt *s = kiln_lower_stmt(m->lw, "tokens", m->x->dtype, 3, 0, extents);
  kiln_stmt_vars(cx, s, 0, 3, v);
  const kiln_expr *slot = v[0];
  if (m->slot_of) {
    slot = kiln_add(cx, kiln_mul(cx, v[0], number(m, m->rows)), v[1]);
    slot = kiln_tensor_load(cx, m->slot_of, &slot);
  }
  const kiln_expr *const at[] = {kiln_div(cx, slot, number(m, m->chosen)), v[2]};
  s->body = kiln_tensor_load(cx, m->x, at);
  return kiln_lower_tensor(m->lw, s);
}

// The same elements, repacked when compiling.
static kiln_tensor *interleave_constant(const mixture *m, const layer *l, const kiln_tensor *t,
                                        const int64_t *shape) {
  const size_t size = (size_t)kiln_dtype_bytes(t->dtype), lanes = (size_t)l->lanes;
  const size_t rows = (size_t)(m->experts * l->n), row = t->bytes / size / rows;
  char *to = kiln_arena_alloc(&m->lw->cx->perm, t->bytes);
  for (size_t r = 0; r < rows; r++)
    for (size_t i = 0; i < row; i++)
      memcpy(to + ((r / lanes * row + i) * lanes + r % lanes) * size,
             (const char *)t->data + (r * row + i) * size, size);
  kiln_const c = {.dtype = t->dtype, .rank = t->rank + 1, .bytes = t->bytes, .data = to};
  c.shape[0] = m->experts;
  c.shape[1] = l->n / l->lanes;
  for (int i = 2; i < t->rank; i++) c.shape[i] = shape[i];
  c.shape[t->rank] = l->lanes;
  kiln_ctx *cx = m->lw->cx;
  return kiln_tensor_make_const(cx, m->lw->prog, kiln_symbol_text(cx, t->name), &c);
}

// The rows of |t| (E, N, ..) with |lanes| of them interleaved: (E, panels, .., lanes), so that
// vectors run along rows.
static kiln_tensor *interleave(const mixture *m, const layer *l, kiln_tensor *t) {
  kiln_lower *lw = m->lw;
  const int rank = t->rank + 1;
  int64_t shape[KILN_MAX_RANK];
  if (t->role == KILN_CONST && t->data && t->bytes > 0 && kiln_tensor_static_shape(t, shape))
    return interleave_constant(m, l, t, shape);
  const kiln_expr *extents[KILN_MAX_RANK] = {t->shape[0], number(m, l->n / l->lanes),
                                             number(m, l->lanes)};
  int perm[KILN_MAX_RANK] = {0, 1};
  for (int i = 2; i < t->rank; i++) {
    extents[i + 1] = t->shape[i];
    perm[i] = i + 1;
  }
  perm[t->rank] = 2;
  return kiln_lower_transpose(lw, kiln_lower_reshape(lw, t, rank, extents), perm);
}

// Interleaves a layer's rows; the zero points are unpacked before.
static void arrange(const mixture *m, layer *l) {
  if (!l->weights) return;
  l->lanes = l->n % LANES == 0 ? LANES : l->n;
  if (l->zeros) {
    const int last = l->zeros->rank - 1;
    l->zeros = kiln_bits_unpack(m->lw, &l->pack, l->zeros, last, l->scales->shape[last]);
    l->zeros = interleave(m, l, l->zeros);
  }
  l->weights = interleave(m, l, l->weights);
  if (l->scales) l->scales = interleave(m, l, l->scales);
}

// Number |part| of byte |byte| of the row at |row| = (expert, panel, lane), before scale and zero
// point.
static const kiln_expr *code_at(const mixture *m, const layer *l, const kiln_expr *const *row,
                                const kiln_expr *byte, const kiln_expr *part) {
  kiln_ctx *cx = m->lw->cx;
  const kiln_expr *const at[] = {row[0], row[1], byte, row[2]};
  const kiln_expr *q = kiln_bits_number(cx, &l->pack, kiln_tensor_load(cx, l->weights, at), part);
  return kiln_cast(cx, m->sum, kiln_cast(cx, KILN_I32, q));
}

// The zero point of block |b| of a row.
static const kiln_expr *zero_at(const mixture *m, const layer *l, const kiln_expr *const *row,
                                const kiln_expr *b) {
  kiln_ctx *cx = m->lw->cx;
  if (!l->zeros) return kiln_number(cx, m->sum, 1 << (l->pack.bits - 1));
  const kiln_expr *const of_block[] = {row[0], row[1], b, row[2]}, *const of_row[] = {
                                                                       row[0], row[1], row[2]};
  return wide(m, l->zeros, l->zeros->rank == 4 ? of_block : of_row);
}

static const kiln_expr *scale_at(const mixture *m, const layer *l, const kiln_expr *const *row,
                                 const kiln_expr *b) {
  const kiln_expr *const of_block[] = {row[0], row[1], b, row[2]}, *const of_row[] = {
                                                                       row[0], row[1], row[2]};
  return wide(m, l->scales, l->scales->rank == 4 ? of_block : of_row);
}

// The panels of a product (panels, blocks, rows, lanes) side by side: (blocks, rows, N).
static kiln_tensor *joined(const mixture *m, const layer *l, const kiln_stmt *product) {
  static const int perm[] = {1, 2, 0, 3};
  const kiln_expr *const shape[] = {m->blocks, number(m, m->rows), number(m, l->n)};
  kiln_tensor *y = kiln_lower_tensor(m->lw, product);
  return kiln_lower_reshape(m->lw, kiln_lower_transpose(m->lw, y, perm), 3, shape);
}

// |x| (blocks, rows, K) times weights of few bits, as (panels, blocks, rows, lanes): their blocks,
// bytes, and numbers in a byte. The lanes are outside of a tile of rows, which shares the decoded
// weights.
static kiln_tensor *multiply_packed(const mixture *m, const layer *l, const kiln_tensor *x) {
  kiln_ctx *cx = m->lw->cx;
  const int64_t bytes = l->pack.block / l->pack.per_byte;
  const kiln_expr *const extents[] = {number(m, l->n / l->lanes),
                                      m->blocks,
                                      number(m, m->rows),
                                      number(m, l->lanes),
                                      number(m, l->k / l->pack.block),
                                      number(m, bytes),
                                      number(m, l->pack.per_byte)};
  const kiln_expr *v[7];
  kiln_stmt *s = kiln_lower_stmt(m->lw, "product", m->sum, 4, 3, extents);
  kiln_stmt_vars(cx, s, 0, 7, v);
  const kiln_expr *byte = kiln_add(cx, kiln_mul(cx, v[4], number(m, bytes)), v[5]);
  const kiln_expr *k = kiln_add(cx, kiln_mul(cx, byte, number(m, l->pack.per_byte)), v[6]);
  const kiln_expr *const own[] = {v[1], v[2], k};
  const kiln_expr *const row[] = {expert_of_block(m, v[1]), v[0], v[3]};
  const kiln_expr *q = kiln_sub(cx, code_at(m, l, row, byte, v[6]), zero_at(m, l, row, v[4]));
  s->body = kiln_mul(cx, wide(m, x, own), kiln_mul(cx, q, scale_at(m, l, row, v[4])));
  s->combiner = KILN_COMBINE_SUM;
  return joined(m, l, s);
}

static kiln_tensor *multiply_floats(const mixture *m, const layer *l, const kiln_tensor *x) {
  kiln_ctx *cx = m->lw->cx;
  const kiln_expr *const extents[] = {number(m, l->n / l->lanes), m->blocks, number(m, m->rows),
                                      number(m, l->lanes), number(m, l->k)};
  const kiln_expr *v[5];
  kiln_stmt *s = kiln_lower_stmt(m->lw, "product", m->sum, 4, 1, extents);
  kiln_stmt_vars(cx, s, 0, 5, v);
  const kiln_expr *const own[] = {v[1], v[2], v[4]}, *const at[] = {expert_of_block(m, v[1]), v[0],
                                                                    v[4], v[3]};
  s->body = kiln_mul(cx, wide(m, x, own), wide(m, l->weights, at));
  s->combiner = KILN_COMBINE_SUM;
  return joined(m, l, s);
}

// Layer |l| of |x| (blocks, rows, K): (blocks, rows, N), in the type of sums.
static kiln_tensor *run_layer(const mixture *m, const layer *l, const kiln_tensor *x) {
  kiln_ctx *cx = m->lw->cx;
  const kiln_expr *v[3];
  kiln_tensor *y = l->scales ? multiply_packed(m, l, x) : multiply_floats(m, l, x);
  if (!l->bias) return y;
  kiln_stmt *s = kiln_lower_like(m->lw, "biased", y, m->sum, v);
  const kiln_expr *const at[] = {expert_of_block(m, v[0]), v[2]};
  s->body = kiln_add(cx, kiln_tensor_load(cx, y, v), wide(m, l->bias, at));
  return kiln_lower_tensor(m->lw, s);
}

// --- activations ---

static const kiln_expr *value_of(const mixture *m, double value) {
  return kiln_float(m->lw->cx, m->sum, value);
}

// x / (1 + exp(-alpha x))
static const kiln_expr *swish(const mixture *m, const kiln_expr *x, double alpha) {
  kiln_ctx *cx = m->lw->cx;
  const kiln_expr *less = kiln_mul(cx, value_of(m, -alpha), x);
  const kiln_expr *below = kiln_add(cx, value_of(m, 1), kiln_unary(cx, KILN_EXPR_EXP, less));
  return kiln_binary(cx, KILN_EXPR_DIV, x, below);
}

// By the tanh that approximates it.
static const kiln_expr *gelu(const mixture *m, const kiln_expr *x) {
  kiln_ctx *cx = m->lw->cx;
  const kiln_expr *cube = kiln_mul(cx, x, kiln_mul(cx, x, x));
  const kiln_expr *inner = kiln_add(cx, x, kiln_mul(cx, value_of(m, 0.044715), cube));
  inner = kiln_mul(cx, value_of(m, 0.7978845608028654), inner);
  const kiln_expr *above = kiln_add(cx, value_of(m, 1), kiln_unary(cx, KILN_EXPR_TANH, inner));
  return kiln_mul(cx, kiln_mul(cx, value_of(m, 0.5), x), above);
}

static const kiln_expr *activate(const mixture *m, const kiln_expr *x) {
  if (m->activation == RELU) return kiln_most(m->lw->cx, x, value_of(m, 0));
  if (m->activation == GELU) return gelu(m, x);
  return m->activation == SILU ? swish(m, x, 1) : x;
}

// swish(min(gate, limit)) * (clamp(value, limit) + beta)
static const kiln_expr *gated(const mixture *m, const kiln_expr *gate, const kiln_expr *value) {
  kiln_ctx *cx = m->lw->cx;
  if (isfinite(m->limit)) {
    gate = kiln_least(cx, gate, value_of(m, m->limit));
    value = kiln_most(cx, kiln_least(cx, value, value_of(m, m->limit)), value_of(m, -m->limit));
  }
  if (m->beta != 0) value = kiln_add(cx, value, value_of(m, m->beta));
  return kiln_mul(cx, swish(m, gate, m->alpha), value);
}

// The inner rows (blocks, rows, I), in the type of |x|.
static kiln_tensor *inner_rows(const mixture *m, const kiln_tensor *x) {
  kiln_lower *lw = m->lw;
  kiln_ctx *cx = lw->cx;
  const kiln_tensor *first = run_layer(m, &m->fc[FC1], x),
                    *third = m->fc[FC3].weights ? run_layer(m, &m->fc[FC3], x) : NULL;
  const kiln_expr *const extents[] = {m->blocks, number(m, m->rows), number(m, m->inner)};
  const kiln_expr *v[3], *y = NULL;
  kiln_stmt *s = kiln_lower_stmt(lw, "inner", m->x->dtype, 3, 0, extents);
  kiln_stmt_vars(cx, s, 0, 3, v);
  if (m->activation == SWIGLU && !third) {
    const kiln_expr *two = number(m, 2), *inner = number(m, m->inner);
    const bool alternates = m->fusion == 1;
    const kiln_expr *const gate[] = {v[0], v[1], alternates ? kiln_mul(cx, v[2], two) : v[2]},
                           *const value[] = {
                               v[0], v[1],
                               kiln_add(cx, gate[2], alternates ? number(m, 1) : inner)};
    y = gated(m, kiln_tensor_load(cx, first, gate), kiln_tensor_load(cx, first, value));
  } else if (m->activation == SWIGLU) {
    y = gated(m, kiln_tensor_load(cx, first, v), kiln_tensor_load(cx, third, v));
  } else {
    y = activate(m, kiln_tensor_load(cx, first, v));
    if (third) y = kiln_mul(cx, y, kiln_tensor_load(cx, third, v));
  }
  s->body = kiln_cast(cx, m->x->dtype, y);
  return kiln_lower_tensor(lw, s);
}

// The weighted sum of the rows of a token's experts: (T, H).
static kiln_tensor *combine(const mixture *m, const kiln_tensor *rows, const kiln_tensor *shares) {
  kiln_lower *lw = m->lw;
  kiln_ctx *cx = lw->cx;
  const kiln_expr *const extents[] = {m->x->shape[0], number(m, m->hidden), number(m, m->chosen)};
  const kiln_expr *v[3], *width = number(m, m->rows);
  kiln_stmt *s = kiln_lower_stmt(lw, "mixed", m->sum, 2, 1, extents);
  kiln_stmt_vars(cx, s, 0, 3, v);
  const kiln_expr *slot = kiln_add(cx, kiln_mul(cx, v[0], number(m, m->chosen)), v[2]);
  const kiln_expr *place = m->place_of ? kiln_tensor_load(cx, m->place_of, &slot) : slot;
  const kiln_expr *const at[] = {kiln_div(cx, place, width), kiln_mod(cx, place, width), v[1]},
                         *const own[] = {v[0], v[2]};
  s->body = kiln_mul(cx, kiln_tensor_load(cx, shares, own), kiln_tensor_load(cx, rows, at));
  s->combiner = KILN_COMBINE_SUM;
  return kiln_lower_tensor(lw, s);
}

static kiln_status lower_mixture(kiln_lower *lw, const places *at, int shares_of) {
  mixture m = {.lw = lw};
  kiln_tensor *logits = NULL;
  KILN_TRY(read_attributes(&m));
  KILN_TRY(read_tokens(&m));
  KILN_TRY(read_layers(&m, at));
  m.shares_of = kiln_lower_in(lw, shares_of);
  if (m.shares_of) {
    KILN_TRY(kiln_lower_want_rank(lw, m.shares_of, 2, 2));
    for (int i = 0; i < 2; i++)
      KILN_TRY(kiln_lower_want_extent(lw, m.shares_of, i, m.router->shape[i]));
  }
  KILN_TRY(choose(&m, &logits));
  const kiln_tensor *shares = weigh(&m, logits);
  make_blocks(&m);
  for (int i = 0; i < LAYERS; i++) arrange(&m, &m.fc[i]);
  const kiln_tensor *inner = inner_rows(&m, gather_tokens(&m));
  kiln_tensor *y = combine(&m, run_layer(&m, &m.fc[FC2], inner), shares);
  KILN_TRY(kiln_lower_cast(lw, y, m.x->dtype, &y));
  const kiln_tensor *x = lw->inputs[0];
  lw->outputs[0] =
      x->rank == 2 ? y : kiln_lower_reshape(lw, y, 3, (const kiln_expr *const *)x->shape);
  return KILN_OK;
}

static kiln_status lower_moe(kiln_lower *lw) {
  static const places at[LAYERS] = {
      {2, -1, -1, 3, NULL}, {4, -1, -1, 5, NULL}, {6, -1, -1, 7, NULL}};
  KILN_TRY(kiln_lower_want_inputs(lw, 3, 8));
  if (kiln_lower_in(lw, at[FC2].weights)) return lower_mixture(lw, at, INT_MAX);
  return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                   "fc2_experts_weights: must be given, got none");
}

static kiln_status lower_quantised(kiln_lower *lw) {
  static const places at[LAYERS] = {{2, 3, 11, 4, "fc1_expert_weight_bits"},
                                    {5, 6, 12, 7, "fc2_expert_weight_bits"},
                                    {8, 9, 13, 10, "fc3_expert_weight_bits"}};
  const char *kind = NULL;
  KILN_TRY(kiln_lower_want_inputs(lw, 3, 21));
  KILN_TRY(kiln_lower_string(lw, "quant_type", "int", &kind));
  if (strcmp(kind, "int") != 0)
    return KILN_FAIL(lw->cx->diag, KILN_UNSUPPORTED, lw->place, "quant_type: must be int, got %s",
                     kind);
  if (kiln_lower_in(lw, at[FC2].weights)) return lower_mixture(lw, at, 14);
  return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                   "fc2_experts_weights: must be given, got none");
}

const kiln_op kiln_op_moe[] = {
    {"com.microsoft", "MoE", 1, 0, lower_moe, NULL, "ops/moe.c"},
    {"com.microsoft", "QMoE", 1, 0, lower_quantised, NULL, "ops/moe.c"},
    {0},
};
