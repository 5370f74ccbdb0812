// Trials: modules of one model run on the same random inputs in turns; their results are compared
// with the reference.
//
// Only one module has a session at a time, because spinning threads of an idle session would slow
// down the others.
#ifndef KILN_TUNE_TRIAL_H
#define KILN_TUNE_TRIAL_H

#include "analysis/interpret.h"
#include "model/model.h"

typedef struct kiln_trial {
  kiln_ctx *cx; // its arena holds the lists
  kiln_model *model;
  kiln_diag *diag;
  int32_t threads;
  uint64_t seed;
  kiln_interpreter *judge;  // computes tolerances of the outputs; NULL: use |rtol| and |atol|
  double rtol, atol;        // per element
  const kiln_program *prog; // the program whose tensors are the ports
  size_t n_inputs, n_outputs;
  DLManagedTensorVersioned **tensors; // inputs, outputs, expected outputs
  DLTensor **views;
  kiln_session *session; // of the current module
} kiln_trial;

// Allocates the tensors and fills the inputs with random data that are valid for the model.
//
// needs: fields up to |atol| set, dimensions of |model| bound
kiln_status kiln_trial_init(kiln_trial *t);
void kiln_trial_deinit(kiln_trial *t); // no effect on a zeroed one
// Computes expected outputs and their tolerances with the reference interpreter
// (docs/design/verdicts.md).
kiln_status kiln_trial_compute_expected(kiln_trial *t);
DLTensor **kiln_trial_inputs(const kiln_trial *t);
DLTensor **kiln_trial_outputs(const kiln_trial *t);
DLTensor **kiln_trial_expected(const kiln_trial *t);

kiln_status kiln_trial_turn(kiln_trial *t, kiln_module *m, bool profile);
kiln_status kiln_trial_run(const kiln_trial *t, DLTensor **outputs);
// Runs |m| and compares its outputs with the expected ones.
kiln_status kiln_trial_check(kiln_trial *t, kiln_module *m, bool *out_is_right);
double kiln_median(double *values, int n); // sorts |values|

#endif
