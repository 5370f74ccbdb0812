// Kernels are measured on a GPU in a worker process, so that a crash, a hang or exhausted memory
// loses only one measurement.
//
// The worker is the program kiln-worker next to the library, or $KILN_WORKER. It is started anew
// after a loss, and never forked, because the compiling process may have threads and an open
// driver. Both map one file in memory for code and arguments, and exchange frames through two
// pipes.
#ifndef KILN_TUNE_WORKER_H
#define KILN_TUNE_WORKER_H

#include "runtime/plan.h"

typedef struct kiln_worker kiln_worker;

typedef struct kiln_worker_options {
  kiln_plan_kind kind; // CUDA or OpenCL
  int32_t device;
  double limit_ms;          // without an answer for so long, the process hangs; 0: 20 seconds
  const volatile int *stop; // waiting ends where this is not 0; NULL: it does not
} kiln_worker_options;

// The device that the process found.
typedef struct kiln_worker_device {
  char name[128], arch[16], driver[64];
} kiln_worker_device;

typedef struct kiln_worker_arg {
  char *data;
  uint64_t bytes;
  bool is_result; // copied back
} kiln_worker_arg;

typedef struct kiln_worker_nest {
  const char *function;
  uint32_t grid[3], block[3];
  uint32_t shared_bytes;
  int n_args, n_maps;
  const int *args;           // of each argument, which of the task's it is
  const kiln_plan_map *maps; // what the function takes behind them
} kiln_worker_nest;

typedef struct kiln_worker_task {
  const void *code;
  uint64_t code_bytes;
  const char *backend, *call; // a library's kernel, in place of code and nests; NULL: none
  int n_args, n_nests;
  const kiln_worker_arg *args;
  const kiln_worker_nest *nests;
  uint64_t flush_bytes; // written before every run, to take the place of what caches hold
  int most_runs;        // that are timed; the first run is not, and may be the only one
  double budget_ms;     // no further run after so long
  double hopeless_us;   // a kernel this slow is not worth more than two; 0: any is
} kiln_worker_task;

typedef enum kiln_worker_outcome {
  KILN_WORKER_MEASURED,
  KILN_WORKER_REFUSED, // the driver said no, and why: |message|
  KILN_WORKER_LOST,    // the process ended or hung: |message| says which
  KILN_WORKER_STOPPED
} kiln_worker_outcome;
typedef struct kiln_worker_answer {
  kiln_worker_outcome outcome;
  double us; // the median of the timed runs; 0: there were none
  int n_runs;
  char message[256];
} kiln_worker_answer;

// Starts the process and opens the device there.
//
// gives:  *out, to be destroyed by the caller; NULL on failure
// errors: KILN_DEVICE_ERROR: the program is not there or does not start, there is no such device;
//         KILN_NO_MEMORY
KILN_MUST_USE kiln_status kiln_worker_create(const kiln_worker_options *options, kiln_diag *diag,
                                             kiln_worker **out);
void kiln_worker_destroy(kiln_worker *w); // NULL is allowed
const kiln_worker_device *kiln_worker_device_of(const kiln_worker *w);
// Runs a kernel and copies its results back, after the last timed run, into the arguments' data.
//
// gives:  *out, whatever became of the process
// errors: KILN_DEVICE_ERROR: it was lost and cannot be started again; KILN_NO_MEMORY
KILN_MUST_USE kiln_status kiln_worker_run(kiln_worker *w, const kiln_worker_task *task,
                                          kiln_diag *diag, kiln_worker_answer *out);

// --- what both processes know

// Descriptors as the process gets them; its standard ones are nobody's, drivers may print.
enum {
  KILN_WORKER_MEMORY_FD = 3, // the file in memory
  KILN_WORKER_ORDERS_FD,
  KILN_WORKER_ANSWERS_FD,
  KILN_WORKER_MAX_RUNS = 64,
  KILN_WORKER_MAX_ARGS = 256,
  KILN_WORKER_MAX_NESTS = 64,
  KILN_WORKER_NAME_BYTES = 128,
  KILN_WORKER_CALL_BYTES = 512
};

// A frame is this header and |bytes| more: of an order, a kiln_worker_order and its
// kiln_worker_launch[n_nests]; of a reply, a kiln_worker_reply. A process begins with a reply,
// before any order, which says whether the device was opened.
typedef struct kiln_worker_frame {
  uint32_t magic, bytes;
} kiln_worker_frame;
#define KILN_WORKER_MAGIC UINT32_C(0x4e4c494b)

// Where something lies in the file.
typedef struct kiln_worker_place {
  uint64_t offset, bytes;
  uint64_t is_result;
} kiln_worker_place;

typedef struct kiln_worker_order {
  uint64_t memory_bytes; // of the file
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
  kiln_worker_device device; // of the first answer
  char message[256];
} kiln_worker_reply;

#endif
