// The steps of a flow as text (flow_text.h).
#include "model/flow_text.h"

#include <inttypes.h>

static void print_value(const kiln_flow *f, uint32_t v, kiln_text *out) {
  if (v < f->n_inputs) kiln_text_printf(out, " input %" PRIu32, v);
  else if (v < f->n_inputs + f->n_outputs)
    kiln_text_printf(out, " output %" PRIu32, v - f->n_inputs);
  else kiln_text_printf(out, " arena+%" PRIu64, f->values[v].offset);
  kiln_text_printf(out, ":%" PRIu64, f->values[v].bytes);
}

static void print_step(const kiln_flow *f, const kiln_flow_step *s, kiln_text *out) {
  static const char *const words[KILN_N_FLOW_OPS] = {"run part", "copy", "loop",     "end",
                                                     "if",       "else", "end of if"};
  kiln_text_add(out, words[s->op]);
  if (s->op == KILN_FLOW_RUN) kiln_text_printf(out, " %" PRIu32, s->part);
  if (s->op == KILN_FLOW_LOOP && s->most != INT64_MAX)
    kiln_text_printf(out, " at most %" PRId64, s->most);
  if (s->count) kiln_text_add(out, " count"), print_value(f, s->count - 1, out);
  if (s->condition) {
    kiln_text_add(out, s->op == KILN_FLOW_IF ? "" : " while");
    print_value(f, s->condition - 1, out);
  }
  if (s->n_args) kiln_text_add(out, s->op == KILN_FLOW_LOOP ? " exchanging" : ":");
  for (uint32_t k = 0; k < s->n_args; k++) {
    const kiln_flow_arg *a = &f->args[s->first_arg + k];
    print_value(f, a->value, out);
    if (a->row) kiln_text_add(out, a->backwards ? "[row from the end]" : "[row]");
  }
  kiln_text_add(out, "\n");
}

void kiln_flow_print(const kiln_flow *f, kiln_text *out) {
  int depth = 0;
  for (uint32_t i = 0; i < f->n_steps; i++) {
    const kiln_flow_op op = f->steps[i].op;
    depth -= op == KILN_FLOW_END || op == KILN_FLOW_ELSE || op == KILN_FLOW_ENDIF;
    kiln_text_printf(out, "step %" PRIu32 " %*s", i, 2 * depth, "");
    print_step(f, &f->steps[i], out);
    depth += op == KILN_FLOW_LOOP || op == KILN_FLOW_IF || op == KILN_FLOW_ELSE;
  }
}
