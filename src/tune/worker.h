// Kernels are measured on a GPU in a worker process, so that a crash, a hang or exhausted memory
// costs a single measurement.
//
// The worker is the program kiln-worker next to the library, or $KILN_WORKER. It is restarted after
// a crash; it is executed rather than forked, because the compiling process may have threads and an
// open driver. Both processes map a memory file for code and arguments, and exchange frames through
// two pipes.
#ifndef KILN_TUNE_WORKER_H
#define KILN_TUNE_WORKER_H

#include "runtime/plan.h"

typedef struct kiln_worker kiln_worker;

typedef struct kiln_worker_options {
  kiln_plan_kind kind; // CUDA or OpenCL
  int32_t device;
  double limit_ms;          // silence after which the process counts as hung; 0: 20 seconds
  const volatile int *stop; // waiting ends when this becomes nonzero; NULL: never
} kiln_worker_options;

// The device that the worker opened.
typedef struct kiln_worker_device {
  char name[128], arch[16], driver[64];
} kiln_worker_device;

typedef struct kiln_worker_arg {
  char *data;
  uint64_t bytes;
  bool is_result; // copied back after the runs
} kiln_worker_arg;

typedef struct kiln_worker_nest {
  const char *function;
  uint32_t grid[3], block[3];
  uint32_t shared_bytes;
  int n_args, n_maps;
  const int *args;           // index in the task's arguments, for each argument of the launch
  const kiln_plan_map *maps; // TMA descriptors, passed after the arguments
} kiln_worker_nest;

typedef struct kiln_worker_task {
  const void *code;
  uint64_t code_bytes;
  const char *backend, *call; // a library kernel instead of code and nests; NULL: none
  int n_args, n_nests;
  const kiln_worker_arg *args;
  const kiln_worker_nest *nests;
  uint64_t flush_bytes; // written before every run, to evict caches
  int most_runs;        // most timed runs; the warm-up run is not timed and may be the only one
  double budget_ms;     // no further run after this time
  double hopeless_us;   // a kernel slower than this is run at most twice; 0: no limit
} kiln_worker_task;

typedef enum kiln_worker_outcome {
  KILN_WORKER_MEASURED,
  KILN_WORKER_REFUSED, // the driver refused it: |message|
  KILN_WORKER_LOST,    // the process ended or hung: |message|
  KILN_WORKER_STOPPED
} kiln_worker_outcome;
typedef struct kiln_worker_answer {
  kiln_worker_outcome outcome;
  double us; // median of the timed runs; 0: there were none
  int n_runs;
  char message[256];
} kiln_worker_answer;

// Starts the worker and opens the device in it.
//
// gives:  *out, to be destroyed by the caller; NULL on failure
// errors: KILN_DEVICE_ERROR: the program does not exist or does not start, or there is no such
//         device; KILN_NO_MEMORY
KILN_MUST_USE kiln_status kiln_worker_create(const kiln_worker_options *options, kiln_diag *diag,
                                             kiln_worker **out);
void kiln_worker_destroy(kiln_worker *w); // NULL is allowed
const kiln_worker_device *kiln_worker_device_of(const kiln_worker *w);
// Runs a kernel; after the last timed run, results are copied back into the arguments' data.
//
// gives:  *out, also if the worker crashed
// errors: KILN_DEVICE_ERROR: it crashed and cannot be restarted; KILN_NO_MEMORY
KILN_MUST_USE kiln_status kiln_worker_run(kiln_worker *w, const kiln_worker_task *task,
                                          kiln_diag *diag, kiln_worker_answer *out);

// --- the protocol ---

// The worker's descriptors; standard output and error are closed to the protocol because drivers
// may print there.
enum {
  KILN_WORKER_MEMORY_FD = 3, // the memory file
  KILN_WORKER_ORDERS_FD,
  KILN_WORKER_ANSWERS_FD,
  KILN_WORKER_MAX_RUNS = 64,
  KILN_WORKER_MAX_ARGS = 256,
  KILN_WORKER_MAX_NESTS = 64,
  KILN_WORKER_NAME_BYTES = 128,
  KILN_WORKER_CALL_BYTES = 512
};

// A frame is this header and |bytes| of payload: an order is a kiln_worker_order and its
// kiln_worker_launch[n_nests]; a reply is a kiln_worker_reply. The worker first sends a reply that
// says whether the device was opened.
typedef struct kiln_worker_frame {
  uint32_t magic, bytes;
} kiln_worker_frame;
#define KILN_WORKER_MAGIC UINT32_C(0x4e4c494b)

// A range of the memory file.
typedef struct kiln_worker_place {
  uint64_t offset, bytes;
  uint64_t is_result;
} kiln_worker_place;

typedef struct kiln_worker_order {
  uint64_t memory_bytes; // size of the memory file
  kiln_worker_place code, args[KILN_WORKER_MAX_ARGS];
  uint64_t flush_bytes;
  double budget_ms, hopeless_us;
  uint32_t n_args, n_nests, most_runs, reserved;
  char backend[KILN_WORKER_NAME_BYTES], call[KILN_WORKER_CALL_BYTES]; // "": none
} kiln_worker_order;

typedef struct kiln_worker_launch {
  char function[KILN_WORKER_NAME_BYTES];
  uint32_t grid[3], block[3];
  uint32_t shared_bytes, n_args, n_maps;
  uint32_t args[KILN_WORKER_MAX_ARGS];
  kiln_plan_map maps[KILN_PLAN_MAX_MAPS];
} kiln_worker_launch;

typedef struct kiln_worker_reply {
  int32_t status; // a kiln_status
  uint32_t n_runs;
  double us[KILN_WORKER_MAX_RUNS];
  kiln_worker_device device; // in the first reply
  char message[256];
} kiln_worker_reply;

#endif
