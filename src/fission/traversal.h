// The state of the traversal that lowers a graph and its sub-graphs: bodies of If, Loop and Scan
// are lowered into the same program, once for each time they run.
#ifndef KILN_FISSION_TRAVERSAL_H
#define KILN_FISSION_TRAVERSAL_H

#include "rewrite/checks.h"
#include "fission/data_dependent.h"
#include "fission/flow/kept.h"
#include "fission/notes.h"
#include "support/bits.h"

// A list of tensors with a length known at compile time.
typedef struct kiln_sequence {
  int n; // -1: an empty optional value
  kiln_tensor *const *at;
} kiln_sequence;

// The content of a value: a tensor or a sequence, or neither (yet).
typedef struct kiln_held {
  kiln_tensor *tensor;
  const kiln_sequence *sequence;
} kiln_held;

typedef struct kiln_graph_scope {
  const kiln_graph *graph;
  kiln_held *values;                    // [n_values], empty if not (yet) known
  kiln_bits *failed;                    // values of failed nodes, reported already
  const struct kiln_graph_scope *outer; // of a sub-graph
  int depth;
} kiln_graph_scope;

struct kiln_visit;

typedef struct kiln_graph_traversal {
  kiln_ctx *cx;
  kiln_program *p;
  const kiln_op *user_ops; // NULL: none
  kiln_status status;      // of the first failure
  int64_t n_body_nodes;    // lowered in bodies so far
  kiln_data_dependent_extents counts;
  kiln_checks checks;
  kiln_notes notes;
  const kiln_expr *when;    // condition under which the run needs the current graph; NULL: always
  kiln_folds *folds;        // NULL: none
  kiln_kept_loops *regions; // loops that are kept; NULL: all are unrolled
  const struct kiln_ranges *dims; // of named dimensions; NULL: none is known
  // Implementation of kiln_visit_body.
  kiln_status (*lower_body)(struct kiln_visit *v, const kiln_graph *body, int n_inputs,
                            const kiln_held *inputs, int n_outputs, kiln_held *outputs);
} kiln_graph_traversal;

// A node with sub-graphs or sequences. |lw| has its tensors, NULL for sequences.
typedef struct kiln_visit {
  kiln_graph_traversal *w;
  const kiln_graph_scope *sc;
  kiln_lower *lw;
  const kiln_held *in; // [n_inputs]
  kiln_held *out;      // [n_outputs], to be set
} kiln_visit;

static inline bool kiln_holds(const kiln_held *h) { return h->tensor || h->sequence; }
static inline kiln_held kiln_held_tensor(kiln_tensor *t) { return (kiln_held){.tensor = t}; }

// Lowers |body|, a sub-graph of the node, whose inputs are |inputs|.
//
// gives:  the values of its outputs
// errors: BAD_INPUT if the numbers of inputs or outputs differ; UNSUPPORTED if bodies nest too deep
// or unroll to too many nodes
static inline kiln_status kiln_visit_body(kiln_visit *v, const kiln_graph *body, int n_inputs,
                                          const kiln_held *inputs, int n_outputs,
                                          kiln_held *outputs) {
  return v->w->lower_body(v, body, n_inputs, inputs, n_outputs, outputs);
}
// The graph in an attribute; BAD_INPUT if there is none.
kiln_status kiln_visit_graph(kiln_visit *v, const char *attr, const kiln_graph **out);

typedef kiln_status (*kiln_visitor)(kiln_visit *v);
// Lowering of If, Loop, Scan and FlexAttention: an If with a run-time condition computes both
// branches. A loop is kept, if regions are, or unrolled; unrolled, it keeps its state after the
// iteration that ended it. NULL for other nodes.
kiln_visitor kiln_find_control(const kiln_lower *lw);
// Lowering of operators on sequences and optional values, including Identity; NULL for other nodes.
kiln_visitor kiln_find_sequence(const kiln_lower *lw, const kiln_held *in);

// Whether the node is that operator; domain "" is ONNX's own.
bool kiln_lower_is(const kiln_lower *lw, const char *domain, const char *name);
// The single element of an integer or bool tensor, if it is known at compile time.
bool kiln_tensor_known(const kiln_lower *lw, const kiln_tensor *t, int64_t *out);
// Stacks |n| tensors of one shape along a new axis.
kiln_status kiln_lower_stack(kiln_lower *lw, int n, kiln_tensor *const *parts, int64_t along,
                             kiln_tensor **out);

#endif
