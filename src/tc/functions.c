// Functions composed of others, as rows in the notation itself; a few are series, built in C.
#include "tc/functions.h"

#include <math.h>
#include <string.h>

typedef const kiln_expr *E;

static const double pi = 3.14159265358979323846;

// --- short forms ---

static E num(kiln_ctx *cx, double v) { return kiln_float(cx, KILN_F64, v); }
static E add(kiln_ctx *cx, E a, E b) { return kiln_add(cx, a, b); }
static E sub(kiln_ctx *cx, E a, E b) { return kiln_sub(cx, a, b); }
static E mul(kiln_ctx *cx, E a, E b) { return kiln_mul(cx, a, b); }
static E divide(kiln_ctx *cx, E a, E b) { return kiln_div(cx, a, b); }
static E call(kiln_ctx *cx, kiln_expr_kind k, E a) { return kiln_unary(cx, k, a); }
static E less(kiln_ctx *cx, E a, E b) { return kiln_binary(cx, KILN_EXPR_LT, a, b); }

// --- gamma ---

// Stirling's series at a + 8, divided by eight factors of the recurrence; a > 0.
static E lgamma_positive(kiln_ctx *cx, E a) {
  static const double terms[] = {1.0 / 12, -1.0 / 360, 1.0 / 1260, -1.0 / 1680};
  E product = a, x = add(cx, a, num(cx, 8));
  for (int i = 1; i < 8; i++) product = mul(cx, product, add(cx, a, num(cx, i)));
  E r = divide(cx, num(cx, 1), x), r2 = mul(cx, r, r), tail = num(cx, 0);
  for (int i = 3; i >= 0; i--) tail = add(cx, mul(cx, tail, r2), num(cx, terms[i]));
  E y = mul(cx, sub(cx, x, num(cx, 0.5)), call(cx, KILN_EXPR_LOG, x));
  y = add(cx, sub(cx, y, x), num(cx, 0.5 * log(2 * pi)));
  y = add(cx, y, mul(cx, tail, r));
  return sub(cx, y, call(cx, KILN_EXPR_LOG, product));
}

// sin(pi*a), exact at integers.
static E sin_pi(kiln_ctx *cx, E a) {
  E half = mul(cx, a, num(cx, 0.5));
  E r = sub(cx, a, mul(cx, num(cx, 2), call(cx, KILN_EXPR_ROUND, half)));
  // for r in [-1, 1]: sin(pi*r) = sin(pi*(1 - r)), and in the outer halves 1 - r is smaller
  E size = call(cx, KILN_EXPR_ABS, r);
  E folded = kiln_binary(cx, KILN_EXPR_MIN, size, sub(cx, num(cx, 1), size));
  E s = call(cx, KILN_EXPR_SIN, mul(cx, folded, num(cx, pi)));
  return mul(cx, s, call(cx, KILN_EXPR_SIGN, r));
}

static E lgamma_of(kiln_ctx *cx, E a) {
  E mirrored = lgamma_positive(cx, sub(cx, num(cx, 1), a));
  E s = call(cx, KILN_EXPR_ABS, sin_pi(cx, a));
  E below = sub(cx, call(cx, KILN_EXPR_LOG, divide(cx, num(cx, pi), s)), mirrored);
  return kiln_select(cx, less(cx, a, num(cx, 0.5)), below, lgamma_positive(cx, a));
}

static E tgamma_of(kiln_ctx *cx, E a) {
  E one = num(cx, 1), mirrored = call(cx, KILN_EXPR_EXP, lgamma_positive(cx, sub(cx, one, a)));
  E below = divide(cx, num(cx, pi), mul(cx, sin_pi(cx, a), mirrored));
  E zero = kiln_binary(cx, KILN_EXPR_EQ, a, num(cx, 0));
  E negative = less(cx, a, num(cx, 0));
  E whole = kiln_binary(cx, KILN_EXPR_EQ, a, call(cx, KILN_EXPR_FLOOR, a));
  below =
      kiln_select(cx, kiln_binary(cx, KILN_EXPR_AND, negative, whole), num(cx, (double)NAN), below);
  below = kiln_select(cx, zero, divide(cx, one, a), below);
  E above = call(cx, KILN_EXPR_EXP, lgamma_positive(cx, a));
  return kiln_select(cx, less(cx, a, num(cx, 0.5)), below, above);
}

// --- error functions ---

// exp(a*a) * erfc(a) as a continued fraction, for a >= 3.
static E erfcx_fraction(kiln_ctx *cx, E a) {
  E f = a;
  for (int k = 40; k >= 1; k--) f = add(cx, a, divide(cx, num(cx, k / 2.0), f));
  return divide(cx, num(cx, 1 / sqrt(pi)), f);
}

static E erfcx_of(kiln_ctx *cx, E a) {
  E complement = sub(cx, num(cx, 1), call(cx, KILN_EXPR_ERF, a));
  E near = mul(cx, call(cx, KILN_EXPR_EXP, mul(cx, a, a)), complement);
  return kiln_select(cx, less(cx, a, num(cx, 3)), near, erfcx_fraction(cx, a));
}

static E erfc_of(kiln_ctx *cx, E a) {
  E near = sub(cx, num(cx, 1), call(cx, KILN_EXPR_ERF, a));
  E decay = call(cx, KILN_EXPR_EXP, sub(cx, num(cx, 0), mul(cx, a, a)));
  return kiln_select(cx, less(cx, a, num(cx, 3)), near, mul(cx, decay, erfcx_fraction(cx, a)));
}

// sum of terms[k] * t^k.
static E polynomial(kiln_ctx *cx, int n, const double *terms, E t) {
  E s = num(cx, terms[n - 1]);
  for (int k = n - 2; k >= 0; k--) s = add(cx, mul(cx, s, t), num(cx, terms[k]));
  return s;
}

// Maps |v| linearly from [lo, hi] to [-1, 1].
static E centred(kiln_ctx *cx, E v, double lo, double hi) {
  return mul(cx, sub(cx, v, num(cx, (lo + hi) / 2)), num(cx, 2 / (hi - lo)));
}

// The y with erf(y) = x, given w = -log(1 - x*x): y/x is a smooth function of w, further out of
// sqrt(w). Least-squares fits in the Chebyshev basis over w in [0, 92], with error 2e-8.
static E inverse_error(kiln_ctx *cx, E w, E x) {
  static const double near[] = {
      1.5014093511329776,      0.61660069197048029,    -0.026108237916865683,
      -0.019573563913436613,   0.0085254347828798323,  -0.00048787864566233872,
      -0.0008343371930161921,  0.00029214110570742241, 2.1047619723814041e-05,
      -4.1406105360621638e-05, 7.8018996792044865e-06, 2.9333167545472467e-06,
      -1.2171756426523927e-06};
  static const double middle[] = {
      3.2026094390053688,     1.139193735901328,       0.0054148731776230072,
      -0.0040377759086027334, 0.0027458799864515764,   -0.0020439475681720714,
      0.001437231743791171,   -0.00079931641581288857, 0.00016783157464904044,
      0.00015778446434298643, -9.1986932443213404e-05};
  static const double far[] = {6.9194481563054895,     2.5717882257936044,
                               -0.0033270563675681371, 0.00012382114357607652,
                               0.00024130504526028568, -0.00016587194129363949,
                               7.579800439457026e-05,  -3.2788294883206868e-05,
                               2.0739936255796967e-05, -8.2339105341995783e-06};
  E root = call(cx, KILN_EXPR_SQRT, w);
  E a = polynomial(cx, KILN_LEN(near), near, centred(cx, w, 0, 5));
  E b = polynomial(cx, KILN_LEN(middle), middle, centred(cx, root, sqrt(5), 4.5));
  E c = polynomial(cx, KILN_LEN(far), far, centred(cx, root, 4.5, 9.6));
  E outer = kiln_select(cx, less(cx, root, num(cx, 4.5)), b, c);
  E y = kiln_select(cx, less(cx, w, num(cx, 5)), a, outer);
  E infinite = kiln_unary(cx, KILN_EXPR_ISINF, w);
  return mul(cx, x, kiln_select(cx, infinite, num(cx, (double)INFINITY), y));
}

static E minus_log(kiln_ctx *cx, E a) { return sub(cx, num(cx, 0), call(cx, KILN_EXPR_LOG, a)); }

static E erfinv_of(kiln_ctx *cx, E a) {
  E one = num(cx, 1);
  return inverse_error(cx, minus_log(cx, mul(cx, sub(cx, one, a), add(cx, one, a))), a);
}

static E erfcinv_of(kiln_ctx *cx, E a) {
  E w = minus_log(cx, mul(cx, a, sub(cx, num(cx, 2), a)));
  return inverse_error(cx, w, sub(cx, num(cx, 1), a));
}

// --- Bessel functions ---
// |a| <= NEAR: trapezoidal means over a circle, which converge geometrically; beyond: Hankel's
// expansion.

enum { POINTS = 32, NEAR = 25, HANKEL = 14 };

static double angle(int j) { return pi * (j + 0.5) / (2 * POINTS); }

// sum over k of (-1)^(k+1) cos(2k*angle)/k, a point's weight in Neumann's series of Y0.
static double neumann(int j) {
  double w = 0;
  for (int k = 1; k <= 26; k++) w += (k % 2 ? 1 : -1) * cos(2 * k * angle(j)) / k;
  return w;
}

static E mean_cos(kiln_ctx *cx, E a, bool weighted) {
  E s = num(cx, 0);
  for (int j = 0; j < POINTS; j++) {
    E c = call(cx, KILN_EXPR_COS, mul(cx, a, num(cx, sin(angle(j)))));
    s = add(cx, s, mul(cx, c, num(cx, (weighted ? neumann(j) : 1) / POINTS)));
  }
  return s;
}

static E mean_sin(kiln_ctx *cx, E a, bool weighted) {
  E s = num(cx, 0);
  for (int j = 0; j < POINTS; j++) {
    E c = call(cx, KILN_EXPR_SIN, mul(cx, a, num(cx, sin(angle(j)))));
    s = add(cx, s, mul(cx, c, num(cx, sin(angle(j)) * (weighted ? neumann(j) : 1) / POINTS)));
  }
  return s;
}

// sqrt(2/(pi*a)) * (P cos(x) - Q sin(x)), or with |second| (P sin(x) + Q cos(x)); x = a - (2*order
// + 1)*pi/4.
static E hankel(kiln_ctx *cx, E a, int order, bool second) {
  E r = divide(cx, num(cx, 1), a), power = num(cx, 1), part[2] = {num(cx, 1), num(cx, 0)};
  double c = 1;
  for (int k = 1; k <= HANKEL; k++) {
    c *= (4.0 * order * order - (2 * k - 1) * (2 * k - 1)) / (8.0 * k);
    power = mul(cx, power, r);
    double sign = (k / 2) % 2 ? -1 : 1;
    part[k % 2] = add(cx, part[k % 2], mul(cx, num(cx, sign * c), power));
  }
  E x = sub(cx, a, num(cx, (2 * order + 1) * pi / 4));
  E co = call(cx, KILN_EXPR_COS, x), si = call(cx, KILN_EXPR_SIN, x);
  E scale = call(cx, KILN_EXPR_SQRT, mul(cx, r, num(cx, 2 / pi)));
  E wave = second ? add(cx, mul(cx, part[0], si), mul(cx, part[1], co))
                  : sub(cx, mul(cx, part[0], co), mul(cx, part[1], si));
  return mul(cx, scale, wave);
}

static E near_or_far(kiln_ctx *cx, E a, E near, E far) {
  return kiln_select(cx, less(cx, a, num(cx, NEAR)), near, far);
}

static E j0_of(kiln_ctx *cx, E a) {
  E x = call(cx, KILN_EXPR_ABS, a);
  return near_or_far(cx, x, mean_cos(cx, x, false), hankel(cx, x, 0, false));
}

static E j1_of(kiln_ctx *cx, E a) {
  E x = call(cx, KILN_EXPR_ABS, a);
  E y = near_or_far(cx, x, mean_sin(cx, x, false), hankel(cx, x, 1, false));
  return mul(cx, y, call(cx, KILN_EXPR_SIGN, a));
}

// log(a/2) + Euler's constant.
static E log_half(kiln_ctx *cx, E a) {
  return add(cx, call(cx, KILN_EXPR_LOG, mul(cx, a, num(cx, 0.5))),
             num(cx, 0.57721566490153286061));
}

static E y0_of(kiln_ctx *cx, E a) {
  E near = mul(cx, num(cx, 2 / pi), mul(cx, log_half(cx, a), mean_cos(cx, a, false)));
  near = add(cx, near, mul(cx, num(cx, 4 / pi), mean_cos(cx, a, true)));
  return near_or_far(cx, a, near, hankel(cx, a, 0, true));
}

// The negated derivative of y0.
static E y1_of(kiln_ctx *cx, E a) {
  E near = mul(cx, log_half(cx, a), mean_sin(cx, a, false));
  near = sub(cx, near, divide(cx, mean_cos(cx, a, false), a));
  near = mul(cx, num(cx, 2 / pi), near);
  near = add(cx, near, mul(cx, num(cx, 4 / pi), mean_sin(cx, a, true)));
  return near_or_far(cx, a, near, hankel(cx, a, 1, true));
}

static E i0_of(kiln_ctx *cx, E a) {
  E s = num(cx, 0);
  for (int j = 0; j < POINTS; j++)
    s = add(cx, s, call(cx, KILN_EXPR_COSH, mul(cx, a, num(cx, cos(angle(j))))));
  return mul(cx, s, num(cx, 1.0 / POINTS));
}

static E i1_of(kiln_ctx *cx, E a) {
  E s = num(cx, 0);
  for (int j = 0; j < POINTS; j++) {
    E c = call(cx, KILN_EXPR_SINH, mul(cx, a, num(cx, cos(angle(j)))));
    s = add(cx, s, mul(cx, c, num(cx, cos(angle(j)))));
  }
  return mul(cx, s, num(cx, 1.0 / POINTS));
}

// --- the table ---

// clang-format off
static const kiln_tc_composed rows[] = {
    // name          args wide  text                                                        build
    {"rsqrt",          1, false, "1.0 / sqrt(a)",                                            NULL},
    {"fdim",           2, false, "a > b ? a - b : a <= b ? 0.0 : nan",                       NULL},
    {"fdivide",        2, false, "1.0 * a / b",                                              NULL},
    {"fmin",           2, false, "isnan(1.0 * a) ? b : isnan(1.0 * b) ? a : min(a, b)",      NULL},
    {"fmax",           2, false, "isnan(1.0 * a) ? b : isnan(1.0 * b) ? a : max(a, b)",      NULL},
    {"copysign",       2, false, "b < 0 || 1.0 / b < 0 ? -abs(a) : abs(a)",                  NULL},
    {"fma",            3, true,  "a * b + c",                                                NULL},
    {"hypot",          2, true,  "isinf(a) || isinf(b) ? inf : sqrt(a * a + b * b)",         NULL},
    {"rhypot",         2, true,  "1 / hypot(a, b)",                                          NULL},
    {"norm3d",         3, true,  "sqrt(a * a + b * b + c * c)",                              NULL},
    {"rnorm3d",        3, true,  "1 / sqrt(a * a + b * b + c * c)",                          NULL},
    {"norm4d",         4, true,  "sqrt(a * a + b * b + c * c + d * d)",                      NULL},
    {"rnorm4d",        4, true,  "1 / sqrt(a * a + b * b + c * c + d * d)",                  NULL},
    {"cbrt",           1, true,  "sign(a) * pow(abs(a), 1.0 / 3.0)",                         NULL},
    {"rcbrt",          1, true,  "1 / cbrt(a)",                                              NULL},
    {"exp2",           1, true,  "exp(a * 0.693147180559945309417)",                         NULL},
    {"exp10",          1, true,  "exp(a * 2.302585092994045684018)",                         NULL},
    {"log2",           1, true,  "log(a) * 1.442695040888963407360",                         NULL},
    {"log10",          1, true,  "log(a) * 0.434294481903251827651",                         NULL},
    {"logb",           1, true,  "floor(log2(abs(a)) + 1e-9)",                               NULL},
    {"sinpi",          1, true,  NULL,                                                       sin_pi},
    {"cospi",          1, true,  "sinpi(abs(a - 2 * floor(a / 2)) + 0.5)",                   NULL},
    {"remainder",      2, true,
     "sign(a) * (fmod(abs(a), 2 * abs(b)) <= 0.5 * abs(b) ? fmod(abs(a), 2 * abs(b))"
     " : fmod(abs(a), 2 * abs(b)) < 1.5 * abs(b) ? fmod(abs(a), 2 * abs(b)) - abs(b)"
     " : fmod(abs(a), 2 * abs(b)) - 2 * abs(b))",                                            NULL},
    // the distance to the next float: the cast to float then hits it exactly
    {"nextafter",      2, true,
     "a == b ? b : a == 0 ? sign(b) * 1.401298464324817e-45"
     " : a + sign(b - a) * exp2(max(logb(a), -126) - 23) * ((b - a) * a < 0 && abs(a) > 1.2e-38"
     " && abs(a) <= 1.0000000001 * exp2(logb(a)) ? 0.5 : 1)",                                NULL},
    {"lgamma",         1, true,  NULL,                                                  lgamma_of},
    {"tgamma",         1, true,  NULL,                                                  tgamma_of},
    {"erfc",           1, true,  NULL,                                                    erfc_of},
    {"erfcx",          1, true,  NULL,                                                   erfcx_of},
    {"erfinv",         1, true,  NULL,                                                  erfinv_of},
    {"erfcinv",        1, true,  NULL,                                                 erfcinv_of},
    {"normcdf",        1, true,  "0.5 * erfc(-a * 0.707106781186547524401)",                 NULL},
    {"normcdfinv",     1, true,  "-1.414213562373095048802 * erfcinv(2 * a)",                NULL},
    {"j0",             1, true,  NULL,                                                      j0_of},
    {"j1",             1, true,  NULL,                                                      j1_of},
    {"y0",             1, true,  NULL,                                                      y0_of},
    {"y1",             1, true,  NULL,                                                      y1_of},
    {"cyl_bessel_i0",  1, true,  NULL,                                                      i0_of},
    {"cyl_bessel_i1",  1, true,  NULL,                                                      i1_of},
};
// clang-format on

const kiln_tc_composed *kiln_tc_find_composed(const char *name) {
  for (size_t i = 0; i < KILN_LEN(rows); i++)
    if (strcmp(rows[i].name, name) == 0) return &rows[i];
  return NULL;
}
