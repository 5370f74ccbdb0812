// The report of kiln explain as text for people and as JSON for programs.
#include "explain/explain.h"
#include "module/compiler.h"

// --- text ---

static const char *bytes_text(kiln_ctx *cx, double bytes) {
  if (bytes < 1e3) return kiln_arena_printf(&cx->scratch, "%.0f B", bytes);
  if (bytes < 1e6) return kiln_arena_printf(&cx->scratch, "%.1f kB", bytes / 1e3);
  return kiln_arena_printf(&cx->scratch, "%.2f MB", bytes / 1e6);
}

static void print_edges(const kiln_explained_kernel *k, kiln_text *out) {
  kiln_text_add(out, "  edges\n");
  for (int i = 0; i < k->edges.n; i++) {
    const kiln_explained_edge *e = &k->edges.data[i];
    kiln_text_printf(out, "    %-9s %s %s%s: %s -> %s", e->level, e->tensor, e->dtype, e->shape,
                     e->from, e->to);
    kiln_text_printf(out, e->box ? ", box %s\n" : "\n", e->box);
  }
}

static void print_candidate(const kiln_explained_candidate *c, kiln_text *out) {
  kiln_text_printf(out, "%s, %s", c->template_name, c->tiles);
  if (c->predicted_us > 0) kiln_text_printf(out, ": %.1f us", c->predicted_us);
  if (c->refused) kiln_text_printf(out, "; refused: %s", c->refused);
  kiln_text_add(out, "\n");
}

static void print_schedule(const kiln_explained_kernel *k, kiln_text *out) {
  if (!k->taken.template_name) {
    kiln_text_add(out, "  schedule given, not searched\n");
    return;
  }
  kiln_text_add(out, "  schedule  ");
  print_candidate(&k->taken, out);
  for (int i = 0; i < k->rivals.n; i++) {
    kiln_text_add(out, "    instead of ");
    print_candidate(&k->rivals.data[i], out);
  }
  if (k->n_candidates > 1 + k->rivals.n)
    kiln_text_printf(out, "    and of %d more\n", k->n_candidates - 1 - k->rivals.n);
}

static void print_traffic(kiln_ctx *cx, const char *title, int n, const kiln_explained_traffic *t,
                          kiln_text *out) {
  if (n > 0) kiln_text_printf(out, "  %s", title);
  for (int i = 0; i < n; i++)
    kiln_text_printf(out, "%s %s: %s read, %s written", i ? ";" : "", t[i].level,
                     bytes_text(cx, t[i].read_bytes), bytes_text(cx, t[i].written_bytes));
  if (n > 0) kiln_text_add(out, "\n");
}

static void print_times(kiln_ctx *cx, const kiln_explained_kernel *k, kiln_text *out) {
  print_traffic(cx, "bytes    ", k->traffic.n, k->traffic.data, out);
  print_traffic(cx, "counted  ", k->counted.n, k->counted.data, out);
  if (k->bound)
    kiln_text_printf(out,
                     "  predicted %.1f us a launch, bound by %s: compute %.1f us, launch %.1f us",
                     k->predicted_us, k->bound, k->compute_us, k->launch_us);
  for (int i = 0; i < k->costed.n; i++)
    kiln_text_printf(out, ", %s %.1f us", k->costed.data[i].level, k->costed.data[i].us);
  if (k->bound) kiln_text_printf(out, "; %" PRId64 " tiles, tail %.2f\n", k->tiles, k->tail);
  else if (k->predicted_us > 0)
    kiln_text_printf(out, "  predicted %.1f us a launch\n", k->predicted_us);
  if (k->measured_us > 0) {
    kiln_text_printf(out, "  measured  %.1f us a launch, %.1f GFLOP/s", k->measured_us,
                     k->flops / k->measured_us * 1e-3);
    if (k->predicted_us > 0)
      kiln_text_printf(out, ", %.2f times the prediction", k->measured_us / k->predicted_us);
    kiln_text_add(out, "\n");
  }
}

static void print_neighbours(const kiln_explained_kernel *k, kiln_text *out) {
  for (int i = 0; i < k->neighbours.n; i++) {
    const kiln_explained_neighbour *n = &k->neighbours.data[i];
    kiln_text_printf(out, "  not fused %s %s (%s, kernel %s): %s\n",
                     n->is_before ? "with the producer of" : "with the consumer of", n->tensor,
                     n->nodes ? n->nodes : "in pieces", n->kernel ? n->kernel : "none", n->reason);
  }
}

void kiln_explain_passes(kiln_ctx *cx, const kiln_build *b, kiln_text *out) {
  bool any = false;
  for (const kiln_pass_count *c = b->request.model->compiler->counts(cx, b); c->name; c++) {
    if (c->n == 0) continue;
    kiln_text_printf(out, "%s%s %d", any ? ", " : "", c->name, c->n);
    any = true;
  }
  if (!any) kiln_text_add(out, "none");
}

void kiln_explained_text(kiln_ctx *cx, const kiln_explained *e, kiln_text *out) {
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  kiln_text_printf(out, "%s: %d launches of %d kernels on %d threads of %s (%s)\n", e->model,
                   e->n_launches, e->kernels.n, e->threads, e->device,
                   e->is_measured_device ? "measured" : "nominal figures");
  if (e->predicted_us > 0) kiln_text_printf(out, "predicted %.1f us a run", e->predicted_us);
  if (e->measured_us > 0) kiln_text_printf(out, ", measured %.1f us", e->measured_us);
  kiln_text_add(out, e->predicted_us > 0 || e->measured_us > 0 ? "\n" : "");
  kiln_text_add(out, "rules ");
  kiln_explain_passes(cx, e->build, out);
  kiln_text_add(out, "\n");
  for (int i = 0; i < e->kernels.n; i++) {
    const kiln_explained_kernel *k = &e->kernels.data[i];
    kiln_text_printf(out, "\nkernel %s, %d %s\n  nodes     %s\n", k->name, k->n_launches,
                     k->n_launches == 1 ? "launch" : "launches", k->nodes ? k->nodes : "");
    if (*k->beside) kiln_text_printf(out, "  launch    with %s (horizontal fusion)\n", k->beside);
    for (int s = 0; s < k->stmts.n; s++)
      kiln_text_printf(out, "  %s%s\n", s ? "          " : "prims     ", k->stmts.data[s]);
    print_edges(k, out);
    print_schedule(k, out);
    print_times(cx, k, out);
    print_neighbours(k, out);
  }
  kiln_arena_rewind(&cx->scratch, mark);
}

// --- JSON ---

static void json_text(kiln_text *out, const char *key, const char *value) {
  kiln_text_printf(out, "\"%s\": ", key);
  kiln_text_add_json(out, value);
}

static void json_texts(kiln_text *out, int n, const char *const *pairs) { // key, value, ...
  for (int i = 0; i < n; i++) {
    if (i) kiln_text_add(out, ", ");
    json_text(out, pairs[2 * i], pairs[2 * i + 1]);
  }
}

static void json_candidate(kiln_text *out, const kiln_explained_candidate *c) {
  const char *const pairs[] = {"family", c->template_name, "tiles",
                               c->tiles, "refused",        c->refused};
  kiln_text_add(out, "{");
  json_texts(out, 3, pairs);
  kiln_text_printf(out, ", \"predicted_us\": %.6g}", c->predicted_us);
}

static void json_traffic(kiln_text *out, const char *key, int n, const kiln_explained_traffic *t) {
  kiln_text_printf(out, ", \"%s\": [", key);
  for (int i = 0; i < n; i++) {
    kiln_text_add(out, i ? ", {" : "{");
    json_text(out, "level", t[i].level);
    kiln_text_printf(out, ", \"read_bytes\": %.0f, \"written_bytes\": %.0f}", t[i].read_bytes,
                     t[i].written_bytes);
  }
  kiln_text_add(out, "]");
}

static void json_lists(kiln_text *out, const kiln_explained_kernel *k) {
  kiln_text_add(out, ", \"prims\": [");
  for (int i = 0; i < k->stmts.n; i++) {
    kiln_text_add(out, i ? ", {" : "{");
    json_text(out, "text", k->stmts.data[i]);
    kiln_text_add(out, "}");
  }
  kiln_text_add(out, "], \"edges\": [");
  for (int i = 0; i < k->edges.n; i++) {
    const kiln_explained_edge *e = &k->edges.data[i];
    const char *const pairs[] = {"tensor", e->tensor, "dtype", e->dtype, "shape",
                                 e->shape, "from",    e->from, "to",     e->to,
                                 "level",  e->level,  "box",   e->box};
    kiln_text_add(out, i ? ", {" : "{");
    json_texts(out, 7, pairs);
    kiln_text_printf(out, ", \"bytes\": %.0f", e->bytes);
    json_traffic(out, "moved", e->moved.n, e->moved.data);
    kiln_text_add(out, "}");
  }
  kiln_text_add(out, "]");
  json_traffic(out, "traffic", k->traffic.n, k->traffic.data);
  if (k->counted.n > 0) json_traffic(out, "counted", k->counted.n, k->counted.data);
  kiln_text_add(out, ", \"costed\": [");
  for (int i = 0; i < k->costed.n; i++) {
    kiln_text_add(out, i ? ", {" : "{");
    json_text(out, "level", k->costed.data[i].level);
    kiln_text_printf(out, ", \"bytes\": %.0f, \"us\": %.6g}", k->costed.data[i].bytes,
                     k->costed.data[i].us);
  }
  kiln_text_add(out, "], \"rivals\": [");
  for (int i = 0; i < k->rivals.n; i++) {
    kiln_text_add(out, i ? ", " : "");
    json_candidate(out, &k->rivals.data[i]);
  }
  kiln_text_add(out, "], \"neighbours\": [");
  for (int i = 0; i < k->neighbours.n; i++) {
    const kiln_explained_neighbour *n = &k->neighbours.data[i];
    const char *const pairs[] = {"tensor", n->tensor, "nodes",  n->nodes,
                                 "kernel", n->kernel, "reason", n->reason};
    kiln_text_add(out, i ? ", {" : "{");
    json_texts(out, 4, pairs);
    kiln_text_printf(out, ", \"before\": %s}", n->is_before ? "true" : "false");
  }
  kiln_text_add(out, "]");
}

void kiln_explained_json(kiln_ctx *cx, const kiln_explained *e, const char *detail,
                         kiln_text *out) {
  const char *const head[] = {"model", e->model, "device", e->device};
  kiln_text_add(out, "{");
  json_texts(out, 2, head);
  kiln_text_printf(out,
                   ", \"measured_device\": %s, \"threads\": %d, \"launches\": %d, "
                   "\"predicted_us\": %.6g, \"measured_us\": %.6g,\n\"rules\": {",
                   e->is_measured_device ? "true" : "false", e->threads, e->n_launches,
                   e->predicted_us, e->measured_us);
  bool any = false;
  for (const kiln_pass_count *c = e->build->request.model->compiler->counts(cx, e->build); c->name;
       c++) {
    if (!c->is_optional) continue;
    kiln_text_printf(out, "%s\"%s\": %d", any ? ", " : "", c->name, c->n);
    any = true;
  }
  kiln_text_add(out, "},\n\"kernels\": [");
  for (int i = 0; i < e->kernels.n; i++) {
    const kiln_explained_kernel *k = &e->kernels.data[i];
    const char *const pairs[] = {"name",  k->name,  "nodes",  k->nodes,
                                 "bound", k->bound, "beside", k->beside};
    kiln_text_add(out, i ? ",\n {" : "\n {");
    json_texts(out, 4, pairs);
    kiln_text_printf(out,
                     ", \"launches\": %d, \"flops\": %.0f, \"bytes\": %.0f, \"compute_us\": %.6g, "
                     "\"launch_us\": %.6g, \"tail\": %.6g, \"tiles\": %" PRId64
                     ", \"predicted_us\": %.6g, \"measured_us\": %.6g, \"candidates\": %d, "
                     "\"taken\": ",
                     k->n_launches, k->flops, k->bytes, k->compute_us, k->launch_us, k->tail,
                     k->tiles, k->predicted_us, k->measured_us, k->n_candidates);
    json_candidate(out, &k->taken);
    json_lists(out, k);
    kiln_text_add(out, "}");
  }
  kiln_text_printf(out, "\n]%s%s}\n", detail ? ",\n" : "", detail ? detail : "");
}
