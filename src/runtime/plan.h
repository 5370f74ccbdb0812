// The plan: what a module does, as data. Launches in order, where their arguments lie, the
// interface.
//
// As a blob it is position-independent and little-endian, begins with a magic number, an endianness
// mark and a version, and is written by the compiler and read by the runtime. The reader checks
// every count, index, offset and extent: what it accepts can be run without further checks, what it
// does not accept gives a message. Both sides share struct kiln_plan.
#ifndef KILN_RUNTIME_PLAN_H
#define KILN_RUNTIME_PLAN_H

#include "runtime/types.h"

enum { KILN_PLAN_VERSION = 11, KILN_PLAN_ALIGN = 64, KILN_PLAN_MAX_BLOCK = 4096 };

// What runs the functions.
typedef enum kiln_plan_kind {
  KILN_PLAN_CPU,    // this processor: they are symbols of the module's shared object
  KILN_PLAN_CUDA,   // a GPU: they are symbols of cubins
  KILN_PLAN_OPENCL, // any OpenCL device: they are kernels of OpenCL C sources
  KILN_N_PLAN_KINDS
} kiln_plan_kind;

// Code for a device: a part of the module's code, aligned to KILN_PLAN_ALIGN.
typedef struct kiln_plan_image {
  uint64_t offset, bytes;
} kiln_plan_image;

typedef enum kiln_place {
  KILN_PLACE_INPUT,   // memory of input |index|
  KILN_PLACE_OUTPUT,  // memory of output |index|
  KILN_PLACE_ARENA,   // the session's arena
  KILN_PLACE_WEIGHTS, // the module's packed weights
  KILN_PLACE_EXTERN,  // constant |index| that an in-memory module borrows
  KILN_N_PLACES
} kiln_place;

typedef struct kiln_plan_arg {
  kiln_place where;
  uint32_t index; // INPUT, OUTPUT, EXTERN; else 0
  // The offset is a multiple of KILN_PLAN_ALIGN for WEIGHTS, any for ARENA, INPUT and OUTPUT (a
  // part of a tensor, or a tensor inside another), 0 for EXTERN.
  uint64_t offset, bytes;
} kiln_plan_arg;

typedef struct kiln_plan_port {
  const char *name;
  const kiln_type *type;
  int32_t rank;
  int64_t shape[KILN_PORT_MAX_RANK];
  uint64_t bytes; // made by the reader
  // Of an input: 0: it must be given; else 1 more than the offset in the weights of what it is
  // where it is not.
  uint64_t initial;
} kiln_plan_port;

// How a function of CUDA reads an argument by boxes: rows of elements of 2 bytes, of a matrix,
// which has one axis of them, or of a tensor, along whose columns, rows and images windows lie.
enum { KILN_PLAN_MAX_MAPS = 4, KILN_PLAN_MAP_AXES = 3 };
typedef struct kiln_plan_map {
  uint32_t index;  // among the function's arguments
  uint32_t n_axes; // 1, or KILN_PLAN_MAP_AXES
  uint32_t box_rows, box_columns;
  uint64_t columns;
  uint64_t rows[KILN_PLAN_MAP_AXES], pitches[KILN_PLAN_MAP_AXES]; // how many, and bytes apart
  // Of windows along columns and rows: how far apart, where the first lies, and how far behind the
  // tensor's last element the last one does.
  uint32_t steps[2];
  int32_t lower[2], upper[2];
} kiln_plan_map;

typedef struct kiln_plan_nest {
  uint32_t function; // index in functions
  uint32_t threads;  // at most that many are worth waking; 1: run by the caller alone
  int64_t extent;    // iterations of the parallel loop; 1 where there is none
  // On a device, instead of threads and extent (1 and 1). A grid of no blocks is not launched.
  uint32_t image; // index in images
  uint32_t grid[3], block[3];
  uint32_t shared_bytes;           // dynamic
  uint32_t first_index, n_indices; // in indices: which of the launch's arguments the function takes
  uint32_t n_maps;                 // which it takes behind them
  bool waits; // for what was launched before it, by itself: it may be launched before that is over
  kiln_plan_map maps[KILN_PLAN_MAX_MAPS];
} kiln_plan_nest;

// A kernel of a library (backend/backend.h), in place of functions of the module.
typedef struct kiln_plan_call {
  const char *backend; // its name; the reader does not ask whether there is such a one
  const char *text;    // backend/library_call.h; the reader has seen to it that this is one
  uint32_t threads;    // at most that many are worth waking; 1 on a device
} kiln_plan_call;

typedef struct kiln_plan_launch {
  const char *kernel, *nodes;
  double flops, bytes;
  uint32_t first_arg, n_args;   // in args
  uint32_t first_nest, n_nests; // in nests
  uint32_t call;                // 0: none; else the number in calls, plus 1, and no nests
} kiln_plan_launch;

// After the launches: output |output| = the elements of |from|, read with |strides| (in elements)
// over the output's shape. For outputs that are inputs, constants, other outputs or not row-major.
typedef struct kiln_plan_copy {
  kiln_plan_arg from;
  uint32_t output;
  int64_t strides[KILN_PORT_MAX_RANK];
} kiln_plan_copy;

// An index that a run must find in range: the last output holds, for each, INT64_MIN or the
// greatest that is not.
typedef struct kiln_plan_check {
  const char *place, *index; // of the node; what it is called there
  int32_t axis;
  int64_t least, end; // least <= index < end; both 0 where only the run knows the extent
} kiln_plan_check;

typedef struct kiln_plan {
  kiln_plan_kind kind;
  const char *arch;                        // "sm_90a"; "" where there is none to name
  const char *compiler;                    // the version of Kiln that made it: "0.1.0"
  const char *processor;                   // what it was scheduled for: "znver3", "NVIDIA H100"
  uint32_t threads;                        // and for how many of a CPU
  uint64_t code_bytes;                     // of a device's images, all together; 0 for a CPU
  uint64_t arena_bytes, arena_bound_bytes; // what must lie there at once, whatever the offsets
  uint64_t weights_bytes;
  uint32_t n_externs; // 0 in a file
  uint32_t n_features, n_inputs, n_outputs, n_functions, n_launches, n_args, n_nests, n_copies;
  uint32_t n_images, n_indices; // 0 for a CPU
  uint32_t n_calls;             // 0 for OpenCL
  uint32_t
      n_shapes; // outputs behind the others: no part of the interface, but what only a run finds of it
  uint32_t n_checks;     // not 0: one more output behind these, an i64 for each
  const char **features; // of the CPU, by LLVM's names; the first is the architecture
  kiln_plan_port *inputs, *outputs;
  const char **functions; // symbols
  kiln_plan_launch *launches;
  kiln_plan_arg *args;
  kiln_plan_nest *nests;
  kiln_plan_copy *copies;
  kiln_plan_image *images;
  kiln_plan_call *calls;
  uint32_t *indices;
  kiln_plan_check *checks;
  uint32_t *shape_of; // [n_shapes]: the output before them whose shape each is, in i64
  void *text;         // reader: the copy of the blob that the strings point into
} kiln_plan;

static inline uint32_t kiln_plan_n_hidden(const kiln_plan *p) {
  return p->n_shapes + (p->n_checks > 0);
}
// Outputs of the interface.
static inline uint32_t kiln_plan_n_results(const kiln_plan *p) {
  return p->n_outputs - kiln_plan_n_hidden(p);
}

// gives: *out, malloc'ed; NULL when memory is out
void kiln_plan_write(const kiln_plan *plan, void **out, size_t *out_bytes);
// gives: *out, to be freed by kiln_plan_deinit; zeroed on failure
// errors: KILN_BAD_INPUT with |place| and the byte, KILN_NO_MEMORY
KILN_MUST_USE kiln_status kiln_plan_read(const void *blob, size_t bytes, const char *place,
                                         kiln_diag *diag, kiln_plan *out);
void kiln_plan_deinit(kiln_plan *plan);

#endif
