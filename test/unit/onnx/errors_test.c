// Messages of the reader for invalid models: each row has one error and its message.
#include "unit/onnx/model.h"

#include <stdlib.h>

enum { F32 = 1, I64 = 7, STRING = 8, COMPLEX = 14, FLOAT6 = 27 };

static kiln_text relu_graph(fixture *t, const char *shape) {
  kiln_text g = message(t);
  put_message(&g, 1, node(t, "Relu", "r", "x", "y"));
  put_message(&g, 11, value_info(t, "x", F32, shape));
  put_message(&g, 12, value_info(t, "y", F32, NULL));
  return g;
}

static kiln_text cyclic(fixture *t) {
  kiln_text g = relu_graph(t, "2");
  put_message(&g, 1, node(t, "Add", "one", "x,q", "p"));
  put_message(&g, 1, node(t, "Neg", "two", "p", "q"));
  return model(t, 8, g);
}
static kiln_text self_loop(fixture *t) {
  kiln_text g = relu_graph(t, "2");
  put_message(&g, 1, node(t, "Add", "me", "x,p", "p"));
  return model(t, 8, g);
}
static kiln_text missing_producer(fixture *t) {
  kiln_text g = relu_graph(t, "2");
  put_message(&g, 1, node(t, "Add", "sum", "x,nowhere", "p"));
  return model(t, 8, g);
}
static kiln_text missing_output(fixture *t) {
  kiln_text g = relu_graph(t, "2");
  put_message(&g, 12, value_info(t, "absent", F32, NULL));
  return model(t, 8, g);
}
static kiln_text produced_twice(fixture *t) {
  kiln_text g = relu_graph(t, "2");
  put_message(&g, 1, node(t, "Neg", "again", "x", "y"));
  return model(t, 8, g);
}
static kiln_text input_twice(fixture *t) {
  kiln_text g = relu_graph(t, "2");
  put_message(&g, 11, value_info(t, "x", F32, "2"));
  return model(t, 8, g);
}
static kiln_text negative_extent(fixture *t) { return model(t, 8, relu_graph(t, "2,-3")); }
static kiln_text overflowing_extents(fixture *t) {
  return model(t, 8, relu_graph(t, "4294967296,n,4294967296"));
}
static kiln_text overflowing_beside_zero(fixture *t) {
  return model(t, 8, relu_graph(t, "0,9223372036854775807"));
}
static kiln_text rank_nine(fixture *t) { return model(t, 8, relu_graph(t, "1,1,1,1,1,1,1,1,1")); }
static kiln_text with_weight(fixture *t, int64_t dtype, int64_t extent, size_t n_raw) {
  static const char zeros[64];
  kiln_text g = relu_graph(t, "2"), w = tensor(t, "w", dtype, 1, &extent);
  put_bytes(&w, 9, zeros, n_raw);
  put_message(&g, 5, w);
  return model(t, 8, g);
}
static kiln_text weight_too_short(fixture *t) { return with_weight(t, F32, 3, 8); }
static kiln_text weight_negative(fixture *t) { return with_weight(t, F32, -1, 8); }
static kiln_text weight_huge(fixture *t) { return with_weight(t, F32, INT64_MAX, 8); }
static kiln_text weight_of_strings(fixture *t) { return with_weight(t, STRING, 2, 8); }
static kiln_text weight_of_complex(fixture *t) { return with_weight(t, COMPLEX, 2, 2); }
static kiln_text weight_of_float6(fixture *t) { return with_weight(t, FLOAT6, 2, 1); }
static kiln_text weight_of_99(fixture *t) { return with_weight(t, 99, 2, 1); }
static kiln_text weight_without_data(fixture *t) {
  kiln_text g = relu_graph(t, "2");
  put_message(&g, 5, tensor(t, "w", F32, 1, (int64_t[]){1 << 30}));
  return model(t, 8, g);
}
static kiln_text input_of_strings(fixture *t) {
  kiln_text g = relu_graph(t, "2");
  put_message(&g, 11, value_info(t, "s", STRING, "2"));
  return model(t, 8, g);
}
static kiln_text input_without_type(fixture *t) {
  kiln_text g = relu_graph(t, "2"), info = message(t);
  put_text(&info, 1, "u");
  put_message(&g, 11, info);
  return model(t, 8, g);
}
static kiln_text sequence_input(fixture *t) {
  kiln_text g = relu_graph(t, "2"), info = message(t), type = message(t);
  put_text(&type, 4, "");
  put_text(&info, 1, "s");
  put_message(&info, 2, type);
  put_message(&g, 11, info);
  return model(t, 8, g);
}
static kiln_text undeclared_domain(fixture *t) {
  kiln_text g = relu_graph(t, "2"), n = node(t, "Foo", "foo", "x", "p");
  put_text(&n, 7, "my.domain");
  put_message(&g, 1, n);
  return model(t, 8, g);
}
static kiln_text no_opset(fixture *t) {
  kiln_text m = message(t);
  put_int(&m, 1, 8);
  put_message(&m, 7, relu_graph(t, "2"));
  return m;
}
static kiln_text newer_opset(fixture *t) {
  kiln_text m = no_opset(t);
  put_message(&m, 8, opset(t, "", KILN_ONNX_NEWEST_OPSET + 1));
  return m;
}
static kiln_text no_ir_version(fixture *t) { return model(t, 0, relu_graph(t, "2")); }
static kiln_text no_graph(fixture *t) {
  kiln_text m = message(t);
  put_int(&m, 1, 8);
  return m;
}
static kiln_text reference_outside(fixture *t) {
  kiln_text g = relu_graph(t, "2"), n = node(t, "Elu", "e", "x", "p"), a = message(t);
  put_text(&a, 1, "alpha");
  put_int(&a, 20, 1);
  put_text(&a, 21, "other");
  put_message(&n, 5, a);
  put_message(&g, 1, n);
  return model(t, 8, g);
}
static kiln_text recursive_function(fixture *t) {
  kiln_text g = message(t), f = message(t), call = node(t, "F", "c", "x", "y"),
            inner = node(t, "F", "i", "a", "b");
  put_text(&inner, 7, "local");
  put_text(&call, 7, "local");
  put_text(&f, 1, "F");
  put_text(&f, 4, "a");
  put_text(&f, 5, "b");
  put_message(&f, 7, inner);
  put_message(&f, 7, inner); // twice: it would double at every depth
  put_text(&f, 10, "local");
  put_message(&g, 1, call);
  put_message(&g, 11, value_info(t, "x", F32, "2"));
  put_message(&g, 12, value_info(t, "y", F32, "2"));
  kiln_text m = model(t, 8, g);
  put_message(&m, 8, opset(t, "local", 1));
  put_message(&m, 25, f);
  return m;
}
static kiln_text nested_too_deep(fixture *t) {
  kiln_text g = relu_graph(t, "2");
  for (int depth = 0; depth < 40; depth++) {
    kiln_text outer = relu_graph(t, "2"), n = node(t, "If", "i", "x", "p"), a = message(t);
    put_text(&a, 1, "then_branch");
    put_message(&a, 6, g);
    put_message(&n, 5, a);
    put_message(&outer, 1, n);
    g = outer;
  }
  return model(t, 8, g);
}
static kiln_text wrong_wire_type(fixture *t) {
  kiln_text m = model(t, 8, relu_graph(t, "2"));
  put_text(&m, 1, "eight");
  return m;
}
static kiln_text text_file(fixture *t) {
  kiln_text m = message(t);
  kiln_text_add(&m, "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 132\n");
  return m;
}

static const struct {
  kiln_text (*make)(fixture *t);
  kiln_status status;
  const char *message;
} rows[] = {
    {cyclic, KILN_BAD_INPUT,
     "graph: must not have cycles, got one of node 1 \"one\", which needs node 2 \"two\""},
    {self_loop, KILN_BAD_INPUT, "must not have cycles, got one of node 1 \"me\""},
    {missing_producer, KILN_BAD_INPUT,
     "node 1 \"sum\" (Add): error: input 1: must be an input of the graph, an initializer or the "
     "output of a node, got \"nowhere\""},
    {missing_output, KILN_BAD_INPUT, "output \"absent\": must be"},
    {produced_twice, KILN_BAD_INPUT,
     "node 1 \"again\" (Neg): error: output 0: must be a name that is given once, got \"y\" again"},
    {input_twice, KILN_BAD_INPUT, "input 1: must have a name of its own, got \"x\""},
    {negative_extent, KILN_BAD_INPUT,
     "input \"x\": error: extents must not be negative, got -3 on axis 1"},
    {overflowing_extents, KILN_BAD_INPUT,
     "input \"x\": error: the product of the extents must be at most 2^62 bytes"},
    {overflowing_beside_zero, KILN_BAD_INPUT,
     "the product of the extents must be at most 2^62 bytes"},
    {rank_nine, KILN_UNSUPPORTED, "rank must be at most 8, got 9"},
    {weight_too_short, KILN_BAD_INPUT, "initializer \"w\": raw_data must hold 12 bytes, got 8"},
    {weight_negative, KILN_BAD_INPUT, "initializer \"w\": extents must not be negative, got -1"},
    {weight_huge, KILN_BAD_INPUT, "initializer \"w\": the product of the extents"},
    {weight_of_strings, KILN_UNSUPPORTED,
     "initializer \"w\": element type must be one that Kiln has, got string (8)"},
    {weight_of_complex, KILN_UNSUPPORTED, "got complex64 (14)"},
    {weight_of_float6, KILN_UNSUPPORTED, "got float6e2m3 (27)"},
    {weight_of_99, KILN_UNSUPPORTED, "got an unknown type (99)"},
    {weight_without_data, KILN_BAD_INPUT,
     "initializer \"w\": float_data must hold the 1073741824 elements of its shape, got 0"},
    {input_of_strings, KILN_UNSUPPORTED,
     "input \"s\": error: element type must be one that Kiln has, got string (8)"},
    {input_without_type, KILN_BAD_INPUT, "input \"u\": error: must have an element type, got none"},
    {sequence_input, KILN_UNSUPPORTED, "input \"s\": error: type must be a tensor, got a sequence"},
    {undeclared_domain, KILN_BAD_INPUT,
     "node 1 \"foo\" (Foo): error: domain \"my.domain\": must be declared"},
    {no_opset, KILN_BAD_INPUT, "domain \"\": must be declared"},
    {newer_opset, KILN_UNSUPPORTED, "opset: must be at most 28, got 29"},
    {no_ir_version, KILN_BAD_INPUT, "ir_version: must be positive, got 0: this is no ONNX model"},
    {no_graph, KILN_BAD_INPUT, "graph: must have an output, got no graph"},
    {reference_outside, KILN_BAD_INPUT,
     "attribute \"alpha\": may refer to an attribute only inside a function"},
    {recursive_function, KILN_BAD_INPUT,
     "function \"F\": calls of functions must nest at most 32 deep"},
    {nested_too_deep, KILN_BAD_INPUT, "messages must nest at most 100 deep"},
    {wrong_wire_type, KILN_BAD_INPUT, "field ir_version must have another wire type, got 2"},
    {text_file, KILN_BAD_INPUT, "ModelProto: "},
};

static void every_mistake_has_its_message(void **state) {
  (void)state;
  for (size_t row = 0; row < KILN_LEN(rows); row++) {
    fixture t;
    fixture_init(&t);
    const kiln_text m = rows[row].make(&t);
    const kiln_status status = fixture_read(&t, m.data, (size_t)m.n, NULL);
    if (status != rows[row].status || !has_message(&t, rows[row].message))
      fail_msg("row %zu: %s: %s", row, kiln_status_name(status), kiln_diag_message(t.diag, 0));
    fixture_deinit(&t);
  }
}

static void bad_options_have_their_message(void **state) {
  static const float data[6];
  static const int64_t shape[] = {4, 3, -2};
  static const kiln_onnx_dim unknown = {"m", 3}, negative = {"n", -1},
                             twice[] = {{"n", 1}, {"n", 2}};
  static const kiln_onnx_shape no_input = {"z", 2, shape, NULL}, rank = {"x", 1, shape, NULL},
                               fits = {"x", 2, shape, NULL}, below = {"x", 2, shape + 1, NULL};
  static const kiln_onnx_constant odd_type = {"x", {KILN_I64, 2, {1, 3}, data, 24}},
                                  odd_shape = {"x", {KILN_F32, 2, {1, 4}, data, 16}},
                                  odd_name = {"w", {KILN_F32, 2, {1, 3}, data, 12}};
  static const struct {
    kiln_onnx_options options;
    const char *message;
  } cases[] = {
      {{.n_dims = 1, .dims = &unknown},
       "dimension \"m\": must be a named dimension of the model, which has \"n\""},
      {{.n_dims = 1, .dims = &negative}, "dimension \"n\": must not be negative, got -1"},
      {{.n_dims = 2, .dims = twice}, "dimension \"n\": must have one value, got 1 and 2"},
      {{.n_shapes = 1, .shapes = &no_input},
       "input \"z\": must be an input of the model, which has \"x\""},
      {{.n_shapes = 1, .shapes = &rank}, "input \"x\": rank must be 2, got the rank 1"},
      {{.n_shapes = 1, .shapes = &below}, "extents must not be negative, got -2 on axis 1"},
      {{.n_dims = 1, .dims = twice, .n_shapes = 1, .shapes = &fits},
       "dimension \"n\": must have one value, got 1 and 4"},
      {{.n_constants = 1, .constants = &odd_type},
       "value \"x\": its constant must be f32 as declared, got i64"},
      {{.n_constants = 1, .constants = &odd_shape},
       "input \"x\": extent of axis 1 must be 3, got 4"},
      {{.n_constants = 1, .constants = &odd_name}, "input \"w\": must be an input of the model"},
  };
  (void)state;
  for (size_t row = 0; row < KILN_LEN(cases); row++) {
    fixture t;
    fixture_init(&t);
    const kiln_text m = model(&t, 8, relu_graph(&t, "n,3"));
    const kiln_status status = fixture_read(&t, m.data, (size_t)m.n, &cases[row].options);
    if (status != KILN_BAD_INPUT || !has_message(&t, cases[row].message))
      fail_msg("row %zu: %s: %s", row, kiln_status_name(status), kiln_diag_message(t.diag, 0));
    fixture_deinit(&t);
  }
}

static void all_problems_are_found_and_the_first_are_told(void **state) {
  (void)state;
  fixture t;
  fixture_init(&t);
  kiln_text g = relu_graph(&t, "2");
  for (int i = 0; i < 30; i++) put_message(&g, 1, node(&t, "Neg", "n", "gone", ""));
  put_message(&g, 5, tensor(&t, "w", COMPLEX, 0, NULL));
  const kiln_text m = model(&t, 8, g);
  assert_int_equal(fixture_read(&t, m.data, (size_t)m.n, NULL), KILN_BAD_INPUT);
  assert_int_equal(kiln_diag_count(t.diag), 21);
  assert_true(has_message(&t, "31 problems in all, of which the first 20 are listed"));
  fixture_deinit(&t);
}

static void a_newer_ir_version_is_a_warning(void **state) {
  (void)state;
  fixture t;
  fixture_init(&t);
  const kiln_text m = model(&t, KILN_ONNX_NEWEST_IR + 1, relu_graph(&t, "2"));
  assert_int_equal(fixture_read(&t, m.data, (size_t)m.n, NULL), KILN_OK);
  assert_true(has_message(&t, "ir_version: 15 is newer than 14"));
  fixture_deinit(&t);
}

static void unreadable_paths_have_their_message(void **state) {
  static const char *const paths[][2] = {{"/nonexistent/m.onnx", "No such file"},
                                         {"/", "a directory"},
                                         {"/dev/null", "no regular file"}};
  (void)state;
  for (size_t row = 0; row < KILN_LEN(paths); row++) {
    fixture t;
    fixture_init(&t);
    assert_int_equal(kiln_onnx_read(&t.cx, paths[row][0], NULL, &t.file, &t.g), KILN_BAD_INPUT);
    assert_true(has_message(&t, paths[row][1]));
    assert_null(t.file);
    fixture_deinit(&t);
  }
}

static void an_empty_file_has_its_message(void **state) {
  (void)state;
  fixture t;
  fixture_init(&t);
  assert_int_equal(fixture_read(&t, "", 0, NULL), KILN_BAD_INPUT);
  assert_true(has_message(&t, "an empty file"));
  fixture_deinit(&t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_mistake_has_its_message),
      cmocka_unit_test(bad_options_have_their_message),
      cmocka_unit_test(all_problems_are_found_and_the_first_are_told),
      cmocka_unit_test(a_newer_ir_version_is_a_warning),
      cmocka_unit_test(unreadable_paths_have_their_message),
      cmocka_unit_test(an_empty_file_has_its_message),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
