// Cost-driven fusion (Welder, section 4.2): fusion groups, as the rules have made them, are merged
// along edges of the program where one kernel is predicted to be faster.
//
// From the outputs to the inputs, each group takes in its producers when a kernel template proposes
// a kernel for them together whose cost is below the cost of separate kernels, which includes the
// store and the load of the tensor between them. For example, a bias add and an activation join the
// convolution whose result they read. A tensor that has other readers, or is an output of the
// model, is stored as well: the fused kernel has several results, and saves only the load. Every
// edge that stays unfused is recorded with the reason. A padding that can be written in place
// (transform/concat_in_place.c) costs only its border while it is a kernel of its own.
#ifndef KILN_FUSE_CONNECT_H
#define KILN_FUSE_CONNECT_H

#include "fuse/searches.h"

// A fused group: its statements, the outlined program, and the candidate schedules of its kernel.
// Groups of equal key share |candidates|. A group that was read from a cached schedule has no
// candidates, and the number of its kernel in place of the key.
typedef struct kiln_fused_group {
  kiln_group group;
  kiln_outline outline;
  int kernel;                       // its number in the cached schedule
  kiln_tile_candidates *candidates; // cheapest first
} kiln_fused_group;
typedef struct kiln_fused_groups {
  kiln_fused_group *data;
  int n, cap;
} kiln_fused_groups;

// Merges |groups| into fused groups. Its budget counts candidates and never time, so that equal
// programs get equal kernels; repeated layers are searched once.
//
// gives: *out in cx->perm, in order of execution; |groups|->edges gets a decision an edge between
//        statements that are run
// cost:  at most a few attempts a group, each one outlining and one round of proposals
kiln_status kiln_tile_connect_groups(kiln_ctx *cx, const kiln_program *p, const kiln_facts *facts,
                                     kiln_groups *groups, const kiln_tile_search_options *options,
                                     kiln_searches *known, kiln_fused_groups *out);

#endif
