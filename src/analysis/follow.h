// Rounding error analysis: error bounds of correct results against the reference, propagated
// through the interpreter's bytecode instruction by instruction.
//
// The reference computes in double. What it judges computes in its types, in an order of its own:
// every operation rounds, to a relative error of one unit (half a unit in the last place),
// functions to some units, and a sum of n terms in any order to n units of the sum of their
// magnitudes. Two numbers are carried with each value. |worst| bounds the error whatever the
// roundings do. |typical| is the error's standard deviation where roundings are independent of each
// other, as in sums of many terms, of which the worst case is beyond anything that happens.
// docs/design/verdicts.md says the method. Private to analysis/.
#ifndef KILN_ANALYSIS_FOLLOW_H
#define KILN_ANALYSIS_FOLLOW_H

#include "analysis/bytecode.h"

// Both 0: exact. Infinite: anything may come.
typedef struct kiln_error {
  double worst, typical;
} kiln_error;

// The errors of a tensor's elements, row-major; NULL, both: it is exact.
typedef struct kiln_errors {
  float *worst, *typical;
} kiln_errors;

// How many |typical| errors one may be off: beyond that is no chance.
#define KILN_ERROR_SPREAD 8.0
double kiln_error_tolerance(kiln_error e); // what an element may be off by

typedef struct kiln_follow {
  kiln_bytecode *code;
  const kiln_errors *tensors; // by id
  kiln_error *errors;         // [regs]; those of constants and streams are 0
} kiln_follow;

// needs: |code| is complete
void kiln_follow_init(kiln_follow *b, kiln_bytecode *code, const kiln_errors *tensors);
// The errors of what kiln_bytecode_run computed from |from| to |to|, for the values that the
// registers hold.
void kiln_follow_run(kiln_follow *b, int from, int to);

double kiln_error_unit(
    kiln_dtype t); // of roundings of what is computed as |t|; halves are computed in f32
// |e| of |value| once it is stored as |t|, the reference's own rounding included.
kiln_error kiln_error_stored(kiln_dtype t, double value, kiln_error e);

// A reduction's error, term by term.
typedef struct kiln_sum_error {
  kiln_combiner combiner;
  kiln_dtype dtype;
  int64_t n;
  double magnitude, squares; // of the terms
  kiln_error e;              // of sums: |typical| squared
  double value;              // so far, of products
} kiln_sum_error;
void kiln_sum_error_add(kiln_sum_error *s, kiln_cell term, kiln_error e);
kiln_error kiln_sum_error_end(const kiln_sum_error *s, kiln_cell value);

#endif
