// Every function of the notation against the C library in double, at critical arguments.
#include "unit/tc/definition.h"

#include <float.h>
#include <math.h>

static double rsqrt_(double a) { return 1 / sqrt(a); }
static double rcbrt_(double a) { return 1 / cbrt(a); }
static double sinpi_(double a) { return (double)sinl(3.14159265358979323846264338L * fmod(a, 2)); }
static double cospi_(double a) { return (double)cosl(3.14159265358979323846264338L * fmod(a, 2)); }
static double erfcx_(double a) { return (double)(expl((long double)a * a) * erfcl(a)); }
static double normcdf_(double a) { return 0.5 * erfc(-a / sqrt(2)); }
static double exp10_(double a) { return pow(10, a); }
static double fdivide_(double a, double b) { return a / b; }
static double rhypot_(double a, double b) { return 1 / hypot(a, b); }
static double nextafter_(double a, double b) { return nextafterf((float)a, (float)b); }
static double bessel_i(double x, int order) {
  double term = pow(x / 2, order), sum = term;
  for (int k = 1; k < 400; k++) sum += term *= x * x / 4 / k / (k + order);
  return sum;
}
static double i0_(double a) { return bessel_i(a, 0); }
static double i1_(double a) { return bessel_i(a, 1); }

// The argument that |f| takes to |y|, between lo and hi, where f falls or rises.
static double inverse(double (*f)(double), double y, double lo, double hi) {
  bool rises = f(hi) > f(lo);
  for (int i = 0; i < 200; i++) {
    double mid = lo + (hi - lo) / 2;
    if ((f(mid) < y) == rises) lo = mid;
    else hi = mid;
  }
  return lo;
}
static double erfinv_(double a) { return a < 0 ? -erfinv_(-a) : inverse(erf, a, 0, 6); }
static double erfcinv_(double a) { return inverse(erfc, a, -6, 27); }
static double normcdfinv_(double a) { return -sqrt(2) * erfcinv_(2 * a); }

static const struct {
  const char *name;
  double (*want)(double);
  const char *at;
} unary[] = {
    {"acos", acos, "-1 -0.5 0 0.9"},
    {"acosh", acosh, "1 1.5 100"},
    {"asin", asin, "-1 0.3 1"},
    {"asinh", asinh, "-3 0.1 1000"},
    {"atan", atan, "-3 0 1e6"},
    {"atanh", atanh, "-0.9 0 0.5"},
    {"cbrt", cbrt, "-27 0 1e-30 8 1e30"},
    {"ceil", ceil, "-1.5 0.2"},
    {"cos", cos, "0 1 3"},
    {"cosh", cosh, "-2 0 5"},
    {"cospi", cospi_, "-1.25 0 0.4999 1 100.25 1e7"},
    {"cyl_bessel_i0", i0_, "0 0.5 3 20 80"},
    {"cyl_bessel_i1", i1_, "1e-4 0.5 3 20 80"},
    {"erf", erf, "-1 0 0.5 3"},
    {"erfc", erfc, "-3 0 0.5 2.9 3.1 5 9"},
    {"erfcinv", erfcinv_, "1e-30 1e-10 0.001 0.049 0.051 0.5 1.5 1.99"},
    {"erfcx", erfcx_, "-3 0 1 2.9 3.1 10 100"},
    {"erfinv", erfinv_, "-0.99 1e-6 0.1 0.5 0.9 0.9999"},
    {"exp", exp, "-80 0 80"},
    {"exp10", exp10_, "-30 0 1.5 38"},
    {"exp2", exp2, "-120 0 0.5 120"},
    {"expm1", expm1, "1e-6 1 -1"},
    {"fabs", fabs, "-2 3"},
    {"floor", floor, "-1.5 1.5"},
    {"j0", j0, "0 0.1 1 2 10 24.9 25.1 100 -7"},
    {"j1", j1, "1e-4 0.1 1 2 10 24.9 25.1 100 -7"},
    {"lgamma", lgamma, "0.1 0.5 0.99 1.01 1.5 1.99 2.01 10 1e6 -0.5 -1.5 -2.3"},
    {"log", log, "0.1 1 10"},
    {"log10", log10, "1e-30 0.99 1000"},
    {"log1p", log1p, "1e-6 1"},
    {"log2", log2, "1e-30 0.99 1 1024"},
    {"logb", logb, "1 1.99999988 2 0.0625 8388607 1e-30"},
    {"normcdf", normcdf_, "-9 -1 0 1 3"},
    {"normcdfinv", normcdfinv_, "1e-20 0.01 0.3 0.9"},
    {"rcbrt", rcbrt_, "8 0.001"},
    {"round", rint, "-2.5 0.5 1.5"},
    {"rsqrt", rsqrt_, "0.25 2"},
    {"sin", sin, "0 1 3"},
    {"sinh", sinh, "-2 0.1 5"},
    {"sinpi", sinpi_, "-1.25 0 0.5 0.999 100.25 1e7"},
    {"sqrt", sqrt, "0 2"},
    {"tan", tan, "0 1"},
    {"tanh", tanh, "-2 0 1"},
    {"tgamma", tgamma, "0.001 0.5 1 2 5.5 30 -0.5 -1.5 -2.3"},
    {"trunc", trunc, "-1.5 1.5"},
    {"y0", y0, "1e-4 0.1 0.5 2 10 24.9 25.1 100"},
    {"y1", y1, "1e-4 0.1 0.5 2 10 24.9 25.1 100"},
};

static const struct {
  const char *name;
  double (*want)(double, double);
  const char *at;
} binary[] = {
    {"atan2", atan2, "1 -1 -1 -2 0 3"},
    {"copysign", copysign, "3 -1 -3 2 3 -0.0 2 0"},
    {"fdim", fdim, "3 1 1 3"},
    {"fdivide", fdivide_, "1 3"},
    {"fmax", fmax, "1 3 nan 2 2 nan"},
    {"fmin", fmin, "1 3 nan 2 2 nan"},
    {"fmod", fmod, "7.5 -2 -7.5 2"},
    {"hypot", hypot, "3 4 1e30 1e30 inf nan"},
    {"nextafter", nextafter_,
     "1 2 1 0 0 1 0 -1 1e-40 1 3 3 -1 0 1.17549435e-38 0 3.40282347e38 inf 1.5 -9 16777216 0"},
    {"pow", pow, "2 0.5 3 4"},
    {"remainder", remainder, "5 3 -5 3 2.5 1 3.5 1 1e10 3 7 -2 4 4"},
    {"rhypot", rhypot_, "3 4"},
};

static void expect(const char *call, double got, double want) {
  bool same = (isnan(got) && isnan(want)) || got == (double)(float)want ||
              fabs(got - want) <= 1e-6 * fabs(want) + (fabs(want) < 1e-37 ? 0 : 1e-15);
  if (!same) fail_msg("%s: want %.9g, got %.9g", call, want, got);
}

static double evaluate(const char *call, const char *args) {
  definition d;
  definition_begin(&d);
  char text[256];
  snprintf(text, sizeof text, "def f(float A, float B, float C, float D) -> (float Y) { Y = %s }",
           call);
  if (definition_bind(&d, text, NULL, "") != KILN_OK) fail_msg("%s", definition_messages(&d));
  kiln_interpreter *in = NULL;
  const void *data;
  float values[4] = {0};
  assert_int_equal(kiln_interpreter_create(&d.cx, d.prog, &in), KILN_OK);
  for (int i = 0; i < 4; i++) {
    char *end = NULL;
    values[i] = (float)strtod(args, &end);
    args = end;
    kiln_interpreter_bind(in, d.prog->inputs.data[i], &values[i]);
  }
  assert_int_equal(kiln_interpreter_compute(in, d.prog->outputs.data[0], &data), KILN_OK);
  double y = (double)*(const float *)data;
  kiln_interpreter_destroy(in);
  definition_end(&d);
  return y;
}

static void functions_of_one_argument_are_right(void **state) {
  (void)state;
  for (size_t i = 0; i < KILN_LEN(unary); i++) {
    char call[64], args[64], *end = NULL;
    for (const char *at = unary[i].at; *at; at = end) {
      double x = (double)(float)strtod(at, &end);
      snprintf(call, sizeof call, "%s(A)", unary[i].name);
      snprintf(args, sizeof args, "%.9g 0 0 0", x);
      double got = evaluate(call, args);
      snprintf(call, sizeof call, "%s(%.9g)", unary[i].name, x);
      expect(call, got, unary[i].want(x));
    }
  }
}

static void functions_of_two_arguments_are_right(void **state) {
  (void)state;
  for (size_t i = 0; i < KILN_LEN(binary); i++) {
    char call[64], args[64], *end = NULL;
    for (const char *at = binary[i].at; *at; at = end) {
      double x = (double)(float)strtod(at, &end), y = (double)(float)strtod(end, &end);
      snprintf(call, sizeof call, "%s(A, B)", binary[i].name);
      snprintf(args, sizeof args, "%.9g %.9g 0 0", x, y);
      double got = evaluate(call, args);
      snprintf(call, sizeof call, "%s(%.9g, %.9g)", binary[i].name, x, y);
      expect(call, got, binary[i].want(x, y));
    }
  }
}

static void functions_of_more_arguments_are_right(void **state) {
  (void)state;
  expect("fma", evaluate("fma(A, B, C)", "3 4 5 0"), 17);
  expect("norm3d", evaluate("norm3d(A, B, C)", "1 2 2 0"), 3);
  expect("rnorm3d", evaluate("rnorm3d(A, B, C)", "1 2 2 0"), 1.0 / 3);
  expect("norm4d", evaluate("norm4d(A, B, C, D)", "1 1 1 1"), 2);
  expect("rnorm4d", evaluate("rnorm4d(A, B, C, D)", "1 1 1 1"), 0.5);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(functions_of_one_argument_are_right),
      cmocka_unit_test(functions_of_two_arguments_are_right),
      cmocka_unit_test(functions_of_more_arguments_are_right),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
