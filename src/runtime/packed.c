// Unpacks inputs before a run, and packs outputs after it.
#include "runtime/packed.h"

#include <inttypes.h>
#include <stdlib.h>

static const kiln_plan_port *port_of(const kiln_plan *plan, uint32_t i) {
  return i < plan->n_inputs ? &plan->inputs[i] : &plan->outputs[i - plan->n_inputs];
}

static uint32_t count(const kiln_plan *plan) { return plan->n_inputs + plan->n_outputs; }

static bool any_packed(const kiln_plan *plan) {
  for (uint32_t i = 0; i < count(plan); i++)
    if (kiln_type_is_packed(port_of(plan, i)->type)) return true;
  return false;
}

// A tensor of the port's shape with a byte for each element.
static bool make_own(const kiln_plan_port *port, DLTensor *out) {
  if (!kiln_type_is_packed(port->type)) return true;
  *out = (DLTensor){.device = {kDLCPU, 0},
                    .ndim = port->rank,
                    .dtype = {kDLUInt, 8, 1},
                    .shape = (int64_t *)port->shape,
                    .data = calloc(1, port->bytes + 1)};
  return out->data != NULL;
}

kiln_status kiln_packed_create(const kiln_plan *plan, kiln_diag *diag, kiln_packed **out) {
  *out = NULL;
  if (!any_packed(plan)) return KILN_OK;
  kiln_packed *p = calloc(1, sizeof *p);
  bool made = p != NULL;
  if (made) {
    *p = (kiln_packed){.plan = plan,
                       .own = calloc((size_t)count(plan) + 1, sizeof *p->own),
                       .inputs = calloc((size_t)plan->n_inputs + 1, sizeof *p->inputs),
                       .outputs = calloc((size_t)plan->n_outputs + 1, sizeof *p->outputs)};
    made = p->own && p->inputs && p->outputs;
  }
  for (uint32_t i = 0; made && i < count(plan); i++) made = make_own(port_of(plan, i), &p->own[i]);
  if (made) {
    *out = p;
    return KILN_OK;
  }
  kiln_packed_destroy(p);
  return kiln_diag_fail(diag, KILN_NO_MEMORY, "session",
                        "packed inputs and outputs: no memory left");
}

void kiln_packed_destroy(kiln_packed *p) {
  if (!p) return;
  for (uint32_t i = 0; p->own && i < count(p->plan); i++) free(p->own[i].data);
  free(p->own);
  free(p->inputs);
  free(p->outputs);
  free(p);
}

void kiln_packed_begin(kiln_packed *p, const DLTensor *const *inputs, DLTensor *const *outputs) {
  const uint32_t n = p->plan->n_inputs;
  for (uint32_t i = 0; i < n; i++) {
    p->inputs[i] = p->own[i].data ? &p->own[i] : inputs[i];
    if (p->own[i].data) kiln_tensor_unpack(inputs[i], p->own[i].data);
  }
  for (uint32_t i = 0; i < p->plan->n_outputs; i++)
    p->outputs[i] = p->own[n + i].data ? &p->own[n + i] : outputs[i];
}

void kiln_packed_end(const kiln_packed *p, DLTensor *const *outputs) {
  const DLTensor *own = p->own + p->plan->n_inputs;
  for (uint32_t i = 0; i < p->plan->n_outputs; i++)
    if (own[i].data) kiln_tensor_pack(outputs[i], own[i].data);
}
