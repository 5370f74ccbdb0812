// The compiler's interface for folders below the driver: a table of functions.
//
// Shape buckets, tuning, verification and explanation compile models again, with changed options.
// They do not call the driver: it attaches this table to every model that it loads
// (kiln_model.compiler).
#ifndef KILN_MODULE_COMPILER_H
#define KILN_MODULE_COMPILER_H

#include "module/build.h"

typedef struct kiln_pass_count {
  const char *name; // of a rule or a pass
  int n;            // how often it changed the program
  bool is_optional;
} kiln_pass_count;

typedef struct kiln_compiler {
  // kiln_model_load of definition |nth| of a .tc file, counting those without errors; the others
  // are skipped. -1: kiln_model_load.
  kiln_status (*load)(const char *path, const kiln_compile_options *options, int nth,
                      kiln_diag *diag, kiln_model **out_model);
  // kiln_model_compile.
  kiln_status (*compile)(kiln_model *model, kiln_diag *diag, kiln_module **out_module);
  // The model as one program: of a model in parts a copy in its ctx, with its loops unrolled, made
  // on demand; otherwise |m| itself.
  //
  // errors: KILN_UNSUPPORTED: a loop cannot be unrolled
  kiln_status (*unroll)(kiln_ctx *cx, kiln_model *m, kiln_model **out);
  // Runs the passes before kernel selection; |b| has a program and a machine.
  kiln_status (*rewrite)(kiln_ctx *cx, kiln_build *b);
  // Runs the passes up to kernels and their names, on a copy of the model's program; makes dumps.
  //
  // needs: a program without unbound dimensions
  kiln_status (*kernels)(kiln_ctx *cx, kiln_build *b);
  // Makes kernels, code and plan, but no module.
  kiln_status (*run)(kiln_ctx *cx, kiln_build *b);
  // What each rule and pass did, in pipeline order; ended by a row without a name, in cx->perm.
  const kiln_pass_count *(*counts)(kiln_ctx *cx, const kiln_build *b);
  // Makes the kernels and launches of a model with ranges for a run of these tensors: those of the
  // bucket that takes them, whose program has one input more, the dimensions' |out_values|. Loops
  // have the iterations that the run needs.
  //
  // errors: KILN_BAD_INPUT: an extent is out of its range, or a tensor has another type or shape
  kiln_status (*bucket)(kiln_ctx *cx, const kiln_model *m, size_t n_inputs,
                        const DLTensor *const *inputs, size_t n_outputs, DLTensor *const *outputs,
                        kiln_build *b, int64_t *out_values);
  // Whether the pass of that name is skipped.
  bool (*omits)(const kiln_build *b, const char *pass);
} kiln_compiler;

#endif
