// Default values of optional inputs, as tensors.
#include "model/model.h"

#include "analysis/interpret.h"

#include <stdlib.h>
#include <string.h>

static const kiln_const *initial_of(const kiln_model *m, int i) {
  return m->graph && i < m->graph->n_inputs ? m->graph->values[m->graph->inputs[i]]->initial : NULL;
}

// Converts a default to the port's type, which may be a half type on request.
static kiln_status make(kiln_ctx *cx, const kiln_const *c, const kiln_port *port,
                        DLManagedTensorVersioned **out) {
  *out = kiln_tensor_create(port->dtype, c->rank, c->shape, cx->diag);
  if (!*out) return KILN_NO_MEMORY;
  DLTensor *t = &(*out)->dl_tensor;
  if (strcmp(port->dtype, kiln_dtype_text(c->dtype)) == 0) {
    if (c->bytes > 0) kiln_tensor_pack(t, c->data);
    return KILN_OK;
  }
  for (int64_t i = 0, n = kiln_tensor_count(t); i < n; i++)
    kiln_tensor_set_element(t, i, kiln_element_get(c->dtype, c->data, i));
  return KILN_OK;
}

kiln_status kiln_defaults_make(kiln_ctx *cx, kiln_model *m) {
  bool has_any = false;
  for (int i = 0; i < m->inputs.n; i++) has_any |= initial_of(m, i) != NULL;
  if (!has_any || m->defaults) return KILN_OK;
  m->defaults = calloc((size_t)m->inputs.n + 1, sizeof *m->defaults); // a bucket has one more input
  if (!m->defaults) return KILN_FAIL(cx->diag, KILN_NO_MEMORY, m->path, "inputs: no memory left");
  for (int i = 0; i < m->inputs.n; i++)
    if (initial_of(m, i))
      KILN_TRY(make(cx, initial_of(m, i), &m->inputs.ports[i], &m->defaults[i]));
  return KILN_OK;
}

void kiln_defaults_destroy(kiln_model *m) {
  for (int i = 0; m->defaults && i < m->inputs.n; i++) kiln_tensor_destroy(m->defaults[i]);
  free(m->defaults);
  m->defaults = NULL;
}

const DLTensor **kiln_defaults_fill_in(kiln_ctx *cx, const kiln_model *m, size_t n,
                                       const DLTensor *const *inputs) {
  if (!inputs) return NULL; // reported by the check of the run
  const DLTensor **given = KILN_NEW_ARRAY(&cx->perm, const DLTensor *, n);
  for (size_t i = 0; i < n; i++) {
    const bool has = m->defaults && i < (size_t)m->inputs.n && m->defaults[i];
    given[i] = inputs[i] || !has ? inputs[i] : &m->defaults[i]->dl_tensor;
  }
  return given;
}

int32_t kiln_model_input_is_optional(const kiln_model *model, size_t i) {
  return model && i < (size_t)model->inputs.n && initial_of(model, (int)i) != NULL;
}
