// The thread pool: a mailbox for each worker, which spins on it for a while and then sleeps.
#include "runtime/pool.h"
#include "support/thread.h"

#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { CACHE_LINE = 64, LOOKS_A_CLOCK = 64, ALONE_NS = 50000 };

// A mailbox's word. The caller writes WORK and STOP, the worker IDLE. A thread that is about to
// sleep writes so first, so that the other wakes it: the worker ASLEEP (was IDLE), the caller
// AWAITED (was WORK).
enum { IDLE, ASLEEP, WORK, AWAITED, STOP };

typedef struct worker {
  _Alignas(CACHE_LINE) atomic_uint word;
  kiln_pool *pool;
  pthread_t thread;
  int index; // of its task; the caller has 0
  int cpu;   // to which it is pinned; -1: none
} worker;

struct kiln_pool {
  int threads;
  int64_t spin_ns;
  worker *workers; // [threads - 1]
  int n_started;
  int first;
  const int *alive; // [1] in a page that the kernel clears in a forked child; NULL: not supported
  pid_t owner;      // the process with the workers
  cpu_set_t pinned; // CPUs with a pinned worker
  bool is_pinned;
  // The current run's: written before the first word becomes WORK, read after that.
  void (*task)(void *argument, size_t i);
  void *argument;
};

// The allowed CPUs, one of each physical core before the second threads of any.
typedef struct cpu_list {
  int n, n_cores;
  int cpus[CPU_SETSIZE];
} cpu_list;

// The lowest allowed CPU on |cpu|'s core. Without the kernel's description, each CPU counts as a
// core.
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

// --- waiting ---

static void futex_wait(atomic_uint *word, unsigned value) {
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(atomic_uint *word) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

// Looks at |word| until it differs from |value|, for |spin_ns|. What takes longer than ALONE_NS may
// wait for a thread that others keep from running: they get this CPU, too.
//
// gives: the word's last value
static unsigned spin_while(const atomic_uint *word, unsigned value, int64_t spin_ns) {
  unsigned seen = atomic_load_explicit(word, memory_order_acquire);
  const int64_t begin = seen == value && spin_ns > 0 ? now_ns() : 0;
  int64_t spent = 0;
  while (seen == value && spent < spin_ns) {
    if (spent > ALONE_NS) sched_yield();
    for (int i = 0; i < LOOKS_A_CLOCK && seen == value; i++) {
      relax();
      seen = atomic_load_explicit(word, memory_order_acquire);
    }
    spent = now_ns() - begin;
  }
  return seen;
}

// Waits until |word| differs from |value|: spinning at first, then asleep with |asleep| as the
// word.
//
// gives: the word's new value
static unsigned wait_while(atomic_uint *word, unsigned value, unsigned asleep, int64_t spin_ns) {
  unsigned seen = spin_while(word, value, spin_ns);
  if (seen != value) return seen;
  if (!atomic_compare_exchange_strong(word, &seen, asleep)) return seen;
  while ((seen = atomic_load_explicit(word, memory_order_acquire)) == asleep)
    futex_wait(word, asleep);
  return seen;
}

static void put(atomic_uint *word, unsigned value, unsigned asleep) {
  if (atomic_exchange(word, value) == asleep) futex_wake(word);
}

// --- workers ---

static void *work(void *argument) {
  worker *w = argument;
  if (w->cpu >= 0) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((size_t)w->cpu, &one);
    (void)sched_setaffinity(0, sizeof one, &one); // an unpinned worker works as well
  }
  while (wait_while(&w->word, IDLE, ASLEEP, w->pool->spin_ns) != STOP) {
    w->pool->task(w->pool->argument, (size_t)w->index);
    put(&w->word, IDLE, AWAITED);
  }
  return NULL;
}

static bool start(kiln_pool *pool, const cpu_list *cpus, int first) {
  for (int i = 0; i < pool->threads - 1; i++) {
    worker *w = &pool->workers[i];
    w->pool = pool;
    w->index = i + 1;
    w->cpu = pool->is_pinned ? cpus->cpus[(first + 1 + i) % cpus->n] : -1;
    atomic_init(&w->word, IDLE);
    if (w->cpu >= 0) CPU_SET((size_t)w->cpu, &pool->pinned);
    if (!kiln_thread_start(&w->thread, NULL, work, w)) return false;
    pool->n_started++;
  }
  return true;
}

// --- processes ---

static size_t page_bytes(void) { return (size_t)sysconf(_SC_PAGESIZE); }

static const int *make_alive(void) {
  void *page = mmap(NULL, page_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return NULL;
  if (madvise(page, page_bytes(), MADV_WIPEONFORK) == 0) return *(int *)page = 1, page;
  munmap(page, page_bytes());
  return NULL;
}

static void drop_alive(kiln_pool *pool) {
  if (pool->alive) munmap((void *)(uintptr_t)pool->alive, page_bytes());
  pool->alive = NULL;
}

// A forked child has only the thread that forked.
static bool has_lost_workers(const kiln_pool *pool) {
  return pool->threads > 1 && (pool->alive ? *pool->alive == 0 : pool->owner != getpid());
}

// --- making ---

static bool fill(kiln_pool *pool, int first, int64_t spin_ns) {
  cpu_list cpus;
  const size_t room = sizeof *pool->workers * (size_t)pool->threads;
  list_cpus(&cpus);
  pool->first = first;
  pool->alive = make_alive();
  pool->owner = getpid();
  pool->is_pinned = pool->threads <= cpus.n;
  // otherwise threads would spin on each other's CPUs
  pool->spin_ns = pool->is_pinned ? spin_ns : 0;
  pool->workers = aligned_alloc(CACHE_LINE, room);
  return pool->workers && start(pool, &cpus, first);
}

kiln_status kiln_pool_create(int threads, int first, int64_t spin_ns, kiln_diag *diag,
                             kiln_pool **out) {
  *out = NULL;
  kiln_pool *pool = calloc(1, sizeof *pool);
  if (!pool) return kiln_diag_fail(diag, KILN_NO_MEMORY, "session", "thread pool: no memory left");
  CPU_ZERO(&pool->pinned);
  pool->threads = threads;
  if (threads > 1 && !fill(pool, first, spin_ns)) {
    kiln_pool_destroy(pool);
    return kiln_diag_fail(diag, KILN_NO_MEMORY, "session",
                          "thread pool: the system must create %d threads, it refuses", threads);
  }
  *out = pool;
  return KILN_OK;
}

void kiln_pool_destroy(kiln_pool *pool) {
  if (!pool) return;
  if (has_lost_workers(pool)) pool->n_started = 0;
  for (int i = 0; i < pool->n_started; i++) put(&pool->workers[i].word, STOP, ASLEEP);
  for (int i = 0; i < pool->n_started; i++) pthread_join(pool->workers[i].thread, NULL);
  drop_alive(pool);
  free(pool->workers);
  free(pool);
}

kiln_status kiln_pool_revive(kiln_pool *pool, kiln_diag *diag) {
  cpu_list cpus;
  if (!has_lost_workers(pool)) return KILN_OK;
  list_cpus(&cpus);
  pool->n_started = 0;
  pool->is_pinned &= cpus.n > 0;
  CPU_ZERO(&pool->pinned);
  drop_alive(pool);
  pool->owner = getpid();
  if (start(pool, &cpus, pool->first)) {
    pool->alive = make_alive();
    return KILN_OK;
  }
  for (int i = 0; i < pool->n_started; i++) put(&pool->workers[i].word, STOP, ASLEEP);
  for (int i = 0; i < pool->n_started; i++) pthread_join(pool->workers[i].thread, NULL);
  pool->n_started = 0;
  pool->owner = 0; // no process has workers: the next run tries again
  return kiln_diag_fail(diag, KILN_NO_MEMORY, "session",
                        "thread pool: a forked process needs %d threads of its own, the system "
                        "refuses to create them",
                        pool->threads);
}

void kiln_pool_begin(kiln_pool *pool) {
  cpu_set_t own, away;
  int cpu = pool->is_pinned ? sched_getcpu() : -1;
  if (cpu < 0 || !CPU_ISSET((size_t)cpu, &pool->pinned)) return;
  if (sched_getaffinity(0, sizeof own, &own) != 0) return;
  CPU_AND(&away, &own, &pool->pinned);
  CPU_XOR(&away, &own, &away);
  if (CPU_COUNT(&away) == 0) return; // the caller is pinned there by its own choice
  if (sched_setaffinity(0, sizeof away, &away) == 0) (void)sched_setaffinity(0, sizeof own, &own);
}

void kiln_pool_run(kiln_pool *pool, void (*task)(void *argument, size_t i), void *argument,
                   size_t n) {
  pool->task = task;
  pool->argument = argument;
  for (size_t i = 1; i < n; i++) put(&pool->workers[i - 1].word, WORK, ASLEEP);
  if (n > 0) task(argument, 0);
  for (size_t i = 1; i < n; i++)
    (void)wait_while(&pool->workers[i - 1].word, WORK, AWAITED, pool->spin_ns);
}
