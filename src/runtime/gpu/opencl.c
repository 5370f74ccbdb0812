// OpenCL, with shared virtual memory: addresses are pointers, as the kernels of a plan expect, and
// a buffer at any offset of an arena is a pointer. Buffer objects cannot do this: sub-buffers must
// have the device's alignment, and must not overlap while written. Types and numbers are from
// Khronos' specification of OpenCL 2.0; the library is opened together with a device. Queues are in
// order.
#include "runtime/gpu/gpu.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
  BUILD_FAILURE = -11,
  PLATFORM_NOT_FOUND = -1001,
  TRUE_ = 1,
  DEVICE_MAX_GROUP = 0x1004,
  DEVICE_GLOBAL_BYTES = 0x101F,
  DEVICE_NAME = 0x102B,
  DRIVER_VERSION = 0x102D,
  DEVICE_SVM = 0x1053,
  DEVICE_F32 = 0x101B, // CL_DEVICE_SINGLE_FP_CONFIG
  F32_DIVIDES_RIGHT = 1 << 7,
  SVM_COARSE = 1,
  SVM_ALIGN = 128, // of the language's widest vector
  CONTEXT_PLATFORM = 0x1084,
  QUEUE_PROPERTIES = 0x1093,
  QUEUE_PROFILING = 2,
  PROGRAM_BUILD_LOG = 0x1183,
  PROFILING_END = 0x1283,
  MEMORY_READ_WRITE = 1,
  MAP_READ = 1,
  MAP_WRITE = 2,
  MAX_DEVICES = 32,
  LOG_BYTES = 2048
};

typedef int32_t result;

typedef struct functions {
  result (*platforms)(uint32_t room, void **out, uint32_t *out_n);
  result (*devices)(void *platform, uint64_t type, uint32_t room, void **out, uint32_t *out_n);
  result (*device_info)(void *device, uint32_t what, size_t bytes, void *out, size_t *out_bytes);
  void *(*create_context)(const intptr_t *properties, uint32_t n, void *const *devices,
                          void (*notify)(const char *, const void *, size_t, void *), void *user,
                          result *out);
  result (*release_context)(void *context);
  void *(*create_queue)(void *context, void *device, const uint64_t *properties, result *out);
  result (*release_queue)(void *queue);
  result (*finish)(void *queue);
  void *(*allocate)(void *context, uint64_t flags, size_t bytes, uint32_t align);
  void (*free)(void *context, void *memory);
  result (*copy)(void *queue, uint32_t blocking, void *to, const void *from, size_t bytes,
                 uint32_t n_events, void *const *events, void **out_event);
  result (*map)(void *queue, uint32_t blocking, uint64_t flags, void *memory, size_t bytes,
                uint32_t n_events, void *const *events, void **out_event);
  result (*unmap)(void *queue, void *memory, uint32_t n_events, void *const *events,
                  void **out_event);
  void *(*create_program)(void *context, uint32_t n, const char **sources, const size_t *bytes,
                          result *out);
  result (*build)(void *program, uint32_t n, void *const *devices, const char *options,
                  void (*notify)(void *, void *), void *user);
  result (*build_info)(void *program, void *device, uint32_t what, size_t bytes, void *out,
                       size_t *out_bytes);
  result (*release_program)(void *program);
  void *(*create_kernel)(void *program, const char *name, result *out);
  result (*release_kernel)(void *kernel);
  result (*set_arg)(void *kernel, uint32_t i, size_t bytes, const void *value);
  result (*set_pointer)(void *kernel, uint32_t i, const void *pointer);
  result (*launch)(void *queue, void *kernel, uint32_t rank, const size_t *offset,
                   const size_t *global, const size_t *local, uint32_t n_events,
                   void *const *events, void **out_event);
  result (*marker)(void *queue, uint32_t n_events, void *const *events, void **out_event);
  result (*event_time)(void *event, uint32_t what, size_t bytes, void *out, size_t *out_bytes);
  result (*release_event)(void *event);
} functions;

#define ROW(name, field)                                                                           \
  { name, offsetof(functions, field) }
static const kiln_gpu_symbol symbols[] = {
    ROW("clGetPlatformIDs", platforms),
    ROW("clGetDeviceIDs", devices),
    ROW("clGetDeviceInfo", device_info),
    ROW("clCreateContext", create_context),
    ROW("clReleaseContext", release_context),
    ROW("clCreateCommandQueueWithProperties", create_queue),
    ROW("clReleaseCommandQueue", release_queue),
    ROW("clFinish", finish),
    ROW("clSVMAlloc", allocate),
    ROW("clSVMFree", free),
    ROW("clEnqueueSVMMemcpy", copy),
    ROW("clEnqueueSVMMap", map),
    ROW("clEnqueueSVMUnmap", unmap),
    ROW("clCreateProgramWithSource", create_program),
    ROW("clBuildProgram", build),
    ROW("clGetProgramBuildInfo", build_info),
    ROW("clReleaseProgram", release_program),
    ROW("clCreateKernel", create_kernel),
    ROW("clReleaseKernel", release_kernel),
    ROW("clSetKernelArg", set_arg),
    ROW("clSetKernelArgSVMPointer", set_pointer),
    ROW("clEnqueueNDRangeKernel", launch),
    ROW("clEnqueueMarkerWithWaitList", marker),
    ROW("clGetEventProfilingInfo", event_time),
    ROW("clReleaseEvent", release_event),
};

typedef struct context {
  kiln_gpu_context base; // the first member
  functions f;
  void *library, *platform, *device, *cl;
  size_t max_threads;
  bool divides_right;        // f32 division and roots can be correctly rounded, which kernels need
  pthread_mutex_t arguments; // a kernel has one set of arguments for all threads
  bool has_mutex;
} context;

struct kiln_gpu_event {
  void *marker; // NULL: not recorded yet
};

static context *of(kiln_gpu_context *c) { return (context *)c; }

static kiln_status check(const char *what, result error, kiln_diag *diag) {
  if (error == 0) return KILN_OK;
  return kiln_diag_fail(diag, KILN_DEVICE_ERROR, "opencl",
                        "%s: must succeed, got OpenCL's error %" PRId32, what, error);
}

static kiln_status no_memory(kiln_diag *diag) {
  return kiln_diag_fail(diag, KILN_NO_MEMORY, "opencl", "context: no memory left");
}

// --- opening ---

static void close_device(kiln_gpu_context *base) {
  context *c = of(base);
  if (!c) return;
  if (c->cl) (void)c->f.release_context(c->cl);
  if (c->library) dlclose(c->library);
  if (c->has_mutex) pthread_mutex_destroy(&c->arguments);
  free(c);
}

// Devices are numbered consecutively over all platforms.
static kiln_status find_device(context *c, int32_t number, kiln_diag *diag) {
  void *platforms[MAX_DEVICES], *devices[MAX_DEVICES];
  uint32_t n_platforms = 0, n = 0;
  int32_t first = 0;
  const result e = c->f.platforms(MAX_DEVICES, platforms, &n_platforms);
  if (e != 0 && e != PLATFORM_NOT_FOUND) return check("platforms", e, diag);
  if (e != 0) n_platforms = 0;
  for (uint32_t i = 0; i < n_platforms && i < MAX_DEVICES && !c->device; i++) {
    if (c->f.devices(platforms[i], UINT32_MAX, MAX_DEVICES, devices, &n) != 0) continue;
    if (n > MAX_DEVICES) n = MAX_DEVICES;
    if (number >= first && number - first < (int32_t)n) {
      c->device = devices[number - first];
      c->platform = platforms[i];
    }
    first += (int32_t)n;
  }
  if (c->device) return KILN_OK;
  if (first == 0)
    return kiln_diag_fail(diag, KILN_DEVICE_ERROR, "opencl",
                          "device: there must be one, no OpenCL driver is installed (PoCL runs on "
                          "any CPU: pocl-opencl-icd)");
  return kiln_diag_fail(diag, KILN_DEVICE_ERROR, "opencl",
                        "device: must be 0 to %" PRId32 ", got %" PRId32, first - 1, number);
}

static kiln_status use_device(context *c, kiln_diag *diag) {
  uint64_t svm = 0, f32 = 0;
  result e = c->f.device_info(c->device, DEVICE_NAME, sizeof c->base.name - 1, c->base.name, NULL);
  if (e == 0)
    e = c->f.device_info(c->device, DRIVER_VERSION, sizeof c->base.driver - 1, c->base.driver,
                         NULL);
  if (e == 0)
    e = c->f.device_info(c->device, DEVICE_MAX_GROUP, sizeof c->max_threads, &c->max_threads, NULL);
  if (e == 0) e = c->f.device_info(c->device, DEVICE_F32, sizeof f32, &f32, NULL);
  if (e != 0) return check("device: its figures", e, diag);
  c->divides_right = f32 & F32_DIVIDES_RIGHT;
  e = c->f.device_info(c->device, DEVICE_SVM, sizeof svm, &svm, NULL);
  if (e != 0 || !(svm & SVM_COARSE))
    return kiln_diag_fail(diag, KILN_DEVICE_ERROR, "opencl",
                          "device: must have shared virtual memory (OpenCL 2.0), \"%s\" has not",
                          c->base.name);
  const intptr_t properties[] = {CONTEXT_PLATFORM, (intptr_t)c->platform, 0};
  c->cl = c->f.create_context(properties, 1, &c->device, NULL, NULL, &e);
  return check("context", e, diag);
}

static kiln_status open_device(int32_t device, kiln_diag *diag, kiln_gpu_context **out) {
  context *c = calloc(1, sizeof *c);
  *out = NULL;
  if (!c) return no_memory(diag);
  c->base.api = &kiln_opencl_api;
  c->base.device = device;
  c->has_mutex = pthread_mutex_init(&c->arguments, NULL) == 0;
  kiln_status st = c->has_mutex ? KILN_OK : no_memory(diag);
  if (st == KILN_OK)
    st = kiln_gpu_open_library("opencl", "libOpenCL.so.1", sizeof symbols / sizeof *symbols,
                               symbols, &c->f, diag, &c->library);
  if (st == KILN_OK) st = find_device(c, device, diag);
  if (st == KILN_OK) st = use_device(c, diag);
  if (st == KILN_OK) *out = &c->base;
  else close_device(&c->base);
  return st;
}

// --- memory ---

static kiln_status allocate(kiln_gpu_context *base, uint64_t bytes, const char *what,
                            kiln_diag *diag, char **out) {
  context *c = of(base);
  uint64_t total = 0;
  *out = c->f.allocate(c->cl, MEMORY_READ_WRITE, bytes ? bytes : 1, SVM_ALIGN);
  if (*out) return KILN_OK;
  (void)c->f.device_info(c->device, DEVICE_GLOBAL_BYTES, sizeof total, &total, NULL);
  return kiln_diag_fail(diag, KILN_NO_MEMORY, "opencl",
                        "%s: %" PRIu64 " bytes must fit into the memory of %s, which has %" PRIu64,
                        what, bytes, c->base.name, total);
}

static void free_memory(kiln_gpu_context *base, char *memory) {
  if (memory) of(base)->f.free(of(base)->cl, memory);
}

static kiln_status allocate_host(kiln_gpu_context *base, uint64_t bytes, const char *what,
                                 kiln_diag *diag, char **out) {
  (void)base;
  *out = bytes < SIZE_MAX - 64 ? aligned_alloc(64, (bytes + 64) / 64 * 64) : NULL;
  if (*out) return KILN_OK;
  return kiln_diag_fail(diag, KILN_NO_MEMORY, "opencl", "%s: %" PRIu64 " bytes: no memory left",
                        what, bytes);
}

static void free_host(kiln_gpu_context *base, char *memory) {
  (void)base;
  free(memory);
}

// --- code ---

static kiln_status refused(context *c, void *program, const char *what, result error,
                           kiln_diag *diag) {
  char log[LOG_BYTES] = "";
  size_t n = 0;
  if (error != BUILD_FAILURE) return check(what, error, diag);
  if (c->f.build_info(program, c->device, PROGRAM_BUILD_LOG, 0, NULL, &n) == 0 && n < sizeof log)
    (void)c->f.build_info(program, c->device, PROGRAM_BUILD_LOG, sizeof log - 1, log, NULL);
  return kiln_diag_fail(diag, KILN_DEVICE_ERROR, "opencl",
                        "%s: the driver must compile it, it says: %s", what,
                        log[0] ? log : "more than fits here");
}

static kiln_status load(kiln_gpu_context *base, const void *code, uint64_t bytes, const char *what,
                        kiln_diag *diag, kiln_gpu_image **out) {
  context *c = of(base);
  const char *source = code;
  const size_t length = bytes;
  result e = 0;
  *out = NULL;
  void *program = c->f.create_program(c->cl, 1, &source, &length, &e);
  if (e != 0) return check(what, e, diag);
  // OpenCL C 1.2, which every device compiles; devices of OpenCL 3.0 may lack 2.0. By default, a
  // quotient of f32 may be wrong by 2.5 ULP (OpenCL C 1.2, 7.4).
  e = c->f.build(program, 1, &c->device,
                 c->divides_right ? "-cl-std=CL1.2 -cl-fp32-correctly-rounded-divide-sqrt"
                                  : "-cl-std=CL1.2",
                 NULL, NULL);
  if (e == 0) {
    *out = program;
    return KILN_OK;
  }
  const kiln_status st = refused(c, program, what, e, diag);
  (void)c->f.release_program(program);
  return st;
}

static void unload(kiln_gpu_context *base, kiln_gpu_image *image) {
  if (image) (void)of(base)->f.release_program(image);
}

static kiln_status find(kiln_gpu_context *base, kiln_gpu_image *image, const char *name,
                        uint32_t shared_bytes, kiln_diag *diag, kiln_gpu_function **out) {
  result e = 0;
  (void)shared_bytes; // stated at the call
  void *kernel = of(base)->f.create_kernel(image, name, &e);
  *out = e == 0 ? kernel : NULL;
  return check(name, e, diag);
}

static void forget(kiln_gpu_context *base, kiln_gpu_function *function) {
  if (function) (void)of(base)->f.release_kernel(function);
}

// --- queues ---

static kiln_status make_stream(kiln_gpu_context *base, kiln_diag *diag, kiln_gpu_stream **out) {
  context *c = of(base);
  const uint64_t properties[] = {QUEUE_PROPERTIES, QUEUE_PROFILING, 0};
  result e = 0;
  void *queue = c->f.create_queue(c->cl, c->device, properties, &e);
  *out = e == 0 ? queue : NULL;
  return check("queue", e, diag);
}

static void end_stream(kiln_gpu_context *base, kiln_gpu_stream *s) {
  if (s) (void)of(base)->f.release_queue(s);
}

static kiln_status wait(kiln_gpu_context *base, kiln_gpu_stream *s, kiln_diag *diag) {
  return check("run", of(base)->f.finish(s), diag);
}

static kiln_status copy(kiln_gpu_context *base, kiln_gpu_stream *s, char *to, const char *from,
                        uint64_t bytes, kiln_diag *diag) {
  if (bytes == 0) return KILN_OK;
  return check("copy", of(base)->f.copy(s, 0, to, from, bytes, 0, NULL, NULL), diag);
}

// OpenCL has no such copy: the CPU makes it, after waiting for the queue.
static kiln_status copy_strided(kiln_gpu_context *base, kiln_gpu_stream *s,
                                const kiln_strided *what, bool spreads, kiln_diag *diag) {
  const context *c = of(base);
  void *from = (void *)(uintptr_t)what->from;
  const uint64_t dense = kiln_strided_bytes(what), span = kiln_strided_span(what);
  result e = c->f.map(s, TRUE_, MAP_READ, from, spreads ? dense : span, 0, NULL, NULL);
  if (e != 0) return check("copy", e, diag);
  e = c->f.map(s, TRUE_, MAP_WRITE, what->to, spreads ? span : dense, 0, NULL, NULL);
  if (e == 0) {
    if (spreads) kiln_strided_spread(what);
    else kiln_strided_copy(what);
    e = c->f.unmap(s, what->to, 0, NULL, NULL);
  }
  const result last = c->f.unmap(s, from, 0, NULL, NULL);
  return check("copy", e != 0 ? e : last, diag);
}

// Dynamic shared memory is one more argument, after the addresses.
static result set_args(const context *c, const kiln_gpu_call *call) {
  result e = 0;
  for (uint32_t i = 0; i < call->n_args && e == 0; i++)
    e = c->f.set_pointer(call->function, i, call->args[i]);
  if (e != 0 || call->shared_bytes == 0) return e;
  return c->f.set_arg(call->function, call->n_args, call->shared_bytes, NULL);
}

static kiln_status launch(kiln_gpu_context *base, kiln_gpu_stream *s, const kiln_gpu_call *call,
                          kiln_diag *diag) {
  context *c = of(base);
  size_t global[3], local[3];
  for (int k = 0; k < 3; k++) {
    local[k] = call->block[k];
    global[k] = (size_t)call->grid[k] * call->block[k];
  }
  if (local[0] * local[1] * local[2] > c->max_threads)
    return kiln_diag_fail(diag, KILN_DEVICE_ERROR, "opencl",
                          "launch: a block must have at most %zu threads on %s, got %zu",
                          c->max_threads, c->base.name, local[0] * local[1] * local[2]);
  pthread_mutex_lock(&c->arguments);
  result e = set_args(c, call);
  if (e == 0) e = c->f.launch(s, call->function, 3, NULL, global, local, 0, NULL, NULL);
  pthread_mutex_unlock(&c->arguments);
  return check("launch", e, diag);
}

// --- events ---

static kiln_status make_event(kiln_gpu_context *base, kiln_diag *diag, kiln_gpu_event **out) {
  (void)base;
  *out = calloc(1, sizeof **out);
  return *out ? KILN_OK : no_memory(diag);
}

static void end_event(kiln_gpu_context *base, kiln_gpu_event *e) {
  if (e && e->marker) (void)of(base)->f.release_event(e->marker);
  free(e);
}

static kiln_status record(kiln_gpu_context *base, kiln_gpu_stream *s, kiln_gpu_event *e,
                          kiln_diag *diag) {
  if (e->marker) (void)of(base)->f.release_event(e->marker);
  e->marker = NULL;
  return check("event", of(base)->f.marker(s, 0, NULL, &e->marker), diag);
}

static kiln_status elapsed(kiln_gpu_context *base, kiln_gpu_event *from, kiln_gpu_event *to,
                           kiln_diag *diag, uint64_t *out_ns) {
  uint64_t first = 0, last = 0;
  result e = of(base)->f.event_time(from->marker, PROFILING_END, sizeof first, &first, NULL);
  if (e == 0) e = of(base)->f.event_time(to->marker, PROFILING_END, sizeof last, &last, NULL);
  *out_ns = last > first ? last - first : 0;
  return check("event", e, diag);
}

const kiln_gpu_api kiln_opencl_api = {
    .name = "opencl",
    .open = open_device,
    .close = close_device,
    .allocate = allocate,
    .free = free_memory,
    .allocate_host = allocate_host,
    .free_host = free_host,
    .load = load,
    .unload = unload,
    .find = find,
    .forget = forget,
    .stream = make_stream,
    .end_stream = end_stream,
    .wait = wait,
    .copy = copy,
    .copy_strided = copy_strided,
    .launch = launch,
    .event = make_event,
    .end_event = end_event,
    .record = record,
    .elapsed = elapsed,
};
