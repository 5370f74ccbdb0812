// The thread pool: pthreadpool, its workers pinned by themselves in the first task they are given.
#include "runtime/pool.h"

#include <pthread.h>
#include <pthreadpool.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

struct kiln_pool {
  pthreadpool_t threads; // NULL for one thread
  cpu_set_t workers;     // CPUs with a pinned worker; empty when nothing is pinned
  bool pinned;
};

// The allowed CPUs, one of each physical core before the second threads of any.
typedef struct cpu_list {
  int n, n_cores;
  int cpus[CPU_SETSIZE];
} cpu_list;

// The lowest allowed CPU that shares a core with |cpu|. Without the kernel's description each CPU
// is taken for a core.
static int core_leader(int cpu, const cpu_set_t *allowed) {
  char path[96], list[256] = "";
  snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
  FILE *f = fopen(path, "re");
  if (!f) return cpu;
  size_t n = fread(list, 1, sizeof list - 1, f);
  fclose(f);
  list[n] = 0;
  for (char *at = list; *at >= '0' && *at <= '9';) {
    long from = strtol(at, &at, 10), to = from;
    if (*at == '-') to = strtol(at + 1, &at, 10);
    for (long i = from; i <= to && i < CPU_SETSIZE; i++)
      if (CPU_ISSET((size_t)i, allowed)) return (int)i;
    if (*at == ',') at++;
  }
  return cpu;
}

static void list_cpus(cpu_list *l) {
  cpu_set_t allowed;
  l->n = 0;
  l->n_cores = 1;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  for (int second = 0; second < 2; second++) {
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
      if (CPU_ISSET((size_t)cpu, &allowed) && (core_leader(cpu, &allowed) != cpu) == second)
        l->cpus[l->n++] = cpu;
    if (!second && l->n > 0) l->n_cores = l->n;
  }
}

int kiln_cpu_cores(void) {
  cpu_list l;
  list_cpus(&l);
  return l.n_cores;
}

// Everyone stays in the task until all have come, so each thread takes exactly one.
typedef struct roll_call {
  pthread_t caller;
  const cpu_list *cpus;
  int first, threads;
  atomic_int arrived, next_worker;
} roll_call;

static void pin_and_wait(void *argument, size_t i) {
  roll_call *r = argument;
  (void)i;
  if (!pthread_equal(pthread_self(), r->caller)) {
    cpu_set_t one;
    int slot = r->first + 1 + atomic_fetch_add(&r->next_worker, 1);
    CPU_ZERO(&one);
    CPU_SET((size_t)r->cpus->cpus[slot % r->cpus->n], &one);
    (void)sched_setaffinity(0, sizeof one, &one); // a worker that may not be pinned still works
  }
  atomic_fetch_add(&r->arrived, 1);
  while (atomic_load(&r->arrived) < r->threads) sched_yield();
}

static void pin(kiln_pool *pool, int threads, int first) {
  cpu_list cpus;
  list_cpus(&cpus);
  if (threads > cpus.n) return;
  roll_call r = {.caller = pthread_self(), .cpus = &cpus, .first = first, .threads = threads};
  for (int i = 0; i < threads - 1; i++)
    CPU_SET((size_t)cpus.cpus[(first + 1 + i) % cpus.n], &pool->workers);
  pthreadpool_parallelize_1d(pool->threads, pin_and_wait, &r, (size_t)threads, 0);
  pool->pinned = true;
}

kiln_status kiln_pool_create(int threads, int first, kiln_diag *diag, kiln_pool **out) {
  *out = NULL;
  kiln_pool *pool = calloc(1, sizeof *pool);
  if (!pool) return kiln_diag_fail(diag, KILN_NO_MEMORY, "session", "thread pool: no memory left");
  CPU_ZERO(&pool->workers);
  if (threads > 1) {
    pool->threads = pthreadpool_create((size_t)threads);
    if (!pool->threads || pthreadpool_get_threads_count(pool->threads) != (size_t)threads) {
      kiln_pool_destroy(pool);
      return kiln_diag_fail(diag, KILN_NO_MEMORY, "session",
                            "thread pool: %d threads: the system "
                            "must give them, it does not",
                            threads);
    }
    pin(pool, threads, first);
  }
  *out = pool;
  return KILN_OK;
}

void kiln_pool_destroy(kiln_pool *pool) {
  if (!pool) return;
  if (pool->threads) pthreadpool_destroy(pool->threads);
  free(pool);
}

int kiln_pool_threads(const kiln_pool *pool) {
  return pool->threads ? (int)pthreadpool_get_threads_count(pool->threads) : 1;
}

void kiln_pool_begin(kiln_pool *pool) {
  cpu_set_t own, away;
  int cpu = pool->pinned ? sched_getcpu() : -1;
  if (cpu < 0 || !CPU_ISSET((size_t)cpu, &pool->workers)) return;
  if (sched_getaffinity(0, sizeof own, &own) != 0) return;
  CPU_AND(&away, &own, &pool->workers);
  CPU_XOR(&away, &own, &away);
  if (CPU_COUNT(&away) == 0) return; // the caller is pinned there: its choice
  if (sched_setaffinity(0, sizeof away, &away) == 0) (void)sched_setaffinity(0, sizeof own, &own);
}

void kiln_pool_run(kiln_pool *pool, void (*task)(void *argument, size_t i), void *argument,
                   size_t n) {
  if (!pool->threads || n <= 1)
    for (size_t i = 0; i < n; i++) task(argument, i);
  else pthreadpool_parallelize_1d(pool->threads, task, argument, n, 0);
}
