// Tables of variants: written ones read back equal, damaged ones are refused without a crash, and
// values select their variant.
#include "runtime/dynamic.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

typedef struct table {
  kiln_dim_range dims[2];
  kiln_dynamic_port inputs[1], outputs[1];
  kiln_variant variants[2];
  kiln_trim trims[1];
  kiln_formula_step batch, half[3], tiles[5];
  kiln_dynamic d;
} table;

// x (batch, width), y (batch, width / 2); variants for batch 1 and for 2 to 8; of the latter
// ceil(batch / 2) iterations.
static void make(table *t) {
  const kiln_type *f32 = kiln_type_find("f32");
  memset(t, 0, sizeof *t);
  t->batch = (kiln_formula_step){KILN_FORMULA_DIM, 0};
  t->half[0] = (kiln_formula_step){KILN_FORMULA_DIM, 1};
  t->half[1] = (kiln_formula_step){KILN_FORMULA_CONST, 2};
  t->half[2] = (kiln_formula_step){KILN_FORMULA_DIV, 0};
  t->tiles[0] = t->batch;
  t->tiles[1] = (kiln_formula_step){KILN_FORMULA_CONST, 1};
  t->tiles[2] = (kiln_formula_step){KILN_FORMULA_ADD, 0};
  t->tiles[3] = t->half[1];
  t->tiles[4] = t->half[2];
  t->dims[0] = (kiln_dim_range){"batch", 1, 8, 1};
  t->dims[1] = (kiln_dim_range){"width", 16, 64, 16};
  t->inputs[0] = (kiln_dynamic_port){"x", f32, 2, {{1, &t->batch}, {1, t->half}}};
  t->outputs[0] = (kiln_dynamic_port){"y", f32, 2, {{1, &t->batch}, {3, t->half}}};
  t->trims[0] = (kiln_trim){4, 0, {5, t->tiles}};
  t->variants[0] = (kiln_variant){{1, 16}, {1, 64}, 0, NULL, "one", 4};
  t->variants[1] = (kiln_variant){{2, 16}, {8, 64}, 1, t->trims, "more", 5};
  t->d = (kiln_dynamic){2, 1, 1, 2, t->dims, t->inputs, t->outputs, t->variants, NULL};
}

static void *write(const table *t, size_t *n) {
  void *blob = NULL;
  kiln_dynamic_write(&t->d, &blob, n);
  assert_non_null(blob);
  return blob;
}

static void what_is_written_is_read(void **state) {
  (void)state;
  table t;
  size_t n = 0;
  kiln_dynamic d;
  make(&t);
  void *blob = write(&t, &n);
  assert_true(kiln_dynamic_is(blob, n));
  assert_int_equal(kiln_dynamic_read(blob, n, "test", NULL, &d), KILN_OK);
  assert_int_equal(d.n_dims, 2);
  assert_string_equal(d.dims[1].name, "width");
  assert_int_equal(d.dims[1].step, 16);
  assert_string_equal(d.outputs[0].name, "y");
  assert_int_equal(d.variants[1].trims[0].nest, 4);
  assert_string_equal(d.variants[1].plan, "more");
  const int64_t values[] = {5, 48};
  int64_t shape[KILN_MAX_PORT_RANK];
  kiln_dynamic_shape(&d.outputs[0], values, shape);
  assert_int_equal(shape[0], 5);
  assert_int_equal(shape[1], 24);
  assert_int_equal(kiln_formula_value(&d.variants[1].trims[0].extent, values), 3);
  kiln_dynamic_deinit(&d);
  free(blob);
}

static void values_find_their_variant(void **state) {
  (void)state;
  table t;
  make(&t);
  assert_int_equal(kiln_dynamic_choose(&t.d, (int64_t[]){1, 32}), 0);
  assert_int_equal(kiln_dynamic_choose(&t.d, (int64_t[]){2, 32}), 1);
  assert_int_equal(kiln_dynamic_choose(&t.d, (int64_t[]){8, 64}), 1);
  assert_int_equal(kiln_dynamic_check(&t.d, (int64_t[]){8, 64}, NULL), KILN_OK);
  assert_int_equal(kiln_dynamic_check(&t.d, (int64_t[]){9, 64}, NULL), KILN_BAD_INPUT);
  assert_int_equal(kiln_dynamic_check(&t.d, (int64_t[]){8, 40}, NULL), KILN_BAD_INPUT); // a step
}

static void shapes_of_inputs_say_the_values(void **state) {
  (void)state;
  table t;
  int64_t shape[] = {3, 32}, values[KILN_MAX_DIMS];
  DLTensor x = {.ndim = 2, .shape = shape};
  const DLTensor *inputs[] = {&x};
  make(&t);
  assert_int_equal(kiln_dynamic_find_dims(&t.d, 1, inputs, NULL, values), KILN_OK);
  assert_int_equal(values[0], 3);
  assert_int_equal(values[1], 32);
  shape[0] = 11;
  assert_int_equal(kiln_dynamic_find_dims(&t.d, 1, inputs, NULL, values), KILN_BAD_INPUT);
  x.ndim = 1;
  assert_int_equal(kiln_dynamic_find_dims(&t.d, 1, inputs, NULL, values), KILN_BAD_INPUT);
  assert_int_equal(kiln_dynamic_find_dims(&t.d, 0, NULL, NULL, values), KILN_BAD_INPUT);
}

// Formulas round down, as the expressions from which they are made.
static void formulas_round_down(void **state) {
  (void)state;
  static const struct {
    kiln_formula_op op;
    int64_t a, b, want;
  } rows[] = {{KILN_FORMULA_DIV, -7, 2, -4}, {KILN_FORMULA_MOD, -7, 2, 1},
              {KILN_FORMULA_DIV, 7, 0, 0},   {KILN_FORMULA_MOD, 7, 0, 0},
              {KILN_FORMULA_SUB, 3, 5, -2},  {KILN_FORMULA_MUL, 3, -5, -15},
              {KILN_FORMULA_MIN, 3, 5, 3},   {KILN_FORMULA_MAX_OF, 3, 5, 5}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    kiln_formula_step steps[] = {
        {KILN_FORMULA_CONST, rows[i].a}, {KILN_FORMULA_CONST, rows[i].b}, {rows[i].op, 0}};
    const kiln_formula f = {3, steps};
    assert_int_equal(kiln_formula_value(&f, NULL), rows[i].want);
  }
}

static void damaged_tables_are_refused(void **state) {
  (void)state;
  table t;
  size_t n = 0;
  kiln_dynamic d;
  make(&t);
  unsigned char *blob = write(&t, &n);
  for (size_t k = 0; k < n; k++) // cut off anywhere
    assert_int_equal(kiln_dynamic_read(blob, k, "test", NULL, &d), KILN_BAD_INPUT);
  for (size_t k = 0; k < n; k++) // and changed anywhere: refused, or right in itself
    for (int bit = 0; bit < 8; bit++) {
      blob[k] ^= (unsigned char)(1 << bit);
      if (kiln_dynamic_read(blob, n, "test", NULL, &d) == KILN_OK) {
        int64_t shape[KILN_MAX_PORT_RANK];
        const int64_t values[KILN_MAX_DIMS] = {3, 32};
        for (uint32_t i = 0; i < d.n_outputs; i++) kiln_dynamic_shape(&d.outputs[i], values, shape);
        kiln_dynamic_deinit(&d);
      }
      blob[k] ^= (unsigned char)(1 << bit);
    }
  free(blob);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_is_written_is_read),
      cmocka_unit_test(values_find_their_variant),
      cmocka_unit_test(shapes_of_inputs_say_the_values),
      cmocka_unit_test(formulas_round_down),
      cmocka_unit_test(damaged_tables_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
