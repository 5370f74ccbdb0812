// The table of facts; its length is that of the last tensor with a fact.
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

static bool has_small_data(const kiln_tensor *t) {
  enum { MOST = 64 };
  const int8_t *elems = t->data;
  if (t->role != KILN_CONST || t->dtype != KILN_I8 || !elems) return false;
  for (size_t i = 0; i < t->bytes; i++)
    if (elems[i] < -MOST || elems[i] > MOST) return false;
  return true;
}

void kiln_facts_note_constants(kiln_ctx *cx, const kiln_program *p, const uint32_t *panels,
                               kiln_facts *io) {
  for (int i = 0; i < p->tensors.n; i++) {
    const kiln_tensor *t = p->tensors.data[i];
    if (panels && panels[i]) kiln_fact_at(cx, io, i)->panels = panels[i];
    if (t && has_small_data(t)) kiln_fact_at(cx, io, i)->is_small = true;
  }
}

void kiln_facts_print(kiln_ctx *cx, const kiln_program *p, const kiln_facts *f, const char *margin,
                      kiln_text *out) {
  for (int i = 0; i < p->tensors.n; i++) {
    const kiln_fact fact = kiln_fact_of(f, i);
    const char *name = kiln_symbol_text(cx, p->tensors.data[i]->name);
    if (fact.assembled) kiln_text_printf(out, "%sassembled %s\n", margin, name);
    if (fact.waits) kiln_text_printf(out, "%swaits %s\n", margin, name);
    if (fact.kernel) kiln_text_printf(out, "%skernel %d %s\n", margin, fact.kernel, name);
    if (fact.is_small) kiln_text_printf(out, "%ssmall %s\n", margin, name);
    if (fact.panels) kiln_text_printf(out, "%spanels %" PRIu32 " %s\n", margin, fact.panels, name);
  }
}
