// Operator files lowered, run by the interpreter on small inputs, and compared with values computed
// by hand (to six digits); and the statements they become.
#include "unit/tc/harness.h"
#include "analysis/interpret.h"

#include <math.h>

typedef struct run {
  const char *file, *op;
  int opset;
  const char *attrs;  // "name=value ..."; a value with a dot is a float, with a quote a string
  const char *inputs; // as harness_inputs
  const char *data;   // numbers of the inputs one after another; ';' between inputs
  const char *want;   // of the first output
} run;

static const run runs[] = {
    {"relu", "Relu", 14, "", "f32 X(4)", "-1 0 2 nan", "0 0 2 nan"},
    {"leaky_relu", "LeakyRelu", 16, "alpha=0.5", "f32 X(3)", "-2 0 3", "-1 0 3"},
    {"sigmoid", "Sigmoid", 13, "", "f32 X(4)", "0 2 -200 200", "0.5 0.880797 0 1"},
    {"softplus", "Softplus", 1, "", "f32 X(3)", "0 200 -200", "0.693147 200 0"},
    {"gelu", "Gelu", 20, "", "f32 X(3)", "-1 0 1", "-0.158655 0 0.841345"},
    {"gelu", "Gelu", 20, "approximate='tanh", "f32 X(2)", "-1 1", "-0.158808 0.841192"},
    {"celu", "Celu", 12, "alpha=2.0", "f32 X(2)", "-2 1", "-1.264241 1"},
    {"shrink", "Shrink", 9, "lambd=1.5 bias=1.5", "f32 X(3)", "-2 0 2", "-0.5 0 0.5"},
    {"is_inf", "IsInf", 10, "detect_negative=0", "f32 X(3)", "inf -inf nan", "1 0 0"},
    {"is_inf", "IsInf", 10, "detect_negative=0 detect_positive=0", "f32 X(2)", "inf 1", "0 0"},
    {"add", "Add", 14, "", "f32 A(2, 1); f32 B(3)", "10 20; 1 2 3", "11 12 13 21 22 23"},
    {"add", "Add", 6, "axis=0 broadcast=1", "f32 A(2, 3); f32 B(2)", "1 2 3 4 5 6; 10 20",
     "11 12 13 24 25 26"},
    {"add", "Add", 6, "broadcast=1", "f32 A(2, 2); f32 B(2)", "1 2 3 4; 10 20", "11 22 13 24"},
    {"sub", "Sub", 14, "", "i32 A(); i32 B(2)", "5; 1 9", "4 -4"},
    {"div", "Div", 14, "", "i32 A(4); i32 B(4)", "7 -7 7 -7; 2 2 -2 -2", "3 -3 -3 3"},
    {"div", "Div", 14, "", "f32 A(2); f32 B(1)", "1 -3; 2", "0.5 -1.5"},
    {"mod", "Mod", 13, "", "i32 A(4); i32 B(4)", "7 -7 7 -7; 3 3 -3 -3", "1 2 -2 -1"},
    {"mod", "Mod", 13, "fmod=1", "f32 A(2); f32 B(2)", "-7.5 7.5; 3 -3", "-1.5 1.5"},
    {"equal", "Equal", 13, "", "i64 A(3); i64 B(1)", "1 2 1; 1", "1 0 1"},
    {"xor", "Xor", 7, "", "bool A(4); bool B(4)", "0 0 1 1; 0 1 0 1", "0 1 1 0"},
    {"bit_shift", "BitShift", 11, "direction='RIGHT", "u8 X(2); u8 Y(2)", "16 4; 1 2", "8 1"},
    {"bitwise_not", "BitwiseNot", 18, "", "u8 X(2)", "0 15", "255 240"},
    {"where", "Where", 16, "", "bool C(2, 1); f32 X(2); f32 Y(2, 2)", "1 0; 1 2; 5 6 7 8",
     "1 2 7 8"},
    {"clip", "Clip", 13, "", "f32 X(3); f32 L(); f32 H()", "-5 0 5; -1; 2", "-1 0 2"},
    {"clip", "Clip", 13, "", "f32 X(3); -; f32 H(1)", "-5 0 5; 2", "-5 0 2"},
    {"clip", "Clip", 6, "min=-1.0 max=2.0", "f32 X(3)", "-5 0 5", "-1 0 2"},
    {"prelu", "PRelu", 6, "", "f32 X(1, 2, 2); f32 S(2)", "-1 1 -1 1; 2 3", "-2 1 -3 1"},
    {"prelu", "PRelu", 16, "", "f32 X(1, 2, 2); f32 S(2, 1)", "-1 1 -1 1; 2 3", "-2 1 -3 1"},
    {"softmax", "Softmax", 13, "", "f32 X(2, 2)", "1000 1000 0 -200", "0.5 0.5 1 0"},
    {"softmax", "Softmax", 13, "axis=0", "f32 X(2, 2)", "0 5 0 5", "0.5 0.5 0.5 0.5"},
    {"softmax", "Softmax", 11, "", "f32 X(1, 2, 2)", "0 0 0 0", "0.25 0.25 0.25 0.25"},
    {"softmax", "Softmax", 13, "", "f16 X(2, 2)", "1 1 0 0", "0.5 0.5 0.5 0.5"},
    {"log_softmax", "LogSoftmax", 13, "", "f32 X(1, 2)", "1000 1000", "-0.693147 -0.693147"},
    {"hardmax", "Hardmax", 13, "axis=1", "f32 X(1, 4)", "1 3 3 2", "0 1 0 0"},
    {"hardmax", "Hardmax", 11, "axis=1", "f32 X(1, 2, 2)", "1 3 3 2", "0 1 0 0"},
    {"layer_normalization", "LayerNormalization", 17, "epsilon=0.0",
     "f32 X(2, 2); f32 S(2); f32 B(2)", "1 3 10 30; 1 2; 0.5 0.5", "-0.5 2.5 -0.5 2.5"},
    {"layer_normalization", "LayerNormalization", 17, "epsilon=0.0 axis=0",
     "f32 X(2, 2); f32 S(2, 2)", "-1 -1 1 1; 1 2 3 4", "-1 -2 3 4"},
    {"rms_normalization", "RMSNormalization", 23, "epsilon=0.0", "f32 X(2); f32 S(2)", "3 4; 1 1",
     "0.848528 1.131371"},
    {"batch_normalization", "BatchNormalization", 15, "epsilon=0.0",
     "f32 X(1, 2, 2); f32 S(2); f32 B(2); f32 M(2); f32 V(2)", "1 2 3 4; 2 1; 0 1; 1 3; 4 1",
     "0 1 1 2"},
    {"instance_normalization", "InstanceNormalization", 6, "epsilon=0.0",
     "f32 X(1, 2, 2); f32 S(2); f32 B(2)", "1 3 5 5.5; 1 2; 0 1", "-1 1 -1 3"},
    {"group_normalization", "GroupNormalization", 21, "epsilon=0.0 num_groups=2",
     "f32 X(1, 4, 1); f32 S(4); f32 B(4)", "1 3 10 30; 1 2 3 4; 0 0 0 1", "-1 2 -3 5"},
    {"group_normalization", "GroupNormalization", 18, "epsilon=0.0 num_groups=2",
     "f32 X(1, 4, 1); f32 S(2); f32 B(2)", "1 3 10 30; 1 2; 0 1", "-1 1 -1 3"},
    {"lrn", "LRN", 13, "size=3 alpha=3.0 beta=1.0 bias=1.0", "f32 X(1, 3, 1)", "1 2 3",
     "0.166667 0.133333 0.214286"},
    {"lp_normalization", "LpNormalization", 1, "", "f32 X(2, 2)", "3 4 0 0", "0.6 0.8 0 0"},
    {"mean_variance_normalization", "MeanVarianceNormalization", 13, "", "f32 X(2, 2, 1, 1)",
     "1 10 3 20", "-1 -1 1 1"},
    {"global_average_pool", "GlobalAveragePool", 1, "", "f32 X(1, 2, 2, 1)", "1 2 3 5", "1.5 4"},
    {"global_max_pool", "GlobalMaxPool", 1, "", "f32 X(1, 2, 2, 1)", "1 2 -3 -5", "2 -3"},
    {"global_lp_pool", "GlobalLpPool", 2, "", "f32 X(1, 1, 2)", "3 4", "5"},
    {"causal_conv_with_state", "CausalConvWithState", 27, "",
     "f32 X(1, 1, 2); f32 W(1, 1, 2); f32 B(1); f32 P(1, 1, 1)", "1 2; 10 1; 100; 5", "151 112"},
    {"causal_conv_with_state", "CausalConvWithState", 27, "activation='silu",
     "f32 X(1, 1, 1); f32 W(1, 1, 2)", "2; 10 1", "1.761594"},
    // one sample in the middle of each region: of columns 0 and 1; outside of the image is 0
    {"roi_align", "RoiAlign", 16, "sampling_ratio=1", "f32 X(1, 1, 1, 2); f32 R(2, 4); i64 B(2)",
     "1 3; 0.5 0.5 1.5 0.5 9 9 10 10; 0 0", "2 0"},
    // as many samples as the region is wide: at 0.5, and at 1.5, behind the last element
    {"roi_align", "RoiAlign", 10, "", "f32 X(1, 1, 1, 2); f32 R(1, 4); i64 B(1)", "0 4; 0 0 2 1; 0",
     "3"},
    {"roi_align", "RoiAlign", 16, "sampling_ratio=1 mode='max",
     "f32 X(1, 1, 1, 2); f32 R(1, 4); i64 B(1)", "1 3; 0.5 0.5 1.5 0.5; 0", "1.5"},
};

static void set_attrs(harness *h, const char *text) {
  char list[256], *save = NULL;
  snprintf(list, sizeof list, "%s", text);
  for (char *w = strtok_r(list, " ", &save); w != NULL; w = strtok_r(NULL, " ", &save)) {
    char *value = strchr(w, '=');
    assert_non_null(value);
    *value++ = '\0';
    if (*value == '\'')
      harness_attr(h, w, KILN_ATTR_STRING)->u.s = kiln_symbol_of(&h->cx, value + 1);
    else if (strchr(value, '.') != NULL)
      harness_attr(h, w, KILN_ATTR_FLOAT)->u.f = strtof(value, NULL);
    else harness_attr(h, w, KILN_ATTR_INT)->u.i = atoll(value);
  }
}

static void bind_data(harness *h, kiln_interpreter *in, const char *text) {
  for (int i = 0; i < h->lw.n_inputs; i++) {
    const kiln_tensor *t = h->inputs[i];
    if (t == NULL) continue;
    int64_t n = kiln_tensor_elems(t);
    void *data = kiln_arena_zalloc(&h->cx.perm, (size_t)(n * kiln_dtype_bytes(t->dtype)));
    for (int64_t k = 0; k < n; k++) {
      char *end = NULL;
      kiln_element_set(t->dtype, data, k, strtod(text, &end));
      assert_true(end != text);
      text = end;
    }
    text += strspn(text, " ;");
    kiln_interpreter_bind(in, t->id, data);
  }
}

static void expect_values(const run *r, const kiln_tensor *t, const void *data) {
  const char *want = r->want;
  int64_t n = kiln_tensor_elems(t);
  for (int64_t k = 0; k < n; k++) {
    char *end = NULL;
    double w = strtod(want, &end), got = kiln_element_get(t->dtype, data, k);
    if (end == want) fail_msg("%s: %lld elements, fewer are wanted", r->file, (long long)n);
    want = end;
    bool same = (isnan(w) && isnan(got)) || w == got || fabs(w - got) <= 2e-6 * (1 + fabs(w));
    if (!same) fail_msg("%s: element %lld: want %g, got %g", r->file, (long long)k, w, got);
  }
  if (want[strspn(want, " ")] != '\0') fail_msg("%s: more elements are wanted", r->file);
}

static void lower_run(harness *h, const run *r, const char *text) {
  h->node.opset = r->opset;
  set_attrs(h, r->attrs);
  harness_inputs(h, r->inputs);
  kiln_status st = harness_lower(h, r->op, r->file, text, 1);
  if (st != KILN_OK) fail_msg("%s: %s", r->file, harness_messages(h));
}

// Definitions of no operator; |file| is the text behind the name.
static const run definitions[] = {
    // a tensor may begin off zero
    {"(float(N) X) -> (O) { P(i) = X(i - 1) O(i) = P(i + 1) * 2 }", "Test", 1, "", "f32 X(3)",
     "1 2 3", "2 4 6"},
    {"(float(N) X) -> (O) { O(i) = X(10 - i) }", "Test", 1, "", "f32 X(3)", "1 2 3", "3 2 1"},
    // a tensor may be written again
    {"(float(N, K) X, float(N) B) -> (O) { O(n) +=! X(n, r_k) O(n) = O(n) + B(n)"
     " O(n) = max(O(n), 0) }",
     "Test", 1, "", "f32 X(2, 2); f32 B(2)", "1 2 3 4; 1 -9", "4 0"},
    {"(float(N, K) X, float(N) B) -> (O) { O(n) = B(n) O(n) += X(n, r_k) }", "Test", 1, "",
     "f32 X(2, 2); f32 B(2)", "1 2 3 4; 1 -9", "4 -2"},
    {"(float(N, K) X, float(N) B) -> (O) { O(n) = B(n) O(n) max= X(n, r_k) }", "Test", 1, "",
     "f32 X(2, 2); f32 B(2)", "1 2 3 4; 9 -9", "9 4"},
    {"(float(N) X, float(N) B) -> (O) { O(n) = B(n) O(n) *= X(n) }", "Test", 1, "",
     "f32 X(2); f32 B(2)", "2 3; 4 5", "8 15"},
    // in half precision 2048 + 1 is 2048
    {"(F(N, K) X) -> (F O) { O(n) +=! X(n, r_k) }", "Test", 1, "", "f16 X(1, 4)", "2048 1 1 2",
     "2052"},
    {"(F(N, K) X) -> (F O) { S(n) +=! X(n, r_k) O(n) = S(n) - 2048 }", "Test", 1, "", "f16 X(1, 4)",
     "2048 1 1 1", "3"},
    {"(F(N) X, F(N) B) -> (F O) { O(n) = B(n) O(n) += X(n) }", "Test", 1, "",
     "bf16 X(1); bf16 B(1)", "1; 2", "3"},
    {"(float(D, K) E, int32(B) J) -> (O) { O(b, k) = E(J(b), k) }", "Test", 1, "",
     "f32 E(3, 2); i32 J(2)", "1 2 3 4 5 6; 2 0", "5 6 1 2"},
    {"(float c, float(N) X) -> (O) { O +=! c * X(r) }", "Test", 1, "", "f32 c(); f32 X(3)",
     "2; 1 2 3", "12"},
    {"(bool(N, K) X) -> (O) { O(n) and=! X(n, r) }", "Test", 1, "", "bool X(2, 2)", "1 0 1 1",
     "0 1"},
    {"(bool(N, K) X) -> (O) { O(n) or=! X(n, r) }", "Test", 1, "", "bool X(2, 2)", "1 0 0 0",
     "1 0"},
    {"(int32(N, K) X) -> (O) { O(n) min=! X(n, r) }", "Test", 1, "", "i32 X(2, 2)", "1 5 -3 0",
     "1 -3"},
    {"(int32(N, K) X) -> (O) { O(n) *=! X(n, r) }", "Test", 1, "", "i32 X(1, 3)", "2 3 4", "24"},
    {"(float(N) X) -> (O) { O(i) = int32(X(i)) }", "Test", 1, "", "f32 X(2)", "-1.7 1.7", "-1 1"},
    {"(int32(N) X) -> (O) { O(i) = X(i) / 2 + X(i) % 3 }", "Test", 1, "", "i32 X(2)", "-7 7",
     "-2 4"},
    {"(float(N) A, float(M) B) -> (O) { O(x) = x < N ? A(x) : B(x - N) where x in 0:N + M }",
     "Test", 1, "", "f32 A(2); f32 B(1)", "1 2; 3", "1 2 3"},
    {"(F(M..., P, K) A, F(N..., K, Q) B) -> (F C)"
     " { C(b..., i, j) +=! A(b..., i, r_k) * B(b..., r_k, j) }",
     "Test", 1, "", "f32 A(2, 1, 2); f32 B(2, 1)", "1 2 3 4; 10 1", "12 34"},
    {"(float(N) X) -> (O) { O(i) = i == 0 ? 0.5 * i : a + X(i) where b = i + 1, a = 2 * b }",
     "Test", 1, "", "f32 X(3)", "10 10 10", "0 14 16"},
    {"(float(N, M) X) -> (float64 O) { O(j, i) = X(i, j) / N }", "Test", 1, "", "f32 X(2, 2)",
     "1 2 3 4", "0.5 1.5 1 2"},
};

static void run_and_compare(const run *r, const char *text) {
  harness h;
  harness_begin(&h);
  lower_run(&h, r, text);
  kiln_interpreter *in = NULL;
  const void *data = NULL;
  assert_int_equal(kiln_interpreter_create(&h.cx, h.lw.prog, &in), KILN_OK);
  bind_data(&h, in, r->data);
  assert_int_equal(kiln_interpreter_compute(in, h.outputs[0]->id, &data), KILN_OK);
  expect_values(r, h.outputs[0], data);
  kiln_interpreter_destroy(in);
  harness_end(&h);
}

static void operators_compute_what_was_computed_by_hand(void **state) {
  (void)state;
  for (size_t row = 0; row < KILN_LEN(runs); row++) {
    char path[128];
    snprintf(path, sizeof path, "ops/%s.tc", runs[row].file);
    char *text = harness_read(path);
    run_and_compare(&runs[row], text);
    free(text);
  }
}

static void definitions_compute_what_was_computed_by_hand(void **state) {
  (void)state;
  for (size_t row = 0; row < KILN_LEN(definitions); row++) {
    char text[1024];
    snprintf(text, sizeof text, "onnx Test 1..\ndef test%s\n", definitions[row].file);
    run_and_compare(&definitions[row], text);
  }
}

// The resulting statements: a single one if possible, static broadcasts, no copies.
static const struct {
  run r;
  int n_outputs;
  const char *program;
} programs[] = {
#include "unit/tc/programs.inc"
};

static void statements_are_clean(void **state) {
  (void)state;
  for (size_t row = 0; row < KILN_LEN(programs); row++) {
    const run *r = &programs[row].r;
    harness h;
    harness_begin(&h);
    char path[128];
    snprintf(path, sizeof path, "ops/%s.tc", r->file);
    char *text = harness_read(path);
    h.node.opset = r->opset;
    set_attrs(&h, r->attrs);
    harness_inputs(&h, r->inputs);
    kiln_status st = harness_lower(&h, r->op, r->file, text, programs[row].n_outputs);
    if (st != KILN_OK) fail_msg("%s: %s", r->file, harness_messages(&h));
    kiln_text t;
    kiln_text_init(&t, &h.cx.perm);
    kiln_program_print(&h.cx, h.lw.prog, &t);
    if (strcmp(t.data, programs[row].program) != 0)
      fail_msg("%s: want\n%s\ngot\n%s", r->file, programs[row].program, t.data);
    free(text);
    harness_end(&h);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(operators_compute_what_was_computed_by_hand),
      cmocka_unit_test(definitions_compute_what_was_computed_by_hand),
      cmocka_unit_test(statements_are_clean),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
