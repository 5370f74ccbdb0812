// The predicted time of lowered loops on a core's execution units, by counting instructions; memory
// traffic is priced in traffic.h.
//
// Unrolled copies and vectors count as separate instructions only if they differ: an operand that
// is invariant in a loop is loaded once in front of it. Straight-line code takes the time of the
// busiest execution port, or of its longest dependence chain of sums. Misses of innermost loops are
// prefetched; those of code between loops come in bursts, of which only the first few are hidden.
#ifndef KILN_PRICE_WORK_H
#define KILN_PRICE_WORK_H

#include "target/target.h"

// units: nanoseconds of one instruction at full throughput of its kind
typedef struct kiln_work_units {
  int vector_bytes, n_registers;
  double multiply_ns;                // an FMA or a product of vectors
  double any_ns;                     // any vector arithmetic
  double load_ns, part_ns, store_ns; // of a vector; of an element or a broadcast; of a vector
  double latency_ns;                 // of a dependent sum
  double leave_ns;                   // of a mispredicted loop end
  double n_misses, miss_ns; // cache lines that a core loads at once, and their latency; 0: unknown
} kiln_work_units;
kiln_work_units kiln_work_units_of(const kiln_machine *m);

// The time of |l| on |n_threads|, nest by nest, without launches. |missed|[buffer]: its cache lines
// that come from beyond a core's caches, over all accesses; NULL: none.
//
// units: nanoseconds; threads wait for the slowest at the end of a nest
// cost: well below a millisecond
double kiln_tile_work(kiln_ctx *cx, const kiln_loops *l, const kiln_work_units *units,
                      int n_threads, const double *missed);

#endif
