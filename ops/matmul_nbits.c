// Weights of 2, 4 or 8 bits in blocks that share a scale, packed: MatMulNBits and
// GatherBlockQuantized. source: ONNX Runtime's MatMulNBits, GatherBlockQuantized
#include "analysis/interpret.h"
#include "fission/bits.h"
#include "fission/bytes.h"
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
  enum { A, B, SCALES, ZEROS, QUANTISED = 4 };
  kiln_ctx *cx = lw->cx;
  int64_t prepacked = 0, level = 0;
  KILN_TRY(kiln_lower_want_inputs(lw, 3, 6));
  KILN_TRY(kiln_lower_want_dtype(lw, A, kiln_dtype_is_float, "a float"));
  KILN_TRY(kiln_lower_want_dtype(lw, B, is_u8, "u8"));
  KILN_TRY(kiln_lower_want_dtype(lw, SCALES, kiln_dtype_is_float, "a float"));
  KILN_TRY(kiln_lower_int(lw, "N", 0, &w->n));
  KILN_TRY(kiln_lower_int(lw, "K", 0, &w->k));
  KILN_TRY(kiln_lower_int(lw, "weight_prepacked", 0, &prepacked));
  KILN_TRY(kiln_lower_int(lw, "accuracy_level", 0, &level));
  w->may_quantise = level == QUANTISED && lw->graph && lw->graph->multiplies_bits;
  KILN_TRY(read_packing(lw, &w->pack));
  if (w->n < 1 || w->k < 1)
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, lw->place,
                     "N and K: must be positive, got %" PRId64 " and %" PRId64, w->n, w->k);
  if (prepacked)
    return KILN_FAIL(cx->diag, KILN_UNSUPPORTED, lw->place,
                     "weight_prepacked: must be 0, got %" PRId64, prepacked);
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

// Whether group i of |groups| (K) is the block of column i, as without them.
static bool are_blocks(const kiln_tensor *groups, int64_t k, int64_t block) {
  if (groups->role != KILN_CONST || !groups->data) return false;
  for (int64_t i = 0; i < k; i++)
    if (kiln_element_get_int(groups->dtype, groups->data, i) != i / block) return false;
  return true;
}

// The product with weights of which column k has the scale of group |groups|(k): decoded first.
static kiln_status multiply_groups(kiln_lower *lw, kiln_tensor *a, const kiln_bit_weights *w,
                                   const kiln_tensor *groups, kiln_tensor **out) {
  kiln_ctx *cx = lw->cx;
  const kiln_dtype sum = kiln_accumulator(a->dtype);
  const kiln_expr *const extents[] = {kiln_int(cx, w->k), kiln_int(cx, w->n)};
  const kiln_expr *block = kiln_int(cx, w->pack.block), *per_byte = kiln_int(cx, w->pack.per_byte);
  const kiln_expr *v[2], *group = NULL;
  KILN_TRY(kiln_lower_want_rank(lw, groups, 1, 1));
  KILN_TRY(kiln_lower_want_extent(lw, groups, 0, extents[0]));
  kiln_tensor *zeros = w->zeros;
  if (w->packs_zeros) zeros = kiln_bits_unpack(lw, &w->pack, zeros, 1, w->scales->shape[1]);
  kiln_stmt *s = kiln_lower_stmt(lw, "decoded", sum, 2, 0, extents);
  kiln_stmt_vars(cx, s, 0, 2, v);
  KILN_TRY(kiln_lower_index(lw, groups, &v[0], w->scales, 1, &group));
  const kiln_expr *byte = kiln_div(cx, kiln_mod(cx, v[0], block), per_byte);
  const kiln_expr *const at[] = {v[1], kiln_div(cx, v[0], block), byte}, *const own[] = {v[1],
                                                                                         group};
  const kiln_expr *q = kiln_bits_number(cx, &w->pack, kiln_tensor_load(cx, w->codes, at),
                                        kiln_mod(cx, v[0], per_byte));
  const kiln_expr *zero = kiln_number(cx, sum, 1 << (w->pack.bits - 1));
  if (zeros) zero = kiln_cast(cx, sum, kiln_tensor_load(cx, zeros, own));
  q = kiln_sub(cx, kiln_cast(cx, sum, kiln_cast(cx, KILN_I32, q)), zero);
  s->body = kiln_mul(cx, q, kiln_cast(cx, sum, kiln_tensor_load(cx, w->scales, own)));
  kiln_stmt_tidy(cx, s);
  KILN_TRY(kiln_lower_cast(lw, a, sum, &a));
  return kiln_lower_matmul(lw, a, kiln_lower_tensor(lw, s), sum, out);
}

static kiln_status lower_matmul_nbits(kiln_lower *lw) {
  enum { A, GROUPS = 4, BIAS };
  kiln_ctx *cx = lw->cx;
  kiln_bit_weights w = {0};
  kiln_tensor *y = NULL;
  KILN_TRY(read_weights(lw, &w));
  const kiln_tensor *groups = kiln_lower_in(lw, GROUPS);
  if (groups) KILN_TRY(kiln_lower_want_dtype(lw, GROUPS, kiln_dtype_is_index, "i32 or i64"));
  if (groups && !are_blocks(groups, w.k, w.pack.block))
    KILN_TRY(multiply_groups(lw, lw->inputs[A], &w, groups, &y));
  else KILN_TRY(kiln_bits_multiply(lw, lw->inputs[A], &w, &y));
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

enum { DATA, INDICES, SCALES, ZEROS };

typedef struct gathering {
  kiln_lower *lw;
  const kiln_tensor *data, *indices, *scales;
  kiln_tensor *zeros;    // of the shape of |scales|; NULL: |middle|
  bool packed;           // several numbers in a u8, along the last axis
  kiln_bit_packing pack; // |block|: of axis |along|
  int picks, along;      // axis that is gathered, axis of the blocks
  int64_t middle;
} gathering;

static bool is_gathered(kiln_dtype t) { return t == KILN_U8 || kiln_dtype_is_code(t); }

// Bytes hold numbers of |bits| bits, codes are one each; those of floats may share one scale.
static kiln_status read_data(gathering *g) {
  kiln_lower *lw = g->lw;
  int64_t picks = 0, along = 1;
  g->data = lw->inputs[DATA];
  g->indices = lw->inputs[INDICES];
  g->scales = lw->inputs[SCALES];
  g->packed = g->data->dtype == KILN_U8;
  const bool is_float = kiln_dtype_is_code_of_floats(g->data->dtype);
  KILN_TRY(kiln_lower_int(lw, "gather_axis", 0, &picks));
  KILN_TRY(kiln_lower_int(lw, "quantize_axis", 1, &along));
  KILN_TRY(kiln_lower_axis(lw, picks, g->data->rank, false, &g->picks));
  KILN_TRY(kiln_lower_axis(lw, along, g->data->rank, false, &g->along));
  KILN_TRY(kiln_lower_int(lw, "block_size", 128, &g->pack.block));
  if (is_float && g->pack.block == 0)
    return kiln_lower_extent(lw, g->data, g->along, &g->pack.block);
  if (!g->packed) return KILN_OK;
  KILN_TRY(read_packing(lw, &g->pack));
  g->middle = 1 << (g->pack.bits - 1);
  if (g->picks == 0 && g->along != 0) return KILN_OK;
  return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                   "gather_axis and quantize_axis: must be 0 and another, got %d and %d", g->picks,
                   g->along);
}

// The extent of axis |axis| of the numbers.
static const kiln_expr *numbers_along(const gathering *g, int axis) {
  kiln_ctx *cx = g->lw->cx;
  if (!g->packed || axis < g->data->rank - 1) return g->data->shape[axis];
  return kiln_lower_tidy(cx, kiln_mul(cx, g->data->shape[axis], kiln_int(cx, g->pack.per_byte)));
}

static kiln_status read_scales(gathering *g) {
  kiln_lower *lw = g->lw;
  kiln_ctx *cx = lw->cx;
  const int last = g->data->rank - 1;
  const bool is_float = kiln_dtype_is_code_of_floats(g->data->dtype);
  KILN_TRY(kiln_lower_want_rank(lw, g->scales, last + 1, last + 1));
  for (int i = 0; i <= last; i++) {
    const kiln_expr *block = kiln_int(cx, i == g->along ? g->pack.block : 1);
    if (is_float && i != g->along && kiln_expr_is(g->scales->shape[i], 1)) continue;
    KILN_TRY(
        kiln_lower_want_extent(lw, g->scales, i, kiln_ceil_div(cx, numbers_along(g, i), block)));
  }
  g->zeros = kiln_lower_in(lw, ZEROS);
  if (!g->zeros) return KILN_OK;
  KILN_TRY(kiln_lower_want_rank(lw, g->zeros, last + 1, last + 1));
  if (g->zeros->dtype != g->data->dtype || is_float)
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, lw->place,
                     "zero_points: must be integers of the type of data, got %s",
                     kiln_dtype_text(g->zeros->dtype));
  if (g->packed) g->zeros = kiln_bits_unpack(lw, &g->pack, g->zeros, last, g->scales->shape[last]);
  for (int i = 0; i <= last; i++)
    KILN_TRY(kiln_lower_want_extent(lw, g->zeros, i, g->scales->shape[i]));
  return KILN_OK;
}

// The number at |at| times its scale, in f32.
static const kiln_expr *dequantised_at(const gathering *g, const kiln_expr *const *at) {
  kiln_ctx *cx = g->lw->cx;
  const int last = g->data->rank - 1;
  const kiln_expr *place[KILN_MAX_RANK], *in_block[KILN_MAX_RANK], *q = NULL;
  for (int i = 0; i <= last; i++) {
    const kiln_expr *b = i == g->along ? kiln_div(cx, at[i], kiln_int(cx, g->pack.block)) : at[i];
    in_block[i] = kiln_expr_is(g->scales->shape[i], 1) ? kiln_int(cx, 0) : b;
    place[i] = at[i];
  }
  if (g->packed) {
    const kiln_expr *per_byte = kiln_int(cx, g->pack.per_byte);
    place[last] = kiln_div(cx, at[last], per_byte);
    q = kiln_bits_number(cx, &g->pack, kiln_tensor_load(cx, g->data, place),
                         kiln_mod(cx, at[last], per_byte));
    q = kiln_cast(cx, KILN_F32, kiln_cast(cx, KILN_I32, q));
  } else {
    q = kiln_cast(cx, KILN_F32, kiln_tensor_load(cx, g->data, place));
  }
  if (g->zeros)
    q = kiln_sub(cx, q, kiln_cast(cx, KILN_F32, kiln_tensor_load(cx, g->zeros, in_block)));
  else if (g->middle) q = kiln_sub(cx, q, kiln_number(cx, KILN_F32, (double)g->middle));
  return kiln_mul(cx, q, kiln_cast(cx, KILN_F32, kiln_tensor_load(cx, g->scales, in_block)));
}

static kiln_status lower_gather(kiln_lower *lw) {
  kiln_ctx *cx = lw->cx;
  gathering g = {.lw = lw};
  KILN_TRY(kiln_lower_want_inputs(lw, 3, 4));
  KILN_TRY(kiln_lower_want_dtype(lw, DATA, is_gathered, "u8 or a code"));
  KILN_TRY(kiln_lower_want_dtype(lw, INDICES, kiln_dtype_is_index, "i32 or i64"));
  KILN_TRY(kiln_lower_want_dtype(lw, SCALES, kiln_dtype_is_float, "a float"));
  KILN_TRY(
      kiln_lower_want_rank(lw, lw->inputs[DATA], 1, KILN_MAX_RANK - lw->inputs[INDICES]->rank + 1));
  KILN_TRY(read_data(&g));
  KILN_TRY(read_scales(&g));
  const int n_picked = g.indices->rank, rest = g.data->rank - g.picks - 1;
  const kiln_expr *extents[2 * KILN_MAX_RANK], *at[KILN_MAX_RANK], *picked[KILN_MAX_RANK];
  int n = 0;
  for (int i = 0; i < g.picks; i++) extents[n++] = numbers_along(&g, i);
  for (int i = 0; i < n_picked; i++) extents[n++] = g.indices->shape[i];
  for (int i = 0; i < rest; i++) extents[n++] = numbers_along(&g, g.picks + 1 + i);
  kiln_stmt *s = kiln_lower_stmt(lw, "gather", g.scales->dtype, n, 0, extents);
  kiln_stmt_vars(cx, s, 0, g.picks, at);
  kiln_stmt_vars(cx, s, g.picks, n_picked, picked);
  kiln_stmt_vars(cx, s, g.picks + n_picked, rest, at + g.picks + 1);
  KILN_TRY(kiln_lower_index(lw, g.indices, picked, g.data, g.picks, &at[g.picks]));
  s->body = kiln_cast(cx, g.scales->dtype, dequantised_at(&g, at));
  lw->outputs[0] = kiln_lower_tensor(lw, s);
  return KILN_OK;
}

const kiln_op kiln_op_matmul_nbits[] = {
    {"com.microsoft", "MatMulNBits", 1, 0, lower_matmul_nbits, NULL, "ops/matmul_nbits.c"},
    {"com.microsoft", "GatherBlockQuantized", 1, 0, lower_gather, NULL, "ops/matmul_nbits.c"},
    {0},
};
