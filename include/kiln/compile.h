// SPDX-License-Identifier: Apache-2.0
// The compiler: from an ONNX model or a definition in TC notation to a module.
//
// Results do not depend on the caller's locale, rounding mode, flushing of subnormals, traps,
// umask, signals or standard streams, and all of these are restored when a call returns. Callbacks
// run on the calling thread during the call; there the locale is "C" and rounding is to nearest.
//
// If memory is out, a call returns KILN_NO_MEMORY, also for allocations in LLVM and isl, for which
// a thread reserves 64 MiB of address space while it works (docs/design/robustness.md). Everything
// the call allocated is freed, and it can be repeated. This is not guaranteed for libraries that a
// call loads at run time: CBC (|orchestrate|), NVRTC, GPU drivers and the libraries of |backends|,
// which may abort the process.
//
// Names of a model are given in escaped form: bytes that are not printable UTF-8 become "\x1b" and
// the like, and distinct names stay distinct. Options accept names in either form.
#ifndef KILN_COMPILE_H
#define KILN_COMPILE_H

#include "kiln/module.h"

#ifdef __cplusplus
extern "C" {
#endif

// Receives one dump: |level| is "graph", "prim", "loop", "schedule", "plan", "c", "llvm" or "asm",
// of a GPU "cuda", "hip" or "opencl"; |text| is borrowed.
typedef void (*kiln_dump_fn)(void *user, const char *level, const char *text);
// Receives progress: |done| of |total| steps of |phase|.
typedef void (*kiln_progress_fn)(void *user, const char *phase, size_t done, size_t total);

// An input "x" that is a sequence or an optional value is as many inputs "x[0]", "x[1]", ... as are
// given for "x" (of an optional value -1: none); an output that is one has outputs "y[0]", "y[1]",
// ...
typedef struct kiln_dim_value {
  const char *name; // a named dimension, or an input that is a sequence or optional value
  int64_t value;
} kiln_dim_value;
typedef struct kiln_dim_sum {
  const char *name, *is; // "kv", "past + t": integer arithmetic of named dimensions
} kiln_dim_sum;
typedef struct kiln_shape_value {
  const char *name; // of an input
  int32_t rank;
  const int64_t *shape;
  // [rank]; an axis with a name other than NULL becomes a named dimension, and its entry of |shape|
  // is ignored. NULL: no names.
  const char *const *dim_names;
} kiln_shape_value;

// The contents of a file, in the caller's memory.
typedef struct kiln_memory_file {
  const char *name;
  const void *data;
  size_t n_bytes;
} kiln_memory_file;

// |shapes|, constants and |op_files| apply to ONNX models only, |entry| and |scheduler| to .tc
// files.
typedef struct kiln_compile_options {
  size_t struct_size; // sizeof(kiln_compile_options); new fields go at the end
  const kiln_dim_value *dims;
  size_t n_dims;
  const kiln_shape_value *shapes; // replaces the declared shapes of inputs
  size_t n_shapes;
  int32_t threads;  // threads that run the module and compile it; 0: all physical cores
  const char *dump; // levels joined by ','; NULL: none
  kiln_dump_fn on_dump;
  void *dump_user;
  kiln_progress_fn on_progress;
  void *progress_user;
  // Inputs to be compiled in as constants, by name (the ONNX backend tests pass shapes as inputs).
  const char *const *constant_names;
  const DLTensor *const *constant_values;
  size_t n_constants;
  int32_t read_only; // 1: kiln_model_load reads the file without lowering it; such a model cannot
                     // be compiled
  const char
      *entry; // of a .tc file: the definition to compile, the first of that name; NULL: the last
  // Text of a schedule file (docs/guide/schedules.md): sections `kernel NAME`, each with the script
  // that replaces Kiln's own for that kernel; or, without sections and for a .tc file, the script
  // of the whole definition as one kernel. NULL: Kiln's own.
  const char *schedule;
  const char *const *op_files; // .tc files whose `onnx` lines declare user-defined operators
  size_t n_op_files;
  // The target: NULL, "cpu" or "native": this machine; "x86-64-v2", "x86-64-v3", "x86-64-v4", or an
  // x86-64 processor by LLVM's name ("haswell", "znver4"), for whose vectors, registers and caches
  // kernels are scheduled (docs/guide/modules.md); "cuda": this machine's GPU; "cuda:sm_90a" and
  // the like: such a GPU, which need not be present; "opencl": any OpenCL device
  // (docs/guide/gpu-modules.md). For kiln_model_emit and kiln_model_simulate only: "c": C17 source;
  // "neon": an AArch64 processor; "hip:gfx90a" and the like: such a GPU.
  const char *target;
  // How a .tc file's definition is scheduled: "rules": grouped by rules into kernels; "max", "min"
  // or "preserve3": as one kernel by polyhedral scheduling, fusing as much as possible, nothing, or
  // whatever costs no parallel loop; with the suffix "+promote", boxes that a tile reuses are
  // copied to local memory. NULL: "rules". Excludes |schedule|.
  const char *scheduler;
  // 1: use the user's cache directory ($KILN_CACHE_DIR, else $XDG_CACHE_HOME/kiln, else
  // ~/.cache/kiln) for schedules and object code; it affects compile time only. 0: no cache.
  int32_t cache;
  // Measures this many candidates of every kernel on this machine, or on its GPU, and takes the
  // fastest; 0: takes the cost model's choice. With |cache| or |tuned|, measurements are stored and
  // reused.
  int32_t tune;
  // 1: 3x3 convolutions with stride 1 are computed directly, also where Winograd's algorithm, which
  // rounds differently, is predicted to be faster (docs/design/winograd.md).
  int32_t no_winograd;
  // 1: no fusion by cost: kernels stay as the rules group their statements (docs/guide/explain.md).
  int32_t no_connect;
  // "f16" or "bf16": f32 tensors are stored in this type, ports included; arithmetic and sums stay
  // f32, as do small results of reductions (means, maxima). Named dimensions must be bound. "tf32",
  // for CUDA from sm_80 on: tensors stay f32, and products round their operands to 10 fraction bits
  // for tensor cores. NULL: the model's types.
  const char *dtype;
  // Winograd's algorithm enlarges weights; this limits the total size of the module's weights to
  // about this many times the model's, which may cost speed. 0: no limit; otherwise at least 1.
  double weight_growth;
  // Tuning ends when this becomes nonzero (a signal handler may set it) and takes the best
  // candidates measured so far. Must live as long as the model. NULL: not interruptible.
  const volatile int *stop;
  // Time limit of tuning; kernels that take the most time are measured first; 0: no limit.
  double tune_seconds;
  // The name of a device, as "NVIDIA H200": its stored measurements decide, and the device need not
  // be present; excludes |tune|. NULL: |tune| or the cost model decides.
  const char *tuned_for;
  // The tuning database; |tune| creates it. NULL: tuned.sqlite in the user's cache directory if
  // |cache| or |tuned_for| is set, else none.
  const char *tuned;
  // 1: kernels are chosen by a binary linear program over all kernels that may pay, which takes
  // seconds (docs/design/orchestration.md). 0: by growing kernels along the edges of the program.
  int32_t orchestrate;
  // The file of an orchestration, as --dump=orchestration prints it, to be used unchanged. NULL:
  // none.
  const char *orchestration;
  // Rewriting rules and optional passes to skip, by name; a text may have several, separated by
  // ','. An error lists all names (docs/design/rules.md).
  size_t n_without;
  const char *const *without;
  // Alternatives, rules that do not always pay, to be applied: NAME wherever it matches, NAME@PLACE
  // at places only. |orchestrate| decides on the others: it takes the program that is predicted to
  // be the fastest.
  size_t n_with_rules;
  const char *const *with_rules;
  // For |orchestrate|: peak memory, in bytes, of results passed between kernels, which may cost
  // speed; ports, weights and kernels' local memory are excluded. 0: no limit.
  uint64_t memory_limit;
  // For |orchestrate|: most nodes of the solver's tree for each part; at the limit the best choice
  // found is taken, and the report gives the gap. 0: 4000.
  int32_t solver_nodes;
  // Libraries with kernels as candidates: "openblas,onednn" and the like, "all" installed ones, or
  // "none". A module calls a library where it was measured, by |tune| now or earlier, to be faster
  // than Kiln's own kernel, and then needs the library at run time (docs/guide/libraries.md). With
  // "always" in the list it is called wherever possible, for verification. NULL: "none".
  const char *backends;
  // Named dimensions with a range: the module accepts all values in it
  // (docs/guide/dynamic-shapes.md). For CPUs, and for kiln_model_compile_to only.
  const kiln_dim_range *ranges;
  size_t n_ranges;
  // Named dimensions defined by others, which have a value in |dims| or a range.
  const kiln_dim_sum *sums;
  size_t n_sums;
  // 1: on GPUs each kernel is a launch of its own. 0: independent kernels that fit the GPU together
  // share a launch, by horizontal fusion (docs/design/device-loop.md).
  int32_t no_beside;
  // 1: indices out of range are clamped silently. 0: the run fails with the node, the axis and the
  // index (docs/design/prim.md).
  int32_t clamp_indices;
  // Inputs with an initializer that become optional inputs of the module
  // (kiln_module_input_default), by name; "*": all. From IR version 4 on, such an initializer is a
  // default value; if not listed here, it is compiled in as a constant, as in older models. A run
  // gives a tensor of the initializer's type and shape, or NULL. Inputs without initializer are
  // ignored. To replace a default by a value known at compile time, of any shape that the model
  // accepts, use |constant_values|.
  const char *const *overridable;
  size_t n_overridable;
  // Passes after which the program is dumped to |on_dump|, by name, separated by ',': as
  // statements, as loops from the pass that lowers kernels on, as the plan after planning. The
  // level is "after-PASS". NULL: none.
  const char *dump_after;
  // Stops optional passes and rules early, to find the one that makes a program wrong: "N": after N
  // of their steps; "PASS": after that pass. The module is correct, but slower. NULL: run all.
  const char *stop_after;
  // Contents of files: the model under the name given as its path (whose extension tells its kind),
  // its external data under their locations. Files with these names are not opened, and nothing is
  // copied: the bytes are borrowed until the model and all modules that kiln_model_compile made
  // from it are released. For kiln_model_load and kiln_compile_file.
  const kiln_memory_file *files;
  size_t n_files;
  // Values computed by nodes of an ONNX model's graph, by name, which become outputs of the module
  // after the model's own, in this order; "*": all tensors, in node order. They change the choice
  // of kernels: a value that otherwise stayed inside of a kernel is stored.
  const char *const *marks;
  size_t n_marks;
  // The most that an extent is taken to be that only the run knows and that nothing else bounds, as
  // of Range(0, n) with n an input: memory and time are those of this extent, and a run that needs
  // more fails with the node and the number. 0: 1024.
  int64_t most_extent;
  // States, "INPUT=OUTPUT" each: the output of a run is the input of the next one, in memory of the
  // session (kiln_module_state), as a decoder's cache. "auto": all pairs of inputs and outputs
  // whose names differ in "past" and "present" only. For CPUs.
  const char *const *states;
  size_t n_states;
} kiln_compile_options;

// Statistics of |tune| or |tuned_for| in the last compilation.
typedef struct kiln_tuning {
  size_t kernels, known; // all; those with all candidates known before, or a single candidate
  size_t candidates;     // measured in this compilation
  size_t wrong;          // of these, rejected because of wrong results
  size_t lost;           // of these, rejected because their process crashed or hung (on GPUs)
  size_t changed;        // kernels for which another candidate than the first was taken
  int32_t stopped;       // 1: stopped before all were measured
  double before_ms,
      after_ms;   // of a run in all measured kernels: with the first candidates, with the
                  // fastest; 0 when nothing was measured
  size_t offered; // kernels for which a library of |backends| has a candidate
  // Kernels won by libraries, a line each: "k0_contract_MatMul  by openblas: 310.1 us, Kiln's own
  // 402.7 us"; owned by the model, "" if there are none.
  const char *won;
} kiln_tuning;

// Memory of the last compilation's module. Weights that kernels read in a transformed or padded
// form may be larger than in the model; model_weight_bytes is the size of the used weights as in
// the model.
typedef struct kiln_memory {
  uint64_t weight_bytes, model_weight_bytes;
  uint64_t arena_bytes, arena_lower_bound_bytes;
} kiln_memory;

typedef struct kiln_pass_time {
  const char *name; // "onnx", "fission", ...
  double ms;
} kiln_pass_time;

// A model that was read and checked, but not compiled.
typedef struct kiln_model kiln_model;
// Reads and checks |path|, an ONNX model or a file with the extension .tc (its sizes are
// |options->dims|); NULL |options| means defaults.
//
// gives:   *out_model, to be destroyed by the caller; NULL on failure
// errors:  KILN_BAD_INPUT, KILN_UNSUPPORTED (|diag| lists every node that cannot be compiled),
//          KILN_NO_MEMORY
// threads: a model is used by one thread at a time; different models share nothing
KILN_API KILN_MUST_USE kiln_status kiln_model_load(const char *path,
                                                   const kiln_compile_options *options,
                                                   kiln_diag *diag,
                                                   KILN_GIVE kiln_model **out_model);
KILN_API void kiln_model_destroy(KILN_TAKE kiln_model *model);

// Compiles into this process, or to a module file.
//
// gives:  *out_module, one reference, independent of |model|; NULL on failure
// errors: KILN_UNSUPPORTED (a named dimension is not bound), KILN_BAD_INPUT (the file cannot be
//         written), KILN_DEVICE_ERROR (the linker), KILN_NO_MEMORY, KILN_INTERNAL
KILN_API KILN_MUST_USE kiln_status kiln_model_compile(kiln_model *model, kiln_diag *diag,
                                                      KILN_GIVE kiln_module **out_module);
KILN_API KILN_MUST_USE kiln_status kiln_model_compile_to(kiln_model *model, const char *out_path,
                                                         kiln_diag *diag);
typedef struct kiln_archive_options {
  size_t struct_size;   // sizeof(kiln_archive_options); new fields go at the end
  const char *header;   // NULL: |out_path| with the extension .h
  const char *weights;  // a file for the weights, which callers then pass in memory; NULL: weights
                        // are in the archive
  const char *prefix;   // of all names, a C identifier; NULL: from the file's name
  int32_t parallel_for; // 1: the function takes one of the caller's, which runs parts of kernels
                        // side by side; 0: it runs on the caller's thread
} kiln_archive_options;
// Compiles to a static library (docs/guide/static-libraries.md): an archive of objects for a
// processor, with a plain C function that runs the model without a runtime, and its header.
//
// errors: as kiln_model_compile_to; KILN_UNSUPPORTED: the target is a GPU, a dimension has a range,
//         a library kernel
KILN_API KILN_MUST_USE kiln_status kiln_model_compile_to_archive(
    kiln_model *model, const char *out_path, const kiln_archive_options *options, kiln_diag *diag);
// The result of kiln_compile_file.
typedef struct kiln_compiled {
  kiln_model *model;  // to be destroyed by the caller; NULL if the module came from the cache
  int32_t recalled;   // 1: copied from the cache
  double recall_ms;   // time of the cache lookup and copy
  kiln_memory memory; // of the module
} kiln_compiled;
// Combines kiln_model_load and kiln_model_compile_to. With |options->cache|, a module made earlier
// is copied if it was made from the same contents of files with the same options, on an equal
// machine by this compiler; it is identical to the result of compiling. Not cached: modules whose
// options need other files or measurements, and modules or models larger than 256 MiB.
//
// gives:   *out, empty on failure
// errors:  as the two
// threads: any; concurrent calls share nothing but the cache
KILN_API KILN_MUST_USE kiln_status kiln_compile_file(const char *path,
                                                     const kiln_compile_options *options,
                                                     const char *out_path, kiln_diag *diag,
                                                     kiln_compiled *out);
// Runs the compilation as far as the requested dumps need it, without making a module.
//
// errors: as kiln_model_compile
KILN_API KILN_MUST_USE kiln_status kiln_model_emit(kiln_model *model, kiln_diag *diag);
// Times of the last compilation's passes, in order; owned by the model.
KILN_API size_t kiln_model_pass_times(const kiln_model *model, const kiln_pass_time **out);

KILN_API kiln_tuning kiln_model_tuning(const kiln_model *model);
KILN_API kiln_memory kiln_model_memory(const kiln_model *model);

// A report on the kernels of a compilation: fusion and memory levels of results, tiles, candidates,
// predicted traffic and time, and reasons against fusion with neighbours (docs/guide/explain.md).
typedef struct kiln_explain_options {
  size_t struct_size;
  const char *kernel; // only this kernel; NULL: all
  const char *why[2]; // only the decision about edges between these two graph nodes, by name or as
                      // "#NUMBER" of a statement; both or none
  int32_t measure;    // 1: the kernels are compiled and timed
  int32_t json;       // 1: as JSON
  int32_t orchestration; // 1: instead, how the kernels were chosen, and the costs of alternatives;
                         // needs |orchestrate|
  // 1, with |json|: every candidate of each kernel, and further members (docs/guide/report.md): the
  // machine's levels and peaks; the launches in order, and the tensors that pass between them
  // through memory, with bytes and the reason against fusion; each kernel's script, loops and code,
  // with each line's line in the loops.
  int32_t detail;
  // 1: also counts traffic between levels, by running each kernel's accesses through simulated
  // caches: for CPUs, and for kernels whose indices and conditions depend on no data except
  // integers, which are taken as 0.
  int32_t count;
} kiln_explain_options;
// gives:  *out_text, owned by the model until the next call; NULL on failure
// errors: as kiln_model_compile; KILN_BAD_INPUT: no such kernel, node or statement
KILN_API KILN_MUST_USE kiln_status kiln_model_explain(kiln_model *model,
                                                      const kiln_explain_options *options,
                                                      kiln_diag *diag, const char **out_text);

// 1: |path| is, under any name, the model's file or one of its external files; else 0. Programs
// that write files at a user's request should check this before.
KILN_API int32_t kiln_model_reads(const kiln_model *model, const char *path);

// The model's interface as declared; the extent of an unbound named dimension is -1, its name is
// dim_name.
KILN_API size_t kiln_model_input_count(const kiln_model *model);
KILN_API size_t kiln_model_output_count(const kiln_model *model);
KILN_API kiln_port kiln_model_input(const kiln_model *model, size_t i);
KILN_API kiln_port kiln_model_output(const kiln_model *model, size_t i);
// 1: input |i| has a default value, which a run may replace: for a |read_only| model all that may
// be |overridable|, otherwise those in |overridable|.
KILN_API int32_t kiln_model_input_is_optional(const kiln_model *model, size_t i);
KILN_API const char *kiln_model_input_dim_name(const kiln_model *model, size_t i,
                                               int32_t axis); // NULL: a constant extent
// A report: format version, producer, opsets, inputs, outputs, parameters, operator histogram,
// named dimensions; for a .tc file its definitions with sizes, inputs and outputs. Owned by the
// model. |json| 0: text, 1: JSON.
KILN_API const char *kiln_model_report(const kiln_model *model, int json);

// Reference results in double precision, independent of the generated code. |inputs| and |outputs|
// as for kiln_session_run.
//
// needs:  the named dimensions bound
// errors: KILN_BAD_INPUT, KILN_UNSUPPORTED, KILN_NO_MEMORY
KILN_API KILN_MUST_USE kiln_status kiln_model_reference(kiln_model *model, size_t n_inputs,
                                                        const DLTensor *const *inputs,
                                                        size_t n_outputs, DLTensor *const *outputs,
                                                        kiln_diag *diag);

// The comparison of results with the reference (docs/design/verdicts.md).
typedef struct kiln_judgement {
  int32_t passed;
  double rel_l2, max_abs; // ||got - want|| / ||want||; the largest difference
  int64_t n_wrong;        // number of wrong elements
  int64_t first_wrong;    // row-major index, -1: none, or the shape is wrong
  double got, want, most; // at |first_wrong|: |got - want| must be at most |most|
  int64_t n_free;         // elements without an error bound, as all their digits are lost in
                          // rounding
  double spread;          // root mean square of differences in multiples of typical errors, each at
                          // most 8
  int64_t n_spread;       // number of its terms; from 64 on, |spread| must be at most 3
  int32_t together;       // 1: no single element is wrong, but |spread| is too large
} kiln_judgement;
// Computes the reference results and judges |got|, results of kiln_session_run, with their shapes.
//
// needs:  as kiln_model_reference
// gives:  out[n_outputs]
// errors: as kiln_model_reference
KILN_API KILN_MUST_USE kiln_status kiln_model_judge(kiln_model *model, size_t n_inputs,
                                                    const DLTensor *const *inputs, size_t n_outputs,
                                                    const DLTensor *const *got, kiln_diag *diag,
                                                    kiln_judgement *out);

// Runs the kernels in a simulator instead of on the machine: slowly, with bounds checks, counting
// traffic between the memory levels of |options->target|; for a GPU, the bytes that statements read
// and write. |outputs| as for kiln_session_run.
//
// needs:  the named dimensions bound, to numbers or to ranges that the tensors' extents lie in
// gives:  *out_report, a table for every launch, owned by the model; NULL on failure
// errors: as kiln_model_reference; KILN_INTERNAL: an access out of bounds
KILN_API KILN_MUST_USE kiln_status kiln_model_simulate(kiln_model *model, size_t n_inputs,
                                                       const DLTensor *const *inputs,
                                                       size_t n_outputs, DLTensor *const *outputs,
                                                       kiln_diag *diag, const char **out_report);

// The shape of output |i| in the last kiln_model_reference or kiln_model_simulate, as
// kiln_session_output_shape; owned by the model.
KILN_API const int64_t *kiln_model_output_shape(const kiln_model *model, size_t i);

// Checks every compiled kernel against the reference interpreter on random data.
typedef struct kiln_verify_result {
  const char *kernel; // the kernel's name
  const char *nodes;  // the graph nodes
  double rel_l2;      // ||got - want|| / ||want||
  double max_abs;     // largest absolute difference
  int32_t passed;
} kiln_verify_result;
typedef struct kiln_verify_options {
  size_t struct_size;
  uint64_t seed;
  // Both 0: elements are judged by error bounds (docs/design/verdicts.md). Otherwise by |got -
  // want| <= atol + rtol * |want|; if a kernel rounds intermediate results to halves, by 4 ULP in
  // the l2 norm, and 16 times that for single elements.
  double rtol, atol;
  const char *reproducer_dir; // folder for a failing kernel's statements, loops, script and data;
                              // NULL: none
  void (*on_result)(void *user, const kiln_verify_result *result);
  void *user;
  int32_t simulate; // 1: run kernels in the simulator, as kiln_model_simulate, instead of on a
                    // device
} kiln_verify_options;
// gives: *out_failed, the number of kernels that differ
KILN_API KILN_MUST_USE kiln_status kiln_model_verify(kiln_model *model,
                                                     const kiln_verify_options *options,
                                                     kiln_diag *diag, size_t *out_failed);

// Checks every definition of a .tc file (or only |options->entry|) at random sizes that satisfy its
// constraints; |options->dims| fixes some sizes. For each choice of sizes, kernels with Kiln's own
// schedule and unscheduled loops are compiled and compared with the reference interpreter; |nodes|
// of a result is then the definition with its sizes, as "matmul M=7 N=17".
//
// gives:   *out_failed, the number of kernels that differ
// errors:  KILN_BAD_INPUT: a definition is invalid, or no sizes fit; the others are checked
// threads: any; concurrent calls share nothing
KILN_API KILN_MUST_USE kiln_status kiln_definitions_verify(const char *path,
                                                           const kiln_compile_options *options,
                                                           const kiln_verify_options *verify,
                                                           kiln_diag *diag, size_t *out_failed);

// Tries fillings of the holes of |options->schedule| (as in split C.m ?{16,32,64}): each is
// replayed, compiled, judged by the reference interpreter (or, for large programs, compared with
// Kiln's own schedule) and timed, all in turns. Kiln's own schedule takes part, too.
typedef struct kiln_search_result {
  const char *script;  // the filled schedule; NULL: Kiln's own
  const char *choices; // "32 ?tile=8": values of the holes; "Kiln's own"
  const char *refused; // why it was refused; NULL: it was compiled
  int32_t right;       // 1: its results are right
  double median_ms;    // of one run; 0 unless |right|
} kiln_search_result;
typedef struct kiln_search_options {
  size_t struct_size;
  uint64_t n;    // fillings to try; all if there are not more
  uint64_t seed; // of the draw of fillings, and of the data
  double rtol,
      atol; // per element; both 0: error bounds, or 1e-4 and 1e-5 relative to Kiln's own
  void (*on_result)(void *user, const kiln_search_result *result); // the fastest first, then the
                                                                   // wrong, then the refused
  void *user;
} kiln_search_options;
// gives:   a call of |search->on_result| for each filling
// errors:  KILN_BAD_INPUT: no schedule, invalid holes; and as kiln_model_compile
// threads: any; concurrent calls share nothing but the machine that they time
KILN_API KILN_MUST_USE kiln_status kiln_schedule_search(const char *path,
                                                        const kiln_compile_options *options,
                                                        const kiln_search_options *search,
                                                        kiln_diag *diag);

// Entries of the cache of |kiln_compile_options.cache|, most recently used first; and clearing it.
typedef struct kiln_cache_entry {
  const char *kind, *label; // "object", "schedule", "module"; a description
  uint64_t bytes;
} kiln_cache_entry;
// errors: KILN_BAD_INPUT: there is no writable directory
KILN_API KILN_MUST_USE kiln_status kiln_cache_list(
    kiln_diag *diag, void (*on_entry)(void *user, const kiln_cache_entry *entry), void *user);
KILN_API KILN_MUST_USE kiln_status kiln_cache_clear(kiln_diag *diag);
// Writes the path of the cache directory, which may not exist.
//
// gives: 1; 0: there is none, because $KILN_CACHE_DIR is empty, or |room| is too small
KILN_API int32_t kiln_cache_folder(char *out, size_t room);

// Operators that Kiln can compile: row |i|; NULL name past the end.
typedef struct kiln_operator_info {
  const char *domain, *name;
  int32_t since, until; // until 0: newest
  const char *file;     // "ops/conv.c"
} kiln_operator_info;
KILN_API kiln_operator_info kiln_operator(size_t i);

// Receives an operator used in a model; borrowed.
typedef void (*kiln_operator_fn)(void *user, const char *domain, const char *name);
// Lists the operators of all nodes of an ONNX file's graph, in order, also unknown ones; domain ""
// is ai.onnx.
//
// errors: KILN_BAD_INPUT: it is not an ONNX model
KILN_API KILN_MUST_USE kiln_status kiln_model_read_operators(const char *path,
                                                             kiln_operator_fn on_operator,
                                                             void *user, kiln_diag *diag);

// Reduction of a model that fails the caller's test: docs/design/correctness.md.
typedef struct kiln_reduce_options {
  size_t struct_size;
  const char *trial;            // path of the file for trials, which |fails| examines
  int32_t (*fails)(void *user); // 1: the model there fails as the whole model does
  void (*on_progress)(void *user, size_t tries, size_t nodes); // NULL: none
  void *user;
  const kiln_port
      *known;     // types and shapes of values, so that they can become inputs, as computed by
                  // kiln_model_expose's
  size_t n_known; // model; declared ones are known anyway
} kiln_reduce_options;
typedef struct kiln_reduced {
  size_t tries, nodes_before, nodes;
} kiln_reduced;
// Reduces the ONNX model |path|: removes outputs, nodes, sub-graphs, operands and attributes,
// shrinks extents and data while |options->fails| gives 1, and writes the result to |out_path|.
// Deterministic for the same answers.
//
// errors:  KILN_BAD_INPUT: a file cannot be read or written, or the whole model does not fail
// threads: any; |fails| is called by the same
KILN_API KILN_MUST_USE kiln_status kiln_model_reduce(const char *path, const char *out_path,
                                                     const kiln_reduce_options *options,
                                                     kiln_diag *diag, kiln_reduced *out);
// Writes the ONNX model |path| with every value of its graph as an output.
//
// errors: KILN_BAD_INPUT: a file cannot be read or written
KILN_API KILN_MUST_USE kiln_status kiln_model_expose(const char *path, const char *out_path,
                                                     kiln_diag *diag);

// Reads a serialized ONNX TensorProto (.pb).
KILN_API KILN_MUST_USE kiln_status kiln_tensor_read_pb(
    const char *path, kiln_diag *diag, KILN_GIVE DLManagedTensorVersioned **out_tensor);
// Reads a serialized value of |type|, as kiln_port.dtype of a |read_only| model: a SequenceProto or
// OptionalProto for "sequence(f32)", "optional(f32)" and the like; NULL: a TensorProto.
//
// gives:  *out_n tensors in |out_tensors|, which has room for |max|, each the caller's; -1: an
//         empty
//         optional value without one
KILN_API KILN_MUST_USE kiln_status kiln_value_read_pb(const char *path, const char *type,
                                                      int32_t max, kiln_diag *diag, int32_t *out_n,
                                                      DLManagedTensorVersioned **out_tensors);
KILN_API const char *kiln_version(void); // "0.1.0"
// CPU name, vector width and features that the compiler uses on this machine. The text is valid
// until the thread's next call.
KILN_API const char *kiln_host(void);

// The machine's performance figures used by the scheduler (docs/guide/machine.md).
typedef enum kiln_device_action {
  KILN_DEVICE_SHOW,         // shows the present figures without measuring
  KILN_DEVICE_MEASURE_ONCE, // measures unless this machine was measured before
  KILN_DEVICE_MEASURE,      // measures, and replaces the file in the user's cache directory
} kiln_device_action;
typedef struct kiln_device_options {
  size_t struct_size;
  kiln_device_action action;
  kiln_progress_fn on_progress;
  void *progress_user;
  void (*on_report)(void *user, const char *text, const char *json); // a table, and the figures as
                                                                     // JSON; borrowed
  void *user;
  // NULL: this machine; "cuda": its GPU; other targets' figures can be shown, not measured
  const char *target;
} kiln_device_options;
// gives:  one call of |options->on_report|; a warning if the file is unusable
// errors: KILN_DEVICE_ERROR (the machine cannot be measured), KILN_BAD_INPUT (the file cannot be
//         written), KILN_NO_MEMORY
KILN_API KILN_MUST_USE kiln_status kiln_device_report(const kiln_device_options *options,
                                                      kiln_diag *diag);
KILN_API void kiln_onnx_versions(int32_t *out_ir, int32_t *out_opset); // newest supported versions

#ifdef __cplusplus
}
#endif
#endif
