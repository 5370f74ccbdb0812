// Weights of 2, 4 or 8 bits in blocks that share a scale: MatMulNBits, whose module holds them packed; few rows
// decode them where the product reads them, many once a run; and GatherBlockQuantized. source: ONNX Runtime's
// MatMulNBits, GatherBlockQuantized
#include "fission/terms.h"

#include <string.h>

enum { BYTE = 8, WORD = 4, PANEL = 32 }; // panels are half a line of a cache wide

// Numbers of |bits| bits, |per_byte| of them in a byte, the first in its low bits.
typedef struct packing {
  int64_t bits, per_byte, block;
} packing;

static bool holds_several(const packing *p, kiln_dtype t) {
  return kiln_dtype_bytes(t) * BYTE > p->bits;
}

static kiln_status read_packing(kiln_lower *lw, packing *out) {
  KILN_TRY(kiln_lower_int(lw, "bits", 4, &out->bits));
  KILN_TRY(kiln_lower_int(lw, "block_size", 128, &out->block));
  if (out->bits != 2 && out->bits != 4 && out->bits != 8)
    return KILN_FAIL(lw->cx->diag, KILN_UNSUPPORTED, lw->place,
                     "bits: must be 2, 4 or 8, got %" PRId64, out->bits);
  if (out->block < 16 || (out->block & (out->block - 1)) != 0)
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                     "block_size: must be a power of 2, at least 16, got %" PRId64, out->block);
  out->per_byte = BYTE / out->bits;
  return KILN_OK;
}

// Number |part| of the byte or word |e|, in its type.
static const kiln_expr *unpacked(kiln_ctx *cx, const packing *p, const kiln_expr *e,
                                 const kiln_expr *part) {
  if (!holds_several(p, e->dtype)) return e;
  const kiln_expr *shift = kiln_cast(cx, e->dtype, kiln_mul(cx, part, kiln_int(cx, p->bits)));
  return kiln_binary(cx, KILN_EXPR_BAND, kiln_binary(cx, KILN_EXPR_SHR, e, shift),
                     kiln_int_of(cx, e->dtype, (1 << p->bits) - 1));
}

// What |t| packs along |axis|, |extent| numbers, not packed.
static kiln_tensor *unpack(kiln_lower *lw, const packing *p, const kiln_tensor *t, int axis,
                           const kiln_expr *extent) {
  kiln_ctx *cx = lw->cx;
  const kiln_expr *extents[KILN_MAX_RANK], *at[KILN_MAX_RANK];
  for (int i = 0; i < t->rank; i++) extents[i] = i == axis ? extent : t->shape[i];
  kiln_stmt *s = kiln_lower_stmt(lw, "zero_points", KILN_U8, t->rank, 0, extents);
  kiln_stmt_vars(cx, s, 0, t->rank, at);
  const kiln_expr *per_byte = kiln_int(cx, p->per_byte), *part = kiln_mod(cx, at[axis], per_byte);
  at[axis] = kiln_div(cx, at[axis], per_byte);
  s->body = unpacked(cx, p, kiln_tensor_load(cx, t, at), part);
  return kiln_lower_tensor(lw, s);
}

// --- MatMulNBits ---

// The product of A (.., K) and the weights (N, K).
typedef struct product {
  kiln_lower *lw;
  packing pack;
  int64_t n, k, blocks;
  int64_t units, per_unit;           // bytes of a block, or words, and the numbers in one
  int64_t panel;                     // rows of the weights that lie together
  const kiln_tensor *a, *b;          // b (panels, blocks, units, panel)
  const kiln_tensor *scales, *zeros; // (panels, blocks, panel); zeros: NULL: the middle
  kiln_dtype sum;
} product;

// Whether every axis but the last is 1.
static bool is_one_row(const kiln_tensor *a) {
  bool is = true;
  for (int i = 0; i + 1 < a->rank; i++) is &= kiln_expr_is(a->shape[i], 1);
  return is;
}

// Whether there are so many rows that decoding takes little beside them, or nobody knows.
static bool has_many_rows(const kiln_tensor *a) {
  enum { MANY = 32 };
  int64_t rows = 1, extent = 0;
  for (int i = 0; i + 1 < a->rank; i++) {
    if (!kiln_expr_is_int(a->shape[i], &extent)) return true;
    rows *= extent;
  }
  return rows >= MANY;
}

static bool is_few(const kiln_tensor *a) { return !is_one_row(a) && !has_many_rows(a); }

// The bytes (N, blocks, bytes) as words of little endian, which a constant's are where they lie.
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

// |t| (N, ..) as (panels, .., rows of a panel): vectors run along the rows, and a panel is read from its begin
// to its end. Constants are laid so in their bytes.
static kiln_tensor *panels_of(kiln_lower *lw, const product *p, kiln_tensor *t) {
  const int64_t panels = p->n / p->panel;
  const int rank = t->rank + 1;
  kiln_const c = {.dtype = t->dtype, .rank = rank, .bytes = t->bytes, .shape = {panels}};
  int64_t shape[KILN_MAX_RANK];
  int perm[KILN_MAX_RANK] = {0};
  if (t->role == KILN_CONST && t->data && kiln_tensor_static_shape(t, shape)) {
    const size_t size = (size_t)kiln_dtype_bytes(t->dtype), width = (size_t)p->panel;
    const size_t row = t->bytes / size / (size_t)p->n;
    char *to = kiln_arena_alloc(&lw->cx->perm, t->bytes + 1);
    const char *from = t->data;
    for (size_t r = 0; r < (size_t)p->n; r++)
      for (size_t i = 0; i < row; i++)
        memcpy(to + ((r / width * row + i) * width + r % width) * size, from + (r * row + i) * size,
               size);
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

// Input |i| as (rows, columns): older models have it flat.
static kiln_status table(kiln_lower *lw, int i, int64_t rows, int64_t columns, kiln_tensor **out) {
  const kiln_expr *shape[] = {kiln_int(lw->cx, rows), kiln_int(lw->cx, columns)};
  kiln_tensor *t = lw->inputs[i];
  *out = t;
  if (t->rank == 1) {
    KILN_TRY(kiln_lower_want_extent(lw, t, 0, kiln_int(lw->cx, rows * columns)));
    *out = kiln_lower_reshape(lw, t, 2, shape);
    return KILN_OK;
  }
  KILN_TRY(kiln_lower_want_rank(lw, t, 2, 2));
  KILN_TRY(kiln_lower_want_extent(lw, t, 0, shape[0]));
  return kiln_lower_want_extent(lw, t, 1, shape[1]);
}

static bool is_u8(kiln_dtype t) { return t == KILN_U8; }

static kiln_status read_product(kiln_lower *lw, product *p) {
  enum { A, B, SCALES, ZEROS, GROUPS };
  kiln_ctx *cx = lw->cx;
  int64_t prepacked = 0;
  KILN_TRY(kiln_lower_want_inputs(lw, 3, 6));
  KILN_TRY(kiln_lower_want_dtype(lw, A, kiln_dtype_is_float, "a float"));
  KILN_TRY(kiln_lower_want_dtype(lw, B, is_u8, "u8"));
  KILN_TRY(kiln_lower_want_dtype(lw, SCALES, kiln_dtype_is_float, "a float"));
  KILN_TRY(kiln_lower_int(lw, "N", 0, &p->n));
  KILN_TRY(kiln_lower_int(lw, "K", 0, &p->k));
  KILN_TRY(kiln_lower_int(lw, "weight_prepacked", 0, &prepacked));
  KILN_TRY(read_packing(lw, &p->pack));
  if (p->n < 1 || p->k < 1)
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, lw->place,
                     "N and K: must be positive, got %" PRId64 " and %" PRId64, p->n, p->k);
  if (kiln_lower_in(lw, GROUPS) || prepacked)
    return KILN_FAIL(cx->diag, KILN_UNSUPPORTED, lw->place,
                     "g_idx and weight_prepacked: must be left out");
  p->a = lw->inputs[A];
  p->sum = kiln_accumulator(p->a->dtype);
  KILN_TRY(kiln_lower_want_rank(lw, p->a, 1, KILN_MAX_RANK - 1));
  KILN_TRY(kiln_lower_want_extent(lw, p->a, p->a->rank - 1, kiln_int(cx, p->k)));
  p->blocks = (p->k + p->pack.block - 1) / p->pack.block;
  const int64_t bytes = p->pack.block / p->pack.per_byte;
  const kiln_expr *shape[] = {kiln_int(cx, p->n), kiln_int(cx, p->blocks), kiln_int(cx, bytes)};
  KILN_TRY(kiln_lower_want_rank(lw, lw->inputs[B], 3, 3));
  for (int i = 0; i < 3; i++) KILN_TRY(kiln_lower_want_extent(lw, lw->inputs[B], i, shape[i]));
  p->panel = p->n % PANEL == 0 ? PANEL : p->n;
  const int64_t unit = is_few(p->a) ? 1 : WORD;
  p->units = bytes / unit;
  p->per_unit = p->pack.per_byte * unit;
  p->b = panels_of(lw, p, unit == 1 ? lw->inputs[B] : words_of(lw, lw->inputs[B]));
  kiln_tensor *scales = NULL, *zeros = NULL;
  KILN_TRY(table(lw, SCALES, p->n, p->blocks, &scales));
  p->scales = panels_of(lw, p, scales);
  if (!kiln_lower_in(lw, ZEROS)) return KILN_OK;
  const bool is_packed = lw->inputs[ZEROS]->dtype == KILN_U8;
  const int64_t per_byte = is_packed ? p->pack.per_byte : 1;
  KILN_TRY(table(lw, ZEROS, p->n, (p->blocks + per_byte - 1) / per_byte, &zeros));
  p->zeros = panels_of(lw, p, zeros);
  if (is_packed) p->zeros = unpack(lw, &p->pack, p->zeros, 1, shape[1]);
  return KILN_OK;
}

// Number |part| of the unit at |v| = (panel, block, unit, row), as it is stored.
static const kiln_expr *number_at(const product *p, const kiln_expr *const *v,
                                  const kiln_expr *part) {
  kiln_ctx *cx = p->lw->cx;
  const kiln_expr *q = unpacked(cx, &p->pack, kiln_tensor_load(cx, p->b, v), part);
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

// A at (lead.., k); 0 where a last block is longer than the rows.
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

// The place in a row of number |part| of a unit of a block.
static const kiln_expr *place_of(const product *p, const kiln_expr *block, const kiln_expr *unit,
                                 const kiln_expr *part) {
  kiln_ctx *cx = p->lw->cx;
  const kiln_expr *k = kiln_add(cx, kiln_mul(cx, block, kiln_int(cx, p->units)), unit);
  return kiln_add(cx, kiln_mul(cx, k, kiln_int(cx, p->per_unit)), part);
}

// --- one row ---

// Sums over blocks of A times what is stored, whose scales and zero points come afterwards:
//     Y(n) = sum_b scale(n, b) * (sum_k A(b, k) q(n, b, k) - zero(n, b) * sum_k A(b, k))
static kiln_tensor *multiply_row(const product *p) {
  kiln_lower *lw = p->lw;
  kiln_ctx *cx = lw->cx;
  const kiln_expr *lead[KILN_MAX_RANK], *v[5], *extents[KILN_MAX_RANK];
  for (int i = 0; i < KILN_MAX_RANK; i++) lead[i] = kiln_int(cx, 0);
  const kiln_expr *const parts[] = {kiln_int(cx, p->n / p->panel), kiln_int(cx, p->blocks),
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
  extents[p->a->rank - 1] = kiln_int(cx, p->n);
  return kiln_lower_reshape(lw, kiln_lower_tensor(lw, s), p->a->rank, extents);
}

// --- few rows ---

// Rows stand inside of panels, so that a tile of them shares what is decoded.
static kiln_tensor *multiply_tiles(const product *p) {
  kiln_ctx *cx = p->lw->cx;
  const int lead = p->a->rank - 1, n_space = lead + 2;
  const int n_reduce = p->per_unit == 1 ? 2 : 3;
  const kiln_expr *extents[KILN_MAX_RANK + 4], *v[KILN_MAX_RANK + 4];
  int perm[KILN_MAX_RANK];
  extents[0] = kiln_int(cx, p->n / p->panel);
  for (int i = 0; i < lead; i++) extents[1 + i] = p->a->shape[i];
  extents[lead + 1] = kiln_int(cx, p->panel);
  extents[n_space] = kiln_int(cx, p->blocks);
  extents[n_space + 1] = kiln_int(cx, p->units);
  extents[n_space + 2] = kiln_int(cx, p->per_unit);
  kiln_stmt *s = kiln_lower_stmt(p->lw, "product", p->sum, n_space, n_reduce, extents);
  kiln_stmt_vars(cx, s, 0, n_space + n_reduce, v);
  const kiln_expr *const at[] = {v[0], v[n_space], v[n_space + 1], v[lead + 1]},
                         *const in_block[] = {v[0], v[n_space], v[lead + 1]};
  const kiln_expr *part = n_reduce == 3 ? v[n_space + 2] : kiln_int(cx, 0);
  const kiln_expr *x = data_at(p, v + 1, place_of(p, v[n_space], v[n_space + 1], part)),
                  *q = kiln_sub(cx, number_at(p, at, part), zero_at(p, in_block));
  s->body = kiln_mul(cx, x, kiln_mul(cx, q, scale_at(p, in_block)));
  s->combiner = KILN_COMBINE_SUM;
  for (int i = 0; i < n_space; i++) perm[i] = i < lead ? i + 1 : i == lead ? 0 : i;
  kiln_tensor *y = kiln_lower_transpose(p->lw, kiln_lower_tensor(p->lw, s), perm);
  extents[lead + 1] = kiln_int(cx, p->n);
  return kiln_lower_reshape(p->lw, y, lead + 1, extents + 1);
}

// --- many rows ---

// The weights (K, N), decoded once a run.
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
  kiln_tensor *w = kiln_lower_tensor(p->lw, s);
  w->stays = true;
  return w;
}

static kiln_status multiply(const product *p, kiln_tensor **out) {
  if (is_one_row(p->a)) *out = multiply_row(p);
  else if (has_many_rows(p->a)) {
    kiln_tensor *a = NULL;
    KILN_TRY(kiln_lower_cast(p->lw, p->lw->inputs[0], p->sum, &a));
    return kiln_lower_matmul(p->lw, a, decode(p), p->sum, out);
  } else *out = multiply_tiles(p);
  return KILN_OK;
}

static kiln_status lower_matmul_nbits(kiln_lower *lw) {
  enum { BIAS = 5 };
  kiln_ctx *cx = lw->cx;
  product p = {.lw = lw};
  KILN_TRY(read_product(lw, &p));
  kiln_tensor *y = NULL;
  KILN_TRY(multiply(&p, &y));
  const kiln_tensor *bias = kiln_lower_in(lw, BIAS);
  if (bias) {
    const kiln_expr *at[KILN_MAX_RANK];
    KILN_TRY(kiln_lower_want_rank(lw, bias, 1, 1));
    KILN_TRY(kiln_lower_want_extent(lw, bias, 0, kiln_int(cx, p.n)));
    kiln_stmt *s = kiln_lower_like(lw, "biased", y, p.sum, at);
    const kiln_expr *addend = kiln_tensor_load(cx, bias, &at[y->rank - 1]);
    s->body = kiln_add(cx, kiln_tensor_load(cx, y, at), kiln_cast(cx, p.sum, addend));
    y = kiln_lower_tensor(lw, s);
  }
  return kiln_lower_cast(lw, y, p.a->dtype, &lw->outputs[0]);
}

// --- GatherBlockQuantized ---

// Packed along the last axis; rows of the first are gathered.
static kiln_status lower_gather(kiln_lower *lw) {
  enum { DATA, INDICES, SCALES, ZEROS };
  kiln_ctx *cx = lw->cx;
  packing pack;
  int64_t gathered = 0, quantised = 1, width = 0;
  int along = 0;
  KILN_TRY(kiln_lower_want_inputs(lw, 3, 4));
  KILN_TRY(kiln_lower_want_dtype(lw, DATA, is_u8, "u8"));
  KILN_TRY(kiln_lower_want_dtype(lw, INDICES, kiln_dtype_is_index, "i32 or i64"));
  KILN_TRY(kiln_lower_want_dtype(lw, SCALES, kiln_dtype_is_float, "a float"));
  KILN_TRY(read_packing(lw, &pack));
  const kiln_tensor *data = lw->inputs[DATA], *indices = lw->inputs[INDICES],
                    *scales = lw->inputs[SCALES], *zeros = kiln_lower_in(lw, ZEROS);
  const int last = data->rank - 1, n_picked = indices->rank, rank = n_picked + last;
  KILN_TRY(kiln_lower_want_rank(lw, data, 2, KILN_MAX_RANK - n_picked + 1));
  KILN_TRY(kiln_lower_want_rank(lw, scales, data->rank, data->rank));
  KILN_TRY(kiln_lower_int(lw, "gather_axis", 0, &gathered));
  KILN_TRY(kiln_lower_int(lw, "quantize_axis", 1, &quantised));
  KILN_TRY(kiln_lower_axis(lw, quantised, data->rank, false, &along));
  if (gathered != 0 || along == 0)
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, lw->place,
                     "gather_axis and quantize_axis: must be 0 and another, got %" PRId64 " and %d",
                     gathered, along);
  KILN_TRY(kiln_lower_extent(lw, data, last, &width));
  const kiln_expr *extents[2 * KILN_MAX_RANK], *at[KILN_MAX_RANK] = {NULL}, *picked[KILN_MAX_RANK];
  for (int i = 0; i < n_picked; i++) extents[i] = indices->shape[i];
  for (int i = 1; i < last; i++) extents[n_picked + i - 1] = data->shape[i];
  extents[rank - 1] = kiln_int(cx, width * pack.per_byte);
  for (int i = 0; i <= last; i++) {
    const kiln_expr *extent = i == 0 ? data->shape[0] : extents[n_picked + i - 1];
    const kiln_expr *block = kiln_int(cx, i == along ? pack.block : 1);
    KILN_TRY(kiln_lower_want_extent(lw, scales, i, kiln_ceil_div(cx, extent, block)));
  }
  if (zeros) {
    KILN_TRY(kiln_lower_want_dtype(lw, ZEROS, is_u8, "u8"));
    KILN_TRY(kiln_lower_want_rank(lw, zeros, data->rank, data->rank));
    zeros = unpack(lw, &pack, zeros, last, scales->shape[last]);
  }
  kiln_stmt *s = kiln_lower_stmt(lw, "gather", scales->dtype, rank, 0, extents);
  kiln_stmt_vars(cx, s, 0, n_picked, picked);
  kiln_stmt_vars(cx, s, n_picked, last, at + 1);
  KILN_TRY(kiln_lower_index(lw, indices, picked, data->shape[0], &at[0]));
  const kiln_expr *in_byte[KILN_MAX_RANK], *in_block[KILN_MAX_RANK];
  memcpy(in_byte, at, sizeof(at));
  memcpy(in_block, at, sizeof(at));
  in_byte[last] = kiln_div(cx, at[last], kiln_int(cx, pack.per_byte));
  in_block[along] = kiln_div(cx, at[along], kiln_int(cx, pack.block));
  const kiln_expr *part = kiln_mod(cx, at[last], kiln_int(cx, pack.per_byte));
  const kiln_expr *q = unpacked(cx, &pack, kiln_tensor_load(cx, data, in_byte), part);
  const kiln_expr *zero = kiln_number(cx, KILN_F32, 1 << (pack.bits - 1));
  if (zeros) zero = kiln_cast(cx, KILN_F32, kiln_tensor_load(cx, zeros, in_block));
  q = kiln_sub(cx, kiln_cast(cx, KILN_F32, kiln_cast(cx, KILN_I32, q)), zero);
  const kiln_expr *scale = kiln_cast(cx, KILN_F32, kiln_tensor_load(cx, scales, in_block));
  s->body = kiln_cast(cx, scales->dtype, kiln_mul(cx, q, scale));
  lw->outputs[0] = kiln_lower_tensor(lw, s);
  return KILN_OK;
}

const kiln_op kiln_op_matmul_nbits[] = {
    {"com.microsoft", "MatMulNBits", 1, 0, lower_matmul_nbits, NULL, "ops/matmul_nbits.c"},
    {"com.microsoft", "GatherBlockQuantized", 1, 0, lower_gather, NULL, "ops/matmul_nbits.c"},
    {0},
};
