// SPDX-License-Identifier: Apache-2.0
// A graph of ONNX Runtime, read once: nodes in topological order and values by number, so that what
// may be taken is decided over arrays.
#ifndef KILN_ORT_GRAPH_H
#define KILN_ORT_GRAPH_H

#include "host.h"

typedef struct ep_value {
  const char *name;
  const ort_value_info *info;
  int element;                 // ONNX's number of the type of its elements; 0: it is no tensor
  int rank;                    // -1: not known
  const int64_t *dims;         // [rank]; -1: not known
  const char **dim_names;      // [rank]; "": it has none
  int producer;                // a node; -1: none of this graph
  bool is_constant, is_result; // an initializer that nothing replaces; of the graph
} ep_value;

typedef struct ep_node {
  const ort_node *ort;
  const char *name, *op, *domain;
  int n_inputs, n_outputs, n_captures; // the last are values that its sub-graphs take from around
  int *values;         // [n_inputs + n_captures + n_outputs]: values in that order; -1: absent
  const char *refused; // why it is not Kiln's; NULL: it is
  int level, region;   // see partition.h
} ep_node;

typedef struct ep_graph {
  const ep_host *host;
  const ort_graph *ort;
  ep_arena arena; // of all of this
  int n_nodes, n_values;
  ep_node *nodes;
  ep_value *values;
  ep_names names; // of the values
} ep_graph;

// needs: |g| zeroed; ep_graph_deinit frees it after a failure, too
ort_status *ep_graph_read(ep_graph *g, const ep_host *host, const ort_graph *ort);
void ep_graph_deinit(ep_graph *g);

// Value |k| of a node that it reads, NULL where that is absent; and of what it writes.
static inline ep_value *ep_node_input(const ep_graph *g, const ep_node *n, int k) {
  return n->values[k] < 0 ? NULL : &g->values[n->values[k]];
}
static inline int ep_node_n_read(const ep_node *n) { return n->n_inputs + n->n_captures; }

// The type and shape that |type| says, in |arena|. A type that is no tensor has element 0.
ort_status *ep_type_read(const ep_host *h, ep_arena *arena, const ort_type *type, ep_value *io);
int ep_element_of_onnx(int ort_element); // ONNX's number of an element type of ONNX Runtime

#endif
