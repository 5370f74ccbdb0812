// Edits of graphs: the new graph shares messages with the old one; lists that change are copied to
// the editor's arena.
#include "onnx/edit.h"

#include "ir/dtype.h"

#include <stdlib.h>
#include <string.h>

// --- which values are used ---

// Calls |visit| with every name that |node| reads, also in its sub-graphs. Bounded recursion by
// nesting of graphs.
static void visit_uses(const onnx_node *node, void (*visit)(void *user, onnx_bytes name),
                       void *user) {
  for (size_t i = 0; i < node->inputs.n; i++) visit(user, node->inputs.data[i]);
  for (size_t i = 0; i < node->attrs.n; i++) {
    const onnx_graph *g = node->attrs.data[i].g;
    for (size_t k = 0; g && k < g->nodes.n; k++) visit_uses(&g->nodes.data[k], visit, user);
    for (size_t k = 0; g && k < g->outputs.n; k++) visit(user, g->outputs.data[k].name);
  }
}

typedef struct name_set {
  kiln_ctx *cx;
  kiln_map symbols;
} name_set;

static void add_name(void *user, onnx_bytes name) {
  name_set *s = user;
  if (name.n) kiln_map_put(&s->symbols, kiln_onnx_symbol(s->cx, name), 1);
}

static bool has_name(const name_set *s, onnx_bytes name) {
  return name.n && kiln_map_find(&s->symbols, kiln_onnx_symbol(s->cx, name)) != NULL;
}

static name_set name_set_make(onnx_editor *e) {
  name_set s = {.cx = e->cx};
  kiln_map_init(&s.symbols, e->arena);
  return s;
}

static bool makes_any(const name_set *s, const onnx_node *node) {
  for (size_t i = 0; i < node->outputs.n; i++)
    if (has_name(s, node->outputs.data[i])) return true;
  return false;
}

// Removes nodes, inputs and initializers that no output needs, and their values' declarations.
static void drop_unused(onnx_editor *e, onnx_graph *g) {
  name_set used = name_set_make(e);
  bool *keep = KILN_NEW_ARRAY(e->arena, bool, g->nodes.n);
  size_t n = 0;
  for (size_t i = 0; i < g->outputs.n; i++) add_name(&used, g->outputs.data[i].name);
  for (bool grew = true; grew;) { // one pass suffices if producers come first
    grew = false;
    for (size_t i = g->nodes.n; i-- > 0;) {
      if (keep[i] || !makes_any(&used, &g->nodes.data[i])) continue;
      keep[i] = grew = true;
      visit_uses(&g->nodes.data[i], add_name, &used);
    }
  }
  onnx_node *nodes = KILN_NEW_ARRAY(e->arena, onnx_node, g->nodes.n);
  for (size_t i = 0; i < g->nodes.n; i++)
    if (keep[i]) nodes[n++] = g->nodes.data[i];
  g->nodes.data = nodes;
  g->nodes.n = n;
  onnx_value_info *inputs = KILN_NEW_ARRAY(e->arena, onnx_value_info, g->inputs.n);
  n = 0;
  for (size_t i = 0; i < g->inputs.n; i++)
    if (has_name(&used, g->inputs.data[i].name)) inputs[n++] = g->inputs.data[i];
  g->inputs.data = inputs;
  g->inputs.n = n;
  onnx_tensor *tensors = KILN_NEW_ARRAY(e->arena, onnx_tensor, g->initializers.n);
  n = 0;
  for (size_t i = 0; i < g->initializers.n; i++)
    if (has_name(&used, g->initializers.data[i].name)) tensors[n++] = g->initializers.data[i];
  g->initializers.data = tensors;
  g->initializers.n = n;
  g->value_infos.n = 0;
}

// --- types ---

static const onnx_type *type_of(const onnx_editor *e, onnx_bytes name) {
  const uint64_t *at = kiln_map_find(&e->types, kiln_onnx_symbol(e->cx, name));
  return at ? (const onnx_type *)(uintptr_t)*at : NULL;
}

static void know(onnx_editor *e, onnx_bytes name, const onnx_type *type) {
  if (name.n && type)
    kiln_map_put(&e->types, kiln_onnx_symbol(e->cx, name), (uint64_t)(uintptr_t)type);
}

static onnx_type *tensor_type(kiln_arena *arena, int64_t elem_type, size_t rank,
                              const int64_t *shape) {
  onnx_type *type = KILN_NEW(arena, onnx_type);
  type->tensor = KILN_NEW(arena, onnx_tensor_type);
  type->tensor->elem_type = elem_type;
  type->tensor->shape = KILN_NEW(arena, onnx_shape);
  type->tensor->shape->dims.data = KILN_NEW_ARRAY(arena, onnx_dim, rank);
  type->tensor->shape->dims.n = rank;
  for (size_t k = 0; k < rank; k++)
    if (shape[k] >= 0)
      type->tensor->shape->dims.data[k] = (onnx_dim){.has = ONNX_HAS_DIM_VALUE, .value = shape[k]};
  return type;
}

static void know_all(onnx_editor *e, const onnx_value_info *infos, size_t n) {
  for (size_t i = 0; i < n; i++) know(e, infos[i].name, infos[i].type);
}

void kiln_onnx_editor_init(onnx_editor *e, const onnx_graph *graph, const kiln_onnx_known *known,
                           size_t n_known) {
  e->arena = &e->cx->perm;
  kiln_map_init(&e->types, e->arena);
  for (size_t i = 0; i < n_known; i++)
    know(e, (onnx_bytes){known[i].name, strlen(known[i].name)},
         tensor_type(e->arena, known[i].elem_type, (size_t)known[i].rank, known[i].shape));
  know_all(e, graph->value_infos.data, graph->value_infos.n);
  know_all(e, graph->outputs.data, graph->outputs.n);
  know_all(e, graph->inputs.data, graph->inputs.n);
  for (size_t i = 0; i < graph->initializers.n; i++) {
    const onnx_tensor *t = &graph->initializers.data[i];
    know(e, t->name, tensor_type(e->arena, t->data_type, t->dims.n, t->dims.data));
  }
}

static onnx_value_info info_of(const onnx_editor *e, onnx_bytes name) {
  const onnx_type *type = type_of(e, name);
  onnx_value_info info = {.name = name};
  if (type) {
    info.type = KILN_NEW(e->arena, onnx_type);
    *info.type = *type;
  }
  return info;
}

static void add_info(onnx_editor *e, onnx_value_info **data, size_t *n, onnx_value_info added) {
  onnx_value_info *more = KILN_NEW_ARRAY(e->arena, onnx_value_info, *n + 1);
  if (*n) memcpy(more, *data, *n * sizeof *more);
  more[*n] = added;
  *data = more;
  *n += 1;
}

// --- outputs and nodes ---

static bool keep_outputs(onnx_editor *e, onnx_graph *g, size_t at, size_t n, bool keep) {
  onnx_value_info *kept = KILN_NEW_ARRAY(e->arena, onnx_value_info, g->outputs.n);
  size_t k = 0;
  for (size_t i = 0; i < g->outputs.n; i++)
    if ((i >= at && i < at + n) == keep) kept[k++] = g->outputs.data[i];
  if (k == 0 || k == g->outputs.n) return false;
  g->outputs.data = kept;
  g->outputs.n = k;
  return true;
}

typedef struct cut {
  onnx_editor *e;
  onnx_graph *g;
  name_set gone, done; // results of removed nodes; those of them that became inputs
  bool failed;
} cut;

// A removed node's result that is still read becomes an input.
static void free_value(void *user, onnx_bytes name) {
  cut *c = user;
  if (!has_name(&c->gone, name) || has_name(&c->done, name)) return;
  add_name(&c->done, name);
  const onnx_value_info info = info_of(c->e, name);
  c->failed |= info.type == NULL;
  add_info(c->e, &c->g->inputs.data, &c->g->inputs.n, info);
}

static bool is_made(const onnx_graph *g, onnx_bytes name) {
  for (size_t i = 0; i < g->nodes.n; i++)
    for (size_t k = 0; k < g->nodes.data[i].outputs.n; k++) {
      const onnx_bytes made = g->nodes.data[i].outputs.data[k];
      if (made.n == name.n && !memcmp(made.data, name.data, name.n)) return true;
    }
  return false;
}

// If no output is left, the operands of removed nodes that other nodes compute become outputs.
static void promote(onnx_editor *e, onnx_graph *g, const onnx_node *gone, size_t n) {
  name_set done = name_set_make(e);
  for (size_t i = 0; i < n; i++)
    for (size_t k = 0; k < gone[i].inputs.n; k++) {
      const onnx_bytes name = gone[i].inputs.data[k];
      if (has_name(&done, name) || !is_made(g, name)) continue;
      add_name(&done, name);
      add_info(e, &g->outputs.data, &g->outputs.n, info_of(e, name));
    }
}

static bool remove_nodes(onnx_editor *e, onnx_graph *g, size_t at, size_t n) {
  const onnx_node *gone = g->nodes.data + at;
  cut c = {.e = e, .g = g, .gone = name_set_make(e), .done = name_set_make(e)};
  onnx_node *nodes = KILN_NEW_ARRAY(e->arena, onnx_node, g->nodes.n);
  onnx_value_info *outputs = KILN_NEW_ARRAY(e->arena, onnx_value_info, g->outputs.n);
  size_t n_nodes = 0, n_outputs = 0;
  for (size_t i = 0; i < n; i++)
    for (size_t k = 0; k < gone[i].outputs.n; k++) add_name(&c.gone, gone[i].outputs.data[k]);
  for (size_t i = 0; i < g->nodes.n; i++)
    if (i < at || i >= at + n) nodes[n_nodes++] = g->nodes.data[i];
  for (size_t i = 0; i < g->outputs.n; i++)
    if (!has_name(&c.gone, g->outputs.data[i].name)) outputs[n_outputs++] = g->outputs.data[i];
  g->nodes.data = nodes;
  g->nodes.n = n_nodes;
  g->outputs.data = outputs;
  g->outputs.n = n_outputs;
  if (n_outputs == 0) promote(e, g, gone, n);
  for (size_t i = 0; i < n_nodes; i++) visit_uses(&nodes[i], free_value, &c);
  return g->outputs.n > 0 && !c.failed;
}

// --- sub-graphs ---

static onnx_node identity(onnx_editor *e, onnx_bytes from, onnx_bytes to) {
  onnx_node node = {.op_type = {"Identity", 8}};
  onnx_bytes *both = KILN_NEW_ARRAY(e->arena, onnx_bytes, 2);
  both[0] = from;
  both[1] = to;
  node.inputs.data = both;
  node.outputs.data = both + 1;
  node.inputs.n = node.outputs.n = 1;
  return node;
}

static bool take_initializers(onnx_editor *e, onnx_graph *g, const onnx_graph *body) {
  const size_t n = g->initializers.n;
  onnx_tensor *tensors = KILN_NEW_ARRAY(e->arena, onnx_tensor, n + body->initializers.n);
  if (n) memcpy(tensors, g->initializers.data, n * sizeof *tensors);
  for (size_t i = 0; i < body->initializers.n; i++) tensors[n + i] = body->initializers.data[i];
  g->initializers.data = tensors;
  g->initializers.n = n + body->initializers.n;
  return true;
}

// Replaces an If by a branch, or a Loop without scan outputs by its body, run once: the body's
// inputs are copies of the node's operands, the node's outputs copies of the body's.
static bool flatten(onnx_editor *e, onnx_graph *g, size_t at, size_t attr) {
  const onnx_node *node = &g->nodes.data[at];
  const onnx_graph *body = attr < node->attrs.n ? node->attrs.data[attr].g : NULL;
  if (body == NULL || body->inputs.n > node->inputs.n) return false;
  const bool is_loop = kiln_onnx_is(node->op_type, "Loop");
  if (!is_loop && !kiln_onnx_is(node->op_type, "If")) return false;
  const size_t skipped = is_loop ? 1 : 0; // a Loop body's first output is the condition
  if (body->outputs.n != node->outputs.n + skipped) return false;
  onnx_node *nodes = KILN_NEW_ARRAY(e->arena, onnx_node,
                                    g->nodes.n + body->nodes.n + body->inputs.n + node->outputs.n);
  size_t n = at;
  know_all(e, body->outputs.data, body->outputs.n);
  know_all(e, body->inputs.data, body->inputs.n);
  know_all(e, body->value_infos.data, body->value_infos.n);
  memcpy(nodes, g->nodes.data, at * sizeof *nodes);
  for (size_t i = 0; i < body->inputs.n; i++) {
    if (node->inputs.data[i].n == 0) return false;
    nodes[n++] = identity(e, node->inputs.data[i], body->inputs.data[i].name);
  }
  memcpy(nodes + n, body->nodes.data, body->nodes.n * sizeof *nodes);
  n += body->nodes.n;
  for (size_t i = 0; i < node->outputs.n; i++)
    if (node->outputs.data[i].n)
      nodes[n++] = identity(e, body->outputs.data[i + skipped].name, node->outputs.data[i]);
  const size_t behind = g->nodes.n - at - 1;
  memcpy(nodes + n, node + 1, behind * sizeof *nodes);
  g->nodes.data = nodes;
  g->nodes.n = n + behind;
  return take_initializers(e, g, body);
}

// --- parts of nodes ---

static onnx_node *own_node(onnx_editor *e, onnx_graph *g, size_t at) {
  onnx_node *nodes = KILN_NEW_ARRAY(e->arena, onnx_node, g->nodes.n);
  memcpy(nodes, g->nodes.data, g->nodes.n * sizeof *nodes);
  g->nodes.data = nodes;
  return &nodes[at];
}

static bool drop_operand(onnx_editor *e, onnx_graph *g, size_t at, size_t k) {
  onnx_node *node = own_node(e, g, at);
  if (k >= node->inputs.n || node->inputs.data[k].n == 0) return false;
  onnx_bytes *inputs = KILN_NEW_ARRAY(e->arena, onnx_bytes, node->inputs.n);
  memcpy(inputs, node->inputs.data, node->inputs.n * sizeof *inputs);
  inputs[k] = (onnx_bytes){0};
  while (node->inputs.n && inputs[node->inputs.n - 1].n == 0) node->inputs.n--;
  node->inputs.data = inputs;
  return true;
}

static bool drop_attr(onnx_editor *e, onnx_graph *g, size_t at, size_t k) {
  onnx_node *node = own_node(e, g, at);
  if (k >= node->attrs.n) return false;
  onnx_attr *attrs = KILN_NEW_ARRAY(e->arena, onnx_attr, node->attrs.n);
  memcpy(attrs, node->attrs.data, k * sizeof *attrs);
  memcpy(attrs + k, node->attrs.data + k + 1, (node->attrs.n - k - 1) * sizeof *attrs);
  node->attrs.data = attrs;
  node->attrs.n--;
  return true;
}

// --- extents and constants ---

static int64_t elements(const onnx_tensor *t) {
  int64_t n = 1;
  for (size_t k = 0; k < t->dims.n; k++) n *= t->dims.data[k];
  return n;
}

// Size of an element in bytes; 0 if the raw form does not have whole bytes.
static size_t raw_bytes(const onnx_tensor *t) {
  kiln_dtype dtype;
  if (t->data_location || !kiln_dtype_of_onnx(t->data_type, &dtype) || kiln_dtype_bits(dtype) < 8)
    return 0;
  const size_t bytes = (size_t)kiln_dtype_bytes(dtype);
  return t->raw_data.n == bytes * (size_t)elements(t) ? bytes : 0;
}

// Converts typed fields of common types to raw data.
static void make_raw(onnx_tensor *t) {
  if (t->raw_data.n || t->data_location) return;
  if (t->float_data.n) t->raw_data = (onnx_bytes){t->float_data.data, 4 * t->float_data.n};
  else if (t->double_data.n) t->raw_data = (onnx_bytes){t->double_data.data, 8 * t->double_data.n};
  else if (t->int64_data.n)
    t->raw_data = (onnx_bytes){(const char *)t->int64_data.data, 8 * t->int64_data.n};
  else return;
  t->float_data.n = t->double_data.n = t->int64_data.n = 0;
}

// Crops |t| to |dims|.
static bool crop(onnx_editor *e, onnx_tensor *t, const int64_t *dims) {
  make_raw(t);
  const size_t bytes = raw_bytes(t), rank = t->dims.n;
  if (bytes == 0) return false;
  int64_t n = 1;
  for (size_t k = 0; k < rank; k++) n *= dims[k];
  char *data = kiln_arena_zalloc(e->arena, (size_t)n * bytes + 1);
  for (int64_t i = 0; i < n; i++) {
    int64_t rest = i, from = 0, step = 1;
    for (size_t k = rank; k-- > 0; step *= t->dims.data[k]) {
      from += rest % dims[k] * step;
      rest /= dims[k];
    }
    memcpy(data + (size_t)i * bytes, t->raw_data.data + (size_t)from * bytes, bytes);
  }
  int64_t *own = KILN_NEW_ARRAY(e->arena, int64_t, rank);
  memcpy(own, dims, rank * sizeof *own);
  t->dims.data = own;
  t->raw_data = (onnx_bytes){data, (size_t)n * bytes};
  return true;
}

static bool is_shape(const onnx_tensor *t) {
  return t->data_type == 7 && t->dims.n <= 1 && elements(t) <= 8; // TensorProto.INT64
}

static bool exchange_numbers(onnx_editor *e, onnx_tensor *t, int64_t from, int64_t to) {
  make_raw(t);
  if (raw_bytes(t) != 8) return false;
  bool changed = false;
  char *data = kiln_arena_alloc(e->arena, t->raw_data.n + 1);
  memcpy(data, t->raw_data.data, t->raw_data.n);
  for (size_t i = 0; i < t->raw_data.n; i += 8) {
    int64_t value;
    memcpy(&value, data + i, 8);
    if (value != from) continue;
    memcpy(data + i, &to, 8);
    changed = true;
  }
  t->raw_data.data = data;
  return changed;
}

static bool shrink_tensor(onnx_editor *e, onnx_tensor *t, const onnx_edit *edit) {
  int64_t dims[16];
  bool changed = false;
  if (t->dims.n > KILN_LEN(dims)) return false;
  for (size_t k = 0; k < t->dims.n; k++) {
    dims[k] = t->dims.data[k] == edit->from ? edit->to : t->dims.data[k];
    changed |= dims[k] != t->dims.data[k];
  }
  if (edit->n && is_shape(t)) return exchange_numbers(e, t, edit->from, edit->to);
  return changed && crop(e, t, dims);
}

static bool shrink_info(onnx_editor *e, onnx_value_info *info, const onnx_edit *edit) {
  const onnx_shape *shape = info->type && info->type->tensor ? info->type->tensor->shape : NULL;
  int64_t dims[16];
  bool changed = false;
  if (!shape || shape->dims.n > KILN_LEN(dims)) return false;
  for (size_t k = 0; k < shape->dims.n; k++) {
    const onnx_dim *d = &shape->dims.data[k];
    if (!(d->has & ONNX_HAS_DIM_VALUE)) return false;
    dims[k] = d->value == edit->from ? edit->to : d->value;
    changed |= dims[k] != d->value;
  }
  if (changed)
    info->type = tensor_type(e->arena, info->type->tensor->elem_type, shape->dims.n, dims);
  return changed;
}

static onnx_tensor *own_initializers(onnx_editor *e, onnx_graph *g) {
  onnx_tensor *tensors = KILN_NEW_ARRAY(e->arena, onnx_tensor, g->initializers.n);
  memcpy(tensors, g->initializers.data, g->initializers.n * sizeof *tensors);
  return g->initializers.data = tensors;
}

// Removes declared extents of outputs; they follow from the rest.
static void forget_output_extents(onnx_editor *e, onnx_graph *g) {
  static const int64_t unknown[16] = {-1, -1, -1, -1, -1, -1, -1, -1,
                                      -1, -1, -1, -1, -1, -1, -1, -1};
  onnx_value_info *outputs = KILN_NEW_ARRAY(e->arena, onnx_value_info, g->outputs.n);
  for (size_t i = 0; i < g->outputs.n; i++) {
    outputs[i] = g->outputs.data[i];
    const onnx_tensor_type *t = outputs[i].type ? outputs[i].type->tensor : NULL;
    if (t && t->shape && t->shape->dims.n <= KILN_LEN(unknown))
      outputs[i].type = tensor_type(e->arena, t->elem_type, t->shape->dims.n, unknown);
  }
  g->outputs.data = outputs;
}

static bool shrink_extent(onnx_editor *e, onnx_graph *g, const onnx_edit *edit) {
  bool changed = false;
  onnx_value_info *inputs = KILN_NEW_ARRAY(e->arena, onnx_value_info, g->inputs.n);
  memcpy(inputs, g->inputs.data, g->inputs.n * sizeof *inputs);
  for (size_t i = 0; i < g->inputs.n; i++) changed |= shrink_info(e, &inputs[i], edit);
  g->inputs.data = inputs;
  onnx_tensor *tensors = own_initializers(e, g);
  for (size_t i = 0; i < g->initializers.n; i++) changed |= shrink_tensor(e, &tensors[i], edit);
  forget_output_extents(e, g);
  return changed;
}

enum { SMALL = 16 }; // elements of a constant that may be a shape and is cheap to keep

static bool free_initializer(onnx_editor *e, onnx_graph *g, size_t at) {
  const onnx_tensor gone = g->initializers.data[at];
  if (elements(&gone) <= SMALL) return false;
  onnx_tensor *tensors = own_initializers(e, g);
  memmove(tensors + at, tensors + at + 1, (g->initializers.n - at - 1) * sizeof *tensors);
  g->initializers.n--;
  const onnx_type *type = tensor_type(e->arena, gone.data_type, gone.dims.n, gone.dims.data);
  onnx_value_info info = {.name = gone.name, .type = KILN_NEW(e->arena, onnx_type)};
  *info.type = *type;
  add_info(e, &g->inputs.data, &g->inputs.n, info);
  return true;
}

static bool zero_initializer(onnx_editor *e, onnx_graph *g, size_t at) {
  onnx_tensor *t = &own_initializers(e, g)[at];
  make_raw(t);
  if (raw_bytes(t) == 0 || elements(t) <= SMALL) return false;
  char *zeros = kiln_arena_zalloc(e->arena, t->raw_data.n + 1);
  if (!memcmp(zeros, t->raw_data.data, t->raw_data.n)) return false;
  t->raw_data.data = zeros;
  return true;
}

static bool apply(onnx_editor *e, onnx_graph *g, const onnx_edit *edit) {
  switch (edit->kind) {
  case ONNX_EDIT_ONE_OUTPUT: return keep_outputs(e, g, edit->at, 1, true);
  case ONNX_EDIT_OUTPUTS: return keep_outputs(e, g, edit->at, edit->n, false);
  case ONNX_EDIT_NODES: return remove_nodes(e, g, edit->at, edit->n);
  case ONNX_EDIT_FLATTEN: return flatten(e, g, edit->at, edit->n);
  case ONNX_EDIT_OPERAND: return drop_operand(e, g, edit->at, edit->n);
  case ONNX_EDIT_ATTR: return drop_attr(e, g, edit->at, edit->n);
  case ONNX_EDIT_EXTENT: return shrink_extent(e, g, edit);
  case ONNX_EDIT_FREE: return free_initializer(e, g, edit->at);
  case ONNX_EDIT_ZERO: return zero_initializer(e, g, edit->at);
  }
  return false;
}

bool kiln_onnx_edit(onnx_editor *e, const onnx_graph *graph, const onnx_edit *edit,
                    onnx_graph *out) {
  *out = *graph;
  if (!apply(e, out, edit)) return false;
  drop_unused(e, out);
  return out->nodes.n > 0;
}

// --- queries ---

static int descending(const void *a, const void *b) {
  const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x < y) - (x > y);
}

static void note(int64_t extent, size_t room, int64_t *out, size_t *n) {
  for (size_t i = 0; i < *n; i++)
    if (out[i] == extent) return;
  if (extent > 1 && *n < room) out[(*n)++] = extent;
}

size_t kiln_onnx_extents(const onnx_graph *graph, size_t room, int64_t *out) {
  size_t n = 0;
  for (size_t i = 0; i < graph->inputs.n; i++) {
    const onnx_type *type = graph->inputs.data[i].type;
    const onnx_shape *shape = type && type->tensor ? type->tensor->shape : NULL;
    for (size_t k = 0; shape && k < shape->dims.n; k++)
      note(shape->dims.data[k].value, room, out, &n);
  }
  for (size_t i = 0; i < graph->initializers.n; i++)
    for (size_t k = 0; k < graph->initializers.data[i].dims.n; k++)
      note(graph->initializers.data[i].dims.data[k], room, out, &n);
  qsort(out, n, sizeof *out, descending);
  return n;
}

void kiln_onnx_expose_values(kiln_ctx *cx, onnx_graph *graph) {
  onnx_editor e = {.cx = cx, .arena = &cx->perm};
  name_set are = name_set_make(&e);
  kiln_map_init(&e.types, e.arena);
  know_all(&e, graph->value_infos.data, graph->value_infos.n);
  for (size_t i = 0; i < graph->outputs.n; i++) add_name(&are, graph->outputs.data[i].name);
  for (size_t i = 0; i < graph->nodes.n; i++)
    for (size_t k = 0; k < graph->nodes.data[i].outputs.n; k++) {
      const onnx_bytes name = graph->nodes.data[i].outputs.data[k];
      if (name.n == 0 || has_name(&are, name)) continue;
      add_name(&are, name);
      add_info(&e, &graph->outputs.data, &graph->outputs.n, info_of(&e, name));
    }
}
