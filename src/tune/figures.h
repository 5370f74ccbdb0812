// The figures of a device as a list, to compare measurements of one machine.
#ifndef KILN_TUNE_FIGURES_H
#define KILN_TUNE_FIGURES_H

#include "target/device.h"

// A figure whose measurements disagree: no two are within the tolerance. |level| NULL: none.
typedef struct kiln_doubt {
  const char *level, *figure;
  double best, next; // of all measurements
  double tolerance;  // the ratio that they may have
  double excess;     // their ratio over that
} kiln_doubt;

// Takes the best of every figure of |n| measurements, which need not be of the same one.
//
// needs: devices of the same levels
// gives: *out_doubt, where the best and the next best differ most beyond what they may
void kiln_device_take_best(int n, const kiln_device *measured, kiln_device *out,
                           kiln_doubt *out_doubt);

#endif
