// Measures a machine: bandwidth and latency of every memory level, arithmetic peaks, and the cost
// of starting work.
//
// Every figure is the best of several interleaved rounds, so that other load does not affect one
// figure alone. Passes of rounds repeat until two agree, with a warning if none do. The loops are
// compiled by Kiln, so the figures are those of generated code. Takes some seconds, and memory of
// four times the last cache.
#ifndef KILN_TUNE_MEASURE_H
#define KILN_TUNE_MEASURE_H

#include "target/target.h"
#include "tune/topology.h"

typedef struct kiln_measure_options {
  int n_threads;                                   // 0: all cores
  int n_rounds;                                    // of a pass; 0: the default
  int n_passes;                                    // at most; 0: the default limit
  void (*on_round)(void *user, int done, int all); // progress callback; NULL: none
  void *user;
} kiln_measure_options;

// gives:  *out in cx->perm, is_measured
// errors: KILN_NO_MEMORY, KILN_DEVICE_ERROR (no topology), KILN_INTERNAL (the loops do not compile)
KILN_MUST_USE kiln_status kiln_device_measure(kiln_ctx *cx, const kiln_machine *m,
                                              const kiln_topology *t,
                                              const kiln_measure_options *options,
                                              const kiln_device **out);

#endif
