// Weight-only quantized products: weights of 2, 4 or 8 bits are unpacked where they are multiplied.
#include "fission/bits.h"

#include "analysis/interpret.h"
#include "fission/bytes.h"
#include "support/integer.h"

#include <math.h>
#include <string.h>

enum { BYTE = 8, WORD = 4, PANEL = 32 }; // a panel is half a cache line wide

static bool holds_several(const kiln_bit_packing *p, kiln_dtype t) {
  return kiln_dtype_bytes(t) * BYTE > p->bits;
}

const kiln_expr *kiln_bits_number(kiln_ctx *cx, const kiln_bit_packing *p, const kiln_expr *e,
                                  const kiln_expr *part) {
  if (!holds_several(p, e->dtype)) return e;
  const kiln_expr *shift = kiln_cast(cx, e->dtype, kiln_mul(cx, part, kiln_int(cx, p->bits)));
  return kiln_binary(cx, KILN_EXPR_BAND, kiln_binary(cx, KILN_EXPR_SHR, e, shift),
                     kiln_int_of(cx, e->dtype, (1 << p->bits) - 1));
}

kiln_tensor *kiln_bits_unpack(kiln_lower *lw, const kiln_bit_packing *p, const kiln_tensor *t,
                              int axis, const kiln_expr *extent) {
  kiln_ctx *cx = lw->cx;
  const kiln_expr *extents[KILN_MAX_RANK], *at[KILN_MAX_RANK];
  for (int i = 0; i < t->rank; i++) extents[i] = i == axis ? extent : t->shape[i];
  kiln_stmt *s = kiln_lower_stmt(lw, "zero_points", KILN_U8, t->rank, 0, extents);
  kiln_stmt_vars(cx, s, 0, t->rank, at);
  const kiln_expr *per_byte = kiln_int(cx, p->per_byte), *part = kiln_mod(cx, at[axis], per_byte);
  at[axis] = kiln_div(cx, at[axis], per_byte);
  s->body = kiln_bits_number(cx, p, kiln_tensor_load(cx, t, at), part);
  return kiln_lower_tensor(lw, s);
}

// --- products ---

// The product of A (.., K) and the weights (N, K).
typedef struct product {
  kiln_lower *lw;
  kiln_bit_packing pack;
  int64_t n, k, blocks;
  int64_t units, per_unit;           // bytes or words in a block, and numbers in one of them
  int64_t panel, panels;             // rows of weights that are interleaved; the last are padded
  const kiln_tensor *a, *b;          // b (panels, blocks, units, panel)
  const kiln_tensor *scales, *zeros; // (panels, blocks, panel); zeros NULL: 2^(bits - 1)
  kiln_dtype sum;
  bool by_bytes; // b has the halves of its words apart
} product;

static bool is_known(const kiln_tensor *t) { return !t || (t->role == KILN_CONST && t->data); }

// Whether every axis but the last is 1.
static bool is_one_row(const kiln_tensor *a) {
  bool is = true;
  for (int i = 0; i + 1 < a->rank; i++) is &= kiln_expr_is(a->shape[i], 1);
  return is;
}

// Whether there are so many rows, or an unknown number, that decoding all weights first costs
// little.
static bool has_many_rows(const kiln_tensor *a) {
  enum { MANY = 32 };
  int64_t rows = 1, extent = 0;
  for (int i = 0; i + 1 < a->rank; i++) {
    if (!kiln_expr_is_int(a->shape[i], &extent)) return true;
    rows *= extent;
  }
  return rows >= MANY;
}

// The bytes (N, blocks, bytes) reinterpreted as little-endian words; a constant stays in place.
static kiln_tensor *words_of(kiln_lower *lw, const kiln_tensor *t) {
  kiln_ctx *cx = lw->cx;
  int64_t shape[KILN_MAX_RANK];
  if (t->role == KILN_CONST && t->data && kiln_tensor_static_shape(t, shape)) {
    const kiln_const c = {.dtype = KILN_I32,
                          .rank = 3,
                          .shape = {shape[0], shape[1], shape[2] / WORD},
                          .data = t->data,
                          .bytes = t->bytes};
    return kiln_tensor_make_const(cx, lw->prog, kiln_symbol_text(cx, t->name), &c);
  }
  const kiln_expr *const extents[] = {t->shape[0], t->shape[1],
                                      kiln_div(cx, t->shape[2], kiln_int(cx, WORD))};
  const kiln_expr *v[3], *word = NULL;
  kiln_stmt *s = kiln_lower_stmt(lw, "words", KILN_I32, 3, 0, extents);
  kiln_stmt_vars(cx, s, 0, 3, v);
  for (int64_t i = WORD - 1; i >= 0; i--) {
    const kiln_expr *at = kiln_add(cx, kiln_mul(cx, v[2], kiln_int(cx, WORD)), kiln_int(cx, i));
    const kiln_expr *byte = kiln_cast(
        cx, KILN_I32, kiln_tensor_load(cx, t, (const kiln_expr *const[]){v[0], v[1], at}));
    const kiln_expr *shift = kiln_int_of(cx, KILN_I32, BYTE);
    word = word ? kiln_binary(cx, KILN_EXPR_BOR, kiln_binary(cx, KILN_EXPR_SHL, word, shift), byte)
                : byte;
  }
  s->body = word;
  return kiln_lower_tensor(lw, s);
}

// The word of eight numbers of 4 bits of which byte j has number j in its low bits and number j + 4
// in the high ones, for the word |w| of numbers in order.
static uint32_t with_halves_apart(uint32_t w) {
  enum { BITS = 4, HALF = 4 };
  uint32_t out = 0;
  for (int i = 0; i < 2 * HALF; i++)
    out |= (w >> (BITS * i) & 15u) << (BITS * (2 * (i % HALF) + i / HALF));
  return out;
}

// |t| (N, ..) as (panels, .., rows of a panel): vectors run along rows, and a panel is read
// contiguously. Constants are repacked at compile time, and padded with zeros; |change| is applied
// to their words.
static kiln_tensor *panels_of(kiln_lower *lw, const product *p, kiln_tensor *t,
                              uint32_t (*change)(uint32_t)) {
  const int64_t panels = p->panels;
  const int rank = t->rank + 1;
  kiln_const c = {.dtype = t->dtype, .rank = rank, .shape = {panels}};
  int64_t shape[KILN_MAX_RANK];
  int perm[KILN_MAX_RANK] = {0};
  if (t->role == KILN_CONST && t->data && kiln_tensor_static_shape(t, shape)) {
    const size_t size = (size_t)kiln_dtype_bytes(t->dtype), width = (size_t)p->panel;
    const size_t row = t->bytes / size / (size_t)p->n;
    c.bytes = row * size * width * (size_t)panels;
    char *to = kiln_arena_zalloc(&lw->cx->perm, c.bytes + 1);
    const char *from = t->data;
    for (size_t r = 0; r < (size_t)p->n; r++)
      for (size_t i = 0; i < row; i++) {
        char *at = to + ((r / width * row + i) * width + r % width) * size;
        uint32_t word = 0;
        memcpy(at, from + (r * row + i) * size, size);
        if (!change) continue;
        memcpy(&word, at, sizeof word);
        word = change(word);
        memcpy(at, &word, sizeof word);
      }
    for (int i = 1; i < t->rank; i++) c.shape[i] = shape[i];
    c.shape[t->rank] = p->panel;
    c.data = to;
    return kiln_tensor_make_const(lw->cx, lw->prog, kiln_symbol_text(lw->cx, t->name), &c);
  }
  const kiln_expr *extents[KILN_MAX_RANK] = {kiln_int(lw->cx, panels), kiln_int(lw->cx, p->panel)};
  for (int i = 1; i < t->rank; i++) {
    extents[i + 1] = t->shape[i];
    perm[i] = i + 1;
  }
  perm[t->rank] = 1;
  return kiln_lower_transpose(lw, kiln_lower_reshape(lw, t, rank, extents), perm);
}

// Number |part| of the unit at |v| = (panel, block, unit, row), before scale and zero point.
static const kiln_expr *number_at(const product *p, const kiln_expr *const *v,
                                  const kiln_expr *part) {
  kiln_ctx *cx = p->lw->cx;
  const kiln_expr *q = kiln_bits_number(cx, &p->pack, kiln_tensor_load(cx, p->b, v), part);
  return kiln_cast(cx, p->sum, kiln_cast(cx, KILN_I32, q));
}

// Scale and zero point of the block at |v| = (panel, block, row).
static const kiln_expr *scale_at(const product *p, const kiln_expr *const *v) {
  return kiln_cast(p->lw->cx, p->sum, kiln_tensor_load(p->lw->cx, p->scales, v));
}

static const kiln_expr *zero_at(const product *p, const kiln_expr *const *v) {
  kiln_ctx *cx = p->lw->cx;
  if (!p->zeros) return kiln_number(cx, p->sum, 1 << (p->pack.bits - 1));
  return kiln_cast(cx, p->sum, kiln_tensor_load(cx, p->zeros, v));
}

// A(lead.., k), or 0 if the last block extends past K.
static const kiln_expr *data_at(const product *p, const kiln_expr *const *lead,
                                const kiln_expr *k) {
  kiln_ctx *cx = p->lw->cx;
  const kiln_expr *at[KILN_MAX_RANK];
  for (int i = 0; i + 1 < p->a->rank; i++) at[i] = lead[i];
  at[p->a->rank - 1] = k;
  const kiln_expr *x = kiln_cast(cx, p->sum, kiln_tensor_load(cx, p->a, at));
  if (p->k % p->pack.block == 0) return x;
  return kiln_select(cx, kiln_compare(cx, KILN_EXPR_LT, k, kiln_int(cx, p->k)), x,
                     kiln_number(cx, p->sum, 0));
}

// The index k of number |part| of a unit of a block.
static const kiln_expr *place_of(const product *p, const kiln_expr *block, const kiln_expr *unit,
                                 const kiln_expr *part) {
  kiln_ctx *cx = p->lw->cx;
  const kiln_expr *k = kiln_add(cx, kiln_mul(cx, block, kiln_int(cx, p->units)), unit);
  return kiln_add(cx, kiln_mul(cx, k, kiln_int(cx, p->per_unit)), part);
}

// The first N columns of |t| (.., panels * panel).
static kiln_tensor *columns_of(const product *p, kiln_tensor *t) {
  kiln_ctx *cx = p->lw->cx;
  const kiln_expr *extents[KILN_MAX_RANK], *at[KILN_MAX_RANK];
  if (p->n == p->panels * p->panel) return t;
  for (int i = 0; i < t->rank; i++) extents[i] = t->shape[i];
  extents[t->rank - 1] = kiln_int(cx, p->n);
  kiln_stmt *s = kiln_lower_stmt(p->lw, "columns", t->dtype, t->rank, 0, extents);
  kiln_stmt_vars(cx, s, 0, t->rank, at);
  s->body = kiln_tensor_load(cx, t, at);
  return kiln_lower_tensor(p->lw, s);
}

// --- one row ---

// The product over unscaled numbers q, with scale and zero point applied once a block:
//     Y(n) = sum_b scale(n, b) * (sum_k A(b, k) q(n, b, k) - zero(n, b) * sum_k A(b, k))
static kiln_tensor *multiply_row(const product *p) {
  kiln_lower *lw = p->lw;
  kiln_ctx *cx = lw->cx;
  const kiln_expr *lead[KILN_MAX_RANK], *v[5], *extents[KILN_MAX_RANK];
  for (int i = 0; i < KILN_MAX_RANK; i++) lead[i] = kiln_int(cx, 0);
  const kiln_expr *const parts[] = {kiln_int(cx, p->panels), kiln_int(cx, p->blocks),
                                    kiln_int(cx, p->panel), kiln_int(cx, p->units),
                                    kiln_int(cx, p->per_unit)};
  kiln_stmt *in_block = kiln_lower_stmt(lw, "block_products", p->sum, 3, 2, parts);
  kiln_stmt_vars(cx, in_block, 0, 5, v);
  const kiln_expr *const unit[] = {v[0], v[1], v[3], v[2]};
  in_block->body =
      kiln_mul(cx, data_at(p, lead, place_of(p, v[1], v[3], v[4])), number_at(p, unit, v[4]));
  in_block->combiner = KILN_COMBINE_SUM;
  kiln_stmt *rows =
      kiln_lower_stmt(lw, "block_sums", p->sum, 1, 1,
                      (const kiln_expr *const[]){parts[1], kiln_int(cx, p->pack.block)});
  kiln_stmt_vars(cx, rows, 0, 2, v);
  rows->body =
      data_at(p, lead, kiln_add(cx, kiln_mul(cx, v[0], kiln_int(cx, p->pack.block)), v[1]));
  rows->combiner = KILN_COMBINE_SUM;
  kiln_stmt *s = kiln_lower_stmt(lw, "product", p->sum, 2, 1,
                                 (const kiln_expr *const[]){parts[0], parts[2], parts[1]});
  kiln_stmt_vars(cx, s, 0, 3, v);
  const kiln_expr *const at[] = {v[0], v[2], v[1]};
  const kiln_expr *sum = kiln_tensor_load(cx, kiln_lower_tensor(lw, in_block), at),
                  *row = kiln_tensor_load(cx, kiln_lower_tensor(lw, rows), &v[2]);
  s->body = kiln_mul(cx, scale_at(p, at), kiln_sub(cx, sum, kiln_mul(cx, zero_at(p, at), row)));
  s->combiner = KILN_COMBINE_SUM;
  for (int i = 0; i + 1 < p->a->rank; i++) extents[i] = p->a->shape[i];
  extents[p->a->rank - 1] = kiln_int(cx, p->panels * p->panel);
  return columns_of(p, kiln_lower_reshape(lw, kiln_lower_tensor(lw, s), p->a->rank, extents));
}

// --- few rows ---

// Rows are inside of panels, so that a tile of rows shares the decoded weights.
static kiln_tensor *multiply_tiles(const product *p) {
  kiln_ctx *cx = p->lw->cx;
  const int lead = p->a->rank - 1, n_space = lead + 2;
  enum { N_REDUCE = 3 };
  const kiln_expr *extents[KILN_MAX_RANK + 4], *v[KILN_MAX_RANK + 4];
  int perm[KILN_MAX_RANK];
  extents[0] = kiln_int(cx, p->panels);
  for (int i = 0; i < lead; i++) extents[1 + i] = p->a->shape[i];
  extents[lead + 1] = kiln_int(cx, p->panel);
  extents[n_space] = kiln_int(cx, p->blocks);
  extents[n_space + 1] = kiln_int(cx, p->units);
  extents[n_space + 2] = kiln_int(cx, p->per_unit);
  kiln_stmt *s = kiln_lower_stmt(p->lw, "product", p->sum, n_space, N_REDUCE, extents);
  kiln_stmt_vars(cx, s, 0, n_space + N_REDUCE, v);
  const kiln_expr *const at[] = {v[0], v[n_space], v[n_space + 1], v[lead + 1]},
                         *const in_block[] = {v[0], v[n_space], v[lead + 1]};
  const kiln_expr *part = v[n_space + 2];
  const kiln_expr *x = data_at(p, v + 1, place_of(p, v[n_space], v[n_space + 1], part)),
                  *q = kiln_sub(cx, number_at(p, at, part), zero_at(p, in_block));
  s->body = kiln_mul(cx, x, kiln_mul(cx, q, scale_at(p, in_block)));
  s->combiner = KILN_COMBINE_SUM;
  for (int i = 0; i < n_space; i++) perm[i] = i < lead ? i + 1 : i == lead ? 0 : i;
  kiln_tensor *y = kiln_lower_transpose(p->lw, kiln_lower_tensor(p->lw, s), perm);
  extents[lead + 1] = kiln_int(cx, p->panels * p->panel);
  return columns_of(p, kiln_lower_reshape(p->lw, y, lead + 1, extents + 1));
}

// --- rows in bytes ---

// Rows quantised as |accuracy_level| 4 allows: those of a block share a step d, and are multiplied
// by the numbers as they are stored, in bytes:
//     d(m, b) = max_k |A(m, b, k)| / 127      c(m, b, k) = round(A(m, b, k) / d(m, b))
//     Y(m, n) = sum_b scale(n, b) d(m, b)
//                     (sum_k c(m, b, k) q(n, b, k) - zero(n, b) sum_k c(m, b, k))
// Byte j of a unit's weights holds its numbers j and j + 4, so that they meet four codes in a row.
typedef struct quantised_rows {
  const product *p;
  int lead;                                    // axes of the rows, before blocks
  const kiln_expr *extents[KILN_MAX_RANK + 4]; // of these, and more
  const kiln_tensor *steps, *codes, *sums;
} quantised_rows;

enum { HALVES = 2, LEAST_STEP_LOG2 = -120 }; // smaller steps, whose inverse may overflow, are 0

// A(row, k); |v| has the row's indices first.
static const kiln_expr *row_at(const quantised_rows *r, const kiln_expr *const *v,
                               const kiln_expr *k) {
  const kiln_expr *at[KILN_MAX_RANK];
  for (int i = 0; i + 1 < r->p->a->rank; i++) at[i] = r->lead ? v[i] : kiln_int(r->p->lw->cx, 0);
  return data_at(r->p, at, k);
}

static kiln_tensor *steps_of(const quantised_rows *r) {
  enum { MOST = 127 };
  const product *p = r->p;
  kiln_ctx *cx = p->lw->cx;
  const kiln_expr *extents[KILN_MAX_RANK + 1], *v[KILN_MAX_RANK + 1];
  for (int i = 0; i <= r->lead; i++) extents[i] = r->extents[i];
  extents[r->lead + 1] = kiln_int(cx, p->pack.block);
  kiln_stmt *peaks = kiln_lower_stmt(p->lw, "peaks", p->sum, r->lead + 1, 1, extents);
  kiln_stmt_vars(cx, peaks, 0, r->lead + 2, v);
  const kiln_expr *k = kiln_add(cx, kiln_mul(cx, v[r->lead], extents[r->lead + 1]), v[r->lead + 1]);
  peaks->body = kiln_unary(cx, KILN_EXPR_ABS, row_at(r, v, k));
  peaks->combiner = KILN_COMBINE_MAX;
  const kiln_tensor *peak = kiln_lower_tensor(p->lw, peaks);
  kiln_stmt *s = kiln_lower_stmt(p->lw, "steps", p->sum, r->lead + 1, 0, extents);
  kiln_stmt_vars(cx, s, 0, r->lead + 1, v);
  s->body =
      kiln_binary(cx, KILN_EXPR_DIV, kiln_tensor_load(cx, peak, v), kiln_number(cx, p->sum, MOST));
  return kiln_lower_tensor(p->lw, s);
}

// (rows, blocks, units, halves, bytes of a word)
static kiln_tensor *codes_of(const quantised_rows *r) {
  const product *p = r->p;
  kiln_ctx *cx = p->lw->cx;
  const int b = r->lead;
  const kiln_expr *v[KILN_MAX_RANK + 4];
  kiln_stmt *s = kiln_lower_stmt(p->lw, "codes", KILN_I8, b + 4, 0, r->extents);
  kiln_stmt_vars(cx, s, 0, b + 4, v);
  const kiln_expr *part = kiln_add(cx, kiln_mul(cx, v[b + 2], kiln_int(cx, WORD)), v[b + 3]);
  const kiln_expr *x = row_at(r, v, place_of(p, v[b], v[b + 1], part)),
                  *step = kiln_tensor_load(cx, r->steps, v), *one = kiln_number(cx, p->sum, 1);
  const kiln_expr *is_enough =
      kiln_compare(cx, KILN_EXPR_GT, step, kiln_number(cx, p->sum, ldexp(1, LEAST_STEP_LOG2)));
  const kiln_expr *inverse = kiln_select(cx, is_enough, kiln_binary(cx, KILN_EXPR_DIV, one, step),
                                         kiln_number(cx, p->sum, 0));
  s->body = kiln_cast(cx, KILN_I8, kiln_unary(cx, KILN_EXPR_ROUND, kiln_mul(cx, x, inverse)));
  return kiln_lower_tensor(p->lw, s);
}

// What the middle of the numbers adds to the products of a block, or, where zero points are given,
// the sum of its codes.
static kiln_tensor *sums_of(const quantised_rows *r) {
  const product *p = r->p;
  kiln_ctx *cx = p->lw->cx;
  const int b = r->lead;
  const kiln_expr *v[KILN_MAX_RANK + 4];
  kiln_stmt *s = kiln_lower_stmt(p->lw, "code_sums", KILN_I32, b + 1, 3, r->extents);
  kiln_stmt_vars(cx, s, 0, b + 4, v);
  s->body = kiln_cast(cx, KILN_I32, kiln_tensor_load(cx, r->codes, v));
  if (!p->zeros)
    s->body = kiln_mul(cx, s->body, kiln_int_of(cx, KILN_I32, 1 << (p->pack.bits - 1)));
  s->combiner = KILN_COMBINE_SUM;
  return kiln_lower_tensor(p->lw, s);
}

// The words of the weights as bytes.
static kiln_tensor *bytes_of(const product *p) {
  const kiln_tensor *t = p->b;
  kiln_const c = {.dtype = KILN_U8, .rank = t->rank + 1, .data = t->data, .bytes = t->bytes};
  (void)kiln_tensor_static_shape(t, c.shape);
  c.shape[t->rank] = WORD;
  return kiln_tensor_make_const(p->lw->cx, p->lw->prog, kiln_symbol_text(p->lw->cx, t->name), &c);
}

// sum_k c(m, b, k) q(n, b, k): (panels, rows, blocks, columns of a panel)
static kiln_tensor *multiply_codes(const quantised_rows *r) {
  const product *p = r->p;
  kiln_ctx *cx = p->lw->cx;
  const int n_space = r->lead + 3;
  const kiln_tensor *weights = bytes_of(p);
  const kiln_expr *extents[KILN_MAX_RANK + 4], *v[KILN_MAX_RANK + 4], *at[KILN_MAX_RANK + 4];
  extents[0] = kiln_int(cx, p->panels);
  for (int i = 0; i <= r->lead; i++) extents[1 + i] = r->extents[i];
  extents[r->lead + 2] = kiln_int(cx, p->panel);
  extents[n_space] = kiln_int(cx, p->units);
  extents[n_space + 1] = kiln_int(cx, WORD);
  kiln_stmt *s = kiln_lower_stmt(p->lw, "code_products", KILN_I32, n_space, 2, extents);
  kiln_stmt_vars(cx, s, 0, n_space + 2, v);
  const kiln_expr *block = v[r->lead + 1], *unit = v[n_space], *byte = v[n_space + 1];
  const kiln_expr *const in_weights[] = {v[0], block, unit, v[r->lead + 2], byte};
  const kiln_expr *w = kiln_tensor_load(cx, weights, in_weights), *sum = NULL;
  for (int i = 0; i <= r->lead; i++) at[i] = v[1 + i];
  at[r->lead + 1] = unit;
  at[r->lead + 3] = byte;
  for (int half = 0; half < HALVES; half++) {
    at[r->lead + 2] = kiln_int(cx, half);
    const kiln_expr *q =
        half
            ? kiln_binary(cx, KILN_EXPR_SHR, w, kiln_int_of(cx, KILN_U8, p->pack.bits))
            : kiln_binary(cx, KILN_EXPR_BAND, w, kiln_int_of(cx, KILN_U8, (1 << p->pack.bits) - 1));
    const kiln_expr *term =
        kiln_mul(cx, kiln_cast(cx, KILN_I32, kiln_tensor_load(cx, r->codes, at)),
                 kiln_cast(cx, KILN_I32, q));
    sum = sum ? kiln_add(cx, sum, term) : term;
  }
  s->body = sum;
  s->combiner = KILN_COMBINE_SUM;
  return kiln_lower_tensor(p->lw, s);
}

static kiln_tensor *scale_blocks(const quantised_rows *r, const kiln_tensor *products) {
  const product *p = r->p;
  kiln_ctx *cx = p->lw->cx;
  const int n_space = r->lead + 2;
  const kiln_expr *extents[KILN_MAX_RANK + 4], *v[KILN_MAX_RANK + 4], *at[KILN_MAX_RANK + 4];
  extents[0] = kiln_int(cx, p->panels);
  for (int i = 0; i < r->lead; i++) extents[1 + i] = r->extents[i];
  extents[r->lead + 1] = kiln_int(cx, p->panel);
  extents[n_space] = kiln_int(cx, p->blocks);
  kiln_stmt *s = kiln_lower_stmt(p->lw, "product", p->sum, n_space, 1, extents);
  kiln_stmt_vars(cx, s, 0, n_space + 1, v);
  for (int i = 0; i <= r->lead; i++) at[i] = v[i];
  at[r->lead + 1] = v[n_space];
  at[r->lead + 2] = v[r->lead + 1];
  const kiln_expr *const in_block[] = {v[0], v[n_space], v[r->lead + 1]};
  const kiln_expr *t = kiln_tensor_load(cx, products, at),
                  *sum = kiln_tensor_load(cx, r->sums, at + 1),
                  *step = kiln_tensor_load(cx, r->steps, at + 1);
  if (p->zeros)
    t = kiln_sub(cx, kiln_cast(cx, p->sum, t),
                 kiln_mul(cx, zero_at(p, in_block), kiln_cast(cx, p->sum, sum)));
  else t = kiln_cast(cx, p->sum, kiln_sub(cx, t, sum));
  s->body = kiln_mul(cx, scale_at(p, in_block), kiln_mul(cx, step, t));
  s->combiner = KILN_COMBINE_SUM;
  return kiln_lower_tensor(p->lw, s);
}

static kiln_tensor *multiply_bytes(const product *p) {
  kiln_ctx *cx = p->lw->cx;
  const int rank = p->a->rank;
  int perm[KILN_MAX_RANK];
  const kiln_expr *shape[KILN_MAX_RANK + 1];
  quantised_rows r = {.p = p, .lead = is_one_row(p->a) ? 0 : rank - 1};
  for (int i = 0; i < r.lead; i++) r.extents[i] = p->a->shape[i];
  r.extents[r.lead] = kiln_int(cx, p->blocks);
  r.extents[r.lead + 1] = kiln_int(cx, p->units);
  r.extents[r.lead + 2] = kiln_int(cx, HALVES);
  r.extents[r.lead + 3] = kiln_int(cx, WORD);
  r.steps = steps_of(&r);
  r.codes = codes_of(&r);
  r.sums = sums_of(&r);
  kiln_tensor *y = scale_blocks(&r, multiply_codes(&r));
  for (int i = 0; i <= r.lead + 1; i++) perm[i] = i < r.lead ? i + 1 : i == r.lead ? 0 : i;
  if (r.lead) y = kiln_lower_transpose(p->lw, y, perm);
  for (int i = 0; i + 1 < rank; i++) shape[i] = p->a->shape[i];
  shape[rank - 1] = kiln_int(cx, p->panels * p->panel);
  return columns_of(p, kiln_lower_reshape(p->lw, y, rank, shape));
}

// --- many rows ---

// The weights (K, N), decoded once a run (kiln_stmt_decodes).
static kiln_tensor *decode(const product *p) {
  kiln_ctx *cx = p->lw->cx;
  const kiln_expr *const extents[] = {kiln_int(cx, p->k), kiln_int(cx, p->n)};
  const kiln_expr *v[2];
  kiln_stmt *s = kiln_lower_stmt(p->lw, "decoded", p->sum, 2, 0, extents);
  kiln_stmt_vars(cx, s, 0, 2, v);
  const kiln_expr *panel = kiln_int(cx, p->panel), *block = kiln_int(cx, p->pack.block),
                  *per_unit = kiln_int(cx, p->per_unit);
  const kiln_expr *unit = kiln_div(cx, kiln_mod(cx, v[0], block), per_unit);
  const kiln_expr *const at[] = {kiln_div(cx, v[1], panel), kiln_div(cx, v[0], block), unit,
                                 kiln_mod(cx, v[1], panel)},
                         *const in_block[] = {at[0], at[1], at[3]};
  const kiln_expr *q = number_at(p, at, kiln_mod(cx, v[0], per_unit));
  s->body = kiln_mul(cx, kiln_sub(cx, q, zero_at(p, in_block)), scale_at(p, in_block));
  kiln_stmt_tidy(cx, s);
  return kiln_lower_tensor(p->lw, s);
}

static bool takes_bytes(const kiln_tensor *a, const kiln_bit_weights *w) {
  const int lead = is_one_row(a) ? 0 : a->rank - 1;
  bool can = w->may_quantise && w->pack.bits == 4 && kiln_accumulator(a->dtype) == KILN_F32 &&
             is_known(w->codes) && lead + 4 <= KILN_MAX_RANK;
  for (int i = 0; i < lead; i++) can &= kiln_expr_is_int(a->shape[i], NULL);
  return can;
}

static product product_of(kiln_lower *lw, const kiln_tensor *a, const kiln_bit_weights *w) {
  const int64_t bytes = w->pack.block / w->pack.per_byte;
  const bool can_pad = is_known(w->codes) && is_known(w->scales) && is_known(w->zeros);
  product p = {.lw = lw, .pack = w->pack, .n = w->n, .k = w->k, .a = a};
  p.blocks = kiln_divide_up(p.k, p.pack.block);
  p.sum = kiln_accumulator(a->dtype);
  p.panel = p.n % PANEL == 0 || can_pad ? PANEL : p.n;
  p.panels = kiln_divide_up(p.n, p.panel);
  p.units = bytes / WORD;
  p.per_unit = p.pack.per_byte * WORD;
  p.by_bytes = takes_bytes(a, w);
  p.b = panels_of(lw, &p, words_of(lw, w->codes), p.by_bytes ? with_halves_apart : NULL);
  p.scales = panels_of(lw, &p, w->scales, NULL);
  if (w->zeros) p.zeros = panels_of(lw, &p, w->zeros, NULL);
  if (w->packs_zeros)
    p.zeros = kiln_bits_unpack(lw, &p.pack, p.zeros, 1, kiln_int(lw->cx, p.blocks));
  return p;
}

kiln_status kiln_bits_multiply(kiln_lower *lw, kiln_tensor *a, const kiln_bit_weights *w,
                               kiln_tensor **out) {
  const product p = product_of(lw, a, w);
  if (p.by_bytes) *out = multiply_bytes(&p);
  else if (is_one_row(a)) *out = multiply_row(&p);
  else if (has_many_rows(a)) {
    KILN_TRY(kiln_lower_cast(lw, a, p.sum, &a));
    return kiln_lower_matmul(lw, a, decode(&p), p.sum, out);
  } else *out = multiply_tiles(&p);
  return KILN_OK;
}

// --- dequantized weights ---

// The bits that values of type |t| are packed in, and the shift that makes them unsigned; 0: not
// packable.
static int64_t bits_of(kiln_dtype t, int64_t *out_shift) {
  const kiln_encoding_format *f = kiln_dtype_is_code(t) ? kiln_encoding_format_of(t) : NULL;
  *out_shift = 0;
  if (!f || (f->kind != KILN_ENCODING_INT && f->kind != KILN_ENCODING_UINT)) return 0;
  if (f->kind == KILN_ENCODING_INT) *out_shift = f->most + 1;
  return f->most + *out_shift > 3 ? 4 : 2;
}

// The index into |t| (scales or zero points of weights (K, N)) for weight (k, n).
static int64_t spread_at(const kiln_quantised *q, const kiln_tensor *t, int64_t k, int64_t n,
                         int64_t columns) {
  if (kiln_tensor_is_scalar(t)) return 0;
  if (t->rank == 1) return n;
  return (q->granularity.block ? k / q->granularity.block : k) * columns + n;
}

static kiln_tensor *constant(kiln_lower *lw, const char *name, kiln_dtype t, int rank,
                             const int64_t *shape, const void *data) {
  kiln_const c = {.dtype = t, .rank = rank, .bytes = (size_t)kiln_dtype_bytes(t), .data = data};
  for (int i = 0; i < rank; i++) c.bytes *= (size_t)(c.shape[i] = shape[i]);
  return kiln_tensor_make_const(lw->cx, lw->prog, name, &c);
}

static void pack_codes(kiln_lower *lw, const kiln_quantised *q, int64_t shift,
                       kiln_bit_weights *w) {
  const int64_t blocks = kiln_divide_up(w->k, w->pack.block),
                bytes = w->pack.block / w->pack.per_byte;
  const int64_t shape[] = {w->n, blocks, bytes};
  uint8_t *codes = kiln_arena_zalloc(&lw->cx->perm, (size_t)(w->n * blocks * bytes));
  for (int64_t n = 0; n < w->n; n++)
    for (int64_t k = 0; k < w->k; k++) {
      const int64_t code = (int64_t)kiln_element_get(q->codes->dtype, q->codes->data, k * w->n + n);
      codes[n * blocks * bytes + k / w->pack.per_byte] |=
          (uint8_t)((code + shift) << k % w->pack.per_byte * w->pack.bits);
    }
  w->codes = constant(lw, "packed", KILN_U8, 3, shape, codes);
}

// Scales and zero points for each block of each row; no zero points if all are 2^(bits - 1).
static void spread_parameters(kiln_lower *lw, const kiln_quantised *q, int64_t shift,
                              kiln_bit_weights *w) {
  const int64_t blocks = kiln_divide_up(w->k, w->pack.block), shape[] = {w->n, blocks};
  float *scales = kiln_arena_alloc(&lw->cx->perm, (size_t)(w->n * blocks) * sizeof *scales);
  uint8_t *zeros = kiln_arena_alloc(&lw->cx->perm, (size_t)(w->n * blocks));
  bool all_middle = true;
  for (int64_t n = 0; n < w->n; n++)
    for (int64_t b = 0; b < blocks; b++) {
      const int64_t k = b * w->pack.block;
      scales[n * blocks + b] = (float)kiln_element_get(q->scale->dtype, q->scale->data,
                                                       spread_at(q, q->scale, k, n, w->n));
      const int64_t zero = q->zero ? (int64_t)kiln_element_get(q->zero->dtype, q->zero->data,
                                                               spread_at(q, q->zero, k, n, w->n))
                                   : 0;
      zeros[n * blocks + b] = (uint8_t)(zero + shift);
      all_middle &= zero + shift == 1 << (w->pack.bits - 1);
    }
  w->scales = constant(lw, "scales", KILN_F32, 2, shape, scales);
  w->zeros = all_middle ? NULL : constant(lw, "zero_points", KILN_U8, 2, shape, zeros);
}

// Whether the layout of |t|, scales or zero points, is one that spread_at handles.
static bool lies_by_columns(const kiln_quantised *q, const kiln_tensor *t) {
  return !t || kiln_tensor_is_scalar(t) || (t->rank == 1 && q->granularity.axis == 1) ||
         (t->rank == 2 && q->granularity.axis == 0 && q->granularity.block > 0);
}

// Block size: the numbers that share a scale, a power of 2; 0 if there is none.
static int64_t block_of(const kiln_quantised *q, int64_t k) {
  enum { FEWEST = 16, MOST = 128 };
  int64_t block = q->granularity.axis == 0 ? q->granularity.block : 0;
  if (block == 0) // one scale a column
    for (block = MOST; block > FEWEST && k % block != 0;) block /= 2;
  return block < FEWEST || (block & (block - 1)) ? 0 : block;
}

bool kiln_bits_find(kiln_lower *lw, const kiln_tensor *weights, kiln_bit_weights *out) {
  const kiln_quantised *q = kiln_lower_quantised(lw, weights);
  int64_t shape[KILN_MAX_RANK], shift = 0;
  *out = (kiln_bit_weights){0};
  if (!q || weights->dtype != KILN_F32 || weights->rank != 2 || !is_known(q->codes) ||
      !is_known(q->scale) || !is_known(q->zero) || !lies_by_columns(q, q->scale) ||
      !lies_by_columns(q, q->zero) || !kiln_dtype_is_float(q->scale->dtype) ||
      !kiln_tensor_static_shape(weights, shape))
    return false;
  out->pack.bits = bits_of(q->codes->dtype, &shift);
  out->pack.block = block_of(q, shape[0]);
  if (!out->pack.bits || !out->pack.block || shape[0] == 0 || shape[1] == 0) return false;
  out->pack.per_byte = BYTE / out->pack.bits;
  out->k = shape[0];
  out->n = shape[1];
  pack_codes(lw, q, shift, out);
  spread_parameters(lw, q, shift, out);
  return true;
}
