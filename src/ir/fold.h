// Constant folding, with the semantics of ir/expr.h.
#ifndef KILN_IR_FOLD_H
#define KILN_IR_FOLD_H

#include "ir/expr.h"

// A constant: |f| if |dtype| is a float type, else |i| (u64 by its bits).
typedef struct kiln_constant {
  kiln_dtype dtype;
  int64_t i;
  double f;
} kiln_constant;

int64_t kiln_int_wrap(kiln_dtype t, int64_t value);  // wraps to the width of |t|; bool: 0 or 1
double kiln_float_round(kiln_dtype t, double value); // rounds to a value of |t|
// The bits of a value of a float type, rounded to it, and back.
uint64_t kiln_float_bits(kiln_dtype t, double value);
double kiln_float_of_bits(kiln_dtype t, uint64_t bits);
int64_t kiln_int_saturate(kiln_dtype t, double value);         // as a cast does; NaN gives 0
bool kiln_constant_of(const kiln_expr *e, kiln_constant *out); // false if |e| is not a constant

// False if the result is not folded: f16 and bf16 operations whose f32 result would be rounded,
// shifts past the width, negative integer powers.
bool kiln_fold_unary(kiln_expr_kind k, kiln_constant a, kiln_constant *out);
bool kiln_fold_binary(kiln_expr_kind k, kiln_constant a, kiln_constant b, kiln_constant *out);
// False if the bits are a NaN with another payload than the canonical one.
bool kiln_fold_bitcast(kiln_dtype t, kiln_constant a, kiln_constant *out);
bool kiln_fold_cast(kiln_dtype t, kiln_constant a, kiln_constant *out);

#endif
