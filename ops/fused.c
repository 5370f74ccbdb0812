// Operators that ONNX Runtime fused: contractions with an activation, with transposed operands, in
// channels last. source: ONNX Runtime's FusedMatMul, FusedGemm, FusedConv, NhwcMaxPool
#include "fission/terms.h"

#include <string.h>

enum { OPSET = 13, MAX_PARAMETERS = 2 };

// --- contractions with an activation ---

// The attributes by which an activation's own parameters go.
static const struct {
  const char *name, *parameters[MAX_PARAMETERS];
} activations[] = {
    {"Relu", {NULL}},         {"Tanh", {NULL}},     {"Sigmoid", {NULL}},
    {"LeakyRelu", {"alpha"}}, {"Clip", {NULL}},     {"HardSigmoid", {"alpha", "beta"}},
    {"Elu", {"alpha"}},       {"Softplus", {NULL}}, {"ThresholdedRelu", {"alpha"}},
    {"HardSwish", {NULL}},    {"Softsign", {NULL}}, {"Selu", {"alpha", "gamma"}},
    {"Gelu", {NULL}},
};

// |n| numbers, those that the node gives.
static kiln_status call_activation(kiln_lower *lw, const char *name, int n, const float *numbers,
                                   kiln_tensor **y) {
  kiln_ctx *cx = lw->cx;
  for (size_t i = 0; i < KILN_LEN(activations); i++) {
    if (strcmp(name, activations[i].name) != 0) continue;
    kiln_attr attrs[MAX_PARAMETERS];
    kiln_tensor *inputs[3] = {*y};
    int n_attrs = 0, n_inputs = 1;
    for (int k = 0; k < MAX_PARAMETERS && k < n && activations[i].parameters[k]; k++)
      attrs[n_attrs++] = kiln_attr_float(cx, activations[i].parameters[k], (double)numbers[k]);
    if (strcmp(name, "Clip") == 0) // its bounds are inputs
      for (int k = 0; k < n && k < 2; k++) {
        const float bound = numbers[k];
        kiln_tensor *t = kiln_lower_make_const(lw, "bound", KILN_F32, 0, NULL, &bound);
        KILN_TRY(kiln_lower_cast(lw, t, (*y)->dtype, &inputs[n_inputs++]));
      }
    const bool is_gelu = strcmp(name, "Gelu") == 0;
    const kiln_lower_callee c = {.domain = "",
                                 .op = name,
                                 .opset = is_gelu                          ? 20
                                          : strcmp(name, "HardSwish") == 0 ? 14
                                                                           : OPSET,
                                 .n_inputs = n_inputs,
                                 .inputs = inputs,
                                 .n_attrs = n_attrs,
                                 .attrs = attrs};
    return kiln_lower_call(lw, &c, 1, y);
  }
  return KILN_FAIL(cx->diag, KILN_UNSUPPORTED, lw->place,
                   "activation: must be one that Kiln has, got %s", name);
}

// The operator |op| as the node's attributes say, which it shares.
static kiln_status call_with_attrs(kiln_lower *lw, const char *op, int n_inputs, kiln_tensor **y) {
  const kiln_lower_callee c = {.domain = "",
                               .op = op,
                               .opset = OPSET,
                               .n_inputs = n_inputs < lw->n_inputs ? n_inputs : lw->n_inputs,
                               .inputs = lw->inputs,
                               .n_attrs = lw->node->n_attrs,
                               .attrs = lw->node->attrs};
  return kiln_lower_call(lw, &c, 1, y);
}

static kiln_status activate(kiln_lower *lw, kiln_tensor *y) {
  static const char *const alone[] = {"activation_alpha", "activation_beta"};
  const char *name = NULL;
  const kiln_attr *list = kiln_lower_attr(lw, "activation_params");
  float given[2];
  int n = 0;
  KILN_TRY(kiln_lower_string(lw, "activation", "", &name));
  for (size_t i = 0; i < KILN_LEN(alone) && kiln_lower_attr(lw, alone[i]); i++) {
    double value = 0;
    KILN_TRY(kiln_lower_float(lw, alone[i], 0, &value));
    given[n++] = (float)value;
  }
  const bool has_list = list && list->kind == KILN_ATTR_FLOATS;
  if (*name)
    KILN_TRY(
        call_activation(lw, name, has_list ? list->n : n, has_list ? list->u.floats : given, &y));
  lw->outputs[0] = y;
  return KILN_OK;
}

static kiln_status lower_fused_gemm(kiln_lower *lw) {
  kiln_tensor *y = NULL;
  KILN_TRY(kiln_lower_want_inputs(lw, 2, 3));
  KILN_TRY(call_with_attrs(lw, "Gemm", 3, &y));
  return activate(lw, y);
}

// What is added to the convolution has its shape.
static kiln_status lower_fused_conv(kiln_lower *lw) {
  enum { ADDEND = 3 };
  kiln_tensor *y = NULL;
  KILN_TRY(kiln_lower_want_inputs(lw, 2, 4));
  KILN_TRY(call_with_attrs(lw, "Conv", 3, &y));
  if (kiln_lower_in(lw, ADDEND)) {
    kiln_tensor *const both[] = {y, lw->inputs[ADDEND]};
    const kiln_lower_callee add = {
        .domain = "", .op = "Add", .opset = OPSET, .n_inputs = 2, .inputs = both};
    KILN_TRY(kiln_lower_call(lw, &add, 1, &y));
  }
  return activate(lw, y);
}

// --- FusedMatMul ---

// |t| with its first axis behind the other batch axes, where |batch|, and its last two exchanged,
// where |rows|.
static kiln_status turned(kiln_lower *lw, kiln_tensor *t, const char *batch, const char *rows,
                          kiln_tensor **out) {
  int64_t turns_batch = 0, turns_rows = 0;
  int perm[KILN_MAX_RANK];
  KILN_TRY(kiln_lower_int(lw, batch, 0, &turns_batch));
  KILN_TRY(kiln_lower_int(lw, rows, 0, &turns_rows));
  *out = t;
  if (t->rank < 2) return KILN_OK;
  for (int i = 0; i < t->rank; i++) perm[i] = i;
  if (turns_batch && t->rank > 2) {
    for (int i = 0; i < t->rank - 2; i++) perm[i] = i + 1;
    perm[t->rank - 2] = 0;
  }
  if (turns_rows) {
    const int last = perm[t->rank - 1];
    perm[t->rank - 1] = perm[t->rank - 2];
    perm[t->rank - 2] = last;
  }
  *out = kiln_lower_transpose(lw, t, perm);
  return KILN_OK;
}

static kiln_status lower_fused_matmul(kiln_lower *lw) {
  kiln_ctx *cx = lw->cx;
  kiln_tensor *a = NULL, *b = NULL, *y = NULL;
  double alpha = 1;
  KILN_TRY(kiln_lower_want_inputs(lw, 2, 2));
  KILN_TRY(kiln_lower_want_dtype(lw, 0, kiln_dtype_is_float, "a float"));
  KILN_TRY(kiln_lower_float(lw, "alpha", 1, &alpha));
  const kiln_dtype t = lw->inputs[0]->dtype;
  KILN_TRY(turned(lw, lw->inputs[0], "transBatchA", "transA", &a));
  KILN_TRY(turned(lw, lw->inputs[1], "transBatchB", "transB", &b));
  KILN_TRY(kiln_lower_matmul(lw, a, b, kiln_accumulator(t), &y));
  if (alpha != 1) {
    const kiln_expr *at[KILN_MAX_RANK];
    kiln_stmt *s = kiln_lower_like(lw, "scaled", y, y->dtype, at);
    s->body = kiln_mul(cx, kiln_tensor_load(cx, y, at), kiln_number(cx, y->dtype, alpha));
    y = kiln_lower_tensor(lw, s);
  }
  return kiln_lower_cast(lw, y, t, &lw->outputs[0]);
}

// --- channels last ---

static kiln_status lower_nhwc_max_pool(kiln_lower *lw) {
  KILN_TRY(kiln_lower_want_inputs(lw, 1, 1));
  kiln_tensor *x = lw->inputs[0], *y = NULL;
  KILN_TRY(kiln_lower_want_rank(lw, x, 3, KILN_MAX_RANK));
  int first[KILN_MAX_RANK], last[KILN_MAX_RANK];
  for (int i = 0; i < x->rank; i++) {
    first[i] = i == 0 ? 0 : i == 1 ? x->rank - 1 : i - 1;
    last[first[i]] = i;
  }
  kiln_tensor *const turned_x = kiln_lower_transpose(lw, x, first);
  const kiln_lower_callee pool = {.domain = "",
                                  .op = "MaxPool",
                                  .opset = 12,
                                  .n_inputs = 1,
                                  .inputs = &turned_x,
                                  .n_attrs = lw->node->n_attrs,
                                  .attrs = lw->node->attrs};
  KILN_TRY(kiln_lower_call(lw, &pool, 1, &y));
  lw->outputs[0] = kiln_lower_transpose(lw, y, last);
  return KILN_OK;
}

const kiln_op kiln_op_fused[] = {
    {"com.microsoft", "FusedMatMul", 1, 0, lower_fused_matmul, NULL, "ops/fused.c"},
    {"com.microsoft", "FusedGemm", 1, 0, lower_fused_gemm, NULL, "ops/fused.c"},
    {"com.microsoft", "FusedConv", 1, 0, lower_fused_conv, NULL, "ops/fused.c"},
    {"com.microsoft", "NhwcMaxPool", 1, 0, lower_nhwc_max_pool, NULL, "ops/fused.c"},
    {0},
};
