// Runs the steps of a flow: loops, copies and rows; parts are run by the caller.
#ifndef KILN_RUNTIME_FLOW_RUN_H
#define KILN_RUNTIME_FLOW_RUN_H

#include "runtime/flow/flow.h"

// Runs the part of |step|, whose arguments lie at |args|.
typedef kiln_status (*kiln_flow_part_fn)(void *user, const kiln_flow_step *step, char *const *args,
                                         kiln_diag *diag);

typedef struct kiln_flow_run {
  const kiln_flow *flow;
  char **at;           // [n_values], where each value lies now
  char **args;         // [n_args], of the current steps
  int64_t *iterations; // [n_steps], of the loops
} kiln_flow_run;

// gives: *out, to be freed by kiln_flow_run_deinit in any case
KILN_MUST_USE kiln_status kiln_flow_run_init(const kiln_flow *flow, kiln_diag *diag,
                                             kiln_flow_run *out);
void kiln_flow_run_deinit(kiln_flow_run *r);
// needs:  at[] of the inputs and outputs; buffers lie in |arena|
// errors: KILN_BAD_INPUT: a loop needs more iterations than there is room for; and those of |run|
KILN_MUST_USE kiln_status kiln_flow_run_steps(kiln_flow_run *r, char *arena, kiln_flow_part_fn run,
                                              void *user, kiln_diag *diag);

#endif
