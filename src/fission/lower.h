// Operators to primitives. An operator is one file in ops/: TC text, or C where the notation does
// not suffice; the build makes the table kiln_ops from the folder.
//
// Fission sweeps over the graph once. It looks up every node's operator by domain, name and opset,
// and calls |lower| (or the TC binding), which adds statements to the program and sets the node's
// output tensors with their shapes: this is the shape inference. Nodes whose inputs are all
// constants are folded by the reference interpreter.
#ifndef KILN_FISSION_LOWER_H
#define KILN_FISSION_LOWER_H

#include "ir/graph.h"
#include "ir/prim.h"

typedef struct kiln_quantised kiln_quantised;

typedef struct kiln_lower {
  kiln_ctx *cx;
  kiln_program *prog;
  const kiln_graph *graph;
  const kiln_node *node;
  const char *place;              // prefix of messages
  const struct kiln_op *user_ops; // rows that take precedence over the table; NULL: none
  struct kiln_data_dependent_extents
      *counts;                // of the program: data-dependent extents (fission/data_dependent.h)
  struct kiln_folds *folds;   // recorded folding decisions; NULL: decide for each node
  struct kiln_checks *checks; // of indices (rewrite/checks.h); NULL: no checks are made
  struct kiln_notes *notes;   // on tensors (fission/notes.h); NULL: none are kept
  const kiln_expr *when;      // condition under which the run needs the node; NULL: always
  const struct kiln_ranges *dims; // ranges of named dimensions; NULL: none is known
  int n_inputs;                   // as written in the node
  kiln_tensor **inputs;           // NULL is an omitted optional input
  int n_outputs;
  kiln_tensor **outputs; // to be set by |lower|; an output may be an input tensor itself (Identity,
                         // Dropout, ...)
} kiln_lower;

typedef struct kiln_op {
  const char *domain; // "" is ai.onnx
  const char *name;   // "Conv"
  int since, until;   // opset range, inclusive; until 0 means newest
  kiln_status (*lower)(
      kiln_lower *lw); // NULL if |tc| is set, or the traversal handles it (fission/traversal.h)
  const char *tc; // TC text: header and definitions (see fission/notation.h); NULL for C operators
  const char *file; // "ops/softmax.tc", for messages
} kiln_op;

extern const kiln_op *const
    kiln_ops[]; // made by the build from ops/; each entry is an array ended by a row with name NULL
const kiln_op *kiln_op_find(const char *domain, const char *name,
                            int64_t opset); // NULL when there is none

typedef struct kiln_dim_binding {
  const char *name;
  int64_t value;
} kiln_dim_binding;

// Lowers a graph; named dimensions stay symbolic.
//
// gives:  a verified program whose INPUTs and outputs are the graph's, in order
// errors: UNSUPPORTED or BAD_INPUT, with a message for every node that cannot be lowered
kiln_status kiln_fission(kiln_ctx *cx, const kiln_graph *g, kiln_program **out);
// The same with user-defined operators, which take precedence over Kiln's own; |user_ops| ends with
// a row without a name (kiln_tc_operators makes it).
kiln_status kiln_fission_with(kiln_ctx *cx, const kiln_graph *g, const kiln_op *user_ops,
                              kiln_program **out);
// The same as kiln_fission_with, for named dimensions in |dims|.
kiln_status kiln_fission_within(kiln_ctx *cx, const kiln_graph *g, const kiln_op *user_ops,
                                const struct kiln_ranges *dims, kiln_program **out);
// Folding decisions in node order, recorded by one traversal and repeated by others, so that
// programs of one graph at different sizes have the same statements.
typedef struct kiln_folds {
  int at; // the next one
  KILN_VEC(bool) decided;
} kiln_folds;
// The same, from folds->at = 0 on; further decisions are made and recorded.
kiln_status kiln_fission_like(kiln_ctx *cx, const kiln_graph *g, const kiln_op *user_ops,
                              kiln_folds *folds, kiln_program **out);

// The same with loops that are kept (fission/flow/kept.h); without any, *out_rest is NULL.
//
// gives: *out: with regions, not verified; *out_rest, on failure too: what |*out| has still to come
struct kiln_unresolved;
kiln_status kiln_fission_kept(kiln_ctx *cx, const kiln_graph *g, const kiln_op *user_ops,
                              kiln_program **out, struct kiln_unresolved **out_rest);

// --- for the files in ops/ ---

// Attributes; a wrong kind is BAD_INPUT at the node's place.
kiln_status kiln_lower_int(kiln_lower *lw, const char *attr, int64_t otherwise, int64_t *out);
kiln_status kiln_lower_float(kiln_lower *lw, const char *attr, double otherwise, double *out);
kiln_status kiln_lower_string(kiln_lower *lw, const char *attr, const char *otherwise,
                              const char **out);
// *out_n = -1 when absent; *out lives in the graph
kiln_status kiln_lower_ints(kiln_lower *lw, const char *attr, int *out_n, const int64_t **out);
const kiln_attr *kiln_lower_attr(kiln_lower *lw, const char *attr); // NULL when absent

// Inputs.
kiln_tensor *kiln_lower_in(const kiln_lower *lw, int i); // NULL when omitted or past the end
bool kiln_lower_wants(const kiln_lower *lw, int output); // whether the node uses it
// The elements of an integer (or bool) constant input; UNSUPPORTED if it is not constant. *out_n =
// -1 if the input is omitted.
kiln_status kiln_lower_const_ints(kiln_lower *lw, int i, int *out_n, const int64_t **out);
kiln_status kiln_lower_const_floats(kiln_lower *lw, int i, int *out_n, const double **out);
// The same for shapes: elements may be expressions of named dimensions, from a constant or
// kiln_lower_values; and of values that the run checks to be extents
// (fission/data_dependent.h).
kiln_status kiln_lower_shape_values(kiln_lower *lw, int i, int *out_n,
                                    const kiln_expr *const **out);
// The same without values of the run: UNSUPPORTED if the input is computed by it.
kiln_status kiln_lower_known_values(kiln_lower *lw, int i, int *out_n,
                                    const kiln_expr *const **out);
// The extent of an axis as a constant; UNSUPPORTED if it is symbolic.
kiln_status kiln_lower_extent(kiln_lower *lw, const kiln_tensor *t, int axis, int64_t *out);
// How many times a loop along an axis is unrolled: its greatest extent. UNSUPPORTED if none is
// known.
kiln_status kiln_lower_steps(kiln_lower *lw, const kiln_tensor *t, int axis, int64_t *out);
// Normalizes -rank <= axis < rank (<= rank with |allow_end|) to [0, rank]; BAD_INPUT otherwise.
kiln_status kiln_lower_axis(kiln_lower *lw, int64_t axis, int rank, bool allow_end, int *out);
kiln_status kiln_lower_want_inputs(kiln_lower *lw, int min,
                                   int max); // checks their number; the first |min| must be present
kiln_status kiln_lower_want_dtype(kiln_lower *lw, int i, bool (*ok)(kiln_dtype), const char *what);

// Facts about a tensor besides type and shape, recorded by the node that made it; NULL: unknown.
//
// The elements of a small integer tensor, as expressions of named dimensions.
const kiln_expr *const *kiln_lower_values(const kiln_lower *lw, const kiln_tensor *t);
void kiln_lower_note_values(const kiln_lower *lw, const kiln_tensor *t,
                            const kiln_expr *const *values);
// The operands of the dequantization that made it (fission/bytes.h).
const kiln_quantised *kiln_lower_quantised(const kiln_lower *lw, const kiln_tensor *t);
void kiln_lower_note_quantised(const kiln_lower *lw, const kiln_tensor *t,
                               const kiln_quantised *from);

// Building statements, whose origin is the node's name.
kiln_stmt *kiln_lower_stmt(kiln_lower *lw, const char *name, kiln_dtype t, int n_space,
                           int n_reduce, const kiln_expr *const *extents);
kiln_tensor *kiln_lower_tensor(const kiln_lower *lw, const kiln_stmt *s); // the tensor |s| writes
// A new constant tensor; |data| is copied.
kiln_tensor *kiln_lower_make_const(kiln_lower *lw, const char *name, kiln_dtype t, int rank,
                                   const int64_t *shape, const void *data);
// NumPy broadcasting of n shapes to *out_rank and out_shape [KILN_MAX_RANK]; BAD_INPUT with both
// extents on a mismatch.
kiln_status kiln_lower_broadcast(kiln_lower *lw, int n, kiln_tensor *const *tensors, int *out_rank,
                                 const kiln_expr **out_shape);
// A load of |t| broadcast to the space dims [first, first + rank) of |s|, right-aligned.
const kiln_expr *kiln_lower_load_broadcast(kiln_lower *lw, const kiln_tensor *t, const kiln_stmt *s,
                                           int first, int rank);
// A statement with the row-major elements of |t| in another shape (Reshape, Flatten, Squeeze, ...):
// its index is the div/mod map.
kiln_tensor *kiln_lower_reshape(kiln_lower *lw, kiln_tensor *t, int rank,
                                const kiln_expr *const *shape);
kiln_tensor *kiln_lower_transpose(kiln_lower *lw, kiln_tensor *t, const int *perm);
// The unknown extent x of a Reshape: product(total) = x * product(known), divided factor by factor
// so that symbolic extents cancel; BAD_INPUT if that fails.
kiln_status kiln_lower_infer_extent(kiln_lower *lw, int n_total, const kiln_expr *const *total,
                                    int n_known, const kiln_expr *const *known,
                                    const kiln_expr **out);
kiln_status kiln_lower_cast(kiln_lower *lw, kiln_tensor *t, kiln_dtype to,
                            kiln_tensor **out); // |t| itself if it has the dtype

// An operator to lower instead of the node's own, with its inputs and attributes.
typedef struct kiln_lower_callee {
  const char *domain, *op;
  int64_t opset;
  int n_inputs;
  kiln_tensor *const *inputs; // NULL is an omitted input
  int n_attrs;
  const kiln_attr *attrs;
} kiln_lower_callee;
// Lowers the callee with the origin of |lw|'s node; sets its first |n_outputs| outputs in
// |outputs|.
kiln_status kiln_lower_call(kiln_lower *lw, const kiln_lower_callee *c, int n_outputs,
                            kiln_tensor **outputs);
kiln_attr kiln_attr_int(kiln_ctx *cx, const char *name, int64_t value);
kiln_attr kiln_attr_float(kiln_ctx *cx, const char *name, double value);

#endif
