// The quantised operators: QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear, MatMulInteger,
// QLinearMatMul, ConvInteger and QLinearConv. Contractions sum in i32; zero points are taken off
// the sums where the factors can be u8 and i8, which processors multiply several at once, else in
// i32 before the contraction. Numbers become codes without a zero point of their own: it is added
// to what is encoded. source: ONNX QuantizeLinear-10, 13, 19, 21, 23, 24;
// DequantizeLinear-10, 13, 19, 21, 23, 24; DynamicQuantizeLinear-11; MatMulInteger-10;
// QLinearMatMul-10, 21; ConvInteger-10; QLinearConv-10
#include "analysis/simplify.h"
#include "fission/bytes.h"
#include "ir/encoding.h"

enum { MAX_ORIGINS = 16 };

static bool is_quantised(kiln_dtype t) {
  return t == KILN_I8 || t == KILN_U8 || t == KILN_I16 || t == KILN_U16;
}

static bool is_code_of_ints(kiln_dtype t) {
  const kiln_encoding_format *f = kiln_encoding_format_of(t);
  return f && (f->kind == KILN_ENCODING_INT || f->kind == KILN_ENCODING_UINT);
}

static bool is_quantisation(kiln_dtype t) {
  return is_quantised(t) || is_code_of_ints(t) || kiln_dtype_is_code_of_floats(t);
}

static bool is_dequantisable(kiln_dtype t) { return is_quantisation(t) || t == KILN_I32; }

static bool is_scale(kiln_dtype t) {
  return kiln_dtype_is_float(t) || t == KILN_F8E8M0 || t == KILN_I32;
}

// The axis matters only where a parameter has one element for each of its places.
static kiln_status read_granularity(kiln_lower *lw, kiln_granularity *out) {
  const kiln_tensor *x = lw->inputs[0], *scale = lw->inputs[1], *zero = kiln_lower_in(lw, 2);
  int64_t axis = 1;
  *out = (kiln_granularity){0};
  KILN_TRY(kiln_lower_int(lw, "axis", 1, &axis));
  KILN_TRY(kiln_lower_int(lw, "block_size", 0, &out->block));
  if (kiln_tensor_is_scalar(scale) && (!zero || kiln_tensor_is_scalar(zero))) return KILN_OK;
  return kiln_lower_axis(lw, axis, x->rank, false, &out->axis);
}

static kiln_status read_dtype(kiln_lower *lw, const char *attribute, kiln_dtype otherwise,
                              kiln_dtype *out) {
  int64_t code = 0;
  *out = otherwise;
  KILN_TRY(kiln_lower_int(lw, attribute, 0, &code));
  if (code == 0 || kiln_dtype_of_onnx(code, out)) return KILN_OK;
  return KILN_FAIL(lw->cx->diag, KILN_UNSUPPORTED, lw->place,
                   "%s: must be one that Kiln has, got %" PRId64, attribute, code);
}

// saturate(round(value) + zero): the cast saturates.
static const kiln_expr *quantised(kiln_ctx *cx, const kiln_expr *value, const kiln_expr *zero,
                                  kiln_dtype t) {
  const kiln_expr *rounded = kiln_unary(cx, KILN_EXPR_ROUND, value);
  return kiln_cast(cx, t, zero ? kiln_add(cx, rounded, zero) : rounded);
}

// The low bits of what is clamped to the range of the type.
static const kiln_expr *quantised_code(kiln_ctx *cx, const kiln_expr *value, const kiln_expr *zero,
                                       kiln_dtype t) {
  const kiln_encoding_format *f = kiln_encoding_format_of(t);
  const int least = f->kind == KILN_ENCODING_INT ? -f->most - 1 : 0;
  const kiln_expr *number = quantised(cx, value, zero, KILN_I32);
  number = kiln_most(cx, number, kiln_number(cx, KILN_I32, least));
  return kiln_cast(cx, t, kiln_least(cx, number, kiln_number(cx, KILN_I32, f->most)));
}

// The type that quotients are rounded to: of the attribute, else of the scale.
static kiln_status precision_of(kiln_lower *lw, kiln_dtype *out) {
  const kiln_dtype scale = lw->inputs[1]->dtype;
  KILN_TRY(read_dtype(lw, "precision", kiln_dtype_is_float(scale) ? scale : KILN_F32, out));
  if (kiln_dtype_is_float(*out)) return KILN_OK;
  return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place, "precision: must be a float, got %s",
                   kiln_dtype_text(*out));
}

// Tensors that a value is made of, as they are found.
typedef struct origins {
  const kiln_program *p;
  const kiln_tensor *found[MAX_ORIGINS];
  int n; // beyond MAX_ORIGINS: too many
} origins;

static void note_load(const kiln_expr *e, void *argument) {
  origins *o = argument;
  if (e->kind != KILN_EXPR_LOAD) return;
  const kiln_tensor *t = o->p->tensors.data[e->u.tensor];
  bool is_new = t->role != KILN_CONST;
  for (int i = 0; i < o->n && i < MAX_ORIGINS; i++) is_new &= o->found[i] != t;
  if (!is_new) return;
  if (o->n < MAX_ORIGINS) o->found[o->n] = t;
  o->n++;
}

// Whether |x| is made, in f32 and in few steps, of what integers of the run are scaled to: sums, or
// codes.
static bool scales_integers(const kiln_lower *lw, const kiln_tensor *x) {
  origins o = {.p = lw->prog, .found = {x}, .n = 1};
  for (int i = 0; i < o.n; i++) {
    if (o.n > MAX_ORIGINS) return false;
    const kiln_tensor *t = o.found[i];
    if (kiln_dtype_is_int(t->dtype)) continue;
    if (t->dtype != KILN_F32 || t->def < 0) return false;
    kiln_expr_visit(lw->cx, lw->prog->stmts.data[t->def]->body, note_load, &o);
  }
  return true;
}

// x / scale. Scaled integers are multiplied by the inverse of a constant scale, as ONNX Runtime's
// integer operators do: halves between two codes may round either way.
static const kiln_expr *quotient_of(kiln_lower *lw, const kiln_expr *value,
                                    const kiln_expr *scale) {
  kiln_ctx *cx = lw->cx;
  if (scale->kind == KILN_EXPR_FLOAT && scale->dtype == KILN_F32 &&
      scales_integers(lw, lw->inputs[0]))
    return kiln_mul(cx, value, kiln_float(cx, KILN_F32, 1 / scale->u.f));
  return kiln_div(cx, value, scale);
}

static kiln_status lower_quantize(kiln_lower *lw) {
  kiln_ctx *cx = lw->cx;
  KILN_TRY(kiln_lower_want_inputs(lw, 2, 3));
  const kiln_tensor *x = lw->inputs[0], *zero_point = kiln_lower_in(lw, 2);
  kiln_dtype t = KILN_U8, precision = KILN_F32;
  int64_t saturates = 1;
  kiln_granularity how;
  KILN_TRY(read_dtype(lw, "output_dtype", zero_point ? zero_point->dtype : KILN_U8, &t));
  KILN_TRY(precision_of(lw, &precision));
  KILN_TRY(kiln_lower_int(lw, "saturate", 1, &saturates));
  KILN_TRY(read_granularity(lw, &how));
  if (!is_quantisation(t))
    return KILN_FAIL(cx->diag, KILN_UNSUPPORTED, lw->place,
                     "the output must be i8, u8, i16, u16 or a code of fewer bits, got %s",
                     kiln_dtype_text(t));
  kiln_tensor *known = kiln_quantised_codes(lw, x, lw->inputs[1], zero_point, t);
  if (known && precision == KILN_F32) {
    lw->outputs[0] = known;
    return KILN_OK;
  }
  const kiln_dtype wide = precision == KILN_F64 ? KILN_F64 : KILN_F32;
  const kiln_expr *at[KILN_MAX_RANK], *scale = NULL, *zero = NULL;
  // The quotient is a tensor of its own: ties are those of its precision, also where the statements
  // are computed in double.
  kiln_stmt *quotient = kiln_lower_like(lw, "quotient", x, precision, at);
  KILN_TRY(kiln_lower_parameter(lw, lw->inputs[1], &how, x, at, precision, &scale));
  const kiln_expr *value = kiln_cast(cx, precision, kiln_tensor_load(cx, x, at));
  value = quotient_of(lw, kiln_cast(cx, wide, value), kiln_cast(cx, wide, scale));
  quotient->body = kiln_cast(cx, precision, value);
  kiln_stmt *s = kiln_lower_like(lw, "quantize", x, t, at);
  if (zero_point) KILN_TRY(kiln_lower_parameter(lw, zero_point, &how, x, at, wide, &zero));
  value = kiln_cast(cx, wide, kiln_tensor_load(cx, kiln_lower_tensor(lw, quotient), at));
  if (kiln_dtype_is_code_of_floats(t))
    s->body = kiln_encode(cx, t, zero ? kiln_add(cx, value, zero) : value,
                          (kiln_encoding){.saturates = saturates != 0});
  else
    s->body =
        is_code_of_ints(t) ? quantised_code(cx, value, zero, t) : quantised(cx, value, zero, t);
  lw->outputs[0] = kiln_lower_tensor(lw, s);
  return KILN_OK;
}

static kiln_status lower_dequantize(kiln_lower *lw) {
  KILN_TRY(kiln_lower_want_inputs(lw, 2, 3));
  KILN_TRY(kiln_lower_want_dtype(lw, 0, is_dequantisable,
                                 "i8, u8, i16, u16, i32 or a code of fewer bits"));
  KILN_TRY(kiln_lower_want_dtype(lw, 1, is_scale, "a float, i32 or f8e8m0"));
  const kiln_dtype scale_dtype = lw->inputs[1]->dtype;
  kiln_dtype t = KILN_F32;
  kiln_granularity how;
  KILN_TRY(read_dtype(lw, "output_dtype", kiln_dtype_is_float(scale_dtype) ? scale_dtype : KILN_F32,
                      &t));
  KILN_TRY(read_granularity(lw, &how));
  const kiln_quantised from = {lw->inputs[0], lw->inputs[1], kiln_lower_in(lw, 2), how};
  return kiln_lower_dequantised(lw, &from, t, &lw->outputs[0]);
}

// --- DynamicQuantizeLinear ---

static const kiln_expr *flat_place(kiln_ctx *cx, int rank, const int64_t *shape,
                                   const kiln_expr *const *at) {
  const kiln_expr *flat = kiln_int(cx, 0);
  for (int k = 0; k < rank; k++)
    flat = kiln_add(cx, kiln_mul(cx, flat, kiln_int(cx, shape[k])), at[k]);
  return flat;
}

// Whether |s|, which writes |t|, loads each element of |from| once: by its own dims, each at an
// axis, or in the order in which they lie, by another shape.
static bool takes_all(kiln_ctx *cx, const kiln_stmt *s, const kiln_tensor *t,
                      const kiln_tensor *from) {
  const kiln_expr *load = s->body, *at[KILN_MAX_RANK];
  int64_t shape[KILN_MAX_RANK], shape_from[KILN_MAX_RANK];
  bool has_all = true, has_dim[2 * KILN_MAX_RANK] = {false};
  if (!kiln_tensor_static_shape(t, shape) || !kiln_tensor_static_shape(from, shape_from) ||
      kiln_tensor_elems(t) != kiln_tensor_elems(from))
    return false;
  for (int k = 0; k < load->n_args; k++) {
    const int d = kiln_stmt_dim_of(s, load->args[k]);
    if (d >= 0) has_dim[d] = true;
  }
  for (int d = 0; d < s->n_space; d++) has_all &= has_dim[d] || shape[d] == 1;
  if (has_all) return true;
  kiln_stmt_vars(cx, s, 0, t->rank, at);
  const kiln_expr *apart = kiln_sub(cx, flat_place(cx, from->rank, shape_from, load->args),
                                    flat_place(cx, t->rank, shape, at));
  return kiln_expr_is_zero(kiln_stmt_simplify(cx, s, apart));
}

// A tensor with the elements of |x|, before they were transposed and reshaped: they are looked
// through as they lie.
static const kiln_tensor *before_moves(const kiln_lower *lw, const kiln_tensor *x) {
  for (;;) {
    const kiln_stmt *s = x->role == KILN_TEMP && x->def >= 0 ? lw->prog->stmts.data[x->def] : NULL;
    if (!s || s->n_reduce || s->guard || s->init || !kiln_stmt_is_plain(lw->cx, s) ||
        s->body->kind != KILN_EXPR_LOAD)
      return x;
    const kiln_tensor *from = lw->prog->tensors.data[s->body->u.tensor];
    if (!takes_all(lw->cx, s, x, from)) return x;
    x = from;
  }
}

// The greatest or least element of x, and 0.
static const kiln_tensor *bound(kiln_lower *lw, const kiln_tensor *x, kiln_combiner combiner) {
  kiln_ctx *cx = lw->cx;
  const kiln_expr *at[KILN_MAX_RANK];
  kiln_stmt *s = kiln_lower_stmt(lw, "bound", x->dtype, 0, x->rank, x->shape);
  kiln_stmt_vars(cx, s, 0, x->rank, at);
  s->body = kiln_tensor_load(cx, x, at);
  s->combiner = combiner;
  const kiln_tensor *found = kiln_lower_tensor(lw, s);
  kiln_stmt *with_zero = kiln_lower_stmt(lw, "bound_with_zero", x->dtype, 0, 0, NULL);
  with_zero->body =
      kiln_combine(cx, combiner, kiln_tensor_load(cx, found, NULL), kiln_number(cx, x->dtype, 0));
  return kiln_lower_tensor(lw, with_zero);
}

// |value| by way of a tensor, so that ties are those of its type, also where the statements are
// computed in double.
static const kiln_expr *rounded_scalar(kiln_lower *lw, const char *name, const kiln_expr *value) {
  kiln_stmt *s = kiln_lower_stmt(lw, name, value->dtype, 0, 0, NULL);
  s->body = value;
  return kiln_tensor_load(lw->cx, kiln_lower_tensor(lw, s), NULL);
}

static kiln_status lower_dynamic_quantize(kiln_lower *lw) {
  kiln_ctx *cx = lw->cx;
  KILN_TRY(kiln_lower_want_inputs(lw, 1, 1));
  KILN_TRY(kiln_lower_want_dtype(lw, 0, kiln_dtype_is_float, "a float"));
  const kiln_tensor *x = lw->inputs[0];
  const kiln_dtype t = x->dtype;
  const kiln_tensor *all = before_moves(lw, x), *top = bound(lw, all, KILN_COMBINE_MAX),
                    *low = bound(lw, all, KILN_COMBINE_MIN);
  const kiln_expr *most = kiln_number(cx, t, 255), *zero = kiln_number(cx, t, 0);
  const kiln_expr *low_value = kiln_tensor_load(cx, low, NULL);
  const kiln_expr *width =
      rounded_scalar(lw, "width", kiln_sub(cx, kiln_tensor_load(cx, top, NULL), low_value));
  kiln_stmt *scale = kiln_lower_stmt(lw, "scale", t, 0, 0, NULL);
  scale->body = kiln_div(cx, width, most);
  lw->outputs[1] = kiln_lower_tensor(lw, scale);
  const kiln_expr *step = kiln_tensor_load(cx, lw->outputs[1], NULL);
  const kiln_expr *shift =
      rounded_scalar(lw, "shift", kiln_div(cx, kiln_sub(cx, zero, low_value), step));
  kiln_stmt *point = kiln_lower_stmt(lw, "zero_point", KILN_U8, 0, 0, NULL);
  shift = kiln_most(cx, zero, kiln_least(cx, shift, most));
  point->body = quantised(cx, shift, NULL, KILN_U8);
  lw->outputs[2] = kiln_lower_tensor(lw, point);
  const kiln_expr *at[KILN_MAX_RANK];
  kiln_stmt *quotient = kiln_lower_like(lw, "quotient", x, t, at);
  quotient->body = kiln_div(cx, kiln_tensor_load(cx, x, at), step);
  kiln_stmt *y = kiln_lower_like(lw, "quantize", x, KILN_U8, at);
  const kiln_expr *z = kiln_cast(cx, t, kiln_tensor_load(cx, lw->outputs[2], NULL));
  const kiln_expr *value = kiln_tensor_load(cx, kiln_lower_tensor(lw, quotient), at);
  y->body = quantised(cx, value, z, KILN_U8);
  lw->outputs[0] = kiln_lower_tensor(lw, y);
  return KILN_OK;
}

// --- integer contractions ---

// i32(x) - zero_point; |x| itself when there is none to take off. |axis|: that of one-dimensional
// zero points.
static kiln_status without_zero(kiln_lower *lw, kiln_tensor *x, const kiln_tensor *zero_point,
                                int axis, kiln_tensor **out) {
  kiln_ctx *cx = lw->cx;
  *out = x;
  if (!zero_point) return KILN_OK;
  const kiln_expr *at[KILN_MAX_RANK], *zero = NULL;
  const kiln_granularity how = {.axis = axis < 0 ? 0 : axis};
  kiln_stmt *s = kiln_lower_like(lw, "centred", x, KILN_I32, at);
  KILN_TRY(kiln_lower_parameter(lw, zero_point, &how, x, at, KILN_I32, &zero));
  s->body = kiln_sub(cx, kiln_cast(cx, KILN_I32, kiln_tensor_load(cx, x, at)), zero);
  *out = kiln_lower_tensor(lw, s);
  return KILN_OK;
}

static kiln_status integer_matmul(kiln_lower *lw, kiln_tensor *a, kiln_tensor *zero_a,
                                  kiln_tensor *b, kiln_tensor *zero_b, kiln_tensor **out) {
  if (kiln_tensor_is_zero(zero_b)) zero_b = NULL;
  if (kiln_tensor_is_zero(zero_a)) zero_a = NULL;
  const kiln_byte_product p = {a, zero_a, b, zero_b, .axis = 1};
  if (b->rank == 2 && kiln_bytes_fit(&p)) return kiln_bytes_matmul(lw, &p, out);
  KILN_TRY(without_zero(lw, a, zero_a, a->rank - 2, &a));
  KILN_TRY(without_zero(lw, b, zero_b, b->rank - 1, &b));
  return kiln_lower_matmul(lw, a, b, KILN_I32, out);
}

static kiln_status lower_matmul_integer(kiln_lower *lw) {
  KILN_TRY(kiln_lower_want_inputs(lw, 2, 4));
  KILN_TRY(kiln_lower_want_dtype(lw, 0, kiln_dtype_is_byte, "i8 or u8"));
  KILN_TRY(kiln_lower_want_dtype(lw, 1, kiln_dtype_is_byte, "i8 or u8"));
  return integer_matmul(lw, lw->inputs[0], kiln_lower_in(lw, 2), lw->inputs[1],
                        kiln_lower_in(lw, 3), &lw->outputs[0]);
}

// The scales of a requantisation and the axes along which they lie.
typedef struct rescale {
  const kiln_tensor *a, *b, *y, *zero; // zero: of y
  int axis_a, axis_b;
} rescale;

// saturate(round(sum * a * b / y) + zero).
static kiln_status requantise(kiln_lower *lw, const kiln_tensor *sum, const rescale *r) {
  kiln_ctx *cx = lw->cx;
  const kiln_dtype t = r->zero->dtype;
  const kiln_expr *at[KILN_MAX_RANK], *a = NULL, *b = NULL, *y = NULL, *zero = NULL;
  const kiln_granularity along_a = {.axis = r->axis_a < 0 ? 0 : r->axis_a};
  const kiln_granularity along_b = {.axis = r->axis_b < 0 ? 0 : r->axis_b};
  if (!is_quantised(t))
    return KILN_FAIL(cx->diag, KILN_UNSUPPORTED, lw->place,
                     "the output must be i8, u8, i16 or u16, got %s", kiln_dtype_text(t));
  kiln_stmt *s = kiln_lower_like(lw, "requantize", sum, t, at);
  KILN_TRY(kiln_lower_parameter(lw, r->a, &along_a, sum, at, KILN_F32, &a));
  KILN_TRY(kiln_lower_parameter(lw, r->b, &along_b, sum, at, KILN_F32, &b));
  KILN_TRY(kiln_lower_parameter(lw, r->y, &along_b, sum, at, KILN_F32, &y));
  KILN_TRY(kiln_lower_parameter(lw, r->zero, &along_b, sum, at, KILN_F32, &zero));
  const kiln_expr *value = kiln_cast(cx, KILN_F32, kiln_tensor_load(cx, sum, at));
  value = kiln_mul(cx, value, kiln_div(cx, kiln_mul(cx, a, b), y));
  s->body = quantised(cx, value, zero, t);
  lw->outputs[0] = kiln_lower_tensor(lw, s);
  return KILN_OK;
}

static kiln_status lower_qlinear_matmul(kiln_lower *lw) {
  KILN_TRY(kiln_lower_want_inputs(lw, 8, 8));
  KILN_TRY(kiln_lower_want_dtype(lw, 0, kiln_dtype_is_byte, "i8 or u8"));
  KILN_TRY(kiln_lower_want_dtype(lw, 3, kiln_dtype_is_byte, "i8 or u8"));
  kiln_tensor *const *in = lw->inputs, *sum = NULL;
  KILN_TRY(integer_matmul(lw, in[0], in[2], in[3], in[5], &sum));
  const rescale r = {.a = in[1],
                     .b = in[4],
                     .y = in[6],
                     .zero = in[7],
                     .axis_a = sum->rank - 2,
                     .axis_b = sum->rank - 1};
  return requantise(lw, sum, &r);
}

static kiln_status integer_conv(kiln_lower *lw, kiln_tensor *x, kiln_tensor *zero_x,
                                kiln_tensor *weights, kiln_tensor *zero_w, kiln_tensor **out) {
  int64_t group = 1;
  kiln_conv_window w;
  KILN_TRY(kiln_lower_int(lw, "group", 1, &group));
  KILN_TRY(kiln_conv_window_read(lw, x, weights, &w));
  int64_t channels = 0;
  KILN_TRY(kiln_lower_extent(lw, weights, 1, &channels));
  const kiln_byte_product p = {x, zero_x, weights, zero_w, .axis = 0};
  if (kiln_bytes_convolve(x, channels, group) && kiln_bytes_fit(&p))
    return kiln_bytes_conv(lw, &p, group, &w, out);
  KILN_TRY(without_zero(lw, x, zero_x, 0, &x));
  KILN_TRY(without_zero(lw, weights, zero_w, 0, &weights));
  return kiln_lower_conv(lw, x, weights, group, &w, KILN_I32, out);
}

static kiln_status lower_conv_integer(kiln_lower *lw) {
  KILN_TRY(kiln_lower_want_inputs(lw, 2, 4));
  KILN_TRY(kiln_lower_want_dtype(lw, 0, kiln_dtype_is_byte, "i8 or u8"));
  KILN_TRY(kiln_lower_want_dtype(lw, 1, kiln_dtype_is_byte, "i8 or u8"));
  return integer_conv(lw, lw->inputs[0], kiln_lower_in(lw, 2), lw->inputs[1], kiln_lower_in(lw, 3),
                      &lw->outputs[0]);
}

static kiln_status lower_qlinear_conv(kiln_lower *lw) {
  KILN_TRY(kiln_lower_want_inputs(lw, 8, 9));
  KILN_TRY(kiln_lower_want_dtype(lw, 0, kiln_dtype_is_byte, "i8 or u8"));
  KILN_TRY(kiln_lower_want_dtype(lw, 3, kiln_dtype_is_byte, "i8 or u8"));
  kiln_tensor *const *in = lw->inputs, *sum = NULL;
  KILN_TRY(integer_conv(lw, in[0], in[2], in[3], in[5], &sum));
  KILN_TRY(kiln_lower_channel_bias(lw, sum, kiln_lower_in(lw, 8), &sum));
  const rescale r = {.a = in[1], .b = in[4], .y = in[6], .zero = in[7], .axis_a = 1, .axis_b = 1};
  return requantise(lw, sum, &r);
}

const kiln_op kiln_op_quantize[] = {
    {"", "QuantizeLinear", 10, 0, lower_quantize, NULL, "ops/quantize.c"},
    {"", "DequantizeLinear", 10, 0, lower_dequantize, NULL, "ops/quantize.c"},
    {"", "DynamicQuantizeLinear", 11, 0, lower_dynamic_quantize, NULL, "ops/quantize.c"},
    {"", "MatMulInteger", 10, 0, lower_matmul_integer, NULL, "ops/quantize.c"},
    {"", "QLinearMatMul", 10, 0, lower_qlinear_matmul, NULL, "ops/quantize.c"},
    {"", "ConvInteger", 10, 0, lower_conv_integer, NULL, "ops/quantize.c"},
    {"", "QLinearConv", 10, 0, lower_qlinear_conv, NULL, "ops/quantize.c"},
    {0},
};
