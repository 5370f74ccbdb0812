// CUDA's driver interface. Types and numbers are from NVIDIA's documentation of the driver API,
// whose header is not needed; the library is opened together with a device.
#include "runtime/gpu/gpu.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  OUT_OF_MEMORY = 2,
  NO_DEVICE = 100,
  NO_BINARY = 209,
  CAPABILITY_MAJOR = 75,
  CAPABILITY_MINOR = 76,
  CLOCK_KHZ = 13, // of cuDeviceGetAttribute, as those above and below
  MULTIPROCESSORS = 16,
  L2_BYTES = 38,
  RESIDENT_THREADS = 39,
  REGISTERS = 82,
  SHARED_BYTES = 97,
  DYNAMIC_SHARED_BYTES = 8,
  PLAIN_SHARED_BYTES = 48 << 10, // shared memory of a function without an explicit limit
  NON_BLOCKING = 1,
  EARLY = 6,             // a launch attribute: programmatic stream serialization
  EARLY_VERSION = 12030, // the first driver whose graphs support it
  CAPTURE_RELAXED = 2,   // capture does not restrict other threads
  MEMORY_UNIFIED = 4
};

typedef int result;
typedef uint64_t device_pointer;

// CUDA_MEMCPY2D
typedef struct copy_2d {
  size_t from_x, from_y;
  int from_type;
  const void *from_host;
  device_pointer from;
  void *from_array;
  size_t from_pitch;
  size_t to_x, to_y;
  int to_type;
  void *to_host;
  device_pointer to;
  void *to_array;
  size_t to_pitch;
  size_t width, height;
} copy_2d;

// CUlaunchAttribute
typedef struct launch_attribute {
  int id;
  char pad[4];
  union {
    char bytes[64];
    int value;
  } u;
} launch_attribute;

// CUlaunchConfig
typedef struct launch_config {
  unsigned grid[3], block[3], shared_bytes;
  void *stream;
  const launch_attribute *attributes;
  unsigned n_attributes;
} launch_config;

typedef struct functions {
  result (*init)(unsigned flags);
  result (*error_name)(result error, const char **out);
  result (*error_string)(result error, const char **out);
  result (*driver_version)(int *out);
  result (*device_count)(int *out);
  result (*device)(int *out, int ordinal);
  result (*device_name)(char *out, int n, int device);
  result (*device_attribute)(int *out, int attribute, int device);
  result (*retain_context)(void **out, int device);
  result (*release_context)(int device);
  result (*push_context)(void *context);
  result (*pop_context)(void **out);
  result (*memory_info)(size_t *out_free, size_t *out_total);
  result (*allocate)(device_pointer *out, size_t bytes);
  result (*free)(device_pointer memory);
  result (*allocate_host)(void **out, size_t bytes, unsigned flags);
  result (*free_host)(void *memory);
  result (*copy)(device_pointer to, device_pointer from, size_t bytes, void *stream);
  result (*copy_2d)(const copy_2d *what, void *stream);
  result (*clear)(device_pointer at, unsigned char value, size_t bytes, void *stream);
  result (*load)(void **out, const void *code);
  result (*unload)(void *module);
  result (*find)(void **out, void *module, const char *name);
  result (*set_attribute)(void *function, int attribute, int value);
  result (*launch)(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                   void *stream, void **args, void **extra);
  result (*create_stream)(void **out, unsigned flags);
  result (*destroy_stream)(void *stream);
  result (*wait_stream)(void *stream);
  result (*create_event)(void **out, unsigned flags);
  result (*destroy_event)(void *event);
  result (*record_event)(void *event, void *stream);
  result (*elapsed)(float *out_ms, void *from, void *to);
  result (*wait_event)(void *event);
  result (*wait_in_stream)(void *stream, void *event, unsigned flags);
  result (*begin_capture)(void *stream, int mode);
  result (*end_capture)(void *stream, void **out_graph);
  result (*instantiate)(void **out, void *graph, unsigned long long flags);
  result (*launch_graph)(void *graph, void *stream);
  result (*destroy_executable)(void *graph);
  result (*destroy_graph)(void *graph);
  // NULL before driver 12.0, which supports no device with TMA
  result (*encode_map)(void *out, int type, uint32_t rank, void *memory, const uint64_t *extents,
                       const uint64_t *strides, const uint32_t *box, const uint32_t *steps,
                       int interleave, int swizzle, int promotion, int fill);
  result (*encode_windows)(void *out, int type, uint32_t rank, void *memory,
                           const uint64_t *extents, const uint64_t *strides, const int *lower,
                           const int *upper, uint32_t box_columns, uint32_t box_rows,
                           const uint32_t *steps, int interleave, int swizzle, int promotion,
                           int fill);
  // NULL before EARLY_VERSION
  result (*launch_with)(const launch_config *config, void *function, void **args, void **extra);
} functions;

#define ROW(name, field)                                                                           \
  { name, offsetof(functions, field) }
static const kiln_gpu_symbol symbols[] = {
    ROW("cuInit", init),
    ROW("cuGetErrorName", error_name),
    ROW("cuGetErrorString", error_string),
    ROW("cuDriverGetVersion", driver_version),
    ROW("cuDeviceGetCount", device_count),
    ROW("cuDeviceGet", device),
    ROW("cuDeviceGetName", device_name),
    ROW("cuDeviceGetAttribute", device_attribute),
    ROW("cuDevicePrimaryCtxRetain", retain_context),
    ROW("cuDevicePrimaryCtxRelease_v2", release_context),
    ROW("cuCtxPushCurrent_v2", push_context),
    ROW("cuCtxPopCurrent_v2", pop_context),
    ROW("cuMemGetInfo_v2", memory_info),
    ROW("cuMemAlloc_v2", allocate),
    ROW("cuMemFree_v2", free),
    ROW("cuMemHostAlloc", allocate_host),
    ROW("cuMemFreeHost", free_host),
    ROW("cuMemcpyAsync", copy),
    ROW("cuMemcpy2DAsync_v2", copy_2d),
    ROW("cuMemsetD8Async", clear),
    ROW("cuModuleLoadData", load),
    ROW("cuModuleUnload", unload),
    ROW("cuModuleGetFunction", find),
    ROW("cuFuncSetAttribute", set_attribute),
    ROW("cuLaunchKernel", launch),
    ROW("cuStreamCreate", create_stream),
    ROW("cuStreamDestroy_v2", destroy_stream),
    ROW("cuStreamSynchronize", wait_stream),
    ROW("cuEventCreate", create_event),
    ROW("cuEventDestroy_v2", destroy_event),
    ROW("cuEventRecord", record_event),
    ROW("cuEventElapsedTime", elapsed),
    ROW("cuEventSynchronize", wait_event),
    ROW("cuStreamWaitEvent", wait_in_stream),
    ROW("cuStreamBeginCapture_v2", begin_capture),
    ROW("cuStreamEndCapture", end_capture),
    ROW("cuGraphInstantiateWithFlags", instantiate),
    ROW("cuGraphLaunch", launch_graph),
    ROW("cuGraphExecDestroy", destroy_executable),
    ROW("cuGraphDestroy", destroy_graph),
};

typedef struct context {
  kiln_gpu_context base; // the first member
  functions f;
  void *library, *primary; // the device's primary context, which other libraries use, too
} context;

static context *of(kiln_gpu_context *c) { return (context *)c; }

static kiln_status wrong(const context *c, const char *what, result error, kiln_diag *diag) {
  const char *name = NULL, *text = NULL;
  (void)c->f.error_name(error, &name);
  (void)c->f.error_string(error, &text);
  return kiln_diag_fail(diag, KILN_DEVICE_ERROR, "cuda", "%s: must succeed, got %s (%d): %s", what,
                        name ? name : "an unknown error", error, text ? text : "no text");
}

// The primary context is made current for one call; then the caller's is restored.
static bool enter(context *c) { return c->f.push_context(c->primary) == 0; }
static void leave(context *c) {
  void *popped;
  (void)c->f.pop_context(&popped);
}

// Restores the caller's context, and reports |error| of the call between.
static kiln_status left(context *c, const char *what, result error, kiln_diag *diag) {
  leave(c);
  return error == 0 ? KILN_OK : wrong(c, what, error, diag);
}

static kiln_status no_entry(kiln_diag *diag) {
  return kiln_diag_fail(diag, KILN_DEVICE_ERROR, "cuda", "context: must be usable by this thread");
}

static kiln_status no_host_memory(kiln_diag *diag) {
  return kiln_diag_fail(diag, KILN_NO_MEMORY, "cuda", "context: no memory left");
}

// --- opening ---

static void close_device(kiln_gpu_context *base) {
  context *c = of(base);
  if (!c) return;
  if (c->primary) (void)c->f.release_context(c->base.device);
  if (c->library) dlclose(c->library);
  free(c);
}

// What a driver does not know stays 0.
static int64_t attribute_of(const context *c, int attribute, int handle) {
  int value = 0;
  return c->f.device_attribute(&value, attribute, handle) == 0 ? value : 0;
}

static void find_sizes(context *c, int handle) {
  kiln_gpu_context *b = &c->base;
  b->n_units = (int)attribute_of(c, MULTIPROCESSORS, handle);
  b->shared_bytes = attribute_of(c, SHARED_BYTES, handle);
  b->resident_threads = attribute_of(c, RESIDENT_THREADS, handle);
  b->registers = attribute_of(c, REGISTERS, handle);
  b->l2_bytes = attribute_of(c, L2_BYTES, handle);
  b->clock_ghz = (double)attribute_of(c, CLOCK_KHZ, handle) / 1e6;
}

static kiln_status find_device(context *c, int32_t device, kiln_diag *diag) {
  int n = 0, major = 0, minor = 0, handle = 0, version = 0;
  result e = c->f.init(0);
  if (e == 0) e = c->f.device_count(&n);
  if (e == NO_DEVICE || (e == 0 && n == 0))
    return kiln_diag_fail(diag, KILN_DEVICE_ERROR, "cuda",
                          "device: there must be an NVIDIA GPU, the driver sees none");
  if (e != 0) return wrong(c, "driver: cuInit", e, diag);
  if (device < 0 || device >= n)
    return kiln_diag_fail(diag, KILN_DEVICE_ERROR, "cuda", "device: must be 0 to %d, got %" PRId32,
                          n - 1, device);
  e = c->f.device(&handle, device);
  if (e == 0) e = c->f.device_name(c->base.name, sizeof c->base.name, handle);
  if (e == 0) e = c->f.device_attribute(&major, CAPABILITY_MAJOR, handle);
  if (e == 0) e = c->f.device_attribute(&minor, CAPABILITY_MINOR, handle);
  if (e == 0) e = c->f.driver_version(&version);
  if (e != 0) return wrong(c, "device: its figures", e, diag);
  snprintf(c->base.arch, sizeof c->base.arch, "sm_%d%d", major, minor);
  snprintf(c->base.driver, sizeof c->base.driver, "%d.%d", version / 1000, version % 1000 / 10);
  c->base.device = handle;
  find_sizes(c, handle);
  e = c->f.retain_context(&c->primary, handle);
  if (e == 0) return KILN_OK;
  c->primary = NULL;
  return wrong(c, "device: its primary context", e, diag);
}

static void find_early(context *c) {
  int version = 0;
  void *launch = dlsym(c->library, "cuLaunchKernelEx");
  if (c->f.driver_version(&version) == 0 && version >= EARLY_VERSION)
    memcpy(&c->f.launch_with, &launch, sizeof launch);
}

static kiln_status open_device(int32_t device, kiln_diag *diag, kiln_gpu_context **out) {
  context *c = calloc(1, sizeof *c);
  *out = NULL;
  if (!c) return no_host_memory(diag);
  c->base.api = &kiln_cuda_api;
  kiln_status st = kiln_gpu_open_library("cuda", "libcuda.so.1", sizeof symbols / sizeof *symbols,
                                         symbols, &c->f, diag, &c->library);
  if (st == KILN_OK) {
    void *encode = dlsym(c->library, "cuTensorMapEncodeTiled");
    memcpy(&c->f.encode_map, &encode, sizeof encode);
    encode = dlsym(c->library, "cuTensorMapEncodeIm2col");
    memcpy(&c->f.encode_windows, &encode, sizeof encode);
    find_early(c);
    st = find_device(c, device, diag);
  }
  if (st == KILN_OK) *out = &c->base;
  else close_device(&c->base);
  return st;
}

static int32_t count_devices(void) {
  functions f = {0};
  void *library = NULL;
  int n = 0;
  if (kiln_gpu_open_library("cuda", "libcuda.so.1", sizeof symbols / sizeof *symbols, symbols, &f,
                            NULL, &library) != KILN_OK)
    return 0;
  if (f.init(0) != 0 || f.device_count(&n) != 0) n = 0;
  dlclose(library);
  return n;
}

// --- memory ---

static kiln_status out_of_memory(context *c, uint64_t bytes, const char *what, kiln_diag *diag) {
  size_t free_bytes = 0, total = 0;
  if (enter(c)) {
    (void)c->f.memory_info(&free_bytes, &total);
    leave(c);
  }
  return kiln_diag_fail(diag, KILN_NO_MEMORY, "cuda",
                        "%s: %" PRIu64 " bytes must fit into the memory of %s, free are %zu of %zu",
                        what, bytes, c->base.name, free_bytes, total);
}

static kiln_status allocate(kiln_gpu_context *base, uint64_t bytes, const char *what,
                            kiln_diag *diag, char **out) {
  context *c = of(base);
  device_pointer memory = 0;
  *out = NULL;
  if (!enter(c)) return no_entry(diag);
  const result e = c->f.allocate(&memory, bytes ? bytes : 1);
  leave(c);
  if (e == OUT_OF_MEMORY) return out_of_memory(c, bytes, what, diag);
  if (e != 0) return wrong(c, what, e, diag);
  *out = (char *)(uintptr_t)memory;
  return KILN_OK;
}

static void free_memory(kiln_gpu_context *base, char *memory) {
  context *c = of(base);
  if (!memory || !enter(c)) return;
  (void)c->f.free((device_pointer)(uintptr_t)memory);
  leave(c);
}

static kiln_status allocate_host(kiln_gpu_context *base, uint64_t bytes, const char *what,
                                 kiln_diag *diag, char **out) {
  context *c = of(base);
  void *memory = NULL;
  *out = NULL;
  if (!enter(c)) return no_entry(diag);
  const result e = c->f.allocate_host(&memory, bytes ? bytes : 1, 0);
  leave(c);
  if (e == OUT_OF_MEMORY)
    return kiln_diag_fail(diag, KILN_NO_MEMORY, "cuda",
                          "%s: %" PRIu64 " bytes must fit into page-locked memory", what, bytes);
  if (e != 0) return wrong(c, what, e, diag);
  *out = memory;
  return KILN_OK;
}

static void free_host(kiln_gpu_context *base, char *memory) {
  context *c = of(base);
  if (!memory || !enter(c)) return;
  (void)c->f.free_host(memory);
  leave(c);
}

// --- code ---

static kiln_status load(kiln_gpu_context *base, const void *code, uint64_t bytes, const char *what,
                        kiln_diag *diag, kiln_gpu_image **out) {
  context *c = of(base);
  void *module = NULL;
  (void)bytes; // an image contains its size
  *out = NULL;
  if (!enter(c)) return no_entry(diag);
  const result e = c->f.load(&module, code);
  leave(c);
  if (e == OUT_OF_MEMORY) return out_of_memory(c, bytes, what, diag);
  if (e == NO_BINARY)
    return kiln_diag_fail(diag, KILN_DEVICE_ERROR, "cuda",
                          "%s: its code must be for %s (%s), it is for another architecture", what,
                          c->base.arch, c->base.name);
  if (e != 0) return wrong(c, what, e, diag);
  *out = module;
  return KILN_OK;
}

static void unload(kiln_gpu_context *base, kiln_gpu_image *image) {
  context *c = of(base);
  if (!image || !enter(c)) return;
  (void)c->f.unload(image);
  leave(c);
}

static kiln_status find(kiln_gpu_context *base, kiln_gpu_image *image, const char *name,
                        uint32_t shared_bytes, kiln_diag *diag, kiln_gpu_function **out) {
  context *c = of(base);
  void *function = NULL;
  *out = NULL;
  if (!enter(c)) return no_entry(diag);
  result e = c->f.find(&function, image, name);
  if (e == 0 && shared_bytes > PLAIN_SHARED_BYTES)
    e = c->f.set_attribute(function, DYNAMIC_SHARED_BYTES, (int)shared_bytes);
  leave(c);
  if (e != 0) return wrong(c, name, e, diag);
  *out = function;
  return KILN_OK;
}

static void forget(kiln_gpu_context *c, kiln_gpu_function *function) { (void)c, (void)function; }

// --- streams ---

static kiln_status make_stream(kiln_gpu_context *base, kiln_diag *diag, kiln_gpu_stream **out) {
  context *c = of(base);
  void *stream = NULL;
  *out = NULL;
  if (!enter(c)) return no_entry(diag);
  const kiln_status st = left(c, "stream", c->f.create_stream(&stream, NON_BLOCKING), diag);
  if (st == KILN_OK) *out = stream;
  return st;
}

static void end_stream(kiln_gpu_context *base, kiln_gpu_stream *s) {
  context *c = of(base);
  if (!s || !enter(c)) return;
  (void)c->f.destroy_stream(s);
  leave(c);
}

static kiln_status wait(kiln_gpu_context *base, kiln_gpu_stream *s, kiln_diag *diag) {
  context *c = of(base);
  if (!enter(c)) return no_entry(diag);
  return left(c, "run", c->f.wait_stream(s), diag);
}

static kiln_status copy(kiln_gpu_context *base, kiln_gpu_stream *s, char *to, const char *from,
                        uint64_t bytes, kiln_diag *diag) {
  context *c = of(base);
  if (bytes == 0) return KILN_OK;
  if (!enter(c)) return no_entry(diag);
  return left(c, "copy",
              c->f.copy((device_pointer)(uintptr_t)to, (device_pointer)(uintptr_t)from, bytes, s),
              diag);
}

// A strided copy as rectangles: the last axis if it is contiguous and one other axis; otherwise
// columns of single elements.
static kiln_status copy_strided(kiln_gpu_context *base, kiln_gpu_stream *s,
                                const kiln_strided *what, bool spreads, kiln_diag *diag) {
  context *c = of(base);
  const int64_t elem = (int64_t)what->elem_bytes;
  int32_t rank = what->rank;
  copy_2d piece = {.from_type = MEMORY_UNIFIED, .to_type = MEMORY_UNIFIED, .height = 1};
  piece.width = (size_t)elem;
  if (rank > 0 && what->strides[rank - 1] == 1) piece.width *= (size_t)what->shape[--rank];
  int64_t rows = 1, pitch = (int64_t)piece.width;
  if (rank > 0) rows = what->shape[--rank];
  if (rows > 1) pitch = what->strides[rank] * elem;
  // The pitch must be at least the width: overlapping or repeated rows are copied one by one.
  const bool is_flat = pitch >= (int64_t)piece.width;
  piece.height = is_flat ? (size_t)rows : 1;
  const size_t far = is_flat ? (size_t)pitch : piece.width;
  piece.from_pitch = spreads ? piece.width : far;
  piece.to_pitch = spreads ? far : piece.width;
  int64_t at[KILN_PORT_MAX_RANK] = {0};
  result e = 0;
  uint64_t dense = 0; // offset on the row-major side
  if (!enter(c)) return no_entry(diag);
  for (bool more = true; more && e == 0;) {
    int64_t strided = 0;
    for (int32_t k = 0; k < rank; k++) strided += at[k] * what->strides[k] * elem;
    for (int64_t i = 0; i < (is_flat ? 1 : rows) && e == 0; i++, strided += pitch) {
      piece.from = (device_pointer)(uintptr_t)what->from + (spreads ? dense : (uint64_t)strided);
      piece.to = (device_pointer)(uintptr_t)what->to + (spreads ? (uint64_t)strided : dense);
      e = c->f.copy_2d(&piece, s);
      dense += piece.width * piece.height;
    }
    int32_t k = rank - 1;
    while (k >= 0 && ++at[k] == what->shape[k]) at[k--] = 0;
    more = k >= 0;
  }
  return left(c, "copy", e, diag);
}

static kiln_status clear(kiln_gpu_context *base, kiln_gpu_stream *s, char *at, uint64_t bytes,
                         kiln_diag *diag) {
  context *c = of(base);
  if (bytes == 0) return KILN_OK;
  if (!enter(c)) return no_entry(diag);
  return left(c, "clear", c->f.clear((device_pointer)(uintptr_t)at, 0, bytes, s), diag);
}

enum { MAX_ARGS = 1024 };

typedef struct tensor_map {
  _Alignas(64) uint64_t words[16];
} tensor_map;

// Boxes have swizzled rows of 128 bytes, as matrix instructions read them.
static kiln_status encode_map(context *c, const kiln_gpu_call *call, const kiln_plan_map *m,
                              kiln_diag *diag, tensor_map *out) {
  enum { UINT16 = 1, PLAIN = 0, SWIZZLE_128 = 3, PROMOTE_256 = 3, ZEROS = 0 };
  const bool is_matrix = m->n_axes == 1;
  const uint32_t rank = m->n_axes + 1;
  uint64_t extents[KILN_PLAN_MAP_AXES + 1] = {m->columns};
  for (uint32_t a = 0; a < m->n_axes; a++) extents[a + 1] = m->rows[a];
  if (!c->f.encode_map || !c->f.encode_windows)
    return kiln_diag_fail(diag, KILN_UNSUPPORTED, "cuda",
                          "driver: must have tensor maps, got version %s", c->base.driver);
  const uint32_t box[] = {m->box_columns, m->box_rows},
                 steps[KILN_PLAN_MAP_AXES + 1] = {1, is_matrix ? 1 : m->steps[0], m->steps[1], 1};
  const int lower[] = {m->lower[0], m->lower[1]}, upper[] = {m->upper[0], m->upper[1]};
  void *memory = call->args[m->index];
  const result e = is_matrix ? c->f.encode_map(out, UINT16, rank, memory, extents, m->pitches, box,
                                               steps, PLAIN, SWIZZLE_128, PROMOTE_256, ZEROS)
                             : c->f.encode_windows(out, UINT16, rank, memory, extents, m->pitches,
                                                   lower, upper, m->box_columns, m->box_rows, steps,
                                                   PLAIN, SWIZZLE_128, PROMOTE_256, ZEROS);
  return e == 0 ? KILN_OK : wrong(c, "tensor map", e, diag);
}

static result put(const context *c, void *stream, const kiln_gpu_call *call, void **args) {
  const uint32_t *g = call->grid, *b = call->block;
  const launch_attribute early = {.id = EARLY, .u.value = 1};
  const launch_config config = {.grid = {g[0], g[1], g[2]},
                                .block = {b[0], b[1], b[2]},
                                .shared_bytes = call->shared_bytes,
                                .stream = stream,
                                .attributes = &early,
                                .n_attributes = 1};
  if (call->is_early && c->f.launch_with)
    return c->f.launch_with(&config, call->function, args, NULL);
  return c->f.launch(call->function, g[0], g[1], g[2], b[0], b[1], b[2], call->shared_bytes, stream,
                     args, NULL);
}

static kiln_status launch(kiln_gpu_context *base, kiln_gpu_stream *s, const kiln_gpu_call *call,
                          kiln_diag *diag) {
  context *c = of(base);
  void *args[MAX_ARGS + KILN_PLAN_MAX_MAPS];
  tensor_map maps[KILN_PLAN_MAX_MAPS];
  if (call->n_args > MAX_ARGS)
    return kiln_diag_fail(diag, KILN_UNSUPPORTED, "cuda",
                          "kernel: must take at most %d arguments, got %" PRIu32, MAX_ARGS,
                          call->n_args);
  for (uint32_t i = 0; i < call->n_args; i++) args[i] = (void *)(uintptr_t)&call->args[i];
  if (!enter(c)) return no_entry(diag);
  for (uint32_t i = 0; i < call->n_maps; i++) {
    const kiln_status st = encode_map(c, call, &call->maps[i], diag, &maps[i]);
    if (st != KILN_OK) return leave(c), st;
    args[call->n_args + i] = &maps[i];
  }
  return left(c, "launch", put(c, s, call, args), diag);
}

// --- events ---

static kiln_status make_event(kiln_gpu_context *base, kiln_diag *diag, kiln_gpu_event **out) {
  context *c = of(base);
  void *event = NULL;
  *out = NULL;
  if (!enter(c)) return no_entry(diag);
  const kiln_status st = left(c, "event", c->f.create_event(&event, 0), diag);
  if (st == KILN_OK) *out = event;
  return st;
}

static void end_event(kiln_gpu_context *base, kiln_gpu_event *e) {
  context *c = of(base);
  if (!e || !enter(c)) return;
  (void)c->f.destroy_event(e);
  leave(c);
}

static kiln_status record(kiln_gpu_context *base, kiln_gpu_stream *s, kiln_gpu_event *e,
                          kiln_diag *diag) {
  context *c = of(base);
  if (!enter(c)) return no_entry(diag);
  return left(c, "event", c->f.record_event(e, s), diag);
}

static kiln_status elapsed(kiln_gpu_context *base, kiln_gpu_event *from, kiln_gpu_event *to,
                           kiln_diag *diag, uint64_t *out_ns) {
  context *c = of(base);
  float ms = 0;
  *out_ns = 0;
  if (!enter(c)) return no_entry(diag);
  const kiln_status st = left(c, "event", c->f.elapsed(&ms, from, to), diag);
  if (st == KILN_OK && ms > 0) *out_ns = (uint64_t)((double)ms * 1e6);
  return st;
}

static kiln_status wait_event(kiln_gpu_context *base, kiln_gpu_event *e, kiln_gpu_stream *s,
                              kiln_diag *diag) {
  context *c = of(base);
  if (!enter(c)) return no_entry(diag);
  return left(c, "event", s ? c->f.wait_in_stream(s, e, 0) : c->f.wait_event(e), diag);
}

// --- graphs ---

static kiln_status capture(kiln_gpu_context *base, kiln_gpu_stream *s, kiln_diag *diag) {
  context *c = of(base);
  if (!enter(c)) return no_entry(diag);
  return left(c, "graph", c->f.begin_capture(s, CAPTURE_RELAXED), diag);
}

static kiln_status end_capture(kiln_gpu_context *base, kiln_gpu_stream *s, bool wanted,
                               kiln_diag *diag, kiln_gpu_graph **out_graph) {
  context *c = of(base);
  void *graph = NULL, *executable = NULL;
  *out_graph = NULL;
  if (!enter(c)) return no_entry(diag);
  result e = c->f.end_capture(s, &graph);
  if (e == 0 && wanted) e = c->f.instantiate(&executable, graph, 0);
  if (graph) (void)c->f.destroy_graph(graph);
  leave(c);
  if (!wanted) return KILN_OK; // the failure was reported inside the capture
  if (e != 0) return wrong(c, "graph", e, diag);
  *out_graph = executable;
  return KILN_OK;
}

static kiln_status replay(kiln_gpu_context *base, kiln_gpu_stream *s, kiln_gpu_graph *graph,
                          kiln_diag *diag) {
  context *c = of(base);
  if (!enter(c)) return no_entry(diag);
  return left(c, "graph", c->f.launch_graph(graph, s), diag);
}

static void end_graph(kiln_gpu_context *base, kiln_gpu_graph *graph) {
  context *c = of(base);
  if (!graph || !enter(c)) return;
  (void)c->f.destroy_executable(graph);
  leave(c);
}

// --- libraries ---

static bool enter_device(kiln_gpu_context *base) { return enter(of(base)); }
static void leave_device(kiln_gpu_context *base) { leave(of(base)); }

const kiln_gpu_api kiln_cuda_api = {
    .name = "cuda",
    .count = count_devices,
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
    .clear = clear,
    .launch = launch,
    .event = make_event,
    .end_event = end_event,
    .record = record,
    .elapsed = elapsed,
    .wait_event = wait_event,
    .enter = enter_device,
    .leave = leave_device,
    .capture = capture,
    .end_capture = end_capture,
    .replay = replay,
    .end_graph = end_graph,
};
