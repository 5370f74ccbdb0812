// Weights of 2, 4 or 8 bits in blocks that share a scale: MatMulNBits, whose product decodes them where it
// reads them, so that the module holds them packed, and GatherBlockQuantized. source: ONNX Runtime's
// MatMulNBits, GatherBlockQuantized
#include "fission/terms.h"

#include <string.h>

enum { BYTE = 8, PANEL = 32 }; // panels are half a line of a cache wide

// Numbers of |bits| bits, |per_byte| of them in a byte, the first in its low bits.
typedef struct packing {
  int64_t bits, per_byte, block;
} packing;

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

// Number |part| of the byte |e|, as u8.
static const kiln_expr *unpacked(kiln_ctx *cx, const packing *p, const kiln_expr *e,
                                 const kiln_expr *part) {
  if (p->bits == BYTE) return e;
  const kiln_expr *shift = kiln_cast(cx, KILN_U8, kiln_mul(cx, part, kiln_int(cx, p->bits)));
  return kiln_binary(cx, KILN_EXPR_BAND, kiln_binary(cx, KILN_EXPR_SHR, e, shift),
                     kiln_int_of(cx, KILN_U8, (1 << p->bits) - 1));
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
  int64_t n, k, blocks, bytes;       // bytes: of a block
  int64_t panel;                     // rows of the weights that lie together
  const kiln_tensor *a, *b;          // b (panels, blocks, bytes, panel)
  const kiln_tensor *scales, *zeros; // (panels, blocks, panel); zeros: NULL: the middle
  kiln_dtype sum;
} product;

// Whether every axis but the last is 1.
static bool is_one_row(const kiln_tensor *a) {
  bool is = true;
  for (int i = 0; i + 1 < a->rank; i++) is &= kiln_expr_is(a->shape[i], 1);
  return is;
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
  p->bytes = p->pack.block / p->pack.per_byte;
  const kiln_expr *shape[] = {kiln_int(cx, p->n), kiln_int(cx, p->blocks), kiln_int(cx, p->bytes)};
  KILN_TRY(kiln_lower_want_rank(lw, lw->inputs[B], 3, 3));
  for (int i = 0; i < 3; i++) KILN_TRY(kiln_lower_want_extent(lw, lw->inputs[B], i, shape[i]));
  p->panel = p->n % PANEL == 0 ? PANEL : p->n;
  p->b = panels_of(lw, p, lw->inputs[B]);
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

// A times the weight of number |part| in the byte at |v| = (panel, block, byte, row).
static const kiln_expr *term(const product *p, const kiln_expr *const *lead,
                             const kiln_expr *const *v, const kiln_expr *part) {
  kiln_ctx *cx = p->lw->cx;
  const kiln_expr *at[KILN_MAX_RANK], *k = NULL, *in_block[] = {v[0], v[1], v[3]};
  for (int i = 0; i + 1 < p->a->rank; i++) at[i] = lead[i];
  k = kiln_add(cx, kiln_mul(cx, v[1], kiln_int(cx, p->bytes)), v[2]);
  k = kiln_add(cx, kiln_mul(cx, k, kiln_int(cx, p->pack.per_byte)), part);
  at[p->a->rank - 1] = k;
  const kiln_expr *x = kiln_cast(cx, p->sum, kiln_tensor_load(cx, p->a, at));
  if (p->k % p->pack.block != 0)
    x = kiln_select(cx, kiln_compare(cx, KILN_EXPR_LT, k, kiln_int(cx, p->k)), x,
                    kiln_number(cx, p->sum, 0));
  const kiln_expr *q = unpacked(cx, &p->pack, kiln_tensor_load(cx, p->b, v), part);
  const kiln_expr *zero = kiln_number(cx, p->sum, 1 << (p->pack.bits - 1));
  if (p->zeros) zero = kiln_cast(cx, p->sum, kiln_tensor_load(cx, p->zeros, in_block));
  const kiln_expr *scale = kiln_cast(cx, p->sum, kiln_tensor_load(cx, p->scales, in_block));
  q = kiln_sub(cx, kiln_cast(cx, p->sum, kiln_cast(cx, KILN_I32, q)), zero);
  return kiln_mul(cx, x, kiln_mul(cx, q, scale));
}

// One row reads each byte once and adds all of its numbers; several have these as a dim of their own. Rows
// stand inside of panels, so that a tile of them shares what is decoded.
static kiln_tensor *multiply(const product *p) {
  kiln_ctx *cx = p->lw->cx;
  const bool one_row = is_one_row(p->a);
  const int lead = p->a->rank - 1, n_space = lead + 2;
  const kiln_expr *extents[KILN_MAX_RANK + 4], *v[KILN_MAX_RANK + 4];
  int perm[KILN_MAX_RANK];
  extents[0] = kiln_int(cx, p->n / p->panel);
  for (int i = 0; i < lead; i++) extents[1 + i] = p->a->shape[i];
  extents[lead + 1] = kiln_int(cx, p->panel);
  extents[n_space] = kiln_int(cx, p->blocks);
  extents[n_space + 1] = kiln_int(cx, p->bytes);
  extents[n_space + 2] = kiln_int(cx, p->pack.per_byte);
  const int n_reduce = one_row || p->pack.per_byte == 1 ? 2 : 3;
  kiln_stmt *s = kiln_lower_stmt(p->lw, "product", p->sum, n_space, n_reduce, extents);
  kiln_stmt_vars(cx, s, 0, n_space + n_reduce, v);
  const kiln_expr *at[] = {v[0], v[n_space], v[n_space + 1], v[lead + 1]};
  if (n_reduce == 3) {
    s->body = term(p, v + 1, at, v[n_space + 2]);
  } else {
    s->body = term(p, v + 1, at, kiln_int(cx, 0));
    for (int64_t i = 1; i < p->pack.per_byte; i++)
      s->body = kiln_add(cx, s->body, term(p, v + 1, at, kiln_int(cx, i)));
  }
  s->combiner = KILN_COMBINE_SUM;
  for (int i = 0; i < n_space; i++) perm[i] = i < lead ? i + 1 : i == lead ? 0 : i;
  kiln_tensor *y = kiln_lower_transpose(p->lw, kiln_lower_tensor(p->lw, s), perm);
  extents[lead + 1] = kiln_int(cx, p->n);
  return kiln_lower_reshape(p->lw, y, lead + 1, extents + 1);
}

static kiln_status lower_matmul_nbits(kiln_lower *lw) {
  enum { BIAS = 5 };
  kiln_ctx *cx = lw->cx;
  product p = {.lw = lw};
  KILN_TRY(read_product(lw, &p));
  kiln_tensor *y = multiply(&p);
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
