// Results that only a run determines: data-dependent shapes, and indices that are out of range. A
// module has hidden outputs for them, to tensors that the session owns.
#ifndef KILN_RUNTIME_EXTENTS_H
#define KILN_RUNTIME_EXTENTS_H

#include "runtime/plan.h"

// For one session.
typedef struct kiln_extents {
  const kiln_plan *plan;
  int64_t *found;     // [n_shapes][KILN_PORT_MAX_RANK], then [n_checks], aligned to 64 bytes
  int64_t *checked;   // points to the checks in |found|
  DLTensor *own;      // [kiln_plan_n_hidden]
  DLTensor **outputs; // [n_outputs]: the caller's, then |own|
} kiln_extents;

// gives: *out, NULL if all shapes are static and no index is checked
kiln_status kiln_extents_create(const kiln_plan *plan, kiln_diag *diag, kiln_extents **out);
void kiln_extents_destroy(kiln_extents *x); // NULL is allowed
// The outputs to pass to the run, given the caller's |outputs|.
DLTensor *const *kiln_extents_begin(kiln_extents *x, DLTensor *const *outputs);
// The shape of output |i| in the last run; NULL if it is the port's.
const int64_t *kiln_extents_find(const kiln_extents *x, size_t i);

// Whether |results|, [n_checks], say that all of |plan|'s index checks hold.
//
// errors: KILN_BAD_INPUT, with a message for each that fails
kiln_status kiln_plan_checked(const kiln_plan *plan, const int64_t *results, kiln_diag *diag);

#endif
