// Private parts of the `kiln` command, which uses only the public interface of Kiln.
//
// Results go to stdout, diagnostics and progress to stderr. Exit codes: 0 success; 1 mismatch,
// unsupported or bad input; 2 usage: a wrong command line, or an option whose target, type or value
// does not exist.
#ifndef KILN_TOOL_H
#define KILN_TOOL_H

#include "kiln/compile.h"
#include "options.h"

#include <stdbool.h>
#include <stdio.h>

enum { EXIT_RIGHT = 0, EXIT_WRONG = 1, EXIT_USAGE = 2 };

int command_compile(const options *o);
int command_run(const options *o);
int command_tc(const options *o);
int command_search(const options *o); // kiln tc --search
int command_bench(const options *o);
int command_verify(const options *o);
int command_check(const options *o);
int command_compare(const options *o);
int command_inspect(const options *o);
int command_explain(const options *o);
int command_report(const options *o);
int command_orchestrate(const options *o);
int command_reduce(const options *o);
int command_cache(const options *o);
int command_device(const options *o);
int command_test(const options *o);
int command_operators(const options *o);
int command_version(const options *o);
int command_help(const options *o);

// --- loading (load.c)

typedef struct loaded {
  kiln_model *model;   // NULL for a compiled module
  kiln_module *module; // NULL until compiled
  double compile_ms, load_ms;
  int code; // of a failure; EXIT_USAGE if an option is wrong
  // Inputs of the model with an initializer that were replaced by data of the command line at
  // compile time.
  size_t n_constants;
  char **constant_names;
  DLManagedTensorVersioned **constants;
} loaded;
// Reads an .onnx (and compiles it if |compile|) or loads a module; prints errors. False on failure.
bool load_model(const options *o, const char *path, bool compile, loaded *out);
// Compiles a model, prints what --emit requests, and gives the exit code.
int emit_model(const options *o, const char *path);
// Prints the results of --tune on stderr.
void print_tuning(const options *o, const kiln_model *model);
// Whether all given options apply to the module; false after a message.
bool module_options_check(const command *c, const options *o);
// If |path| is a module: prints that |what| needs a model, and gives true.
bool refuse_module(const char *path, const char *what);
void loaded_free(loaded *l);
double now_ms(void);
// The compile options of the command line; strings point into |o|, |storage| owns the arrays.
typedef struct dump {
  char *path, *text; // malloc'ed; |path| is in --dump-dir
} dump;
enum { MAX_RANK = 16 };
typedef struct shape_storage {
  int64_t extents[MAX_RANK];
  const char *names[MAX_RANK]; // in |room|; NULL: the extent is a number
  char room[256];
} shape_storage;
typedef struct compile_storage {
  const options *o;
  bool dump_failed; // after a message
  int n_dumps;
  dump *dumps; // malloc'ed: dumps that are written to files
  kiln_dim_value dims[MAX_VALUES];
  kiln_dim_range ranges[MAX_VALUES];
  kiln_dim_sum sums[MAX_VALUES];
  kiln_shape_value shapes[MAX_VALUES];
  shape_storage shape_rooms[MAX_VALUES];
  char names[2 * MAX_VALUES][256];
  char *schedule; // malloc'ed text of the file
} compile_storage;
bool compile_options_make(const options *o, compile_storage *storage, kiln_compile_options *out);
// Writes the dumps that go to files, after |model| was read; false after a message, including
// earlier ones.
bool dumps_write(compile_storage *storage, const kiln_model *model);
// Reads the file of --schedule into the options; false after a message.
bool schedule_read(compile_storage *storage, kiln_compile_options *out);
void compile_storage_free(compile_storage *storage); // NULL is allowed
bool simulates(const options *o);        // --target sim or sim:TARGET: run in the simulator
bool prints_code(const options *o);      // --target of kiln tc whose code is printed, and not run
const char *target_of(const options *o); // of --target; NULL: this machine
bool is_definition(const char *path);    // a .tc file

// --- messages and progress (messages.c)

void messages_quiet(bool quiet); // no progress and no warnings from now on
void print_messages(const kiln_diag *diag);
// The exit code of a failed call: EXIT_USAGE if a message is about an option, "options: error:
// ...".
int exit_code_of(const kiln_diag *diag);
bool shows_progress(void); // stderr is a terminal, and --quiet is not given
// Shows a line of progress, which the next one overwrites; the last one (|done| == |total|) is
// cleared.
void print_progress(const char *what, size_t done, size_t total);
// Prints passes and launches on stderr, as -v and -vv request. Either may be NULL.
void print_details(const options *o, const kiln_model *model, const kiln_module *module);
// Prints path, target, processor and threads on stdout, without a newline.
void print_module_summary(const char *path, const kiln_module *module);

// --- output files (files.c)

enum { OUTPUT_NAME_ROOM = 256 };
// The file name for output |i| of a module: "y.npy", with bytes that are special to file systems or
// shells as "%2F" and the like. Names are unique and at most 255 bytes long: a name that is too
// long is cut, and it or a repeated one is followed by "~" and the output's number.
void output_file_name(const kiln_module *m, size_t i, char out[OUTPUT_NAME_ROOM]);
// Whether |path| is none of the input files that the options name or |model| (may be NULL) was read
// from; false after a message. |path| may be NULL.
bool may_write(const options *o, const kiln_model *model, const char *path);
// The same for all options of the command that name an output file.
bool outputs_spare_inputs(const command *c, const options *o);
// Writes |text| to the file, or to stdout if |path| is NULL; |what| names the text in messages.
// False after a message.
bool write_text(const char *path, const char *what, const char *text);
// Closes stdout, and gives the exit code of a command that ended with |code|.
int end_output(int code);

// --- the compiler (compiler.c)

// Loads libkiln.so now, before forking; exits with a message if it is missing.
void compiler_load(void);

// --- tensors (tensors.c)

typedef DLManagedTensorVersioned tensor;
typedef struct tensors {
  size_t n;
  tensor **at;
  DLTensor **views; // the same tensors, for kiln_session_run
} tensors;
bool tensors_alloc(tensors *t, size_t room);
void tensors_add(tensors *t, KILN_TAKE tensor *added);
void tensors_free(tensors *t);
// A tensor for every input of the module: from --input or --inputs, otherwise by --fill, with
// extents by --dim if the module has ranges. False after a message.
bool tensors_for_inputs(const options *o, const loaded *l, tensors *out);
// For a model that was read, but not compiled: finds the data that the command line gives for
// replaceable initializers. False after a message.
bool constants_find(const options *o, const kiln_model *m, loaded *out);
bool tensors_for_outputs(const kiln_module *m, const tensors *inputs, tensors *out);
bool tensors_for_results(const kiln_model *m, tensors *out); // the same for a model
// Crops tensor |i| to |shape|, the data-dependent shape of an output. False after a message.
bool tensors_crop(tensors *t, size_t i, const int64_t *shape);
// Reads a .npy, .pb or raw file; NULL after a message.
tensor *tensor_read(const char *path);
// Reinterprets unsigned integers as elements of |dtype|, for types that NumPy lacks (bf16 as u16,
// minifloats as u8).
void tensor_name_bits(tensor **t, const char *dtype);

typedef struct difference {
  double rel_l2, max_abs, max_rel;
  int64_t n_wrong, first_wrong; // -1: none
} difference;
// Checks |got - want| <= atol + rtol * |want| for each element. Shapes and types must be equal;
// otherwise false, with the reason in |why|.
bool tensor_compare(const DLTensor *got, const DLTensor *want, double rtol, double atol,
                    difference *out, char why[256]);
void tensor_fill(DLTensor *t, const char *how, uint64_t *state);

// --- NumPy's formats (npy.c, npz.c). NULL or false after a message.
tensor *npy_read(const char *path);
tensor *npy_parse(const void *data, size_t bytes, const char *place);
bool npy_write(const char *path, const DLTensor *t);
void *npy_format(const DLTensor *t, size_t *out_bytes); // malloc'ed
typedef struct npz npz;
npz *npz_open(const char *path);
size_t npz_count(npz *z);
char *npz_name(npz *z, size_t i); // of entry |i|, without ".npy"; malloc'ed, NULL after the last
// NULL without a message if there is no such entry; *out_failed after a message. Entries of more
// than |most_bytes| of elements are refused.
tensor *npz_find(npz *z, const char *name, uint64_t most_bytes, bool *out_failed);
void npz_close(npz *z);
bool npz_write(const char *path, size_t n, const char *const *names, tensor *const *at);

// --- ONNX's node tests (node_tests.c)

enum { MAX_TEST_OPERATORS = 64 };
typedef struct test_kind {
  const char *category; // of its operators
  double atol;          // the tolerance that it needs if above the official one; otherwise 0
  size_t n_operators;   // different ones; names with other domains as "ai.onnx.ml.Binarizer"
  char operators[MAX_TEST_OPERATORS][64];
} test_kind;
// The kind of the test in folder |dir|; "other" if its model cannot be read.
test_kind test_kind_of(const char *dir);
// Tests that need more than the official tolerance, from 0, with the reason; NULL after the last.
const char *test_exception(size_t i, const char **out_name, double *out_atol);

// --- traces (trace.c)

// The last run of a session with |profile| 2 as a Chrome trace; malloc'ed, NULL if memory ran out.
char *trace_text(const kiln_module *m, const kiln_session *s);

// --- hardware counters (counters.c)

// Opens a counter of last-level cache misses in this process and the threads that it starts later;
// -1 if there is none, with the reason in *out_why.
int misses_open(const char **out_why);
void misses_begin(int counter); // resets to 0
double misses_end(int counter);

// --- statistics (stats.c)
typedef struct stats {
  double min, median, mean, p90, p99;
} stats;
stats stats_of(double *ms, size_t n); // sorts |ms|
// The percentile of sorted values, |percent| in 0 to 100; 0 if there are none.
double percentile(const double *sorted, size_t n, double percent);

#endif
