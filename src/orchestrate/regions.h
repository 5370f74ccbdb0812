// Compares the costs of two equivalent programs region by region: a region has kernels of both
// programs that cover the same statements, with their cost in each.
//
// Statements of the two programs are the same if their tensors have the same name. Kernels that
// share a statement are in one region; a statement that only one program has is in the region of
// its readers. Thus the costs of regions add up to those of the programs, and a change's effect on
// cost is seen where it was made.
#ifndef KILN_ORCHESTRATE_REGIONS_H
#define KILN_ORCHESTRATE_REGIONS_H

#include "orchestrate/orchestrate.h"

typedef struct kiln_orchestrated {
  const kiln_program *p;
  const kiln_orchestration *chosen;
} kiln_orchestrated;

typedef struct kiln_cost_region {
  double ns[2]; // predicted time of its kernels, in each program
} kiln_cost_region;

typedef struct kiln_regions {
  kiln_map of;           // tensor name -> index of a region
  int n;                 // some may be empty
  kiln_cost_region *all; // [n]
} kiln_regions;

// gives: in cx->perm
kiln_regions kiln_regions_make(kiln_ctx *cx, const kiln_orchestrated *two);
// The region that computes |tensor|; NULL: no kernel of either program does.
const kiln_cost_region *kiln_regions_find(const kiln_regions *r, kiln_symbol tensor);

#endif
