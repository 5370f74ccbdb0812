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

// units: nanoseconds of one instruction each, as many of its kind being in flight as there can be
typedef struct kiln_work_units {
  int vector_bytes, n_registers;
  double multiply_ns;                // an FMA or a product of vectors
  double any_ns;                     // any arithmetic on a vector
  double load_ns, part_ns, store_ns; // of a vector; of one element, or one element to all lanes
  double latency_ns;                 // of a sum that waits for the one before
  double leave_ns;                   // of a loop's end that was not foreseen
  double n_misses, miss_ns; // lines that a core waits for at once, and how long; 0: not known
} kiln_work_units;
kiln_work_units kiln_work_units_of(const kiln_machine *m);

// The time of |l| on |n_threads|, nest by nest, launches aside. |missed|[buffer]: lines of it that
// come from behind the cache of a core, all accesses together; NULL: none.
//
// units: nanoseconds; threads that have nothing to do at a nest's end wait
// cost: well below a millisecond
double kiln_tile_work(kiln_ctx *cx, const kiln_loops *l, const kiln_work_units *units,
                      int n_threads, const double *missed);

#endif
