// Elementary functions over the whole range of f32, against the C library in double precision.
#include "unit/cpu/rig.h"

#include <math.h>

enum { CHUNK = 1 << 16 };

// The distance in units of the last place of the f32 nearest to |want|.
static double ulps(float got, double want) {
  const float near = (float)want;
  if (isnan(want)) return isnan(got) ? 0 : INFINITY;
  if (isinf(near)) {
    if (got == near) return 0; // up to half a unit below overflow rounds to the largest number
    return fabs(want) < 0x1.ffffffp127 && fabsf(got) == 0x1.fffffep127f ? 1 : INFINITY;
  }
  if (isnan(got)) return INFINITY;
  if (isinf(got)) return fabs(want) > 0x1.fffffcp127 ? 1 : INFINITY;
  int e = 0;
  frexp(want, &e);
  const double unit = ldexp(1, e < -125 ? -149 : e - 24);
  return fabs((double)got - want) / unit;
}

static double tanh_softplus(double x) { return tanh(fmax(x, 0) + log1p(exp(-fabs(x)))); }

static double one_plus_exp(double x) { return 1 + exp(x); }

static const struct {
  const char *name; // of a function; or an expression
  double (*f)(double);
  double limit;
} rows[] = {
    {"exp", exp, 1.01},
    {"log", log, 1},
    {"tanh", tanh, 1.6},
    {"erf", erf, 1.3},
    {"expm1", expm1, .51},
    {"log1p", log1p, .51},
    {"sin", sin, .6},
    {"cos", cos, .6},
    {"sqrt", sqrt, .501},
    {"tan", tan, 2},
    {"asin", asin, 2},
    {"acos", acos, 2},
    {"atan", atan, 2},
    {"sinh", sinh, 2},
    {"cosh", cosh, 2},
    {"asinh", asinh, 2},
    {"acosh", acosh, 2},
    {"atanh", atanh, 2},
    {"floor", floor, 0},
    {"ceil", ceil, 0},
    {"round", rint, 0},
    {"trunc", trunc, 0},
    {"1f32 + exp(x[i, v])", one_plus_exp, 1.1},
    {"tanh(max(x[i, v], 0f32) + log1p(exp(neg(abs(x[i, v])))))", tanh_softplus, 3},
};

static float of_bits(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

static double sweep(rig *r, double (*f)(double), uint32_t step, float *out_at) {
  static float x[CHUNK], y[CHUNK];
  double worst = 0;
  for (uint64_t bits = 0; bits <= UINT32_MAX; bits += (uint64_t)step * CHUNK) {
    for (uint32_t i = 0; i < CHUNK; i++) x[i] = of_bits((uint32_t)(bits + (uint64_t)i * step));
    rig_run(r, (char *[]){(char *)x, (char *)y}, 1);
    for (int i = 0; i < CHUNK; i++) {
      const double e = ulps(y[i], f((double)x[i]));
      if (e > worst) worst = e, *out_at = x[i];
    }
  }
  return worst;
}

// Compiles a kernel that maps x to y by row |i|, vectors of 16.
static void compile_row(rig *r, size_t i) {
  const char *body = strchr(rows[i].name, '(')
                         ? rows[i].name
                         : kiln_arena_printf(&r->cx.perm, "%s(x[i, v])", rows[i].name);
  const char *text =
      kiln_arena_printf(&r->cx.perm,
                        "kernel k { param f32 x[%d, 16]:(16, 1) param f32 y[%d, 16]:(16, 1)"
                        " for i:%d { for v:16 vectorized { y[i, v] = %s } } }",
                        CHUNK / 16, CHUNK / 16, CHUNK / 16, body);
  rig_compile(r, text, true);
}

static void functions_are_right_over_all_of_f32(void **state) {
  (void)state;
  const char *const machines[] = {NULL, "avx2"};
  for (size_t k = 0; k < KILN_LEN(machines); k++) {
    if (!rig_runs(machines[k])) continue;
    for (size_t i = 0; i < KILN_LEN(rows); i++) {
      rig r;
      rig_init(&r, machines[k]);
      compile_row(&r, i);
      float at = 0;
      const double worst = sweep(&r, rows[i].f, getenv("KILN_TEST_ALL") ? 1 : 1999, &at);
      print_message("%-6s %-5s %.3f ULP at %a\n", machines[k] ? machines[k] : "host", rows[i].name,
                    worst, (double)at);
      if (worst > rows[i].limit)
        fail_msg("%s: error must be at most %g ULP, got %g at %a", rows[i].name, rows[i].limit,
                 worst, (double)at);
      rig_deinit(&r);
    }
  }
}

// Inactive lanes of a tail hold arbitrary contents of memory, which must not affect the others.
static void lanes_do_not_look_at_each_other(void **state) {
  (void)state;
  static const float strange[] = {NAN,      INFINITY,  -INFINITY, 1e30f,     0x1p30f,
                                  -0x1p31f, 0x1p-149f, -0.0f,     0x1p-126f, 1};
  static float x[CHUNK], y[CHUNK], x2[CHUNK], y2[CHUNK];
  uint32_t seed = 5;
  for (int i = 0; i < CHUNK; i++) {
    seed = seed * 1664525 + 1013904223;
    x[i] = of_bits((seed & 0x80000000) + 0x3a000000 + (seed >> 5) % 0x09000000);
    x2[i] = i % 16 == i / 16 % 16 ? strange[(size_t)i / 16 % KILN_LEN(strange)] : x[i];
  }
  for (size_t k = 0; k < KILN_LEN(rows); k++) {
    rig r;
    rig_init(&r, NULL);
    compile_row(&r, k);
    rig_run(&r, (char *[]){(char *)x, (char *)y}, 1);
    rig_run(&r, (char *[]){(char *)x2, (char *)y2}, 1);
    for (int i = 0; i < CHUNK; i++) {
      if (i % 16 == i / 16 % 16 || !memcmp(y + i, y2 + i, sizeof *y)) continue;
      fail_msg("%s of %a must be %a, whatever stands beside it, got %a beside %a", rows[k].name,
               (double)x[i], (double)y[i], (double)y2[i], (double)x2[i / 16 * 16 + i / 16 % 16]);
    }
    rig_deinit(&r);
  }
}

static void signs_of_zero_and_ends_are_kept(void **state) {
  (void)state;
  const char *const odd[] = {"tanh", "erf", "expm1", "log1p", "sin"};
  for (size_t i = 0; i < KILN_LEN(odd); i++) {
    rig r;
    rig_init(&r, NULL);
    rig_compile(&r,
                kiln_arena_printf(&r.cx.perm,
                                  "kernel k { param f32 x[4]:(1) param f32 y[4]:(1)"
                                  " for v:4 vectorized { y[v] = %s(x[v]) } }",
                                  odd[i]),
                true);
    float x[4] = {-0.0f, 0.0f, 0x1p-149f, -0x1p-149f}, y[4];
    rig_run(&r, (char *[]){(char *)x, (char *)y}, 1);
    assert_true(signbit(y[0]) && y[0] == 0 && !signbit(y[1]) && y[1] == 0);
    assert_true(y[2] == x[2] || !strcmp(odd[i], "erf"));
    assert_true(y[2] == -y[3]);
    rig_deinit(&r);
  }
}

static void powers_are_right(void **state) {
  (void)state;
  const float ends[] = {
      0,    -0.0f,          1,        -1,        2,   -2,           3,
      0.5f, -0.5f,          INFINITY, -INFINITY, NAN, 0x1p-149f,    -0x1p-140f,
      7,    0x1p24f,        -0x1p25f, 1e-10f,    -3,  1.5f,         0x1.fffffep127f,
      88,   0x1.fffffep-1f, -2.5f,    33,        -35, 0x1.000002p0f};
  enum { N = KILN_LEN(ends) };
  static float x[CHUNK], y[CHUNK], z[CHUNK];
  uint32_t seed = 1;
  for (int i = 0; i < CHUNK; i++) {
    seed = seed * 1664525 + 1013904223;
    x[i] = i < N * N ? ends[i / N] : of_bits(i % 2 ? seed : 0x30000000 + (seed >> 3));
    seed = seed * 1664525 + 1013904223;
    y[i] =
        i < N * N ? ends[i % N] : of_bits((seed & 0x80000000) + 0x38000000 + (seed % 0x0b000000));
  }
  rig r;
  rig_init(&r, NULL);
  rig_compile(&r,
              "kernel k { param f32 x[4096, 16]:(16, 1) param f32 y[4096, 16]:(16, 1)"
              " param f32 z[4096, 16]:(16, 1)"
              " for i:4096 { for v:16 vectorized { z[i, v] = pow(x[i, v], y[i, v]) } } }",
              true);
  rig_run(&r, (char *[]){(char *)x, (char *)y, (char *)z}, 1);
  double worst = 0;
  for (int i = 0; i < CHUNK; i++) {
    const double want = pow((double)x[i], (double)y[i]), e = ulps(z[i], want);
    if (e > worst) worst = e;
    if (e > 1)
      fail_msg("pow(%a, %a) must be %a, got %a", (double)x[i], (double)y[i], want, (double)z[i]);
    if (want == 0 && !signbit(want) != !signbit(z[i]))
      fail_msg("sign of pow(%a, %a)", (double)x[i], (double)y[i]);
  }
  print_message("pow %.3f ULP\n", worst);
  rig_deinit(&r);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(functions_are_right_over_all_of_f32),
      cmocka_unit_test(lanes_do_not_look_at_each_other),
      cmocka_unit_test(signs_of_zero_and_ends_are_kept),
      cmocka_unit_test(powers_are_right),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
