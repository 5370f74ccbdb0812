// The reference interpreter on rows of program text, and its fast paths against its slow one.
#include "analysis/interpret.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct fixture {
  kiln_diag *diag;
  kiln_ctx cx;
  kiln_program *p;
  kiln_interpreter *in;
  void *owned[16]; // inputs
  int n_owned;
} fixture;

static int setup(void **state) {
  fixture *f = calloc(1, sizeof(*f));
  if (!f) return 1;
  f->diag = kiln_diag_create();
  *state = f;
  return kiln_ctx_init(&f->cx, f->diag) != KILN_OK;
}

static int teardown(void **state) {
  fixture *f = *state;
  kiln_interpreter_destroy(f->in);
  for (int i = 0; i < f->n_owned; i++) free(f->owned[i]);
  kiln_ctx_deinit(&f->cx);
  kiln_diag_destroy(f->diag);
  free(f);
  return 0;
}

static void print_messages(const fixture *f) {
  for (size_t i = 0; i < kiln_diag_count(f->diag); i++)
    print_message("  %s\n", kiln_diag_message(f->diag, i));
}

// Parses |text| and binds each input to |value(i)|.
static void load(fixture *f, const char *text, double (*value)(int64_t i)) {
  kiln_interpreter_destroy(f->in);
  f->in = NULL;
  const kiln_status parsed = kiln_program_parse(&f->cx, text, &f->p);
  if (parsed != KILN_OK) print_messages(f);
  assert_int_equal(parsed, KILN_OK);
  assert_int_equal(kiln_interpreter_create(&f->cx, f->p, &f->in), KILN_OK);
  for (int i = 0; i < f->p->inputs.n; i++) {
    const kiln_tensor *t = f->p->tensors.data[f->p->inputs.data[i]];
    const int64_t n = kiln_tensor_elems(t);
    assert_true(f->n_owned < 16);
    void *data = calloc((size_t)n + 1, 8);
    f->owned[f->n_owned++] = data;
    for (int64_t k = 0; k < n; k++) kiln_element_set(t->dtype, data, k, value(k));
    kiln_interpreter_bind(f->in, t->id, data);
  }
}

static void release_inputs(fixture *f) {
  for (int i = 0; i < f->n_owned; i++) free(f->owned[i]);
  f->n_owned = 0;
}

static double count_up(int64_t i) { return (double)i; }
static double centred(int64_t i) { return (double)((i * 37 + 11) % 23) - 11; }
static double noisy(int64_t i) { return sin((double)i * 1.7) * 3; }

static const struct {
  const char *text; // inputs hold 0, 1, 2, ...
  int n;
  double want[8];
} rows[] = {
    {"sum { in f32 X(2, 3)  out f32 Y(2)  Y(i:2 | r:3) +=! X(i, r) }", 2, {3, 12}},
    {"prod { in f32 X(2, 3)  out f32 Y(2)  Y(i:2 | r:3) *=! X(i, r) }", 2, {0, 60}},
    {"top { in i32 X(2, 3)  out i32 Y(3)  Y(i:3 | r:2) max=! X(r, i) }", 3, {3, 4, 5}},
    {"low { in f32 X(4)  out f32 Y()  Y(| r:4) min=! X(r) - 2f32 }", 1, {-2}},
    {"pad { in f32 X(3)  out f32 Y(5)  Y(i:5) = i - 1 >= 0 && i - 1 < 3 ? X(i - 1) : 7f32 }",
     5,
     {7, 0, 1, 2, 7}},
    {"index { in f32 X(4)  out f32 Y(4)  Y(i:4) = X(3 - i) + f32(i / 2) }", 4, {3, 2, 2, 1}},
    {"gather { in i64 I(3)  in f32 X(4)  out f32 Y(3)  Y(i:3) = X(I(i) + 1) }", 3, {1, 2, 3}},
    {"wrap { in u8 X(3)  out u8 Y(3)  Y(i:3) = X(i) - 1u8 }", 3, {255, 0, 1}},
    {"sums_wrap { in i8 X(3)  out i8 Y()  Y(| r:3) +=! X(r) * 100i8 }", 1, {44}},
    {"floor { out i64 Y(4)  Y(i:4) = (i - 2) / 2 }", 4, {-1, -1, 0, 0}},
    {"by_zero { in i32 X(3)  out i32 Y(3)  Y(i:3) = X(i) / 0i32 + X(i) % 0i32 }", 3, {0, 0, 0}},
    {"saturate { in f32 X(3)  out i8 Y(3)  Y(i:3) = i8(X(i) * 100f32) }", 3, {0, 100, 127}},
    {"half { in f32 X(2)  out f16 Y(2)  Y(i:2) = f16(X(i) + 2049f32) }", 2, {2048, 2050}},
    {"empty { in f32 X(0)  out f32 Y(2)  Y(i:2 | r:0) +=! X(r) }", 2, {0, 0}},
    {"guard { in f32 X(4)  out f32 Y(4)  Y(i:4 | r:4) +=! X(r) if r <= i }", 4, {0, 1, 3, 6}},
    {"twice { in f32 X(3)  temp f32 Z(3)  out f32 Y(3)  Z(i:3) = X(i) + 1f32  "
     "Y(i:3) = Z(i) * Z(i) }",
     3,
     {1, 4, 9}},
};

static void programs_give_what_they_say(void **state) {
  fixture *f = *state;
  for (size_t row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
    print_message("%s\n", rows[row].text);
    load(f, rows[row].text, count_up);
    const kiln_status status = kiln_interpreter_run(f->in);
    if (status != KILN_OK) print_messages(f);
    assert_int_equal(status, KILN_OK);
    const int out = f->p->outputs.data[0];
    const kiln_tensor *t = f->p->tensors.data[out];
    const void *data = kiln_interpreter_data(f->in, out);
    assert_int_equal(kiln_tensor_elems(t), rows[row].n);
    for (int i = 0; i < rows[row].n; i++)
      assert_float_equal(kiln_element_get(t->dtype, data, i), rows[row].want[i], 0);
    release_inputs(f);
  }
}

static void a_scatter_starts_from_init_and_combines(void **state) {
  fixture *f = *state;
  load(f,
       "s { in f32 X(4)  in i64 I(3)  in f32 U(3)  out f32 Y(4)  "
       "Y(i:3) at (I(i) / 2) +=! U(i) init (X(o0)) }",
       count_up);
  assert_int_equal(kiln_interpreter_run(f->in), KILN_OK);
  const float *y = kiln_interpreter_data(f->in, f->p->outputs.data[0]);
  const float want[4] = {0 + 0 + 1, 1 + 2, 2, 3};
  assert_memory_equal(y, want, sizeof(want));
}

// Sums of the preceding element, also of one that is still being summed.
static void a_scatter_reads_what_it_has_written(void **state) {
  fixture *f = *state;
  load(f,
       "s { in f32 X(6)  out f32 Y(7)  "
       "Y(| r:6, k:2) at (r + 1) +=! k < 1 ? Y(r) : X(r) if Y(r) <= 5f32 && r < 5 init (f32(0 - "
       "o0)) }",
       count_up);
  assert_int_equal(kiln_interpreter_run(f->in), KILN_OK);
  const float *y = kiln_interpreter_data(f->in, f->p->outputs.data[0]);
  const float want[7] = {0, -1 + 0 + 0, -2 - 1 + 1, -3 - 2 + 2, -4 - 3 + 3, -5 - 4 + 4, -6};
  assert_memory_equal(y, want, sizeof(want));
  load(f,
       "s { in f32 X(6)  out f32 Y(7)  "
       "Y(| r:6, k:3) at (r + 1) +=! Y(r) + X(r) if Y(r + 1) <= 5f32 init (0f32) }",
       count_up);
  assert_int_equal(kiln_interpreter_run(f->in), KILN_OK);
  y = kiln_interpreter_data(f->in, f->p->outputs.data[0]);
  const float until[7] = {0, 0, 3, 10, 13, 17, 22};
  assert_memory_equal(y, until, sizeof(until));
}

static void an_index_out_of_range_is_a_message(void **state) {
  fixture *f = *state;
  static const char *const texts[] = {
      "bad { in f32 X(3)  out f32 Y(4)  Y(i:4) = X(i) }",
      "bad { in f32 X(3)  out f32 Y(4)  Y(i:4) = X(i - 1) }",
      "bad { in i64 I(9)  in f32 X(3)  out f32 Y(9)  Y(i:9) = X(I(i)) }",
      "bad { in f32 X(3)  in f32 W(3)  out f32 Y(4)  Y(i:4 | r:3) +=! X(i) * W(r) }"};
  for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
    kiln_diag_clear(f->diag);
    load(f, texts[i], count_up);
    assert_int_equal(kiln_interpreter_run(f->in), KILN_INTERNAL);
    assert_int_equal(kiln_diag_count(f->diag), 1);
    assert_non_null(strstr(kiln_diag_message(f->diag, 0), "tensor X: index of axis 0"));
    release_inputs(f);
  }
}

static void an_unbound_input_is_a_message(void **state) {
  fixture *f = *state;
  assert_int_equal(
      kiln_program_parse(&f->cx, "u { in f32 X(3)  out f32 Y(3)  Y(i:3) = X(i) }", &f->p), KILN_OK);
  assert_int_equal(kiln_interpreter_create(&f->cx, f->p, &f->in), KILN_OK);
  assert_int_equal(kiln_interpreter_run(f->in), KILN_INTERNAL);
  assert_int_equal(kiln_diag_count(f->diag), 1);
}

// Contractions with each dim innermost; samples take the general path.
static const char *const contractions[] = {
    "c { in f32 A(7, 33)  in f32 B(33, 9)  out f32 Y(7, 9)  Y(m:7, n:9 | k:33) +=! A(m, k) * B(k, "
    "n) }",
    "c { in f32 A(7, 33)  in f32 B(9, 33)  out f32 Y(7, 9)  Y(m:7, n:9 | k:33) +=! A(m, k) * B(n, "
    "k) }",
    "c { in f32 A(33, 7)  in f32 B(9, 33)  out f32 Y(9, 7)  Y(n:9, m:7 | k:33) +=! A(k, m) * B(n, "
    "k) }",
    "c { in f32 P(2, 3, 9, 9)  in f32 W(4, 3, 3, 3)  out f32 Y(2, 4, 4, 4)  "
    "Y(n:2, m:4, h:4, w:4 | c:3, u:3, v:3) +=! P(n, c, 2*h + u, 2*w + v) * W(m, c, u, v) }",
    "c { in f32 P(1, 5, 8, 600)  in f32 W(5, 3)  out f32 Y(1, 5, 8, 598)  "
    "Y(n:1, c:5, h:8, w:598 | v:3) +=! P(n, c, h, w + v) * W(c, v) }",
    "c { in f16 A(5, 6)  in f32 B(6)  out f64 Y(5)  "
    "Y(m:5 | k:6) +=! f64(A(m, k)) * f64(B(k)) }",
    "c { in f32 A(5)  in f32 B(5)  out f32 Y()  Y(| k:5) +=! A(k) * B(4 - k) }",
    "c { in f32 A(5, 1)  in f32 B(1, 4)  out f32 Y(5, 4)  Y(m:5, n:4 | k:1) +=! A(m, k) * B(k, n) "
    "}",
};

static void contractions_agree_with_the_general_way(void **state) {
  fixture *f = *state;
  for (size_t row = 0; row < sizeof(contractions) / sizeof(contractions[0]); row++) {
    load(f, contractions[row], noisy);
    const int out = f->p->outputs.data[0];
    const kiln_tensor *t = f->p->tensors.data[out];
    const int64_t n = kiln_tensor_elems(t);
    double *slow = calloc((size_t)n, sizeof(double));
    int64_t *linear = calloc((size_t)n, sizeof(int64_t));
    for (int64_t i = 0; i < n; i++) linear[i] = i;
    assert_int_equal(kiln_interpreter_sample(f->in, out, (int)n, linear, slow), KILN_OK);
    const void *fast = NULL;
    assert_int_equal(kiln_interpreter_compute(f->in, out, &fast), KILN_OK);
    for (int64_t i = 0; i < n; i++)
      assert_float_equal(kiln_element_get(t->dtype, fast, i), slow[i], 1e-5);
    free(slow);
    free(linear);
    release_inputs(f);
  }
}

static void run_frees_what_nobody_reads_and_compute_keeps_it(void **state) {
  fixture *f = *state;
  static const char text[] = "k { in f32 X(3)  temp f32 Z(3)  out f32 Y(3)  "
                             "Z(i:3) = X(i) + 1f32  Y(i:3) = Z(i) * 2f32 }";
  load(f, text, centred);
  const int z = f->p->stmts.data[0]->out, y = f->p->stmts.data[1]->out;
  assert_int_equal(kiln_interpreter_run(f->in), KILN_OK);
  assert_null(kiln_interpreter_data(f->in, z));
  assert_non_null(kiln_interpreter_data(f->in, y));
  load(f, text, centred);
  const void *data = NULL;
  assert_int_equal(kiln_interpreter_compute(f->in, y, &data), KILN_OK);
  assert_non_null(kiln_interpreter_data(f->in, z));
}

static void an_overridden_tensor_is_not_computed(void **state) {
  fixture *f = *state;
  load(f, "o { in f32 X(2)  temp f32 Z(2)  out f32 Y(2)  Z(i:2) = X(i)  Y(i:2) = Z(i) * 2f32 }",
       count_up);
  const float mine[2] = {10, 20};
  kiln_interpreter_bind(f->in, f->p->stmts.data[0]->out, mine);
  assert_int_equal(kiln_interpreter_run(f->in), KILN_OK);
  const float *y = kiln_interpreter_data(f->in, f->p->outputs.data[0]);
  assert_float_equal(y[0], 20, 0);
  assert_float_equal(y[1], 40, 0);
}

static void elements_of_every_type_round_trip(void **state) {
  (void)state;
  for (int t = 0; t < KILN_N_DTYPES; t++) {
    if (kiln_dtype_is_code((kiln_dtype)t)) continue;
    char data[33];
    for (int i = 0; i < 3; i++) kiln_element_set((kiln_dtype)t, data + 1, i, i == 1);
    for (int i = 0; i < 3; i++) {
      assert_float_equal(kiln_element_get((kiln_dtype)t, data + 1, i), i == 1, 0);
      assert_int_equal(kiln_element_get_int((kiln_dtype)t, data + 1, i), i == 1);
      kiln_element_set_int((kiln_dtype)t, data + 1, i, i == 2);
      assert_int_equal(kiln_element_get_int((kiln_dtype)t, data + 1, i), i == 2);
    }
  }
}

static void elements_of_codes_are_values_or_codes(void **state) {
  (void)state;
  uint8_t data[2] = {0xff, 0xff};
  for (int t = 0; t < KILN_N_DTYPES; t++) {
    const kiln_dtype d = (kiln_dtype)t;
    if (!kiln_dtype_is_code(d)) continue;
    kiln_element_set(d, data, 1, 1);
    assert_int_equal(data[1], kiln_encoding_of(d, 1));
    assert_float_equal(kiln_element_get(d, data, 1), 1, 0);
    kiln_element_set_int(d, data, 1, -1);
    assert_int_equal(data[1], (1 << kiln_dtype_bits(d)) - 1);
    assert_int_equal(kiln_element_get_int(d, data, 1), data[1]);
    assert_int_equal(data[0], 0xff);
  }
}

// Constant folding and the interpreter are independent implementations; they must agree wherever
// folding applies.
static void check_operator(fixture *f, kiln_expr_kind k, kiln_dtype t) {
  enum { N = 9 };
  static const double grid[N] = {0, 1, 2, 3, 7, -1, -3, 100, 2.5};
  kiln_ctx *cx = &f->cx;
  const bool is_unary =
      k == KILN_EXPR_NOT || k == KILN_EXPR_BNOT || (k >= KILN_EXPR_NEG && k <= KILN_EXPR_ISINF);
  f->p = kiln_program_make(cx, "one");
  const kiln_expr *extents[2] = {kiln_int(cx, N), kiln_int(cx, N)};
  const kiln_tensor *x = kiln_tensor_make(cx, f->p, "x", t, KILN_INPUT, 1, extents);
  kiln_stmt *s = kiln_stmt_make(cx, f->p, "y", t, 2, 0, extents);
  const kiln_expr *i = kiln_stmt_var(cx, s, 0), *j = kiln_stmt_var(cx, s, 1);
  const kiln_expr *a = kiln_tensor_load(cx, x, &i), *b = kiln_tensor_load(cx, x, &j);
  s->body = is_unary ? kiln_unary(cx, k, a) : kiln_binary(cx, k, a, b);
  kiln_tensor *y = f->p->tensors.data[s->out];
  y->dtype = s->body->dtype;
  char data[N * 8];
  for (int n = 0; n < N; n++) kiln_element_set(t, data, n, grid[n]);
  kiln_interpreter *in = NULL;
  const void *got = NULL;
  assert_int_equal(kiln_interpreter_create(cx, f->p, &in), KILN_OK);
  kiln_interpreter_bind(in, x->id, data);
  assert_int_equal(kiln_interpreter_compute(in, y->id, &got), KILN_OK);
  for (int n = 0; n < N * N; n++) {
    const kiln_expr *u = kiln_number(cx, t, kiln_element_get(t, data, n / N));
    const kiln_expr *v = kiln_number(cx, t, kiln_element_get(t, data, n % N));
    const kiln_expr *e = is_unary ? kiln_unary(cx, k, u) : kiln_binary(cx, k, u, v);
    const double have = kiln_element_get(y->dtype, got, n);
    if (e->kind == KILN_EXPR_FLOAT && !(isnan(e->u.f) && isnan(have)) && e->u.f != have)
      assert_float_equal(have, e->u.f, 1e-6 * fabs(e->u.f)); // f32 functions are rounded once
    if (e->kind == KILN_EXPR_INT) assert_int_equal(kiln_element_get_int(y->dtype, got, n), e->u.i);
  }
  kiln_interpreter_destroy(in);
}

static void folding_and_interpreting_agree(void **state) {
  fixture *f = *state;
  for (int t = 0; t < KILN_N_DTYPES; t++)
    for (int k = KILN_EXPR_ADD; k <= KILN_EXPR_ISINF; k++) {
      const kiln_dtype d = (kiln_dtype)t;
      const bool logic = k >= KILN_EXPR_AND && k <= KILN_EXPR_NOT;
      const bool bits = k >= KILN_EXPR_BAND && k <= KILN_EXPR_SHR;
      const bool real = k >= KILN_EXPR_SQRT || k == KILN_EXPR_ATAN2;
      if (kiln_dtype_is_code(d) || (d == KILN_BOOL ? !logic : logic)) continue;
      if (kiln_dtype_is_float(d) ? bits || k == KILN_EXPR_TDIV : real) continue;
      check_operator(f, (kiln_expr_kind)k, d);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(programs_give_what_they_say, setup, teardown),
      cmocka_unit_test_setup_teardown(a_scatter_starts_from_init_and_combines, setup, teardown),
      cmocka_unit_test_setup_teardown(a_scatter_reads_what_it_has_written, setup, teardown),
      cmocka_unit_test_setup_teardown(an_index_out_of_range_is_a_message, setup, teardown),
      cmocka_unit_test_setup_teardown(an_unbound_input_is_a_message, setup, teardown),
      cmocka_unit_test_setup_teardown(contractions_agree_with_the_general_way, setup, teardown),
      cmocka_unit_test_setup_teardown(run_frees_what_nobody_reads_and_compute_keeps_it, setup,
                                      teardown),
      cmocka_unit_test_setup_teardown(an_overridden_tensor_is_not_computed, setup, teardown),
      cmocka_unit_test_setup_teardown(folding_and_interpreting_agree, setup, teardown),
      cmocka_unit_test(elements_of_every_type_round_trip),
      cmocka_unit_test(elements_of_codes_are_values_or_codes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
