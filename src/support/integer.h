// Integer arithmetic: rounded quotients, multiples, greatest common divisors, saturating sums and
// products.
#ifndef KILN_SUPPORT_INTEGER_H
#define KILN_SUPPORT_INTEGER_H

#include <stdint.h>

static inline int64_t kiln_min_i64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t kiln_max_i64(int64_t a, int64_t b) { return a > b ? a : b; }

// n >= 0; |by| and |to| > 0.
static inline int64_t kiln_divide_up(int64_t n, int64_t by) { return (n + by - 1) / by; }
static inline int64_t kiln_round_up(int64_t n, int64_t to) { return kiln_divide_up(n, to) * to; }

// Floor division as in expressions (ir/expr.h): division by 0 gives 0, overflow wraps.
static inline int64_t kiln_floor_div(int64_t a, int64_t b) {
  if (b == 0) return 0;
  if (b == -1) return (int64_t)(0 - (uint64_t)a);
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}
static inline int64_t kiln_floor_mod(int64_t a, int64_t b) {
  if (b == 0 || b == -1) return 0;
  const int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

// Saturating sum, difference, product and absolute value.
static inline int64_t kiln_add_sat(int64_t a, int64_t b) {
  int64_t sum;
  return __builtin_add_overflow(a, b, &sum) ? (a < 0 ? INT64_MIN : INT64_MAX) : sum;
}
static inline int64_t kiln_sub_sat(int64_t a, int64_t b) {
  int64_t difference;
  return __builtin_sub_overflow(a, b, &difference) ? (a < 0 ? INT64_MIN : INT64_MAX) : difference;
}
static inline int64_t kiln_mul_sat(int64_t a, int64_t b) {
  int64_t product;
  return __builtin_mul_overflow(a, b, &product) ? ((a < 0) == (b < 0) ? INT64_MAX : INT64_MIN)
                                                : product;
}
static inline int64_t kiln_abs_sat(int64_t a) { return a < 0 ? kiln_sub_sat(0, a) : a; }

static inline int64_t kiln_gcd(int64_t a, int64_t b) { // nonnegative
  while (b) {
    const int64_t rest = b == -1 ? 0 : a % b;
    a = b;
    b = rest;
  }
  return kiln_abs_sat(a);
}

#endif
