// SPDX-License-Identifier: Apache-2.0
// Reading a graph through ONNX Runtime's interface: counts the values, then reads the nodes, and
// each value where it first occurs.
#include "graph.h"

#include <string.h>

int ep_element_of_onnx(int element) {
  return element == ORT_UINT2 ? 25 : element == ORT_INT2 ? 26 : element == ORT_E8M0 ? 24 : element;
}

ort_status *ep_type_read(const ep_host *h, ep_arena *arena, const ort_type *type, ep_value *io) {
  const ort_tensor_type *tensor = NULL;
  ort_kind kind = ORT_UNKNOWN;
  size_t rank = 0;
  io->element = 0;
  io->rank = -1;
  if (!type) return NULL;
  EP_TRY(h->api->type_kind(type, &kind));
  if (kind != ORT_TENSOR) return NULL;
  EP_TRY(h->api->type_as_tensor(type, &tensor));
  if (!tensor) return NULL;
  EP_TRY(h->api->tensor_element(tensor, &io->element));
  io->element = ep_element_of_onnx(io->element);
  EP_TRY(h->api->tensor_rank(tensor, &rank));
  if (rank == 0 && h->tells_shape && !h->api->tensor_has_shape(tensor)) return NULL;
  int64_t *dims = ep_alloc(arena, rank, sizeof *dims);
  io->dim_names = ep_alloc(arena, rank, sizeof *io->dim_names);
  if (!dims || !io->dim_names) return ep_no_memory(h);
  EP_TRY(h->api->tensor_dims(tensor, dims, rank));
  EP_TRY(h->api->tensor_dim_names(tensor, io->dim_names, rank));
  io->dims = dims;
  io->rank = (int)rank;
  return NULL;
}

// The number of the value |info|; -1 for NULL.
static ort_status *find_value(ep_graph *g, const ort_value_info *info, int *out) {
  const ort_api *api = g->host->api;
  const char *name = NULL;
  const ort_type *type = NULL;
  const int before = g->n_values;
  *out = -1;
  if (!info) return NULL;
  EP_TRY(api->info_name(info, &name));
  if (!*name) return NULL;
  *out = ep_names_put(&g->names, &g->arena, name, &g->n_values);
  if (*out < 0) return ep_no_memory(g->host);
  if (*out < before) return NULL;
  ep_value *v = &g->values[*out];
  *v = (ep_value){.name = name, .info = info, .producer = -1};
  EP_TRY(api->info_is_constant(info, &v->is_constant));
  EP_TRY(api->info_is_output(info, &v->is_result));
  EP_TRY(api->info_type(info, &type));
  return ep_type_read(g->host, &g->arena, type, v);
}

static ort_status *count(const ep_host *h, ep_node *n) {
  size_t inputs = 0, captures = 0, outputs = 0;
  EP_TRY(h->api->n_node_inputs(n->ort, &inputs));
  EP_TRY(h->api->n_node_captures(n->ort, &captures));
  EP_TRY(h->api->n_node_outputs(n->ort, &outputs));
  n->n_inputs = (int)inputs;
  n->n_captures = (int)captures;
  n->n_outputs = (int)outputs;
  EP_TRY(h->api->node_name(n->ort, &n->name));
  EP_TRY(h->api->node_operator(n->ort, &n->op));
  return h->api->node_domain(n->ort, &n->domain);
}

static ort_status *read_node(ep_graph *g, ep_node *n, int number) {
  const ort_api *api = g->host->api;
  const int n_read = ep_node_n_read(n), n_all = n_read + n->n_outputs;
  n->values = ep_alloc(&g->arena, (size_t)n_all, sizeof *n->values);
  const ort_value_info **infos = ep_alloc(&g->arena, (size_t)n_all, sizeof *infos);
  if (!n->values || !infos) return ep_no_memory(g->host);
  EP_TRY(api->node_inputs(n->ort, infos, (size_t)n->n_inputs));
  EP_TRY(api->node_captures(n->ort, infos + n->n_inputs, (size_t)n->n_captures));
  EP_TRY(api->node_outputs(n->ort, infos + n_read, (size_t)n->n_outputs));
  for (int i = 0; i < n_all; i++) EP_TRY(find_value(g, infos[i], &n->values[i]));
  for (int i = n_read; i < n_all; i++)
    if (n->values[i] >= 0) g->values[n->values[i]].producer = number;
  return NULL;
}

ort_status *ep_graph_read(ep_graph *g, const ep_host *host, const ort_graph *ort) {
  size_t n = 0, n_values = 0;
  g->host = host;
  g->ort = ort;
  EP_TRY(host->api->n_graph_nodes(ort, &n));
  const ort_node **nodes = ep_alloc(&g->arena, n, sizeof *nodes);
  g->nodes = ep_alloc(&g->arena, n, sizeof *g->nodes);
  if (!nodes || !g->nodes) return ep_no_memory(host);
  EP_TRY(host->api->graph_nodes(ort, nodes, n));
  g->n_nodes = (int)n;
  for (size_t i = 0; i < n; i++) {
    g->nodes[i].ort = nodes[i];
    EP_TRY(count(host, &g->nodes[i]));
    n_values += (size_t)(ep_node_n_read(&g->nodes[i]) + g->nodes[i].n_outputs);
  }
  g->values = ep_alloc(&g->arena, n_values, sizeof *g->values);
  if (!g->values) return ep_no_memory(host);
  for (size_t i = 0; i < n; i++) EP_TRY(read_node(g, &g->nodes[i], (int)i));
  return NULL;
}

void ep_graph_deinit(ep_graph *g) { ep_arena_deinit(&g->arena); }
