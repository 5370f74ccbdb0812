// Interface to GPUs: a table of functions for each driver, which is opened at run time.
//
// A context is one device of one driver. Any thread may call its functions, but only one thread at
// a time may use a given stream, event, graph or capture. Addresses are the driver's for CUDA, so
// that other libraries' memory can be used in place, and pointers into shared virtual memory for
// OpenCL; both allow address arithmetic. A function that fails reports the driver's error in
// |diag|.
#ifndef KILN_RUNTIME_GPU_H
#define KILN_RUNTIME_GPU_H

#include "backend/backend.h"
#include "kiln/status.h"
#include "runtime/plan.h"
#include "runtime/strided.h"

typedef struct kiln_gpu_api kiln_gpu_api;
typedef struct kiln_gpu_image kiln_gpu_image;       // loaded code
typedef struct kiln_gpu_function kiln_gpu_function; // of an image, which owns it
typedef struct kiln_gpu_stream kiln_gpu_stream;
typedef struct kiln_gpu_event kiln_gpu_event;
typedef struct kiln_gpu_graph kiln_gpu_graph; // captured work, which is launched as a whole

// The base of every context; the driver's fields follow.
typedef struct kiln_gpu_context {
  const kiln_gpu_api *api;
  int32_t device;
  char name[128];  // "NVIDIA H200"
  char arch[16];   // "sm_90"; "" for OpenCL
  char driver[64]; // version of the driver: "13.0"
  // Of CUDA's devices; 0 for OpenCL's.
  int n_units;                                       // multiprocessors, and of each:
  int64_t shared_bytes, resident_threads, registers; // |shared_bytes|: of a block, at most
  int64_t l2_bytes;
  double clock_ghz; // the highest
} kiln_gpu_context;

typedef struct kiln_gpu_call {
  kiln_gpu_function *function;
  const uint32_t *grid, *block; // [3]
  uint32_t shared_bytes;        // dynamic
  // may start before the previous launch in the stream has ended; it synchronises itself
  // (programmatic dependent launch)
  bool is_early;
  uint32_t n_args;
  char *const *args; // addresses
  uint32_t n_maps;
  // tensor maps of arguments, which follow the addresses as parameters of CUDA functions
  const kiln_plan_map *maps;
} kiln_gpu_call;

struct kiln_gpu_api {
  const char *name; // "cuda"; place of messages

  int32_t (*count)(void); // number of devices; 0: there is no driver. NULL for OpenCL
  // errors: KILN_DEVICE_ERROR: no driver, or no device of that number
  KILN_MUST_USE kiln_status (*open)(int32_t device, kiln_diag *diag, kiln_gpu_context **out);
  void (*close)(kiln_gpu_context *c); // NULL is allowed

  // errors: KILN_NO_MEMORY, with the size of |what| and the free memory
  KILN_MUST_USE kiln_status (*allocate)(kiln_gpu_context *c, uint64_t bytes, const char *what,
                                        kiln_diag *diag, char **out);
  void (*free)(kiln_gpu_context *c, char *memory); // NULL is allowed
  // Page-locked memory of the host, for direct copies by the device.
  KILN_MUST_USE kiln_status (*allocate_host)(kiln_gpu_context *c, uint64_t bytes, const char *what,
                                             kiln_diag *diag, char **out);
  void (*free_host)(kiln_gpu_context *c, char *memory);

  // errors: KILN_DEVICE_ERROR: the driver rejects the code |what|; with its log
  KILN_MUST_USE kiln_status (*load)(kiln_gpu_context *c, const void *code, uint64_t bytes,
                                    const char *what, kiln_diag *diag, kiln_gpu_image **out);
  void (*unload)(kiln_gpu_context *c, kiln_gpu_image *image);
  // |shared_bytes|: the most dynamic shared memory of any call
  KILN_MUST_USE kiln_status (*find)(kiln_gpu_context *c, kiln_gpu_image *image, const char *name,
                                    uint32_t shared_bytes, kiln_diag *diag,
                                    kiln_gpu_function **out);
  void (*forget)(kiln_gpu_context *c, kiln_gpu_function *function);

  // Streams, functions and events are handles of the driver, and may come from another library.
  KILN_MUST_USE kiln_status (*stream)(kiln_gpu_context *c, kiln_diag *diag, kiln_gpu_stream **out);
  void (*end_stream)(kiln_gpu_context *c, kiln_gpu_stream *s);
  // Waits for all work in the stream.
  KILN_MUST_USE kiln_status (*wait)(kiln_gpu_context *c, kiln_gpu_stream *s, kiln_diag *diag);

  // These enqueue work in a stream and return.
  KILN_MUST_USE kiln_status (*copy)(kiln_gpu_context *c, kiln_gpu_stream *s, char *to,
                                    const char *from, uint64_t bytes, kiln_diag *diag);
  // |spreads|: the other way, so that |strides| are the target's.
  KILN_MUST_USE kiln_status (*copy_strided)(kiln_gpu_context *c, kiln_gpu_stream *s,
                                            const kiln_strided *what, bool spreads,
                                            kiln_diag *diag);
  // Fills with zeros; NULL if tensors are never the device's (OpenCL).
  KILN_MUST_USE kiln_status (*clear)(kiln_gpu_context *c, kiln_gpu_stream *s, char *at,
                                     uint64_t bytes, kiln_diag *diag);
  KILN_MUST_USE kiln_status (*launch)(kiln_gpu_context *c, kiln_gpu_stream *s,
                                      const kiln_gpu_call *call, kiln_diag *diag);

  KILN_MUST_USE kiln_status (*event)(kiln_gpu_context *c, kiln_diag *diag, kiln_gpu_event **out);
  void (*end_event)(kiln_gpu_context *c, kiln_gpu_event *e);
  KILN_MUST_USE kiln_status (*record)(kiln_gpu_context *c, kiln_gpu_stream *s, kiln_gpu_event *e,
                                      kiln_diag *diag);
  // The time between two events that have completed.
  KILN_MUST_USE kiln_status (*elapsed)(kiln_gpu_context *c, kiln_gpu_event *from,
                                       kiln_gpu_event *to, kiln_diag *diag, uint64_t *out_ns);
  // Waits for an event that was recorded: later work in |s| does, or, if that is NULL, the caller.
  // NULL for OpenCL.
  KILN_MUST_USE kiln_status (*wait_event)(kiln_gpu_context *c, kiln_gpu_event *e,
                                          kiln_gpu_stream *s, kiln_diag *diag);

  // Brackets calls of libraries, during which the device's context is the thread's current one.
  // Both NULL if the driver has no libraries.
  bool (*enter)(kiln_gpu_context *c);
  void (*leave)(kiln_gpu_context *c);

  // Graphs; all four are NULL if the driver has none. Work enqueued in |s| between capture and
  // end_capture is recorded, and not run.
  KILN_MUST_USE kiln_status (*capture)(kiln_gpu_context *c, kiln_gpu_stream *s, kiln_diag *diag);
  // gives: *out_graph; NULL on failure, or if |wanted| is false
  KILN_MUST_USE kiln_status (*end_capture)(kiln_gpu_context *c, kiln_gpu_stream *s, bool wanted,
                                           kiln_diag *diag, kiln_gpu_graph **out_graph);
  KILN_MUST_USE kiln_status (*replay)(kiln_gpu_context *c, kiln_gpu_stream *s,
                                      kiln_gpu_graph *graph, kiln_diag *diag);
  void (*end_graph)(kiln_gpu_context *c, kiln_gpu_graph *graph);
};

extern const kiln_gpu_api kiln_cuda_api, kiln_opencl_api;

// Begins a bracket around library calls, which kiln_gpu_api.leave ends.
//
// errors: KILN_UNSUPPORTED: the driver has no libraries; KILN_DEVICE_ERROR: this thread cannot use
//         the context
KILN_MUST_USE kiln_status kiln_gpu_enter(kiln_gpu_context *c, kiln_diag *diag);
// Enqueues the library kernel |b|.
//
// errors: KILN_DEVICE_ERROR: the library fails, with its reason
KILN_MUST_USE kiln_status kiln_gpu_put_bound(kiln_gpu_context *c, kiln_gpu_stream *s,
                                             const kiln_bound *b, char *const *args,
                                             kiln_diag *diag);
void kiln_gpu_bound_deinit(kiln_gpu_context *c, kiln_bound *b);
const kiln_gpu_api *kiln_gpu_api_of(kiln_plan_kind kind); // NULL for a CPU

// A function of a driver library, and its offset in a structure of function pointers.
typedef struct kiln_gpu_symbol {
  const char *name;
  size_t offset;
} kiln_gpu_symbol;
// Opens |library| and stores its |symbols| in |functions|. The process never unloads it, so that
// devices keep their numbers.
//
// gives:  *out_library, to be closed by dlclose
// errors: KILN_DEVICE_ERROR: the library or one of its functions is missing
KILN_MUST_USE kiln_status kiln_gpu_open_library(const char *place, const char *library, size_t n,
                                                const kiln_gpu_symbol *symbols, void *functions,
                                                kiln_diag *diag, void **out_library);

// The architecture for which code of a device is compiled: CUDA's "sm_90".
KILN_MUST_USE kiln_status kiln_gpu_arch(kiln_plan_kind kind, int32_t device, kiln_diag *diag,
                                        char arch[16]);
// The fields of a device's context, which is closed again: its name and sizes.
KILN_MUST_USE kiln_status kiln_gpu_describe(kiln_plan_kind kind, int32_t device, kiln_diag *diag,
                                            kiln_gpu_context *out);

#endif
