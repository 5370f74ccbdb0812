// The table of facts: zeros up to the tensor that is asked for.
#include "tile/facts.h"

kiln_fact kiln_fact_of(const kiln_facts *f, int tensor) {
  return f && tensor < f->n ? f->data[tensor] : (kiln_fact){0};
}

kiln_fact *kiln_fact_at(kiln_ctx *cx, kiln_facts *io, int tensor) {
  while (io->n <= tensor) KILN_VEC_PUSH(&cx->perm, io, (kiln_fact){0});
  return &io->data[tensor];
}

void kiln_facts_cut(kiln_facts *io, int n) {
  if (io->n > n) io->n = n;
}
