// GPUs as the runtime sees them: a table of functions for each driver, opened at run time.
//
// A context is one device of one driver. Its functions may be called by any thread; what one
// stream, event, graph or capture is concerned with, by one thread at a time. Addresses are the
// driver's own for CUDA, so that other libraries' memory can be used in place, and pointers into
// shared virtual memory for OpenCL: both can be added to. Every function that can fail says why in
// |diag|, with what the driver says.
#ifndef KILN_RUNTIME_GPU_H
#define KILN_RUNTIME_GPU_H

#include "backend/backend.h"
#include "kiln/status.h"
#include "runtime/plan.h"
#include "runtime/strided.h"

typedef struct kiln_gpu_api kiln_gpu_api;
typedef struct kiln_gpu_image kiln_gpu_image;       // loaded code
typedef struct kiln_gpu_function kiln_gpu_function; // of an image, with which it goes
typedef struct kiln_gpu_stream kiln_gpu_stream;
typedef struct kiln_gpu_event kiln_gpu_event;
typedef struct kiln_gpu_graph kiln_gpu_graph; // work that was captured, to be launched as one

// The begin of every context; the driver's own fields follow.
typedef struct kiln_gpu_context {
  const kiln_gpu_api *api;
  int32_t device;
  char name[128];  // "NVIDIA H200"
  char arch[16];   // "sm_90"; "" for OpenCL
  char driver[64]; // its version: "13.0"
} kiln_gpu_context;

typedef struct kiln_gpu_call {
  kiln_gpu_function *function;
  const uint32_t *grid, *block; // [3]
  uint32_t shared_bytes;        // dynamic
  bool
      is_early; // may begin before the launch in front of it in the stream is over: it waits itself
  uint32_t n_args;
  char *const *args; // addresses
  uint32_t n_maps;
  const kiln_plan_map *maps; // of arguments, which CUDA's functions take behind them
} kiln_gpu_call;

struct kiln_gpu_api {
  const char *name; // "cuda": the place of messages

  // errors: KILN_DEVICE_ERROR: there is no driver, or no device of that number
  KILN_MUST_USE kiln_status (*open)(int32_t device, kiln_diag *diag, kiln_gpu_context **out);
  void (*close)(kiln_gpu_context *c); // NULL is allowed

  // errors: KILN_NO_MEMORY: says how much was wanted for |what|, and how much there is
  KILN_MUST_USE kiln_status (*allocate)(kiln_gpu_context *c, uint64_t bytes, const char *what,
                                        kiln_diag *diag, char **out);
  void (*free)(kiln_gpu_context *c, char *memory); // NULL is allowed
  // Memory of the host that the device copies from and to without a detour.
  KILN_MUST_USE kiln_status (*allocate_host)(kiln_gpu_context *c, uint64_t bytes, const char *what,
                                             kiln_diag *diag, char **out);
  void (*free_host)(kiln_gpu_context *c, char *memory);

  // errors: KILN_DEVICE_ERROR: the driver does not take the code |what|, with its log
  KILN_MUST_USE kiln_status (*load)(kiln_gpu_context *c, const void *code, uint64_t bytes,
                                    const char *what, kiln_diag *diag, kiln_gpu_image **out);
  void (*unload)(kiln_gpu_context *c, kiln_gpu_image *image);
  // |shared_bytes|: the most that a call asks for
  KILN_MUST_USE kiln_status (*find)(kiln_gpu_context *c, kiln_gpu_image *image, const char *name,
                                    uint32_t shared_bytes, kiln_diag *diag,
                                    kiln_gpu_function **out);
  void (*forget)(kiln_gpu_context *c, kiln_gpu_function *function);

  // A stream, a function, an event is the driver's own handle: someone else's will do as well.
  KILN_MUST_USE kiln_status (*stream)(kiln_gpu_context *c, kiln_diag *diag, kiln_gpu_stream **out);
  void (*end_stream)(kiln_gpu_context *c, kiln_gpu_stream *s);
  // Waits for all that was put into the stream.
  KILN_MUST_USE kiln_status (*wait)(kiln_gpu_context *c, kiln_gpu_stream *s, kiln_diag *diag);

  // What follows is put into a stream and returns.
  KILN_MUST_USE kiln_status (*copy)(kiln_gpu_context *c, kiln_gpu_stream *s, char *to,
                                    const char *from, uint64_t bytes, kiln_diag *diag);
  KILN_MUST_USE kiln_status (*copy_strided)(kiln_gpu_context *c, kiln_gpu_stream *s,
                                            const kiln_strided *what, kiln_diag *diag);
  KILN_MUST_USE kiln_status (*launch)(kiln_gpu_context *c, kiln_gpu_stream *s,
                                      const kiln_gpu_call *call, kiln_diag *diag);

  KILN_MUST_USE kiln_status (*event)(kiln_gpu_context *c, kiln_diag *diag, kiln_gpu_event **out);
  void (*end_event)(kiln_gpu_context *c, kiln_gpu_event *e);
  KILN_MUST_USE kiln_status (*record)(kiln_gpu_context *c, kiln_gpu_stream *s, kiln_gpu_event *e,
                                      kiln_diag *diag);
  // Between two events that have happened.
  KILN_MUST_USE kiln_status (*elapsed)(kiln_gpu_context *c, kiln_gpu_event *from,
                                       kiln_gpu_event *to, kiln_diag *diag, uint64_t *out_ns);

  // Around what libraries do on the device: its context is the thread's meanwhile. NULL, both,
  // where there are no such.
  bool (*enter)(kiln_gpu_context *c);
  void (*leave)(kiln_gpu_context *c);

  // NULL, all four, where a driver has no graphs. What is put into |s| between begin and end is not
  // run but kept.
  KILN_MUST_USE kiln_status (*capture)(kiln_gpu_context *c, kiln_gpu_stream *s, kiln_diag *diag);
  // gives: *out_graph; NULL on failure, or where |wanted| is false
  KILN_MUST_USE kiln_status (*end_capture)(kiln_gpu_context *c, kiln_gpu_stream *s, bool wanted,
                                           kiln_diag *diag, kiln_gpu_graph **out_graph);
  KILN_MUST_USE kiln_status (*replay)(kiln_gpu_context *c, kiln_gpu_stream *s,
                                      kiln_gpu_graph *graph, kiln_diag *diag);
  void (*end_graph)(kiln_gpu_context *c, kiln_gpu_graph *graph);
};

extern const kiln_gpu_api kiln_cuda_api, kiln_opencl_api;

// Begins what a library does on the device, which kiln_gpu_api.leave ends.
//
// errors: KILN_UNSUPPORTED: the driver has no libraries; KILN_DEVICE_ERROR: this thread cannot use
//         it
KILN_MUST_USE kiln_status kiln_gpu_enter(kiln_gpu_context *c, kiln_diag *diag);
// Puts the kernel of |b| into the stream.
//
// errors: KILN_DEVICE_ERROR: the library fails, it says why
KILN_MUST_USE kiln_status kiln_gpu_put_bound(kiln_gpu_context *c, kiln_gpu_stream *s,
                                             const kiln_bound *b, char *const *args,
                                             kiln_diag *diag);
void kiln_gpu_bound_deinit(kiln_gpu_context *c, kiln_bound *b);
const kiln_gpu_api *kiln_gpu_api_of(kiln_plan_kind kind); // NULL for a CPU

// A function of a driver's library, and where in a structure of pointers it goes.
typedef struct kiln_gpu_symbol {
  const char *name;
  size_t offset;
} kiln_gpu_symbol;
// Opens |library| and puts its |symbols| into |functions|. The process keeps it, so that devices
// keep their numbers.
//
// gives:  *out_library, to be closed by dlclose
// errors: KILN_DEVICE_ERROR: the library is not there, or has not all of them
KILN_MUST_USE kiln_status kiln_gpu_open_library(const char *place, const char *library, size_t n,
                                                const kiln_gpu_symbol *symbols, void *functions,
                                                kiln_diag *diag, void **out_library);

// The architecture of a device for code that is compiled for it: CUDA's "sm_90".
KILN_MUST_USE kiln_status kiln_gpu_arch(kiln_plan_kind kind, int32_t device, kiln_diag *diag,
                                        char arch[16]);

#endif
