// Shared by the parts of the graph builder: the state of one read, and the names in scope.
#ifndef KILN_ONNX_BUILD_H
#define KILN_ONNX_BUILD_H

#include "onnx/tensor.h"

// Extents bound by the caller, and the names by which they can be bound.
typedef struct onnx_extents {
  kiln_map bound;    // symbol -> value
  kiln_map renamed;  // symbol -> symbol, from the options
  kiln_map on_input; // names of symbolic extents of inputs, in order
  kiln_map seen;     // names of all values' symbolic extents
  bool reshaped;     // a constant extent was replaced: declared shapes of later values are void
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

// The names of one graph, with those of the enclosing ones.
typedef struct onnx_scope onnx_scope;
struct onnx_scope {
  onnx_scope *outer;
  kiln_map ids; // symbol -> value id
  KILN_VEC(kiln_value *) values;
};

typedef enum onnx_role { ONNX_ROLE_INPUT, ONNX_ROLE_OUTPUT, ONNX_ROLE_INNER } onnx_role;

// shape.c
// Collects the options' dimensions and the shapes of |graph|'s inputs.
void kiln_onnx_extents_init(onnx_build *b, const onnx_graph *graph);
// Reports options for unknown dimensions, after all values are declared.
void kiln_onnx_extents_end(onnx_build *b);
// Sets the type and shape of |value| as |info| declares. |where| is the graph's place; options
// apply if |is_top|.
void kiln_onnx_value_declare(onnx_build *b, const char *where, bool is_top, onnx_role role,
                             const onnx_value_info *info, kiln_value *value);
// Makes |value| the constant |c|, which is copied; reports contradictions to the declaration.
void kiln_onnx_value_set_constant(onnx_build *b, const char *where, const kiln_const *c,
                                  kiln_value *value);
// The same for the default of an optional input.
void kiln_onnx_value_set_initial(onnx_build *b, const char *where, const kiln_const *c,
                                 kiln_value *value);
bool kiln_onnx_is_overridable(const onnx_build *b, const onnx_graph *graph, const char *name);
// Reports names of overridable inputs that do not exist, or whose initializers are constants in
// this IR version.
void kiln_onnx_check_overridable(onnx_build *b, const onnx_graph *graph);

// sort.c
// Topological order of a graph's nodes: the file's order if it is one. Cycles are reported and
// broken.
const int *kiln_onnx_sort(onnx_build *b, const char *where, const onnx_nodes *nodes);

// build.c
// gives: the graph in the perm arena; errors are in b->problems
kiln_graph *kiln_onnx_graph_make(onnx_build *b, const onnx_graph *graph, onnx_scope *outer,
                                 const char *where);

// attr.c
// Converts the attributes of |node|; sub-graphs see the names of |scope|.
void kiln_onnx_attrs_make(onnx_build *b, onnx_scope *scope, const char *place,
                          const onnx_node *node, kiln_node *out);
// The tensor of a Constant node.
// gives: false after reporting an error
bool kiln_onnx_constant_make(onnx_build *b, const char *place, const onnx_node *node,
                             kiln_const *out);

// lists.c
// Replaces inputs of |graph| that are sequences or optional values by as many tensors as the
// options say.
void kiln_onnx_open_lists(onnx_build *b, onnx_graph *graph);
bool kiln_onnx_is_list(const onnx_type *type); // a sequence or an optional value
const char *kiln_onnx_type_text(kiln_ctx *cx, const onnx_type *type); // "optional(sequence(f32))"

// inline.c
// Replaces calls of the model's own functions by their bodies, everywhere.
void kiln_onnx_inline(onnx_build *b, onnx_model *model);

#endif
