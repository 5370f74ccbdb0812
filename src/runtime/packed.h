// Tensors whose elements are packed, several to a byte. Modules use a byte for each element, in
// tensors that the session owns.
#ifndef KILN_RUNTIME_PACKED_H
#define KILN_RUNTIME_PACKED_H

#include "runtime/plan.h"

// For one session. |inputs| and |outputs| are a run's, with unpacked tensors for the packed ones.
typedef struct kiln_packed kiln_packed;
struct kiln_packed {
  const kiln_plan *plan;
  DLTensor *own;           // [n_inputs + n_outputs]; those of packed ports are used
  int64_t *capacities;     // [n_inputs + n_outputs] elements for which there is memory
  const DLTensor **inputs; // [n_inputs]
  DLTensor **outputs;      // [n_outputs]
};

// gives: *out, NULL if no port is packed
kiln_status kiln_packed_create(const kiln_plan *plan, kiln_diag *diag, kiln_packed **out);
void kiln_packed_destroy(kiln_packed *p);
kiln_status kiln_packed_begin(kiln_packed *p, const DLTensor *const *inputs,
                              DLTensor *const *outputs, kiln_diag *diag);
void kiln_packed_end(const kiln_packed *p, DLTensor *const *outputs);

#endif
