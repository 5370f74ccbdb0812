// What an orchestration is, for people.
#include "orchestrate/orchestrate.h"

static void print_kernel(kiln_ctx *cx, const kiln_program *p, const kiln_orchestrated_kernel *k,
                         const char *indent, kiln_text *out) {
  kiln_text_printf(out, "%s%10.2f us%s ", indent, k->ns * 1e-3,
                   k->is_measured ? "!"
                   : k->is_known  ? " "
                                  : "?");
  for (int i = 0; i < k->group.n_stmts; i++) {
    const kiln_stmt *s = p->stmts.data[k->group.stmts[i]];
    kiln_text_printf(out, " %s%s", kiln_symbol_text(cx, p->tensors.data[s->out]->name),
                     k->group.stored >> i & 1 ? "*" : "");
  }
  if (k->backend) kiln_text_printf(out, "  by %s", k->backend->name);
  kiln_text_add(out, "\n");
}

void kiln_orchestration_report(kiln_ctx *cx, const kiln_program *p, const kiln_orchestration *o,
                               kiln_text *out) {
  const double gap = o->weight_ns > 0 ? 1 - o->bound_ns / o->weight_ns : 0;
  kiln_text_printf(out, "prims       %d in %d parts, of which %d differ\n", o->n_prims, o->n_parts,
                   o->n_solved);
  kiln_text_printf(out,
                   "states      %" PRId64 ", between them %" PRId64 " different sets of prims\n",
                   o->n_states, o->n_differences);
  kiln_text_printf(out,
                   "pruned      %" PRId64 " by bounds, %" PRId64 " that no family runs, %" PRId64
                   " dearer than their prims apart\n",
                   o->n_bounded, o->n_impossible, o->n_dearer);
  kiln_text_printf(out, "candidates  %" PRId64 ", of %d new forms\n", o->n_candidates, o->n_forms);
  if (o->n_capped)
    kiln_text_printf(out,
                     "capped      %d parts have more states or candidates than are looked at\n",
                     o->n_capped);
  kiln_text_printf(out, "solver      %d solutions in %.2f s, %d cycles cut off; search %.2f s\n",
                   o->n_rounds, o->solve_s, o->n_cycles, o->search_s);
  kiln_text_printf(
      out, "cost        %.1f us, %.2f %% less than connecting (%.1f us); gap %.3f %%\n",
      o->chosen_ns * 1e-3, o->first_ns > 0 ? 100 * (1 - o->chosen_ns / o->first_ns) : 0.0,
      o->first_ns * 1e-3, 100 * (gap > 1e-9 ? gap : 0));
  kiln_text_printf(out, "kernels     %d, %d prims in several\n\n", o->kernels.n, o->n_repeated);
  for (int i = 0; i < o->kernels.n; i++) {
    const kiln_orchestrated_kernel *k = &o->kernels.data[i];
    print_kernel(cx, p, k, "", out);
    for (int j = 0; j < k->others.n; j++) print_kernel(cx, p, &k->others.data[j], "    or", out);
  }
}
