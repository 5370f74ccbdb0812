// SPDX-License-Identifier: Apache-2.0
// Modules: compiled models, loaded and run. This header needs libkiln_rt only.
#ifndef KILN_MODULE_H
#define KILN_MODULE_H

#include "kiln/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

// Immutable, counted references, usable from any thread.
typedef struct kiln_module kiln_module;
// An arena, and a thread pool or a stream of a GPU: one run at a time; make one per concurrent run.
typedef struct kiln_session kiln_session;

// Loads a module made by `kiln compile`; its weights are mapped.
//
// gives:  *out_module, one reference; NULL on failure
// errors: KILN_BAD_INPUT (no module, another version, damaged), KILN_DEVICE_ERROR (wrong CPU: names
//         the missing feature), KILN_NO_MEMORY
KILN_API KILN_MUST_USE kiln_status kiln_module_load(const char *path, kiln_diag *diag,
                                                    KILN_GIVE kiln_module **out_module);
// Reads what a module says of itself, whatever machine it is for: its code is not loaded, and no
// session can be made of it.
//
// gives:  *out_module, one reference; NULL on failure
// errors: as kiln_module_load, but for the CPU
KILN_API KILN_MUST_USE kiln_status kiln_module_describe(const char *path, kiln_diag *diag,
                                                        KILN_GIVE kiln_module **out_module);
// 1: the file is a module, or a part of one, by its contents: it ends as one does, or is a shared
// object. 0: it is none, or cannot be read.
KILN_API int32_t kiln_module_is_file(const char *path);
KILN_API kiln_module *kiln_module_retain(kiln_module *module);
KILN_API void kiln_module_release(kiln_module *module); // NULL is allowed

typedef struct kiln_port {
  const char *name;
  const char *dtype; // "f32"
  int32_t rank;
  const int64_t *shape;
} kiln_port;
KILN_API size_t kiln_module_input_count(const kiln_module *module);
KILN_API size_t kiln_module_output_count(const kiln_module *module);
KILN_API kiln_port kiln_module_input(const kiln_module *module, size_t i);
KILN_API kiln_port kiln_module_output(const kiln_module *module, size_t i);
// What input |i| is in a run that gives NULL for it, an initializer of the model that may be
// replaced (see kiln_compile_options.overridable): the module's own, of the port's type and shape,
// which lives as long as the module. NULL: the input must be given.
KILN_API const DLTensor *kiln_module_input_default(const kiln_module *module, size_t i);
// 1: a run may give NULL for input |i|.
KILN_API int32_t kiln_module_input_is_optional(const kiln_module *module, size_t i);

// What a module is. Its strings live as long as it.
typedef struct kiln_module_info {
  const char *target;    // what runs its code: "x86_64", "aarch64", "cuda:sm_90a", "opencl"
  const char *processor; // what it was scheduled for: "znver3", "NVIDIA H100"
  int32_t threads;       // for how many it was scheduled; a session may have others
  size_t
      n_features; // of the processor, by LLVM's names, which its code uses and a machine must have
  const char *const *features;
  const char *compiler; // the version of Kiln that made it: "0.1.0"
  int32_t file_version; // of the module's format
  int32_t plan_version; // of the plan in it
  size_t n_variants;    // for parts of ranges of dimensions; 1: shapes are fixed
} kiln_module_info;
KILN_API kiln_module_info kiln_module_about(const kiln_module *module);
// A named dimension that a module takes at any of |least|, |least| + |step|, ... up to |most|. A
// port's extent that depends on one is -1 in kiln_port, and known once the inputs are.
enum { KILN_MAX_DIMS = 8, KILN_MAX_PORT_RANK = 8 };
typedef struct kiln_dim_range {
  const char *name;
  int64_t least, most, step;
} kiln_dim_range;
KILN_API size_t kiln_module_dim_count(const kiln_module *module); // 0: all shapes are fixed
KILN_API kiln_dim_range kiln_module_dim(const kiln_module *module, size_t i);
// The dimensions that shapes of inputs say. |out_values| has room for KILN_MAX_DIMS.
//
// errors: KILN_BAD_INPUT names the input, what must hold and what was given
KILN_API KILN_MUST_USE kiln_status kiln_module_find_dims(const kiln_module *module, size_t n_inputs,
                                                         const DLTensor *const *inputs,
                                                         kiln_diag *diag, int64_t *out_values);
// The shape of input or output |i| where the dimensions have |values|. |out_shape| has room for
// KILN_MAX_PORT_RANK.
//
// errors: KILN_BAD_INPUT: a value is out of range, there is no such port
KILN_API KILN_MUST_USE kiln_status kiln_module_input_shape(const kiln_module *module, size_t i,
                                                           const int64_t *values, kiln_diag *diag,
                                                           int64_t *out_shape);
KILN_API KILN_MUST_USE kiln_status kiln_module_output_shape(const kiln_module *module, size_t i,
                                                            const int64_t *values, kiln_diag *diag,
                                                            int64_t *out_shape);
// Memory that a session allocates; for ranges of dimensions, at most: it grows with what is run.
KILN_API size_t kiln_module_arena_bytes(const kiln_module *module);
// What no plan of the same launches could do without: the most that is alive at once.
KILN_API size_t kiln_module_arena_lower_bound_bytes(const kiln_module *module);
KILN_API size_t kiln_module_weight_bytes(const kiln_module *module);

// One launch of the plan, for reports.
typedef struct kiln_launch_info {
  const char *kernel;  // name of the kernel
  const char *nodes;   // the graph nodes it computes, joined by '+'
  double flops, bytes; // per run: arithmetic, compulsory memory traffic
} kiln_launch_info;
KILN_API size_t kiln_module_launch_count(const kiln_module *module);
KILN_API kiln_launch_info kiln_module_launch(const kiln_module *module, size_t i);

typedef struct kiln_session_options {
  size_t struct_size; // sizeof(kiln_session_options); new fields go at the end
  int32_t threads;    // exactly that many, the caller's included; 0: all physical cores
  int32_t profile;    // 1: record the time of every launch; 2: of every thread in it, too
  // Microseconds for which a thread that waits for work spins before it sleeps, from launch to
  // launch and behind a run; an idle session uses no processor after them. 0: 2000; -1: it sleeps
  // at once, and every launch on several threads wakes it. Nobody spins when the threads are more
  // than the CPUs.
  int32_t spin_us;
  // Of modules for a GPU (docs/guide/gpu-modules.md); threads and spin_us say nothing there.
  int32_t device; // its number, from 0
  int32_t
      is_async; // 1: a run whose tensors all are in the device's memory, and whose outputs' shapes are
                // known before it, is put into the stream and not waited for; see kiln_session_wait
  void *stream; // what runs are put into, behind what is there: a CUstream, 1 for CUDA's default
                // stream; borrowed. NULL: a stream of the session's own
} kiln_session_options;
// errors: KILN_BAD_INPUT (thread count), KILN_NO_MEMORY, KILN_DEVICE_ERROR (no driver, no such
//         device, or not the GPU that the module was compiled for: names both)
KILN_API KILN_MUST_USE kiln_status kiln_session_create(kiln_module *module,
                                                       const kiln_session_options *options,
                                                       kiln_diag *diag,
                                                       KILN_GIVE kiln_session **out_session);
KILN_API void kiln_session_destroy(KILN_TAKE kiln_session *session);

// A forked process may run, and must end, the sessions of its parent as its own: workers are
// started anew. (Not those of a GPU: KILN_DEVICE_ERROR.) Kernels round to nearest and keep
// subnormals, on all threads, whatever the caller has set.
//
// Runs once: |inputs| in the module's order, |outputs| in order receive the results; NULL for an
// optional input leaves it as it is in the model (kiln_module_input_default). All are
// row-major CPU tensors of the ports' types and shapes, borrowed for the call. A module for a GPU
// takes tensors in the memory of the session's device as well, used in place (borrowed until the
// run is over).
//
// errors: KILN_BAD_INPUT names the input or output, what must hold and what was given; nothing is
//         run then. KILN_BAD_INPUT after the run: an index was out of range; the message names the
//         node, the axis and the index (the greatest such), and the outputs hold nothing to rely
//         on. KILN_DEVICE_ERROR: the driver refused, or the run failed
KILN_API KILN_MUST_USE kiln_status kiln_session_run(kiln_session *session, size_t n_inputs,
                                                    const DLTensor *const *inputs, size_t n_outputs,
                                                    DLTensor *const *outputs, kiln_diag *diag);
// The shape that output |i| had in the last run, [rank]. Where only a run finds extents, as
// NonZero's, the port's are the most that they can be; a run takes tensors of the port's shape, and
// what it finds lies at the front of each axis. Owned by the session until its next run; NULL:
// there is no such output.
KILN_API const int64_t *kiln_session_output_shape(const kiln_session *session, size_t i);
// Waits for the runs of an |is_async| session; returns at once where none is under way.
//
// errors: KILN_DEVICE_ERROR: one of them failed; KILN_BAD_INPUT: an index in one of them was out of
//         range. A run that has to wait for others before it gives these, too
KILN_API KILN_MUST_USE kiln_status kiln_session_wait(kiln_session *session, kiln_diag *diag);
// Start and duration of launch |i| in the last run, when profile was asked; 0 otherwise.
KILN_API uint64_t kiln_session_launch_start_ns(const kiln_session *session, size_t i);
KILN_API uint64_t kiln_session_launch_ns(const kiln_session *session, size_t i);
// What a thread did without a break in the last run of a session with |profile| 2: its part of a
// nest of loops. On the clock of kiln_session_launch_start_ns.
typedef struct kiln_span {
  uint32_t launch; // as kiln_module_launch numbers them
  int32_t nest;    // in the launch
  int32_t thread;  // 0: the caller's
  uint64_t start_ns, ns;
} kiln_span;
// gives: *out_spans, unless that is NULL, in the order in which the caller began them, owned by the
//        session until its next run; how many. None of a GPU, whose stream runs launch by launch
KILN_API size_t kiln_session_spans(const kiln_session *session, const kiln_span **out_spans);

#ifdef __cplusplus
}
#endif
#endif
