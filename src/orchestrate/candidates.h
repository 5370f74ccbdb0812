// Candidate kernels: differences of two execution states, each set of prims once for each set of
// results that it may store.
//
// A prim that others read outside of the kernel may be stored besides, or be computed again by
// them: a candidate is made for either.
#ifndef KILN_ORCHESTRATE_CANDIDATES_H
#define KILN_ORCHESTRATE_CANDIDATES_H

#include "orchestrate/states.h"

typedef struct kiln_kernel_set {
  const kiln_bits *prims, *results; // |results| are of the prims
} kiln_kernel_set;

// Which sets of prims are worth a candidate.
typedef struct kiln_candidate_limits {
  int states; // at most as many are listed; sets of one end: of those that end in the same prim
  int prims, candidates; // at most as many: prims of a candidate, candidates
  int results;           // of a candidate; 1: what others need of it they compute again
  bool several_ends;     // prims that nobody in the kernel reads may be several
  // Whether larger sets than |prims|, which is one itself, may be kernels; NULL: all may.
  bool (*may_grow)(void *user, const kiln_bits *prims);
  // Whether |prims| may be a kernel; NULL: any may.
  bool (*may_be)(void *user, const kiln_bits *prims);
  void *user;
} kiln_candidate_limits;

typedef struct kiln_candidates {
  KILN_VEC(kiln_kernel_set) all; // the single prims, then others, small ones first from each state
  int n_states, n_differences;   // of the differences, those that were looked at, each once
  bool states_capped;            // there are more; of sets of one end none is missing for that
  bool candidates_capped;        // there may be more
} kiln_candidates;

// The connected sets; a single prim is always one. |work| is rewound.
//
// needs: limits.prims >= 1; |may_grow| false for a set must hold for its supersets
kiln_candidates kiln_candidates_of(kiln_arena *arena, kiln_arena *work, const kiln_prim_graph *g,
                                   const kiln_candidate_limits *limits);

#endif
