// What only a run finds: shapes, and indices that are out of range. A module gives it as further
// outputs, to tensors of the session's.
#ifndef KILN_RUNTIME_EXTENTS_H
#define KILN_RUNTIME_EXTENTS_H

#include "runtime/plan.h"

// For one session.
typedef struct kiln_extents {
  const kiln_plan *plan;
  int64_t *found;     // [n_shapes][KILN_PORT_MAX_RANK], [n_checks], aligned to 64 bytes
  int64_t *checked;   // the latter
  DLTensor *own;      // [kiln_plan_n_hidden]
  DLTensor **outputs; // [n_outputs]: the caller's, then these
} kiln_extents;

// gives: *out, NULL where all shapes are known and nothing is checked
kiln_status kiln_extents_create(const kiln_plan *plan, kiln_diag *diag, kiln_extents **out);
void kiln_extents_destroy(kiln_extents *x); // NULL is allowed
// The outputs that a run takes where the caller gives |outputs|.
DLTensor *const *kiln_extents_begin(kiln_extents *x, DLTensor *const *outputs);
// The shape of output |i| in the last run; NULL: the port's.
const int64_t *kiln_extents_find(const kiln_extents *x, size_t i);

// Whether the results of |plan|'s checks, [n_checks], say that all hold.
//
// errors: KILN_BAD_INPUT, with a message for each that does not
kiln_status kiln_plan_checked(const kiln_plan *plan, const int64_t *results, kiln_diag *diag);

#endif
