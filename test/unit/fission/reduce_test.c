// The operators of ops/ written in C for reductions, places and ranks: rows of small inputs.
#include "graph.h"

#include <math.h>

typedef struct row {
  const char *op;
  int64_t opset;
  kiln_dtype t;
  int64_t shape[2]; // of the input, rank 2
  double in[8];
  struct {
    const char *name;
    int64_t value;
  } ints[3];
  int axis; // attribute axes = [axis]; -9: absent
  int n;
  double want[8];
} row;

static const row rows[] = {
    {"ReduceSum", 11, KILN_F32, {2, 2}, {1, 2, 3, 4}, {{0}}, 1, 2, {3, 7}},
    {"ReduceSum", 11, KILN_F32, {2, 2}, {1, 2, 3, 4}, {{"keepdims", 0}}, -9, 1, {10}},
    {"ReduceSum", 11, KILN_F32, {2, 0}, {0}, {{0}}, -1, 2, {0, 0}},
    {"ReduceProd", 11, KILN_F32, {2, 0}, {0}, {{0}}, -1, 2, {1, 1}},
    {"ReduceMax", 20, KILN_F32, {2, 0}, {0}, {{"keepdims", 0}}, -9, 1, {-INFINITY}},
    {"ReduceMin", 11, KILN_I32, {1, 3}, {4, -2, 9}, {{0}}, 1, 1, {-2}},
    {"ReduceMax", 20, KILN_BOOL, {2, 2}, {0, 1, 0, 0}, {{"keepdims", 0}}, -9, 1, {1}},
    {"ReduceMean", 11, KILN_F16, {1, 2}, {65504, 65504}, {{0}}, 1, 1, {65504}},
    {"ReduceMean", 11, KILN_I32, {1, 2}, {-3, 0}, {{0}}, 1, 1, {-1}},
    {"ReduceL1", 11, KILN_F32, {1, 2}, {-3, 4}, {{0}}, 1, 1, {7}},
    {"ReduceL2", 11, KILN_F32, {1, 2}, {-3, 4}, {{0}}, 1, 1, {5}},
    {"ReduceL2", 11, KILN_I32, {1, 2}, {-3, 4}, {{0}}, 1, 1, {5}},
    {"ReduceSumSquare", 11, KILN_F32, {1, 2}, {-3, 4}, {{0}}, 1, 1, {25}},
    {"ReduceLogSum", 11, KILN_F32, {1, 2}, {0.5, 0.5}, {{0}}, 1, 1, {0}},
    {"ReduceLogSumExp", 11, KILN_F32, {1, 1}, {1000}, {{0}}, 1, 1, {1000}},
    {"ReduceLogSumExp", 11, KILN_F32, {1, 2}, {-INFINITY, 3}, {{0}}, 1, 1, {3}},
    {"ReduceLogSumExp", 11, KILN_F32, {1, 2}, {-INFINITY, -INFINITY}, {{0}}, 1, 1, {-INFINITY}},
    {"ReduceLogSumExp", 11, KILN_F32, {1, 2}, {INFINITY, 3}, {{0}}, 1, 1, {INFINITY}},
    {"ReduceSumSquare",
     18,
     KILN_F32,
     {1, 2},
     {3, 4},
     {{"noop_with_empty_axes", 1}},
     -9,
     2,
     {9, 16}},
    {"ReduceSum", 13, KILN_F32, {1, 2}, {3, 4}, {{"noop_with_empty_axes", 1}}, -9, 2, {3, 4}},
    {"ArgMax", 13, KILN_F32, {2, 3}, {1, 5, 5, 2, 2, 1}, {{"axis", 1}}, -9, 2, {1, 0}},
    {"ArgMax",
     13,
     KILN_F32,
     {2, 3},
     {1, 5, 5, 2, 2, 1},
     {{"axis", 1}, {"select_last_index", 1}},
     -9,
     2,
     {2, 1}},
    {"ArgMin", 13, KILN_I8, {2, 2}, {1, 5, 1, 0}, {{"axis", 0}, {"keepdims", 0}}, -9, 2, {0, 1}},
    {"ArgMax", 13, KILN_F32, {1, 3}, {1, NAN, 9}, {{"axis", 1}}, -9, 1, {1}},
    {"TopK", 1, KILN_F32, {1, 4}, {3, 7, 7, -INFINITY}, {{"k", 3}}, -9, 3, {7, 7, 3}},
    {"TopK", 1, KILN_F32, {1, 3}, {INFINITY, 0, NAN}, {{"k", 0}}, -9, 0, {0}},
    {"EyeLike", 9, KILN_F32, {2, 3}, {0}, {{"k", 1}}, -9, 6, {0, 1, 0, 0, 0, 1}},
    {"Cast", 13, KILN_F32, {1, 4}, {300, -1.5, NAN, 0.5}, {{"to", 2}}, -9, 4, {255, 0, 0, 0}},
    {"Cast", 13, KILN_F32, {1, 3}, {0, -0.25, NAN}, {{"to", 9}}, -9, 3, {0, 1, 1}},
    {"Size", 13, KILN_F32, {2, 3}, {0}, {{0}}, -9, 1, {6}},
    {"Shape", 15, KILN_F32, {2, 3}, {0}, {{"start", -1}}, -9, 1, {3}},
};

static void run_row(fixture *f, const row *r) {
  const int x = add_input(f, "x", r->t, 2, r->shape);
  add_output(f, node(f, r->op, r->opset, 1, &x));
  for (int i = 0; i < 3 && r->ints[i].name; i++) add_int(f, r->ints[i].name, r->ints[i].value);
  const int64_t axis = r->axis;
  if (axis > -9) {
    kiln_attr *a = add_attr(f, "axes", KILN_ATTR_INTS);
    a->n = 1;
    a->u.ints = &axis;
  }
  must_lower(f);
  char data[8 * 8 + 8] = {0};
  for (int i = 0; i < r->shape[0] * r->shape[1]; i++) kiln_element_set(r->t, data, i, r->in[i]);
  kiln_interpreter *in = NULL;
  assert_int_equal(kiln_interpreter_create(f->cx, f->p, &in), KILN_OK);
  kiln_interpreter_bind(in, f->p->inputs.data[0], data);
  assert_int_equal(kiln_interpreter_run(in), KILN_OK);
  const kiln_tensor *y = output(f, 0);
  const void *got = kiln_interpreter_data(in, y->id);
  assert_int_equal(kiln_tensor_elems(y), r->n);
  for (int i = 0; i < r->n; i++) {
    const double v = kiln_element_get(y->dtype, got, i);
    if (v != r->want[i] && !(fabs(v - r->want[i]) < 1e-6)) {
      kiln_interpreter_destroy(in);
      fail_msg("%s: element %d must be %g, got %g", r->op, i, r->want[i], v);
    }
  }
  kiln_interpreter_destroy(in);
}

static void operators_give_what_onnx_says(void **state) {
  (void)state;
  for (size_t i = 0; i < KILN_LEN(rows); i++) {
    void *f = NULL;
    assert_int_equal(setup(&f), 0);
    print_message("%s-%d\n", rows[i].op, (int)rows[i].opset);
    run_row(f, &rows[i]);
    teardown(&f);
  }
}

static void a_k_past_the_axis_is_a_message(void **state) {
  fixture *f = *state;
  const int x = add_input(f, "x", KILN_F32, 2, (const int64_t[]){2, 3});
  add_output(f, node(f, "TopK", 1, 1, &x));
  add_int(f, "k", 4);
  assert_int_equal(lower(f), KILN_BAD_INPUT);
  assert_true(has_message(f, "k: must be one number in [0, 3], got 4"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(operators_give_what_onnx_says),
      cmocka_unit_test_setup_teardown(a_k_past_the_axis_is_a_message, setup, teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
