// Comparison of a result with the reference, element by element.
#ifndef KILN_VERIFY_COMPARE_H
#define KILN_VERIFY_COMPARE_H

#include "analysis/interpret.h"
#include "kiln/tensor.h"

typedef struct kiln_difference {
  double square, want_square; // sums of (got - want)^2 and want^2
  double max_abs;
  int64_t wrong;      // elements outside of the tolerance
  int64_t not_finite; // wrong elements of which one side is not finite
  // Set by kiln_judge: the first wrong element; number of elements without an error bound; sum of
  // squared (got - want) / typical error, and the number of its terms.
  int64_t first_wrong;
  double got, want, most; // at the first wrong element
  int64_t free;
  double spread_square;
  int64_t n_spread;
  bool together; // wrong because of the root mean square only
} kiln_difference;

// Compares the elements of |t| at |got|, laid out by |strides| (in elements), with the row-major
// |want|. An element is right if |got - want| <= atol * max(1, rms of want) + rtol * |want|, where
// rtol is at least 4 ULP for half types; NaN must match NaN. Integers and bools must be equal,
// except that 8-bit integers rounded from floats (|rounded|) may differ by one.
void kiln_compare(const kiln_tensor *t, const void *got, const int64_t *strides, const void *want,
                  double rtol, double atol, bool rounded, kiln_difference *out);
// Compares them by the error bounds that |in| computed (docs/design/verdicts.md). The root mean
// square of all errors must stay near the typical error of one element; if it does not, the first
// element is reported as wrong.
void kiln_judge(const kiln_interpreter *in, const kiln_tensor *t, const void *got,
                const int64_t *strides, const void *want, kiln_difference *out);
// Copies row-major elements to strided memory; and back.
void kiln_strided_put(const kiln_tensor *t, const void *row_major, const int64_t *strides,
                      void *to);
void kiln_strided_take(const kiln_tensor *t, const void *from, const int64_t *strides,
                       void *row_major);

// The elements of a tensor as programs store them: in place or, if packed, unpacked to a byte each
// in |arena|.
void *kiln_elements_of(kiln_arena *arena, const DLTensor *t);

#endif
