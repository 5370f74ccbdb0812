// Candidate kernels: differences of two execution states, each set of prims once for each set of
// results that it may store.
//
// A prim with readers outside of the kernel may be stored as an additional result, or recomputed by
// them: there is a candidate for either.
#ifndef KILN_ORCHESTRATE_CANDIDATES_H
#define KILN_ORCHESTRATE_CANDIDATES_H

#include "orchestrate/states.h"

typedef struct kiln_kernel_set {
  const kiln_bits *prims, *results; // |results| are a subset of |prims|
} kiln_kernel_set;

// Which sets of prims become candidates.
typedef struct kiln_candidate_limits {
  int states;            // states listed at most; for sets with one end, sets of the same end
  int prims, candidates; // most prims of a candidate, most candidates
  int results;           // of a candidate; 1: other readers recompute what they need
  bool several_ends;     // allow candidates with several ends: prims without a reader in the kernel
  // Whether supersets of |prims| may be kernels; NULL: always.
  bool (*may_grow)(void *user, const kiln_bits *prims);
  // Whether |prims| may be a kernel; NULL: always.
  bool (*may_be)(void *user, const kiln_bits *prims);
  void *user;
} kiln_candidate_limits;

typedef struct kiln_candidates {
  KILN_VEC(kiln_kernel_set)
  all;                         // single prims first; from each state small sets first
  int n_states, n_differences; // states, and distinct differences that were looked at
  bool states_capped;          // there are more states; sets with one end are complete
                               // nevertheless
  bool candidates_capped;      // there may be more candidates
} kiln_candidates;

// Enumerates connected sets and all single prims. |work| is rewound.
//
// needs: limits.prims >= 1; |may_grow| false for a set must hold for its supersets
kiln_candidates kiln_candidates_of(kiln_arena *arena, kiln_arena *work, const kiln_prim_graph *g,
                                   const kiln_candidate_limits *limits);

#endif
