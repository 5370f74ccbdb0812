// The table of kernel templates, and the forms of a kernel's program.
#include "template/template.h"

#include <string.h>

const kiln_template *const kiln_templates[] = {
#define KILN_TEMPLATE(name) &kiln_template_##name,
#include "template/templates.def"
#undef KILN_TEMPLATE
    NULL};

static bool is_named(const kiln_template *t, const char *name) {
  return strcmp(t->name, name) == 0 || (t->was && strcmp(t->was, name) == 0);
}

const kiln_template *kiln_template_find(const kiln_machine *m, const char *name) {
  for (int i = 0; kiln_templates[i]; i++)
    if (kiln_templates[i]->has_grids == m->target->has_grids && is_named(kiln_templates[i], name))
      return kiln_templates[i];
  return NULL;
}

bool kiln_template_takes(const kiln_template *t, const kiln_machine *m, kiln_group_kind kind) {
  return t->has_grids == m->target->has_grids && (!t->kinds || t->kinds >> kind & 1);
}

// The facts of |outlined|'s parameters as those of |prog|, which has the same ones in the same
// order, under other numbers perhaps.
static kiln_facts facts_of(kiln_ctx *cx, const kiln_form *outlined, const kiln_program *prog) {
  const kiln_program *from = outlined->prog;
  kiln_facts facts = {0};
  for (int i = 0, k = 0; i < prog->tensors.n; i++) {
    if (prog->tensors.data[i]->role == KILN_TEMP) continue;
    while (from->tensors.data[k]->role == KILN_TEMP) k++;
    const kiln_fact known = kiln_fact_of(&outlined->facts, k++);
    if (known.is_small || known.panels) *kiln_fact_at(cx, &facts, i) = known;
  }
  return facts;
}

const kiln_form *kiln_template_match(kiln_ctx *cx, const kiln_template *t, const kiln_machine *m,
                                     const kiln_form *outlined) {
  if (!t->match) return outlined;
  kiln_program *prog = kiln_program_copy(cx, outlined->prog);
  if (!t->match(cx, m, prog)) return NULL;
  kiln_form *form = KILN_NEW(&cx->perm, kiln_form);
  *form = (kiln_form){t->match, prog, facts_of(cx, outlined, prog)};
  return form;
}
