// Places blocks with lifetimes in one arena: what the launches of a plan keep in memory and when.
#ifndef KILN_DRIVER_PLANNER_H
#define KILN_DRIVER_PLANNER_H

#include "support/arena.h"

typedef struct kiln_block {
  uint64_t bytes;
  int first, last; // launches, inclusive, during which the block holds something
  uint64_t offset; // out: a multiple of 64
} kiln_block;

// Gives offsets such that blocks alive at the same time do not overlap: the largest first, each in
// the smallest gap that takes it between those already placed. The arena's size is *out_bytes.
//
// cost: O(n^2)
void kiln_blocks_place(kiln_arena *scratch, int n, kiln_block *blocks, uint64_t *out_bytes);

#endif
