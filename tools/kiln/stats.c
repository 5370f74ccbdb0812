// Statistics of repeated timings.
#include "kiln.h"

#include <stdlib.h>

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

double percentile(const double *sorted, size_t n, double percent) {
  return n ? sorted[(size_t)(percent / 100 * (double)(n - 1) + 0.5)] : 0;
}

stats stats_of(double *ms, size_t n) {
  stats s = {0};
  if (n == 0) return s;
  qsort(ms, n, sizeof *ms, by_value);
  for (size_t i = 0; i < n; i++) s.mean += ms[i] / (double)n;
  s.min = ms[0];
  s.median = n % 2 ? ms[n / 2] : (ms[n / 2 - 1] + ms[n / 2]) / 2;
  s.p90 = percentile(ms, n, 90);
  s.p99 = percentile(ms, n, 99);
  return s;
}
