// Rounding error analysis: error bounds of correct results against the reference, propagated
// through the interpreter's bytecode instruction by instruction.
//
// The reference computes in double. The computation that it judges uses narrower types and an order
// of its own: every operation rounds, to a relative error of one unit (half a unit in the last
// place), functions to some units, and a sum of n terms in any order to n units of the sum of their
// magnitudes. Two bounds are carried with each value. |worst| bounds the error for all roundings.
// |typical| is the error's standard deviation for independent roundings, as in long sums, whose
// worst case never happens in practice. docs/design/verdicts.md explains the method. Private to
// analysis/.
#ifndef KILN_ANALYSIS_ROUNDING_ERROR_H
#define KILN_ANALYSIS_ROUNDING_ERROR_H

#include "analysis/bytecode.h"

// Both 0: exact. Infinite: nothing is known.
typedef struct kiln_error {
  double worst, typical;
} kiln_error;

// The errors of a tensor's elements, row-major; both NULL: all are exact.
typedef struct kiln_errors {
  float *worst, *typical;
} kiln_errors;

// An error of more than this many deviations is not taken for chance.
#define KILN_ERROR_SPREAD 8.0
double kiln_error_tolerance(kiln_error e); // largest error of an element that is accepted

typedef struct kiln_error_tracker {
  kiln_bytecode *code;
  const kiln_errors *tensors; // by id
  kiln_error *errors;         // [regs]; 0 for constants and streams
} kiln_error_tracker;

// needs: |code| is complete
void kiln_error_tracker_init(kiln_error_tracker *b, kiln_bytecode *code,
                             const kiln_errors *tensors);
// The errors of registers that instructions [from, to) computed; kiln_bytecode_run ran them just
// before.
void kiln_error_tracker_run(kiln_error_tracker *b, int from, int to);

double kiln_error_unit(
    kiln_dtype t); // unit of rounding of operations in type |t|; halves are computed in f32
// |e| of |value| after it is stored as |t|; includes the reference's own rounding.
kiln_error kiln_error_stored(kiln_dtype t, double value, kiln_error e);

// The error of a reduction, accumulated term by term.
typedef struct kiln_sum_error {
  kiln_combiner combiner;
  kiln_dtype dtype;
  int64_t n;
  double magnitude, squares; // sums over the terms so far
  kiln_error e;              // for sums, |typical| is kept squared
  double value;              // partial product
} kiln_sum_error;
void kiln_sum_error_add(kiln_sum_error *s, kiln_cell term, kiln_error e);
kiln_error kiln_sum_error_end(const kiln_sum_error *s, kiln_cell value);

#endif
