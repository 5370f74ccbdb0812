// Execution states of a graph of prims: sets of prims that contain all predecessors of each. A
// kernel leads from one state to another and executes their difference; the differences are exactly
// the convex sets of prims.
//
// source: Korch (ASPLOS'24), section 4.1
#ifndef KILN_ORCHESTRATE_STATES_H
#define KILN_ORCHESTRATE_STATES_H

#include "support/bits.h"

// Prims 0..n in topological order. Sets of them have as many words as it takes.
typedef struct kiln_prim_graph {
  int n;
  kiln_bits **reads;   // [n] the prims whose results it reads
  kiln_bits **readers; // [n] the prims that read its result
  kiln_bits *needed;   // prims whose results must be stored at the end
} kiln_prim_graph;

kiln_prim_graph *kiln_prim_graph_make(kiln_arena *arena, int n); // no edges, nothing needed
void kiln_prim_graph_edge(kiln_prim_graph *g, int from, int to); // from < to

// The needed prims and all their ancestors.
kiln_bits *kiln_prim_graph_live(kiln_arena *arena, const kiln_prim_graph *g);

// The states, the empty one first, each after a state that differs by one prim.
typedef struct kiln_states {
  kiln_bits_table table;
  bool is_capped; // there are more
} kiln_states;

// cost: at most |most| states; their number grows with a power of the graph's width
kiln_states kiln_states_of(kiln_arena *arena, const kiln_prim_graph *g, int most);
// Whether prim |i|, which is not in |state|, may be executed next.
bool kiln_state_is_ready(const kiln_prim_graph *g, const kiln_bits *state, int i);

#endif
