// Sequences and optional values on graphs made by hand: they leave no statements but those of their
// tensors.
#include "graph.h"

static void graph_attr(fixture *f, const char *name, fixture *inner) {
  add_attr(f, name, KILN_ATTR_GRAPH)->u.graph = &inner->g;
}

static int scalar(fixture *f, const char *name, double value) {
  return add_const(f, name, KILN_I64, -1, &value);
}

// The elements of output |i| as text, with x(k) = k for the first input.
static const char *run(fixture *f, int i) {
  kiln_interpreter *in = NULL;
  kiln_text text;
  const void *data = NULL;
  float x[16];
  for (int k = 0; k < 16; k++) x[k] = (float)k;
  kiln_text_init(&text, &f->cx->perm);
  kiln_text_add(&text, "");
  assert_int_equal(kiln_interpreter_create(f->cx, f->p, &in), KILN_OK);
  if (f->p->inputs.n > 0) kiln_interpreter_bind(in, f->p->inputs.data[0], x);
  const kiln_tensor *t = output(f, i);
  if (t->data) data = t->data;
  else if (t->role == KILN_INPUT) data = x;
  else assert_int_equal(kiln_interpreter_compute(in, t->id, &data), KILN_OK);
  for (int64_t k = 0; k < kiln_tensor_elems(t); k++)
    kiln_text_printf(&text, "%s%g", k ? " " : "", kiln_element_get(t->dtype, data, k));
  kiln_interpreter_destroy(in);
  return text.data;
}

static void parts_are_taken_by_position(void **state) {
  fixture *f = *state;
  const int x = add_input(f, "x", KILN_F32, 2, (const int64_t[]){2, 5});
  const int two = scalar(f, "two", 2), last = scalar(f, "last", -1);
  const int parts = node(f, "SplitToSequence", 11, 2, (const int[]){x, two});
  add_int(f, "axis", 1);
  const int rows = node(f, "SplitToSequence", 11, 1, &x);
  add_int(f, "keepdims", 0);
  add_output(f, node(f, "SequenceAt", 11, 2, (const int[]){parts, last}));
  add_output(f, node(f, "SequenceLength", 11, 1, &parts));
  add_output(f, node(f, "SequenceAt", 11, 2, (const int[]){rows, last}));
  must_lower(f);
  assert_string_equal(run(f, 0), "4 9");
  assert_string_equal(run(f, 1), "3");
  assert_string_equal(run(f, 2), "5 6 7 8 9");
  assert_int_equal(output(f, 2)->rank, 1);
}

static void sequences_are_edited_and_joined(void **state) {
  fixture *f = *state;
  const int a = add_const(f, "a", KILN_F32, 2, (const double[]){1, 2});
  const int b = add_const(f, "b", KILN_F32, 2, (const double[]){3, 4});
  const int c = add_const(f, "c", KILN_F32, 2, (const double[]){5, 6});
  const int zero = scalar(f, "zero", 0);
  const int ab = node(f, "SequenceConstruct", 11, 2, (const int[]){a, b});
  const int cab = node(f, "SequenceInsert", 11, 3, (const int[]){ab, c, zero});
  const int ca = node(f, "SequenceErase", 11, 1, &cab);
  const int same = node(f, "Identity", 16, 1, &cab);
  add_output(f, node(f, "ConcatFromSequence", 11, 1, &same));
  add_int(f, "axis", 0);
  add_output(f, node(f, "ConcatFromSequence", 11, 1, &ca));
  add_int(f, "axis", 1);
  add_int(f, "new_axis", 1);
  must_lower(f);
  assert_string_equal(run(f, 0), "5 6 1 2 3 4");
  assert_string_equal(run(f, 1), "5 1 6 2");
}

// seq = []; for i in 0..3: seq.append(x + i); concat(seq)
static void a_loop_carries_a_sequence(void **state) {
  fixture *f = *state, body = {0};
  const int n = scalar(f, "n", 3);
  add_input(f, "x", KILN_I64, 1, (const int64_t[]){1});
  const int empty = node(f, "SequenceEmpty", 11, 0, NULL);
  fixture_init(&body, f->cx);
  const int i = add_input(&body, "i", KILN_I64, 0, NULL);
  const int go = add_input(&body, "go", KILN_BOOL, 0, NULL);
  const int list = add_value(&body, "list");
  body.inputs[body.g.n_inputs++] = list;
  const int one = add_const(&body, "one", KILN_I64, 1, (const double[]){10});
  const int next = node(&body, "Add", 13, 2, (const int[]){one, i});
  add_output(&body, go);
  add_output(&body, node(&body, "SequenceInsert", 11, 2, (const int[]){list, next}));
  const int made = node(f, "Loop", 13, 3, (const int[]){n, -1, empty});
  graph_attr(f, "body", &body);
  add_output(f, node(f, "ConcatFromSequence", 11, 1, &made));
  add_int(f, "axis", 0);
  must_lower(f);
  assert_string_equal(run(f, 0), "10 11 12");
}

static void a_map_calls_its_body_for_each_element(void **state) {
  fixture *f = *state, body = {0};
  const int x = add_input(f, "x", KILN_F32, 2, (const int64_t[]){3, 2});
  const int rows = node(f, "SplitToSequence", 11, 1, &x);
  fixture_init(&body, f->cx);
  const int row = add_input(&body, "row", KILN_F32, 2, (const int64_t[]){1, 2});
  const int all = add_input(&body, "all", KILN_F32, 2, (const int64_t[]){3, 2});
  add_output(&body, node(&body, "Add", 13, 2, (const int[]){row, all}));
  const int mapped = node(f, "SequenceMap", 17, 2, (const int[]){rows, x});
  graph_attr(f, "body", &body);
  const int last = scalar(f, "last", -1);
  add_output(f, node(f, "SequenceAt", 11, 2, (const int[]){mapped, last}));
  must_lower(f);
  assert_string_equal(run(f, 0), "4 6 6 8 8 10");
}

static void optional_values_have_an_element_or_none(void **state) {
  fixture *f = *state;
  const int x = add_input(f, "x", KILN_F32, 1, (const int64_t[]){2});
  const int some = node(f, "Optional", 15, 1, &x), none = node(f, "Optional", 15, 0, NULL);
  add_output(f, node(f, "OptionalHasElement", 15, 1, &some));
  add_output(f, node(f, "OptionalHasElement", 15, 1, &none));
  add_output(f, node(f, "OptionalGetElement", 15, 1, &some));
  must_lower(f);
  assert_string_equal(run(f, 0), "1");
  assert_string_equal(run(f, 1), "0");
  assert_string_equal(run(f, 2), "0 1");
}

static void sequences_in_the_wrong_place_are_messages(void **state) {
  fixture *f = *state;
  const int x = add_input(f, "x", KILN_F32, 1, (const int64_t[]){2});
  const int p = add_input(f, "p", KILN_I64, 0, NULL);
  const int list = node(f, "SequenceConstruct", 11, 2, (const int[]){x, x});
  const int two = scalar(f, "two", 2), none = node(f, "Optional", 15, 0, NULL);
  add_output(f, list);
  add_output(f, node(f, "Add", 13, 2, (const int[]){x, list}));
  add_output(f, node(f, "SequenceAt", 11, 2, (const int[]){list, two}));
  add_output(f, node(f, "SequenceAt", 11, 2, (const int[]){list, p}));
  add_output(f, node(f, "SequenceLength", 11, 1, &x));
  add_output(f, node(f, "OptionalGetElement", 15, 1, &none));
  assert_int_not_equal(lower(f), KILN_OK);
  assert_true(has_message(f, "must be a tensor, got a sequence or an optional value"));
  assert_true(has_message(f, "input 1: must be a tensor, got a sequence"));
  assert_true(has_message(f, "the position: must lie in the sequence of 2 tensors"));
  assert_true(has_message(f, "input 1 (the position): must be known when compiling"));
  assert_true(has_message(f, "input 0: must be a sequence"));
  assert_true(has_message(f, "got an empty optional value"));
}

int main(void) {
#define ROW(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
  const struct CMUnitTest tests[] = {
      ROW(parts_are_taken_by_position),
      ROW(sequences_are_edited_and_joined),
      ROW(a_loop_carries_a_sequence),
      ROW(a_map_calls_its_body_for_each_element),
      ROW(optional_values_have_an_element_or_none),
      ROW(sequences_in_the_wrong_place_are_messages),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
