// Values of the simulator: operators on them, and undefined results.
#include "target/sim/eval.h"

#include <stdarg.h>
#include <stdio.h>

void kiln_sim_fail(sim *m, const char *format, ...) {
  if (m->status != KILN_OK) return;
  char text[512];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  m->status = KILN_FAIL(m->cx->diag, KILN_INTERNAL, m->place, "%s", text);
}

kiln_constant kiln_sim_no_value(sim *m, kiln_expr_kind k, kiln_dtype t) {
  kiln_sim_fail(m, "operator %s must have a value", kiln_expr_kind_text(k));
  return (kiln_constant){.dtype = t};
}

kiln_constant kiln_sim_binary(sim *m, kiln_expr_kind k, kiln_constant a, kiln_constant b) {
  kiln_constant out = {.dtype = a.dtype};
  return kiln_fold_binary(k, a, b, &out) ? out : kiln_sim_no_value(m, k, a.dtype);
}

kiln_constant kiln_sim_combine(sim *m, kiln_combiner how, kiln_constant a, kiln_constant b) {
  return kiln_sim_binary(m, kiln_combiner_kind(how, a.dtype), a, b);
}
