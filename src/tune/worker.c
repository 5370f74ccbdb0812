// The worker process, from the compiler's side.
#include "tune/worker.h"

#include "support/status.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <inttypes.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PATH_ROOM = 4096, SLICE_MS = 20, ALIGN = 256, LIMIT_MS = 20000 };
static const char PLACE[] = "kiln-worker";
static const char *const places[] = {"kiln-worker", KILN_WORKER_FROM_HERE,
                                     "../libexec/kiln/kiln-worker",
                                     "../bin/kiln-worker"}; // relative to this library

struct kiln_worker {
  kiln_worker_options options;
  char program[PATH_ROOM];
  pid_t child; // 0: none is running
  int orders, answers, memory_fd;
  char *memory;
  uint64_t memory_bytes;
  kiln_worker_device device;
  kiln_worker_order order;
  kiln_worker_launch launches[KILN_WORKER_MAX_NESTS];
  kiln_worker_reply reply;
};

static double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static bool is_stopped(const kiln_worker *w) { return w->options.stop && *w->options.stop; }

static kiln_status no_memory(kiln_diag *diag) {
  return KILN_FAIL(diag, KILN_NO_MEMORY, PLACE, "no memory left");
}

// --- starting and ending ---

// gives: false if the program does not exist
static bool find_program(char *out) {
  const char *asked = getenv("KILN_WORKER");
  Dl_info own;
  if (asked && *asked) return snprintf(out, PATH_ROOM, "%s", asked) < PATH_ROOM;
  if (!dladdr(&PLACE, &own) || !own.dli_fname) return false;
  const char *slash = strrchr(own.dli_fname, '/');
  for (size_t i = 0; i < KILN_LEN(places); i++) {
    const int n = slash ? (int)(slash - own.dli_fname) : 1;
    const char *folder = slash ? own.dli_fname : ".";
    if (snprintf(out, PATH_ROOM, "%.*s/%s", n, folder, places[i]) < PATH_ROOM &&
        access(out, X_OK) == 0)
      return true;
  }
  return false;
}

static void close_pipes(kiln_worker *w) {
  if (w->orders >= 0) close(w->orders);
  if (w->answers >= 0) close(w->answers);
  w->orders = w->answers = -1;
}

// Kills the process.
//
// gives: its status from waitpid; 0 if there was none
static int end_child(kiln_worker *w) {
  int status = 0;
  if (w->child > 0) {
    kill(w->child, SIGKILL);
    while (waitpid(w->child, &status, 0) < 0 && errno == EINTR) continue;
  }
  w->child = 0;
  close_pipes(w);
  return status;
}

// The pipes' descriptors are first moved above those that the child gets, so that dup2 overwrites
// none of them.
static int spawn(kiln_worker *w, int orders, int answers) {
  char number[16];
  const char *driver = w->options.kind == KILN_PLAN_CUDA ? "cuda" : "opencl";
  char *argv[] = {w->program, (char *)(uintptr_t)driver, number, NULL};
  posix_spawn_file_actions_t files;
  posix_spawnattr_t how;
  sigset_t none;
  snprintf(number, sizeof number, "%" PRId32, w->options.device);
  sigemptyset(&none);
  posix_spawn_file_actions_init(&files);
  posix_spawnattr_init(&how);
  posix_spawnattr_setpgroup(&how, 0); // own process group: Ctrl-C reaches only this process
  posix_spawnattr_setsigmask(&how, &none);
  posix_spawnattr_setflags(&how, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
  for (int fd = 0; fd < 3; fd++)
    posix_spawn_file_actions_addopen(&files, fd, "/dev/null", O_RDWR, 0);
  posix_spawn_file_actions_adddup2(&files, w->memory_fd, KILN_WORKER_MEMORY_FD);
  posix_spawn_file_actions_adddup2(&files, orders, KILN_WORKER_ORDERS_FD);
  posix_spawn_file_actions_adddup2(&files, answers, KILN_WORKER_ANSWERS_FD);
  const int failed = posix_spawn(&w->child, w->program, &files, &how, argv, environ);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&how);
  if (failed) w->child = 0;
  return failed;
}

// Duplicates a descriptor to a number above those that the child gets.
static int lift(int fd) {
  const int lifted = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 16);
  if (fd >= 0) close(fd);
  return lifted;
}

static kiln_status start_child(kiln_worker *w, kiln_diag *diag) {
  int down[2] = {-1, -1}, up[2] = {-1, -1}, failed = 0;
  if (pipe2(down, O_CLOEXEC) != 0 || pipe2(up, O_CLOEXEC) != 0) failed = errno;
  for (int i = 0; i < 2; i++) {
    down[i] = lift(down[i]);
    up[i] = lift(up[i]);
    if (!failed && (down[i] < 0 || up[i] < 0)) failed = errno;
  }
  if (!failed) failed = spawn(w, down[0], up[1]);
  if (down[0] >= 0) close(down[0]);
  if (up[1] >= 0) close(up[1]);
  w->orders = down[1];
  w->answers = up[0];
  if (!failed) return KILN_OK;
  close_pipes(w);
  return KILN_FAIL(diag, KILN_DEVICE_ERROR, w->program, "program: must start, got: %s",
                   strerror(failed));
}

// --- frames ---

typedef enum heard { HEARD, LATE, GONE, STOPPED } heard;

// Waits in short slices, so that |stop| is noticed soon.
static heard read_some(kiln_worker *w, void *to, size_t bytes, double end) {
  char *at = to;
  while (bytes > 0) {
    struct pollfd p = {.fd = w->answers, .events = POLLIN};
    if (is_stopped(w)) return STOPPED;
    if (now_ms() > end) return LATE;
    if (poll(&p, 1, SLICE_MS) <= 0) continue;
    const ssize_t n = read(w->answers, at, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return GONE;
    at += n;
    bytes -= (size_t)n;
  }
  return HEARD;
}

static heard read_reply(kiln_worker *w) {
  const double end = now_ms() + w->options.limit_ms;
  kiln_worker_frame f;
  const heard h = read_some(w, &f, sizeof f, end);
  if (h != HEARD) return h;
  if (f.magic != KILN_WORKER_MAGIC || f.bytes != sizeof w->reply) return GONE;
  return read_some(w, &w->reply, sizeof w->reply, end);
}

// Writes with SIGPIPE blocked in this thread: the worker may have died.
static bool write_all(const kiln_worker *w, const void *from, size_t bytes) {
  const char *at = from;
  sigset_t pipe_signal, before, pending;
  sigemptyset(&pipe_signal);
  sigaddset(&pipe_signal, SIGPIPE);
  sigpending(&pending);
  pthread_sigmask(SIG_BLOCK, &pipe_signal, &before);
  bool right = true;
  while (bytes > 0 && right) {
    const ssize_t n = write(w->orders, at, bytes);
    if (n < 0 && errno == EINTR) continue;
    right = n > 0;
    if (!right) break;
    at += n;
    bytes -= (size_t)n;
  }
  const struct timespec now = {0};
  if (!right && !sigismember(&pending, SIGPIPE)) sigtimedwait(&pipe_signal, NULL, &now);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return right;
}

// --- the device ---

static kiln_status open_device(kiln_worker *w, kiln_diag *diag) {
  KILN_TRY(start_child(w, diag));
  const heard h = read_reply(w);
  if (h == HEARD && w->reply.status == KILN_OK) {
    w->device = w->reply.device;
    return KILN_OK;
  }
  const bool says_why = h == HEARD;
  const int status = end_child(w);
  if (says_why) return KILN_FAIL(diag, KILN_DEVICE_ERROR, PLACE, "%s", w->reply.message);
  return KILN_FAIL(diag, KILN_DEVICE_ERROR, w->program,
                   "program: must open the device, it %s (status %d)",
                   h == LATE      ? "took too long"
                   : h == STOPPED ? "was interrupted"
                                  : "ended",
                   status);
}

static kiln_status make_memory(kiln_worker *w, uint64_t bytes, kiln_diag *diag) {
  if (bytes <= w->memory_bytes) return KILN_OK;
  if (w->memory) munmap(w->memory, w->memory_bytes);
  w->memory = NULL;
  w->memory_bytes = 0;
  if (ftruncate(w->memory_fd, (off_t)bytes) != 0) return no_memory(diag);
  void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, w->memory_fd, 0);
  if (map == MAP_FAILED) return no_memory(diag);
  w->memory = map;
  w->memory_bytes = bytes;
  return KILN_OK;
}

kiln_status kiln_worker_create(const kiln_worker_options *options, kiln_diag *diag,
                               kiln_worker **out) {
  kiln_worker *w = calloc(1, sizeof *w);
  *out = NULL;
  if (!w) return no_memory(diag);
  w->options = *options;
  w->orders = w->answers = -1;
  if (w->options.limit_ms <= 0) w->options.limit_ms = LIMIT_MS;
  w->memory_fd = lift(memfd_create(PLACE, MFD_CLOEXEC));
  kiln_status st = KILN_OK;
  if (w->memory_fd < 0) st = no_memory(diag);
  else if (!find_program(w->program))
    st = KILN_FAIL(diag, KILN_DEVICE_ERROR, PLACE,
                   "program: must be next to the library or named by $KILN_WORKER, got none");
  if (st == KILN_OK) st = open_device(w, diag);
  if (st == KILN_OK) *out = w;
  else kiln_worker_destroy(w);
  return st;
}

void kiln_worker_destroy(kiln_worker *w) {
  if (!w) return;
  end_child(w);
  if (w->memory) munmap(w->memory, w->memory_bytes);
  if (w->memory_fd >= 0) close(w->memory_fd);
  free(w);
}

const kiln_worker_device *kiln_worker_device_of(const kiln_worker *w) { return &w->device; }

// --- orders ---

static uint64_t place(kiln_worker_place *p, uint64_t at, uint64_t bytes) {
  *p = (kiln_worker_place){.offset = at, .bytes = bytes};
  return at + (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static kiln_status lay_out(kiln_worker *w, const kiln_worker_task *t, kiln_diag *diag) {
  kiln_worker_order *o = &w->order;
  *o = (kiln_worker_order){.flush_bytes = t->flush_bytes,
                           .budget_ms = t->budget_ms,
                           .hopeless_us = t->hopeless_us,
                           .n_args = (uint32_t)t->n_args,
                           .n_nests = (uint32_t)t->n_nests,
                           .most_runs = (uint32_t)t->most_runs};
  snprintf(o->backend, sizeof o->backend, "%s", t->backend ? t->backend : "");
  snprintf(o->call, sizeof o->call, "%s", t->call ? t->call : "");
  uint64_t bytes = place(&o->code, 0, t->code_bytes + 1); // includes the terminating NUL
  for (int i = 0; i < t->n_args; i++) {
    bytes = place(&o->args[i], bytes, t->args[i].bytes);
    o->args[i].is_result = t->args[i].is_result;
  }
  o->code.bytes = t->code_bytes;
  KILN_TRY(make_memory(w, bytes, diag));
  o->memory_bytes = w->memory_bytes;
  if (t->code_bytes) memcpy(w->memory, t->code, t->code_bytes);
  w->memory[t->code_bytes] = 0;
  for (int i = 0; i < t->n_args; i++)
    memcpy(w->memory + o->args[i].offset, t->args[i].data, t->args[i].bytes);
  return KILN_OK;
}

static void describe(kiln_worker *w, const kiln_worker_task *t) {
  for (int k = 0; k < t->n_nests; k++) {
    const kiln_worker_nest *n = &t->nests[k];
    kiln_worker_launch *l = &w->launches[k];
    memset(l, 0, sizeof *l);
    snprintf(l->function, sizeof l->function, "%s", n->function);
    memcpy(l->grid, n->grid, sizeof l->grid);
    memcpy(l->block, n->block, sizeof l->block);
    l->shared_bytes = n->shared_bytes;
    l->n_args = (uint32_t)n->n_args;
    l->n_maps = (uint32_t)n->n_maps;
    if (n->n_maps > 0) memcpy(l->maps, n->maps, (size_t)n->n_maps * sizeof *l->maps);
    for (int i = 0; i < n->n_args; i++) l->args[i] = (uint32_t)n->args[i];
  }
}

static bool send(kiln_worker *w) {
  const size_t launches = w->order.n_nests * sizeof *w->launches;
  const kiln_worker_frame f = {KILN_WORKER_MAGIC, (uint32_t)(sizeof w->order + launches)};
  return write_all(w, &f, sizeof f) && write_all(w, &w->order, sizeof w->order) &&
         write_all(w, w->launches, launches);
}

static void say_how_lost(heard h, int status, kiln_worker_answer *out) {
  const size_t room = sizeof out->message;
  if (h == LATE) snprintf(out->message, room, "gave no answer in time");
  else if (WIFSIGNALED(status))
    snprintf(out->message, room, "ended by signal %d: %s", WTERMSIG(status),
             strsignal(WTERMSIG(status)));
  else snprintf(out->message, room, "ended with status %d", WEXITSTATUS(status));
}

static int by_value(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void take_answer(kiln_worker *w, const kiln_worker_task *t, kiln_worker_answer *out) {
  kiln_worker_reply *r = &w->reply;
  if (r->status != KILN_OK || r->n_runs > KILN_WORKER_MAX_RUNS) {
    out->outcome = KILN_WORKER_REFUSED;
    r->message[sizeof r->message - 1] = 0;
    memcpy(out->message, r->message, sizeof out->message);
    if (r->status == KILN_DEVICE_ERROR) end_child(w);
    return;
  }
  qsort(r->us, r->n_runs, sizeof *r->us, by_value);
  out->outcome = KILN_WORKER_MEASURED;
  out->us = r->n_runs > 0 ? r->us[r->n_runs / 2] : 0;
  out->n_runs = (int)r->n_runs;
  for (int i = 0; i < t->n_args; i++)
    if (t->args[i].is_result)
      memcpy(t->args[i].data, w->memory + w->order.args[i].offset, t->args[i].bytes);
}

kiln_status kiln_worker_run(kiln_worker *w, const kiln_worker_task *task, kiln_diag *diag,
                            kiln_worker_answer *out) {
  *out = (kiln_worker_answer){.outcome = KILN_WORKER_REFUSED};
  if (task->n_args > KILN_WORKER_MAX_ARGS || task->n_nests > KILN_WORKER_MAX_NESTS ||
      (task->call && strlen(task->call) >= KILN_WORKER_CALL_BYTES)) {
    snprintf(out->message, sizeof out->message,
             "more than %d arguments or %d nests, or a call of more than %d bytes",
             KILN_WORKER_MAX_ARGS, KILN_WORKER_MAX_NESTS, KILN_WORKER_CALL_BYTES - 1);
    return KILN_OK;
  }
  if (w->child == 0) KILN_TRY(open_device(w, diag));
  KILN_TRY(lay_out(w, task, diag));
  describe(w, task);
  const heard h = send(w) ? read_reply(w) : GONE;
  if (h == HEARD) {
    take_answer(w, task, out);
    return KILN_OK;
  }
  out->outcome = h == STOPPED ? KILN_WORKER_STOPPED : KILN_WORKER_LOST;
  say_how_lost(h, end_child(w), out);
  return KILN_OK;
}
