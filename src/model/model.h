// A model inside of the compiler: the graph as read and the program made by fission; or a TC
// definition and its program.
//
// The core (context and mapped file) is reference counted, because an in-memory module may borrow
// constants from either; the model itself has one owner. A model is used by one thread at a time.
#ifndef KILN_MODEL_MODEL_H
#define KILN_MODEL_MODEL_H

#include "analysis/interpret.h"
#include "fission/lower.h"
#include "kiln/compile.h"
#include "onnx/reader.h"
#include "rewrite/rules.h"
#include "schedule/holes.h"
#include "tc/definition.h"

#include <stdatomic.h>
#include <string.h>

typedef struct kiln_core {
  atomic_int refs;
  kiln_ctx cx;
  kiln_onnx_file *file;
} kiln_core;

typedef struct kiln_interface {
  int n;
  kiln_port *ports;
  const char ***dim_names; // [n][rank]; NULL for constant extents
} kiln_interface;

struct kiln_compiler;
struct kiln_model_ranges;

// Where optional passes end (--stop-after): after a number of steps, or after a given pass.
typedef struct kiln_stop {
  bool is_set;
  int n_steps; // steps: runs of optional passes, and of rules that changed something
  int pass;    // row of the pipeline; -1: none
} kiln_stop;

// An output and the input that it is in the next run.
typedef struct kiln_state_ports {
  int input, output;
  bool grows; // the output has what the input has, and rows behind (dynamic/append_in_place.h)
} kiln_state_ports;

struct kiln_model {
  kiln_core *core;
  const char *path;
  kiln_compile_options options;        // strings are copied, arrays dropped
  kiln_graph *graph;                   // NULL for a definition
  const kiln_tc_signature *definition; // one of |definitions|; NULL for an ONNX model
  int nth; // index among the valid definitions of a file that may have invalid ones; -1: all must
           // be valid
  int n_definitions;
  kiln_tc_signature *definitions; // of the file
  const kiln_program *prog;       // immutable: compilation works on copies; NULL if read only
  // Storage type of f32 tensors after rewriting: KILN_F16, KILN_BF16, or KILN_F32.
  kiln_dtype half;
  const kiln_program *halved;           // cache of kiln_model_meaning
  const kiln_rule *rules;               // kiln_rules
  uint32_t without_rules;               // bit mask of rules to skip
  const struct kiln_pass *passes;       // kiln_passes
  const struct kiln_compiler *compiler; // the compiler that loaded the model (module/compiler.h)
  uint64_t without;                     // bit mask of the pipeline's rows to skip (pipeline.h)
  kiln_stop stop;
  kiln_asked with_rules;
  bool has_schedule;                 // a user-provided schedule, with or without sections
  kiln_sections schedule;            // sections of that schedule
  kiln_interface inputs, outputs;    // outputs include shape outputs
  KILN_VEC(kiln_state_ports) states; // (model/states.h)
  // [inputs] defaults of optional inputs, as tensors of the ports' types; NULL: required. Made on
  // demand, and NULL for a model that was only read.
  DLManagedTensorVersioned **defaults;
  int64_t **found; // [outputs] data-dependent shapes in the last run; NULL: the port's shape
  struct kiln_parted *parted; // parts of a model with loops (model/parts.h); NULL: |prog| is all
  struct kiln_model_ranges *ranges; // ranges of dimensions (dynamic/ranges.h); NULL: none
  const char *ranged;               // the first dimension with a range
  const char *reports[2];
  kiln_tuning tuning;             // of the last compilation
  const char *const *transformed; // nodes whose kernels use Winograd's algorithm; NULL: not
                                  // compiled
  int n_transformed;
  kiln_memory memory; // of its module
  int n_load_times;   // number of times from loading
  KILN_VEC(kiln_pass_time) times;
};

// defaults.c: makes the defaults of optional inputs; and completes a run's inputs, replacing NULL
// by defaults, in the ctx.
kiln_status kiln_defaults_make(kiln_ctx *cx, kiln_model *m);
void kiln_defaults_destroy(kiln_model *m);
const DLTensor **kiln_defaults_fill_in(kiln_ctx *cx, const kiln_model *m, size_t n,
                                       const DLTensor *const *inputs);

void kiln_core_release(void *object); // releases one reference; NULL is allowed

// The ports are added one by one.
void kiln_interface_init(kiln_ctx *cx, kiln_interface *face, int n);
void kiln_interface_set(kiln_ctx *cx, kiln_interface *face, int i, const char *name,
                        const char *dtype, int rank, const kiln_expr *const *shape);

// Reads the .tc file at |m->path| and binds its definition |o->entry| to the sizes |o->dims|.
// (definition.c)
//
// errors: KILN_BAD_INPUT: no such file or definition, an unknown size, invalid text or ranges
kiln_status kiln_definition_load(kiln_ctx *cx, kiln_model *m, const kiln_compile_options *o);
// errors: KILN_BAD_INPUT: an option has a NULL pointer (options.c)
kiln_status kiln_options_check(const kiln_compile_options *o, kiln_diag *diag);
kiln_status kiln_definition_report(kiln_ctx *cx, const kiln_model *m, bool json,
                                   const char **out_text);
bool kiln_path_is_definition(const char *path);
// Reads a text file, NUL-terminated, into the ctx.
kiln_status kiln_text_read(kiln_ctx *cx, const char *path, const char **out);
// The same for a file that may be in |o->files|.
kiln_status kiln_text_take(kiln_ctx *cx, const kiln_compile_options *o, const char *path,
                           const char **out);

// Escapes a name given by the user, in its original or its escaped form (support/printable.h).
const char *kiln_name_shown(kiln_ctx *cx, const char *name);
// errors: KILN_BAD_INPUT: |path| is one of the model's files
kiln_status kiln_model_may_write(const kiln_model *model, const char *path, kiln_diag *diag);
// Runs |body| in the model's context; messages go to |diag|.
kiln_status kiln_model_enter(kiln_model *m, kiln_diag *diag,
                             kiln_status (*body)(kiln_ctx *cx, void *argument), void *argument);
double kiln_now_ms(void);
// Records the time of a pass; repeated runs of a pass since loading are summed.
void kiln_model_time(kiln_model *m, const char *pass, double start_ms);
// Whether |word| is in |list|, a comma-separated list; NULL is empty.
bool kiln_list_has(const char *list, const char *word);
bool kiln_model_dumps(const kiln_model *m, const char *level);
void kiln_model_dump(const kiln_model *m, const char *level, const kiln_text *text);
void kiln_model_progress(const kiln_model *m, const char *phase, size_t done, size_t total);
bool kiln_model_asks_backends(const kiln_model *m); // whether library candidates are requested
// errors: KILN_BAD_INPUT if the model was only read; KILN_UNSUPPORTED listing the dimensions that
//         are unbound or have ranges
kiln_status kiln_model_want_program(const kiln_model *m, kiln_diag *diag);

// Converts f32 tensors of |p|, a copy of the model's program, to the requested storage type, if
// any. (program.c)
kiln_status kiln_model_halve(kiln_ctx *cx, const kiln_model *m, kiln_program *p);
// The reference program: |m->prog| converted to the requested storage type, without rewriting. Made
// on demand. (program.c)
kiln_status kiln_model_meaning(kiln_ctx *cx, kiln_model *m, const kiln_program **out);

// Size in bytes of |t| in its storage order; the shape is static. (program.c)
uint64_t kiln_storage_bytes(const kiln_tensor *t);

#endif
