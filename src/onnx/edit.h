// Edits of a graph's message that make it smaller, each giving a new graph that shares what it does
// not change.
#ifndef KILN_ONNX_EDIT_H
#define KILN_ONNX_EDIT_H

#include "onnx/reduce.h"

typedef enum onnx_edit_kind {
  ONNX_EDIT_ONE_OUTPUT, // all outputs but |at| go
  ONNX_EDIT_OUTPUTS,    // outputs |at|, ... go, |n| of them
  ONNX_EDIT_NODES,   // nodes |at|, ... go, |n| of them: what others read of them becomes an input
  ONNX_EDIT_FLATTEN, // the sub-graph that attribute |n| of node |at| is takes the node's place
  ONNX_EDIT_OPERAND, // operand |n| of node |at| goes
  ONNX_EDIT_ATTR,    // attribute |n| of node |at| goes
  ONNX_EDIT_EXTENT,  // extents |from| become |to|; with |n| in small integer constants, too
  ONNX_EDIT_FREE,    // initializer |at| becomes an input
  ONNX_EDIT_ZERO,    // initializer |at| becomes zeros
} onnx_edit_kind;
typedef struct onnx_edit {
  onnx_edit_kind kind;
  size_t at, n;
  int64_t from, to;
} onnx_edit;

typedef struct onnx_editor {
  kiln_ctx *cx;
  kiln_arena *arena; // of what edits make
  kiln_map types;    // of values, by symbol: onnx_type *
} onnx_editor;

// Collects the types that |graph| and |known| say.
void kiln_onnx_editor_init(onnx_editor *e, const onnx_graph *graph, const kiln_onnx_known *known,
                           size_t n_known);
// Gives |graph| with |edit|, and without what nothing needs then.
//
// gives: false where the edit does not apply, or changes nothing
bool kiln_onnx_edit(onnx_editor *e, const onnx_graph *graph, const onnx_edit *edit,
                    onnx_graph *out);
// The extents above 1 of inputs and initializers, the greatest first: how many, at most |room|.
size_t kiln_onnx_extents(const onnx_graph *graph, size_t room, int64_t *out);
// Makes every value that a node of the graph gives an output.
void kiln_onnx_expose_values(kiln_ctx *cx, onnx_graph *graph);

#endif
