// SPDX-License-Identifier: Apache-2.0
// Chooses the nodes that Kiln takes. A part is read by Kiln as a model, and the reader lists the
// nodes that it cannot compile. Without these the graph falls into other parts, which are read
// again, until none is refused. Each round refuses a node or ends.
#include "partition.h"
#include "provider.h"

#include <string.h>

typedef struct taking {
  ep_provider *p;
  ep_graph graph;
  ep_arena arena; // of the reasons
  int n_contexts;
  bool changed;
} taking;

static void refuse(taking *t, int node, const char *why) {
  ep_node *n = &t->graph.nodes[node];
  const char *copy = ep_text(&t->arena, "%s", why);
  if (!n->refused) t->changed = true;
  if (!n->refused) n->refused = copy ? copy : "no memory left";
}

// --- the border: only tensors are passed between ONNX Runtime and Kiln ---

static const char *wrong_at_border(const ep_value *v, bool is_input) {
  if (v->element == 0) return "is no tensor";
  if (v->element == ORT_STRING) return "has texts as elements";
  return is_input && v->rank < 0 ? "has no known rank" : NULL;
}

static bool uses(const ep_node *n, int value) {
  for (int k = 0; k < ep_node_n_read(n) + n->n_outputs; k++)
    if (n->values[k] == value) return true;
  return false;
}

static void check_border(taking *t, const ep_part *part, int value, bool is_input) {
  const ep_value *v = &t->graph.values[value];
  const char *wrong = wrong_at_border(v, is_input);
  for (int i = 0; wrong && i < part->n_nodes; i++)
    if (uses(&t->graph.nodes[part->nodes[i]], value)) {
      const char *why = ep_text(&t->arena, "%s, which other providers %s, %s", v->name,
                                is_input ? "give" : "get", wrong);
      refuse(t, part->nodes[i], why ? why : wrong);
    }
}

// --- reading parts as models ---

// Refuses the nodes that messages name, or the whole part if they name none.
static void take_refusals(taking *t, const ep_part *part, const kiln_diag *diag) {
  bool any = false;
  for (size_t i = 0; i < kiln_diag_count(diag); i++) {
    const char *message = kiln_diag_message(diag, i);
    const int node = ep_source_node_of(kiln_diag_place(diag, i));
    const char *what = strstr(message, ": error: ");
    if (!what || node < 0 || node >= t->graph.n_nodes) continue;
    refuse(t, node, what + strlen(": error: "));
    any = true;
  }
  const char *first = kiln_diag_message(diag, 0);
  for (int i = 0; !any && i < part->n_nodes; i++)
    refuse(t, part->nodes[i], first ? first : "no memory left");
}

static ort_status *ask(taking *t, const ep_part *part, ep_arena *arena, ep_source *source) {
  ep_question question;
  const char *why = NULL;
  int node = -1;
  kiln_model *model = NULL;
  EP_TRY(ep_source_write(&t->graph, part, arena, source, &why, &node));
  if (why) {
    refuse(t, node, why);
    return NULL;
  }
  EP_TRY(ep_question_make(&t->p->options, &t->graph, part, source, arena, &question));
  kiln_diag *diag = kiln_diag_create();
  if (!diag) return ep_no_memory(&t->p->host);
  if (kiln_model_load(EP_MODEL_NAME, &question.options, diag, &model) != KILN_OK)
    take_refusals(t, part, diag);
  kiln_model_destroy(model);
  kiln_diag_destroy(diag);
  return NULL;
}

static ort_status *check_part(taking *t, const ep_part *part) {
  ep_arena arena = {0};
  ep_source source = {0};
  const bool before = t->changed;
  t->changed = false;
  for (int i = 0; i < part->n_inputs; i++) check_border(t, part, part->inputs[i], true);
  for (int i = 0; i < part->n_outputs; i++) check_border(t, part, part->outputs[i], false);
  ort_status *status = t->changed ? NULL : ask(t, part, &arena, &source);
  t->changed |= before;
  ep_source_deinit(&source);
  ep_arena_deinit(&arena);
  return status;
}

// --- reporting ---

static ort_status *support(taking *t, const ep_part *part, ort_support *out) {
  ep_arena arena = {0};
  ep_question question = {0};
  const ep_source none = {0};
  const ep_host *h = &t->p->host;
  const ort_node **nodes = ep_alloc(&arena, (size_t)part->n_nodes, sizeof *nodes);
  ort_status *status =
      nodes ? ep_question_make(&t->p->options, &t->graph, part, &none, &arena, &question)
            : ep_no_memory(h);
  // compiled for the shapes of runs, the part gets its weights in runs as well, if they lie where
  // the compiler can read them
  const ort_fusion fusion = {ORT_API_USED, !question.is_late || t->p->gpu};
  for (int i = 0; !status && i < part->n_nodes; i++) nodes[i] = t->graph.nodes[part->nodes[i]].ort;
  const bool waits = question.is_late && t->p->options.makes_contexts;
  if (!status && waits)
    ep_log(h, t->p->logger, ORT_WARNING,
           "%d nodes are not compiled ahead: extents of their inputs are known in runs only; the "
           "option dims says values or ranges of named dimensions",
           part->n_nodes);
  if (!status && !waits)
    status = h->ep->add_nodes_to_fuse(out, nodes, (size_t)part->n_nodes, &fusion);
  ep_arena_deinit(&arena);
  return status;
}

static const char context_mark[] = "compiled before";

static ort_status *take_contexts(taking *t, ort_support *out) {
  const ep_host *h = &t->p->host;
  const ort_fusion fusion = {ORT_API_USED, true};
  for (int i = 0; i < t->graph.n_nodes; i++) {
    ep_node *n = &t->graph.nodes[i];
    bool is = false;
    EP_TRY(ep_context_is(h, n, &is));
    if (!is) continue;
    n->refused = context_mark;
    t->n_contexts++;
    EP_TRY(h->ep->add_nodes_to_fuse(out, &n->ort, 1, &fusion));
  }
  return NULL;
}

static void log_refusals(taking *t, int n_parts) {
  const ep_host *h = &t->p->host;
  const int n_all = t->graph.n_nodes - t->n_contexts;
  int n = 0;
  for (int i = 0; i < t->graph.n_nodes; i++) {
    const ep_node *node = &t->graph.nodes[i];
    if (!node->refused || node->refused == context_mark) continue;
    ep_log(h, t->p->logger, n++ < 10 ? ORT_WARNING : ORT_INFO,
           "node \"%s\" (%s) is left to other providers: %s", node->name, node->op, node->refused);
  }
  ep_log(h, t->p->logger, n > 0 ? ORT_WARNING : ORT_INFO, "Kiln takes %d of %d nodes, in %d parts",
         n_all - n, n_all, n_parts);
}

static ort_status *take(taking *t, ort_support *out) {
  ep_arena arena = {0};
  ep_part *parts = NULL;
  int n = 0;
  ort_status *status = take_contexts(t, out);
  do {
    ep_arena_deinit(&arena);
    t->changed = false;
    if (!status) status = ep_partition(&t->graph, &arena, &n, &parts);
    for (int i = 0; !status && i < n; i++) status = check_part(t, &parts[i]);
  } while (!status && t->changed);
  for (int i = 0; !status && i < n; i++) status = support(t, &parts[i], out);
  if (!status) log_refusals(t, n);
  ep_arena_deinit(&arena);
  return status;
}

// ONNX Runtime 1.23 does not identify sub-graphs, and gives the fused nodes of two graphs equal
// names, which then fails. With it, only nodes of one graph are taken.
static ort_status *may_take(ep_provider *p, const ort_graph *graph, bool *out) {
  const ort_node *parent = NULL;
  const char *name = NULL;
  EP_TRY(p->host.api->graph_parent(graph, &parent));
  EP_TRY(p->host.api->graph_name(graph, &name));
  if (!p->graph) p->graph = parent ? NULL : strdup(name);
  *out = !parent && p->graph && (p->host.tells_shape || strcmp(p->graph, name) == 0);
  return NULL;
}

ort_status *ep_take(ep_provider *p, const ort_graph *graph, ort_support *support_out) {
  taking t = {.p = p};
  bool may = false;
  EP_TRY(may_take(p, graph, &may));
  if (!may) return NULL; // a node is taken together with its sub-graphs
  ort_status *status = ep_graph_read(&t.graph, &p->host, graph);
  if (!status) status = take(&t, support_out);
  ep_graph_deinit(&t.graph);
  ep_arena_deinit(&t.arena);
  return status;
}
