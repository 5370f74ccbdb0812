// A stand-in for CUDA's driver, on the CPU: images are text, "fake sm_90" and names of functions
// that this file has; streams run at once unless they are captured. It refuses calls without a
// context.
#include "fake_cuda.h"

#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
  INVALID = 1,
  OUT_OF_MEMORY = 2,
  NO_DEVICE = 100,
  NO_CONTEXT = 201,
  NO_BINARY = 209,
  NOT_FOUND = 500,
  MAX_ARGS = 8,
  MAX_DEPTH = 8
};

static fake_cuda state = {
    .n_devices = 1, .major = 9, .memory_bytes = 1 << 20, .fail_launch = -1, .version = 13000};
static _Thread_local int depth;
static size_t used;
static int takes_any; // image, whose functions copy their first argument to their second

static int add_to(int *counter, int n) { return __atomic_add_fetch(counter, n, __ATOMIC_RELAXED); }
static size_t use(size_t bytes) { return __atomic_add_fetch(&used, bytes, __ATOMIC_RELAXED); }
static int fails(void) { return state.fail_call > 0 && add_to(&state.fail_call, -1) == 0; }

fake_cuda *fake_cuda_state(void) { return &state; }

// For programs that compile what they run there.
__attribute__((constructor)) static void take_memory(void) {
  const char *bytes = getenv("FAKE_CUDA_BYTES");
  if (bytes) state.memory_bytes = strtoull(bytes, NULL, 10);
  takes_any = getenv("FAKE_CUDA_ANY") != NULL;
}

typedef struct function {
  const char *name;
  int n_args;
  void (*run)(float **args, int64_t i);
  int of; // the argument that the tensor map behind them is of, and one more; 0: there is none
} function;

static void add(float **a, int64_t i) {
  if (i < 976) a[0][i] = a[1][i] + a[2][i % 16];
}
static void scale(float **a, int64_t i) {
  if (i < 976) a[0][i] = a[1][i] * 3;
}
static void crash(float **a, int64_t i) { (void)a, (void)i, raise(SIGKILL); }
static void hang(float **a, int64_t i) {
  (void)a, (void)i;
  for (;;) pause();
}
static const function functions[] = {
    {"add", 3, add, 0}, {"scale", 2, scale, 1}, {"crash", 1, crash, 0}, {"hang", 1, hang, 0}};
static const function any = {"", 2, NULL, 0};

// Memory of the device, so that copies from and to the host can be told.
enum { MOST_MEMORIES = 4096 };
static pthread_mutex_t memories_lock = PTHREAD_MUTEX_INITIALIZER;
static const char *memories[MOST_MEMORIES];

static void replace(const char *from, const char *to) {
  pthread_mutex_lock(&memories_lock);
  int i = 0;
  while (i < MOST_MEMORIES && memories[i] != from) i++;
  if (i < MOST_MEMORIES) memories[i] = to;
  pthread_mutex_unlock(&memories_lock);
}
// From |at| to the end of the memory that it is in; 0: it is the host's.
static size_t rest_of(const char *at) {
  size_t rest = 0;
  pthread_mutex_lock(&memories_lock);
  for (int i = 0; i < MOST_MEMORIES && !rest; i++) {
    const char *begin = memories[i];
    const char *end = begin ? begin + 256 + *(const size_t *)(const void *)begin : NULL;
    if (begin && at >= begin && at < end) rest = (size_t)(end - at);
  }
  pthread_mutex_unlock(&memories_lock);
  return rest;
}

// Something put into a stream: a launch, a library's work, or a copy of rows.
typedef struct operation {
  struct operation *next;
  const function *function;
  int64_t threads;
  float *args[MAX_ARGS];
  void (*work)(void *data);
  void *data; // its own
  char *to;
  const char *from;
  size_t width, height, from_pitch, to_pitch;
} operation;

typedef struct stream {
  int captures;
  operation *first, **end;
} stream;

static void copy_first(float **args) {
  const size_t from = rest_of((char *)args[0]), to = rest_of((char *)args[1]);
  memmove(args[1], args[0], from < to ? from : to);
}

static void run(const operation *o) {
  float *args[MAX_ARGS];
  memcpy(args, o->args, sizeof args);
  if (o->work) o->work(o->data);
  else if (o->function == &any) copy_first(args);
  else if (o->function)
    for (int64_t i = 0; i < o->threads; i++) o->function->run(args, i);
  else
    for (size_t row = 0; row < o->height; row++)
      memcpy(o->to + row * o->to_pitch, o->from + row * o->from_pitch, o->width);
}

static int put(stream *s, const operation *o) {
  if (depth == 0) return NO_CONTEXT;
  if (!s->captures) {
    run(o);
    return 0;
  }
  operation *kept = malloc(sizeof *kept);
  *kept = *o;
  kept->next = NULL;
  *s->end = kept;
  s->end = &kept->next;
  return 0;
}

int fake_cuda_is_entered(void) { return depth > 0; }
int fake_cuda_put(void *s, void (*work)(void *), void *data) {
  const operation o = {.work = work, .data = data};
  const int is_kept = ((stream *)s)->captures, e = put(s, &o);
  if (e || !is_kept) free(data);
  return e;
}

static int make(void **out, size_t bytes) {
  if (depth == 0) return NO_CONTEXT;
  if (fails()) return INVALID;
  *out = calloc(1, bytes);
  add_to(&state.live, 1);
  return 0;
}

static int drop(void *object) {
  if (depth == 0) return NO_CONTEXT;
  free(object);
  add_to(&state.live, -1);
  return 0;
}

int cuInit(unsigned flags) { return flags || fails() ? INVALID : state.n_devices ? 0 : NO_DEVICE; }
int cuGetErrorName(int error, const char **out) {
  *out = error == INVALID ? "CUDA_ERROR_INVALID_VALUE" : "CUDA_ERROR_OTHER";
  return 0;
}
int cuGetErrorString(int error, const char **out) {
  *out = error == INVALID ? "invalid argument" : "another error";
  return 0;
}
int cuDriverGetVersion(int *out) { return *out = state.version, 0; }
int cuDeviceGetCount(int *out) { return *out = state.n_devices, 0; }
int cuDeviceGet(int *out, int ordinal) { return *out = ordinal, 0; }
int cuDeviceGetName(char *out, int n, int device) {
  snprintf(out, (size_t)n, "Fake %d", device);
  return 0;
}
int cuDeviceGetAttribute(int *out, int attribute, int device) {
  (void)device;
  *out = attribute == 75 ? state.major : state.minor;
  return 0;
}
int cuDevicePrimaryCtxRetain(void **out, int device) {
  (void)device;
  if (fails()) return INVALID;
  *out = &state;
  add_to(&state.live, 1);
  return 0;
}
int cuDevicePrimaryCtxRelease_v2(int device) { return (void)device, add_to(&state.live, -1), 0; }
int cuCtxPushCurrent_v2(void *context) { return context ? depth++, 0 : INVALID; }
int cuCtxPopCurrent_v2(void **out) { return *out = &state, depth--, 0; }
int cuMemGetInfo_v2(size_t *out_free, size_t *out_total) {
  *out_total = state.memory_bytes;
  *out_free = state.memory_bytes - used;
  return depth ? 0 : NO_CONTEXT;
}

// Each begins with its size.
int cuMemAlloc_v2(uint64_t *out, size_t bytes) {
  void *memory = NULL;
  if (bytes > state.memory_bytes - used) return OUT_OF_MEMORY;
  const int e = make(&memory, bytes + 256);
  if (e) return e;
  use(*(size_t *)memory = bytes);
  replace(NULL, memory);
  *out = (uint64_t)(uintptr_t)memory + 256;
  return 0;
}
int cuMemFree_v2(uint64_t memory) {
  char *begin = (char *)(uintptr_t)memory - 256;
  use(-*(size_t *)(void *)begin);
  replace(begin, NULL);
  return drop(begin);
}
int cuMemHostAlloc(void **out, size_t bytes, unsigned flags) {
  return flags ? INVALID : make(out, bytes);
}
int cuMemFreeHost(void *memory) { return drop(memory); }

int cuMemcpyAsync(uint64_t to, uint64_t from, size_t bytes, void *s) {
  const operation o = {.to = (char *)(uintptr_t)to,
                       .from = (const char *)(uintptr_t)from,
                       .width = bytes,
                       .height = 1};
  if (fails()) return INVALID;
  if (!((stream *)s)->captures) {
    add_to(&state.copies, 1);
    if (!rest_of(o.to) || !rest_of(o.from)) add_to(&state.host_copies, 1);
  }
  return put(s, &o);
}

typedef struct copy_2d {
  size_t from_x, from_y;
  int from_type;
  const void *from_host;
  uint64_t from;
  void *from_array;
  size_t from_pitch;
  size_t to_x, to_y;
  int to_type;
  void *to_host;
  uint64_t to;
  void *to_array;
  size_t to_pitch;
  size_t width, height;
} copy_2d;

int cuMemcpy2DAsync_v2(const copy_2d *c, void *s) {
  const operation o = {.to = (char *)(uintptr_t)c->to,
                       .from = (const char *)(uintptr_t)c->from,
                       .width = c->width,
                       .height = c->height,
                       .from_pitch = c->from_pitch,
                       .to_pitch = c->to_pitch};
  if (c->from_type != 4 || c->to_type != 4 || c->from_pitch < c->width || c->to_pitch < c->width)
    return INVALID;
  return put(s, &o);
}

int cuMemsetD8Async(uint64_t at, unsigned char value, size_t bytes, void *s) {
  static const char zeros[1];
  const operation o = {
      .to = (char *)(uintptr_t)at, .from = zeros, .width = 1, .height = bytes, .to_pitch = 1};
  return value || fails() ? INVALID : put(s, &o);
}

int cuModuleLoadData(void **out, const void *image) {
  char head[32];
  snprintf(head, sizeof head, "fake sm_%d%d", state.major, state.minor);
  if (takes_any) return make(out, 1);
  if (strncmp(image, "fake ", 5)) return INVALID;
  if (strncmp(image, head, strlen(head))) return NO_BINARY;
  const int e = make(out, strlen(image) + 1);
  if (e) return e;
  strcpy(*out, image);
  return 0;
}
int cuModuleUnload(void *module) { return drop(module); }
int cuModuleGetFunction(void **out, void *module, const char *name) {
  if (fails()) return INVALID;
  if (takes_any) return *out = (void *)(uintptr_t)&any, 0;
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
    if (!strcmp(functions[i].name, name) && strstr(module, name)) {
      *out = (void *)(uintptr_t)&functions[i];
      return depth ? 0 : NO_CONTEXT;
    }
  return NOT_FOUND;
}
int cuFuncSetAttribute(void *f, int attribute, int value) {
  if (!f || attribute != 8) return INVALID;
  state.most_shared = (unsigned)value;
  return 0;
}
int cuLaunchKernel(const function *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                   unsigned by, unsigned bz, unsigned shared, void *s, void **args, void **extra) {
  operation o = {.function = f, .threads = (int64_t)gx * gy * gz * bx * by * bz};
  if (extra || shared > 227 << 10 || fails()) return INVALID;
  if (state.fail_launch >= 0 && state.launches >= state.fail_launch) return INVALID;
  for (int i = 0; i < f->n_args; i++) memcpy(&o.args[i], args[i], sizeof o.args[i]);
  if (f->of && *(uint64_t *)args[f->n_args] != (uint64_t)(uintptr_t)o.args[f->of - 1])
    return INVALID;
  add_to(&state.launches, 1);
  add_to(&state.threads, (int)o.threads);
  return put(s, &o);
}

// CUlaunchConfig, with one attribute: that of early launches.
typedef struct launch_config {
  unsigned grid[3], block[3], shared;
  void *stream;
  const struct { int id, pad, value, rest[15]; } * attributes;
  unsigned n_attributes;
} launch_config;

int cuLaunchKernelEx(const launch_config *c, const function *f, void **args, void **extra) {
  if (c->n_attributes != 1 || c->attributes->id != 6 || c->attributes->value != 1) return INVALID;
  state.early++;
  return cuLaunchKernel(f, c->grid[0], c->grid[1], c->grid[2], c->block[0], c->block[1],
                        c->block[2], c->shared, c->stream, args, extra);
}

// A tensor map begins with the address that it is of.
int cuTensorMapEncodeTiled(uint64_t *out, int type, uint32_t rank, void *memory,
                           const uint64_t *extents, const uint64_t *strides, const uint32_t *box,
                           const uint32_t *steps, int interleave, int swizzle, int promotion,
                           int fill) {
  if ((uintptr_t)out % 64 || type != 1 || rank != 2 || (uintptr_t)memory % 16 || strides[0] % 16 ||
      strides[0] < 2 * extents[0] || box[0] > 256 || box[1] > 256 || 2 * box[0] > 128 ||
      steps[0] != 1 || steps[1] != 1 || interleave || swizzle != 3 || promotion != 3 || fill)
    return INVALID;
  out[0] = (uint64_t)(uintptr_t)memory;
  state.maps++;
  return depth ? 0 : NO_CONTEXT;
}

int cuTensorMapEncodeIm2col(uint64_t *out, int type, uint32_t rank, void *memory,
                            const uint64_t *extents, const uint64_t *strides, const int *lower,
                            const int *upper, uint32_t columns, uint32_t rows,
                            const uint32_t *steps, int interleave, int swizzle, int promotion,
                            int fill) {
  int is = rank == 4 && steps[0] == 1 && steps[3] == 1 && columns <= 64 && rows <= 1024;
  for (int k = 0; k < 3; k++) is = is && strides[k] % 16 == 0 && extents[k + 1] > 0;
  for (int k = 0; k < 2; k++)
    is = is && steps[k + 1] > 0 && steps[k + 1] <= 8 && lower[k] >= -128 && lower[k] < 128 &&
         upper[k] >= -128 && upper[k] < 128 && lower[k] - upper[k] < (int64_t)extents[k + 1];
  if (!is || (uintptr_t)out % 64 || type != 1 || (uintptr_t)memory % 16 ||
      strides[0] < 2 * extents[0] || interleave || swizzle != 3 || promotion != 3 || fill)
    return INVALID;
  out[0] = (uint64_t)(uintptr_t)memory;
  state.window_maps++;
  return depth ? 0 : NO_CONTEXT;
}

int cuStreamCreate(void **out, unsigned flags) {
  return flags != 1 ? INVALID : make(out, sizeof(stream));
}
int cuStreamDestroy_v2(void *s) { return drop(s); }
int cuStreamSynchronize(void *s) {
  if (fails()) return INVALID;
  return s && depth ? add_to(&state.waits, 1), 0 : NO_CONTEXT;
}
int cuEventCreate(void **out, unsigned flags) { return flags ? INVALID : make(out, 8); }
int cuEventDestroy_v2(void *e) { return drop(e); }
static int64_t now_ms;
void fake_cuda_pass(int ms) { now_ms += ms; }
int cuEventRecord(void *e, void *s) {
  if (!s || ((stream *)s)->captures || fails()) return INVALID;
  *(int64_t *)e = ++now_ms;
  return 0;
}
int cuEventElapsedTime(float *out_ms, void *from, void *to) {
  *out_ms = (float)(*(int64_t *)to - *(int64_t *)from);
  return 0;
}

int cuEventSynchronize(void *e) { return !e || fails() ? INVALID : depth ? 0 : NO_CONTEXT; }
int cuStreamWaitEvent(void *s, void *e, unsigned flags) {
  return !s || !e || flags || fails() ? INVALID : depth ? 0 : NO_CONTEXT;
}

int cuStreamBeginCapture_v2(stream *s, int mode) {
  if (mode != 2 || s->captures || fails()) return INVALID;
  *s = (stream){.captures = 1};
  s->end = &s->first;
  state.captures++;
  return depth ? 0 : NO_CONTEXT;
}
static void forget(operation *first) {
  for (operation *o = first, *next; o; o = next) {
    next = o->next;
    free(o->data);
    free(o);
  }
}
// A graph, and what is made of it, is a stream that keeps its operations.
int cuStreamEndCapture(stream *s, void **out) {
  if (!s->captures) return INVALID;
  const int e = make(out, sizeof(stream));
  if (e) forget(s->first);
  else ((stream *)*out)->first = s->first;
  *s = (stream){0};
  return e;
}
int cuGraphInstantiateWithFlags(void **out, stream *graph, unsigned long long flags) {
  if (flags || make(out, sizeof(stream))) return INVALID;
  ((stream *)*out)->first = graph->first;
  graph->first = NULL;
  return 0;
}
int cuGraphLaunch(stream *graph, void *s) {
  if (!s || depth == 0) return NO_CONTEXT;
  if (fails()) return INVALID;
  for (const operation *o = graph->first; o; o = o->next) run(o);
  add_to(&state.replays, 1);
  return 0;
}
static int drop_graph(stream *graph) {
  forget(graph->first);
  return drop(graph);
}
int cuGraphExecDestroy(stream *graph) { return drop_graph(graph); }
int cuGraphDestroy(stream *graph) { return drop_graph(graph); }

// NVRTC asks for it.
int cuGetExportTable(const void **out, const void *id) {
  (void)id;
  *out = NULL;
  return NOT_FOUND;
}
