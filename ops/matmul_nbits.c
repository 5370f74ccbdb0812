// Weights of 2, 4 or 8 bits in blocks that share a scale, packed: MatMulNBits and
// GatherBlockQuantized. source: ONNX Runtime's MatMulNBits, GatherBlockQuantized
#include "fission/bits.h"
#include "support/integer.h"

#include <string.h>

static kiln_status read_packing(kiln_lower *lw, kiln_bit_packing *out) {
  KILN_TRY(kiln_lower_int(lw, "bits", 4, &out->bits));
  KILN_TRY(kiln_lower_int(lw, "block_size", 128, &out->block));
  if (out->bits != 2 && out->bits != 4 && out->bits != 8)
    return KILN_FAIL(lw->cx->diag, KILN_UNSUPPORTED, lw->place,
                     "bits: must be 2, 4 or 8, got %" PRId64, out->bits);
  if (out->block < 16 || (out->block & (out->block - 1)) != 0)
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                     "block_size: must be a power of 2, at least 16, got %" PRId64, out->block);
  out->per_byte = 8 / out->bits;
  return KILN_OK;
}

// --- MatMulNBits ---

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

static kiln_status read_weights(kiln_lower *lw, kiln_bit_weights *w) {
  enum { A, B, SCALES, ZEROS, GROUPS };
  kiln_ctx *cx = lw->cx;
  int64_t prepacked = 0;
  KILN_TRY(kiln_lower_want_inputs(lw, 3, 6));
  KILN_TRY(kiln_lower_want_dtype(lw, A, kiln_dtype_is_float, "a float"));
  KILN_TRY(kiln_lower_want_dtype(lw, B, is_u8, "u8"));
  KILN_TRY(kiln_lower_want_dtype(lw, SCALES, kiln_dtype_is_float, "a float"));
  KILN_TRY(kiln_lower_int(lw, "N", 0, &w->n));
  KILN_TRY(kiln_lower_int(lw, "K", 0, &w->k));
  KILN_TRY(kiln_lower_int(lw, "weight_prepacked", 0, &prepacked));
  KILN_TRY(read_packing(lw, &w->pack));
  if (w->n < 1 || w->k < 1)
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, lw->place,
                     "N and K: must be positive, got %" PRId64 " and %" PRId64, w->n, w->k);
  if (kiln_lower_in(lw, GROUPS) || prepacked)
    return KILN_FAIL(cx->diag, KILN_UNSUPPORTED, lw->place,
                     "g_idx and weight_prepacked: must be left out");
  const kiln_tensor *a = lw->inputs[A];
  KILN_TRY(kiln_lower_want_rank(lw, a, 1, KILN_MAX_RANK - 1));
  KILN_TRY(kiln_lower_want_extent(lw, a, a->rank - 1, kiln_int(cx, w->k)));
  const int64_t blocks = kiln_divide_up(w->k, w->pack.block);
  const kiln_expr *shape[] = {kiln_int(cx, w->n), kiln_int(cx, blocks),
                              kiln_int(cx, w->pack.block / w->pack.per_byte)};
  w->codes = lw->inputs[B];
  KILN_TRY(kiln_lower_want_rank(lw, w->codes, 3, 3));
  for (int i = 0; i < 3; i++) KILN_TRY(kiln_lower_want_extent(lw, w->codes, i, shape[i]));
  KILN_TRY(table(lw, SCALES, w->n, blocks, &w->scales));
  if (!kiln_lower_in(lw, ZEROS)) return KILN_OK;
  w->packs_zeros = lw->inputs[ZEROS]->dtype == KILN_U8;
  const int64_t per_byte = w->packs_zeros ? w->pack.per_byte : 1;
  return table(lw, ZEROS, w->n, kiln_divide_up(blocks, per_byte), &w->zeros);
}

static kiln_status lower_matmul_nbits(kiln_lower *lw) {
  enum { A, BIAS = 5 };
  kiln_ctx *cx = lw->cx;
  kiln_bit_weights w = {0};
  kiln_tensor *y = NULL;
  KILN_TRY(read_weights(lw, &w));
  KILN_TRY(kiln_bits_multiply(lw, lw->inputs[A], &w, &y));
  const kiln_tensor *bias = kiln_lower_in(lw, BIAS);
  if (bias) {
    const kiln_expr *at[KILN_MAX_RANK];
    KILN_TRY(kiln_lower_want_rank(lw, bias, 1, 1));
    KILN_TRY(kiln_lower_want_extent(lw, bias, 0, kiln_int(cx, w.n)));
    kiln_stmt *s = kiln_lower_like(lw, "biased", y, y->dtype, at);
    const kiln_expr *addend = kiln_tensor_load(cx, bias, &at[y->rank - 1]);
    s->body = kiln_add(cx, kiln_tensor_load(cx, y, at), kiln_cast(cx, y->dtype, addend));
    y = kiln_lower_tensor(lw, s);
  }
  return kiln_lower_cast(lw, y, lw->inputs[A]->dtype, &lw->outputs[0]);
}

// --- GatherBlockQuantized ---

// Packed along the last axis; rows of the first are gathered.
static kiln_status lower_gather(kiln_lower *lw) {
  enum { DATA, INDICES, SCALES, ZEROS };
  kiln_ctx *cx = lw->cx;
  kiln_bit_packing pack;
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
    zeros = kiln_bits_unpack(lw, &pack, zeros, last, scales->shape[last]);
  }
  kiln_stmt *s = kiln_lower_stmt(lw, "gather", scales->dtype, rank, 0, extents);
  kiln_stmt_vars(cx, s, 0, n_picked, picked);
  kiln_stmt_vars(cx, s, n_picked, last, at + 1);
  KILN_TRY(kiln_lower_index(lw, indices, picked, data, 0, &at[0]));
  const kiln_expr *in_byte[KILN_MAX_RANK], *in_block[KILN_MAX_RANK];
  memcpy(in_byte, at, sizeof(at));
  memcpy(in_block, at, sizeof(at));
  in_byte[last] = kiln_div(cx, at[last], kiln_int(cx, pack.per_byte));
  in_block[along] = kiln_div(cx, at[along], kiln_int(cx, pack.block));
  const kiln_expr *part = kiln_mod(cx, at[last], kiln_int(cx, pack.per_byte));
  const kiln_expr *q = kiln_bits_number(cx, &pack, kiln_tensor_load(cx, data, in_byte), part);
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
