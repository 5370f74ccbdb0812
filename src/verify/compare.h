// Comparison of a result with the reference, element by element.
#ifndef KILN_VERIFY_COMPARE_H
#define KILN_VERIFY_COMPARE_H

#include "analysis/interpret.h"
#include "kiln/tensor.h"

typedef struct kiln_difference {
  double square, want_square; // sums of (got - want)^2 and want^2
  double max_abs;
  int64_t wrong;      // elements outside of the tolerance
  int64_t not_finite; // of these, where one of the two is no finite number
  // Of kiln_judge: the first wrong element; elements that may be anything; squares of (got - want)
  // in typical errors, and of how many elements.
  int64_t first_wrong;
  double got, want, most; // there
  int64_t free;
  double spread_square;
  int64_t n_spread;
  bool together; // wrong by that alone
} kiln_difference;

// Compares the elements of |t| at |got|, laid out by |strides| (in elements), with the row-major
// |want|. An element is right when |got - want| <= atol * max(1, rms of want) + rtol * |want|, rtol
// being at least 4 units in the last place of half types; NaN is right where NaN is wanted.
// Integers and bools must be equal, but 8-bit integers that were rounded from floats (|rounded|)
// may differ by one.
void kiln_compare(const kiln_tensor *t, const void *got, const int64_t *strides, const void *want,
                  double rtol, double atol, bool rounded, kiln_difference *out);
// Compares them by the error bounds that |in| computed (docs/design/verdicts.md). The root mean
// square of all errors must stay near the typical error of one element; if it does not, the first
// element is reported as wrong.
void kiln_judge(const kiln_interpreter *in, const kiln_tensor *t, const void *got,
                const int64_t *strides, const void *want, kiln_difference *out);
// Copies row-major elements to where the strides put them; and back.
void kiln_strided_put(const kiln_tensor *t, const void *row_major, const int64_t *strides,
                      void *to);
void kiln_strided_take(const kiln_tensor *t, const void *from, const int64_t *strides,
                       void *row_major);

// The elements of a tensor as programs have them: its own memory or, where they lie packed, a byte
// for each in |arena|.
void *kiln_elements_of(kiln_arena *arena, const DLTensor *t);

#endif
