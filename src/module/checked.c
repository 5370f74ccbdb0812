// Bounds checks of data-dependent indices: see checked.h.
#include "module/checked.h"

kiln_plan_check *kiln_plan_checks_of(kiln_ctx *cx, const kiln_program *p) {
  kiln_plan_check *out = KILN_NEW_ARRAY(&cx->perm, kiln_plan_check, p->checks.n);
  for (int i = 0; i < p->checks.n; i++) {
    const kiln_index_check *c = &p->checks.data[i];
    out[i] = (kiln_plan_check){kiln_symbol_text(cx, c->place), kiln_symbol_text(cx, c->index),
                               c->axis, c->least, c->end};
  }
  return out;
}

kiln_status kiln_program_checked(kiln_ctx *cx, const kiln_program *p, const int64_t *results) {
  const kiln_plan plan = {.n_checks = (uint32_t)p->checks.n, .checks = kiln_plan_checks_of(cx, p)};
  return kiln_plan_checked(&plan, results, cx->diag);
}
