// A pool of exactly the asked threads: the caller and pinned workers.
//
// The scheduler wakes a sleeping worker on the caller's own busy core when it may, and then it
// waits for the next tick (8 ms measured); so every worker is pinned to a CPU of its own, and the
// caller, who is not pinned, is moved off the workers' CPUs when a run begins on one of them. One
// run at a time.
//
// A worker without a task, and a caller whose workers are not done, look for news for a bounded
// time (waking costs 50 to 100 us, news seen while spinning a fraction of one) and then sleep.
#ifndef KILN_RUNTIME_POOL_H
#define KILN_RUNTIME_POOL_H

#include "kiln/status.h"

typedef struct kiln_pool kiln_pool;

int kiln_cpu_cores(void); // physical cores that this thread may run on
// |first| is the place in the list of allowed CPUs (one per core first, then their siblings) that
// is left to the caller; the workers take the next ones. Nothing is pinned, and nobody spins, when
// the threads are more than the CPUs. |spin_ns| is how long a thread looks for news before it
// sleeps; 0: not at all.
//
// errors: KILN_NO_MEMORY
enum { KILN_POOL_SPIN_NS = 2000000 }; // what is ordinary
KILN_MUST_USE kiln_status kiln_pool_create(int threads, int first, int64_t spin_ns, kiln_diag *diag,
                                           KILN_GIVE kiln_pool **out);
void kiln_pool_destroy(KILN_TAKE kiln_pool *pool); // NULL is allowed
// Starts the workers anew in a process that was forked since they were: it has none. Costs the read
// of a word elsewhere.
//
// errors: KILN_NO_MEMORY
KILN_MUST_USE kiln_status kiln_pool_revive(kiln_pool *pool, kiln_diag *diag);
void kiln_pool_begin(kiln_pool *pool); // before the first task of a run
// Calls task(argument, i) for 0 <= i < n, n <= threads, and waits for all.
void kiln_pool_run(kiln_pool *pool, void (*task)(void *argument, size_t i), void *argument,
                   size_t n);

#endif
