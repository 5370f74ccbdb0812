// Shapes that only a run finds: see extents.h.
#include "runtime/extents.h"

#include <stdlib.h>
#include <string.h>

enum { SLOT_BYTES = KILN_PORT_MAX_RANK * 8 };

kiln_status kiln_extents_create(const kiln_plan *plan, kiln_diag *diag, kiln_extents **out) {
  const uint32_t n = plan->n_shapes;
  *out = NULL;
  if (n == 0) return KILN_OK;
  kiln_extents *x = calloc(1, sizeof *x);
  if (x) {
    *x = (kiln_extents){.plan = plan,
                        .found = aligned_alloc(64, (size_t)n * SLOT_BYTES),
                        .own = calloc(n, sizeof *x->own),
                        .outputs = calloc(plan->n_outputs, sizeof *x->outputs)};
  }
  if (!x || !x->found || !x->own || !x->outputs) {
    kiln_extents_destroy(x);
    return kiln_diag_fail(diag, KILN_NO_MEMORY, "session", "shapes of outputs: no memory left");
  }
  memset(x->found, 0, (size_t)n * SLOT_BYTES);
  for (uint32_t k = 0; k < n; k++) {
    kiln_plan_port *port = &plan->outputs[plan->n_outputs - n + k];
    x->own[k] = (DLTensor){.device = {kDLCPU, 0},
                           .ndim = port->rank,
                           .dtype = {kDLInt, 64, 1},
                           .shape = port->shape,
                           .data = x->found + (size_t)k * KILN_PORT_MAX_RANK};
  }
  *out = x;
  return KILN_OK;
}

void kiln_extents_destroy(kiln_extents *x) {
  if (!x) return;
  free(x->found);
  free(x->own);
  free(x->outputs);
  free(x);
}

DLTensor *const *kiln_extents_begin(kiln_extents *x, DLTensor *const *outputs) {
  const uint32_t n = x->plan->n_outputs - x->plan->n_shapes;
  for (uint32_t i = 0; i < n; i++) x->outputs[i] = outputs[i];
  for (uint32_t k = 0; k < x->plan->n_shapes; k++) x->outputs[n + k] = &x->own[k];
  return x->outputs;
}

const int64_t *kiln_extents_find(const kiln_extents *x, size_t i) {
  for (uint32_t k = 0; k < x->plan->n_shapes; k++)
    if (x->plan->shape_of[k] == i) return x->found + (size_t)k * KILN_PORT_MAX_RANK;
  return NULL;
}
