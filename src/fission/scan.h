// Scans along an axis, of operators and of counted extents.
#ifndef KILN_FISSION_SCAN_H
#define KILN_FISSION_SCAN_H

#include "fission/lower.h"

typedef struct kiln_scan {
  int axis;
  bool exclusive, reverse; // without the element itself; those behind it
  kiln_combiner combiner;
} kiln_scan;

// What each element of |x| and those before it along the axis are reduced to: of the shape of |x|,
// in kiln_accumulator's dtype.
//
// cost: about 17 for each element, in as many rounds as the logarithm of the extent to the base 16;
//       the square of the extent where no bound of it is known
kiln_tensor *kiln_lower_scan(kiln_lower *lw, const kiln_scan *c, const kiln_tensor *x);

#endif
