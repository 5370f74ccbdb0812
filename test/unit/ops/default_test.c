// Attributes' defaults: the program is the same as with the standard's default, an f32, given
// explicitly.
#include "unit/ops/rows.h"

static const struct {
  const char *op;
  int opset;
  const char *given, *others, *inputs; // the default, given; attributes that must be
} cases[] = {
    {"LeakyRelu", 16, "alpha=0.01", "", "f64 2x3"},
    {"HardSigmoid", 6, "alpha=0.2 beta=0.5", "", "f64 2x3"},
    {"Selu", 6, "alpha=1.6732632423543772 gamma=1.0507009873554805", "", "f64 2x3"},
    {"BatchNormalization", 15, "epsilon=1.0e-5", "", "f64 2x3; f64 3; f64 3; f64 3; f64 3"},
    {"InstanceNormalization", 6, "epsilon=1.0e-5", "", "f64 2x3x4; f64 3; f64 3"},
    {"LayerNormalization", 17, "epsilon=1.0e-5", "axis=-1", "f64 2x3; f64 3"},
    {"RMSNormalization", 23, "epsilon=1.0e-5", "axis=-1", "f64 2x3; f64 3"},
    {"GroupNormalization", 21, "epsilon=1.0e-5", "num_groups=2", "f64 2x4x3; f64 4; f64 4"},
    {"LRN", 13, "alpha=0.0001 beta=0.75", "size=3", "f64 2x3x4x4"},
};

static const char *program_of(kiln_ctx *out, const char *op, int opset, const char *attrs,
                              const char *inputs) {
  const row r = {op, op, opset, attrs, inputs, "y", NULL};
  bench b;
  row_begin(&b, &r);
  kiln_text text;
  kiln_text_init(&text, &b.cx.perm);
  assert_int_equal(kiln_fission(&b.cx, &b.g, &b.p), KILN_OK);
  kiln_program_print(&b.cx, b.p, &text);
  const char *copy = kiln_arena_strdup(&out->perm, text.data);
  row_end(&b);
  return copy;
}

static void a_default_is_the_f32_that_could_be_given(void **state) {
  (void)state;
  for (size_t i = 0; i < KILN_LEN(cases); i++) {
    kiln_ctx cx;
    assert_int_equal(kiln_ctx_init(&cx, NULL), KILN_OK);
    const char *both = kiln_arena_printf(&cx.perm, "%s %s", cases[i].given, cases[i].others);
    const char *left =
        program_of(&cx, cases[i].op, cases[i].opset, cases[i].others, cases[i].inputs);
    const char *given = program_of(&cx, cases[i].op, cases[i].opset, both, cases[i].inputs);
    assert_string_equal(left, given);
    kiln_ctx_deinit(&cx);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_default_is_the_f32_that_could_be_given),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
