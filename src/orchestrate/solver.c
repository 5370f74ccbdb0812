// Calls libCbcSolver through a table of its functions.
#include "orchestrate/solver.h"
#include "support/numbers.h"

#include <coin/Cbc_C_Interface.h>

#include <dlfcn.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define CALLS(X)                                                                                   \
  X(Cbc_newModel)                                                                                  \
  X(Cbc_deleteModel)                                                                               \
  X(Cbc_setParameter)                                                                              \
  X(Cbc_loadProblem)                                                                               \
  X(Cbc_setInteger)                                                                                \
  X(Cbc_solve)                                                                                     \
  X(Cbc_isProvenOptimal)                                                                           \
  X(Cbc_isProvenInfeasible)                                                                        \
  X(Cbc_getIterationCount)                                                                         \
  X(Cbc_numberSavedSolutions)                                                                      \
  X(Cbc_getColSolution)                                                                            \
  X(Cbc_getObjValue)                                                                               \
  X(Cbc_getBestPossibleObjValue)

// |get_threads| and |set_threads| are OpenBLAS's, if CBC is linked with it; else NULL.
typedef struct calls {
#define FIELD(name) __typeof__(&name) name;
  CALLS(FIELD)
#undef FIELD
  int (*get_threads)(void);
  void (*set_threads)(int n);
} calls;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void find_threads(void *library, calls *out) {
  void *const get = dlsym(library, "openblas_get_num_threads"), *const set = dlsym(
                                                                    library,
                                                                    "openblas_set_num_threads");
  if (!get || !set) return;
  memcpy(&out->get_threads, &get, sizeof get);
  memcpy(&out->set_threads, &set, sizeof set);
}

// The library stays loaded, like the libraries it depends on.
static bool open_calls(calls *out) {
  static const char *const names[] = {"libCbcSolver.so.3", "libCbcSolver.so"};
  void *library = NULL;
  for (int i = 0; i < 2 && !library; i++) library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
  bool all = library != NULL;
  memset(out, 0, sizeof *out);
#define LOAD(name)                                                                                 \
  if (all) {                                                                                       \
    void *const call = dlsym(library, #name);                                                      \
    memcpy(&out->name, &call, sizeof call);                                                        \
    all = call != NULL;                                                                            \
  }
  CALLS(LOAD)
#undef LOAD
  if (all) find_threads(library, out);
  return all;
}

bool kiln_solver_is_there(void) {
  calls c;
  pthread_mutex_lock(&lock);
  const bool is_there = open_calls(&c);
  pthread_mutex_unlock(&lock);
  return is_there;
}

// Estimated work of a solution with |iterations|: each iteration visits all entries. Before the
// first node (presolving, cuts, heuristics) most iterations are not counted; this is estimated as
// one visit for each column.
static double work_of(const kiln_integer_program *p, double iterations) {
  enum { ROOT = 3 };
  return (1.0 + p->begin[p->n_columns]) * ((double)ROOT * p->n_columns + iterations);
}

// CBC limits nodes rather than iterations; in large programs, where limits matter, a node takes 24
// to 34.
static int node_limit(const kiln_integer_program *p) {
  enum { ITERATIONS = 32 };
  const double node = work_of(p, ITERATIONS) - work_of(p, 0),
               fit = fmax(1, (p->work - work_of(p, 0)) / node);
  if (p->work <= 0 || (p->nodes > 0 && p->nodes < fit)) return p->nodes;
  return fit < INT_MAX ? (int)fit : 0;
}

static void set_limits(const calls *c, Cbc_Model *m, const kiln_integer_program *p) {
  char text[32];
  c->Cbc_setParameter(m, "logLevel", "0");
  c->Cbc_setParameter(m, "slogLevel", "0");
  c->Cbc_setParameter(m, "randomCbcSeed", "1");
  kiln_number_format(text, sizeof text, "%.17g", p->cutoff);
  if (isfinite(p->cutoff)) c->Cbc_setParameter(m, "cutoff", text);
  const int nodes = node_limit(p);
  snprintf(text, sizeof text, "%d", nodes);
  if (nodes > 0) c->Cbc_setParameter(m, "maxNodes", text);
  kiln_number_format(text, sizeof text, "%g", p->seconds);
  if (p->seconds > 0) c->Cbc_setParameter(m, "seconds", text);
}

static void load(const calls *c, Cbc_Model *m, const kiln_integer_program *p) {
  c->Cbc_loadProblem(m, p->n_columns, p->n_rows, p->begin, p->rows, p->entries, NULL, p->upper,
                     p->cost, p->low, p->high);
  for (int j = 0; j < p->n_columns; j++)
    if (p->is_whole[j]) c->Cbc_setInteger(m, j);
}

typedef struct moment {
  double wall, cpu;
} moment;

static double seconds_of(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static moment now(void) {
  return (moment){seconds_of(CLOCK_MONOTONIC), seconds_of(CLOCK_PROCESS_CPUTIME_ID)};
}

// CBC measures its own clock, which may start later.
static bool is_time_up(const kiln_integer_program *p, moment begin) {
  const moment end = now();
  return p->seconds > 0 && fmax(end.wall - begin.wall, end.cpu - begin.cpu) >= 0.9 * p->seconds;
}

static kiln_solved solve(const calls *c, Cbc_Model *m, const kiln_integer_program *p, double *out_x,
                         double *out_bound) {
  const moment begin = now();
  c->Cbc_solve(m);
  const bool is_best = c->Cbc_isProvenOptimal(m) != 0;
  *out_bound = 0;
  if (c->Cbc_isProvenInfeasible(m)) // CBC 2.10 also says so if time runs out in presolving
    return is_time_up(p, begin) ? KILN_SOLVED_NOTHING : KILN_SOLVED_IMPOSSIBLE;
  *out_bound = is_best ? c->Cbc_getObjValue(m) : c->Cbc_getBestPossibleObjValue(m);
  const double *x = c->Cbc_getColSolution(m);
  if (!x || (!is_best && c->Cbc_numberSavedSolutions(m) == 0)) return KILN_SOLVED_NOTHING;
  memcpy(out_x, x, sizeof(double) * (size_t)p->n_columns);
  return is_best ? KILN_SOLVED_BEST : KILN_SOLVED_FOUND;
}

// OpenBLAS gets one thread: the matrices are small, and on a busy machine its threads would spend
// far more time yielding than computing.
static int take_one_thread(const calls *c) {
  const int n = c->get_threads ? c->get_threads() : 1;
  if (n > 1) c->set_threads(1);
  return n;
}

static void give_threads(const calls *c, int n) {
  if (n > 1) c->set_threads(n);
}

kiln_solved kiln_solver_run(const kiln_integer_program *p, double *out_x, double *out_bound,
                            double *out_work) {
  calls c;
  struct sigaction before; // CBC replaces the SIGINT handler
  pthread_mutex_lock(&lock);
  kiln_solved how = KILN_SOLVED_NOTHING;
  *out_bound = *out_work = 0;
  if (open_calls(&c)) {
    const int n_threads = take_one_thread(&c);
    sigaction(SIGINT, NULL, &before);
    Cbc_Model *m = c.Cbc_newModel();
    load(&c, m, p);
    set_limits(&c, m, p);
    how = solve(&c, m, p, out_x, out_bound);
    *out_work = work_of(p, c.Cbc_getIterationCount(m));
    c.Cbc_deleteModel(m);
    sigaction(SIGINT, &before, NULL);
    give_threads(&c, n_threads);
  }
  pthread_mutex_unlock(&lock);
  return how;
}
