// Operands of 8-bit products, and zero-point corrections of their sums.
#include "fission/bytes.h"
#include "ir/encoding.h"

#include <float.h>
#include <string.h>

enum {
  BYTES_AT_ONCE = 4, // products that one instruction adds (VPDPBUSD, dp4a)
  HALF_BYTE = 128    // offset from u8 to i8
};

bool kiln_dtype_is_byte(kiln_dtype t) { return t == KILN_I8 || t == KILN_U8; }

bool kiln_tensor_is_scalar(const kiln_tensor *t) {
  for (int i = 0; i < t->rank; i++)
    if (!kiln_expr_is(t->shape[i], 1)) return false;
  return true;
}

bool kiln_tensor_is_zero(const kiln_tensor *t) {
  if (!t) return true;
  if (t->role != KILN_CONST) return false;
  const unsigned char *bytes = t->data;
  for (size_t i = 0; i < t->bytes; i++)
    if (bytes[i] != 0) return false;
  return true;
}

kiln_status kiln_lower_parameter(kiln_lower *lw, const kiln_tensor *p, const kiln_granularity *how,
                                 const kiln_tensor *x, const kiln_expr *const *at, kiln_dtype t,
                                 const kiln_expr **out) {
  kiln_ctx *cx = lw->cx;
  if (kiln_tensor_is_scalar(p)) return kiln_lower_scalar(lw, p, t, "scale or zero point", out);
  if (p->rank == 1 && how->axis < x->rank) {
    KILN_TRY(kiln_lower_want_extent(lw, p, 0, x->shape[how->axis]));
    *out = kiln_cast(cx, t, kiln_tensor_load(cx, p, &at[how->axis]));
    return KILN_OK;
  }
  KILN_TRY(kiln_lower_want_rank(lw, p, x->rank, x->rank));
  const kiln_expr *place[KILN_MAX_RANK];
  for (int i = 0; i < x->rank; i++) {
    const bool blocked = how->block > 0 && i == how->axis;
    const kiln_expr *block = kiln_int(cx, blocked ? how->block : 1);
    place[i] = kiln_expr_is(p->shape[i], 1) ? kiln_int(cx, 0) : kiln_div(cx, at[i], block);
    if (!kiln_expr_is(p->shape[i], 1))
      KILN_TRY(kiln_lower_want_extent(lw, p, i, kiln_ceil_div(cx, x->shape[i], block)));
  }
  *out = kiln_cast(cx, t, kiln_tensor_load(cx, p, place));
  return KILN_OK;
}

// --- dequantized tensors ---

bool kiln_dtype_is_code_of_floats(kiln_dtype t) {
  const kiln_encoding_format *f = kiln_encoding_format_of(t);
  return f && f->kind == KILN_ENCODING_FLOAT;
}

kiln_status kiln_lower_dequantised(kiln_lower *lw, const kiln_quantised *from, kiln_dtype t,
                                   kiln_tensor **out) {
  kiln_ctx *cx = lw->cx;
  const kiln_tensor *x = from->codes;
  const kiln_expr *at[KILN_MAX_RANK], *scale = NULL, *zero = NULL;
  kiln_stmt *s = kiln_lower_like(lw, "dequantize", x, t, at);
  KILN_TRY(kiln_lower_parameter(lw, from->scale, &from->granularity, x, at, KILN_F32, &scale));
  const kiln_dtype computed = kiln_dtype_is_code_of_floats(x->dtype) ? KILN_F32 : KILN_I32;
  const kiln_expr *value = kiln_cast(cx, computed, kiln_tensor_load(cx, x, at));
  if (from->zero) {
    KILN_TRY(kiln_lower_parameter(lw, from->zero, &from->granularity, x, at, computed, &zero));
    value = kiln_sub(cx, value, zero);
  }
  s->body = kiln_cast(cx, t, kiln_mul(cx, kiln_cast(cx, KILN_F32, value), scale));
  *out = kiln_lower_tensor(lw, s);
  kiln_quantised *kept = KILN_NEW(&cx->perm, kiln_quantised);
  *kept = *from;
  kiln_lower_note_quantised(lw, *out, kept);
  return KILN_OK;
}

bool kiln_quantised_keeps_order(const kiln_lower *lw, const kiln_tensor *x) {
  const kiln_quantised *q = kiln_lower_quantised(lw, x);
  if (!q || x->dtype != KILN_F32 || !kiln_dtype_is_byte(q->codes->dtype) ||
      q->scale->role != KILN_CONST || q->scale->dtype != KILN_F32 ||
      !kiln_tensor_is_scalar(q->scale) || (q->zero && !kiln_tensor_is_scalar(q->zero)))
    return false;
  float scale; // the mapped file need not align it
  memcpy(&scale, q->scale->data, sizeof scale);
  return scale > FLT_MIN && scale < 1 / FLT_MIN;
}

static bool is_same(const kiln_tensor *a, const kiln_tensor *b) {
  return a == b ||
         (a && b && a->role == KILN_CONST && b->role == KILN_CONST && a->dtype == b->dtype &&
          a->bytes == b->bytes && memcmp(a->data, b->data, a->bytes) == 0);
}

// (code - zero) * scale / scale has an error below one half, which rounding removes.
kiln_tensor *kiln_quantised_codes(const kiln_lower *lw, const kiln_tensor *x,
                                  const kiln_tensor *scale, const kiln_tensor *zero, kiln_dtype t) {
  const kiln_quantised *q = kiln_lower_quantised(lw, x);
  const bool is_made_so = kiln_quantised_keeps_order(lw, x) && q->codes->dtype == t &&
                          kiln_tensor_is_scalar(scale) && is_same(q->scale, scale) &&
                          is_same(q->zero, zero);
  return is_made_so ? q->codes : NULL;
}

// --- operands ---

typedef struct range {
  int least, most;
} range;

// Least and greatest value of a constant of bytes; {0, 0} for NULL.
static range range_of(const kiln_tensor *t) {
  range r = {0, 0};
  for (size_t i = 0; t && i < t->bytes; i++) {
    const int v =
        t->dtype == KILN_I8 ? ((const int8_t *)t->data)[i] : ((const uint8_t *)t->data)[i];
    if (i == 0 || v < r.least) r.least = v;
    if (i == 0 || v > r.most) r.most = v;
  }
  return r;
}

static bool are_narrow(const kiln_byte_product *p) {
  const range w = range_of(p->weights), z = range_of(p->zero_weights);
  return w.least - z.most >= INT8_MIN && w.most - z.least <= INT8_MAX;
}

// Whether |zero| is NULL, a scalar, or has one value for each index of |axis| of |weights|.
static bool is_along(const kiln_tensor *zero, const kiln_tensor *weights, int axis) {
  if (!zero || kiln_tensor_is_scalar(zero) || zero->rank == 1) return true;
  bool is = zero->rank == weights->rank;
  for (int i = 0; is && i < zero->rank; i++) is = i == axis || kiln_expr_is(zero->shape[i], 1);
  return is;
}

bool kiln_bytes_fit(const kiln_byte_product *p) {
  const kiln_tensor *weights = p->weights, *zero = p->zero_weights;
  if (p->zero_x && !kiln_tensor_is_zero(p->zero_x) && !kiln_tensor_is_scalar(p->zero_x))
    return false;
  if (weights->role != KILN_CONST || (zero && zero->role != KILN_CONST)) return false;
  return is_along(zero, weights, p->axis) || are_narrow(p);
}

// Whether |scale| is a scalar or has one value for each index of |axis|.
static bool lies_along(const kiln_quantised *q, int axis) {
  return kiln_tensor_is_scalar(q->scale) ||
         (q->scale->rank == 1 && q->granularity.block == 0 && q->granularity.axis == axis);
}

bool kiln_bytes_find(const kiln_lower *lw, const kiln_tensor *x, const kiln_tensor *weights,
                     int axis, kiln_byte_product *out) {
  const kiln_quantised *a = kiln_lower_quantised(lw, x), *b = kiln_lower_quantised(lw, weights);
  if (!a || !b || x->dtype != KILN_F32 || !kiln_dtype_is_byte(a->codes->dtype) ||
      !kiln_dtype_is_byte(b->codes->dtype) || !kiln_tensor_is_scalar(a->scale) ||
      !lies_along(b, axis))
    return false;
  *out = (kiln_byte_product){a->codes, a->zero, b->codes, b->zero, axis};
  return kiln_bytes_fit(out);
}

// i8(weights - zero point), or the codes themselves if |f| has a correction.
static kiln_status as_i8(kiln_lower *lw, const kiln_byte_product *p, const kiln_byte_factors *f,
                         kiln_tensor **out) {
  const bool is_centred = !f->has_rest && !kiln_tensor_is_zero(p->zero_weights);
  *out = p->weights;
  if (!is_centred && p->weights->dtype == KILN_I8) return KILN_OK;
  kiln_ctx *cx = lw->cx;
  const kiln_expr *at[KILN_MAX_RANK], *shift = kiln_number(cx, KILN_I32, f->shift);
  const kiln_granularity how = {.axis = p->axis};
  kiln_stmt *s = kiln_lower_like(lw, "narrow", p->weights, KILN_I8, at);
  const kiln_expr *value = kiln_cast(cx, KILN_I32, kiln_tensor_load(cx, p->weights, at));
  if (is_centred)
    KILN_TRY(kiln_lower_parameter(lw, p->zero_weights, &how, p->weights, at, KILN_I32, &shift));
  if (is_centred || f->shift) value = kiln_sub(cx, value, shift);
  s->body = kiln_cast(cx, KILN_I8, value);
  *out = kiln_lower_tensor(lw, s);
  return KILN_OK;
}

// The data as u8 (i8 is shifted by 128) and their zero point, shifted likewise.
static kiln_status as_u8(kiln_lower *lw, const kiln_byte_product *p, kiln_tensor **out,
                         const kiln_expr **out_zero) {
  kiln_ctx *cx = lw->cx;
  const kiln_expr *at[KILN_MAX_RANK], *shift = kiln_number(cx, KILN_I32, HALF_BYTE);
  *out = p->x;
  *out_zero = kiln_number(cx, KILN_I32, 0);
  if (!kiln_tensor_is_zero(p->zero_x))
    KILN_TRY(kiln_lower_scalar(lw, p->zero_x, KILN_I32, "zero point", out_zero));
  if (p->x->dtype == KILN_U8) return KILN_OK;
  kiln_stmt *s = kiln_lower_like(lw, "shifted", p->x, KILN_U8, at);
  const kiln_expr *value = kiln_cast(cx, KILN_I32, kiln_tensor_load(cx, p->x, at));
  s->body = kiln_cast(cx, KILN_U8, kiln_add(cx, value, shift));
  *out = kiln_lower_tensor(lw, s);
  *out_zero = kiln_add(cx, *out_zero, shift);
  return KILN_OK;
}

kiln_status kiln_bytes_prepare(kiln_lower *lw, const kiln_byte_product *p, kiln_byte_factors *out) {
  const kiln_tensor *w = p->weights;
  *out = (kiln_byte_factors){.axis = p->axis, .has_rest = !are_narrow(p)};
  if (out->has_rest) {
    const kiln_expr *extents[KILN_MAX_RANK];
    for (int i = 0; i < w->rank; i++) extents[i] = i == p->axis ? kiln_int(lw->cx, 1) : w->shape[i];
    out->count = kiln_multiply_all(lw->cx, w->rank, extents);
    out->zero_weights = p->zero_weights;
    out->shift = w->dtype == KILN_U8 ? HALF_BYTE : 0;
  }
  KILN_TRY(as_u8(lw, p, &out->x, &out->zero));
  return as_i8(lw, p, out, &out->weights);
}

// --- sums ---

static const kiln_tensor *sum_weights(kiln_lower *lw, const kiln_byte_factors *f) {
  kiln_ctx *cx = lw->cx;
  const kiln_tensor *weights = f->weights;
  const kiln_expr *extents[KILN_MAX_RANK] = {weights->shape[f->axis]}, *at[KILN_MAX_RANK];
  int n = 1;
  for (int i = 0; i < weights->rank; i++)
    if (i != f->axis) extents[n++] = weights->shape[i];
  kiln_stmt *all = kiln_lower_stmt(lw, "weight_sums", KILN_I32, 1, n - 1, extents);
  n = 1;
  for (int i = 0; i < weights->rank; i++) at[i] = kiln_stmt_var(cx, all, i == f->axis ? 0 : n++);
  all->body = kiln_cast(cx, KILN_I32, kiln_tensor_load(cx, weights, at));
  all->combiner = KILN_COMBINE_SUM;
  return kiln_lower_tensor(lw, all);
}

kiln_tensor *kiln_bytes_sum_data(kiln_lower *lw, const kiln_byte_factors *f, int axis) {
  kiln_ctx *cx = lw->cx;
  const kiln_tensor *x = f->x;
  const kiln_expr *extents[KILN_MAX_RANK + 1], *at[KILN_MAX_RANK];
  int n = 0;
  if (!f->has_rest) return NULL;
  for (int i = 0; i < x->rank; i++)
    if (i != axis) extents[n++] = x->shape[i];
  extents[n++] = kiln_int(cx, 1);
  extents[n] = f->count;
  kiln_stmt *s = kiln_lower_stmt(lw, "data_sums", KILN_I32, n, 1, extents);
  for (int i = 0; i < x->rank; i++)
    at[i] = kiln_stmt_var(cx, s, i == axis ? n : i < axis ? i : i - 1);
  s->body = kiln_cast(cx, KILN_I32, kiln_tensor_load(cx, x, at));
  s->combiner = KILN_COMBINE_SUM;
  return kiln_lower_tensor(lw, s);
}

// The correction of the weights at index |place| of their axis: zero point less shift.
static kiln_status rest_at(kiln_lower *lw, const kiln_byte_factors *f, const kiln_expr *place,
                           const kiln_expr **out) {
  kiln_ctx *cx = lw->cx;
  const kiln_expr *at[KILN_MAX_RANK], *zero = kiln_number(cx, KILN_I32, 0);
  const kiln_granularity how = {.axis = f->axis};
  for (int i = 0; i < f->weights->rank; i++) at[i] = i == f->axis ? place : kiln_int(cx, 0);
  if (f->zero_weights)
    KILN_TRY(kiln_lower_parameter(lw, f->zero_weights, &how, f->weights, at, KILN_I32, &zero));
  *out = kiln_sub(cx, zero, kiln_number(cx, KILN_I32, f->shift));
  return KILN_OK;
}

// The two factors of the correction of sums, z * sum_k (x_k - zx): weights' zero points, and sums
// of the data less their zero point.
typedef struct rest {
  const kiln_tensor *weights, *data; // weights NULL: |data| has the factor
} rest;

static kiln_status make_rest(kiln_lower *lw, const kiln_byte_factors *f, const kiln_tensor *data,
                             rest *out) {
  kiln_ctx *cx = lw->cx;
  const kiln_expr *at[KILN_MAX_RANK], *one = NULL;
  *out = (rest){0};
  if (f->zero_weights && !kiln_tensor_is_scalar(f->zero_weights)) {
    kiln_stmt *all =
        kiln_lower_stmt(lw, "weight_rests", KILN_I32, 1, 0, &f->weights->shape[f->axis]);
    KILN_TRY(rest_at(lw, f, kiln_stmt_var(cx, all, 0), &all->body));
    out->weights = kiln_lower_tensor(lw, all);
  }
  kiln_stmt *s = kiln_lower_like(lw, "data_rest", data, KILN_I32, at);
  const kiln_expr *zeros = kiln_mul(cx, f->zero, kiln_cast(cx, KILN_I32, f->count));
  s->body = kiln_sub(cx, kiln_tensor_load(cx, data, at), zeros);
  if (!out->weights) {
    KILN_TRY(rest_at(lw, f, kiln_int(cx, 0), &one));
    s->body = kiln_mul(cx, one, s->body);
  }
  out->data = kiln_lower_tensor(lw, s);
  return KILN_OK;
}

// The correction of the sum at |at|.
static const kiln_expr *rest_of(kiln_ctx *cx, const kiln_byte_factors *f, const rest *r,
                                const kiln_expr *const *at, int along) {
  const kiln_expr *place[KILN_MAX_RANK];
  const int64_t channels = kiln_expr_int_or(f->weights->shape[f->axis], 1),
                groups = kiln_expr_int_or(r->data->shape[along], 1);
  for (int i = 0; i < r->data->rank; i++) place[i] = at[i];
  place[along] =
      groups == 1 ? kiln_int(cx, 0) : kiln_div(cx, at[along], kiln_int(cx, channels / groups));
  const kiln_expr *data = kiln_tensor_load(cx, r->data, place);
  return r->weights ? kiln_mul(cx, data, kiln_tensor_load(cx, r->weights, &at[along])) : data;
}

kiln_status kiln_bytes_take_off(kiln_lower *lw, const kiln_byte_factors *f, const kiln_tensor *data,
                                kiln_tensor *sum, int along, kiln_tensor **out) {
  kiln_ctx *cx = lw->cx;
  const kiln_expr *at[KILN_MAX_RANK];
  const bool has_zero = !kiln_expr_is_zero(f->zero);
  rest r;
  *out = sum;
  if (!has_zero && !data) return KILN_OK;
  const kiln_tensor *sums = has_zero ? sum_weights(lw, f) : NULL;
  if (data) KILN_TRY(make_rest(lw, f, data, &r));
  kiln_stmt *s = kiln_lower_like(lw, "centred", sum, KILN_I32, at);
  s->body = kiln_tensor_load(cx, sum, at);
  if (sums)
    s->body = kiln_sub(cx, s->body, kiln_mul(cx, f->zero, kiln_tensor_load(cx, sums, &at[along])));
  if (data) s->body = kiln_sub(cx, s->body, rest_of(cx, f, &r, at, along));
  *out = kiln_lower_tensor(lw, s);
  return KILN_OK;
}

kiln_status kiln_bytes_matmul(kiln_lower *lw, const kiln_byte_product *p, kiln_tensor **out) {
  kiln_byte_factors f;
  kiln_tensor *sum = NULL;
  KILN_TRY(kiln_bytes_prepare(lw, p, &f));
  KILN_TRY(kiln_lower_matmul(lw, f.x, f.weights, KILN_I32, &sum));
  const kiln_tensor *data = kiln_bytes_sum_data(lw, &f, f.x->rank - 1);
  return kiln_bytes_take_off(lw, &f, data, sum, sum->rank - 1, out);
}

static int64_t whole_groups(int64_t channels) {
  return (channels + BYTES_AT_ONCE - 1) / BYTES_AT_ONCE * BYTES_AT_ONCE;
}

// Padding to groups of four may add at most one channel to three.
bool kiln_bytes_convolve(const kiln_tensor *x, int64_t channels, int64_t group) {
  const int64_t whole = whole_groups(channels);
  return channels == whole ||
         (group == 1 && 4 * channels >= 3 * whole && kiln_expr_is(x->shape[1], channels));
}

// |x| with axis 1 padded by zeros to a multiple of BYTES_AT_ONCE.
static kiln_tensor *in_whole_groups(kiln_lower *lw, kiln_tensor *x) {
  kiln_ctx *cx = lw->cx;
  int64_t channels = 0;
  if (!kiln_expr_is_int(x->shape[1], &channels) || whole_groups(channels) == channels) return x;
  const kiln_expr *extents[KILN_MAX_RANK], *at[KILN_MAX_RANK];
  for (int i = 0; i < x->rank; i++) extents[i] = x->shape[i];
  extents[1] = kiln_int(cx, whole_groups(channels));
  kiln_stmt *s = kiln_lower_stmt(lw, "channels", x->dtype, x->rank, 0, extents);
  kiln_stmt_vars(cx, s, 0, x->rank, at);
  s->body = kiln_select(cx, kiln_compare(cx, KILN_EXPR_LT, at[1], x->shape[1]),
                        kiln_tensor_load(cx, x, at), kiln_number(cx, x->dtype, 0));
  return kiln_lower_tensor(lw, s);
}

// Sums over the channels of each group; with |at_windows| (1x1 windows) only at the positions of
// outputs.
static kiln_tensor *sum_channels(kiln_lower *lw, const kiln_tensor *x, int64_t channels,
                                 int64_t group, const kiln_conv_window *w, bool at_windows) {
  kiln_ctx *cx = lw->cx;
  const kiln_expr *extents[KILN_MAX_RANK + 1] = {x->shape[0], kiln_int(cx, group)},
                                           *at[KILN_MAX_RANK];
  for (int i = 0; i < w->n; i++) extents[2 + i] = at_windows ? w->out[i] : x->shape[2 + i];
  extents[x->rank] = kiln_int(cx, channels);
  kiln_stmt *s = kiln_lower_stmt(lw, "channel_sums", KILN_I32, x->rank, 1, extents);
  kiln_stmt_vars(cx, s, 0, x->rank, at);
  at[1] = kiln_add(cx, kiln_mul(cx, at[1], extents[x->rank]), kiln_stmt_var(cx, s, x->rank));
  for (int i = 0; at_windows && i < w->n; i++)
    at[2 + i] = kiln_mul(cx, at[2 + i], kiln_int(cx, w->stride[i]));
  s->body = kiln_cast(cx, KILN_I32, kiln_tensor_load(cx, x, at));
  s->combiner = KILN_COMBINE_SUM;
  return kiln_lower_tensor(lw, s);
}

// Sums over channels are computed first, then added over each window: that reads each input once.
static kiln_tensor *sum_windows(kiln_lower *lw, const kiln_tensor *x, int64_t channels,
                                int64_t group, const kiln_conv_window *w) {
  kiln_ctx *cx = lw->cx;
  bool is_point = true;
  for (int i = 0; i < w->n; i++) is_point &= w->kernel[i] == 1;
  kiln_tensor *sums = sum_channels(lw, x, channels, group, w, is_point);
  if (is_point) return sums;
  const kiln_expr *extents[2 * KILN_MAX_RANK] = {sums->shape[0], sums->shape[1]},
                               *at[KILN_MAX_RANK];
  for (int i = 0; i < w->n; i++) {
    extents[2 + i] = w->out[i];
    extents[2 + w->n + i] = kiln_int(cx, w->kernel[i]);
  }
  kiln_stmt *s = kiln_lower_stmt(lw, "window_sums", KILN_I32, 2 + w->n, w->n, extents);
  kiln_stmt_vars(cx, s, 0, 2 + w->n, at);
  for (int i = 0; i < w->n; i++) {
    const kiln_expr *tap = kiln_stmt_var(cx, s, 2 + w->n + i);
    at[2 + i] = kiln_add(cx, kiln_mul(cx, at[2 + i], kiln_int(cx, w->stride[i])),
                         kiln_mul(cx, tap, kiln_int(cx, w->dilation[i])));
  }
  s->body = kiln_tensor_load(cx, sums, at);
  s->combiner = KILN_COMBINE_SUM;
  return kiln_lower_tensor(lw, s);
}

// Pads with the zero point, so that the correction is the same at the borders.
kiln_status kiln_bytes_conv(kiln_lower *lw, const kiln_byte_product *p, int64_t group,
                            const kiln_conv_window *w, kiln_tensor **out) {
  kiln_ctx *cx = lw->cx;
  kiln_byte_factors f;
  kiln_tensor *sum = NULL;
  kiln_conv_window padded = *w;
  int64_t channels = 0;
  KILN_TRY(kiln_lower_extent(lw, p->weights, 1, &channels));
  KILN_TRY(kiln_bytes_prepare(lw, p, &f));
  if (group == 1) {
    f.x = in_whole_groups(lw, f.x);
    f.weights = in_whole_groups(lw, f.weights);
  }
  f.x = kiln_conv_window_pad(lw, f.x, w, kiln_cast(cx, KILN_U8, f.zero));
  for (int i = 0; i < w->n; i++) {
    padded.in[i] = f.x->shape[2 + i];
    padded.begin[i] = padded.end[i] = kiln_int(cx, 0);
  }
  KILN_TRY(kiln_lower_conv(lw, f.x, f.weights, group, &padded, KILN_I32, &sum));
  const kiln_tensor *data = f.has_rest ? sum_windows(lw, f.x, channels, group, &padded) : NULL;
  return kiln_bytes_take_off(lw, &f, data, sum, 1, out);
}

kiln_status kiln_bytes_scale(kiln_lower *lw, const kiln_tensor *x, const kiln_tensor *weights,
                             kiln_tensor *sum, int along, kiln_tensor **out) {
  kiln_ctx *cx = lw->cx;
  const kiln_granularity how = {.axis = along};
  const kiln_expr *at[KILN_MAX_RANK], *a = NULL, *b = NULL;
  const kiln_quantised *from_x = kiln_lower_quantised(lw, x),
                       *from_weights = kiln_lower_quantised(lw, weights);
  kiln_stmt *s = kiln_lower_like(lw, "scaled", sum, KILN_F32, at);
  KILN_TRY(kiln_lower_parameter(lw, from_x->scale, &how, sum, at, KILN_F32, &a));
  KILN_TRY(kiln_lower_parameter(lw, from_weights->scale, &how, sum, at, KILN_F32, &b));
  s->body =
      kiln_mul(cx, kiln_cast(cx, KILN_F32, kiln_tensor_load(cx, sum, at)), kiln_mul(cx, a, b));
  *out = kiln_lower_tensor(lw, s);
  return KILN_OK;
}
