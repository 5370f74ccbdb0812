// Data-dependent shapes and checks of indices (extents.h).
#include "runtime/extents.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { SLOT_BYTES = KILN_PORT_MAX_RANK * 8 };

static void make_own(kiln_extents *x) {
  const kiln_plan *plan = x->plan;
  for (uint32_t k = 0; k < kiln_plan_n_hidden(plan); k++) {
    kiln_plan_port *port = &plan->outputs[kiln_plan_n_results(plan) + k];
    x->own[k] = (DLTensor){.device = {kDLCPU, 0},
                           .ndim = port->rank,
                           .dtype = {kDLInt, 64, 1},
                           .shape = port->shape,
                           .data = x->found + (size_t)k * KILN_PORT_MAX_RANK};
  }
}

kiln_status kiln_extents_create(const kiln_plan *plan, kiln_diag *diag, kiln_extents **out) {
  const uint32_t n = kiln_plan_n_hidden(plan);
  *out = NULL;
  if (n == 0) return KILN_OK;
  kiln_extents *x = calloc(1, sizeof *x);
  const size_t bytes = (size_t)plan->n_shapes * SLOT_BYTES + ((size_t)plan->n_checks + 7) / 8 * 64;
  if (x) {
    *x = (kiln_extents){.plan = plan,
                        .found = aligned_alloc(64, bytes),
                        .own = calloc(n, sizeof *x->own),
                        .outputs = calloc(plan->n_outputs, sizeof *x->outputs)};
  }
  if (!x || !x->found || !x->own || !x->outputs) {
    kiln_extents_destroy(x);
    return kiln_diag_fail(diag, KILN_NO_MEMORY, "session", "shapes of outputs: no memory left");
  }
  memset(x->found, 0, bytes);
  x->checked = x->found + (size_t)plan->n_shapes * KILN_PORT_MAX_RANK;
  make_own(x);
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
  const uint32_t n = kiln_plan_n_results(x->plan);
  for (uint32_t i = 0; i < n; i++) x->outputs[i] = outputs[i];
  for (uint32_t k = 0; k < kiln_plan_n_hidden(x->plan); k++) x->outputs[n + k] = &x->own[k];
  return x->outputs;
}

const int64_t *kiln_extents_find(const kiln_extents *x, size_t i) {
  for (uint32_t k = 0; k < x->plan->n_shapes; k++)
    if (x->plan->shape_of[k] == i) return x->found + (size_t)k * KILN_PORT_MAX_RANK;
  return NULL;
}

static kiln_status out_of_range(const kiln_plan_check *c, int64_t found, kiln_diag *diag) {
  if (c->axis < -1)
    return kiln_diag_fail(diag, KILN_BAD_INPUT, c->place,
                          "axis %" PRId32 " of %s: must have the extent of what it is combined "
                          "with, got another than %" PRId64,
                          -2 - c->axis, c->index, found);
  if (c->axis < 0)
    return kiln_diag_fail(diag, KILN_BAD_INPUT, c->place,
                          "%s: must lie in [%" PRId64 ", %" PRId64 "], got %" PRId64, c->index,
                          c->least, (int64_t)((uint64_t)c->end - 1), found);
  if (c->least == c->end)
    return kiln_diag_fail(diag, KILN_BAD_INPUT, c->place,
                          "%s: must lie in axis %" PRId32 ", got an index of %" PRId64, c->index,
                          c->axis, found);
  return kiln_diag_fail(diag, KILN_BAD_INPUT, c->place,
                        "%s: must lie in [%" PRId64 ", %" PRId64 ") along axis %" PRId32
                        ", got an index of %" PRId64,
                        c->index, c->least, c->end, c->axis, found);
}

kiln_status kiln_plan_checked(const kiln_plan *plan, const int64_t *results, kiln_diag *diag) {
  kiln_status st = KILN_OK;
  for (uint32_t i = 0; i < plan->n_checks; i++)
    if (results[i] != INT64_MIN) st = out_of_range(&plan->checks[i], results[i], diag);
  return st;
}
