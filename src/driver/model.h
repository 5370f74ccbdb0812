// A model inside the driver: the graph as it was read, and the program that fission made of it.
//
// The core (context and mapped file) is counted, because an in-memory module may borrow constants
// that lie in either; the model itself has one owner. A model is used by one thread at a time.
#ifndef KILN_DRIVER_MODEL_H
#define KILN_DRIVER_MODEL_H

#include "fission/lower.h"
#include "kiln/compile.h"
#include "onnx/reader.h"

#include <stdatomic.h>

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

struct kiln_model {
  kiln_core *core;
  const char *path;
  kiln_compile_options options; // strings copied, arrays dropped
  kiln_graph *graph;
  const kiln_program *prog; // never changed: compilation works on copies; NULL when read only
  kiln_interface inputs, outputs;
  const char *reports[2];
  int n_load_times; // of the times, those of the loading
  KILN_VEC(kiln_pass_time) times;
};

void kiln_core_release(void *core); // one reference; NULL is allowed

// Runs |body| with the model's context, messages going to |diag|.
kiln_status kiln_model_enter(kiln_model *m, kiln_diag *diag,
                             kiln_status (*body)(kiln_ctx *cx, void *argument), void *argument);
double kiln_now_ms(void);
void kiln_model_time(kiln_model *m, const char *pass, double start_ms); // ends a pass
bool kiln_model_dumps(const kiln_model *m, const char *level);
void kiln_model_dump(const kiln_model *m, const char *level, const kiln_text *text);
void kiln_model_progress(const kiln_model *m, const char *phase, size_t done, size_t total);
// errors: KILN_BAD_INPUT when only read; KILN_UNSUPPORTED listing the dimensions that are not bound
kiln_status kiln_model_want_program(const kiln_model *m, kiln_diag *diag);

// A copy that may be changed: statements and tensors are new, expressions and data are shared.
kiln_program *kiln_program_copy(kiln_ctx *cx, const kiln_program *p);

#endif
