// Reports of an orchestration: text for people and JSON for programs.
#include "orchestrate/orchestrate.h"

#include <math.h>

static double gap_of(const kiln_orchestration *o) {
  const double gap = o->weight_ns > 0 ? 1 - o->bound_ns / o->weight_ns : 0;
  return gap > 1e-9 ? gap : 0;
}

static double saved_by(const kiln_orchestration *o) {
  return o->first_ns > 0 ? 1 - o->chosen_ns / o->first_ns : 0;
}

static const char *name_of(kiln_ctx *cx, const kiln_program *p, int stmt) {
  return kiln_symbol_text(cx, p->tensors.data[p->stmts.data[stmt]->out]->name);
}

// --- text ---

static void print_kernel(kiln_ctx *cx, const kiln_program *p, const kiln_orchestrated_kernel *k,
                         bool is_other, kiln_text *out) {
  if (is_other) kiln_text_printf(out, "  or %+9.2f us ", k->more_ns * 1e-3);
  else if (k->ns > 0)
    kiln_text_printf(out, "%11.2f us%s", k->ns * 1e-3,
                     k->is_measured ? "!"
                     : k->is_known  ? " "
                                    : "?");
  else kiln_text_add(out, "          ? us ");
  for (int i = 0; i < k->group.n_stmts; i++)
    kiln_text_printf(out, " #%d%s", k->group.stmts[i], k->group.stored >> i & 1 ? "*" : "");
  if (k->backend) kiln_text_printf(out, "  by %s", k->backend);
  if (is_other) kiln_text_printf(out, "  (%.2f us)", k->ns * 1e-3);
  else
    for (int i = 0; i < k->group.n_stmts; i++)
      kiln_text_printf(out, "%s %s", i ? "" : " ", name_of(cx, p, k->group.stmts[i]));
  kiln_text_add(out, "\n");
}

static void print_search(const kiln_orchestration *o, kiln_text *out) {
  kiln_text_printf(out, ", in %d parts, of which %d differ\n", o->n_parts, o->n_solved);
  kiln_text_printf(out, "states      %" PRId64, o->n_states);
  if (o->n_uncounted)
    kiln_text_printf(out, "; %d parts have more, which are not counted", o->n_uncounted);
  kiln_text_printf(out, "\nsets        %" PRId64 " that end in one prim\n", o->n_differences);
  kiln_text_printf(out,
                   "pruned      %" PRId64 " by bounds, %" PRId64 " that no template runs, %" PRId64
                   " dearer than their prims apart\n",
                   o->n_bounded, o->n_impossible, o->n_dearer);
  kiln_text_printf(out, "candidates  %" PRId64 ", of %d new forms\n", o->n_candidates, o->n_forms);
  if (o->n_capped)
    kiln_text_printf(out, "capped      %d parts have more candidates than are looked at\n",
                     o->n_capped);
  kiln_text_printf(out, "solver      %d solutions in %.2f s, %d cycles cut off", o->n_rounds,
                   o->solve_s, o->n_cycles);
  if (o->n_limited)
    kiln_text_printf(out, ", %d parts ended at the limit of nodes, work or time", o->n_limited);
  kiln_text_printf(out, "; search %.2f s\n", o->search_s);
}

void kiln_orchestration_report(kiln_ctx *cx, const kiln_program *p, const kiln_orchestration *o,
                               kiln_text *out) {
  const double saved = 100 * saved_by(o);
  kiln_text_printf(out, "prims       %d", o->n_prims);
  if (o->is_given) kiln_text_add(out, ", in kernels that were given\n");
  else print_search(o, out);
  kiln_text_printf(out, "cost        %.1f us, %.2f %% %s than connecting (%.1f us)",
                   o->chosen_ns * 1e-3, fabs(saved), saved >= 0 ? "less" : "more",
                   o->first_ns * 1e-3);
  if (!o->is_given) kiln_text_printf(out, "; gap %.3f %%", 100 * gap_of(o));
  if (!o->is_given)
    kiln_text_printf(out, "\nmemory      %.0f bytes of results at once", o->peak_bytes);
  kiln_text_printf(out, "\nkernels     %d, %d prims in several\n\n", o->kernels.n, o->n_repeated);
  for (int i = 0; i < o->kernels.n; i++) {
    const kiln_orchestrated_kernel *k = &o->kernels.data[i];
    print_kernel(cx, p, k, false, out);
    for (int j = 0; j < k->others.n; j++) print_kernel(cx, p, &k->others.data[j], true, out);
  }
}

// --- JSON ---

static void json_kernel(kiln_ctx *cx, const kiln_program *p, const kiln_orchestrated_kernel *k,
                        kiln_text *out) {
  kiln_text_add(out, "{\"statements\": [");
  for (int i = 0; i < k->group.n_stmts; i++) {
    const bool is_stored = i == k->group.n_stmts - 1 || (k->group.stored >> i & 1);
    kiln_text_printf(out, "%s{\"number\": %d, \"stored\": %s, \"tensor\": ", i ? ", " : "",
                     k->group.stmts[i], is_stored ? "true" : "false");
    kiln_text_add_json(out, name_of(cx, p, k->group.stmts[i]));
    kiln_text_add(out, "}");
  }
  if (k->ns > 0) kiln_text_printf(out, "], \"us\": %.6g", k->ns * 1e-3);
  else kiln_text_add(out, "], \"us\": null");
  kiln_text_printf(out, ", \"price\": \"%s\", \"backend\": ",
                   k->is_measured ? "measured"
                   : k->is_known  ? "predicted"
                                  : "unknown");
  kiln_text_add_json(out, k->backend);
}

void kiln_orchestration_json(kiln_ctx *cx, const kiln_program *p, const kiln_orchestration *o,
                             kiln_text *out) {
  kiln_text_printf(out, "{\n  \"given\": %s, \"prims\": %d,\n", o->is_given ? "true" : "false",
                   o->n_prims);
  kiln_text_printf(
      out, "  \"parts\": {\"all\": %d, \"different\": %d, \"capped\": %d, \"limited\": %d},\n",
      o->n_parts, o->n_solved, o->n_capped, o->n_limited);
  kiln_text_printf(
      out, "  \"states\": %" PRId64 ", \"states_uncounted_parts\": %d, \"sets\": %" PRId64 ",\n",
      o->n_states, o->n_uncounted, o->n_differences);
  kiln_text_printf(out,
                   "  \"candidates\": {\"all\": %" PRId64
                   ", \"new_forms\": %d, \"pruned_by_bounds\": %" PRId64
                   ", \"pruned_no_family\": %" PRId64 ", \"pruned_dearer\": %" PRId64 "},\n",
                   o->n_candidates, o->n_forms, o->n_bounded, o->n_impossible, o->n_dearer);
  kiln_text_printf(
      out, "  \"solver\": {\"solutions\": %d, \"cycles\": %d, \"seconds\": %.6g, \"gap\": %.6g},\n",
      o->n_rounds, o->n_cycles, o->solve_s, gap_of(o));
  kiln_text_printf(out,
                   "  \"search_seconds\": %.6g, \"us\": %.6g, \"connected_us\": %.6g, "
                   "\"memory_bytes\": %.0f, \"prims_in_several\": %d,\n  \"kernels\": [",
                   o->search_s, o->chosen_ns * 1e-3, o->first_ns * 1e-3, o->peak_bytes,
                   o->n_repeated);
  for (int i = 0; i < o->kernels.n; i++) {
    const kiln_orchestrated_kernel *k = &o->kernels.data[i];
    kiln_text_add(out, i ? ",\n    " : "\n    ");
    json_kernel(cx, p, k, out);
    kiln_text_add(out, ", \"instead\": [");
    for (int j = 0; j < k->others.n; j++) {
      kiln_text_add(out, j ? ", " : "");
      json_kernel(cx, p, &k->others.data[j], out);
      kiln_text_printf(out, ", \"more_us\": %.6g}", k->others.data[j].more_ns * 1e-3);
    }
    kiln_text_add(out, "]}");
  }
  kiln_text_add(out, "\n  ]\n}\n");
}
