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

// A tensor with a byte for each element; its extents are those of the run's tensor.
static DLTensor make_own(const kiln_plan_port *port) {
  return (DLTensor){.device = {kDLCPU, 0}, .ndim = port->rank, .dtype = {kDLUInt, 8, 1}};
}

// Gives |own| the extents of |given|, and as much memory as that takes.
static bool fit(DLTensor *own, int64_t *capacity, const DLTensor *given) {
  const int64_t n = kiln_tensor_count(given);
  own->shape = given->shape;
  if (own->data && n <= *capacity) return true;
  free(own->data);
  own->data = calloc(1, (size_t)n + 1);
  *capacity = own->data ? n : 0;
  return own->data != NULL;
}

static kiln_status no_memory(kiln_diag *diag) {
  return kiln_diag_fail(diag, KILN_NO_MEMORY, "session",
                        "packed inputs and outputs: no memory left");
}

kiln_status kiln_packed_create(const kiln_plan *plan, kiln_diag *diag, kiln_packed **out) {
  *out = NULL;
  if (!any_packed(plan)) return KILN_OK;
  kiln_packed *p = calloc(1, sizeof *p);
  bool made = p != NULL;
  if (made) {
    *p = (kiln_packed){.plan = plan,
                       .own = calloc((size_t)count(plan) + 1, sizeof *p->own),
                       .capacities = calloc((size_t)count(plan) + 1, sizeof *p->capacities),
                       .inputs = calloc((size_t)plan->n_inputs + 1, sizeof *p->inputs),
                       .outputs = calloc((size_t)plan->n_outputs + 1, sizeof *p->outputs)};
    made = p->own && p->capacities && p->inputs && p->outputs;
  }
  for (uint32_t i = 0; made && i < count(plan); i++) p->own[i] = make_own(port_of(plan, i));
  if (made) {
    *out = p;
    return KILN_OK;
  }
  kiln_packed_destroy(p);
  return no_memory(diag);
}

void kiln_packed_destroy(kiln_packed *p) {
  if (!p) return;
  for (uint32_t i = 0; p->own && i < count(p->plan); i++) free(p->own[i].data);
  free(p->own);
  free(p->capacities);
  free(p->inputs);
  free(p->outputs);
  free(p);
}

kiln_status kiln_packed_begin(kiln_packed *p, const DLTensor *const *inputs,
                              DLTensor *const *outputs, kiln_diag *diag) {
  const uint32_t n = p->plan->n_inputs;
  for (uint32_t i = 0; i < n; i++) {
    const bool is_packed = kiln_type_is_packed(p->plan->inputs[i].type);
    if (is_packed && !fit(&p->own[i], &p->capacities[i], inputs[i])) return no_memory(diag);
    if (is_packed) kiln_tensor_unpack(inputs[i], p->own[i].data);
    p->inputs[i] = is_packed ? &p->own[i] : inputs[i];
  }
  for (uint32_t i = 0; i < p->plan->n_outputs; i++) {
    const bool is_packed = kiln_type_is_packed(p->plan->outputs[i].type);
    if (is_packed && !fit(&p->own[n + i], &p->capacities[n + i], outputs[i]))
      return no_memory(diag);
    p->outputs[i] = is_packed ? &p->own[n + i] : outputs[i];
  }
  return KILN_OK;
}

void kiln_packed_end(const kiln_packed *p, DLTensor *const *outputs) {
  const DLTensor *own = p->own + p->plan->n_inputs;
  for (uint32_t i = 0; i < p->plan->n_outputs; i++)
    if (kiln_type_is_packed(p->plan->outputs[i].type)) kiln_tensor_pack(outputs[i], own[i].data);
}
