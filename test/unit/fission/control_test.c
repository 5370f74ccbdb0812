// If, Loop and Scan on hand-made graphs: unrolling, run-time conditions, limits.
#include "graph.h"

// The elements of output |i| as f32, computed with |x| for the first input.
static const float *run(fixture *f, int i, const void *x) {
  kiln_interpreter *in = NULL;
  const void *data = NULL;
  assert_int_equal(kiln_interpreter_create(f->cx, f->p, &in), KILN_OK);
  if (x) kiln_interpreter_bind(in, f->p->inputs.data[0], x);
  const kiln_tensor *t = output(f, i);
  if (t->data) data = t->data;
  else assert_int_equal(kiln_interpreter_compute(in, t->id, &data), KILN_OK);
  const int64_t n = kiln_tensor_elems(t);
  float *copy = KILN_NEW_ARRAY(&f->cx->perm, float, n);
  for (int64_t k = 0; k < n; k++) copy[k] = (float)kiln_element_get(t->dtype, data, k);
  kiln_interpreter_destroy(in);
  return copy;
}

static void graph_attr(fixture *f, const char *name, fixture *inner) {
  add_attr(f, name, KILN_ATTR_GRAPH)->u.graph = &inner->g;
}

static int add_output_of(fixture *f, int node_id) {
  kiln_node *n = f->nodes[node_id];
  int *outputs = KILN_NEW_ARRAY(&f->cx->perm, int, n->n_outputs + 1);
  for (int i = 0; i < n->n_outputs; i++) outputs[i] = n->outputs[i];
  char name[16];
  snprintf(name, sizeof(name), "w%d", f->g.n_values);
  outputs[n->n_outputs] = add_value(f, name);
  f->values[outputs[n->n_outputs]]->producer = n->id;
  n->outputs = outputs;
  return n->outputs[n->n_outputs++];
}

// A body (i, go, s) -> (go2, s * 2, s), where go2 is |go|, or s < |bound| when that is positive.
static void doubling_body(fixture *body, kiln_ctx *cx, double bound) {
  *body = (fixture){0};
  fixture_init(body, cx);
  add_input(body, "i", KILN_I64, 0, NULL);
  const int go = add_input(body, "go", KILN_BOOL, 0, NULL);
  const int s = add_input(body, "s", KILN_F32, 0, NULL);
  const int limit = add_const(body, "limit", KILN_F32, -1, &bound);
  const int more = bound > 0 ? node(body, "Less", 13, 2, (const int[]){s, limit}) : -1;
  const int twice = node(body, "Add", 13, 2, (const int[]){s, s});
  add_output(body, more >= 0 ? more : go);
  add_output(body, twice);
}

static void a_loop_is_unrolled(void **state) {
  fixture *f = *state, body;
  const int s = add_input(f, "s", KILN_F32, 0, NULL);
  const int n = add_const(f, "n", KILN_I64, -1, (const double[]){5});
  doubling_body(&body, f->cx, 0);
  add_output(&body, body.inputs[2]);
  add_output(f, node(f, "Loop", 13, 3, (const int[]){n, -1, s}));
  graph_attr(f, "body", &body);
  add_output(f, add_output_of(f, 0));
  must_lower(f);
  assert_float_equal(run(f, 0, (const float[]){3})[0], 96, 0);
  const float *all = run(f, 1, (const float[]){3});
  assert_int_equal(kiln_tensor_elems(output(f, 1)), 5);
  for (int i = 0; i < 5; i++) assert_float_equal(all[i], (float)(3 << i), 0);
}

static void a_loop_over_constants_ends_when_its_condition_says_so(void **state) {
  fixture *f = *state, body;
  const int s = add_const(f, "s", KILN_F32, -1, (const double[]){1});
  doubling_body(&body, f->cx, 10);
  add_output(f, node(f, "Loop", 13, 3, (const int[]){-1, -1, s}));
  graph_attr(f, "body", &body);
  must_lower(f);
  assert_int_equal(f->p->stmts.n, 0);
  assert_float_equal(run(f, 0, NULL)[0], 32, 0);
}

static void a_loop_keeps_its_state_when_the_run_ends_it(void **state) {
  fixture *f = *state, body;
  const int s = add_input(f, "s", KILN_F32, 0, NULL);
  const int n = add_const(f, "n", KILN_I64, -1, (const double[]){4});
  doubling_body(&body, f->cx, 10);
  add_output(f, node(f, "Loop", 13, 3, (const int[]){n, -1, s}));
  graph_attr(f, "body", &body);
  must_lower(f);
  assert_float_equal(run(f, 0, (const float[]){1})[0], 16, 0);
  assert_float_equal(run(f, 0, (const float[]){6})[0], 24, 0);
  assert_float_equal(run(f, 0, (const float[]){11})[0], 22, 0);
}

static void loops_that_cannot_be_unrolled_are_messages(void **state) {
  fixture *f = *state, body;
  const int n = add_input(f, "n", KILN_I64, 0, NULL);
  const int s = add_input(f, "s", KILN_F32, 0, NULL);
  doubling_body(&body, f->cx, 0);
  add_output(f, node(f, "Loop", 13, 3, (const int[]){n, -1, s}));
  graph_attr(f, "body", &body);
  add_output(f, node(f, "Loop", 13, 3, (const int[]){-1, -1, s}));
  graph_attr(f, "body", &body);
  add_output(f, node(f, "Loop", 13, 1, (const int[]){-1}));
  graph_attr(f, "body", &body);
  add_output(f, node(f, "Loop", 13, 2, (const int[]){-1, -1}));
  graph_attr(f, "body", &body);
  assert_int_equal(lower(f), KILN_UNSUPPORTED);
  assert_true(has_message(f, "the number of iterations): must be known when compiling"));
  assert_true(has_message(f, "there must be at most 4096, got 4097"));
  assert_true(has_message(f, "Loop: must have 2 inputs before its states"));
  assert_true(has_message(f, "must have 2 inputs and 2 outputs, got 3 and 2"));
}

static void a_branch_that_the_run_chooses_is_selected(void **state) {
  fixture *f = *state;
  add_input(f, "yes", KILN_BOOL, 0, NULL);
  add_input(f, "x", KILN_F32, 1, (const int64_t[]){2});
  fixture branches[2];
  for (int k = 0; k < 2; k++) {
    branches[k] = (fixture){0};
    fixture_init(&branches[k], f->cx);
    const int x = add_value(&branches[k], "x");
    const int c = add_const(&branches[k], "c", KILN_F32, 1, (const double[]){k ? 10 : 20});
    add_output(&branches[k], k ? node(&branches[k], "Add", 13, 2, (const int[]){x, c}) : c);
  }
  add_output(f, node(f, "If", 13, 1, f->inputs));
  graph_attr(f, "then_branch", &branches[1]);
  graph_attr(f, "else_branch", &branches[1]);
  must_lower(f);
  assert_int_equal(kiln_tensor_elems(output(f, 0)), 2);
  assert_int_equal(f->p->shape_of.n, 0);
  f->nodes[0]->attrs[1].u.graph = &branches[0].g; // of another extent, which the run finds
  must_lower(f);
  assert_int_equal(kiln_tensor_elems(output(f, 0)), 2);
  assert_int_equal(f->p->shape_of.n, 1);
  const int rank = add_const(&branches[0], "d", KILN_F32, -1, (const double[]){1});
  branches[0].g.outputs[0] = rank;
  assert_int_equal(lower(f), KILN_UNSUPPORTED);
  assert_true(has_message(f, "must choose between tensors of one type and rank"));
}

// (s, x) -> (s + x, s): sums from the end, and the sums before in the order of the input.
static void a_scan_runs_backwards(void **state) {
  fixture *f = *state, body = {0};
  const int x = add_input(f, "x", KILN_F32, 2, (const int64_t[]){2, 3});
  const int s = add_const(f, "s", KILN_F32, 2, (const double[]){100, 200});
  fixture_init(&body, f->cx);
  const int state_in = add_input(&body, "s", KILN_F32, 1, (const int64_t[]){2});
  const int x_in = add_input(&body, "x", KILN_F32, 1, (const int64_t[]){2});
  add_output(&body, node(&body, "Add", 13, 2, (const int[]){state_in, x_in}));
  add_output(&body, state_in);
  add_output(f, node(f, "Scan", 11, 2, (const int[]){s, x}));
  graph_attr(f, "body", &body);
  add_int(f, "num_scan_inputs", 1);
  static const int64_t minus_one[] = {-1}, one[] = {1};
  const struct {
    const char *name;
    const int64_t *values;
  } lists[] = {{"scan_input_axes", minus_one}, {"scan_input_directions", one}};
  for (size_t i = 0; i < KILN_LEN(lists); i++) {
    kiln_attr *a = add_attr(f, lists[i].name, KILN_ATTR_INTS);
    a->n = 1;
    a->u.ints = lists[i].values;
  }
  add_output(f, add_output_of(f, 0));
  must_lower(f);
  static const float data[] = {1, 2, 3, 10, 20, 30};
  const float *sums = run(f, 0, data), *before = run(f, 1, data);
  assert_float_equal(sums[0], 106, 0);
  assert_float_equal(sums[1], 260, 0);
  static const float want[] = {100, 200, 103, 230, 105, 250};
  for (int i = 0; i < 6; i++) assert_float_equal(before[i], want[i], 0);
}

int main(void) {
#define ROW(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
  const struct CMUnitTest tests[] = {
      ROW(a_loop_is_unrolled),
      ROW(a_loop_over_constants_ends_when_its_condition_says_so),
      ROW(a_loop_keeps_its_state_when_the_run_ends_it),
      ROW(loops_that_cannot_be_unrolled_are_messages),
      ROW(a_branch_that_the_run_chooses_is_selected),
      ROW(a_scan_runs_backwards),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
