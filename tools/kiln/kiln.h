// The `kiln` command: its parts. Sees only the public interface.
//
// Results go to stdout, diagnostics and progress to stderr. Exit codes: 0 right, 1 mismatch or
// unsupported or bad input, 2 usage: of the command line, or an option that asks for what there is
// not.
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
  int code; // of a failure: EXIT_USAGE where an option is wrong
  // Inputs of the model that have an initializer, in whose place what the command line gives was
  // compiled in.
  size_t n_constants;
  char **constant_names;
  DLManagedTensorVersioned **constants;
} loaded;
// Reads an .onnx (and compiles it if |compile|) or loads a module; prints what is wrong. False on
// failure.
bool load_model(const options *o, const char *path, bool compile, loaded *out);
// Reads a model and prints what --emit asks of its compilation; the exit code.
int emit_model(const options *o, const char *path);
// Prints what --tune did, on stderr.
void print_tuning(const options *o, const kiln_model *model);
// Whether the options say something of the module; false after a message.
bool module_options_check(const command *c, const options *o);
// Prints that |what| needs a model, when |path| is a module.
bool refuse_module(const char *path, const char *what);
void loaded_free(loaded *l);
double now_ms(void);
// The compile options that the command line says; strings point into |o|, |storage| holds the
// arrays.
typedef struct dump {
  char *path, *text; // malloc'ed; the path is that in --dump-dir
} dump;
enum { MAX_RANK = 16 };
typedef struct shape_storage {
  int64_t extents[MAX_RANK];
  const char *names[MAX_RANK]; // in |room|; NULL: an extent
  char room[256];
} shape_storage;
typedef struct compile_storage {
  const options *o;
  bool dump_failed; // after a message
  int n_dumps;
  dump *dumps; // malloc'ed: those that go to files
  kiln_dim_value dims[MAX_VALUES];
  kiln_dim_range ranges[MAX_VALUES];
  kiln_dim_sum sums[MAX_VALUES];
  kiln_shape_value shapes[MAX_VALUES];
  shape_storage shape_rooms[MAX_VALUES];
  char names[2 * MAX_VALUES][256];
  char *schedule; // malloc'ed text of the file
} compile_storage;
bool compile_options_make(const options *o, compile_storage *storage, kiln_compile_options *out);
// Writes the dumps that go to files, now that |model| has been read; false after a message, also of
// an earlier one.
bool dumps_write(compile_storage *storage, const kiln_model *model);
// Reads the file of --schedule into the options; false after a message.
bool schedule_read(compile_storage *storage, kiln_compile_options *out);
void compile_storage_free(compile_storage *storage); // NULL is allowed
bool simulates(const options *o);                    // --target sim, sim:TARGET: the simulator
bool prints_code(const options *o);      // --target of kiln tc whose code is printed, not run
const char *target_of(const options *o); // what it is compiled for; NULL: this machine
bool is_definition(const char *path);    // a .tc file

// --- what is said beside the results (messages.c)

void messages_quiet(bool quiet); // neither progress nor warnings from now on
void print_messages(const kiln_diag *diag);
// Of a call that failed: EXIT_USAGE where a message is of an option, "options: error: ...".
int exit_code_of(const kiln_diag *diag);
bool shows_progress(void); // stderr is a terminal, and not to be quiet
// A line of progress that the next one overwrites, where it is shown; the last one (|done| ==
// |total|) clears it.
void print_progress(const char *what, size_t done, size_t total);
// On stderr: what -v and -vv ask for, passes and launches. Either may be NULL.
void print_details(const options *o, const kiln_model *model, const kiln_module *module);
// On stdout, without an end of line: path, target, processor and threads.
void print_module_summary(const char *path, const kiln_module *module);

// --- files that are written (files.c)

enum { OUTPUT_NAME_ROOM = 256 };
// The name of the file for output |i| of a module: "y.npy", with bytes that file systems or shells
// take for something else as "%2F" and the like. Different outputs have different names, of at most
// 255 bytes: behind the begin of a name that is too long, or is given again, stands "~" and the
// output's number.
void output_file_name(const kiln_module *m, size_t i, char out[OUTPUT_NAME_ROOM]);
// Whether |path| is none of the files that the options name, or that |model|, which may be NULL,
// was read from; false after a message. NULL may be written.
bool may_write(const options *o, const kiln_model *model, const char *path);
// The same of all options of the command that name a file to be written.
bool outputs_spare_inputs(const command *c, const options *o);
// Writes all of |text|, which is a |what|, to the file, or to stdout if |path| is NULL; false after
// a message.
bool write_text(const char *path, const char *what, const char *text);
// Closes stdout: the exit code of a command whose work ended with |code|.
int end_output(int code);

// --- the compiler (compiler.c)

// Loads libkiln.so now, before forking; exits with a message when it is not there.
void compiler_load(void);

// --- tensors (tensors.c)

typedef DLManagedTensorVersioned tensor;
typedef struct tensors {
  size_t n;
  tensor **at;
  DLTensor **views; // of the same tensors, for kiln_session_run
} tensors;
bool tensors_alloc(tensors *t, size_t room);
void tensors_add(tensors *t, KILN_TAKE tensor *added);
void tensors_free(tensors *t);
// A tensor for every input of the module: from --input, --inputs, else --fill, in shapes by --dim
// where the module takes ranges. False after a message.
bool tensors_for_inputs(const options *o, const loaded *l, tensors *out);
// Of a model that was only read: what the command line gives for initializers that may be replaced.
// False after a message.
bool constants_find(const options *o, const kiln_model *m, loaded *out);
bool tensors_for_outputs(const kiln_module *m, const tensors *inputs, tensors *out);
bool tensors_for_results(const kiln_model *m, tensors *out); // the same of a model
// Tensor |i| becomes the front of it, of |shape|, as outputs of which only the run knows the shape.
// False after a message.
bool tensors_crop(tensors *t, size_t i, const int64_t *shape);
// The .npy, .pb or raw file; NULL after a message.
tensor *tensor_read(const char *path);
// Unsigned integers that are the bits of |dtype|, which NumPy lacks, become elements of it (bf16
// from u16, codes from u8).
void tensor_name_bits(tensor **t, const char *dtype);

typedef struct difference {
  double rel_l2, max_abs, max_rel;
  int64_t n_wrong, first_wrong; // -1: none
} difference;
// |got - want| <= atol + rtol * |want| by element; shapes and types must be equal (else false, and
// *out_why says why).
bool tensor_compare(const DLTensor *got, const DLTensor *want, double rtol, double atol,
                    difference *out, char why[256]);
void tensor_fill(DLTensor *t, const char *how, uint64_t *state);

// --- files (npy.c, npz.c): NumPy's formats. NULL or false after a message.
tensor *npy_read(const char *path);
tensor *npy_parse(const void *data, size_t bytes, const char *place);
bool npy_write(const char *path, const DLTensor *t);
void *npy_format(const DLTensor *t, size_t *out_bytes); // malloc'ed
typedef struct npz npz;
npz *npz_open(const char *path);
size_t npz_count(npz *z);
char *npz_name(npz *z, size_t i); // of entry |i|, without ".npy"; malloc'ed, NULL: there is none
// NULL without a message when absent; *out_failed after one. An entry of more than |most_bytes| of
// elements is not unpacked.
tensor *npz_find(npz *z, const char *name, uint64_t most_bytes, bool *out_failed);
void npz_close(npz *z);
bool npz_write(const char *path, size_t n, const char *const *names, tensor *const *at);

// --- what is known of ONNX's node tests (node_tests.c)

enum { MAX_TEST_OPERATORS = 64 };
typedef struct test_kind {
  const char *category; // of its operators
  double atol;          // the least that it needs where that is above the official one; else 0
  size_t n_operators;   // different ones, those of domains as "ai.onnx.ml.Binarizer"
  char operators[MAX_TEST_OPERATORS][64];
} test_kind;
// Of the test in the folder |dir|; "other" where its model cannot be read.
test_kind test_kind_of(const char *dir);
// The tests that need more than the official tolerance, from 0: why; NULL behind the last.
const char *test_exception(size_t i, const char **out_name, double *out_atol);

// --- traces (trace.c)

// The last run of a session with |profile| 2 as a Chrome trace; malloc'ed, NULL when memory is out.
char *trace_text(const kiln_module *m, const kiln_session *s);

// --- counters of the processor (counters.c)

// Misses of the last level of caches in this process and the threads that it begins from then on;
// -1: there is no such counter, and *out_why says why.
int misses_open(const char **out_why);
void misses_begin(int counter); // from 0
double misses_end(int counter);

// --- statistics (stats.c)
typedef struct stats {
  double min, median, mean, p90, p99;
} stats;
stats stats_of(double *ms, size_t n); // sorts |ms|
// Of sorted values, |percent| from 0 to 100; 0 without any.
double percentile(const double *sorted, size_t n, double percent);

#endif
