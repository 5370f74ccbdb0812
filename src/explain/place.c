// Memory levels of tensors, and launches of statements, for `kiln explain`.
#include "explain/explain.h"

int *kiln_explain_launches(kiln_ctx *cx, const kiln_build *b) {
  int *of = KILN_NEW_ARRAY(&cx->scratch, int, b->choices.prog->stmts.n);
  for (int i = 0; i < b->choices.prog->stmts.n; i++) of[i] = -1;
  for (int i = 0; i < b->choices.kernels.launches.n; i++)
    for (int k = 0; k < b->choices.kernels.launches.data[i].n_stmts; k++)
      of[b->choices.kernels.launches.data[i].stmts[k]] = i;
  return of;
}

const kiln_buffer *kiln_explain_buffer(const kiln_kernel *k, int tensor) {
  const kiln_tensor *t = k->prog->tensors.data[tensor];
  for (int i = 0; i < k->loops->buffers.n; i++) {
    const kiln_buffer *b = k->loops->buffers.data[i];
    if (b && (b->tensor == tensor || (b->pack && b->pack->source == tensor) ||
              (b->tensor < 0 && b->name == t->name)))
      return b;
  }
  return NULL;
}

// Whether the level is distributed shared memory of a cluster, in which no buffer is allocated.
static bool is_shared_by_blocks(const kiln_mem_level *l) {
  return l->is_explicit && l->n_sharing > 1;
}

// The fastest cache whose usable share holds |bytes|.
static const char *level_of_bytes(const kiln_build *b, double bytes) {
  const kiln_machine *m = &b->request.machine;
  const kiln_device *d = m->device;
  if (!d)
    return bytes <= (double)m->l1_bytes / 2   ? "L1"
           : bytes <= (double)m->l2_bytes / 2 ? "L2"
                                              : "memory";
  for (int l = d->n_levels - 2; l > 0; l--)
    if (!is_shared_by_blocks(&d->levels[l]) &&
        bytes <= (double)d->levels[l].capacity_bytes * d->levels[l].usable)
      return d->levels[l].name;
  return "memory";
}

const char *kiln_explain_level(const kiln_build *b, const kiln_kernel *k, int t) {
  const kiln_buffer *at = kiln_explain_buffer(k, t);
  if (!at && k->by_library) return k->by_library->backend;
  if (!at || at->scope == KILN_SCOPE_REGISTER) return "registers";
  if (at->scope == KILN_SCOPE_PARAM) return "memory";
  return level_of_bytes(b, (double)kiln_buffer_elems(at) * kiln_dtype_bytes(at->dtype));
}
