// GPU targets: loop programs as CUDA C, HIP or OpenCL C, and the machines they are for.
//
// A nest becomes one device function. Loops bound to block and thread axes become its grid and its
// blocks. A statement outside of thread loops is run by one thread, for which the others of its
// block wait. All thread loops of a nest run on blocks of one shape, the largest of each axis; in
// shorter loops threads are idle. SHARED buffers lie in one arena per block, where buffers that are
// not live at once share memory. Barriers are inserted only between conflicting accesses of two
// threads of a block (sync.c). One emitter writes all dialects from a table of spellings, without
// any header; each dialect is a target with a folder of its own (spelling.h).
//
// A LOCAL or REGISTER buffer that is allocated inside of the block loops and outside of the thread
// loops is distributed (a fragment): its elements, in the order of their offsets, are divided in
// equal parts among the threads of the block, x fastest, and a thread touches its own alone. Each
// thread keeps its part from one thread loop to the next, in registers where indices are constant
// once unrolled.
#ifndef KILN_TARGET_GPU_GPU_H
#define KILN_TARGET_GPU_GPU_H

#include "ir/lines.h"
#include "target/target.h"

enum { KILN_MAP_AXES = 3, KILN_MAX_MAPS = 4 };

// A tensor map: how TMA reads an argument, as rows of elements of 2 bytes. For a matrix |rows| and
// |pitches| have one entry, the number of rows and their distance in elements. In im2col mode
// (im2col.h) they have three, of columns, rows and images, and the elements are channels.
typedef struct kiln_gpu_map {
  int64_t arg; // in |args| of the launch
  int64_t box_rows, box_columns, columns, rows[KILN_MAP_AXES], pitches[KILN_MAP_AXES];
  int64_t steps[2]; // 0: a matrix
  int64_t lower[2], upper[2];
} kiln_gpu_map;

// The launch of a nest, or of several that are fused horizontally: SYMBOL_j takes the addresses of
// the PARAM and WORKSPACE buffers that it uses, in id order, each a multiple of 16 bytes.
typedef struct kiln_gpu_launch {
  int64_t grid[3], block[3];
  int64_t shared_bytes; // dynamic shared memory; always 0 in OpenCL, whose functions declare theirs
  bool waits; // the function waits for earlier launches itself, and may begin before they end
  int n_args;
  int *args;  // of each argument, its place among all PARAM and WORKSPACE buffers of the kernel
  int n_maps; // at most KILN_MAX_MAPS
  kiln_gpu_map *maps; // tensor maps that follow the arguments (CUDA)
} kiln_gpu_launch;

// The resources of a launch of a nest, or of several that are fused horizontally.
typedef struct kiln_gpu_demand {
  bool can_share; // may be fused horizontally: constant extents, no clusters
  int64_t blocks; // of the launch; and of each block:
  int64_t threads, shared_bytes, registers; // registers: of a thread, an estimate
  int n_maps; // at least: copies of windows (im2col) may need several, which kiln_gpu_lower counts
  bool has_windows;
} kiln_gpu_demand;
kiln_gpu_demand kiln_gpu_demand_of(kiln_ctx *cx, const kiln_loops *l, const kiln_loop *nest);
// Adds |d| to |io|, which begins as the demand of a nest.
void kiln_gpu_demand_add(const kiln_gpu_demand *d, kiln_gpu_demand *io);
// How many blocks with these resources are resident on |m| at once.
int64_t kiln_gpu_room(const kiln_machine *m, const kiln_gpu_demand *d);
// How many launches the nests of |kernel| are: those with the note KILN_HORIZONTAL_FUSION_NOTE
// share that of the one in front of them where they can. (horizontal_fusion.c)
int kiln_gpu_launches(kiln_ctx *cx, const kiln_machine *m, const kiln_loops *kernel);

// Appends the source of one kernel, a translation unit of its own with a function SYMBOL_0,
// SYMBOL_1, ... a launch.
//
// needs:  a verified kernel
// gives:  *out_launches, an entry a launch, in cx->perm
// errors: KILN_BAD_INPUT: the loops need more threads, shared memory or blocks than |m| has, or
//         a distributed buffer is not indexed by its thread; the message names the loop or the
//         buffer
kiln_status kiln_gpu_emit(kiln_ctx *cx, const kiln_machine *m, kiln_loops *kernel,
                          const char *symbol, kiln_text *out, int *out_n,
                          kiln_gpu_launch **out_launches);

// The same for people to read: the device loops and the source, each line with the line of |kernel|
// that it came from.
//
// needs:  numbered loops (ir/lines.h)
// gives:  appended to |out_device| and |out_source|, in cx->perm
// errors: as kiln_gpu_emit
kiln_status kiln_gpu_show(kiln_ctx *cx, const kiln_machine *m, kiln_loops *kernel,
                          const char *symbol, kiln_lined *out_device, kiln_lined *out_source);

// A nest as device loops (device/device.h), and its launch.
typedef struct kiln_gpu_device {
  const kiln_loops *loops; // with all buffers of the kernel
  int64_t grid[3], block[3];
  int64_t cluster;        // blocks of one, along x
  const int64_t *offsets; // [buffers] of SHARED ones in the block's arena, in bytes; -1: not used
  int n_maps;
  const kiln_gpu_map *maps; // of TMA copies, by number; |arg| is a buffer
} kiln_gpu_device;
// Makes the device loops of nest |number|, in cx->perm.
//
// errors: as kiln_gpu_emit
kiln_status kiln_gpu_lower(kiln_ctx *cx, const kiln_machine *m, kiln_loops *kernel, int number,
                           kiln_gpu_device *out);

// Whether kiln_gpu_emit accepts a kernel, without its text.
//
// errors: as kiln_gpu_emit
kiln_status kiln_gpu_check(kiln_ctx *cx, const kiln_machine *m, kiln_loops *kernel);

// A compiler from a target's sources to images; it needs no GPU.
typedef struct kiln_gpu_job kiln_gpu_job; // sources that are being compiled
typedef struct kiln_gpu_compiler {
  const char *name; // "nvrtc"
  // Its version, 13000 for 13.0, on which the images depend.
  //
  // errors: KILN_DEVICE_ERROR: it is not installed
  kiln_status (*version)(kiln_ctx *cx, int *out);
  // Compiles |n| sources for |m|'s architecture, on |n_threads| threads.
  //
  // gives:  out[n], an ELF image each; on failure nothing is left to free
  // errors: KILN_DEVICE_ERROR: it is not installed; KILN_INTERNAL: it refuses a source, with its
  //         log
  kiln_status (*compile)(kiln_ctx *cx, const kiln_machine *m, int n, const char *const *sources,
                         const char *const *names, int n_threads, kiln_object *out);
  // The assembly of one source, without the assembler's own directives, each line with its line of
  // |source|; NULL: not supported.
  //
  // gives:  appended to |out|, in cx->perm
  // errors: as |compile|
  kiln_status (*show)(kiln_ctx *cx, const kiln_machine *m, const kiln_lined *source,
                      const char *name, kiln_lined *out);
  // The same in the background: compiles sources in order, on threads of their own.
  //
  // needs:  |sources| and |names| to live until |end|
  // gives:  *out; NULL on failure
  // errors: KILN_DEVICE_ERROR: it is not installed; KILN_NO_MEMORY
  kiln_status (*start)(kiln_ctx *cx, const kiln_machine *m, int n, const char *const *sources,
                       const char *const *names, int n_threads, kiln_gpu_job **out);
  // Whether source |i| is compiled or refused, after |ms| milliseconds at most.
  bool (*wait)(kiln_gpu_job *j, int i, int ms);
  // Moves the result of source |i|, once it is waited for, to the caller: its image, or false and
  // the compiler's log, owned by |j|.
  bool (*take)(kiln_gpu_job *j, int i, kiln_object *out, const char **out_log);
  void (*end)(struct kiln_gpu_job *j); // after the source that is being compiled; NULL is allowed
} kiln_gpu_compiler;

// The instructions of |m|'s tensor cores, by name: "mma.m16n8k16.f16". Lives in |cx|; empty without
// tensor cores.
kiln_instr *kiln_gpu_instrs(kiln_ctx *cx, const kiln_machine *m, int *out_n);

// A GPU by name, "cuda:sm_80", "hip:gfx90a", "opencl", of those of all targets. Its device figures
// are nominal.
//
// errors: KILN_BAD_INPUT: no such architecture; the message lists the known ones
kiln_status kiln_gpu_machine_named(kiln_ctx *cx, const char *name, kiln_machine *out);

// Gives |io|, a machine of the card's architecture, the card's name and sizes. Rates stay nominal.
void kiln_gpu_machine_take_card(kiln_ctx *cx, const kiln_gpu_card *card, kiln_machine *io);

#endif
