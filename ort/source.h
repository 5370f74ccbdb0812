// SPDX-License-Identifier: Apache-2.0
// A part of a graph as an ONNX model in memory, for Kiln to read. Weights are external data at the
// addresses where ONNX Runtime has them; nothing of them is copied.
#ifndef KILN_ORT_SOURCE_H
#define KILN_ORT_SOURCE_H

#include "graph.h"
#include "kiln/compile.h"

// Nodes in topological order, and the values that pass its border, by number.
typedef struct ep_part {
  int n_nodes, n_inputs, n_outputs;
  int *nodes, *inputs, *outputs;
} ep_part;

typedef struct ep_source {
  ep_buffer model;         // a ModelProto
  int n_files;             // the model itself, and weights
  kiln_memory_file *files; // [n_files], in the arena; names are made up
  const char **weights;    // [n_files] the names of the values; that of the model is NULL
} ep_source;

#define EP_MODEL_NAME "sub-graph.onnx"

// A node's name in the model is its number in |g|, ':' and its own name, so that messages tell it.
//
// needs: |out| zeroed; ep_source_deinit frees it after a failure, too
// gives: *out_why, and *out_node, the first node that cannot be written; NULL: all is
ort_status *ep_source_write(const ep_graph *g, const ep_part *part, ep_arena *arena, ep_source *out,
                            const char **out_why, int *out_node);
// The number that a place in a message tells; -1: none.
int ep_source_node_of(const char *place);
void ep_source_deinit(ep_source *source);

#endif
