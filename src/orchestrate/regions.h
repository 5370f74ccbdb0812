// Where the kernels of two programs differ that compute the same: regions of kernels of both, which
// cover the same statements, with what they cost in each.
//
// Statements of the two are the same where their tensors have one name. Kernels that share a
// statement are of one region; a statement that only one program has is of that of what reads it,
// kernels or what is assembled in place. So the costs of the regions add up to those of the
// programs, and what a change to a program costs is seen where it was made.
#ifndef KILN_ORCHESTRATE_REGIONS_H
#define KILN_ORCHESTRATE_REGIONS_H

#include "orchestrate/orchestrate.h"

typedef struct kiln_orchestrated {
  const kiln_program *p;
  const kiln_orchestration *chosen;
} kiln_orchestrated;

typedef struct kiln_cost_region {
  double ns[2]; // predicted of its kernels, in each program
} kiln_cost_region;

typedef struct kiln_regions {
  kiln_map of;           // the name of a tensor to the number of a region
  int n;                 // some of which are empty
  kiln_cost_region *all; // [n]
} kiln_regions;

// gives: in cx->perm
kiln_regions kiln_regions_make(kiln_ctx *cx, const kiln_orchestrated *two);
// The region where |tensor| is made; NULL: no kernel of either makes it.
const kiln_cost_region *kiln_regions_find(const kiln_regions *r, kiln_symbol tensor);

#endif
