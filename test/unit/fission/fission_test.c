// Fission on hand-made graphs: folding, named dimensions, messages and dead statements.
#include "graph.h"

#include <math.h>

static void every_failing_node_is_told_and_what_depends_on_it_is_not(void **state) {
  fixture *f = *state;
  const int x = add_input(f, "x", KILN_F32, 1, (const int64_t[]){4});
  const int a = node(f, "NoSuchOperator", 13, 1, &x);
  const int b = node(f, "Identity", 13, 1, &a);
  const int c = node(f, "TopK", 0, 1, &x);
  add_output(f, b);
  add_output(f, c);
  assert_int_equal(lower(f), KILN_UNSUPPORTED);
  assert_null(f->p);
  assert_int_equal(kiln_diag_count(f->diag), 2);
  assert_true(has_message(f, "opset 13 [f32]: error: operator NoSuchOperator"));
  assert_true(has_message(f, "operator TopK: opset must be in 1.., got 0"));
}

static void another_domain_is_another_operator(void **state) {
  fixture *f = *state;
  const int x = add_input(f, "x", KILN_F32, 1, (const int64_t[]){4});
  const int a = node(f, "Identity", 1, 1, &x);
  f->nodes[0]->domain = kiln_symbol_of(f->cx, "com.example");
  add_output(f, a);
  assert_int_equal(lower(f), KILN_UNSUPPORTED);
  assert_true(has_message(f, "operator Identity of domain com.example"));
}

static void a_value_that_nobody_makes_is_a_message(void **state) {
  fixture *f = *state;
  const int x = add_value(f, "ghost");
  add_output(f, node(f, "Identity", 13, 1, &x));
  assert_int_equal(lower(f), KILN_BAD_INPUT);
  assert_true(has_message(f, "input 0: must be made by an earlier node, got ghost"));
}

static void a_wrong_attribute_is_a_message(void **state) {
  fixture *f = *state;
  const int x = add_input(f, "x", KILN_F32, 1, (const int64_t[]){4});
  add_output(f, node(f, "ArgMax", 13, 1, &x));
  add_attr(f, "axis", KILN_ATTR_FLOAT)->u.f = 1;
  assert_int_equal(lower(f), KILN_BAD_INPUT);
  assert_true(has_message(f, "attribute axis: must be an integer"));
}

static void constants_fold_away(void **state) {
  fixture *f = *state;
  const int a = add_const(f, "a", KILN_F32, 3, (const double[]){1, 2, 3});
  const int b = add_const(f, "b", KILN_F32, 1, (const double[]){10});
  const int both[] = {a, b};
  add_output(f, node(f, "Sum", 13, 2, both));
  must_lower(f);
  assert_int_equal(f->p->stmts.n, 0);
  assert_int_equal(output(f, 0)->role, KILN_CONST);
  assert_memory_equal(output(f, 0)->data, ((const float[]){11, 12, 13}), 12);
  assert_int_equal(f->p->tensors.n, 1);
}

static void big_fills_are_left_to_their_readers(void **state) {
  fixture *f = *state;
  const int n = add_const(f, "n", KILN_I64, 1, (const double[]){5000});
  add_output(f, node(f, "ConstantOfShape", 9, 1, &n));
  must_lower(f);
  assert_int_equal(f->p->stmts.n, 1);
  assert_int_equal(kiln_tensor_elems(output(f, 0)), 5000);
}

// Reshape(x, [Shape(x)[0], Shape(x)[1] * 2, -1]) as exporters write it.
static void named_dimensions_flow_through_shape_arithmetic(void **state) {
  fixture *f = *state;
  const int x = add_input(f, "x", KILN_F32, 3, (const int64_t[]){-1, 6, 8});
  const int shape = node(f, "Shape", 13, 1, &x);
  const int zero = add_const(f, "zero", KILN_I64, 1, (const double[]){0});
  const int one = add_const(f, "one", KILN_I64, 1, (const double[]){1});
  const int two = add_const(f, "two", KILN_I64, 1, (const double[]){2});
  const int rest = add_const(f, "rest", KILN_I64, 1, (const double[]){-1});
  const int first = node(f, "Gather", 13, 2, (const int[]){shape, zero});
  const int second = node(f, "Gather", 13, 2, (const int[]){shape, one});
  const int twice = node(f, "Mul", 13, 2, (const int[]){second, two});
  const int wanted = node(f, "Concat", 13, 3, (const int[]){first, twice, rest});
  add_int(f, "axis", 0);
  add_output(f, node(f, "Reshape", 13, 2, (const int[]){x, wanted}));
  must_lower(f);
  const kiln_tensor *y = output(f, 0);
  int64_t extent = 0;
  assert_int_equal(y->rank, 3);
  assert_ptr_equal(y->shape[0], kiln_var(f->cx, kiln_symbol_of(f->cx, "a")));
  assert_true(kiln_expr_is_int(y->shape[1], &extent));
  assert_int_equal(extent, 12);
  assert_true(kiln_expr_is_int(y->shape[2], &extent));
  assert_int_equal(extent, 4);
  assert_int_equal(f->p->stmts.n, 1); // the arithmetic is gone
}

static void a_rank_that_only_the_run_knows_is_a_message(void **state) {
  fixture *f = *state;
  const int x = add_input(f, "x", KILN_F32, 1, (const int64_t[]){4});
  const int s = add_input(f, "s", KILN_I64, 1, (const int64_t[]){2});
  add_output(f, node(f, "Unsqueeze", 13, 2, (const int[]){x, s}));
  assert_int_equal(lower(f), KILN_UNSUPPORTED);
  assert_true(has_message(f, "input 1 (s): must be known when compiling"));
}

static void shapes_that_do_not_broadcast_are_a_message(void **state) {
  fixture *f = *state;
  const int x = add_input(f, "x", KILN_F32, 2, (const int64_t[]){2, 3});
  const int y = add_input(f, "y", KILN_F32, 1, (const int64_t[]){4});
  add_output(f, node(f, "Max", 13, 2, (const int[]){x, y}));
  assert_int_equal(lower(f), KILN_BAD_INPUT);
  assert_true(has_message(f, "extents must be equal or 1, got 3 and 4"));
}

static void outputs_and_inputs_keep_their_names(void **state) {
  fixture *f = *state;
  const int x = add_input(f, "x", KILN_F16, 2, (const int64_t[]){2, 3});
  add_node(f, "ReduceMean", 13, 1, &x, add_value(f, "mean"));
  add_output(f, f->g.n_values - 1);
  add_output(f, x);
  must_lower(f);
  assert_string_equal(kiln_symbol_text(f->cx, output(f, 0)->name), "mean");
  assert_int_equal(output(f, 0)->role, KILN_OUTPUT);
  assert_int_equal(output(f, 1)->role, KILN_INPUT);
  assert_int_equal(f->p->inputs.n, 1);
}

static void a_declared_output_shape_that_is_wrong_is_a_warning(void **state) {
  fixture *f = *state;
  const int x = add_input(f, "x", KILN_F32, 1, (const int64_t[]){4});
  const int y = node(f, "Identity", 13, 1, &x);
  *f->values[y] = (kiln_value){.id = y,
                               .name = f->values[y]->name,
                               .producer = 0,
                               .has_shape = true,
                               .rank = 1,
                               .shape = KILN_NEW_ARRAY(&f->cx->perm, const kiln_expr *, 1)};
  f->values[y]->shape[0] = kiln_int(f->cx, 5);
  add_output(f, y);
  must_lower(f);
  assert_true(has_message(f, "warning: output: axis 0 is declared as 5, but is 4"));
}

// If(true) whose branch reads a value of the enclosing graph.
static void an_if_that_is_decided_becomes_its_branch(void **state) {
  fixture *f = *state;
  add_input(f, "x", KILN_F32, 1, (const int64_t[]){4});
  const int yes = add_const(f, "yes", KILN_BOOL, -1, (const double[]){1});
  fixture inner = {0};
  fixture_init(&inner, f->cx);
  const int captured = add_value(&inner, "x");
  add_output(&inner, node(&inner, "Sum", 13, 2, (const int[]){captured, captured}));
  add_output(f, node(f, "If", 13, 1, &yes));
  add_attr(f, "then_branch", KILN_ATTR_GRAPH)->u.graph = &inner.g;
  must_lower(f);
  assert_int_equal(f->p->stmts.n, 1);
  assert_int_equal(kiln_tensor_elems(output(f, 0)), 4);
}

static void dead_statements_are_removed(void **state) {
  fixture *f = *state;
  const int x = add_input(f, "x", KILN_F32, 2, (const int64_t[]){4, 4});
  node(f, "ReduceSum", 11, 1, &x);
  const int live = node(f, "ReduceMax", 11, 1, &x);
  add_output(f, node(f, "Sum", 13, 2, (const int[]){live, x}));
  must_lower(f);
  assert_int_equal(f->p->stmts.n, 2);
  assert_int_equal(f->p->tensors.n, 3);
  for (int i = 0; i < f->p->tensors.n; i++) assert_int_equal(f->p->tensors.data[i]->id, i);
}

// Minifloats are refused by arithmetic operators.
static void codes_are_moved_but_not_computed_with(void **state) {
  static const struct {
    const char *op;
    int n_inputs;
    const char *message;
  } rows[] = {
      {"Add", 2, "operands: must be cast to another type to be computed with, got f8e4m3fn"},
      {"Less", 2, "operands: must be cast to another type to be computed with, got f8e4m3fn"},
      {"ReduceMax", 1, "operands: must be cast to another type to be reduced, got f8e4m3fn"},
      {"Transpose", 1, NULL},
      {"Identity", 1, NULL},
      {"Concat", 2, NULL},
  };
  for (size_t i = 0; i < KILN_LEN(rows); i++) {
    fixture *f = *state;
    fixture_init(f, f->cx);
    const int x = add_input(f, "x", KILN_F8E4M3FN, 2, (const int64_t[]){2, 3});
    add_output(f, node(f, rows[i].op, 13, rows[i].n_inputs, (const int[]){x, x}));
    if (!strcmp(rows[i].op, "Concat")) add_attr(f, "axis", KILN_ATTR_INT)->u.i = 0;
    assert_int_equal(lower(f), rows[i].message ? KILN_UNSUPPORTED : KILN_OK);
    if (rows[i].message) assert_true(has_message(f, rows[i].message));
    else assert_int_equal(output(f, 0)->dtype, KILN_F8E4M3FN);
  }
}

int main(void) {
#define ROW(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
  const struct CMUnitTest tests[] = {
      ROW(every_failing_node_is_told_and_what_depends_on_it_is_not),
      ROW(another_domain_is_another_operator),
      ROW(a_value_that_nobody_makes_is_a_message),
      ROW(a_wrong_attribute_is_a_message),
      ROW(constants_fold_away),
      ROW(big_fills_are_left_to_their_readers),
      ROW(named_dimensions_flow_through_shape_arithmetic),
      ROW(a_rank_that_only_the_run_knows_is_a_message),
      ROW(shapes_that_do_not_broadcast_are_a_message),
      ROW(outputs_and_inputs_keep_their_names),
      ROW(a_declared_output_shape_that_is_wrong_is_a_warning),
      ROW(an_if_that_is_decided_becomes_its_branch),
      ROW(dead_statements_are_removed),
      ROW(codes_are_moved_but_not_computed_with),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
