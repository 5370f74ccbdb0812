// SPDX-License-Identifier: Apache-2.0
// Modules: loading and running compiled models. This header needs libkiln_rt only.
#ifndef KILN_MODULE_H
#define KILN_MODULE_H

#include "kiln/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

// Immutable, reference counted, usable from any thread.
typedef struct kiln_module kiln_module;
// An arena, and a thread pool or a GPU stream: one run at a time; make a session for each
// concurrent run.
typedef struct kiln_session kiln_session;

// Loads a module made by `kiln compile`; its weights are mapped.
//
// gives:  *out_module, one reference; NULL on failure
// errors: KILN_BAD_INPUT (not a module, another version, damaged), KILN_DEVICE_ERROR (wrong CPU:
//         names the missing feature), KILN_NO_MEMORY
KILN_API KILN_MUST_USE kiln_status kiln_module_load(const char *path, kiln_diag *diag,
                                                    KILN_GIVE kiln_module **out_module);
// Reads a module's description, for any machine: its code is not loaded, and no session can be
// created.
//
// gives:  *out_module, one reference; NULL on failure
// errors: as kiln_module_load, except those of the CPU
KILN_API KILN_MUST_USE kiln_status kiln_module_describe(const char *path, kiln_diag *diag,
                                                        KILN_GIVE kiln_module **out_module);
// 1: the file is a module or a truncated one, judged by its contents: it has a module's trailer or
// is a shared object. 0: another file, or unreadable.
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
// The default value of optional input |i|, for runs that give NULL (see
// kiln_compile_options.overridable): a tensor of the port's type and shape, which lives as long as
// the module. NULL: the input is required.
KILN_API const DLTensor *kiln_module_input_default(const kiln_module *module, size_t i);
// 1: a run may give NULL for input |i|.
KILN_API int32_t kiln_module_input_is_optional(const kiln_module *module, size_t i);

// State: an output of a run that is an input of the next one, in memory of the session, as a
// decoder's key-value cache (kiln_compile_options.states).
typedef struct kiln_state_info {
  const char *name;     // the input's
  size_t input, output; // indices of the ports
} kiln_state_info;
KILN_API size_t kiln_module_state_count(const kiln_module *module); // 0: runs keep nothing
KILN_API kiln_state_info kiln_module_state(const kiln_module *module, size_t i);

// A module's description. Its strings live as long as the module.
typedef struct kiln_module_info {
  const char *target;    // the code's target: "x86_64", "aarch64", "cuda:sm_90a", "opencl"
  const char *processor; // the processor that it was scheduled for: "znver3", "NVIDIA H100"
  int32_t threads;       // threads that it was scheduled for; a session may have others
  size_t n_features;     // required processor features, by LLVM's names
  const char *const *features;
  const char *compiler; // version of Kiln that compiled it: "0.1.0"
  int32_t file_version; // of the module's format
  int32_t plan_version; // of its plan
  size_t n_variants;    // number of shape buckets; 1: shapes are fixed
} kiln_module_info;
KILN_API kiln_module_info kiln_module_about(const kiln_module *module);
// A named dimension whose value may be |least|, |least| + |step|, ... up to |most|. A port's extent
// that depends on it is -1 in kiln_port, and determined by the inputs.
enum { KILN_MAX_DIMS = 8, KILN_MAX_PORT_RANK = 8 };
typedef struct kiln_dim_range {
  const char *name;
  int64_t least, most, step;
} kiln_dim_range;
KILN_API size_t kiln_module_dim_count(const kiln_module *module); // 0: all shapes are fixed
KILN_API kiln_dim_range kiln_module_dim(const kiln_module *module, size_t i);
// The values of the dimensions that shapes of inputs imply. |out_values| has room for
// KILN_MAX_DIMS.
//
// errors: KILN_BAD_INPUT with the input, the constraint and the given value
KILN_API KILN_MUST_USE kiln_status kiln_module_find_dims(const kiln_module *module, size_t n_inputs,
                                                         const DLTensor *const *inputs,
                                                         kiln_diag *diag, int64_t *out_values);
// The shape of input or output |i| for |values| of the dimensions. |out_shape| has room for
// KILN_MAX_PORT_RANK.
//
// errors: KILN_BAD_INPUT: a value is out of range, there is no such port
KILN_API KILN_MUST_USE kiln_status kiln_module_input_shape(const kiln_module *module, size_t i,
                                                           const int64_t *values, kiln_diag *diag,
                                                           int64_t *out_shape);
KILN_API KILN_MUST_USE kiln_status kiln_module_output_shape(const kiln_module *module, size_t i,
                                                            const int64_t *values, kiln_diag *diag,
                                                            int64_t *out_shape);
// Memory that a session allocates; with ranges of dimensions a maximum, since it grows on demand.
KILN_API size_t kiln_module_arena_bytes(const kiln_module *module);
// A lower bound of the arena's size for the same launches: the peak of live bytes.
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
  int32_t threads;    // exact number, including the caller; 0: all physical cores
  int32_t profile;    // 1: record the time of every launch; 2: also of every thread in it
  // Microseconds for which a waiting thread spins before it sleeps, between launches and after a
  // run; then an idle session uses no processor time. 0: 2000; -1: threads sleep at once, and every
  // launch on several threads wakes them. With more threads than CPUs no thread spins.
  int32_t spin_us;
  // For GPU modules (docs/guide/gpu-modules.md), which ignore threads and spin_us.
  int32_t device;   // index, from 0
  int32_t is_async; // 1: runs are asynchronous if all tensors are in device memory and the outputs'
                    // shapes are known before; see kiln_session_wait
  void *stream;     // a CUstream for runs, in stream order, 1 for CUDA's default stream; borrowed.
                    // NULL: a stream of the session's own
} kiln_session_options;
// errors: KILN_BAD_INPUT (thread count), KILN_NO_MEMORY, KILN_DEVICE_ERROR (no driver, no such
//         device, or not the GPU that the module was compiled for: names both)
KILN_API KILN_MUST_USE kiln_status kiln_session_create(kiln_module *module,
                                                       const kiln_session_options *options,
                                                       kiln_diag *diag,
                                                       KILN_GIVE kiln_session **out_session);
KILN_API void kiln_session_destroy(KILN_TAKE kiln_session *session);

// Runs the model once: |inputs| in the module's order; |outputs|, in order, receive the results;
// NULL for an optional input means its default (kiln_module_input_default). All are row-major CPU
// tensors of the ports' types and shapes, borrowed for the call. A GPU module also accepts tensors
// in its session's device memory, used in place (borrowed until the run is over).
//
// Kernels round to nearest and keep subnormals on all threads, regardless of the caller's
// environment. A forked process may run, and must destroy, sessions of its parent as its own:
// worker threads are restarted. (Except on GPUs: KILN_DEVICE_ERROR.)
//
// errors: KILN_BAD_INPUT before the run, with the input or output, the constraint and the given
//         value. KILN_BAD_INPUT after the run: an index was out of range; the message has the node,
//         the axis and the greatest such index, and the outputs are undefined. KILN_DEVICE_ERROR:
//         the driver refused, or the run failed
KILN_API KILN_MUST_USE kiln_status kiln_session_run(kiln_session *session, size_t n_inputs,
                                                    const DLTensor *const *inputs, size_t n_outputs,
                                                    DLTensor *const *outputs, kiln_diag *diag);
// --- State (kiln_module_state) ---
// For an input of a state a run takes NULL: the session's value, which begins with zeros, of the
// least extents where they vary. NULL for its output replaces that value by the run's result. A
// tensor for the input is used in place of the value, once; a tensor for the output receives the
// result, and the session keeps the value it had: so a run can be tried.
//
// The values of the dimensions as kiln_module_find_dims, with inputs of states that may be NULL.
KILN_API KILN_MUST_USE kiln_status kiln_session_find_dims(kiln_session *session, size_t n_inputs,
                                                          const DLTensor *const *inputs,
                                                          kiln_diag *diag, int64_t *out_values);
// The value of state |i|, owned by the session until its next run or change of state; NULL: there
// is no such state, or it begins anew.
KILN_API const DLTensor *kiln_session_state(const kiln_session *session, size_t i);
// All states begin anew.
//
// errors: KILN_BAD_INPUT: the module has no state
KILN_API KILN_MUST_USE kiln_status kiln_session_state_reset(kiln_session *session, kiln_diag *diag);
// Keeps the first |length| elements of each state along the axis along which runs append, as after
// tokens that were guessed wrong. The extent of the other axes, and states that do not grow, stay.
//
// errors: KILN_BAD_INPUT: no state grows, or one has fewer elements; then none is changed
KILN_API KILN_MUST_USE kiln_status kiln_session_state_truncate(kiln_session *session,
                                                               int64_t length, kiln_diag *diag);
// A new session of the same module and options with copies of the states, as for beams, or for
// requests that begin alike.
//
// gives:  *out_session, to be destroyed
// errors: as kiln_session_create; KILN_BAD_INPUT: the module has no state
KILN_API KILN_MUST_USE kiln_status kiln_session_fork(const kiln_session *session, kiln_diag *diag,
                                                     KILN_GIVE kiln_session **out_session);
// Writes the states to a file, or replaces them by those of a file of the same model's module.
//
// errors: KILN_BAD_INPUT: the module has no state; the file cannot be written or read, is damaged,
//         or has states of other names, types or ranks, or beyond their capacity: nothing is
//         changed. KILN_NO_MEMORY
KILN_API KILN_MUST_USE kiln_status kiln_session_state_save(const kiln_session *session,
                                                           const char *path, kiln_diag *diag);
KILN_API KILN_MUST_USE kiln_status kiln_session_state_load(kiln_session *session, const char *path,
                                                           kiln_diag *diag);
// The shape of output |i| in the last run, [rank]. Data-dependent extents, as of NonZero, are upper
// bounds in the port; a run takes tensors of the port's shape, and fills the leading part of each
// axis. Owned by the session until its next run; NULL: there is no such output.
KILN_API const int64_t *kiln_session_output_shape(const kiln_session *session, size_t i);
// Waits for the runs of an |is_async| session; returns at once if there are none.
//
// errors: KILN_DEVICE_ERROR: a run failed; KILN_BAD_INPUT: an index was out of range in a run. A
//         later run that waits for earlier ones reports these, too
KILN_API KILN_MUST_USE kiln_status kiln_session_wait(kiln_session *session, kiln_diag *diag);
// Runs of a session for a GPU go into |stream| (a CUstream, borrowed; 1: CUDA's default stream)
// from now on; NULL: into the session's own. Waits for runs that are not over, with the errors of
// kiln_session_wait.
//
// errors: KILN_BAD_INPUT: the module is for a CPU, or its driver takes no streams of others
KILN_API KILN_MUST_USE kiln_status kiln_session_set_stream(kiln_session *session, void *stream,
                                                           kiln_diag *diag);
// Start and duration of launch |i| in the last run, if profiled; 0 otherwise.
KILN_API uint64_t kiln_session_launch_start_ns(const kiln_session *session, size_t i);
KILN_API uint64_t kiln_session_launch_ns(const kiln_session *session, size_t i);
// An uninterrupted interval of work of a thread, its part of a loop nest, in the last run of a
// session with |profile| 2. Same clock as kiln_session_launch_start_ns.
typedef struct kiln_span {
  uint32_t launch; // index as in kiln_module_launch
  int32_t nest;    // in the launch
  int32_t thread;  // 0: the caller's
  uint64_t start_ns, ns;
} kiln_span;
// gives: their number, and *out_spans, unless that is NULL, in the order in which the caller began
//        them, owned by the session until its next run. None for a GPU, whose stream runs launches
//        one by one
KILN_API size_t kiln_session_spans(const kiln_session *session, const kiln_span **out_spans);

#ifdef __cplusplus
}
#endif
#endif
