// The time that lowered loops keep a core's execution units busy, by counting: what traffic does
// not see.
//
// Copies of unrolled loops and vectors of vector loops are counted where they differ: an operand
// that does not change with a loop is loaded once in front of it. Straight-line code takes as long
// as the unit with the most work, or as the chain of its sums. What stands around loops comes in
// bursts, whose misses beyond the first few nothing hides; those of the innermost loops are
// prefetched.
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
