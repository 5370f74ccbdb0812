// The measurement cache: times of kernels on this processor or GPU, from this compilation and from
// the tuning database (tune/results.h). A kernel is measured once, in runs of the whole model, so
// that caches are as warm as in use; later choices of kernels use that time.
#ifndef KILN_TUNE_MEASUREMENT_CACHE_H
#define KILN_TUNE_MEASUREMENT_CACHE_H

#include "module/build.h"
#include "tune/results.h"

typedef struct kiln_measurement_cache {
  kiln_ctx *cx;
  kiln_build *b;
  kiln_results *results; // NULL: nothing is kept
  kiln_map ns;           // symbols of keys to nanoseconds; 0: asked for, and not there
  int64_t stamp;         // of the results when they were opened
} kiln_measurement_cache;

// Opens the results for choices.measured, where kernels are to be chosen for this processor. There
// is none when nothing was measured and nothing will be.
//
// errors: KILN_BAD_INPUT: the database cannot be had, or is no such
kiln_status kiln_measurement_cache_open(kiln_ctx *cx, kiln_build *b);
// The time of a launch of the kernel of that key; 0: nobody knows. |known| is a
// kiln_measurement_cache.
double kiln_measurement_cache_ns(void *known, const char *key);

// Measures the kernels that connecting makes, those that are chosen by predictions, and then those
// that are chosen by what is known, until these are all known: sets request.given_orchestration to
// the fastest, or is_connected. For this machine's CPU or GPU.
kiln_status kiln_build_measure_orchestrations(kiln_ctx *cx, kiln_build *b, int *io_n);
// Takes the kernels that were chosen for the trial |t| as those that |b| is given; NULL there:
// connecting's.
void kiln_build_take_orchestration(kiln_ctx *cx, kiln_build *b, const kiln_build *t);

#endif
