// SPDX-License-Identifier: Apache-2.0
// Writes onnx.proto's messages; field numbers are the standard's.
#include "source.h"
#include "proto.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MODEL_IR = 1, MODEL_GRAPH = 7, MODEL_OPSETS = 8, OPSET_DOMAIN = 1, OPSET_VERSION = 2 };
enum { GRAPH_NODES = 1, GRAPH_NAME = 2, GRAPH_WEIGHTS = 5, GRAPH_INPUTS = 11, GRAPH_OUTPUTS = 12 };
enum { NODE_INPUTS = 1, NODE_OUTPUTS, NODE_NAME, NODE_OP, NODE_ATTRIBUTES, NODE_DOMAIN = 7 };
enum { ATTR_NAME = 1, ATTR_FLOAT, ATTR_INT, ATTR_TEXT, ATTR_TENSOR, ATTR_GRAPH, ATTR_FLOATS };
enum { ATTR_INTS = 8, ATTR_TEXTS = 9, ATTR_TYPE = 20 };
enum { TENSOR_DIMS = 1, TENSOR_ELEMENT = 2, TENSOR_NAME = 8, TENSOR_RAW = 9 };
enum { TENSOR_EXTERNAL = 13, TENSOR_LOCATION = 14, IS_EXTERNAL = 1, ENTRY_KEY = 1, ENTRY_VALUE };
enum { VALUE_NAME = 1, VALUE_TYPE = 2, TYPE_TENSOR = 1, TYPE_ELEMENT = 1, TYPE_SHAPE = 2 };
enum { SHAPE_DIM = 1, DIM_VALUE = 1, DIM_NAME = 2 };

enum { INLINE_BYTES = 64, MAX_DEPTH = 64 }; // smaller weights are stored inline

typedef struct writer {
  const ep_host *h;
  ep_arena *arena;
  ep_buffer *b;
  ep_source *s;
  int depth;       // nesting of sub-graphs
  const char *why; // why the node cannot be written
} writer;

// --- tensors ---

static ort_status *put_elements(writer *w, const char *location, const char *value_name,
                                const void *data, size_t n) {
  if (!location || n <= INLINE_BYTES) {
    ep_put_bytes(w->b, TENSOR_RAW, data, n);
    return NULL;
  }
  ep_put_int(w->b, TENSOR_LOCATION, IS_EXTERNAL);
  const size_t entry = ep_put_begin(w->b, TENSOR_EXTERNAL);
  ep_put_text(w->b, ENTRY_KEY, "location");
  ep_put_text(w->b, ENTRY_VALUE, location);
  ep_put_end(w->b, entry);
  w->s->files[w->s->n_files] = (kiln_memory_file){location, data, n};
  w->s->weights[w->s->n_files++] = value_name;
  return NULL;
}

static ort_status *put_type(writer *w, const ort_tensor_type *type) {
  size_t rank = 0;
  int element = 0;
  EP_TRY(w->h->api->tensor_element(type, &element));
  EP_TRY(w->h->api->tensor_rank(type, &rank));
  int64_t *dims = ep_alloc(w->arena, rank, sizeof *dims);
  if (!dims) return ep_no_memory(w->h);
  EP_TRY(w->h->api->tensor_dims(type, dims, rank));
  if (element == ORT_STRING) w->why = "a tensor of texts";
  for (size_t i = 0; i < rank; i++) ep_put_int(w->b, TENSOR_DIMS, dims[i]);
  ep_put_int(w->b, TENSOR_ELEMENT, ep_element_of_onnx(element));
  return NULL;
}

// Writes a tensor with its elements in the message, or as external data at |location|.
static ort_status *put_tensor(writer *w, int field, const char *name, const ort_value *value,
                              const char *location) {
  ort_tensor_type *type = NULL;
  const void *data = NULL;
  size_t n = 0;
  const size_t at = ep_put_begin(w->b, field);
  ep_put_text(w->b, TENSOR_NAME, name);
  EP_TRY(w->h->api->value_type(value, &type));
  ort_status *status = put_type(w, type);
  w->h->api->release_tensor_type(type);
  EP_TRY(status);
  if (!w->why) {
    EP_TRY(w->h->api->value_bytes(value, &n));
    EP_TRY(w->h->api->value_data(value, &data));
    EP_TRY(put_elements(w, location, name, data, n));
  }
  ep_put_end(w->b, at);
  return NULL;
}

static ort_status *put_initializer(writer *w, const char *name, const ort_value_info *info,
                                   const char *location) {
  const ort_value *value = NULL;
  EP_TRY(w->h->api->info_initializer(info, &value));
  if (!value) return ep_fail(w->h, ORT_INVALID_GRAPH, "Kiln: initializer %s has no value", name);
  return put_tensor(w, GRAPH_WEIGHTS, name, value, location);
}

// --- attributes ---

static ort_status *read_list(writer *w, const ort_attribute *a, ort_attribute_type type, void **out,
                             size_t *out_n) {
  *out_n = 0; // a status that the buffer is too small comes with the size
  ort_status *sized = w->h->api->read_attribute(a, type, NULL, 0, out_n);
  if (sized) w->h->api->release_status(sized);
  *out = ep_alloc(w->arena, *out_n, 1);
  if (!*out) return ep_no_memory(w->h);
  return *out_n ? w->h->api->read_attribute(a, type, *out, *out_n, out_n) : NULL;
}

static ort_status *put_list(writer *w, const ort_attribute *a, ort_attribute_type type) {
  void *data = NULL;
  size_t n = 0;
  EP_TRY(read_list(w, a, type, &data, &n));
  const char *text = data, *end = text + n;
  if (type == ORT_ATTR_INTS)
    for (size_t i = 0; i < n / sizeof(int64_t); i++)
      ep_put_int(w->b, ATTR_INTS, ((const int64_t *)data)[i]);
  if (type == ORT_ATTR_FLOATS)
    for (size_t i = 0; i < n / sizeof(float); i++)
      ep_put_float(w->b, ATTR_FLOATS, ((const float *)data)[i]);
  if (type == ORT_ATTR_STRING) ep_put_bytes(w->b, ATTR_TEXT, data, n);
  for (; type == ORT_ATTR_STRINGS && text < end; text += strnlen(text, (size_t)(end - text)) + 1)
    ep_put_bytes(w->b, ATTR_TEXTS, text, strnlen(text, (size_t)(end - text)));
  return NULL;
}

static ort_status *put_number(writer *w, const ort_attribute *a, ort_attribute_type type) {
  int64_t i = 0;
  float f = 0;
  size_t n = 0;
  if (type == ORT_ATTR_INT) {
    EP_TRY(w->h->api->read_attribute(a, type, &i, sizeof i, &n));
    ep_put_int(w->b, ATTR_INT, i);
  } else {
    EP_TRY(w->h->api->read_attribute(a, type, &f, sizeof f, &n));
    ep_put_float(w->b, ATTR_FLOAT, f);
  }
  return NULL;
}

static ort_status *put_tensor_attribute(writer *w, const ort_attribute *a) {
  ort_value *value = NULL;
  EP_TRY(w->h->api->attribute_tensor(a, &value));
  ort_status *status = put_tensor(w, ATTR_TENSOR, "", value, NULL);
  w->h->api->release_value(value);
  return status;
}

static ort_status *put_attribute(writer *w, const ort_attribute *a) {
  static const int onnx_types[] = {
      [ORT_ATTR_INT] = 2,    [ORT_ATTR_INTS] = 7,    [ORT_ATTR_FLOAT] = 1, [ORT_ATTR_FLOATS] = 6,
      [ORT_ATTR_STRING] = 3, [ORT_ATTR_STRINGS] = 8, [ORT_ATTR_GRAPH] = 5, [ORT_ATTR_TENSOR] = 4};
  ort_attribute_type type = ORT_ATTR_UNDEFINED;
  const char *name = NULL;
  EP_TRY(w->h->api->attribute_type(a, &type));
  EP_TRY(w->h->api->attribute_name(a, &name));
  if (type == ORT_ATTR_GRAPH) return NULL; // written by put_graphs
  if (type <= ORT_ATTR_UNDEFINED || type > ORT_ATTR_TENSOR) {
    w->why = "an attribute of a type that ONNX Runtime does not hand on";
    return NULL;
  }
  const size_t at = ep_put_begin(w->b, NODE_ATTRIBUTES);
  ep_put_text(w->b, ATTR_NAME, name);
  ep_put_int(w->b, ATTR_TYPE, onnx_types[type]);
  if (type == ORT_ATTR_TENSOR) EP_TRY(put_tensor_attribute(w, a));
  else if (type == ORT_ATTR_INT || type == ORT_ATTR_FLOAT) EP_TRY(put_number(w, a, type));
  else EP_TRY(put_list(w, a, type));
  ep_put_end(w->b, at);
  return NULL;
}

static ort_status *put_attributes(writer *w, const ort_node *node) {
  size_t n = 0;
  EP_TRY(w->h->api->n_node_attributes(node, &n));
  const ort_attribute **all = ep_alloc(w->arena, n, sizeof *all);
  if (!all) return ep_no_memory(w->h);
  EP_TRY(w->h->api->node_attributes(node, all, n));
  for (size_t i = 0; i < n && !w->why; i++) EP_TRY(put_attribute(w, all[i]));
  return NULL;
}

// --- values and nodes ---

// Writes a value with a shape, as of an input.
static void put_value(writer *w, int field, const ep_value *v, bool has_shape) {
  const size_t value = ep_put_begin(w->b, field);
  ep_put_text(w->b, VALUE_NAME, v->name);
  if (v->element) {
    const size_t type = ep_put_begin(w->b, VALUE_TYPE);
    const size_t tensor = ep_put_begin(w->b, TYPE_TENSOR);
    ep_put_int(w->b, TYPE_ELEMENT, v->element);
    if (has_shape && v->rank >= 0) {
      const size_t shape = ep_put_begin(w->b, TYPE_SHAPE);
      for (int i = 0; i < v->rank; i++) {
        const size_t dim = ep_put_begin(w->b, SHAPE_DIM);
        if (v->dims[i] >= 0) ep_put_int(w->b, DIM_VALUE, v->dims[i]);
        else if (v->dim_names[i] && *v->dim_names[i]) ep_put_text(w->b, DIM_NAME, v->dim_names[i]);
        ep_put_end(w->b, dim);
      }
      ep_put_end(w->b, shape);
    }
    ep_put_end(w->b, tensor);
    ep_put_end(w->b, type);
  }
  ep_put_end(w->b, value);
}

static ort_status *put_infos(writer *w, int field, const ort_value_info *const *infos, size_t n) {
  for (size_t i = 0; i < n; i++) {
    const char *name = "";
    if (infos[i]) EP_TRY(w->h->api->info_name(infos[i], &name));
    ep_put_text(w->b, field, name);
  }
  return NULL;
}

static ort_status *put_graphs(writer *w, const ort_node *node, int number);

static ort_status *put_node(writer *w, const ort_node *node, int number) {
  const ort_api *api = w->h->api;
  const char *name = NULL, *op = NULL, *domain = NULL;
  size_t n_in = 0, n_out = 0;
  EP_TRY(api->n_node_inputs(node, &n_in));
  EP_TRY(api->n_node_outputs(node, &n_out));
  const ort_value_info **in = ep_alloc(w->arena, n_in, sizeof *in);
  const ort_value_info **out = ep_alloc(w->arena, n_out, sizeof *out);
  EP_TRY(api->node_name(node, &name));
  EP_TRY(api->node_operator(node, &op));
  EP_TRY(api->node_domain(node, &domain));
  char *numbered = ep_text(w->arena, "%d:%s", number, name);
  if (!in || !out || !numbered) return ep_no_memory(w->h);
  EP_TRY(api->node_inputs(node, in, n_in));
  EP_TRY(api->node_outputs(node, out, n_out));
  const size_t at = ep_put_begin(w->b, GRAPH_NODES);
  EP_TRY(put_infos(w, NODE_INPUTS, in, n_in));
  EP_TRY(put_infos(w, NODE_OUTPUTS, out, n_out));
  ep_put_text(w->b, NODE_NAME, numbered);
  ep_put_text(w->b, NODE_OP, op);
  if (*domain) ep_put_text(w->b, NODE_DOMAIN, domain);
  EP_TRY(put_attributes(w, node));
  EP_TRY(put_graphs(w, node, number));
  ep_put_end(w->b, at);
  return NULL;
}

// --- graphs ---

static ort_status *put_ports(writer *w, int field, const ort_value_info *const *infos, size_t n) {
  for (size_t i = 0; i < n; i++) {
    ep_value v = {.name = ""};
    const ort_type *type = NULL;
    EP_TRY(w->h->api->info_name(infos[i], &v.name));
    EP_TRY(w->h->api->info_type(infos[i], &type));
    EP_TRY(ep_type_read(w->h, w->arena, type, &v));
    put_value(w, field, &v, true);
  }
  return NULL;
}

static ort_status *put_inner(writer *w, const ort_graph *g, int number) {
  const ort_api *api = w->h->api;
  size_t n_nodes = 0, n_in = 0, n_out = 0, n_weights = 0;
  EP_TRY(api->n_graph_nodes(g, &n_nodes));
  EP_TRY(api->n_graph_inputs(g, &n_in));
  EP_TRY(api->n_graph_outputs(g, &n_out));
  EP_TRY(api->n_graph_initializers(g, &n_weights));
  const ort_node **nodes = ep_alloc(w->arena, n_nodes, sizeof *nodes);
  const ort_value_info **infos = ep_alloc(w->arena, n_in + n_out + n_weights, sizeof *infos);
  if (!nodes || !infos) return ep_no_memory(w->h);
  EP_TRY(api->graph_nodes(g, nodes, n_nodes));
  EP_TRY(api->graph_inputs(g, infos, n_in));
  EP_TRY(api->graph_outputs(g, infos + n_in, n_out));
  EP_TRY(api->graph_initializers(g, infos + n_in + n_out, n_weights));
  for (size_t i = 0; i < n_nodes && !w->why; i++) EP_TRY(put_node(w, nodes[i], number));
  EP_TRY(put_ports(w, GRAPH_INPUTS, infos, n_in));
  EP_TRY(put_ports(w, GRAPH_OUTPUTS, infos + n_in, n_out));
  for (size_t i = n_in + n_out; i < n_in + n_out + n_weights && !w->why; i++) {
    const char *name = NULL;
    EP_TRY(api->info_name(infos[i], &name));
    EP_TRY(put_initializer(w, name, infos[i], NULL));
  }
  return NULL;
}

// Writes the sub-graphs of a node as attributes.
static ort_status *put_graphs(writer *w, const ort_node *node, int number) {
  size_t n = 0;
  EP_TRY(w->h->api->n_node_graphs(node, &n));
  const ort_graph **graphs = ep_alloc(w->arena, n, sizeof *graphs);
  const char **names = ep_alloc(w->arena, n, sizeof *names);
  if (!graphs || !names) return ep_no_memory(w->h);
  if (n > 0) EP_TRY(w->h->api->node_graphs(node, graphs, n, names));
  if (n > 0 && ++w->depth > MAX_DEPTH) w->why = "sub-graphs that are nested too deep";
  for (size_t i = 0; i < n && !w->why; i++) {
    const size_t attribute = ep_put_begin(w->b, NODE_ATTRIBUTES);
    ep_put_text(w->b, ATTR_NAME, names[i]);
    ep_put_int(w->b, ATTR_TYPE, 5);
    const size_t graph = ep_put_begin(w->b, ATTR_GRAPH);
    ep_put_text(w->b, GRAPH_NAME, names[i]);
    EP_TRY(put_inner(w, graphs[i], number));
    ep_put_end(w->b, graph);
    ep_put_end(w->b, attribute);
  }
  if (n > 0) w->depth--;
  return NULL;
}

static ort_status *put_opsets(writer *w, const ort_graph *g) {
  int64_t ir = 0;
  size_t n = 0;
  EP_TRY(w->h->api->graph_ir_version(g, &ir));
  EP_TRY(w->h->api->n_opsets(g, &n));
  const char **domains = ep_alloc(w->arena, n, sizeof *domains);
  int64_t *versions = ep_alloc(w->arena, n, sizeof *versions);
  if (!domains || !versions) return ep_no_memory(w->h);
  EP_TRY(w->h->api->opsets(g, domains, versions, n));
  ep_put_int(w->b, MODEL_IR, ir);
  for (size_t i = 0; i < n; i++) {
    const size_t at = ep_put_begin(w->b, MODEL_OPSETS);
    ep_put_text(w->b, OPSET_DOMAIN, domains[i]);
    ep_put_int(w->b, OPSET_VERSION, versions[i]);
    ep_put_end(w->b, at);
  }
  return NULL;
}

// Writes the initializers that nodes of the part read, each once.
static ort_status *put_weights(writer *w, const ep_graph *g, const ep_part *part, int *out_node) {
  bool *seen = ep_alloc(w->arena, (size_t)g->n_values, sizeof *seen);
  w->s->files = ep_alloc(w->arena, (size_t)g->n_values + 1, sizeof *w->s->files);
  w->s->weights = ep_alloc(w->arena, (size_t)g->n_values + 1, sizeof *w->s->weights);
  if (!seen || !w->s->files || !w->s->weights) return ep_no_memory(w->h);
  w->s->n_files = 1; // the model
  for (int i = 0; i < part->n_nodes && !w->why; i++) {
    const ep_node *n = &g->nodes[part->nodes[i]];
    *out_node = part->nodes[i];
    for (int k = 0; k < ep_node_n_read(n) && !w->why; k++) {
      const ep_value *v = ep_node_input(g, n, k);
      if (!v || !v->is_constant || seen[v - g->values]) continue;
      seen[v - g->values] = true;
      const char *location = ep_text(w->arena, "weight %d", (int)(v - g->values));
      if (!location) return ep_no_memory(w->h);
      EP_TRY(put_initializer(w, v->name, v->info, location));
    }
  }
  return NULL;
}

ort_status *ep_source_write(const ep_graph *g, const ep_part *part, ep_arena *arena, ep_source *out,
                            const char **out_why, int *out_node) {
  writer w = {.h = g->host, .arena = arena, .b = &out->model, .s = out};
  *out_why = NULL;
  EP_TRY(put_opsets(&w, g->ort));
  const size_t graph = ep_put_begin(w.b, MODEL_GRAPH);
  ep_put_text(w.b, GRAPH_NAME, "sub-graph");
  EP_TRY(put_weights(&w, g, part, out_node));
  for (int i = 0; i < part->n_nodes && !w.why; i++) {
    *out_node = part->nodes[i];
    EP_TRY(put_node(&w, g->nodes[part->nodes[i]].ort, part->nodes[i]));
  }
  *out_why = w.why;
  if (w.why) return NULL;
  for (int i = 0; i < part->n_inputs; i++)
    put_value(&w, GRAPH_INPUTS, &g->values[part->inputs[i]], true);
  for (int i = 0; i < part->n_outputs; i++)
    put_value(&w, GRAPH_OUTPUTS, &g->values[part->outputs[i]], false);
  ep_put_end(w.b, graph);
  if (w.b->is_lost) return ep_no_memory(w.h);
  out->files[0] = (kiln_memory_file){EP_MODEL_NAME, w.b->data, w.b->n};
  return NULL;
}

int ep_source_node_of(const char *place) {
  const char *node = place ? strstr(place, ": node ") : NULL;
  const char *name = node ? strchr(node, '"') : NULL;
  int number = -1;
  return name && sscanf(name, "\"%d:", &number) == 1 ? number : -1;
}

void ep_source_deinit(ep_source *source) { ep_buffer_deinit(&source->model); }
