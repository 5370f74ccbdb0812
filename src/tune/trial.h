// Trials: modules of one model run on the same random inputs, in alternation, and their results are
// compared with the reference.
//
// Only one module at a time has a session, because spinning threads of an idle session would slow
// down the others.
#ifndef KILN_TUNE_TRIAL_H
#define KILN_TUNE_TRIAL_H

#include "analysis/interpret.h"
#include "model/model.h"

typedef struct kiln_trial {
  kiln_ctx *cx; // of whose arena the lists are
  kiln_model *model;
  kiln_diag *diag;
  int32_t threads;
  uint64_t seed;
  kiln_interpreter *judge;  // what the outputs may be off by; NULL: |rtol| and |atol| say it
  double rtol, atol;        // per element
  const kiln_program *prog; // whose tensors are those of the ports
  size_t n_inputs, n_outputs;
  DLManagedTensorVersioned **tensors; // inputs, outputs, wanted outputs
  DLTensor **views;
  kiln_session *session; // of the module whose turn it is
} kiln_trial;

// Makes the tensors, and fills the inputs with random data that the model can be run on.
//
// needs: all up to |atol| set, the dimensions of |model| bound
kiln_status kiln_trial_init(kiln_trial *t);
void kiln_trial_deinit(kiln_trial *t); // what is not zeroed
// The reference interpreter computes what is wanted, and what right outputs may be off by
// (docs/design/verdicts.md).
kiln_status kiln_trial_refer(kiln_trial *t);
DLTensor **kiln_trial_inputs(const kiln_trial *t);
DLTensor **kiln_trial_outputs(const kiln_trial *t);
DLTensor **kiln_trial_wanted(const kiln_trial *t);

kiln_status kiln_trial_turn(kiln_trial *t, kiln_module *m, bool profile);
kiln_status kiln_trial_run(const kiln_trial *t, DLTensor **outputs);
// Runs |m| and compares its outputs with those that are wanted.
kiln_status kiln_trial_check(kiln_trial *t, kiln_module *m, bool *out_is_right);
double kiln_median(double *values, int n); // sorts them

#endif
