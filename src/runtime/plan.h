// The plan: a module's program as data. It has the launches in order, the places of their
// arguments, and the interface.
//
// As a blob it is position-independent and little-endian, with a magic number, an endianness mark
// and a version at the begin. The compiler writes it, the runtime reads it. The reader checks every
// count, index, offset and extent, so that an accepted plan runs without further checks, and a
// rejected one gives a message. Both sides use struct kiln_plan.
#ifndef KILN_RUNTIME_PLAN_H
#define KILN_RUNTIME_PLAN_H

#include "runtime/types.h"

enum { KILN_PLAN_VERSION = 12, KILN_PLAN_ALIGN = 64, KILN_PLAN_MAX_BLOCK = 4096 };

// The processor or driver that runs the functions.
typedef enum kiln_plan_kind {
  KILN_PLAN_CPU,    // symbols of the module's shared object
  KILN_PLAN_CUDA,   // symbols of cubins
  KILN_PLAN_OPENCL, // kernels of OpenCL C sources
  KILN_N_PLAN_KINDS
} kiln_plan_kind;

// Code for a device: a range of the module's code, aligned to KILN_PLAN_ALIGN.
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
  uint32_t index; // of INPUT, OUTPUT, EXTERN; otherwise 0
  // A multiple of KILN_PLAN_ALIGN for WEIGHTS, anything for ARENA, INPUT and OUTPUT (a part of a
  // tensor, or a tensor inside of another), 0 for EXTERN.
  uint64_t offset, bytes;
} kiln_plan_arg;

typedef struct kiln_plan_port {
  const char *name;
  const kiln_type *type;
  int32_t rank;
  int64_t shape[KILN_PORT_MAX_RANK];
  uint64_t bytes; // computed by the reader
  // Of an input: 0 if it has no default; otherwise 1 + the offset of the default in the weights.
  uint64_t initial;
} kiln_plan_port;

// A tensor map by which a CUDA function copies an argument (TMA): rows of 2-byte elements, of a
// matrix (one axis of rows) or, in im2col mode, of a tensor whose columns, rows and images the
// windows run along.
enum { KILN_PLAN_MAX_MAPS = 4, KILN_PLAN_MAP_AXES = 3 };
typedef struct kiln_plan_map {
  uint32_t index;  // of the function's argument
  uint32_t n_axes; // of rows: 1, or KILN_PLAN_MAP_AXES
  uint32_t box_rows, box_columns;
  uint64_t columns;
  uint64_t rows[KILN_PLAN_MAP_AXES], pitches[KILN_PLAN_MAP_AXES]; // extents, and distances in bytes
  // Im2col mode, along columns and rows: the distance of windows, the corner of the first one, and
  // the distance of the last one's corner from the end of the tensor.
  uint32_t steps[2];
  int32_t lower[2], upper[2];
} kiln_plan_map;

typedef struct kiln_plan_nest {
  uint32_t function; // index in functions
  uint32_t threads;  // the most threads that speed it up; 1: the caller alone
  int64_t extent;    // iterations of the parallel loop; 1 if there is none
  // On a device, in place of threads and extent (1 and 1). An empty grid is not launched.
  uint32_t image; // index in images
  uint32_t grid[3], block[3];
  uint32_t shared_bytes; // dynamic
  // in indices: the numbers of the function's arguments among the launch's
  uint32_t first_index, n_indices;
  uint32_t n_maps; // parameters behind the arguments
  // the function itself waits for earlier launches, so it may be launched before they end
  bool waits;
  kiln_plan_map maps[KILN_PLAN_MAX_MAPS];
} kiln_plan_nest;

// A library kernel (backend/backend.h) in place of the module's functions.
typedef struct kiln_plan_call {
  const char *backend; // its name; the reader does not check that it exists
  const char *text;    // backend/library_call.h; checked by the reader
  uint32_t threads;    // the most threads that speed it up; 1 on a device
} kiln_plan_call;

typedef struct kiln_plan_launch {
  const char *kernel, *nodes;
  double flops, bytes;
  uint32_t first_arg, n_args;   // in args
  uint32_t first_nest, n_nests; // in nests
  uint32_t call;                // 0: none; otherwise 1 + number in calls, and there are no nests
} kiln_plan_launch;

// After the launches: output |output| = the elements of |from|, read with |strides| (in elements)
// over the output's shape. For outputs that are inputs, constants, other outputs, or not row-major.
typedef struct kiln_plan_copy {
  kiln_plan_arg from;
  uint32_t output;
  int64_t strides[KILN_PORT_MAX_RANK];
} kiln_plan_copy;

// An index whose range is checked at run time: the last output has an element for each, INT64_MIN
// if it is in range, otherwise the greatest value out of range.
typedef struct kiln_plan_check {
  const char *place, *index; // the node's name, and the index's name there
  int32_t axis;
  int64_t least, end; // least <= index < end; both 0 if the extent is data-dependent
} kiln_plan_check;

// Output |output| of a run is input |input| of the next one, in memory of the session.
typedef struct kiln_plan_state {
  uint32_t input, output;
} kiln_plan_state;

typedef struct kiln_plan {
  kiln_plan_kind kind;
  const char *arch;      // "sm_90a"; "" if there is none
  const char *compiler;  // version of Kiln: "0.1.0"
  const char *processor; // the machine that it was scheduled for: "znver3", "NVIDIA H100"
  uint32_t threads;      // the number of threads that it was scheduled for, on a CPU
  uint64_t code_bytes;   // of all images of a device; 0 for a CPU
  // |arena_bound_bytes|: the high-water mark of live temporaries, a lower bound for any offsets
  uint64_t arena_bytes, arena_bound_bytes;
  uint64_t weights_bytes;
  uint32_t n_externs; // 0 in a file
  uint32_t n_features, n_inputs, n_outputs, n_functions, n_launches, n_args, n_nests, n_copies;
  uint32_t n_images, n_indices; // 0 for a CPU
  uint32_t n_calls;             // 0 for OpenCL
  // hidden outputs, which hold data-dependent shapes
  uint32_t n_shapes;
  uint32_t n_checks;     // not 0: one more hidden output behind these, an i64 for each check
  const char **features; // of the CPU, by LLVM's names; the first one is the architecture
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
  uint32_t n_states;
  kiln_plan_state *states;
  uint32_t *shape_of; // [n_shapes]: the output whose shape, as i64, each one holds
  void *text;         // reader: a copy of the blob, to which strings point
} kiln_plan;

static inline uint32_t kiln_plan_n_hidden(const kiln_plan *p) {
  return p->n_shapes + (p->n_checks > 0);
}
// Outputs of the interface, without hidden ones.
static inline uint32_t kiln_plan_n_results(const kiln_plan *p) {
  return p->n_outputs - kiln_plan_n_hidden(p);
}

// gives: *out, malloc'ed; NULL if memory ran out
void kiln_plan_write(const kiln_plan *plan, void **out, size_t *out_bytes);
// gives: *out, to be freed by kiln_plan_deinit; zeroed on failure
// errors: KILN_BAD_INPUT with |place| and the byte, KILN_NO_MEMORY
KILN_MUST_USE kiln_status kiln_plan_read(const void *blob, size_t bytes, const char *place,
                                         kiln_diag *diag, kiln_plan *out);
void kiln_plan_deinit(kiln_plan *plan);

#endif
