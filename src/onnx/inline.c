// Inlines the functions defined in a model: a call becomes the nodes of the body, with renamed
// values and resolved attribute references.
//
// Works on messages, before the graph is built. Calls may nest KILN_ONNX_MAX_CALLS deep (recursion
// is invalid), and a model may grow to KILN_ONNX_MAX_NODES nodes.
#include "onnx/build.h"

#include <string.h>

enum { KILN_ONNX_MAX_CALLS = 32, KILN_ONNX_MAX_NODES = 1 << 20 };

typedef KILN_VEC(onnx_node) nodes;

typedef struct inliner {
  onnx_build *b;
  const onnx_model *model;
  kiln_map functions; // symbol of "domain:name:overload" -> index
  size_t n_calls, n_nodes;
  bool too_large;
} inliner;

// A function body being copied; NULL outside of functions.
typedef struct body {
  const onnx_function *function;
  const onnx_node *call;
  const char *prefix; // for local names
  kiln_map names;     // symbol in the body -> symbol outside
  int depth;
} body;

static void expand_graph(inliner *in, body *within, onnx_graph *graph);

static onnx_bytes bytes_of(const char *text) { return (onnx_bytes){text, strlen(text)}; }

static kiln_symbol key_of(kiln_ctx *cx, onnx_bytes domain, onnx_bytes name, onnx_bytes overload) {
  if (kiln_onnx_is(domain, "ai.onnx")) domain.n = 0;
  const kiln_symbol d = kiln_onnx_symbol(cx, domain), n = kiln_onnx_symbol(cx, name),
                    o = kiln_onnx_symbol(cx, overload);
  return kiln_symbol_printf(cx, "%s:%s:%s", kiln_symbol_text(cx, d), kiln_symbol_text(cx, n),
                            kiln_symbol_text(cx, o));
}

// The name outside of a name in the body: an argument, or a local of this call.
static onnx_bytes rename(inliner *in, body *within, onnx_bytes name) {
  kiln_ctx *cx = in->b->cx;
  if (within == NULL || name.n == 0) return name;
  const kiln_symbol inside = kiln_onnx_symbol(cx, name);
  const uint64_t *known = kiln_map_find(&within->names, inside);
  if (known != NULL) return bytes_of(kiln_symbol_text(cx, (kiln_symbol)*known));
  const kiln_symbol outside =
      kiln_symbol_printf(cx, "%s%s", within->prefix, kiln_symbol_text(cx, inside));
  kiln_map_put(&within->names, inside, outside);
  return bytes_of(kiln_symbol_text(cx, outside));
}

static const onnx_attr *find_attr(const onnx_attr *attrs, size_t n, onnx_bytes name) {
  for (size_t i = 0; i < n; i++)
    if (attrs[i].name.n == name.n && memcmp(attrs[i].name.data, name.data, name.n) == 0)
      return &attrs[i];
  return NULL;
}

// Resolves a reference to an attribute of the call, or its default; false drops the attribute.
static bool resolve_attr(const body *within, onnx_attr *attr) {
  if (within == NULL || attr->ref_attr_name.n == 0) return true;
  const onnx_attr *value =
      find_attr(within->call->attrs.data, within->call->attrs.n, attr->ref_attr_name);
  if (value == NULL)
    value = find_attr(within->function->defaults.data, within->function->defaults.n,
                      attr->ref_attr_name);
  if (value == NULL) return false;
  const onnx_bytes name = attr->name;
  *attr = *value;
  attr->name = name;
  return true;
}

static void copy_names(inliner *in, body *within, onnx_bytes **data, size_t n) {
  onnx_bytes *copy = KILN_NEW_ARRAY(&in->b->cx->scratch, onnx_bytes, n);
  for (size_t i = 0; i < n; i++) copy[i] = rename(in, within, (*data)[i]);
  *data = copy;
}

// Copies |node| from the body; expands calls in its sub-graphs.
static onnx_node copy_node(inliner *in, body *within, const onnx_node *node) {
  kiln_arena *scratch = &in->b->cx->scratch;
  onnx_node copy = *node;
  if (within != NULL) {
    copy_names(in, within, &copy.inputs.data, copy.inputs.n);
    copy_names(in, within, &copy.outputs.data, copy.outputs.n);
    copy.name = bytes_of(
        kiln_arena_printf(scratch, "%s%s", within->prefix,
                          kiln_symbol_text(in->b->cx, kiln_onnx_symbol(in->b->cx, node->name))));
    copy.opsets = &within->function->opsets;
  }
  copy.attrs.data = KILN_NEW_ARRAY(scratch, onnx_attr, node->attrs.n);
  copy.attrs.n = 0;
  for (size_t i = 0; i < node->attrs.n; i++) {
    onnx_attr attr = node->attrs.data[i];
    // Then the graph is the caller's and already expanded.
    const bool refers = attr.ref_attr_name.n > 0;
    if (!resolve_attr(within, &attr)) continue;
    if (attr.g != NULL && !refers) {
      onnx_graph *graph = KILN_NEW(scratch, onnx_graph);
      *graph = *attr.g;
      expand_graph(in, within, graph);
      attr.g = graph;
    }
    copy.attrs.data[copy.attrs.n++] = attr;
  }
  return copy;
}

static void add_node(inliner *in, nodes *out, const onnx_node *node) {
  if (++in->n_nodes > KILN_ONNX_MAX_NODES) {
    in->too_large = true;
    return;
  }
  KILN_VEC_PUSH(&in->b->cx->scratch, out, *node);
}

// A function output that is one of its inputs needs an Identity node.
static void add_identity(inliner *in, const body *within, nodes *out, onnx_bytes from,
                         onnx_bytes to) {
  onnx_bytes *names = KILN_NEW_ARRAY(&in->b->cx->scratch, onnx_bytes, 2);
  names[0] = from;
  names[1] = to;
  onnx_node node = {.op_type = bytes_of("Identity"), .opsets = &within->function->opsets};
  node.inputs.data = &names[0];
  node.outputs.data = &names[1];
  node.inputs.n = node.outputs.n = 1;
  add_node(in, out, &node);
}

static void expand_node(inliner *in, body *within, const onnx_node *node, nodes *out);

static void expand_call(inliner *in, const onnx_function *f, const onnx_node *call, int depth,
                        nodes *out) {
  kiln_ctx *cx = in->b->cx;
  body inner = {.function = f, .call = call, .depth = depth};
  inner.prefix =
      kiln_arena_printf(&cx->scratch, "%s.%zu/",
                        kiln_symbol_text(cx, kiln_onnx_symbol(cx, call->op_type)), in->n_calls++);
  kiln_map_init(&inner.names, &cx->scratch);
  for (size_t i = 0; i < f->inputs.n; i++)
    kiln_map_put(&inner.names, kiln_onnx_symbol(cx, f->inputs.data[i]),
                 i < call->inputs.n ? kiln_onnx_symbol(cx, call->inputs.data[i]) : 0);
  for (size_t i = 0; i < f->outputs.n && i < call->outputs.n; i++) {
    const kiln_symbol name = kiln_onnx_symbol(cx, f->outputs.data[i]);
    const uint64_t *input = kiln_map_find(&inner.names, name);
    const onnx_bytes result = call->outputs.data[i];
    if (result.n == 0) continue;
    if (input == NULL) kiln_map_put(&inner.names, name, kiln_onnx_symbol(cx, result));
    else add_identity(in, &inner, out, bytes_of(kiln_symbol_text(cx, (kiln_symbol)*input)), result);
  }
  for (size_t i = 0; i < f->nodes.n && !in->too_large; i++)
    expand_node(in, &inner, &f->nodes.data[i], out);
}

static void expand_node(inliner *in, body *within, const onnx_node *node, nodes *out) {
  onnx_node copy = copy_node(in, within, node);
  kiln_ctx *cx = in->b->cx;
  const uint64_t *k =
      kiln_map_find(&in->functions, key_of(cx, node->domain, node->op_type, node->overload));
  const int depth = within == NULL ? 1 : within->depth + 1;
  if (k == NULL) {
    add_node(in, out, &copy);
  } else if (depth > KILN_ONNX_MAX_CALLS) {
    if (!in->too_large)
      kiln_onnx_problem(&in->b->problems, KILN_BAD_INPUT, in->b->problems.path,
                        "function \"%s\": calls of functions must nest at most %d deep, got more",
                        kiln_symbol_text(cx, kiln_onnx_symbol(cx, node->op_type)),
                        KILN_ONNX_MAX_CALLS);
    in->too_large = true; // the number of calls may double at every depth
  } else {
    expand_call(in, &in->model->functions.data[*k], &copy, depth, out);
  }
}

static void expand_graph(inliner *in, body *within, onnx_graph *graph) {
  kiln_arena *scratch = &in->b->cx->scratch;
  nodes out = {0};
  for (size_t i = 0; i < graph->nodes.n && !in->too_large; i++)
    expand_node(in, within, &graph->nodes.data[i], &out);
  graph->nodes.data = out.data;
  graph->nodes.n = (size_t)out.n;
  if (within == NULL) return;
  onnx_value_info *const lists[] = {graph->inputs.data, graph->outputs.data,
                                    graph->value_infos.data};
  const size_t sizes[] = {graph->inputs.n, graph->outputs.n, graph->value_infos.n};
  onnx_value_info *copies[3];
  for (int k = 0; k < 3; k++) {
    copies[k] = KILN_NEW_ARRAY(scratch, onnx_value_info, sizes[k]);
    for (size_t i = 0; i < sizes[k]; i++) {
      copies[k][i] = lists[k][i];
      copies[k][i].name = rename(in, within, lists[k][i].name);
    }
  }
  graph->inputs.data = copies[0];
  graph->outputs.data = copies[1];
  graph->value_infos.data = copies[2];
  onnx_tensor *initializers = KILN_NEW_ARRAY(scratch, onnx_tensor, graph->initializers.n);
  for (size_t i = 0; i < graph->initializers.n; i++) {
    initializers[i] = graph->initializers.data[i];
    initializers[i].name = rename(in, within, initializers[i].name);
  }
  graph->initializers.data = initializers;
}

void kiln_onnx_inline(onnx_build *b, onnx_model *model) {
  if (model->functions.n == 0) return;
  inliner in = {.b = b, .model = model};
  kiln_map_init(&in.functions, &b->cx->scratch);
  for (size_t i = 0; i < model->functions.n; i++) {
    const onnx_function *f = &model->functions.data[i];
    kiln_map_put(&in.functions, key_of(b->cx, f->domain, f->name, f->overload), i);
  }
  expand_graph(&in, NULL, model->graph);
  if (in.n_nodes > KILN_ONNX_MAX_NODES)
    kiln_onnx_problem(&b->problems, KILN_UNSUPPORTED, b->problems.path,
                      "functions: must expand to at most %d nodes, got more", KILN_ONNX_MAX_NODES);
}
