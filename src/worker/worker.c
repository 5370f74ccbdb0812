// kiln-worker: runs kernels on a GPU and times them, for the process that started it
// (src/tune/worker.h).
//
// usage: kiln-worker cuda|opencl DEVICE       with the file descriptors of src/tune/worker.h
#include "runtime/gpu/gpu.h"
#include "tune/worker.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { FAR = 4 }; // a first run slower than this multiple of |hopeless_us| ends the measurement

typedef struct state {
  const kiln_gpu_api *api;
  kiln_gpu_context *gpu;
  kiln_gpu_stream *stream;
  kiln_gpu_event *from, *to;
  char *memory; // mapping of the memory file
  uint64_t memory_bytes;
  char *flush; // device memory for flushing caches
  uint64_t flush_bytes;
  kiln_library library; // the library called last; zeroed: none
  kiln_diag *diag;
  // Of the current order:
  kiln_worker_order order;
  kiln_worker_launch launches[KILN_WORKER_MAX_NESTS];
  char *args[KILN_WORKER_MAX_ARGS];
  kiln_gpu_image *image;
  kiln_gpu_function *functions[KILN_WORKER_MAX_NESTS];
  kiln_bound bound; // a library call instead of functions
  kiln_worker_reply reply;
} state;

static double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

// --- frames ---

static bool read_all(void *to, size_t bytes) {
  for (char *at = to; bytes > 0;) {
    const ssize_t n = read(KILN_WORKER_ORDERS_FD, at, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
    bytes -= (size_t)n;
  }
  return true;
}

static bool write_all(const void *from, size_t bytes) {
  for (const char *at = from; bytes > 0;) {
    const ssize_t n = write(KILN_WORKER_ANSWERS_FD, at, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
    bytes -= (size_t)n;
  }
  return true;
}

static bool answer(state *s, kiln_status status) {
  const kiln_worker_frame f = {KILN_WORKER_MAGIC, sizeof s->reply};
  s->reply.status = (int32_t)status;
  if (status != KILN_OK)
    snprintf(s->reply.message, sizeof s->reply.message, "%s",
             kiln_diag_count(s->diag) ? kiln_diag_message(s->diag, 0) : "no memory left");
  kiln_diag_clear(s->diag);
  return write_all(&f, sizeof f) && write_all(&s->reply, sizeof s->reply);
}

// gives: false at the end of input, or for an invalid order
static bool read_order(state *s) {
  kiln_worker_frame f;
  kiln_worker_order *o = &s->order;
  if (!read_all(&f, sizeof f) || f.magic != KILN_WORKER_MAGIC || f.bytes < sizeof *o ||
      !read_all(o, sizeof *o))
    return false;
  o->backend[sizeof o->backend - 1] = o->call[sizeof o->call - 1] = 0;
  return o->n_args <= KILN_WORKER_MAX_ARGS && o->n_nests <= KILN_WORKER_MAX_NESTS &&
         f.bytes == sizeof *o + o->n_nests * sizeof *s->launches &&
         read_all(s->launches, o->n_nests * sizeof *s->launches);
}

// Maps the file again if it has grown.
static bool map(state *s) {
  if (s->order.memory_bytes == s->memory_bytes) return true;
  if (s->memory) munmap(s->memory, s->memory_bytes);
  s->memory_bytes = s->order.memory_bytes;
  s->memory =
      mmap(NULL, s->memory_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, KILN_WORKER_MEMORY_FD, 0);
  return s->memory != MAP_FAILED;
}

// --- one order ---

static kiln_status open_library(state *s) {
  const kiln_backend *b = kiln_backend_find(s->order.backend);
  if (s->library.backend == b && b) return KILN_OK;
  kiln_library_close(&s->library);
  if (b && b->place == KILN_BACKEND_CUDA) return kiln_library_open(b, s->diag, &s->library);
  return kiln_diag_fail(s->diag, KILN_UNSUPPORTED, "kiln-worker",
                        "backend: must be one for the device, got \"%s\"", s->order.backend);
}

static bool fits(const state *s, const kiln_library_call *call) {
  uint64_t bytes[KILN_WORKER_MAX_ARGS];
  for (uint32_t i = 0; i < s->order.n_args; i++) bytes[i] = s->order.args[i].bytes;
  return kiln_library_call_fits(call, s->order.n_args, bytes);
}

static kiln_status bind(state *s) {
  char *constants[KILN_WORKER_MAX_ARGS] = {0};
  kiln_library_call call;
  if (!kiln_library_call_parse(s->order.call, &call) || !fits(s, &call))
    return kiln_diag_fail(s->diag, KILN_INTERNAL, "kiln-worker",
                          "call: must be one of its arguments, got \"%s\"", s->order.call);
  kiln_status st = kiln_gpu_enter(s->gpu, s->diag);
  if (st != KILN_OK) return st;
  st = open_library(s);
  if (st == KILN_OK) st = kiln_bound_create(&s->library, &call, 1, constants, s->diag, &s->bound);
  s->api->leave(s->gpu);
  return st;
}

static kiln_status load(state *s) {
  const kiln_worker_place *code = &s->order.code;
  if (s->order.call[0]) return bind(s);
  kiln_status st =
      s->api->load(s->gpu, s->memory + code->offset, code->bytes, "kernel", s->diag, &s->image);
  for (uint32_t k = 0; k < s->order.n_nests && st == KILN_OK; k++)
    st = s->api->find(s->gpu, s->image, s->launches[k].function, s->launches[k].shared_bytes,
                      s->diag, &s->functions[k]);
  return st;
}

static kiln_status fill(state *s) {
  kiln_status st = KILN_OK;
  for (uint32_t i = 0; i < s->order.n_args && st == KILN_OK; i++) {
    const kiln_worker_place *p = &s->order.args[i];
    st = s->api->allocate(s->gpu, p->bytes, "argument", s->diag, &s->args[i]);
    if (st == KILN_OK)
      st = s->api->copy(s->gpu, s->stream, s->args[i], s->memory + p->offset, p->bytes, s->diag);
  }
  return st == KILN_OK ? s->api->wait(s->gpu, s->stream, s->diag) : st;
}

static kiln_status make_flush(state *s) {
  if (s->order.flush_bytes == s->flush_bytes) return KILN_OK;
  s->api->free(s->gpu, s->flush);
  s->flush = NULL;
  s->flush_bytes = s->order.flush_bytes;
  return s->api->allocate(s->gpu, s->flush_bytes, "flush", s->diag, &s->flush);
}

// Copies one half of the memory to the other, which replaces the contents of all caches.
static kiln_status flush(state *s) {
  const uint64_t half = s->flush_bytes / 2;
  if (half == 0) return KILN_OK;
  return s->api->copy(s->gpu, s->stream, s->flush, s->flush + half, half, s->diag);
}

static kiln_status launch(state *s) {
  kiln_status st = KILN_OK;
  if (s->bound.n) return kiln_gpu_put_bound(s->gpu, s->stream, &s->bound, s->args, s->diag);
  for (uint32_t k = 0; k < s->order.n_nests && st == KILN_OK; k++) {
    const kiln_worker_launch *l = &s->launches[k];
    char *args[KILN_WORKER_MAX_ARGS];
    if (l->grid[0] == 0 || l->grid[1] == 0 || l->grid[2] == 0) continue;
    for (uint32_t i = 0; i < l->n_args; i++) args[i] = s->args[l->args[i]];
    const kiln_gpu_call call = {.function = s->functions[k],
                                .grid = l->grid,
                                .block = l->block,
                                .shared_bytes = l->shared_bytes,
                                .n_args = l->n_args,
                                .args = args,
                                .n_maps = l->n_maps,
                                .maps = l->maps};
    st = s->api->launch(s->gpu, s->stream, &call, s->diag);
  }
  return st;
}

static kiln_status time_run(state *s, double *out_us) {
  uint64_t ns = 0;
  kiln_status st = flush(s);
  if (st == KILN_OK) st = s->api->record(s->gpu, s->stream, s->from, s->diag);
  if (st == KILN_OK) st = launch(s);
  if (st == KILN_OK) st = s->api->record(s->gpu, s->stream, s->to, s->diag);
  if (st == KILN_OK) st = s->api->wait(s->gpu, s->stream, s->diag);
  if (st == KILN_OK) st = s->api->elapsed(s->gpu, s->from, s->to, s->diag, &ns);
  *out_us = (double)ns / 1e3;
  return st;
}

static kiln_status time_runs(state *s) {
  const double end = now_ms() + s->order.budget_ms, hopeless = s->order.hopeless_us;
  kiln_worker_reply *r = &s->reply;
  double first = 0;
  kiln_status st = time_run(s, &first);
  // Libraries load code at the first call.
  if (st == KILN_OK && s->bound.n) st = time_run(s, &first);
  if (st == KILN_OK && hopeless > 0 && first > FAR * hopeless) {
    r->us[r->n_runs++] = first;
    return KILN_OK;
  }
  for (uint32_t n = 0; n < s->order.most_runs && n < KILN_WORKER_MAX_RUNS && st == KILN_OK; n++) {
    if (n > 0 && now_ms() > end) break;
    if (n >= 2 && hopeless > 0 && r->us[0] > hopeless && r->us[1] > hopeless) break;
    st = time_run(s, &r->us[n]);
    r->n_runs += st == KILN_OK;
  }
  return st;
}

static kiln_status take_results(state *s) {
  kiln_status st = KILN_OK;
  for (uint32_t i = 0; i < s->order.n_args && st == KILN_OK; i++) {
    const kiln_worker_place *p = &s->order.args[i];
    if (p->is_result)
      st = s->api->copy(s->gpu, s->stream, s->memory + p->offset, s->args[i], p->bytes, s->diag);
  }
  return st == KILN_OK ? s->api->wait(s->gpu, s->stream, s->diag) : st;
}

static kiln_status run(state *s) {
  kiln_status st = load(s);
  if (st == KILN_OK) st = fill(s);
  if (st == KILN_OK) st = make_flush(s);
  if (st == KILN_OK) st = time_runs(s);
  return st == KILN_OK ? take_results(s) : st;
}

static void clean_up(state *s) {
  for (uint32_t k = 0; k < s->order.n_nests; k++) {
    if (s->functions[k]) s->api->forget(s->gpu, s->functions[k]);
    s->functions[k] = NULL;
  }
  s->api->unload(s->gpu, s->image);
  s->image = NULL;
  kiln_gpu_bound_deinit(s->gpu, &s->bound);
  for (uint32_t i = 0; i < s->order.n_args; i++) {
    s->api->free(s->gpu, s->args[i]);
    s->args[i] = NULL;
  }
}

// --- the process ---

static kiln_status open_device(state *s, int argc, char **argv) {
  if (argc != 3)
    return kiln_diag_fail(s->diag, KILN_BAD_INPUT, "kiln-worker",
                          "arguments: must be cuda or opencl and a number, got %d", argc - 1);
  s->api = strcmp(argv[1], "cuda") == 0 ? &kiln_cuda_api : &kiln_opencl_api;
  kiln_status st = s->api->open((int32_t)atoi(argv[2]), s->diag, &s->gpu);
  if (st == KILN_OK) st = s->api->stream(s->gpu, s->diag, &s->stream);
  if (st == KILN_OK) st = s->api->event(s->gpu, s->diag, &s->from);
  if (st == KILN_OK) st = s->api->event(s->gpu, s->diag, &s->to);
  if (st != KILN_OK) return st;
  kiln_worker_device *d = &s->reply.device;
  snprintf(d->name, sizeof d->name, "%s", s->gpu->name);
  snprintf(d->arch, sizeof d->arch, "%s", s->gpu->arch);
  snprintf(d->driver, sizeof d->driver, "%s", s->gpu->driver);
  return st;
}

// After a CUDA error all later calls may fail: the process exits, and a new one is started.
static int serve(state *s) {
  while (read_order(s)) {
    s->reply = (kiln_worker_reply){0};
    if (!map(s)) return EXIT_FAILURE;
    const kiln_status st = run(s);
    if (!answer(s, st)) return EXIT_FAILURE;
    if (st == KILN_DEVICE_ERROR) return EXIT_SUCCESS;
    clean_up(s);
  }
  return EXIT_SUCCESS;
}

// The process' exit frees device memory.
int main(int argc, char **argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  signal(SIGPIPE, SIG_IGN);
  state *s = calloc(1, sizeof *s);
  if (!s || !(s->diag = kiln_diag_create())) return EXIT_FAILURE;
  const kiln_status st = open_device(s, argc, argv);
  const bool heard = answer(s, st);
  const int code = st == KILN_OK && heard ? serve(s) : EXIT_FAILURE;
  _exit(code); // some drivers do not return from cleanup after a failed kernel
}
