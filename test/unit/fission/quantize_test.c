// Integer convolutions and products whose factors become u8 and i8: every pair of byte types, with zero
// points that do and do not let the weights be i8, gives what the standard's formula gives.
#include "graph.h"

#include "tile/tile.h"

#include <math.h>

enum {
  C = 4,
  H = 3,
  M = 2,
  TAPS = 2,
  ROWS = 3,
  DEPTH = 5
}; // M filters of C x TAPS x TAPS, or columns

typedef struct row {
  kiln_dtype x, w;
  int zero_x, zero_w;
  bool has_zeros;
  bool is_narrow; // the factors are u8 and i8
} row;

static const row rows[] = {
    {KILN_U8, KILN_I8, 0, 0, false, true},   {KILN_U8, KILN_I8, 117, 0, true, true},
    {KILN_I8, KILN_I8, -5, 0, true, true},   {KILN_I8, KILN_I8, 0, 0, false, true},
    {KILN_U8, KILN_U8, 7, 128, true, true},  {KILN_I8, KILN_U8, 127, 128, true, true},
    {KILN_U8, KILN_U8, 255, 3, true, false}, {KILN_I8, KILN_I8, -128, 2, true, false},
};

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

// y = op(x, w, zeros..) with x given at run time.
static int add_op(fixture *f, const row *r, const char *op, int rank, const int64_t *x_shape,
                  const int64_t *w_shape, int n_weights) {
  const double zero_x = r->zero_x, zero_w = r->zero_w;
  int in[4] = {add_bytes(f, "x", r->x, 0, false, rank, x_shape),
               add_bytes(f, "w", r->w, n_weights, true, rank, w_shape)};
  if (r->has_zeros) {
    in[2] = add_const(f, "zero_x", r->x, -1, &zero_x);
    in[3] = add_const(f, "zero_w", r->w, -1, &zero_w);
  }
  return node(f, op, 10, r->has_zeros ? 4 : 2, in);
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

static void expect(fixture *f, const row *r, int n_in, int n_want, const int *want) {
  unsigned char x[64] = {0};
  int32_t got[64];
  for (int i = 0; i < n_in; i++) kiln_element_set(r->x, x, i, byte_at(r->x, 3 * i + 1));
  must_lower(f);
  if (multiplies_bytes(f->p) != r->is_narrow)
    fail_msg("row %d: the factors must%s be u8 and i8", (int)(r - rows),
             r->is_narrow ? "" : " not");
  kiln_interpreter *in = NULL;
  assert_int_equal(kiln_interpreter_create(f->cx, f->p, &in), KILN_OK);
  kiln_interpreter_bind(in, f->p->inputs.data[0], x);
  assert_int_equal(kiln_interpreter_run(in), KILN_OK);
  assert_int_equal(kiln_tensor_elems(output(f, 0)), n_want);
  memcpy(got, kiln_interpreter_data(in, output(f, 0)->id), sizeof *got * (size_t)n_want);
  kiln_interpreter_destroy(in);
  for (int i = 0; i < n_want; i++)
    if (got[i] != want[i])
      fail_msg("row %d: element %d must be %d, got %d", (int)(r - rows), i, want[i], got[i]);
}

// Of x at element |i|, without its zero point; the weights' alike.
static int x_at(const row *r, int i) { return (int)byte_at(r->x, 3 * i + 1) - r->zero_x; }
static int w_at(const row *r, int i) { return (int)byte_at(r->w, i) - r->zero_w; }

static void check_channels(fixture *f, const row *r, int channels) {
  static const int64_t pads[] = {1, 0, 0, 1};
  const int depth = channels * TAPS * TAPS;
  int want[M * H * H] = {0};
  add_output(f, add_op(f, r, "ConvInteger", 4, (const int64_t[]){1, channels, H, H},
                       (const int64_t[]){M, channels, TAPS, TAPS}, M * depth));
  kiln_attr *a = add_attr(f, "pads", KILN_ATTR_INTS);
  a->n = 4;
  a->u.ints = pads;
  for (int i = 0; i < M * H * H; i++)
    for (int k = 0; k < depth; k++) {
      const int h = i / H % H + k / TAPS % TAPS - 1, w = i % H + k % TAPS, c = k / (TAPS * TAPS);
      if (h < 0 || w >= H) continue;
      want[i] += x_at(r, (c * H + h) * H + w) * w_at(r, i / (H * H) * depth + k);
    }
  expect(f, r, channels * H * H, M * H * H, want);
}

static void check_conv(fixture *f, const row *r) { check_channels(f, r, C); }
// One short of a group of bytes: it is there as zeros.
static void check_three_channels(fixture *f, const row *r) { check_channels(f, r, C - 1); }

static void check_matmul(fixture *f, const row *r) {
  int want[ROWS * M] = {0};
  add_output(f, add_op(f, r, "MatMulInteger", 2, (const int64_t[]){ROWS, DEPTH},
                       (const int64_t[]){DEPTH, M}, DEPTH * M));
  for (int i = 0; i < ROWS * M; i++)
    for (int k = 0; k < DEPTH; k++) want[i] += x_at(r, i / M * DEPTH + k) * w_at(r, k * M + i % M);
  expect(f, r, ROWS * DEPTH, ROWS * M, want);
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

static void convolutions_of_three_channels_multiply_bytes(void **state) {
  (void)state;
  each(check_three_channels);
}

// Dequantised, pooled and quantised by the same scale: the greatest of the codes themselves, or of the numbers where another
// scale stands behind them.
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

static void products_of_bytes_take_zero_points_off(void **state) {
  (void)state;
  each(check_matmul);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(convolutions_of_bytes_take_zero_points_off),
      cmocka_unit_test(convolutions_of_three_channels_multiply_bytes),
      cmocka_unit_test_setup_teardown(pooling_takes_the_greatest_of_codes, setup, teardown),
      cmocka_unit_test_setup_teardown(pooling_is_quantised_by_another_scale, setup, teardown),
      cmocka_unit_test(products_of_bytes_take_zero_points_off),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
