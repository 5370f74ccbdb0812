// Measuring a machine: arrays for each level of memory, rounds of probes, and their figures.
#include "tune/measure.h"
#include "runtime/pool.h"
#include "tune/figures.h"
#include "tune/probe.h"

#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum {
  PAGE = 4096,
  HUGE_PAGE = 2 << 20,
  MIN_PASSES = 2,
  MAX_PASSES = 5, // repeated until two agree
  ROUNDS = 6,     // of a pass
  CALLS = 3,      // of a round
  STARTS = 300,   // launches timed together
  LINE = 64,
  MAX_TRIALS = 4 * KILN_MAX_LEVELS + 2 * KILN_N_PEAKS, // add_trials
};
static const int64_t MIN_REGION = 256 << 20;

// A probe to run on one core or on all.
typedef struct trial {
  kiln_probe probe;
  bool on_all;
  size_t out; // offset in kiln_device of the figure, in work a nanosecond
} trial;

typedef struct bench {
  kiln_ctx *cx;
  const kiln_machine *m;
  const kiln_device *levels; // the nominal device
  kiln_device *d, *passes;   // figures of the current pass; of all passes
  int n_passes, n_threads;
  kiln_pool *pool;
  kiln_jit *jit;
  char *map, *region; // |region| is aligned; it has a consecutive part for each thread
  int64_t map_bytes, region_bytes, part_bytes;
  char *pages; // two a thread: results and operands
  int n;
  trial trials[MAX_TRIALS];
} bench;

static double now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static double min_real(double a, double b) { return a < b ? a : b; }
static double max_real(double a, double b) { return a > b ? a : b; }
static int64_t max_int(int64_t a, int64_t b) { return a > b ? a : b; }

// --- the levels ---

static kiln_mem_level *level_named(kiln_device *d, const char *name) {
  const int i = kiln_device_level(d, name);
  return i < 0 ? NULL : &d->levels[i];
}

// Levels and usable shares are those of the nominal device; sizes are hwloc's.
static kiln_device *begin_device(kiln_ctx *cx, const kiln_machine *m, const kiln_topology *t) {
  kiln_device *d = KILN_NEW(&cx->perm, kiln_device);
  *d = *kiln_device_make_nominal(cx, m);
  for (int i = 0; i < t->n_caches; i++) {
    const kiln_hardware_cache *c = &t->caches[i];
    char name[8] = {'L', (char)('0' + c->level % 10), 0};
    kiln_mem_level *l = level_named(d, name);
    if (!l) continue;
    l->capacity_bytes = c->bytes;
    l->transaction_bytes = c->line_bytes;
    l->n_sharing = c->n_sharing;
  }
  d->is_measured = true;
  return d;
}

// The size of an array that fits in level |i| and in no faster one, when |n_at_once| cores use it:
// half of the usable share, but more than the faster level holds.
static int64_t array_bytes(const bench *b, int i, int n_at_once) {
  const kiln_device *d = b->d;
  const kiln_mem_level *l = &d->levels[i];
  if (i == 0) return b->region_bytes / n_at_once;
  const int n_sharing = l->n_sharing < n_at_once ? l->n_sharing : n_at_once;
  int64_t bytes = (int64_t)((double)l->capacity_bytes * l->usable) / n_sharing;
  if (l->n_sharing > 1) bytes /= 2; // other cores may use part of it
  if (i + 2 < d->n_levels) bytes = max_int(bytes, d->levels[i + 1].capacity_bytes * 3 / 2);
  return bytes / PAGE * PAGE;
}

static void add_trial(bench *b, kiln_probe_kind kind, int64_t bytes, bool on_all, double *out) {
  const size_t at = (size_t)((char *)out - (char *)b->d);
  b->trials[b->n++] = (trial){{.kind = kind, .bytes = bytes}, on_all, at};
}

static void add_trials(bench *b) {
  kiln_device *d = b->d;
  const int n = b->n_threads;
  for (int i = 0; i + 1 < d->n_levels; i++) {
    kiln_mem_level *l = &d->levels[i];
    const int64_t one = array_bytes(b, i, 1), each = array_bytes(b, i, n);
    add_trial(b, KILN_PROBE_READ, one, false, &l->unit_bytes_ns);
    add_trial(b, KILN_PROBE_READ, each, true, &l->all_bytes_ns);
    add_trial(b, KILN_PROBE_COPY, one, false, &l->copy_unit_bytes_ns);
    add_trial(b, KILN_PROBE_COPY, each, true, &l->copy_all_bytes_ns);
  }
  static const kiln_probe_kind kinds[] = {[KILN_PEAK_F32] = KILN_PROBE_F32,
                                          [KILN_PEAK_BF16] = KILN_PROBE_BF16,
                                          [KILN_PEAK_INT8] = KILN_PROBE_INT8};
  for (int i = 0; i < KILN_N_PEAKS; i++) {
    add_trial(b, kinds[i], 0, false, &d->unit_flops_ns[i]);
    add_trial(b, kinds[i], 0, true, &d->all_flops_ns[i]);
  }
}

// --- memory ---

static char *map_memory(int64_t bytes) {
  char *p = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return p == MAP_FAILED ? NULL : p;
}

static void fill_part(void *argument, size_t i) {
  const bench *b = argument;
  float *part = (float *)(void *)(b->region + (int64_t)i * b->part_bytes);
  float *pages = (float *)(void *)(b->pages + (int64_t)i * 2 * PAGE);
  for (int64_t k = 0; k < b->part_bytes / 4; k++) part[k] = 1;
  for (int64_t k = 0; k < PAGE / 4; k++) pages[k] = 0, pages[PAGE / 4 + k] = 1;
}

static kiln_status make_memory(bench *b) {
  const int i = kiln_device_level(b->d, "L3");
  const int64_t last = b->d->levels[i < 0 ? kiln_device_level(b->d, "L2") : i].capacity_bytes;
  b->part_bytes = max_int(MIN_REGION, 4 * last) / b->n_threads / HUGE_PAGE * HUGE_PAGE;
  b->part_bytes = max_int(b->part_bytes, HUGE_PAGE);
  for (int k = 1; k + 1 < b->d->n_levels; k++) // arrays of smaller levels are in the same parts
    b->part_bytes = max_int(b->part_bytes, array_bytes(b, k, b->n_threads));
  b->region_bytes = b->part_bytes * b->n_threads;
  b->map_bytes = b->region_bytes + HUGE_PAGE;
  b->map = map_memory(b->map_bytes);
  b->pages = map_memory((int64_t)b->n_threads * 2 * PAGE);
  if (!b->map || !b->pages)
    return KILN_FAIL(b->cx->diag, KILN_NO_MEMORY, "device",
                     "measuring needs %" PRId64 " MB, and the system does not give them",
                     b->map_bytes >> 20);
  b->region = b->map + (-(uintptr_t)b->map & (HUGE_PAGE - 1));
  (void)madvise(b->region, (size_t)b->region_bytes, MADV_HUGEPAGE); // as for a session's arena
  return KILN_OK;
}

// --- latency ---

// Links the lines of |bytes| at |base| into one random ring, which no prefetcher can predict: a
// full-period generator over the lines.
static void link_lines(char *base, int64_t n_lines) {
  uint64_t at = 0;
  for (int64_t i = 0; i < n_lines; i++) {
    const uint64_t random = at * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    const uint64_t next = random & (uint64_t)(n_lines - 1);
    char *to = base + next * LINE;
    memcpy(base + at * LINE, &to, sizeof to);
    at = next;
  }
}

static char *volatile chase_end; // keeps the compiler from removing the chase

static double chase_ns(char *base, int64_t steps) {
  char *at = base;
  const double start = now_ns();
  for (int64_t i = 0; i < steps; i++) memcpy(&at, (const void *)at, sizeof(char *));
  const double ns = now_ns() - start;
  chase_end = at;
  return ns / (double)steps;
}

static double latency_ns(bench *b, int64_t bytes) {
  enum { REPEATS = 20, MAX_STEPS = 1 << 16 };
  int64_t n_lines = 1;
  while (n_lines * 2 * LINE <= bytes) n_lines *= 2;
  link_lines(b->region, n_lines);
  double best = 1e9;
  for (int i = 0; i < REPEATS; i++)
    best = min_real(best, chase_ns(b->region, n_lines < MAX_STEPS / 2 ? 2 * n_lines : MAX_STEPS));
  return best;
}

// A virtual machine is shown a whole cache but shares it with others: the usable share is the part
// that responds with the cache's latency; the border is the geometric mean of its latency and
// memory's.
//
// gives: *usable, if greater than before
static void find_usable(bench *b, int i, double *usable) {
  kiln_mem_level *l = &b->d->levels[i];
  const int64_t least = 2 * b->d->levels[i + 1].capacity_bytes;
  const double here = latency_ns(b, 2 * least), memory = b->d->levels[0].latency_ns;
  int64_t bytes = l->capacity_bytes;
  l->latency_ns = min_real(l->latency_ns, here);
  while (bytes > least) {
    const double ns = latency_ns(b, bytes);
    if (ns * ns < here * memory) break;
    bytes /= 2;
  }
  *usable = max_real(*usable, min_real(l->usable, (double)bytes / (double)l->capacity_bytes));
}

// Repeated several times, so that other load spoils single measurements only.
static void measure_latencies(bench *b) {
  enum { TIMES = 3 };
  kiln_device *d = b->d;
  double usable[KILN_MAX_LEVELS] = {0};
  for (int i = 0; i + 1 < d->n_levels; i++) d->levels[i].latency_ns = 1e9;
  for (int time = 0; time < TIMES; time++)
    for (int i = 0; i + 1 < d->n_levels; i++) {
      kiln_mem_level *l = &d->levels[i];
      if (i > 0 && l->n_sharing > 1 && i + 2 < d->n_levels) find_usable(b, i, &usable[i]);
      else l->latency_ns = min_real(l->latency_ns, latency_ns(b, array_bytes(b, i, 1)));
    }
  for (int i = 0; i + 1 < d->n_levels; i++)
    if (usable[i] > 0) d->levels[i].usable = usable[i];
}

// --- rounds ---

typedef struct job {
  const bench *b;
  kiln_kernel_fn run;
} job;

static void run_part(void *argument, size_t i) {
  const job *j = argument;
  char *pages = j->b->pages + (int64_t)i * 2 * PAGE;
  char *const args[] = {j->b->region + (int64_t)i * j->b->part_bytes, pages, pages + PAGE};
  j->run(args, 0, 1);
}

static void run_trial(bench *b, const trial *t) {
  job j = {b, t->probe.run};
  const int n = t->on_all ? b->n_threads : 1;
  double best = 0;
  memcpy(&best, (const char *)b->d + t->out, sizeof best);
  for (int i = 0; i < CALLS; i++) {
    const double start = now_ns();
    kiln_pool_run(b->pool, run_part, &j, (size_t)n);
    best = max_real(best, n * t->probe.work / (now_ns() - start));
  }
  memcpy((char *)b->d + t->out, &best, sizeof best);
}

// The time of starting |n| threads with an empty task.
static void run_starts(bench *b, kiln_kernel_fn nothing, int n, double *best_ns) {
  job j = {b, nothing};
  const double start = now_ns();
  for (int i = 0; i < STARTS; i++) kiln_pool_run(b->pool, run_part, &j, (size_t)n);
  *best_ns = min_real(*best_ns, (now_ns() - start) / STARTS);
}

static kiln_status compile(bench *b, kiln_kernel_fn *out_nothing) {
  kiln_probe probes[MAX_TRIALS + 1] = {0};
  for (int i = 0; i < b->n; i++) probes[i] = b->trials[i].probe;
  probes[b->n] = (kiln_probe){.kind = KILN_PROBE_NOTHING};
  KILN_TRY(kiln_probes_compile(b->cx, b->m, b->n + 1, probes, &b->jit));
  for (int i = 0; i < b->n; i++) b->trials[i].probe = probes[i];
  *out_nothing = probes[b->n].run;
  return KILN_OK;
}

static void run_rounds(bench *b, const kiln_measure_options *o, kiln_kernel_fn nothing,
                       int passes) {
  const int rounds = o->n_rounds > 0 ? o->n_rounds : ROUNDS;
  for (int round = 0; round < rounds; round++) {
    if (o->on_round) o->on_round(o->user, b->n_passes * rounds + round, passes * rounds);
    for (int i = 0; i < b->n; i++)
      if (b->trials[i].probe.run) run_trial(b, &b->trials[i]);
    run_starts(b, nothing, 1, &b->d->launch_ns);
    run_starts(b, nothing, b->n_threads, &b->d->fork_ns);
  }
}

// --- passes ---

static void fill_all(bench *b) { // first touch by the thread that uses it
  kiln_pool_run(b->pool, fill_part, b, (size_t)b->n_threads);
}

// Clears all figures; sizes of the arrays stay those of the first pass.
static void begin_pass(bench *b) {
  b->d = &b->passes[b->n_passes];
  *b->d = *b->levels;
  fill_all(b);
  measure_latencies(b);
  fill_all(b);
}

static void forget_figures(bench *b) {
  const double none = 0;
  for (int i = 0; i < b->n; i++) memcpy((char *)b->d + b->trials[i].out, &none, sizeof none);
  b->d->launch_ns = b->d->fork_ns = 1e9;
}

static void say_doubt(const bench *b, const kiln_doubt *doubt) {
  kiln_diag_warn(
      b->cx->diag, "device",
      "%s, %s: the best of %d measurements must be within a factor of %.2g of each other, got %.4g "
      "and %.4g: something else is running; `kiln device --measure` measures again",
      doubt->level, doubt->figure, b->n_passes, doubt->tolerance, doubt->best, doubt->next);
}

// Repeats passes until the best two agree in every figure, or the limit is reached.
static kiln_status run_passes(bench *b, const kiln_measure_options *o, kiln_device *out) {
  const int most = o->n_passes > 0 ? o->n_passes : MAX_PASSES;
  kiln_kernel_fn nothing = NULL;
  kiln_doubt doubt = {0};
  while (b->n_passes < most && (b->n_passes < MIN_PASSES || doubt.level)) {
    begin_pass(b);
    if (b->n_passes == 0) {
      add_trials(b);
      KILN_TRY(compile(b, &nothing));
    }
    forget_figures(b);
    run_rounds(b, o, nothing, b->n_passes < MIN_PASSES ? MIN_PASSES : b->n_passes + 1);
    b->n_passes++;
    kiln_device_take_best(b->n_passes, b->passes, out, &doubt);
  }
  if (o->on_round) o->on_round(o->user, 1, 1);
  if (doubt.level) say_doubt(b, &doubt);
  return KILN_OK;
}

static kiln_status measure(bench *b, const kiln_measure_options *o, kiln_device *out) {
  KILN_TRY(kiln_pool_create(b->n_threads, 0, KILN_POOL_SPIN_NS, b->cx->diag, &b->pool));
  KILN_TRY(make_memory(b));
  kiln_pool_begin(b->pool);
  return run_passes(b, o, out);
}

// If the best of several threads' figures is below that of one thread, the difference is noise: use
// one thread's.
static void finish_device(kiln_device *d) {
  for (int i = 0; i + 1 < d->n_levels; i++) {
    kiln_mem_level *l = &d->levels[i];
    l->all_bytes_ns = max_real(l->all_bytes_ns, l->unit_bytes_ns);
    l->copy_all_bytes_ns = max_real(l->copy_all_bytes_ns, l->copy_unit_bytes_ns);
  }
  for (int i = 0; i < KILN_N_PEAKS; i++)
    d->all_flops_ns[i] = max_real(d->all_flops_ns[i], d->unit_flops_ns[i]);
}

static void drop(void *object) {
  bench *b = object;
  kiln_pool_destroy(b->pool);
  if (b->jit) kiln_jit_destroy(b->jit);
  if (b->map) munmap(b->map, (size_t)b->map_bytes);
  if (b->pages) munmap(b->pages, (size_t)b->n_threads * 2 * PAGE);
}

// All cores, if this process may run on all of them.
static int usable_cores(kiln_ctx *cx, const kiln_machine *m) {
  const int n = kiln_cpu_cores();
  if (n < m->n_cores)
    kiln_diag_warn(cx->diag, "device",
                   "cores: this process should be allowed to run on all %d, got %d: figures of "
                   "all cores are measured on those",
                   m->n_cores, n);
  return n < m->n_cores ? n : m->n_cores;
}

kiln_status kiln_device_measure(kiln_ctx *cx, const kiln_machine *m, const kiln_topology *t,
                                const kiln_measure_options *options, const kiln_device **out) {
  bench *b = KILN_NEW(&cx->perm, bench);
  b->cx = cx;
  b->m = m;
  kiln_device *d = KILN_NEW(&cx->perm, kiln_device);
  b->levels = begin_device(cx, m, t);
  b->passes = KILN_NEW_ARRAY(&cx->perm, kiln_device, MAX_PASSES);
  b->d = &b->passes[0];
  *b->d = *b->levels;
  b->n_threads = options->n_threads > 0 ? options->n_threads : usable_cores(cx, m);
  *out = NULL;
  kiln_cleanup_push(cx, drop, b);
  const kiln_status st = measure(b, options, d);
  kiln_cleanup_pop(cx);
  drop(b);
  if (st != KILN_OK) return st;
  finish_device(d);
  *out = d;
  return KILN_OK;
}
