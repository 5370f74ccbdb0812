// The compiler interface for folders below the driver: a table of functions.
//
// Shape buckets, tuning, verification and explanation compile models anew, in ways of their own.
// They call nothing of the driver: it hands this table in with every model that it loads
// (kiln_model.compiler).
#ifndef KILN_MODULE_COMPILER_H
#define KILN_MODULE_COMPILER_H

#include "module/build.h"

typedef struct kiln_pass_count {
  const char *name; // of a rule or a pass
  int n;            // how often it did what it is for
  bool is_optional;
} kiln_pass_count;

typedef struct kiln_compiler {
  // kiln_model_load of the |nth| definition of a .tc file, of those without mistakes; the others
  // are not looked at. -1: kiln_model_load.
  kiln_status (*load)(const char *path, const kiln_compile_options *options, int nth,
                      kiln_diag *diag, kiln_model **out_model);
  // kiln_model_compile.
  kiln_status (*compile)(kiln_model *model, kiln_diag *diag, kiln_module **out_module);
  // The statements that kernels are made of: |b| has a program and a machine.
  kiln_status (*rewrite)(kiln_ctx *cx, kiln_build *b);
  // A copy of the model's program, its kernels, their names and dumps.
  //
  // needs: a program without unbound dimensions
  kiln_status (*kernels)(kiln_ctx *cx, kiln_build *b);
  // Kernels, their code and the plan: everything but the module. |b| says whether it may borrow.
  kiln_status (*run)(kiln_ctx *cx, kiln_build *b);
  // What each rule and pass did, in their order; ended by a row without a name, in cx->perm.
  const kiln_pass_count *(*counts)(kiln_ctx *cx, const kiln_build *b);
  // Whether the pass of that name is left out.
  bool (*omits)(const kiln_build *b, const char *pass);
} kiln_compiler;

#endif
