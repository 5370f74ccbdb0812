// Random numbers: moments, dependence on seeds, and operators that use them; steps of optimizers.
#include "unit/ops/rows.h"

#include <math.h>

#define TRAINING "ai.onnx.preview.training:"

static const row draws[] = {
    {"certain", "Bernoulli", 15, "", "f32 4: 0 1 1 0", "f32 4: 0 1 1 0", NULL},
    {"as another type", "Bernoulli", 15, "dtype=9", "f32 2: 0 1", "bool 2: 0 1", NULL},
    {"one class has all the weight", "Multinomial", 7, "sample_size=3 dtype=7",
     "f32 2x3: -99 0 -99 -99 -99 7", "i64 2x3: 1 1 1 2 2 2", NULL},
    {"one class", "Multinomial", 7, "", "f32 1x1: 3", "i32 1x1: 0", NULL},
    {"samples are counted", "Multinomial", 7, "sample_size=0", "f32 1x2", NULL, "must be positive"},
    {"no strings", "RandomUniform", 1, "shape=[2] dtype=8", "", NULL, "attribute dtype"},
    {"a seed is a number", "Bernoulli", 15, "seed=\"x\"", "f32 1", NULL, "must be a number"},
    {"nothing is dropped when not training", "Dropout", 13, "",
     "f32 2: 1 2; const f32: 0.5; const bool: 0", "f32 2: 1 2; bool 2: 1 1", NULL},
    {"not all is dropped", "Dropout", 13, "", "f32 2; const f32: 1; const bool: 1", NULL,
     "must lie in [0, 1), got 1"},
};

static const row steps[] = {
    {"adagrad", TRAINING "Adagrad", 1, "norm_coefficient=0.5 decay_factor=1.0 epsilon=1.0",
     "f32: 2; i64: 1; f32 1: 2; f32 1: 3; f32 1: 9", "f32 1: 1.3333; f32 1: 25", NULL},
    {"adam", TRAINING "Adam", 1, "alpha=0.5 beta=0.75 epsilon=0.0 norm_coefficient_post=0.5",
     "f32: 4; i64: 1; f32 1: 2; f32 1: 4; f32 1: 2; f32 1: 0", "f32 1: -2; f32 1: 3; f32 1: 4",
     NULL},
    {"momentum of two tensors", TRAINING "Momentum", 1,
     "alpha=0.5 beta=2.0 norm_coefficient=0.0 mode=\"standard\"",
     "f32: 1; i64: 1; f32 1: 1; f32 2: 1 2; f32 1: 1; f32 2: 0 1; f32 1: 2; f32 2: 4 8",
     "f32 1: -2; f32 2: -1 -4; f32 1: 3; f32 2: 2 6", NULL},
    {"the first step takes the whole gradient", TRAINING "Momentum", 1,
     "alpha=0.5 beta=2.0 norm_coefficient=0.0 mode=\"nesterov\"",
     "f32: 1; i64: 0; f32 1: 1; f32 1: 1; f32 1: 2", "f32 1: -1; f32 1: 2", NULL},
    {"three tensors a tensor", TRAINING "Momentum", 1, "", "f32; i64; f32 1; f32 1", NULL,
     "must be R, T and 3 tensors"},
};

static void draws_follow_their_weights(void **state) {
  (void)state;
  rows_hold(draws, KILN_LEN(draws));
}

static void optimizers_make_one_step(void **state) {
  (void)state;
  rows_hold(steps, KILN_LEN(steps));
}

enum { N = 4000 };

// The numbers that an operator gives.
static void numbers(const row *r, double out[N]) {
  bench b;
  row_begin(&b, r);
  const kiln_status status = kiln_fission(&b.cx, &b.g, &b.p);
  if (status != KILN_OK) fail_msg("%s: %s", r->claim, row_messages(&b));
  const char *text = strchr(row_run(&b), ':') + 1;
  char *end = NULL;
  for (int i = 0; i < N; i++, text = end) out[i] = strtod(text, &end);
  row_end(&b);
}

// Mean and variance, and those of neighbours' products.
static void expect_moments(const double *x, double mean, double variance) {
  double sum = 0, squares = 0, products = 0;
  for (int i = 0; i < N; i++) sum += x[i] / N;
  for (int i = 0; i < N; i++) squares += (x[i] - sum) * (x[i] - sum) / N;
  for (int i = 1; i < N; i++) products += (x[i] - sum) * (x[i - 1] - sum) / N;
  const double deviation = sqrt(variance);
  assert_true(fabs(sum - mean) < 0.06 * deviation);
  assert_true(fabs(squares - variance) < 0.06 * variance);
  assert_true(fabs(products) < 0.06 * variance);
}

static void numbers_have_the_moments_of_their_distribution(void **state) {
  (void)state;
  static const row uniform = {
      "uniform", "RandomUniform", 1, "shape=[4000] low=-2.0 high=4.0", "", "y", NULL};
  static const row normal = {
      "normal", "RandomNormal", 1, "shape=[40, 100] mean=3.0 scale=2.0", "", "y", NULL};
  static const row wide = {"f64", "RandomUniform", 1, "shape=[4000] dtype=11", "", "y", NULL};
  double x[N];
  numbers(&uniform, x);
  expect_moments(x, 1, 3);
  for (int i = 0; i < N; i++) assert_true(x[i] >= -2 && x[i] < 4);
  numbers(&normal, x);
  expect_moments(x, 3, 4);
  numbers(&wide, x);
  expect_moments(x, 0.5, 1.0 / 12);
}

static void the_seed_decides(void **state) {
  (void)state;
  static const row seeded[] = {{"1", "RandomUniform", 1, "shape=[4000] seed=1.0", "", "y", NULL},
                               {"1", "RandomUniform", 1, "shape=[4000] seed=1.0", "", "y", NULL},
                               {"2", "RandomUniform", 1, "shape=[4000] seed=2.0", "", "y", NULL}};
  double x[3][N];
  int same = 0;
  for (int i = 0; i < 3; i++) numbers(&seeded[i], x[i]);
  for (int i = 0; i < N; i++) {
    assert_true(x[0][i] == x[1][i]);
    same += x[0][i] == x[2][i];
  }
  assert_true(same < N / 100);
}

static void training_drops_a_share_and_scales_the_rest(void **state) {
  (void)state;
  static const row r = {
      "dropout", "Dropout", 13, "seed=3", "f32 4000; const f32: 0.25; const bool: 1", "y", NULL};
  bench b;
  row_begin(&b, &r);
  float *ones = kiln_arena_zalloc(&b.cx.perm, N * sizeof *ones);
  for (int i = 0; i < N; i++) ones[i] = 3;
  b.data[b.graph_ins[0]] = ones;
  assert_int_equal(kiln_fission(&b.cx, &b.g, &b.p), KILN_OK);
  const char *text = strchr(row_run(&b), ':') + 1;
  int dropped = 0;
  for (int i = 0; i < N; i++) {
    char *end = NULL;
    const double y = strtod(text, &end);
    assert_true(y == 0 || y == 4);
    dropped += y == 0;
    text = end;
  }
  assert_in_range(dropped, N / 4 - 120, N / 4 + 120);
  row_end(&b);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(draws_follow_their_weights),
      cmocka_unit_test(optimizers_make_one_step),
      cmocka_unit_test(numbers_have_the_moments_of_their_distribution),
      cmocka_unit_test(the_seed_decides),
      cmocka_unit_test(training_drops_a_share_and_scales_the_rest),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
