// What the parts of the graph builder share: the state of one read, and names in scope.
#ifndef KILN_ONNX_BUILD_H
#define KILN_ONNX_BUILD_H

#include "onnx/tensor.h"

// Extents that the caller binds, and the names they may be bound by.
typedef struct onnx_extents {
  kiln_map bound;    // symbol: value
  kiln_map renamed;  // symbol: symbol, those of the options
  kiln_map on_input; // symbols of the unknown extents of inputs, in order
  kiln_map seen;     // of all values
  bool reshaped;     // a constant extent was replaced: declared shapes behind it no longer hold
} onnx_extents;

typedef struct onnx_build {
  kiln_ctx *cx;
  kiln_onnx_file *file;
  const kiln_onnx_options *options;
  const onnx_model *model;
  onnx_problems problems;
  onnx_extents extents;
  kiln_map opened;            // inputs that are lists, by name
  kiln_symbol name, producer; // of the graphs
  int n_opsets;
  kiln_opset *opsets;
} onnx_build;

// The names of one graph, and of those around it.
typedef struct onnx_scope onnx_scope;
struct onnx_scope {
  onnx_scope *outer;
  kiln_map ids; // symbol: value id
  KILN_VEC(kiln_value *) values;
};

typedef enum onnx_role { ONNX_ROLE_INPUT, ONNX_ROLE_OUTPUT, ONNX_ROLE_INNER } onnx_role;

// shape.c
// Notes what the options say of dimensions and of the shapes of |graph|'s inputs.
void kiln_onnx_extents_init(onnx_build *b, const onnx_graph *graph);
// Tells of options that name no dimension, once all values are declared.
void kiln_onnx_extents_end(onnx_build *b);
// Gives |value| the type and shape that |info| declares. |where| is the place of the graph,
// |is_top| says that options apply to it.
void kiln_onnx_value_declare(onnx_build *b, const char *where, bool is_top, onnx_role role,
                             const onnx_value_info *info, kiln_value *value);
// Makes |value| the constant |c|, of which a copy is kept; told when it contradicts the
// declaration.
void kiln_onnx_value_set_constant(onnx_build *b, const char *where, const kiln_const *c,
                                  kiln_value *value);
// The same of what |value| is where a run does not give it.
void kiln_onnx_value_set_initial(onnx_build *b, const char *where, const kiln_const *c,
                                 kiln_value *value);
bool kiln_onnx_is_overridable(const onnx_build *b, const onnx_graph *graph, const char *name);
// Tells of names of inputs to be replaced that are none, or of whose model initializers are
// constants.
void kiln_onnx_check_overridable(onnx_build *b, const onnx_graph *graph);

// sort.c
// The nodes of a graph in an order in which producers come first: the file's, where that is one.
// Cycles are told, and cut.
const int *kiln_onnx_sort(onnx_build *b, const char *where, const onnx_nodes *nodes);

// build.c
// gives: the graph in the perm arena; problems are in b->problems
kiln_graph *kiln_onnx_graph_make(onnx_build *b, const onnx_graph *graph, onnx_scope *outer,
                                 const char *where);

// attr.c
// Converts the attributes of |node|; graphs see the names of |scope|.
void kiln_onnx_attrs_make(onnx_build *b, onnx_scope *scope, const char *place,
                          const onnx_node *node, kiln_node *out);
// The tensor of a Constant node.
// gives: false after telling what is wrong
bool kiln_onnx_constant_make(onnx_build *b, const char *place, const onnx_node *node,
                             kiln_const *out);

// lists.c
// Replaces inputs of |graph| that are sequences or optional values by their tensors, as many as the
// options say.
void kiln_onnx_open_lists(onnx_build *b, onnx_graph *graph);
bool kiln_onnx_is_list(const onnx_type *type); // a sequence or an optional value
const char *kiln_onnx_type_text(kiln_ctx *cx, const onnx_type *type); // "optional(sequence(f32))"

// inline.c
// Replaces calls of the model's own functions by their bodies, everywhere.
void kiln_onnx_inline(onnx_build *b, onnx_model *model);

#endif
