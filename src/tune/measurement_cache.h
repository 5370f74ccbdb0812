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
  kiln_results *results; // NULL: times are not stored
  kiln_map ns;           // key symbol -> nanoseconds; 0: looked up and missing
  int64_t stamp;         // of the database when it was opened
} kiln_measurement_cache;

// Opens the tuning database as choices.measured, if kernels are chosen for this machine. It stays
// NULL if the database does not exist and nothing will be measured.
//
// errors: KILN_BAD_INPUT: the file cannot be opened, or is not a tuning database
kiln_status kiln_measurement_cache_open(kiln_ctx *cx, kiln_build *b);
// The measured time of a launch of the kernel with that key; 0: not measured. |known| is a
// kiln_measurement_cache.
double kiln_measurement_cache_ns(void *known, const char *key);

// Measures orchestrations in runs of the model, on this machine's CPU or GPU: cost-driven fusion's,
// the solver's with predicted times, then the solver's with measured times, repeated until all its
// kernels are measured. Sets request.given_orchestration to the fastest, or is_connected.
kiln_status kiln_build_measure_orchestrations(kiln_ctx *cx, kiln_build *b, int *io_n);
// Makes the orchestration of trial |t| the given one of |b|; NULL: cost-driven fusion's.
void kiln_build_take_orchestration(kiln_ctx *cx, kiln_build *b, const kiln_build *t);

#endif
