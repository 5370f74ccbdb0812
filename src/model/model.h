// A model inside the compiler: the graph as it was read, and the program that fission made of it;
// or a definition in TC notation and its program.
//
// The core (context and mapped file) is counted, because an in-memory module may borrow constants
// that lie in either; the model itself has one owner. A model is used by one thread at a time.
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
  const char ***dim_names; // [n][rank]; NULL entries are constants
} kiln_interface;

struct kiln_compiler;
struct kiln_model_ranges;

// Where passes that can be left out end (--stop-after): behind so many steps, or behind one of
// them.
typedef struct kiln_stop {
  bool is_set;
  int n_steps; // runs of such passes, and of rules that changed something
  int pass;    // a row of the pipeline; -1: none
} kiln_stop;

struct kiln_model {
  kiln_core *core;
  const char *path;
  kiln_compile_options options;        // strings copied, arrays dropped
  kiln_graph *graph;                   // NULL for a definition
  const kiln_tc_signature *definition; // of |definitions|; NULL for an ONNX model
  int nth; // of the right definitions of a file that may have wrong ones; -1: all must be right
  int n_definitions;
  kiln_tc_signature *definitions; // of the file
  const kiln_program *prog;       // never changed: compilation works on copies; NULL when read only
  // What its f32 tensors are stored as, once it is rewritten: KILN_F16, KILN_BF16, or KILN_F32.
  kiln_dtype half;
  const kiln_program *halved;           // see kiln_model_meaning
  const kiln_rule *rules;               // kiln_rules
  uint32_t without_rules;               // of them
  const struct kiln_pass *passes;       // kiln_passes
  const struct kiln_compiler *compiler; // that loaded it (module/compiler.h)
  uint64_t without;                     // of the pipeline's passes (pipeline.h)
  kiln_stop stop;
  kiln_asked with_rules;
  bool has_schedule;              // the user gave one, with or without sections
  kiln_sections schedule;         // of the user
  kiln_interface inputs, outputs; // with those that are shapes of others
  // [inputs] what each is in a run that does not give it, as a tensor of the port's type; NULL: it
  // must be given. Made when it is first wanted, and NULL for a model that was only read.
  DLManagedTensorVersioned **defaults;
  int64_t *
      *found; // [outputs] the shape in the last run where only the run knows it; NULL: the port's
  struct kiln_model_ranges *ranges; // of its dimensions (dynamic/ranges.h); NULL: none
  const char *ranged;               // the first of these dimensions
  const char *reports[2];
  kiln_tuning tuning;             // of the last compile
  const char *const *transformed; // nodes of its kernels that are Winograd's; NULL: there was none
  int n_transformed;
  kiln_memory memory; // of its module
  int n_load_times;   // of the times, those of the loading
  KILN_VEC(kiln_pass_time) times;
};

// defaults.c: of inputs that are optional; and what a run is given, with those where it gives NULL,
// in the ctx.
kiln_status kiln_defaults_make(kiln_ctx *cx, kiln_model *m);
void kiln_defaults_destroy(kiln_model *m);
const DLTensor **kiln_defaults_fill_in(kiln_ctx *cx, const kiln_model *m, size_t n,
                                       const DLTensor *const *inputs);

void kiln_core_release(void *object); // a kiln_core: one reference; NULL is allowed

// The interface is filled port by port.
void kiln_interface_init(kiln_ctx *cx, kiln_interface *face, int n);
void kiln_interface_set(kiln_ctx *cx, kiln_interface *face, int i, const char *name,
                        const char *dtype, int rank, const kiln_expr *const *shape);

// Reads the .tc file at |m->path| and binds its definition |o->entry| to the sizes |o->dims|.
// (definition.c)
//
// errors: KILN_BAD_INPUT: no such file or definition, a size that it has not, text or ranges that
//         are wrong
kiln_status kiln_definition_load(kiln_ctx *cx, kiln_model *m, const kiln_compile_options *o);
// errors: KILN_BAD_INPUT: what the options point to must be there (options.c)
kiln_status kiln_options_check(const kiln_compile_options *o, kiln_diag *diag);
kiln_status kiln_definition_report(kiln_ctx *cx, const kiln_model *m, bool json,
                                   const char **out_text);
bool kiln_path_is_definition(const char *path);
// The text of a file, NUL-terminated, in the ctx.
kiln_status kiln_text_read(kiln_ctx *cx, const char *path, const char **out);
// The same of a file that may be one of |o->files|.
kiln_status kiln_text_take(kiln_ctx *cx, const kiln_compile_options *o, const char *path,
                           const char **out);

// A name that is given as the model has it, or as it is shown, as it is shown
// (support/printable.h).
const char *kiln_name_shown(kiln_ctx *cx, const char *name);
// errors: KILN_BAD_INPUT: |path| is one of the files that the model was read from
kiln_status kiln_model_may_write(const kiln_model *model, const char *path, kiln_diag *diag);
// Runs |body| with the model's context, messages going to |diag|.
kiln_status kiln_model_enter(kiln_model *m, kiln_diag *diag,
                             kiln_status (*body)(kiln_ctx *cx, void *argument), void *argument);
double kiln_now_ms(void);
// Ends a pass; the time of one that has run since the model was loaded is added to.
void kiln_model_time(kiln_model *m, const char *pass, double start_ms);
// Whether |word| is one of the words of |list|, which are separated by ','; a NULL list has none.
bool kiln_list_has(const char *list, const char *word);
bool kiln_model_dumps(const kiln_model *m, const char *level);
void kiln_model_dump(const kiln_model *m, const char *level, const kiln_text *text);
void kiln_model_progress(const kiln_model *m, const char *phase, size_t done, size_t total);
bool kiln_model_asks_backends(const kiln_model *m); // libraries may take part
// errors: KILN_BAD_INPUT when only read; KILN_UNSUPPORTED listing the dimensions that are not
//         bound, or that have ranges
kiln_status kiln_model_want_program(const kiln_model *m, kiln_diag *diag);

// Stores the f32 tensors of |p|, a copy of the model's program, as the type that was asked for, if
// any. (program.c)
kiln_status kiln_model_halve(kiln_ctx *cx, const kiln_model *m, kiln_program *p);
// The program that results are judged by: |m->prog|, its tensors stored as they were asked for,
// before any rewriting. Made when it is first wanted. (program.c)
kiln_status kiln_model_meaning(kiln_ctx *cx, kiln_model *m, const kiln_program **out);

// Bytes that the elements of |t| span in its storage order; the shape is static. (program.c)
uint64_t kiln_storage_bytes(const kiln_tensor *t);

#endif
