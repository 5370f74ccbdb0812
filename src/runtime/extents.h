// Shapes that only a run finds: a module gives them as further outputs, to tensors of the session's.
#ifndef KILN_RUNTIME_EXTENTS_H
#define KILN_RUNTIME_EXTENTS_H

#include "runtime/plan.h"

// For one session.
typedef struct kiln_extents {
  const kiln_plan *plan;
  int64_t *found;     // [n_shapes][KILN_PORT_MAX_RANK], aligned to 64 bytes
  DLTensor *own;      // [n_shapes]
  DLTensor **outputs; // [n_outputs]: the caller's, then these
} kiln_extents;

// gives: *out, NULL where all shapes are known
kiln_status kiln_extents_create(const kiln_plan *plan, kiln_diag *diag, kiln_extents **out);
void kiln_extents_destroy(kiln_extents *x); // NULL is allowed
// The outputs that a run takes where the caller gives |outputs|.
DLTensor *const *kiln_extents_begin(kiln_extents *x, DLTensor *const *outputs);
// The shape of output |i| in the last run; NULL: the port's.
const int64_t *kiln_extents_find(const kiln_extents *x, size_t i);

#endif
