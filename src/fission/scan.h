// Prefix scans along an axis, used by operators and data-dependent extents.
#ifndef KILN_FISSION_SCAN_H
#define KILN_FISSION_SCAN_H

#include "fission/lower.h"

typedef struct kiln_scan {
  int axis;
  bool exclusive, reverse; // without the element itself; from the end
  kiln_combiner combiner;
} kiln_scan;

// Reduces each element of |x| with those before it along the axis: shape of |x|, dtype of
// kiln_accumulator.
//
// cost: about 17 operations an element in log16(extent) rounds; the square of the extent if it has
// no known bound
kiln_tensor *kiln_lower_scan(kiln_lower *lw, const kiln_scan *c, const kiln_tensor *x);

#endif
