// SPDX-License-Identifier: Apache-2.0
// A part of a graph as an ONNX model in memory, which Kiln reads. Weights are external data at the
// addresses where ONNX Runtime has them, and are not copied.
#ifndef KILN_ORT_SOURCE_H
#define KILN_ORT_SOURCE_H

#include "graph.h"
#include "kiln/compile.h"

// Nodes in topological order, and the values at its border, by number.
typedef struct ep_part {
  int n_nodes, n_inputs, n_outputs;
  int *nodes, *inputs, *outputs;
} ep_part;

typedef struct ep_source {
  ep_buffer model;         // a ModelProto
  int n_files;             // the model, then weights
  kiln_memory_file *files; // [n_files], in the arena; names are invented
  const char **weights;    // [n_files] names of the values; NULL for the model
} ep_source;

#define EP_MODEL_NAME "sub-graph.onnx"

// A node's name in the model is its number in |g|, ':' and its own name, by which messages are
// mapped back.
//
// needs: |out| zeroed; ep_source_deinit also after a failure
// gives: *out_why, and *out_node, the first node that cannot be written; NULL if all can
ort_status *ep_source_write(const ep_graph *g, const ep_part *part, ep_arena *arena, ep_source *out,
                            const char **out_why, int *out_node);
// The node's number in the place of a message; -1 if there is none.
int ep_source_node_of(const char *place);
void ep_source_deinit(ep_source *source);

#endif
