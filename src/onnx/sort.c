// Topological order of a graph's nodes by depth-first search with an explicit stack, because depth
// depends on input.
//
// A node also depends on values captured by its sub-graphs: names that a sub-graph uses without
// defining them.
// does not define.
#include "onnx/build.h"

#include <string.h>

typedef KILN_VEC(kiln_symbol) symbols;

static void note(kiln_ctx *cx, const kiln_map *own, onnx_bytes name, symbols *out) {
  const kiln_symbol symbol = kiln_onnx_symbol(cx, name);
  if (symbol != 0 && (own == NULL || kiln_map_find(own, symbol) == NULL))
    KILN_VEC_PUSH(&cx->scratch, out, symbol);
}

static void define(kiln_ctx *cx, onnx_bytes name, kiln_map *own) {
  kiln_map_put(own, kiln_onnx_symbol(cx, name), 1);
}

// Adds the names that |graph| uses without defining them. Bounded recursion: messages nest at most
// 100 deep.
static void add_captures(kiln_ctx *cx, const onnx_graph *graph, symbols *out) {
  kiln_map own;
  symbols inner = {0};
  kiln_map_init(&own, &cx->scratch);
  for (size_t i = 0; i < graph->inputs.n; i++) define(cx, graph->inputs.data[i].name, &own);
  for (size_t i = 0; i < graph->initializers.n; i++)
    define(cx, graph->initializers.data[i].name, &own);
  for (size_t i = 0; i < graph->nodes.n; i++)
    for (size_t k = 0; k < graph->nodes.data[i].outputs.n; k++)
      define(cx, graph->nodes.data[i].outputs.data[k], &own);
  for (size_t i = 0; i < graph->nodes.n; i++) {
    const onnx_node *node = &graph->nodes.data[i];
    for (size_t k = 0; k < node->inputs.n; k++) note(cx, &own, node->inputs.data[k], out);
    for (size_t k = 0; k < node->attrs.n; k++)
      if (node->attrs.data[k].g != NULL) add_captures(cx, node->attrs.data[k].g, &inner);
  }
  for (size_t i = 0; i < graph->outputs.n; i++) note(cx, &own, graph->outputs.data[i].name, out);
  for (int i = 0; i < inner.n; i++)
    if (kiln_map_find(&own, inner.data[i]) == NULL) KILN_VEC_PUSH(&cx->scratch, out, inner.data[i]);
}

typedef struct frame {
  int node, next; // |next|: index of the next dependency
} frame;

typedef enum colour { WHITE, GREY, BLACK } colour;

typedef struct walk {
  onnx_build *b;
  const char *where;
  const onnx_nodes *nodes;
  const symbols *uses; // [nodes]
  kiln_map producers;  // symbol -> node
  colour *colours;     // [nodes]
  frame *stack;        // [nodes]
  int n_stack, n_order;
  int *order; // [nodes]
} walk;

static void tell_cycle(const walk *w, int node) {
  kiln_ctx *cx = w->b->cx;
  int from = w->n_stack - 1;
  while (from > 0 && w->stack[from].node != node) from--;
  kiln_text text;
  kiln_text_init(&text, &cx->scratch);
  for (int i = from; i < w->n_stack && i < from + 8; i++) {
    const onnx_node *n = &w->nodes->data[w->stack[i].node];
    const char *name = kiln_symbol_text(cx, kiln_onnx_symbol(cx, n->name));
    kiln_text_printf(&text, "%snode %d \"%s\"", i == from ? "" : ", which needs ", w->stack[i].node,
                     name);
  }
  if (w->n_stack - from > 8) kiln_text_printf(&text, ", ... (%d nodes)", w->n_stack - from);
  kiln_onnx_problem(&w->b->problems, KILN_BAD_INPUT, w->where,
                    "graph: must not have cycles, got one of %s", text.data);
}

static void walk_from(walk *w, int root) {
  if (w->colours[root] != WHITE) return;
  w->colours[root] = GREY;
  w->stack[w->n_stack++] = (frame){root, 0};
  while (w->n_stack > 0) {
    frame *top = &w->stack[w->n_stack - 1];
    if (top->next == w->uses[top->node].n) {
      w->colours[top->node] = BLACK;
      w->order[w->n_order++] = top->node;
      w->n_stack--;
      continue;
    }
    const uint64_t *found = kiln_map_find(&w->producers, w->uses[top->node].data[top->next++]);
    const int producer = found == NULL ? -1 : (int)*found;
    if (producer < 0 || w->colours[producer] == BLACK) continue;
    if (w->colours[producer] == GREY) {
      tell_cycle(w, producer);
      continue;
    }
    w->colours[producer] = GREY;
    w->stack[w->n_stack++] = (frame){producer, 0};
  }
}

const int *kiln_onnx_sort(onnx_build *b, const char *where, const onnx_nodes *nodes) {
  kiln_arena *scratch = &b->cx->scratch;
  const int n = (int)nodes->n;
  symbols *uses = KILN_NEW_ARRAY(scratch, symbols, n);
  walk w = {.b = b, .where = where, .nodes = nodes, .uses = uses};
  w.colours = KILN_NEW_ARRAY(scratch, colour, n);
  w.stack = KILN_NEW_ARRAY(scratch, frame, n);
  w.order = KILN_NEW_ARRAY(scratch, int, n);
  kiln_map_init(&w.producers, scratch);
  for (int i = 0; i < n; i++) {
    const onnx_node *node = &nodes->data[i];
    for (size_t k = 0; k < node->inputs.n; k++) note(b->cx, NULL, node->inputs.data[k], &uses[i]);
    for (size_t k = 0; k < node->attrs.n; k++)
      if (node->attrs.data[k].g != NULL) add_captures(b->cx, node->attrs.data[k].g, &uses[i]);
    for (size_t k = 0; k < node->outputs.n; k++) {
      const kiln_symbol symbol = kiln_onnx_symbol(b->cx, node->outputs.data[k]);
      if (symbol != 0) kiln_map_put(&w.producers, symbol, (uint64_t)i);
    }
  }
  for (int i = 0; i < n; i++) walk_from(&w, i);
  return w.order;
}
