// The walk over a graph and its sub-graphs, as control flow sees it: bodies of If, Loop and Scan are
// lowered into the same program, as often as they run.
#ifndef KILN_FISSION_WALK_H
#define KILN_FISSION_WALK_H

#include "fission/lower.h"
#include "support/bits.h"

typedef struct kiln_scope {
  const kiln_graph *graph;
  kiln_tensor **tensors;          // [n_values], NULL where not (yet) known
  kiln_bits *failed;              // values that cannot be had; their message is written
  const struct kiln_scope *outer; // of a sub-graph
  int depth;
} kiln_scope;

typedef struct kiln_walk {
  kiln_ctx *cx;
  kiln_program *p;
  const kiln_op *user_ops; // NULL: none
  kiln_status status;      // the first failure
  int64_t n_body_nodes;    // lowered in bodies so far
} kiln_walk;

// Lowers |body|, a sub-graph of the node |lw| in |outer|, whose inputs are |inputs|.
//
// gives:  the tensors of its outputs
// errors: BAD_INPUT where their numbers differ; UNSUPPORTED where bodies nest too deep, or unroll to
//         too many nodes
kiln_status kiln_walk_body(kiln_walk *w, const kiln_scope *outer, kiln_lower *lw,
                           const kiln_graph *body, int n_inputs, kiln_tensor *const *inputs,
                           int n_outputs, kiln_tensor **outputs);

// Whether the node is If, Loop, Scan or FlexAttention.
bool kiln_is_control(const kiln_lower *lw);
// Lowers such a node: what is known when compiling is unrolled; an If whose condition only the run
// tells computes both branches, and a Loop keeps its state from the iteration on that ends it.
kiln_status kiln_lower_control(kiln_walk *w, const kiln_scope *sc, kiln_lower *lw);

#endif
