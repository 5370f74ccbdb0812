// Operators between quantised tensors, which are what the same operators between numbers are,
// between DequantizeLinear and QuantizeLinear; and products of bytes that give floats. source: ONNX
// Runtime's QLinearAdd, QLinearMul, QLinearSigmoid, QLinearLeakyRelu, QLinearSoftmax,
// QLinearAveragePool, QLinearGlobalAveragePool, QLinearConcat, QGemm, DynamicQuantizeMatMul,
// MatMulIntegerToFloat
#include "fission/terms.h"

enum { OPSET = 13 };

static kiln_status call(kiln_lower *lw, const char *op, int n_inputs, kiln_tensor *const *inputs,
                        kiln_tensor **out) {
  const kiln_lower_callee c = {
      .domain = "", .op = op, .opset = OPSET, .n_inputs = n_inputs, .inputs = inputs};
  return kiln_lower_call(lw, &c, 1, out);
}

// The three inputs from |at| on: a tensor, its scale and its zero point.
static kiln_status dequantise(kiln_lower *lw, int at, kiln_tensor **out) {
  kiln_tensor *const all[] = {kiln_lower_in(lw, at), kiln_lower_in(lw, at + 1),
                              kiln_lower_in(lw, at + 2)};
  if (!all[0] || !all[1])
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                     "inputs %d and %d: must be a tensor and its scale", at, at + 1);
  return call(lw, "DequantizeLinear", 3, all, out);
}

// |y| by the scale and the zero point of inputs |at| and |at| + 1, which say its type, too, or
// |otherwise| does.
static kiln_status quantise(kiln_lower *lw, kiln_tensor *y, int at, kiln_dtype otherwise) {
  kiln_tensor *scale = kiln_lower_in(lw, at), *zero = kiln_lower_in(lw, at + 1);
  if (!scale)
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place, "input %d: must be a scale", at);
  const char nothing[8] = {0};
  if (!zero) zero = kiln_lower_make_const(lw, "zero", otherwise, 0, NULL, nothing);
  kiln_tensor *const all[] = {y, scale, zero};
  return call(lw, "QuantizeLinear", 3, all, &lw->outputs[0]);
}

// --- elementwise ---

static kiln_status binary(kiln_lower *lw, const char *op) {
  enum { A = 0, B = 3, C = 6 };
  kiln_tensor *both[2], *y = NULL;
  KILN_TRY(kiln_lower_want_inputs(lw, 1, 8));
  KILN_TRY(dequantise(lw, A, &both[0]));
  KILN_TRY(dequantise(lw, B, &both[1]));
  KILN_TRY(call(lw, op, 2, both, &y));
  return quantise(lw, y, C, lw->inputs[A]->dtype);
}

static kiln_status lower_add(kiln_lower *lw) { return binary(lw, "Add"); }
static kiln_status lower_mul(kiln_lower *lw) { return binary(lw, "Mul"); }

// X, its scale and zero point, and those of Y; the attributes are the operator's own.
static kiln_status unary(kiln_lower *lw, const char *op, int64_t opset) {
  kiln_tensor *x = NULL, *y = NULL;
  KILN_TRY(kiln_lower_want_inputs(lw, 1, 5));
  KILN_TRY(dequantise(lw, 0, &x));
  const kiln_lower_callee c = {.domain = "",
                               .op = op,
                               .opset = opset,
                               .n_inputs = 1,
                               .inputs = &x,
                               .n_attrs = lw->node->n_attrs,
                               .attrs = lw->node->attrs};
  KILN_TRY(kiln_lower_call(lw, &c, 1, &y));
  return quantise(lw, y, 3, lw->inputs[0]->dtype);
}

static kiln_status lower_sigmoid(kiln_lower *lw) { return unary(lw, "Sigmoid", OPSET); }
static kiln_status lower_leaky_relu(kiln_lower *lw) { return unary(lw, "LeakyRelu", OPSET); }

static kiln_status lower_softmax(kiln_lower *lw) {
  int64_t opset = OPSET;
  KILN_TRY(kiln_lower_int(lw, "opset", OPSET, &opset));
  return unary(lw, "Softmax", opset < OPSET ? 1 : OPSET);
}

static kiln_status want_channels_first(kiln_lower *lw) {
  int64_t last = 0;
  KILN_TRY(kiln_lower_int(lw, "channels_last", 0, &last));
  if (!last) return KILN_OK;
  return KILN_FAIL(lw->cx->diag, KILN_UNSUPPORTED, lw->place,
                   "channels_last: must be 0, got %" PRId64, last);
}

static kiln_status lower_average_pool(kiln_lower *lw) {
  KILN_TRY(want_channels_first(lw));
  return unary(lw, "AveragePool", 11);
}

static kiln_status lower_global_average_pool(kiln_lower *lw) {
  KILN_TRY(want_channels_first(lw));
  return unary(lw, "GlobalAveragePool", OPSET);
}

// Y's scale and zero point, then threes.
static kiln_status lower_concat(kiln_lower *lw) {
  KILN_TRY(kiln_lower_want_inputs(lw, 4, INT32_MAX));
  const int n = (lw->n_inputs - 2) / 3;
  kiln_tensor **parts = KILN_NEW_ARRAY(&lw->cx->perm, kiln_tensor *, n), *y = NULL;
  if (lw->n_inputs != 2 + 3 * n)
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                     "inputs: must be a scale, a zero point and threes, got %d", lw->n_inputs);
  for (int i = 0; i < n; i++) KILN_TRY(dequantise(lw, 2 + 3 * i, &parts[i]));
  const kiln_lower_callee c = {.domain = "",
                               .op = "Concat",
                               .opset = OPSET,
                               .n_inputs = n,
                               .inputs = parts,
                               .n_attrs = lw->node->n_attrs,
                               .attrs = lw->node->attrs};
  KILN_TRY(kiln_lower_call(lw, &c, 1, &y));
  return quantise(lw, y, 0, lw->inputs[2]->dtype);
}

// --- products ---

typedef struct product {
  kiln_tensor *a, *zero_a, *b, *zero_b;
  const kiln_tensor *scale_a, *scale_b, *bias; // bias: NULL: none
} product;

// The scale of |t| for the columns of |y|: one, or one for each.
static kiln_status scale_at(kiln_lower *lw, const kiln_tensor *t, const kiln_tensor *y,
                            const kiln_expr *const *at, const kiln_expr **out) {
  if (t->rank == 0 || kiln_expr_is(t->shape[0], 1))
    return kiln_lower_scalar(lw, t, KILN_F32, "scale", out);
  KILN_TRY(kiln_lower_want_rank(lw, t, 1, 1));
  KILN_TRY(kiln_lower_want_extent(lw, t, 0, y->shape[y->rank - 1]));
  *out = kiln_cast(lw->cx, KILN_F32, kiln_tensor_load(lw->cx, t, &at[y->rank - 1]));
  return KILN_OK;
}

// Sums of products of bytes, exact, then their scales.
static kiln_status multiply(kiln_lower *lw, const product *p) {
  kiln_ctx *cx = lw->cx;
  kiln_tensor *const operands[] = {p->a, p->b, p->zero_a, p->zero_b}, *sum = NULL;
  KILN_TRY(call(lw, "MatMulInteger", 4, operands, &sum));
  const kiln_expr *at[KILN_MAX_RANK], *a = NULL, *b = NULL;
  kiln_stmt *s = kiln_lower_like(lw, "scaled", sum, KILN_F32, at);
  KILN_TRY(scale_at(lw, p->scale_a, sum, at, &a));
  KILN_TRY(scale_at(lw, p->scale_b, sum, at, &b));
  const kiln_expr *e = kiln_cast(cx, KILN_F32, kiln_tensor_load(cx, sum, at));
  s->body = kiln_mul(cx, e, kiln_mul(cx, a, b));
  if (p->bias) {
    KILN_TRY(kiln_lower_want_rank(lw, p->bias, 1, 1));
    KILN_TRY(kiln_lower_want_extent(lw, p->bias, 0, sum->shape[sum->rank - 1]));
    const kiln_expr *addend = kiln_tensor_load(cx, p->bias, &at[sum->rank - 1]);
    s->body = kiln_add(cx, s->body, kiln_cast(cx, KILN_F32, addend));
  }
  lw->outputs[0] = kiln_lower_tensor(lw, s);
  return KILN_OK;
}

static kiln_status lower_dynamic_quantize_matmul(kiln_lower *lw) {
  KILN_TRY(kiln_lower_want_inputs(lw, 3, 5));
  kiln_tensor *x[3];
  const kiln_lower_callee c = {.domain = "",
                               .op = "DynamicQuantizeLinear",
                               .opset = OPSET,
                               .n_inputs = 1,
                               .inputs = lw->inputs};
  KILN_TRY(kiln_lower_call(lw, &c, 3, x));
  const product p = {.a = x[0],
                     .scale_a = x[1],
                     .zero_a = x[2],
                     .b = lw->inputs[1],
                     .scale_b = lw->inputs[2],
                     .zero_b = kiln_lower_in(lw, 3),
                     .bias = kiln_lower_in(lw, 4)};
  return multiply(lw, &p);
}

static kiln_status lower_matmul_integer_to_float(kiln_lower *lw) {
  KILN_TRY(kiln_lower_want_inputs(lw, 4, 7));
  const product p = {.a = lw->inputs[0],
                     .b = lw->inputs[1],
                     .scale_a = lw->inputs[2],
                     .scale_b = lw->inputs[3],
                     .zero_a = kiln_lower_in(lw, 4),
                     .zero_b = kiln_lower_in(lw, 5),
                     .bias = kiln_lower_in(lw, 6)};
  return multiply(lw, &p);
}

// C's codes have the scale of the products.
static kiln_status gemm_addend(kiln_lower *lw, kiln_tensor *c, double alpha, kiln_tensor **out) {
  enum { SCALE_A = 1, SCALE_B = 4 };
  kiln_ctx *cx = lw->cx;
  const kiln_expr *at[KILN_MAX_RANK], *a = NULL, *b = NULL;
  KILN_TRY(kiln_lower_want_rank(lw, c, 1, 2));
  kiln_stmt *s = kiln_lower_like(lw, "addend", c, KILN_F32, at);
  KILN_TRY(scale_at(lw, lw->inputs[SCALE_A], c, at, &a));
  KILN_TRY(scale_at(lw, lw->inputs[SCALE_B], c, at, &b));
  const kiln_expr *scale = kiln_mul(cx, kiln_mul(cx, a, b), kiln_number(cx, KILN_F32, alpha));
  s->body = kiln_mul(cx, kiln_cast(cx, KILN_F32, kiln_tensor_load(cx, c, at)), scale);
  *out = kiln_lower_tensor(lw, s);
  return KILN_OK;
}

static kiln_status lower_gemm(kiln_lower *lw) {
  enum { A = 0, B = 3, C = 6, Y = 7 };
  kiln_ctx *cx = lw->cx;
  kiln_tensor *parts[3] = {NULL}, *y = NULL;
  int64_t trans_b = 0;
  double alpha = 1;
  KILN_TRY(kiln_lower_want_inputs(lw, 6, 9));
  KILN_TRY(kiln_lower_int(lw, "transB", 0, &trans_b));
  KILN_TRY(kiln_lower_float(lw, "alpha", 1, &alpha));
  KILN_TRY(dequantise(lw, A, &parts[0]));
  const kiln_attr axis = kiln_attr_int(cx, "axis", trans_b ? 0 : 1);
  const kiln_lower_callee weights = {.domain = "",
                                     .op = "DequantizeLinear",
                                     .opset = OPSET,
                                     .n_inputs = 3,
                                     .inputs = lw->inputs + B,
                                     .n_attrs = 1,
                                     .attrs = &axis};
  KILN_TRY(kiln_lower_call(lw, &weights, 1, &parts[1]));
  if (kiln_lower_in(lw, C)) KILN_TRY(gemm_addend(lw, lw->inputs[C], alpha, &parts[2]));
  const kiln_lower_callee gemm = {.domain = "",
                                  .op = "Gemm",
                                  .opset = OPSET,
                                  .n_inputs = parts[2] ? 3 : 2,
                                  .inputs = parts,
                                  .n_attrs = lw->node->n_attrs,
                                  .attrs = lw->node->attrs};
  KILN_TRY(kiln_lower_call(lw, &gemm, 1, &y));
  if (kiln_lower_in(lw, Y)) return quantise(lw, y, Y, lw->inputs[A]->dtype);
  lw->outputs[0] = y;
  return KILN_OK;
}

const kiln_op kiln_op_qlinear[] = {
    {"com.microsoft", "QLinearAdd", 1, 0, lower_add, NULL, "ops/qlinear.c"},
    {"com.microsoft", "QLinearMul", 1, 0, lower_mul, NULL, "ops/qlinear.c"},
    {"com.microsoft", "QLinearSigmoid", 1, 0, lower_sigmoid, NULL, "ops/qlinear.c"},
    {"com.microsoft", "QLinearLeakyRelu", 1, 0, lower_leaky_relu, NULL, "ops/qlinear.c"},
    {"com.microsoft", "QLinearSoftmax", 1, 0, lower_softmax, NULL, "ops/qlinear.c"},
    {"com.microsoft", "QLinearAveragePool", 1, 0, lower_average_pool, NULL, "ops/qlinear.c"},
    {"com.microsoft", "QLinearGlobalAveragePool", 1, 0, lower_global_average_pool, NULL,
     "ops/qlinear.c"},
    {"com.microsoft", "QLinearConcat", 1, 0, lower_concat, NULL, "ops/qlinear.c"},
    {"com.microsoft", "QGemm", 1, 0, lower_gemm, NULL, "ops/qlinear.c"},
    {"com.microsoft", "DynamicQuantizeMatMul", 1, 0, lower_dynamic_quantize_matmul, NULL,
     "ops/qlinear.c"},
    {"com.microsoft", "MatMulIntegerToFloat", 1, 0, lower_matmul_integer_to_float, NULL,
     "ops/qlinear.c"},
    {0},
};
