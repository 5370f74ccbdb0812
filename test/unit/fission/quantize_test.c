// Integer convolutions and products with factors converted to u8 and i8: for every pair of byte
// types, with zero points that weights can absorb in i8 and others, the results are those of the
// standard's formula.
#include "graph.h"

#include "tile/query.h"

#include <math.h>

enum {
  C = 4,
  H = 3,
  M = 2,
  ROWS = 3,
  DEPTH = 5,
  APART = 20,      // zero points of the weights' columns, where each has its own
  MOST_BYTES = 128 // of data
};

typedef enum zeros {
  NONE,
  ONE,
  EACH,   // column of the weights has one
  RUN_X,  // the run tells that of x
  RUN_ALL // both
} zeros;

typedef struct row {
  kiln_dtype x, w;
  int zero_x, zero_w;
  zeros zeros;
  bool is_narrow; // the factors are u8 and i8
} row;

static const row rows[] = {
    {KILN_U8, KILN_I8, 0, 0, NONE, true},     {KILN_U8, KILN_I8, 117, 0, ONE, true},
    {KILN_I8, KILN_I8, -5, 0, ONE, true},     {KILN_I8, KILN_I8, 0, 0, NONE, true},
    {KILN_U8, KILN_U8, 7, 128, ONE, true},    {KILN_I8, KILN_U8, 127, 128, ONE, true},
    {KILN_U8, KILN_U8, 255, 3, ONE, true},    {KILN_I8, KILN_I8, -128, 2, ONE, true},
    {KILN_U8, KILN_U8, 0, 0, NONE, true},     {KILN_I8, KILN_U8, 0, 0, NONE, true},
    {KILN_U8, KILN_U8, 31, 0, ONE, true},     {KILN_U8, KILN_U8, 0, 200, ONE, true},
    {KILN_I8, KILN_U8, -3, 255, ONE, true},   {KILN_U8, KILN_I8, 200, -128, ONE, true},
    {KILN_U8, KILN_U8, 9, 31, EACH, true},    {KILN_I8, KILN_U8, 5, 255, EACH, true},
    {KILN_U8, KILN_I8, 117, -40, EACH, true}, {KILN_U8, KILN_U8, 64, 3, RUN_X, true},
    {KILN_U8, KILN_I8, 64, 0, RUN_X, true},   {KILN_I8, KILN_U8, -9, 200, RUN_X, true},
    {KILN_U8, KILN_U8, 64, 3, RUN_ALL, false}};

// All bytes of the type, the ends among the first.
static double byte_at(kiln_dtype t, int i) {
  static const int bytes[] = {255, 0, 128, 127, 1, 254, 77, 200, 31, 129};
  const int v = bytes[i % 10];
  return t == KILN_I8 ? v - 128 : v;
}

static int add_bytes(fixture *f, const char *name, kiln_dtype t, int n, bool is_const, int rank,
                     const int64_t *shape) {
  double v[64] = {0};
  for (int i = 0; i < n; i++) v[i] = byte_at(t, i);
  if (!is_const) return add_input(f, name, t, rank, shape);
  const int id = add_const(f, name, t, n, v);
  kiln_const *c = (kiln_const *)f->values[id]->constant;
  c->rank = rank;
  memcpy(c->shape, shape, (size_t)rank * sizeof *shape);
  return id;
}

static int zero_of(const row *r, int column) {
  return r->zero_w - (r->zeros == EACH ? APART * column : 0);
}

// y = op(x, w, zeros..) with x given at run time.
static int add_op(fixture *f, const row *r, const char *op, int rank, const int64_t *x_shape,
                  int rank_w, const int64_t *w_shape, int n_weights) {
  const double zero_x = r->zero_x, zero_w[M] = {zero_of(r, 0), zero_of(r, 1)};
  int in[4] = {add_bytes(f, "x", r->x, 0, false, rank, x_shape),
               add_bytes(f, "w", r->w, n_weights, true, rank_w, w_shape)};
  if (r->zeros == NONE) return node(f, op, 10, 2, in);
  in[2] = r->zeros >= RUN_X ? add_input(f, "zero_x", r->x, 0, NULL)
                            : add_const(f, "zero_x", r->x, -1, &zero_x);
  in[3] = r->zeros == RUN_ALL ? add_input(f, "zero_w", r->w, 0, NULL)
                              : add_const(f, "zero_w", r->w, r->zeros == EACH ? M : -1, zero_w);
  return node(f, op, 10, 4, in);
}

static bool multiplies_bytes(const kiln_program *p) {
  for (int i = 0; i < p->stmts.n; i++) {
    const kiln_expr *a = NULL, *b = NULL;
    if (!kiln_stmt_is_contraction(p->stmts.data[i], &a, &b)) continue;
    return p->tensors.data[a->u.tensor]->dtype == KILN_U8 &&
           p->tensors.data[b->u.tensor]->dtype == KILN_I8;
  }
  return false;
}

static void interpret(fixture *f, const row *r, int n_in, kiln_interpreter **out) {
  unsigned char x[MOST_BYTES] = {0}, zero_x = 0, zero_w = 0;
  void *const given[] = {x, &zero_x, &zero_w};
  for (int i = 0; i < n_in; i++) kiln_element_set(r->x, x, i, byte_at(r->x, 3 * i + 1));
  kiln_element_set(r->x, &zero_x, 0, r->zero_x);
  kiln_element_set(r->w, &zero_w, 0, r->zero_w);
  must_lower(f);
  if (multiplies_bytes(f->p) != r->is_narrow)
    fail_msg("row %d: the factors must%s be u8 and i8", (int)(r - rows),
             r->is_narrow ? "" : " not");
  assert_int_equal(kiln_interpreter_create(f->cx, f->p, out), KILN_OK);
  for (int i = 0; i < f->p->inputs.n; i++)
    kiln_interpreter_bind(*out, f->p->inputs.data[i], given[i]);
  assert_int_equal(kiln_interpreter_run(*out), KILN_OK);
}

static void expect(fixture *f, const row *r, int n_in, int n_want, const int *want) {
  int32_t got[64];
  kiln_interpreter *in = NULL;
  interpret(f, r, n_in, &in);
  assert_int_equal(kiln_tensor_elems(output(f, 0)), n_want);
  memcpy(got, kiln_interpreter_data(in, output(f, 0)->id), sizeof *got * (size_t)n_want);
  kiln_interpreter_destroy(in);
  for (int i = 0; i < n_want; i++)
    if (got[i] != want[i])
      fail_msg("row %d: element %d must be %d, got %d", (int)(r - rows), i, want[i], got[i]);
}

// Of x at element |i|, without its zero point; the weights' alike.
static int x_at(const row *r, int i) { return (int)byte_at(r->x, 3 * i + 1) - r->zero_x; }
static int w_at(const row *r, int i, int column) {
  return (int)byte_at(r->w, i) - zero_of(r, column);
}

// |channels| in each of the groups; square windows of so many taps a side.
typedef struct geometry {
  int channels, groups, taps, stride;
} geometry;

static void check_channels(fixture *f, const row *r, const geometry *g) {
  static const int64_t pads[] = {1, 0, 0, 1};
  const int area = g->taps * g->taps, depth = g->channels * area,
            side = (H + 1 - g->taps) / g->stride + 1;
  int want[M * H * H] = {0};
  add_output(f, add_op(f, r, "ConvInteger", 4, (const int64_t[]){1, g->groups * g->channels, H, H},
                       4, (const int64_t[]){M, g->channels, g->taps, g->taps}, M * depth));
  kiln_attr *a = add_attr(f, "pads", KILN_ATTR_INTS);
  a->n = 4;
  a->u.ints = pads;
  const int64_t strides[] = {g->stride, g->stride};
  a = add_attr(f, "strides", KILN_ATTR_INTS);
  a->n = 2;
  a->u.ints = strides;
  add_int(f, "group", g->groups);
  for (int i = 0; i < M * side * side; i++)
    for (int k = 0; k < depth; k++) {
      const int m = i / (side * side), h = i / side % side * g->stride + k % area / g->taps - 1,
                w = i % side * g->stride + k % g->taps,
                c = m * g->groups / M * g->channels + k / area;
      if (h < 0 || w >= H) continue;
      want[i] += x_at(r, (c * H + h) * H + w) * w_at(r, m * depth + k, m);
    }
  expect(f, r, g->groups * g->channels * H * H, M * side * side, want);
}

static void check_conv(fixture *f, const row *r) { check_channels(f, r, &(geometry){C, 1, 2, 1}); }
static void check_groups(fixture *f, const row *r) {
  check_channels(f, r, &(geometry){C, 2, 2, 1});
}
static void check_points(fixture *f, const row *r) {
  check_channels(f, r, &(geometry){C, 1, 1, 2});
}
// One less than a multiple of four bytes: padded by zeros.
static void check_three_channels(fixture *f, const row *r) {
  check_channels(f, r, &(geometry){C - 1, 1, 2, 1});
}

// Of |n| rows, which are the last but one of the data's axes.
static void check_product(fixture *f, const row *r, int rank, const int64_t *shape, int n) {
  int want[ROWS * M] = {0};
  add_output(f,
             add_op(f, r, "MatMulInteger", rank, shape, 2, (const int64_t[]){DEPTH, M}, DEPTH * M));
  for (int i = 0; i < n * M; i++)
    for (int k = 0; k < DEPTH; k++)
      want[i] += x_at(r, i / M * DEPTH + k) * w_at(r, k * M + i % M, i % M);
  expect(f, r, n * DEPTH, n * M, want);
}

static void check_matmul(fixture *f, const row *r) {
  check_product(f, r, 2, (const int64_t[]){ROWS, DEPTH}, ROWS);
}
static void check_batch(fixture *f, const row *r) {
  check_product(f, r, 3, (const int64_t[]){ROWS, 1, DEPTH}, ROWS);
}
static void check_vector(fixture *f, const row *r) {
  check_product(f, r, 1, (const int64_t[]){DEPTH}, 1);
}

// Both operands transposed and dequantised, by scales that multiply without rounding.
static void check_gemm(fixture *f, const row *r) {
  const double zero_x = r->zero_x, zero_w[M] = {zero_of(r, 0), zero_of(r, 1)}, scale = 0.25;
  if (r->zeros >= RUN_X) return;
  const int n_zeros = r->zeros == EACH ? M : -1, n_in = r->zeros == NONE ? 2 : 3;
  double scales[M] = {scale, scale};
  const int x[] = {add_bytes(f, "x", r->x, 0, false, 2, (const int64_t[]){DEPTH, ROWS}),
                   add_const(f, "scale", KILN_F32, -1, &scale),
                   add_const(f, "zero_x", r->x, -1, &zero_x)},
            w[] = {add_bytes(f, "w", r->w, DEPTH * M, true, 2, (const int64_t[]){M, DEPTH}),
                   add_const(f, "scales", KILN_F32, n_zeros, scales),
                   add_const(f, "zero_w", r->w, n_zeros, zero_w)};
  int in[2] = {node(f, "DequantizeLinear", 13, n_in, x)};
  in[1] = node(f, "DequantizeLinear", 13, n_in, w);
  if (r->zeros == EACH) add_int(f, "axis", 0);
  add_output(f, node(f, "Gemm", 13, 2, in));
  add_int(f, "transA", 1);
  add_int(f, "transB", 1);
  kiln_interpreter *out = NULL;
  float got[ROWS * M];
  interpret(f, r, DEPTH * ROWS, &out);
  memcpy(got, kiln_interpreter_data(out, output(f, 0)->id), sizeof got);
  kiln_interpreter_destroy(out);
  for (int i = 0; i < ROWS * M; i++) {
    int want = 0;
    for (int k = 0; k < DEPTH; k++)
      want += x_at(r, k * ROWS + i / M) * w_at(r, i % M * DEPTH + k, i % M);
    if (got[i] != (float)(want * scale * scale))
      fail_msg("row %d: element %d must be %g, got %g", (int)(r - rows), i, want * scale * scale,
               (double)got[i]);
  }
}

static void each(void (*check)(fixture *, const row *)) {
  for (size_t i = 0; i < KILN_LEN(rows); i++) {
    void *f = NULL;
    assert_int_equal(setup(&f), 0);
    check(f, &rows[i]);
    teardown(&f);
  }
}

static void convolutions_of_bytes_take_zero_points_off(void **state) {
  (void)state;
  each(check_conv);
}

static void grouped_convolutions_of_bytes_take_zero_points_off(void **state) {
  (void)state;
  each(check_groups);
}

static void strided_convolutions_of_points_take_zero_points_off(void **state) {
  (void)state;
  each(check_points);
}

static void convolutions_of_three_channels_multiply_bytes(void **state) {
  (void)state;
  each(check_three_channels);
}

// Dequantized, pooled and quantized with the same scale: the maximum of the codes; with another
// scale the maximum of the numbers.
static void check_pool(fixture *f, double scale_behind, bool of_codes) {
  static const int64_t kernel[] = {2, 2}, pads[] = {1, 1, 0, 0};
  const double scale = 0.037, zero = 200;
  unsigned char x[H * H];
  int in[3] = {add_input(f, "x", KILN_U8, 4, (const int64_t[]){1, 1, H, H}),
               add_const(f, "scale", KILN_F32, -1, &scale),
               add_const(f, "zero", KILN_U8, -1, &zero)};
  in[0] = node(f, "DequantizeLinear", 13, 3, in);
  in[0] = node(f, "MaxPool", 12, 1, in);
  const struct {
    const char *name;
    const int64_t *ints;
    int n;
  } attrs[] = {{"kernel_shape", kernel, 2}, {"pads", pads, 4}};
  for (size_t i = 0; i < KILN_LEN(attrs); i++) {
    kiln_attr *a = add_attr(f, attrs[i].name, KILN_ATTR_INTS);
    a->n = attrs[i].n;
    a->u.ints = attrs[i].ints;
  }
  in[1] = add_const(f, "scale_behind", KILN_F32, -1, &scale_behind);
  add_output(f, node(f, "QuantizeLinear", 13, 3, in));
  must_lower(f);
  const kiln_stmt *last = f->p->stmts.data[output(f, 0)->def];
  assert_int_equal(last->combiner == KILN_COMBINE_MAX, of_codes);
  for (int i = 0; i < H * H; i++) x[i] = (unsigned char)byte_at(KILN_U8, 3 * i + 1);
  kiln_interpreter *run = NULL;
  assert_int_equal(kiln_interpreter_create(f->cx, f->p, &run), KILN_OK);
  kiln_interpreter_bind(run, f->p->inputs.data[0], x);
  assert_int_equal(kiln_interpreter_run(run), KILN_OK);
  const unsigned char *got = kiln_interpreter_data(run, output(f, 0)->id);
  for (int i = 0; i < H * H; i++) {
    int want = 0;
    for (int k = 0; k < 4; k++) {
      const int h = i / H + k / 2 - 1, w = i % H + k % 2 - 1;
      if (h >= 0 && w >= 0 && x[h * H + w] > want) want = x[h * H + w];
    }
    const double number = nearbyint((want - zero) * scale / scale_behind) + zero;
    assert_int_equal(got[i], of_codes ? want : (int)fmin(fmax(number, 0), 255));
  }
  kiln_interpreter_destroy(run);
}

static void pooling_takes_the_greatest_of_codes(void **state) { check_pool(*state, 0.037, true); }

static void pooling_is_quantised_by_another_scale(void **state) {
  check_pool(*state, 0.061, false);
}

// Quantized, transposed and reshaped data of 2 x 3 x 4 elements: its bounds are those of the
// original tensor.
static void bounds_are_those_of_what_was_moved(void **state) {
  enum { N = 24 };
  static const int64_t perm[] = {1, 0, 2};
  static const double shape[] = {3, 8};
  fixture *f = *state;
  float x[N];
  int in[2] = {add_input(f, "x", KILN_F32, 3, (const int64_t[]){2, 3, 4})};
  in[0] = node(f, "Transpose", 13, 1, in);
  kiln_attr *a = add_attr(f, "perm", KILN_ATTR_INTS);
  a->n = 3;
  a->u.ints = perm;
  in[1] = add_const(f, "shape", KILN_I64, 2, shape);
  in[0] = node(f, "Reshape", 13, 2, in);
  const int outputs[] = {add_value(f, "y"), add_value(f, "y_scale"), add_value(f, "y_zero")};
  kiln_node *quantise = add_node(f, "DynamicQuantizeLinear", 11, 1, in, outputs[0]);
  quantise->n_outputs = 3;
  quantise->outputs = KILN_NEW_ARRAY(&f->cx->perm, int, 3);
  for (int i = 0; i < 3; i++) {
    quantise->outputs[i] = outputs[i];
    f->values[outputs[i]]->producer = quantise->id;
    add_output(f, outputs[i]);
  }
  must_lower(f);
  int n_bounds = 0;
  for (int i = 0; i < f->p->stmts.n; i++) {
    const kiln_stmt *s = f->p->stmts.data[i];
    if (s->n_reduce == 0) continue;
    assert_int_equal(s->body->kind, KILN_EXPR_LOAD);
    assert_int_equal(s->body->u.tensor, f->p->inputs.data[0]);
    n_bounds++;
  }
  assert_int_equal(n_bounds, 2);
  for (int i = 0; i < N; i++) x[i] = (float)(7 * i % N) - 5; // from -5 to 18
  kiln_interpreter *run = NULL;
  assert_int_equal(kiln_interpreter_create(f->cx, f->p, &run), KILN_OK);
  kiln_interpreter_bind(run, f->p->inputs.data[0], x);
  assert_int_equal(kiln_interpreter_run(run), KILN_OK);
  const unsigned char *got = kiln_interpreter_data(run, output(f, 0)->id);
  const float scale = 23.0f / 255;
  for (int i = 0; i < N; i++) {
    const int from = i / 4 % 2 * 12 + i / 8 * 4 + i % 4;
    assert_int_equal(got[i], (int)(rintf(x[from] / scale) + rintf(5 / scale)));
  }
  kiln_interpreter_destroy(run);
}

static void products_of_bytes_take_zero_points_off(void **state) {
  (void)state;
  each(check_matmul);
  each(check_batch);
  each(check_vector);
}

static void products_of_what_was_dequantised_take_zero_points_off(void **state) {
  (void)state;
  each(check_gemm);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(convolutions_of_bytes_take_zero_points_off),
      cmocka_unit_test(grouped_convolutions_of_bytes_take_zero_points_off),
      cmocka_unit_test(strided_convolutions_of_points_take_zero_points_off),
      cmocka_unit_test(convolutions_of_three_channels_multiply_bytes),
      cmocka_unit_test_setup_teardown(pooling_takes_the_greatest_of_codes, setup, teardown),
      cmocka_unit_test_setup_teardown(pooling_is_quantised_by_another_scale, setup, teardown),
      cmocka_unit_test_setup_teardown(bounds_are_those_of_what_was_moved, setup, teardown),
      cmocka_unit_test(products_of_bytes_take_zero_points_off),
      cmocka_unit_test(products_of_what_was_dequantised_take_zero_points_off),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
