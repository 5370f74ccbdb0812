// Timed runs of concurrent sessions of one module, a thread for each, which start together.
//
//   session 0  |warm-up|wait|run|run|run|run|
//   session 1  |warm-up|....|run |run |run |
//                            ^ zero of all times
#include "timing.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { SLOW_MS = 50, FIRST_ROOM = 128 };

typedef struct worker {
  timing *all;
  size_t number;
  kiln_session *session;
  tensors outputs; // the session's own
  kiln_diag *diag;
  pthread_t thread;
  bool has_thread;
  timed_run *runs; // malloc'ed
  size_t n, room;
  bool right;
} worker;

struct timing {
  const timing_options *how;
  pthread_barrier_t ready;
  double zero_ms; // written by session 0 between the two barriers
  worker *workers;
};

static bool run(worker *w) {
  const tensors *in = w->all->how->inputs;
  return kiln_session_run(w->session, in->n, (const DLTensor *const *)in->views, w->outputs.n,
                          w->outputs.views, w->diag) == KILN_OK;
}

static bool keep(worker *w, timed_run r) {
  if (w->n == w->room) {
    const size_t room = w->room ? 2 * w->room : FIRST_ROOM;
    timed_run *more = realloc(w->runs, room * sizeof *more);
    if (!more) return false;
    w->runs = more;
    w->room = room;
  }
  w->runs[w->n++] = r;
  return true;
}

// Shows no progress during timed runs that it could disturb.
static void show_progress(const worker *w, double now) {
  const timing_options *how = w->all->how;
  if (w->number || w->runs[w->n - 1].ms < SLOW_MS) return;
  if (w->n < how->iterations) print_progress("run", w->n, how->iterations);
  else print_progress("seconds", (size_t)(now / 1e3), (size_t)(how->duration_ms / 1e3) + 1);
}

static void time_session(worker *w) {
  const timing_options *how = w->all->how;
  double now = 0;
  while (w->right && (w->n < how->iterations || now < how->duration_ms)) {
    const double start = now_ms() - w->all->zero_ms;
    w->right = run(w);
    now = now_ms() - w->all->zero_ms;
    w->right = w->right && keep(w, (timed_run){w->number, start, now - start});
    if (w->right) show_progress(w, now);
  }
  if (w->number == 0) print_progress("run", 1, 1);
}

static void *work(void *argument) {
  worker *w = argument;
  for (int64_t i = 0; w->right && i < w->all->how->warmup; i++) w->right = run(w);
  pthread_barrier_wait(&w->all->ready);
  if (w->number == 0) w->all->zero_ms = now_ms();
  pthread_barrier_wait(&w->all->ready);
  time_session(w);
  return NULL;
}

static bool open_worker(worker *w, const timing_options *how) {
  w->diag = kiln_diag_create();
  w->right = w->diag && tensors_for_outputs(how->module, how->inputs, &w->outputs) &&
             kiln_session_create(how->module, &how->session, w->diag, &w->session) == KILN_OK;
  return w->right;
}

static void close_worker(worker *w) {
  if (w->diag) print_messages(w->diag);
  kiln_session_destroy(w->session);
  tensors_free(&w->outputs);
  kiln_diag_destroy(w->diag);
  free(w->runs);
}

static int by_start(const void *a, const void *b) {
  const double x = ((const timed_run *)a)->start_ms, y = ((const timed_run *)b)->start_ms;
  return (x > y) - (x < y);
}

// Collects all sessions' runs, ordered by start.
static bool gather(const timing *t, timed *out) {
  const size_t n = t->how->sessions;
  for (size_t i = 0; i < n; i++) out->n += t->workers[i].n;
  out->runs = malloc((out->n + 1) * sizeof *out->runs);
  if (!out->runs) return false;
  timed_run *to = out->runs;
  for (size_t i = 0; i < n; i++) {
    const worker *w = &t->workers[i];
    for (size_t k = 0; k < w->n; k++) {
      const double end = w->runs[k].start_ms + w->runs[k].ms;
      if (end > out->wall_ms) out->wall_ms = end;
      *to++ = w->runs[k];
    }
  }
  qsort(out->runs, out->n, sizeof *out->runs, by_start);
  return true;
}

// The first session is opened, and runs once, alone.
static bool open_sessions(timing *t, timed *out) {
  const double start = now_ms();
  bool right = open_worker(&t->workers[0], t->how);
  const double opened = now_ms();
  right = right && run(&t->workers[0]);
  out->open_ms = opened - start;
  out->first_ms = now_ms() - opened;
  for (size_t i = 1; right && i < t->how->sessions; i++)
    right = open_worker(&t->workers[i], t->how);
  return right;
}

// If a thread cannot be started, the process ends with a message, because the others already wait
// at the barrier.
static void start_threads(timing *t) {
  for (size_t i = 1; i < t->how->sessions; i++) {
    worker *w = &t->workers[i];
    w->has_thread = pthread_create(&w->thread, NULL, work, w) == 0;
    if (w->has_thread) continue;
    fprintf(stderr,
            "kiln bench: error: --concurrency: must be threads that the system has, got "
            "%zu\n",
            t->how->sessions);
    exit(EXIT_WRONG);
  }
}

bool time_runs(const timing_options *how, timed *out) {
  timing t = {.how = how, .workers = calloc(how->sessions, sizeof *t.workers)};
  *out = (timed){0};
  for (size_t i = 0; t.workers && i < how->sessions; i++)
    t.workers[i] = (worker){.all = &t, .number = i};
  bool right = t.workers && open_sessions(&t, out) &&
               pthread_barrier_init(&t.ready, NULL, (unsigned)how->sessions) == 0;
  if (right) {
    start_threads(&t);
    work(&t.workers[0]);
    for (size_t i = 1; i < how->sessions; i++) pthread_join(t.workers[i].thread, NULL);
    pthread_barrier_destroy(&t.ready);
  }
  for (size_t i = 0; right && i < how->sessions; i++) right = t.workers[i].right;
  right = right && gather(&t, out);
  for (size_t i = 0; t.workers && i < how->sessions; i++) close_worker(&t.workers[i]);
  free(t.workers);
  return right;
}

void timed_free(timed *t) {
  free(t->runs);
  *t = (timed){0};
}
