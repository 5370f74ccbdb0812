// SPDX-License-Identifier: Apache-2.0
// The compiler: an ONNX model or a definition in TC notation in, module out.
//
// The caller's locale, rounding mode, flushing of subnormals, traps, umask, signals and standard
// streams change nothing that is compiled, and are as they were when a call returns. Functions that
// the caller hands in are called on its thread within the call: there the locale is "C", and
// rounding is to nearest.
//
// Memory that the system refuses ends a call with KILN_NO_MEMORY: in Kiln, and in LLVM and isl, for
// which a thread keeps 64 MiB of address space back while it works (docs/design/robustness.md). All
// that the call made is freed then, and it can be made again. Not promised of what a call loads at
// run time: CBC (|orchestrate|), NVRTC, drivers of GPUs and the libraries of |backends|, which end
// the process as they like.
//
// A name of a model is given in the form in which it can be shown: what is no printable UTF-8 in it
// as "\x1b" and the like, different names differently. Names in options may be given in either
// form.
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
  const char *name; // of a named dimension, or of such an input
  int64_t value;
} kiln_dim_value;
typedef struct kiln_dim_sum {
  const char *name, *is; // "kv", "past + t": integer arithmetic of named dimensions
} kiln_dim_sum;
typedef struct kiln_shape_value {
  const char *name; // of an input
  int32_t rank;
  const int64_t *shape;
  // [rank]; where one is not NULL, the axis has a named dimension of that name, and |shape| says
  // nothing of it. NULL: none has.
  const char *const *dim_names;
} kiln_shape_value;

// A file that lies in the caller's memory.
typedef struct kiln_memory_file {
  const char *name;
  const void *data;
  size_t n_bytes;
} kiln_memory_file;

// |shapes|, constants and |op_files| are of ONNX models alone, |entry| and |scheduler| of .tc
// files.
typedef struct kiln_compile_options {
  size_t struct_size; // sizeof(kiln_compile_options); new fields go at the end
  const kiln_dim_value *dims;
  size_t n_dims;
  const kiln_shape_value *shapes; // replaces the declared shapes of inputs
  size_t n_shapes;
  int32_t threads;  // to compile for and with; 0: all physical cores
  const char *dump; // levels joined by ','; NULL: none
  kiln_dump_fn on_dump;
  void *dump_user;
  kiln_progress_fn on_progress;
  void *progress_user;
  // Inputs to bind as constants at compile time, by name (the ONNX backend tests pass shapes as
  // inputs).
  const char *const *constant_names;
  const DLTensor *const *constant_values;
  size_t n_constants;
  int32_t read_only; // 1: kiln_model_load reads the file and does not lower it; such a model cannot
                     // be compiled
  const char
      *entry; // of a .tc file: the definition to compile, the first of that name; NULL: the last
  // Text of a schedule file (docs/guide/schedules.md): sections `kernel NAME`, each the script that
  // replaces Kiln's own for that kernel; or, without sections and for a .tc file, the script of the
  // whole definition as one kernel. NULL: Kiln's own.
  const char *schedule;
  const char *const *op_files; // .tc files whose `onnx` lines bind operators of the user's
  size_t n_op_files;
  // What to compile for: NULL, "cpu" or "native": this machine; "x86-64-v2", "x86-64-v3",
  // "x86-64-v4", or a processor of x86-64 by LLVM's name ("haswell", "znver4"): such a one, whose
  // vectors, registers and caches kernels are scheduled for (docs/guide/modules.md); "cuda": this
  // machine's GPU; "cuda:sm_90a" and the like: such a GPU, whether there is one or not; "opencl":
  // any OpenCL device (docs/guide/gpu-modules.md). "c": C17 source; "neon": such a processor;
  // "hip:gfx90a" and the like: such a GPU: these are for kiln_model_emit and kiln_model_simulate
  // only.
  const char *target;
  // How a .tc file's definition is scheduled: "rules": grouped by rules, a kernel for each group;
  // "max", "min" or "preserve3": as one kernel by polyhedral scheduling, fusing all that it can,
  // nothing, or what costs no parallel loop; with "+promote" behind one of these, whatever a tile
  // reads again is copied to memory of its own. NULL: "rules". Not together with |schedule|.
  const char *scheduler;
  // 1: schedules and object code are found in, and put into, the user's cache directory
  // ($KILN_CACHE_DIR, else $XDG_CACHE_HOME/kiln, else ~/.cache/kiln); it changes nothing but the
  // time. 0: it is not.
  int32_t cache;
  // Measures that many candidates of every kernel on this machine, or on its GPU, and takes the
  // fastest; 0: the one that the cost model likes best. With |cache| or |tuned|, what was measured
  // once is known from then on.
  int32_t tune;
  // 1: 3x3 convolutions of stride 1 are computed as they are, not by Winograd's algorithm where
  // that is predicted to be faster; it rounds otherwise (docs/design/winograd.md).
  int32_t no_winograd;
  // 1: kernels stay as the rules group their statements; none takes its neighbours in. What that
  // costs or gains is the difference (docs/guide/explain.md).
  int32_t no_connect;
  // "f16" or "bf16": f32 tensors are stored as that, the interface's among them; arithmetic and
  // sums stay f32, as do small results of reductions (means, maxima). Named dimensions must be
  // bound. "tf32", for CUDA from sm_80 on: tensors stay f32, and products round their operands to
  // 10 bits behind the point for tensor cores. NULL: as the model says.
  const char *dtype;
  // The weights that Winograd's algorithm transforms grow; all weights of the module together take
  // at most about that many times the model's, at the price of time. 0: what is fastest; else at
  // least 1.
  double weight_growth;
  // Tuning ends where this is not 0 (a signal's handler may set it) and takes the best of what was
  // measured until then. It lives as long as the model. NULL: tuning runs to its end.
  const volatile int *stop;
  // Tuning ends after so long, kernels that take most of the time being measured first; 0: when all
  // is measured.
  double tune_seconds;
  // The name of a device, as in "NVIDIA H200": what was measured on it and kept decides, and no
  // device is needed; not together with |tune|. NULL: the cost model decides, or |tune|.
  const char *tuned_for;
  // The file where measurements are kept; made by |tune|. NULL: tuned.sqlite in the user's cache
  // directory, if |cache| is set or |tuned_for|; else none.
  const char *tuned;
  // 1: which statements share a kernel is chosen by a binary program over all kernels that may pay,
  // which takes seconds; docs/design/orchestration.md. 0: by growing kernels along the edges of the
  // program.
  int32_t orchestrate;
  // The file of an orchestration, as --dump=orchestration prints it, that is taken as it is. NULL:
  // none.
  const char *orchestration;
  // Rewriting rules and optional passes that are left out, by name, several in one text separated
  // by ','; an error names all that there are (docs/design/rules.md).
  size_t n_without;
  const char *const *without;
  // The same of rules that do not always pay: they are applied, NAME wherever it fits, NAME@PLACE
  // at places alone. Others of these are left to |orchestrate|, which takes the program that is
  // predicted to be the fastest.
  size_t n_with_rules;
  const char *const *with_rules;
  // Of |orchestrate|: results that kernels pass on through memory take at most so many bytes at
  // once, at the price of time; those of the interface, weights, and what a kernel keeps for itself
  // do not count. 0: no limit.
  uint64_t memory_limit;
  // Of |orchestrate|: nodes of the solver's tree a part, at most; where it ends there, the best
  // choice until then is taken, and the report says the gap. 0: 4000.
  int32_t solver_nodes;
  // Libraries whose kernels take part: "openblas,onednn" and the like, "all" that are installed, or
  // "none". A module calls one where it was measured, by |tune| now or before, to be faster than
  // Kiln's own, and then needs the library where it runs; docs/guide/libraries.md. With "always" in
  // the list it is called wherever it can be, to be verified. NULL: "none".
  const char *backends;
  // Named dimensions that keep a range: the module takes any values in them
  // (docs/guide/dynamic-shapes.md). For CPUs, and for kiln_model_compile_to alone.
  const kiln_dim_range *ranges;
  size_t n_ranges;
  // Named dimensions that follow from others, whether these have a value in |dims| or a range.
  const kiln_dim_sum *sums;
  size_t n_sums;
  // 1: on GPUs each kernel is launched by itself. 0: kernels that need nothing of each other and
  // fit the GPU at once are one launch (docs/design/device-loop.md).
  int32_t no_beside;
  // 1: an index out of range is held in range without a word. 0: the run fails, and names the node,
  // the axis and the index (docs/design/prim.md).
  int32_t clamp_indices;
  // Inputs with an initializer that runs may give, by name: from IR version 4 on it is a default,
  // which is otherwise compiled in as a constant, as it is in older models. The module has them as
  // inputs that are optional (kiln_module_input_default): a run gives a tensor of the initializer's
  // type and shape, or NULL. "*": all of the model. Names of inputs without initializer say
  // nothing. A value that is known when compiling is better given as one of
  // |constant_values|, of any shape that the model takes, which is compiled in in the initializer's
  // place.
  const char *const *overridable;
  size_t n_overridable;
  // Passes behind which the program is given to |on_dump|, by name, separated by ',': as
  // statements, from the pass that lowers kernels on as their loops, behind the plan as that. The
  // level is "after-PASS". NULL: none.
  const char *dump_after;
  // Optional passes and rules end there, to find the one that makes a program wrong: "N": behind N
  // of their steps; "PASS": behind that one. The module is right, and slower. NULL: all run.
  const char *stop_after;
  // Files in memory: the model by the name that is given as its path (which says its kind, and
  // stands in messages), its external data by their locations. No file of such a name is opened,
  // and nothing of it is copied: the bytes are borrowed until the model is destroyed and the
  // modules that kiln_model_compile made of it are released. For kiln_model_load and
  // kiln_compile_file.
  const kiln_memory_file *files;
  size_t n_files;
  // Values that nodes of an ONNX model's graph compute, by name, which the module has as outputs
  // behind the model's own, in this order; "*": all that are tensors, in the order of the nodes.
  // Kernels are as they are chosen where these values are wanted: a value that would not have left
  // its kernel does.
  const char *const *marks;
  size_t n_marks;
} kiln_compile_options;

// What |tune| or |tuned_for| did in the last compile.
typedef struct kiln_tuning {
  size_t kernels, known; // all of them; of which all was known before, or nothing is to choose
  size_t candidates;     // measured now
  size_t wrong;          // of these, whose results differed: none of them is taken
  size_t lost;           // of these, on a GPU, whose process ended or hung; none of them either
  size_t changed;        // kernels for which another candidate than the first was taken
  int32_t stopped;       // 1: before all was measured
  double before_ms,
      after_ms;   // of a run in all measured kernels: with the first candidates, with the
                  // fastest; 0 when nothing was measured
  size_t offered; // kernels that some library of |backends| has a kernel for
  // Those that libraries won, a line each, "k0_contract_MatMul  by openblas: 310.1 us, Kiln's own
  // 402.7 us"; owned by the model, "" where there are none.
  const char *won;
} kiln_tuning;

// What the module of the last compile takes. Weights that a kernel reads in another form than the
// model's, transformed or padded, can be larger there; model_weight_bytes are those that it uses,
// as the model has them.
typedef struct kiln_memory {
  uint64_t weight_bytes, model_weight_bytes;
  uint64_t arena_bytes, arena_lower_bound_bytes;
} kiln_memory;

typedef struct kiln_pass_time {
  const char *name; // "onnx", "fission", ...
  double ms;
} kiln_pass_time;

// A model read and analysed, not yet compiled.
typedef struct kiln_model kiln_model;
// Reads and checks |path|, an ONNX model or a file that ends in .tc (its sizes are
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
// gives:  *out_module, one reference, which does not need |model| any more; NULL on failure
// errors: KILN_UNSUPPORTED (a named dimension is not bound), KILN_BAD_INPUT (the file cannot be
//         written), KILN_DEVICE_ERROR (the linker), KILN_NO_MEMORY, KILN_INTERNAL
KILN_API KILN_MUST_USE kiln_status kiln_model_compile(kiln_model *model, kiln_diag *diag,
                                                      KILN_GIVE kiln_module **out_module);
KILN_API KILN_MUST_USE kiln_status kiln_model_compile_to(kiln_model *model, const char *out_path,
                                                         kiln_diag *diag);
typedef struct kiln_archive_options {
  size_t struct_size;   // sizeof(kiln_archive_options); new fields go at the end
  const char *header;   // NULL: |out_path| with .h for its ending
  const char *weights;  // a file that gets the weights, which the function then takes in memory;
                        // NULL: they are in the archive
  const char *prefix;   // of all names, an identifier of C; NULL: the name of the file
  int32_t parallel_for; // 1: the function takes one of the caller's, which runs parts of kernels
                        // side by side; 0: it runs on the caller's thread
} kiln_archive_options;
// Compiles to a static library (docs/guide/static-libraries.md): an archive of objects for a
// processor, with a plain C function that runs the model without a runtime, and its header.
//
// errors: as kiln_model_compile_to; KILN_UNSUPPORTED: a target that is no processor, a dimension
//         with a range, a kernel of a library
KILN_API KILN_MUST_USE kiln_status kiln_model_compile_to_archive(
    kiln_model *model, const char *out_path, const kiln_archive_options *options, kiln_diag *diag);
// A module as kiln_compile_file made it.
typedef struct kiln_compiled {
  kiln_model *model;  // to be destroyed by the caller; NULL where it was recalled
  int32_t recalled;   // 1: it was made before, and copied from the cache
  double recall_ms;   // which took so long, or looking for it did
  kiln_memory memory; // what it takes
} kiln_compiled;
// kiln_model_load and kiln_model_compile_to in one; with |options->cache|, a module that was made
// of the same contents of the same files with the same options, on such a machine by this compiler,
// is copied. It is what compiling would give, byte by byte. Modules for which the options read or
// measure anything besides the model, and those of more than 256 MiB or from a file of more, are
// compiled anew.
//
// gives:   *out, empty on failure
// errors:  as the two
// threads: any; concurrent calls share nothing but the cache
KILN_API KILN_MUST_USE kiln_status kiln_compile_file(const char *path,
                                                     const kiln_compile_options *options,
                                                     const char *out_path, kiln_diag *diag,
                                                     kiln_compiled *out);
// Runs the compilation as far as the dumps that were asked for need it, and makes no module.
//
// errors: as kiln_model_compile
KILN_API KILN_MUST_USE kiln_status kiln_model_emit(kiln_model *model, kiln_diag *diag);
// Times of the passes of the last compile, in order; owned by the model.
KILN_API size_t kiln_model_pass_times(const kiln_model *model, const kiln_pass_time **out);

KILN_API kiln_tuning kiln_model_tuning(const kiln_model *model);
KILN_API kiln_memory kiln_model_memory(const kiln_model *model);

// A report on the kernels of a compilation: what is fused and where it passes, tiles, candidates,
// the predicted bytes of every level and time, and why neighbours are not fused.
// docs/guide/explain.md
typedef struct kiln_explain_options {
  size_t struct_size;
  const char *kernel; // only that one; NULL: all
  const char
      *why[2];     // only the decision about what flows between these two graph nodes, by name or
                   // by "#NUMBER" of a statement; both or none
  int32_t measure; // 1: the kernels are compiled and timed
  int32_t json;    // 1: as JSON
  int32_t
      orchestration; // 1: instead, how the kernels were chosen, and what others would cost; needs
                     // |orchestrate| of the compilation
  // 1, with |json|: every candidate of each kernel, and further members (docs/guide/report.md): the
  // machine's levels and peaks; the launches in order, and what flows between them through memory,
  // with its bytes and why both ends are not one kernel; each kernel's script, loops and code, each
  // line with the line of the loops that it is of.
  int32_t detail;
  // 1: bytes between levels are counted, too, by running each kernel's accesses through caches in
  // the simulator: of CPUs, and of kernels whose indices and conditions do not depend on data
  // beside integers, which are taken as 0.
  int32_t count;
} kiln_explain_options;
// gives:  *out_text, owned by the model until the next call; NULL on failure
// errors: as kiln_model_compile; KILN_BAD_INPUT: no such kernel, node or statement
KILN_API KILN_MUST_USE kiln_status kiln_model_explain(kiln_model *model,
                                                      const kiln_explain_options *options,
                                                      kiln_diag *diag, const char **out_text);

// 1: |path| is, by whatever name, the file that the model was read from, or one of its external
// files; else 0. Who writes files at a user's word asks before.
KILN_API int32_t kiln_model_reads(const kiln_model *model, const char *path);

// Interface of the model as declared; an extent of a named dimension that is not bound is -1 and
// its name in dim_name.
KILN_API size_t kiln_model_input_count(const kiln_model *model);
KILN_API size_t kiln_model_output_count(const kiln_model *model);
KILN_API kiln_port kiln_model_input(const kiln_model *model, size_t i);
KILN_API kiln_port kiln_model_output(const kiln_model *model, size_t i);
// 1: input |i| has an initializer, which a run may replace: of a model that was |read_only| all
// that might be
// |overridable| are inputs, of another those that were asked to be.
KILN_API int32_t kiln_model_input_is_optional(const kiln_model *model, size_t i);
KILN_API const char *kiln_model_input_dim_name(const kiln_model *model, size_t i,
                                               int32_t axis); // NULL: a constant
// A report: format version, producer, opsets, inputs, outputs, parameters, operator histogram,
// named dimensions; of a .tc file its definitions, with their sizes, inputs and outputs. Owned by
// the model. |json| 0: text, 1: JSON.
KILN_API const char *kiln_model_report(const kiln_model *model, int json);

// Reference results in double precision arithmetic, independent of the generated code.
// |inputs| and |outputs| as for kiln_session_run.
//
// needs:  the named dimensions bound
// errors: KILN_BAD_INPUT, KILN_UNSUPPORTED, KILN_NO_MEMORY
KILN_API KILN_MUST_USE kiln_status kiln_model_reference(kiln_model *model, size_t n_inputs,
                                                        const DLTensor *const *inputs,
                                                        size_t n_outputs, DLTensor *const *outputs,
                                                        kiln_diag *diag);

// How results compare with the reference's (docs/design/verdicts.md).
typedef struct kiln_judgement {
  int32_t passed;
  double rel_l2, max_abs; // ||got - want|| / ||want||; the largest difference
  int64_t n_wrong;        // elements
  int64_t first_wrong;    // row-major, -1: none, or the shape
  double got, want, most; // there; |got - want| must be at most |most|
  int64_t n_free;         // elements that may be anything, as what makes them is lost in rounding
  double spread;          // root mean square of the differences, in typical errors, each at most 8
  int64_t n_spread;       // of so many elements; of 64 and more it must be at most 3
  int32_t together; // 1: no element is wrong by itself, all together are off by more than chance
} kiln_judgement;
// Computes the reference results, and judges |got|, as kiln_session_run gave them, with their
// shapes.
//
// needs:  as kiln_model_reference
// gives:  out[n_outputs]
// errors: as kiln_model_reference
KILN_API KILN_MUST_USE kiln_status kiln_model_judge(kiln_model *model, size_t n_inputs,
                                                    const DLTensor *const *inputs, size_t n_outputs,
                                                    const DLTensor *const *got, kiln_diag *diag,
                                                    kiln_judgement *out);

// Runs the kernels in the simulator instead of on the machine: slowly, checking every access, and
// counting the bytes that move between the levels of the memory of |options->target|; of a GPU,
// what the statements read and write.
// |outputs| as for kiln_session_run.
//
// needs:  the named dimensions bound
// gives:  *out_report, a table for every launch, owned by the model; NULL on failure
// errors: as kiln_model_reference; KILN_INTERNAL: an access that compiled code must not make
KILN_API KILN_MUST_USE kiln_status kiln_model_simulate(kiln_model *model, size_t n_inputs,
                                                       const DLTensor *const *inputs,
                                                       size_t n_outputs, DLTensor *const *outputs,
                                                       kiln_diag *diag, const char **out_report);

// The shape that output |i| had in the last of these two, as kiln_session_output_shape; owned by
// the model.
KILN_API const int64_t *kiln_model_output_shape(const kiln_model *model, size_t i);

// Checks every compiled kernel against the reference interpreter on random data.
typedef struct kiln_verify_result {
  const char *kernel; // name
  const char *nodes;  // the graph nodes
  double rel_l2;      // ||got - want|| / ||want||
  double max_abs;     // largest absolute difference
  int32_t passed;
} kiln_verify_result;
typedef struct kiln_verify_options {
  size_t struct_size;
  uint64_t seed;
  // 0, both: elements are judged by the errors that right results may have
  // (docs/design/verdicts.md). Else per element:
  // |got - want| <= atol + rtol * |want|; where a kernel rounds to halves on its way, to 4 units in
  // the last place of all in the l2 norm, and no element to more than 16 of their root mean square.
  double rtol, atol;
  const char *reproducer_dir; // a failing kernel's prims, loops, script and data go here; NULL:
                              // nothing is written
  void (*on_result)(void *user, const kiln_verify_result *result);
  void *user;
  int32_t simulate; // 1: kernels run in the simulator, as in kiln_model_simulate, on no device
} kiln_verify_options;
// gives: *out_failed, the number of kernels that differ
KILN_API KILN_MUST_USE kiln_status kiln_model_verify(kiln_model *model,
                                                     const kiln_verify_options *options,
                                                     kiln_diag *diag, size_t *out_failed);

// Checks every definition of a .tc file (or only |options->entry|) at ragged sizes that it picks so
// that the ranges hold; |options->dims| fixes some. At each choice the kernels of Kiln's own
// schedule and the naive loops are compiled and compared with the reference interpreter; a result's
// |nodes| are then the definition and its sizes, as in "matmul M=7 N=17".
//
// gives:   *out_failed, the number of kernels that differ
// errors:  KILN_BAD_INPUT: a definition is wrong, or no choice of sizes fits; the others are
//          checked
// threads: any; concurrent calls share nothing
KILN_API KILN_MUST_USE kiln_status kiln_definitions_verify(const char *path,
                                                           const kiln_compile_options *options,
                                                           const kiln_verify_options *verify,
                                                           kiln_diag *diag, size_t *out_failed);

// Tries fillings of the holes of |options->schedule| (as in split C.m ?{16,32,64}): each is
// replayed, compiled, judged by the reference interpreter (or, where that takes long, compared with
// Kiln's own schedule) and timed, all in turns. Kiln's own schedule takes part as well.
typedef struct kiln_search_result {
  const char *script;  // the filled schedule; NULL: Kiln's own
  const char *choices; // "32 ?tile=8": what each hole got; "Kiln's own"
  const char *refused; // why it cannot be had; NULL: it was compiled
  int32_t right;       // 1: its results are
  double median_ms;    // of one run; 0 unless right
} kiln_search_result;
typedef struct kiln_search_options {
  size_t struct_size;
  uint64_t n;    // fillings to try; all of them where there are no more
  uint64_t seed; // which are drawn, and the data
  double rtol,
      atol; // per element; 0, both: the errors that right results may have, or 1e-4 and 1e-5 beside Kiln's own
  void (*on_result)(void *user, const kiln_search_result *result); // the fastest first, then the
                                                                   // wrong, then the refused
  void *user;
} kiln_search_options;
// gives:   a call of |search->on_result| for each
// errors:  KILN_BAD_INPUT: no schedule, holes that are wrong; and as kiln_model_compile
// threads: any; concurrent calls share nothing but the machine that they time
KILN_API KILN_MUST_USE kiln_status kiln_schedule_search(const char *path,
                                                        const kiln_compile_options *options,
                                                        const kiln_search_options *search,
                                                        kiln_diag *diag);

// The cache of |kiln_compile_options.cache|: its entries, the last used first, and how to empty it.
typedef struct kiln_cache_entry {
  const char *kind, *label; // "object", "schedule", "module"; for people
  uint64_t bytes;
} kiln_cache_entry;
// errors: KILN_BAD_INPUT: there is no directory that can be written
KILN_API KILN_MUST_USE kiln_status kiln_cache_list(
    kiln_diag *diag, void (*on_entry)(void *user, const kiln_cache_entry *entry), void *user);
KILN_API KILN_MUST_USE kiln_status kiln_cache_clear(kiln_diag *diag);
// Writes the path of its folder, whether that is there or not.
//
// gives: 1; 0: there is none, as $KILN_CACHE_DIR is empty, or |room| bytes do not hold it
KILN_API int32_t kiln_cache_folder(char *out, size_t room);

// Operators Kiln can compile, for tables: row |i|; NULL name past the end.
typedef struct kiln_operator_info {
  const char *domain, *name;
  int32_t since, until; // until 0: newest
  const char *file;     // "ops/conv.c"
} kiln_operator_info;
KILN_API kiln_operator_info kiln_operator(size_t i);

// Receives an operator that a node of a model asks for; borrowed.
typedef void (*kiln_operator_fn)(void *user, const char *domain, const char *name);
// Tells the operators of the nodes of an ONNX file's graph, in order, whether Kiln knows them or
// not; domain "" is ai.onnx.
//
// errors: KILN_BAD_INPUT: it is no ONNX model
KILN_API KILN_MUST_USE kiln_status kiln_model_read_operators(const char *path,
                                                             kiln_operator_fn on_operator,
                                                             void *user, kiln_diag *diag);

// A model made smaller while something that the caller tries with it still fails:
// docs/design/correctness.md.
typedef struct kiln_reduce_options {
  size_t struct_size;
  const char *trial;            // the file that a trial is written to, for |fails| to look at
  int32_t (*fails)(void *user); // 1: what lies there fails as the whole model does
  void (*on_progress)(void *user, size_t tries, size_t nodes); // NULL: none
  void *user;
  const kiln_port
      *known;     // types and shapes of values, so that they can become inputs: the outputs of what
  size_t n_known; // kiln_model_expose writes; those that the file declares are known, too
} kiln_reduce_options;
typedef struct kiln_reduced {
  size_t tries, nodes_before, nodes;
} kiln_reduced;
// Reduces the ONNX model |path|: outputs, nodes, sub-graphs, operands, attributes, extents and data
// go as long as
// |options->fails| says 1, and the rest is written to |out_path|. The same answers give the same
// model.
//
// errors:  KILN_BAD_INPUT: it cannot be read, a file not be written, or the whole does not fail
// threads: any; |fails| is called by the same
KILN_API KILN_MUST_USE kiln_status kiln_model_reduce(const char *path, const char *out_path,
                                                     const kiln_reduce_options *options,
                                                     kiln_diag *diag, kiln_reduced *out);
// Writes the ONNX model |path| with every value of its graph as an output.
//
// errors: KILN_BAD_INPUT: it cannot be read, or not be written
KILN_API KILN_MUST_USE kiln_status kiln_model_expose(const char *path, const char *out_path,
                                                     kiln_diag *diag);

// Reads a serialized ONNX TensorProto (.pb).
KILN_API KILN_MUST_USE kiln_status kiln_tensor_read_pb(
    const char *path, kiln_diag *diag, KILN_GIVE DLManagedTensorVersioned **out_tensor);
// Reads a serialized value of |type|, as kiln_port.dtype of a model loaded with |read_only| says
// it: of "sequence(f32)", "optional(f32)" and the like a SequenceProto or OptionalProto; NULL: a
// TensorProto.
//
// gives:  *out_n tensors in |out_tensors|, which has room for |max|, each the caller's; -1: an
//         optional value without one
KILN_API KILN_MUST_USE kiln_status kiln_value_read_pb(const char *path, const char *type,
                                                      int32_t max, kiln_diag *diag, int32_t *out_n,
                                                      DLManagedTensorVersioned **out_tensors);
KILN_API const char *kiln_version(void); // "0.1.0"
// CPU name, vector width and features the compiler uses on this machine. The text is the calling
// thread's and stands until its next call.
KILN_API const char *kiln_host(void);

// How fast this machine is, as the scheduler sees it (docs/guide/machine.md).
typedef enum kiln_device_action {
  KILN_DEVICE_SHOW,         // measures nothing: reports what a compilation goes by
  KILN_DEVICE_MEASURE_ONCE, // measures unless that has been done on this machine
  KILN_DEVICE_MEASURE,      // measures; the file in the user's cache directory is replaced
} kiln_device_action;
typedef struct kiln_device_options {
  size_t struct_size;
  kiln_device_action action;
  kiln_progress_fn on_progress;
  void *progress_user;
  void (*on_report)(void *user, const char *text, const char *json); // a table, and the figures as
                                                                     // JSON; borrowed
  void *user;
} kiln_device_options;
// gives:  one call of |options->on_report|; a warning where there is a file that cannot be used
// errors: KILN_DEVICE_ERROR (the machine cannot be measured), KILN_BAD_INPUT (the file cannot be
//         written), KILN_NO_MEMORY
KILN_API KILN_MUST_USE kiln_status kiln_device_report(const kiln_device_options *options,
                                                      kiln_diag *diag);
KILN_API void kiln_onnx_versions(int32_t *out_ir, int32_t *out_opset); // the newest understood

#ifdef __cplusplus
}
#endif
#endif
