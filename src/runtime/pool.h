// A thread pool of exactly the requested size: the caller and pinned workers.
//
// The scheduler may wake a sleeping worker on the caller's busy core, where it waits for the next
// tick (8 ms measured). Therefore every worker is pinned to a CPU of its own, and the caller, which
// is not pinned, is moved off the workers' CPUs if a run begins on one of them. One run at a time.
//
// An idle worker, and a caller that waits for workers, spin for a bounded time and then sleep:
// waking takes 50 to 100 us, a change seen while spinning a fraction of one.
#ifndef KILN_RUNTIME_POOL_H
#define KILN_RUNTIME_POOL_H

#include "kiln/status.h"

typedef struct kiln_pool kiln_pool;

int kiln_cpu_cores(void); // physical cores that this thread may run on
// Creates a pool. |first| is the position of the caller's CPU in the list of allowed CPUs (one of
// each core first, then their siblings); workers take the following ones. With more threads than
// CPUs, nothing is pinned and no thread spins. |spin_ns|: how long a thread spins before it sleeps,
// giving way to other programs after the first 50 us; 0: not at all.
enum { KILN_POOL_SPIN_NS = 2000000 }; // the default
KILN_MUST_USE kiln_status kiln_pool_create(int threads, int first, int64_t spin_ns, kiln_diag *diag,
                                           KILN_GIVE kiln_pool **out);
void kiln_pool_destroy(KILN_TAKE kiln_pool *pool); // NULL is allowed
// Starts the workers again in a forked process, which has none. Otherwise it costs the read of a
// word.
KILN_MUST_USE kiln_status kiln_pool_revive(kiln_pool *pool, kiln_diag *diag);
void kiln_pool_begin(kiln_pool *pool); // before the first task of a run
// Calls task(argument, i) for 0 <= i < n, n <= threads, and waits for all.
void kiln_pool_run(kiln_pool *pool, void (*task)(void *argument, size_t i), void *argument,
                   size_t n);

#endif
