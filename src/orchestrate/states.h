// Execution states of a graph of prims: the sets of prims that may have been executed, each with
// all that it needs. A kernel leads from one state to another, and what it executes is their
// difference: just the convex sets of prims are such differences.
//
// source: Korch (ASPLOS'24), section 4.1
#ifndef KILN_ORCHESTRATE_STATES_H
#define KILN_ORCHESTRATE_STATES_H

#include "support/bits.h"

// Prims 0..n in topological order. Sets of them have as many words as it takes.
typedef struct kiln_prim_graph {
  int n;
  kiln_bits **reads;   // [n] whose results a prim takes
  kiln_bits **readers; // [n] who takes its result
  kiln_bits *needed;   // whose results must be there at the end
} kiln_prim_graph;

kiln_prim_graph *kiln_prim_graph_make(kiln_arena *arena, int n); // no edges, nothing needed
void kiln_prim_graph_edge(kiln_prim_graph *g, int from, int to); // from < to

// The prims that those that are needed follow from, these included.
kiln_bits *kiln_prim_graph_live(kiln_arena *arena, const kiln_prim_graph *g);

// The states, the empty one first, each after one that it follows from by a single prim.
typedef struct kiln_states {
  kiln_bits_table table;
  bool is_capped; // there are more
} kiln_states;

// cost: at most |most| states; their number grows with a power of the graph's width
kiln_states kiln_states_of(kiln_arena *arena, const kiln_prim_graph *g, int most);
// Whether prim |i|, which is not in |state|, may be executed next.
bool kiln_state_is_ready(const kiln_prim_graph *g, const kiln_bits *state, int i);

#endif
