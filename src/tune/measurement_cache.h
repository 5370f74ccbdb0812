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

// Opens the tuning database as choices.measured, if kernels are chosen for this machine. It stays
// NULL if the database does not exist and nothing will be measured.
//
// errors: KILN_BAD_INPUT: the file cannot be opened, or is not a tuning database
kiln_status kiln_measurement_cache_open(kiln_ctx *cx, kiln_build *b);
// The measured time of a launch of the kernel with that key, |known| being a
// kiln_measurement_cache; 0: not measured.
double kiln_measurement_cache_ns(void *known, const char *key);

// Measures orchestrations in runs of the model, on this machine's CPU or GPU: that of cost-driven
// fusion, the solver's by predicted times, then the solver's by measured times, again until all its
// kernels are measured. Sets request.given_orchestration to the fastest, or is_connected.
kiln_status kiln_build_measure_orchestrations(kiln_ctx *cx, kiln_build *b, int *io_n);
// Takes the orchestration of the trial |t| as |b|'s given one; NULL: that of cost-driven fusion.
void kiln_build_take_orchestration(kiln_ctx *cx, kiln_build *b, const kiln_build *t);

#endif
