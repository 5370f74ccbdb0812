// Data-dependent extents: counts and values of the run, their readers, and what the run checks.
#include "graph.h"

typedef struct running {
  kiln_interpreter *in;
  fixture *f;
} running;

static running run(fixture *f, int n_inputs, const void *const *inputs) {
  running r = {.f = f};
  assert_int_equal(kiln_interpreter_create(f->cx, f->p, &r.in), KILN_OK);
  for (int i = 0; i < n_inputs; i++) kiln_interpreter_bind(r.in, f->p->inputs.data[i], inputs[i]);
  assert_int_equal(kiln_interpreter_run(r.in), KILN_OK);
  return r;
}

static const void *result(const running *r, int output) {
  return kiln_interpreter_data(r->in, r->f->p->outputs.data[output]);
}

// The extent of an axis of output |of|, as the run found it.
static int64_t found(const running *r, int of, int axis) {
  const kiln_program *p = r->f->p;
  for (int i = 0; i < p->shape_of.n; i++)
    if (p->shape_of.data[i] == of)
      return ((const int64_t *)result(r, kiln_program_n_results(p) + i))[axis];
  return kiln_tensor_elems(output(r->f, of)); // of a vector
}

static void an_output_has_the_shape_that_the_run_finds(void **state) {
  fixture *f = *state;
  const int x = add_input(f, "x", KILN_F32, 2, (const int64_t[]){2, 3});
  add_output(f, node(f, "NonZero", 13, 1, &x));
  must_lower(f);
  assert_int_equal(f->p->outputs.n, 2);
  assert_int_equal(f->p->shape_of.n, 1);
  assert_int_equal(kiln_tensor_elems(output(f, 0)), 2 * 6);
  running r = run(f, 1, (const void *const[]){(const float[]){0, 1, 2, 0, 0, -3}});
  assert_int_equal(found(&r, 0, 0), 2);
  assert_int_equal(found(&r, 0, 1), 3);
  const int64_t *at = result(&r, 0);
  const int64_t rows[] = {0, 0, 1}, columns[] = {1, 2, 2};
  assert_memory_equal(at, rows, sizeof rows);
  assert_memory_equal(at + 6, columns, sizeof columns);
  kiln_interpreter_destroy(r.in);
}

static void what_is_constant_is_counted_when_compiling(void **state) {
  fixture *f = *state;
  const int x = add_const(f, "x", KILN_F32, 4, (const double[]){0, 5, 0, 6});
  add_output(f, node(f, "NonZero", 13, 1, &x));
  must_lower(f);
  assert_int_equal(f->p->shape_of.n, 0);
  assert_int_equal(kiln_tensor_elems(output(f, 0)), 2);
}

// Reductions ignore elements past the count, which are undefined.
static void reductions_end_with_what_was_counted(void **state) {
  fixture *f = *state;
  const int x = add_input(f, "x", KILN_F32, 1, (const int64_t[]){4});
  const int c = add_input(f, "c", KILN_BOOL, 1, (const int64_t[]){4});
  const int kept = node(f, "Compress", 11, 2, (const int[]){x, c});
  add_output(f, node(f, "ReduceMax", 13, 1, &kept));
  add_output(f, node(f, "ReduceMean", 13, 1, &kept));
  add_output(f, node(f, "Exp", 13, 1, &kept));
  must_lower(f);
  running r = run(f, 2,
                  (const void *const[]){(const float[]){-1, -2, -3, -4},
                                        (const bool[]){false, true, false, true}});
  assert_float_equal(*(const float *)result(&r, 0), -2, 0);
  assert_float_equal(*(const float *)result(&r, 1), -3, 0);
  assert_int_equal(found(&r, 2, 0), 2);
  kiln_interpreter_destroy(r.in);
}

static void nothing_is_an_extent_too(void **state) {
  fixture *f = *state;
  const int x = add_input(f, "x", KILN_F32, 1, (const int64_t[]){200});
  const int c = add_input(f, "c", KILN_BOOL, 1, (const int64_t[]){200});
  const int kept = node(f, "Compress", 11, 2, (const int[]){x, c});
  const int last = add_const(f, "last", KILN_I64, -1, (const double[]){-1});
  add_output(f, node(f, "ReduceSum", 13, 1, &kept));
  add_output(f, node(f, "Gather", 13, 2, (const int[]){kept, last}));
  add_output(f, node(f, "Neg", 13, 1, &kept));
  must_lower(f);
  static const float elements[200];
  static const bool none[200];
  running r = run(f, 2, (const void *const[]){elements, none});
  assert_float_equal(*(const float *)result(&r, 0), 0, 0);
  assert_int_equal(found(&r, 2, 0), 0);
  kiln_interpreter_destroy(r.in);
}

// What the check at the end of the outputs found: KILN_IN_RANGE if it holds.
static int64_t checked(const running *r) {
  return *(const int64_t *)result(r, r->f->p->outputs.n - 1);
}

static void the_run_checks_that_two_counts_are_equal(void **state) {
  fixture *f = *state;
  const int x = add_input(f, "x", KILN_F32, 1, (const int64_t[]){4});
  const int c = add_input(f, "c", KILN_BOOL, 1, (const int64_t[]){4});
  const int d = add_input(f, "d", KILN_BOOL, 1, (const int64_t[]){4});
  const int a = node(f, "Compress", 11, 2, (const int[]){x, c});
  const int b = node(f, "Compress", 11, 2, (const int[]){x, d});
  add_output(f, node(f, "Add", 13, 2, (const int[]){a, b}));
  must_lower(f);
  assert_int_equal(f->p->checks.n, 2); // one for each operand, either of which may be stretched
  static const float elements[] = {1, 2, 3, 4};
  static const bool two[] = {false, true, false, true}, others[] = {true, true, false, false},
                    three[] = {true, true, true, false};
  running r = run(f, 3, (const void *const[]){elements, two, others});
  assert_true(checked(&r) == KILN_IN_RANGE);
  assert_float_equal(((const float *)result(&r, 0))[1], 4 + 2, 0);
  kiln_interpreter_destroy(r.in);
  r = run(f, 3, (const void *const[]){elements, two, three});
  const int64_t *both = result(&r, f->p->outputs.n - 1);
  assert_true(both[0] != KILN_IN_RANGE || both[1] != KILN_IN_RANGE);
  kiln_interpreter_destroy(r.in);
}

static void the_run_checks_that_a_count_is_a_number(void **state) {
  fixture *f = *state;
  const int x = add_input(f, "x", KILN_F32, 1, (const int64_t[]){4});
  const int c = add_input(f, "c", KILN_BOOL, 1, (const int64_t[]){4});
  const int a = node(f, "Compress", 11, 2, (const int[]){x, c});
  add_output(f, node(f, "Mul", 13, 2, (const int[]){a, x}));
  must_lower(f);
  static const float elements[] = {1, 2, 3, 4};
  static const bool all[] = {true, true, true, true}, three[] = {true, true, true, false};
  running r = run(f, 2, (const void *const[]){elements, all});
  assert_true(checked(&r) == KILN_IN_RANGE);
  kiln_interpreter_destroy(r.in);
  r = run(f, 2, (const void *const[]){elements, three});
  assert_int_equal(checked(&r), 4);
  kiln_interpreter_destroy(r.in);
}

static void an_extent_that_is_an_input_is_bounded_and_checked(void **state) {
  fixture *f = *state;
  const int n = add_input(f, "n", KILN_I64, 1, (const int64_t[]){1});
  const int x = add_input(f, "x", KILN_F32, 1, (const int64_t[]){1});
  f->g.most_extent = 10;
  add_output(f, node(f, "Expand", 13, 2, (const int[]){x, n}));
  must_lower(f);
  assert_int_equal(kiln_tensor_elems(output(f, 0)), 10);
  static const struct {
    int64_t n, found, checked;
  } rows[] = {{7, 7, KILN_IN_RANGE},
              {0, 0, KILN_IN_RANGE},
              {10, 10, KILN_IN_RANGE},
              {11, 10, 11},
              {-1, 0, -1}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    running r = run(f, 2, (const void *const[]){&rows[i].n, (const float[]){3}});
    assert_int_equal(found(&r, 0, 0), rows[i].found);
    assert_true(checked(&r) == rows[i].checked);
    kiln_interpreter_destroy(r.in);
  }
}

int main(void) {
#define ROW(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
  const struct CMUnitTest tests[] = {
      ROW(an_output_has_the_shape_that_the_run_finds),
      ROW(what_is_constant_is_counted_when_compiling),
      ROW(reductions_end_with_what_was_counted),
      ROW(nothing_is_an_extent_too),
      ROW(the_run_checks_that_two_counts_are_equal),
      ROW(the_run_checks_that_a_count_is_a_number),
      ROW(an_extent_that_is_an_input_is_bounded_and_checked),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
