// The graph level: ONNX operators over values, as read from a model. It has the operators' names,
// but no semantics.
//
// Nodes are in topological order; everything lives in the context's perm arena, constant data in
// the mapped files, which must outlive the graph.
#ifndef KILN_IR_GRAPH_H
#define KILN_IR_GRAPH_H

#include "ir/expr.h"

#define KILN_MAX_RANK 8

// A constant tensor: row-major little-endian bytes, unaligned, borrowed.
typedef struct kiln_const {
  kiln_dtype dtype;
  int rank;
  int64_t shape[KILN_MAX_RANK];
  const void *data;
  size_t bytes;
} kiln_const;

typedef enum kiln_attr_kind {
  KILN_ATTR_INT,
  KILN_ATTR_FLOAT,
  KILN_ATTR_STRING,
  KILN_ATTR_TENSOR,
  KILN_ATTR_INTS,
  KILN_ATTR_FLOATS,
  KILN_ATTR_STRINGS,
  KILN_ATTR_GRAPH
} kiln_attr_kind;

typedef struct kiln_graph kiln_graph;
typedef struct kiln_attr {
  kiln_symbol name;
  kiln_attr_kind kind;
  int n; // length of the lists
  union {
    int64_t i;
    float f;
    kiln_symbol s;
    const kiln_const *tensor;
    const int64_t *ints;
    const float *floats;
    const kiln_symbol *strings;
    const kiln_graph *graph;
  } u;
} kiln_attr;

typedef struct kiln_value {
  int id;
  kiln_symbol name;
  bool has_type; // dtype is known (declared in the file)
  kiln_dtype dtype;
  const char *list; // type of a value that is not a tensor: "sequence(f32)", "optional(f32)", ...;
                    // NULL: a tensor
  bool has_shape; // rank and shape are known; an unknown extent is a VAR named after the value and
                  // axis
  int rank;
  const kiln_expr **shape;    // [rank]; constants or expressions over named dimensions
  const kiln_const *constant; // of an initializer; NULL otherwise
  const kiln_const
      *initial; // of an input: its default value, an initializer of the same name; NULL: the input
                // is required
  int producer; // node id; -1 for inputs and initializers
} kiln_value;

typedef struct kiln_node {
  int id;
  kiln_symbol name;       // "" if the file has none
  kiln_symbol op, domain; // domain "" is ai.onnx
  int64_t opset;          // opset version of its domain
  int n_inputs, n_outputs;
  int *inputs;  // value ids; -1 is an omitted optional input
  int *outputs; // value ids; -1 is an unwanted optional output
  int n_attrs;
  kiln_attr *attrs;
} kiln_node;

typedef struct kiln_opset {
  kiln_symbol domain;
  int64_t version;
} kiln_opset;

struct kiln_graph {
  kiln_symbol name;
  int64_t ir_version;
  kiln_symbol producer;
  int n_opsets;
  kiln_opset *opsets;
  int n_values, n_nodes, n_inputs, n_outputs;
  kiln_value **values;
  kiln_node **nodes;
  int *inputs;          // value ids, without initializers
  int *outputs;         // value ids
  int64_t most_extent;  // assumed of extents that only the run knows; 0: the default
  bool multiplies_bits; // the machine multiplies bytes by numbers of 4 bits: rows may be quantised
};

const kiln_attr *kiln_node_attr(const kiln_node *n, kiln_symbol name); // NULL when absent
// "MODEL.onnx: node 17 "layer1.conv2" (Conv)": the place of messages about a node; lives in |cx|'s
// perm arena.
const char *kiln_node_place(kiln_ctx *cx, const kiln_graph *g, const kiln_node *n);
void kiln_graph_print(kiln_ctx *cx, const kiln_graph *g,
                      kiln_text *out); // one line a node, for --dump=graph

#endif
