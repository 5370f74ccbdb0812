// Builds a graph from its message: values by name, nodes in topological order, values captured by
// sub-graphs; reports every inconsistency.
#include "onnx/build.h"

#include <string.h>

static const char *text_of(onnx_build *b, onnx_bytes name) {
  return kiln_symbol_text(b->cx, kiln_onnx_symbol(b->cx, name));
}

static const char *node_place(onnx_build *b, const char *where, size_t i, const onnx_node *node) {
  return kiln_arena_printf(&b->cx->scratch, "%s: node %zu \"%s\" (%s)", where, i,
                           text_of(b, node->name), text_of(b, node->op_type));
}

static kiln_value *add_value(onnx_build *b, onnx_scope *scope, kiln_symbol name) {
  kiln_value *value = KILN_NEW(&b->cx->perm, kiln_value);
  *value = (kiln_value){.id = scope->values.n, .name = name, .producer = -1};
  KILN_VEC_PUSH(&b->cx->perm, &scope->values, value);
  kiln_map_put(&scope->ids, name, (uint64_t)value->id);
  return value;
}

static kiln_value *find_value(const onnx_scope *scope, kiln_symbol name) {
  const uint64_t *id = kiln_map_find(&scope->ids, name);
  return id == NULL ? NULL : scope->values.data[*id];
}

// Finds |name| in this graph or in enclosing ones, of which it then becomes a captured value.
// Bounded recursion: graphs nest less than 100 deep.
static kiln_value *resolve(onnx_build *b, onnx_scope *scope, kiln_symbol name) {
  kiln_value *own = find_value(scope, name);
  if (own != NULL || scope->outer == NULL) return own;
  const kiln_value *outer = resolve(b, scope->outer, name);
  if (outer == NULL) return NULL;
  kiln_value *captured = add_value(b, scope, name);
  const int id = captured->id;
  *captured = *outer;
  captured->id = id;
  captured->initial = NULL; // belongs to the outer graph
  captured->producer = -1;
  return captured;
}

static void add_inputs(onnx_build *b, onnx_scope *scope, const char *where,
                       const onnx_graph *graph) {
  for (size_t i = 0; i < graph->inputs.n; i++) {
    const onnx_value_info *info = &graph->inputs.data[i];
    const kiln_symbol name = kiln_onnx_symbol(b->cx, info->name);
    if (name == 0 || find_value(scope, name) != NULL) {
      kiln_onnx_problem(&b->problems, KILN_BAD_INPUT, where,
                        "input %zu: must have a name of its own, got \"%s\"", i,
                        text_of(b, info->name));
      continue;
    }
    kiln_onnx_value_declare(b, where, scope->outer == NULL, ONNX_ROLE_INPUT, info,
                            add_value(b, scope, name));
  }
}

// The initializer is |t|, or |sparse|, which |t| names.
static void add_initializer(onnx_build *b, onnx_scope *scope, const char *where,
                            const onnx_graph *graph, const onnx_tensor *t,
                            const onnx_sparse *sparse) {
  const kiln_symbol name = t ? kiln_onnx_symbol(b->cx, t->name) : 0;
  const char *subject =
      kiln_arena_printf(&b->cx->scratch, "initializer \"%s\"", t ? text_of(b, t->name) : "");
  kiln_value *value = name == 0 ? NULL : find_value(scope, name);
  kiln_const constant;
  if (name == 0 || (value != NULL && (value->constant != NULL || value->initial != NULL))) {
    kiln_onnx_problem(&b->problems, KILN_BAD_INPUT, where, "%s: must have a name of its own",
                      subject);
    return;
  }
  if (value == NULL) value = add_value(b, scope, name);
  const bool stays_input =
      scope->outer == NULL && kiln_onnx_is_overridable(b, graph, kiln_symbol_text(b->cx, name));
  if (sparse ? !kiln_onnx_sparse_make(&b->problems, b->file, where, subject, sparse, &constant)
             : !kiln_onnx_tensor_make(&b->problems, b->file, where, subject, t, &constant))
    return;
  if (stays_input) kiln_onnx_value_set_initial(b, where, &constant, value);
  else kiln_onnx_value_set_constant(b, where, &constant, value);
}

static void add_initializers(onnx_build *b, onnx_scope *scope, const char *where,
                             const onnx_graph *graph) {
  for (size_t i = 0; i < graph->initializers.n; i++)
    add_initializer(b, scope, where, graph, &graph->initializers.data[i], NULL);
  for (size_t i = 0; i < graph->sparse_initializers.n; i++) {
    const onnx_sparse *s = &graph->sparse_initializers.data[i];
    add_initializer(b, scope, where, graph, s->values, s);
  }
}

// The caller's constants override the file's. Unknown names were reported with the shapes.
static void add_bound_constants(onnx_build *b, onnx_scope *scope, const char *where) {
  for (int i = 0; i < b->options->n_constants; i++) {
    const kiln_onnx_constant *c = &b->options->constants[i];
    kiln_value *value = find_value(scope, kiln_symbol_of(b->cx, c->input));
    if (value != NULL && value->initial != NULL) value->initial = NULL;
    if (value != NULL && c->value.rank >= 0 && c->value.rank <= KILN_MAX_RANK)
      kiln_onnx_value_set_constant(b, where, &c->value, value);
  }
}

static void list_inputs(onnx_build *b, const onnx_scope *scope, const onnx_graph *graph,
                        kiln_graph *out) {
  out->inputs = KILN_NEW_ARRAY(&b->cx->perm, int, graph->inputs.n);
  for (size_t i = 0; i < graph->inputs.n; i++) {
    const kiln_value *v = find_value(scope, kiln_onnx_symbol(b->cx, graph->inputs.data[i].name));
    if (v != NULL && v->constant == NULL) out->inputs[out->n_inputs++] = v->id;
  }
}

static bool is_default_domain(onnx_bytes domain) {
  return domain.n == 0 || kiln_onnx_is(domain, "ai.onnx");
}

static bool is_constant(const onnx_node *node) {
  return kiln_onnx_is(node->op_type, "Constant") && is_default_domain(node->domain) &&
         node->inputs.n == 0 && node->outputs.n == 1 && node->outputs.data[0].n > 0;
}

// Makes values for the nodes' outputs, and constants for Constant nodes.
static void add_produced(onnx_build *b, onnx_scope *scope, const char *where,
                         const onnx_graph *graph, const int *order, kiln_graph *out) {
  for (size_t k = 0; k < graph->nodes.n; k++) {
    const size_t i = (size_t)order[k];
    const onnx_node *node = &graph->nodes.data[i];
    const bool constant = is_constant(node);
    for (size_t o = 0; o < node->outputs.n; o++) {
      const kiln_symbol name = kiln_onnx_symbol(b->cx, node->outputs.data[o]);
      if (name == 0) continue;
      if (find_value(scope, name) != NULL) {
        kiln_onnx_problem(&b->problems, KILN_BAD_INPUT, node_place(b, where, i, node),
                          "output %zu: must be a name that is given once, got \"%s\" again", o,
                          kiln_symbol_text(b->cx, name));
        continue;
      }
      kiln_value *value = add_value(b, scope, name);
      value->producer = constant ? -1 : out->n_nodes;
      kiln_const c;
      if (!constant) continue;
      const char *place = node_place(b, where, i, node);
      if (kiln_onnx_constant_make(b, place, node, &c))
        kiln_onnx_value_set_constant(b, place, &c, value);
    }
    out->n_nodes += !constant;
  }
}

static void declare_values(onnx_build *b, onnx_scope *scope, const char *where,
                           const onnx_graph *graph) {
  const bool is_top = scope->outer == NULL;
  for (size_t i = 0; i < graph->value_infos.n; i++) {
    const onnx_value_info *info = &graph->value_infos.data[i];
    kiln_value *value = find_value(scope, kiln_onnx_symbol(b->cx, info->name));
    if (value != NULL && value->producer >= 0)
      kiln_onnx_value_declare(b, where, is_top, ONNX_ROLE_INNER, info, value);
  }
}

static void list_outputs(onnx_build *b, onnx_scope *scope, const char *where,
                         const onnx_graph *graph, kiln_graph *out) {
  out->outputs = KILN_NEW_ARRAY(&b->cx->perm, int, graph->outputs.n);
  for (size_t i = 0; i < graph->outputs.n; i++) {
    const onnx_value_info *info = &graph->outputs.data[i];
    kiln_value *value = resolve(b, scope, kiln_onnx_symbol(b->cx, info->name));
    if (value == NULL) {
      kiln_onnx_problem(&b->problems, KILN_BAD_INPUT, where,
                        "output \"%s\": must be an input, an initializer or the output of a node, "
                        "got a name that nothing produces",
                        text_of(b, info->name));
      continue;
    }
    if (value->producer >= 0)
      kiln_onnx_value_declare(b, where, scope->outer == NULL, ONNX_ROLE_OUTPUT, info, value);
    out->outputs[out->n_outputs++] = value->id;
  }
}

static int64_t opset_of(onnx_build *b, const onnx_node *node) {
  const onnx_opsets *opsets = node->opsets != NULL ? node->opsets : &b->model->opsets;
  const bool is_default = is_default_domain(node->domain);
  const kiln_symbol domain = kiln_onnx_symbol(b->cx, node->domain);
  for (size_t i = 0; i < opsets->n; i++) {
    const onnx_opset *o = &opsets->data[i];
    if (is_default ? is_default_domain(o->domain) : kiln_onnx_symbol(b->cx, o->domain) == domain)
      return o->version;
  }
  // Before IR 3 the opset import was missing.
  return is_default && b->model->ir_version < 3 ? 1 : -1;
}

static void connect(onnx_build *b, onnx_scope *scope, const char *place, const onnx_node *node,
                    kiln_node *out) {
  out->n_inputs = (int)node->inputs.n;
  out->n_outputs = (int)node->outputs.n;
  out->inputs = KILN_NEW_ARRAY(&b->cx->perm, int, out->n_inputs);
  out->outputs = KILN_NEW_ARRAY(&b->cx->perm, int, out->n_outputs);
  for (int i = 0; i < out->n_inputs; i++) {
    const kiln_symbol name = kiln_onnx_symbol(b->cx, node->inputs.data[i]);
    const kiln_value *value = name == 0 ? NULL : resolve(b, scope, name);
    out->inputs[i] = value == NULL ? -1 : value->id;
    if (name != 0 && value == NULL)
      kiln_onnx_problem(&b->problems, KILN_BAD_INPUT, place,
                        "input %d: must be an input of the graph, an initializer or the output of "
                        "a node, got \"%s\", which nothing produces",
                        i, kiln_symbol_text(b->cx, name));
  }
  for (int i = 0; i < out->n_outputs; i++) {
    const kiln_symbol name = kiln_onnx_symbol(b->cx, node->outputs.data[i]);
    const kiln_value *value = name == 0 ? NULL : find_value(scope, name);
    out->outputs[i] = value == NULL ? -1 : value->id;
  }
}

static kiln_node *make_node(onnx_build *b, onnx_scope *scope, const char *place,
                            const onnx_node *node, int id) {
  kiln_node *out = KILN_NEW(&b->cx->perm, kiln_node);
  out->id = id;
  out->name = kiln_onnx_symbol(b->cx, node->name);
  out->op = kiln_onnx_symbol(b->cx, node->op_type);
  out->domain = is_default_domain(node->domain) ? 0 : kiln_onnx_symbol(b->cx, node->domain);
  out->opset = opset_of(b, node);
  if (out->op == 0)
    kiln_onnx_problem(&b->problems, KILN_BAD_INPUT, place, "op_type: must be given, got none");
  if (out->opset < 0)
    kiln_onnx_problem(&b->problems, KILN_BAD_INPUT, place,
                      "domain \"%s\": must be declared in the model's opset_import, which lacks it",
                      kiln_symbol_text(b->cx, out->domain));
  connect(b, scope, place, node, out);
  kiln_onnx_attrs_make(b, scope, place, node, out);
  return out;
}

static void make_nodes(onnx_build *b, onnx_scope *scope, const char *where, const onnx_graph *graph,
                       const int *order, kiln_graph *out) {
  int id = 0;
  out->nodes = KILN_NEW_ARRAY(&b->cx->perm, kiln_node *, out->n_nodes);
  for (size_t k = 0; k < graph->nodes.n; k++) {
    const size_t i = (size_t)order[k];
    const onnx_node *node = &graph->nodes.data[i];
    if (is_constant(node)) continue;
    const char *place = node_place(b, where, i, node);
    out->nodes[id] = make_node(b, scope, place, node, id);
    id++;
  }
}

kiln_graph *kiln_onnx_graph_make(onnx_build *b, const onnx_graph *graph, onnx_scope *outer,
                                 const char *where) {
  kiln_graph *out = KILN_NEW(&b->cx->perm, kiln_graph);
  *out = (kiln_graph){.name = b->name,
                      .ir_version = b->model->ir_version,
                      .producer = b->producer,
                      .n_opsets = b->n_opsets,
                      .opsets = b->opsets};
  onnx_scope scope = {.outer = outer};
  kiln_map_init(&scope.ids, &b->cx->scratch);
  add_inputs(b, &scope, where, graph);
  add_initializers(b, &scope, where, graph);
  if (outer == NULL) kiln_onnx_check_overridable(b, graph);
  if (outer == NULL) add_bound_constants(b, &scope, where);
  list_inputs(b, &scope, graph, out);
  const int *order = kiln_onnx_sort(b, where, &graph->nodes);
  add_produced(b, &scope, where, graph, order, out);
  declare_values(b, &scope, where, graph);
  list_outputs(b, &scope, where, graph, out);
  make_nodes(b, &scope, where, graph, order, out);
  out->n_values = scope.values.n;
  out->values = scope.values.data;
  return out;
}
