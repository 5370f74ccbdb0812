// The figures of a device as a list, for comparing measurements of one machine.
#ifndef KILN_TUNE_FIGURES_H
#define KILN_TUNE_FIGURES_H

#include "target/device.h"

// A figure without two measurements that agree within the tolerance. |level| NULL: all agree.
typedef struct kiln_doubt {
  const char *level, *figure;
  double best, next; // of all measurements
  double tolerance;  // the tolerated ratio of |next| to |best|
  double excess;     // their ratio over |tolerance|
} kiln_doubt;

// Merges |n| measurements, taking the best value of every figure.
//
// needs: devices with the same levels
// gives: *out_doubt, the figure that exceeds its tolerance most
void kiln_device_take_best(int n, const kiln_device *measured, kiln_device *out,
                           kiln_doubt *out_doubt);

#endif
