// SPDX-License-Identifier: Apache-2.0
// A graph of ONNX Runtime, read once into arrays: nodes in topological order, values by number.
#ifndef KILN_ORT_GRAPH_H
#define KILN_ORT_GRAPH_H

#include "host.h"

typedef struct ep_value {
  const char *name;
  const ort_value_info *info;
  int element;                 // ONNX's element type number; 0: no tensor
  int rank;                    // -1: unknown
  const int64_t *dims;         // [rank]; -1: unknown
  const char **dim_names;      // [rank]; "": unnamed
  int producer;                // a node; -1: none in this graph
  bool is_constant, is_result; // an initializer that cannot be overridden; an output of the graph
} ep_value;

typedef struct ep_node {
  const ort_node *ort;
  const char *name, *op, *domain;
  int n_inputs, n_outputs, n_captures; // |n_captures|: values that its sub-graphs capture
  int *values;         // [n_inputs + n_captures + n_outputs], in that order; -1: absent
  const char *refused; // why Kiln does not take it; NULL: it does
  int level, region;   // see partition.h
} ep_node;

typedef struct ep_graph {
  const ep_host *host;
  const ort_graph *ort;
  ep_arena arena; // of everything here
  int n_nodes, n_values;
  ep_node *nodes;
  ep_value *values;
  ep_names names; // of the values
} ep_graph;

// needs: |g| zeroed; ep_graph_deinit frees it after a failure, too
ort_status *ep_graph_read(ep_graph *g, const ep_host *host, const ort_graph *ort);
void ep_graph_deinit(ep_graph *g);

// Value |k| that a node reads, NULL if it is absent; and that it writes.
static inline ep_value *ep_node_input(const ep_graph *g, const ep_node *n, int k) {
  return n->values[k] < 0 ? NULL : &g->values[n->values[k]];
}
static inline int ep_node_n_read(const ep_node *n) { return n->n_inputs + n->n_captures; }

// Reads type and shape to |io|, in |arena|. Element type 0: no tensor.
ort_status *ep_type_read(const ep_host *h, ep_arena *arena, const ort_type *type, ep_value *io);
int ep_element_of_onnx(int ort_element); // ONNX's number of an element type of ONNX Runtime

#endif
