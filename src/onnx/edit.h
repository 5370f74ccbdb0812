// Edits that shrink a graph's message; each gives a new graph that shares unchanged parts.
#ifndef KILN_ONNX_EDIT_H
#define KILN_ONNX_EDIT_H

#include "onnx/reduce.h"

typedef enum onnx_edit_kind {
  ONNX_EDIT_ONE_OUTPUT, // keep output |at| only
  ONNX_EDIT_OUTPUTS,    // remove |n| outputs from |at| on
  ONNX_EDIT_NODES,      // remove |n| nodes from |at| on; results that others read become inputs
  ONNX_EDIT_FLATTEN,    // replace node |at| by the sub-graph in its attribute |n|
  ONNX_EDIT_OPERAND,    // remove operand |n| of node |at|
  ONNX_EDIT_ATTR,       // remove attribute |n| of node |at|
  ONNX_EDIT_EXTENT,     // replace extents |from| by |to|; if |n|, in small integer constants too
  ONNX_EDIT_FREE,       // make initializer |at| an input
  ONNX_EDIT_ZERO,       // set initializer |at| to zeros
} onnx_edit_kind;
typedef struct onnx_edit {
  onnx_edit_kind kind;
  size_t at, n;
  int64_t from, to;
} onnx_edit;

typedef struct onnx_editor {
  kiln_ctx *cx;
  kiln_arena *arena; // of the edits' results
  kiln_map types;    // value's symbol -> onnx_type *
} onnx_editor;

// Collects the types in |graph| and |known|.
void kiln_onnx_editor_init(onnx_editor *e, const onnx_graph *graph, const kiln_onnx_known *known,
                           size_t n_known);
// Applies |edit| to |graph| and removes what becomes unused.
//
// gives: false if the edit does not apply or changes nothing
bool kiln_onnx_edit(onnx_editor *e, const onnx_graph *graph, const onnx_edit *edit,
                    onnx_graph *out);
// The distinct extents above 1 of inputs and initializers, descending: their number, at most
// |room|.
size_t kiln_onnx_extents(const onnx_graph *graph, size_t room, int64_t *out);
// Makes the results of all nodes outputs of the graph.
void kiln_onnx_expose_values(kiln_ctx *cx, onnx_graph *graph);

#endif
