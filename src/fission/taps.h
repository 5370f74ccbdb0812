// Interpolation of a tensor at computed coordinates: a weighted sum of the taps (neighbouring
// elements).
#ifndef KILN_FISSION_TAPS_H
#define KILN_FISSION_TAPS_H

#include "fission/terms.h"

typedef enum kiln_interpolation {
  KILN_TAPS_NEAREST,
  KILN_TAPS_LINEAR,
  KILN_TAPS_CUBIC
} kiln_interpolation;

typedef enum kiln_outside {
  KILN_OUTSIDE_ZEROS,
  KILN_OUTSIDE_BORDER,
  KILN_OUTSIDE_REFLECTION
} kiln_outside;

typedef struct kiln_taps {
  kiln_lower *lw;
  const kiln_tensor *x; // (N, C, in...)
  int n;                // spatial axes
  kiln_interpolation mode;
  kiln_outside outside;
  bool align_corners; // reflection at the centres of the outer elements
  kiln_dtype t;       // dtype of the arithmetic
} kiln_taps;

// The extent of a spatial axis as a number.
const kiln_expr *kiln_taps_extent(const kiln_taps *g, int axis);
// |v| reflected into the axis, from either side.
const kiln_expr *kiln_taps_reflected(const kiln_taps *g, int axis, const kiln_expr *v);
// The value of x(first[0], first[1], places...); |places| are coordinates in elements, of dtype
// |t|, one for each axis.
const kiln_expr *kiln_taps_sum(const kiln_taps *g, const kiln_expr *const first[2],
                               const kiln_expr *const *places);

#endif
