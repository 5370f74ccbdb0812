// Graphs: queries about nodes, and the dump.
#include "ir/graph.h"

#include <string.h>

const kiln_attr *kiln_node_attr(const kiln_node *n, kiln_symbol name) {
  for (int i = 0; i < n->n_attrs; i++) {
    if (n->attrs[i].name == name) return &n->attrs[i];
  }
  return NULL;
}

const char *kiln_node_place(kiln_ctx *cx, const kiln_graph *g, const kiln_node *n) {
  const char *graph = kiln_symbol_text(cx, g->name), *name = kiln_symbol_text(cx, n->name);
  const char *op = kiln_symbol_text(cx, n->op);
  if (!*graph) graph = "model";
  if (!*name) return kiln_arena_printf(&cx->perm, "%s: node %d (%s)", graph, n->id, op);
  return kiln_arena_printf(&cx->perm, "%s: node %d \"%s\" (%s)", graph, n->id, name, op);
}

static void print_type(kiln_ctx *cx, const kiln_value *v, kiln_text *out) {
  kiln_text_add(out, v->has_type ? kiln_dtype_text(v->dtype) : "?");
  if (!v->has_shape) {
    kiln_text_add(out, "(?)");
    return;
  }
  kiln_text_add(out, "(");
  for (int i = 0; i < v->rank; i++) {
    if (i > 0) kiln_text_add(out, ", ");
    kiln_expr_print(cx, v->shape[i], NULL, out);
  }
  kiln_text_add(out, ")");
}

static void print_values(kiln_ctx *cx, const kiln_graph *g, int n, const int *ids, kiln_text *out) {
  for (int i = 0; i < n; i++) {
    if (i > 0) kiln_text_add(out, ", ");
    if (ids[i] < 0) {
      kiln_text_add(out, "_");
      continue;
    }
    const kiln_value *v = g->values[ids[i]];
    kiln_text_printf(out, "%s:", kiln_symbol_text(cx, v->name));
    print_type(cx, v, out);
  }
}

static void print_attr(kiln_ctx *cx, const kiln_attr *a, kiln_text *out) {
  kiln_text_printf(out, "%s=", kiln_symbol_text(cx, a->name));
  const bool is_list =
      a->kind == KILN_ATTR_INTS || a->kind == KILN_ATTR_FLOATS || a->kind == KILN_ATTR_STRINGS;
  if (is_list) kiln_text_add(out, "[");
  for (int i = 0; i < (is_list ? a->n : 1); i++) {
    if (i > 0) kiln_text_add(out, ", ");
    switch (a->kind) {
    case KILN_ATTR_INT: kiln_text_printf(out, "%" PRId64, a->u.i); break;
    case KILN_ATTR_FLOAT: kiln_text_printf(out, "%.9g", (double)a->u.f); break;
    case KILN_ATTR_STRING: kiln_text_printf(out, "\"%s\"", kiln_symbol_text(cx, a->u.s)); break;
    case KILN_ATTR_TENSOR:
      kiln_text_printf(out, "tensor %s of %zu bytes", kiln_dtype_text(a->u.tensor->dtype),
                       a->u.tensor->bytes);
      break;
    case KILN_ATTR_INTS: kiln_text_printf(out, "%" PRId64, a->u.ints[i]); break;
    case KILN_ATTR_FLOATS: kiln_text_printf(out, "%.9g", (double)a->u.floats[i]); break;
    case KILN_ATTR_STRINGS:
      kiln_text_printf(out, "\"%s\"", kiln_symbol_text(cx, a->u.strings[i]));
      break;
    case KILN_ATTR_GRAPH: kiln_text_printf(out, "graph of %d nodes", a->u.graph->n_nodes); break;
    }
  }
  if (is_list) kiln_text_add(out, "]");
}

static void print_node(kiln_ctx *cx, const kiln_graph *g, const kiln_node *n, kiln_text *out) {
  kiln_text_printf(out, "  %d: ", n->id);
  print_values(cx, g, n->n_outputs, n->outputs, out);
  const char *domain = kiln_symbol_text(cx, n->domain);
  kiln_text_printf(out, " = %s%s%s", domain, *domain ? "." : "", kiln_symbol_text(cx, n->op));
  if (n->n_attrs > 0) kiln_text_add(out, "<");
  for (int i = 0; i < n->n_attrs; i++) {
    if (i > 0) kiln_text_add(out, ", ");
    print_attr(cx, &n->attrs[i], out);
  }
  kiln_text_add(out, n->n_attrs > 0 ? ">(" : "(");
  print_values(cx, g, n->n_inputs, n->inputs, out);
  kiln_text_add(out, ")");
  if (n->name) kiln_text_printf(out, "  # %s", kiln_symbol_text(cx, n->name));
  kiln_text_add(out, "\n");
}

void kiln_graph_print(kiln_ctx *cx, const kiln_graph *g, kiln_text *out) {
  kiln_text_printf(out, "graph \"%s\" ir %" PRId64 " {\n  inputs ", kiln_symbol_text(cx, g->name),
                   g->ir_version);
  print_values(cx, g, g->n_inputs, g->inputs, out);
  kiln_text_add(out, "\n");
  for (int i = 0; i < g->n_nodes; i++) print_node(cx, g, g->nodes[i], out);
  kiln_text_add(out, "  outputs ");
  print_values(cx, g, g->n_outputs, g->outputs, out);
  kiln_text_add(out, "\n}\n");
}
