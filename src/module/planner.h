// The memory planner (static buffer assignment): places blocks with live ranges, the temporaries of
// a plan's launches, in one arena.
#ifndef KILN_MODULE_PLANNER_H
#define KILN_MODULE_PLANNER_H

#include "support/arena.h"

typedef struct kiln_block {
  uint64_t bytes;
  int first, last; // live range: launches, inclusive A lower bound of the arena's size: the largest
                   // sum of blocks that are live during one launch.
  uint64_t offset; // out: a multiple of 64
} kiln_block;

// The lower bound of an arena: the largest sum of blocks that are alive during one launch.
//
// units: bytes, each block rounded up to 64
// cost:  O(n log n)
uint64_t kiln_blocks_bound(kiln_arena *scratch, int n, const kiln_block *blocks);

// Sets offsets such that blocks with overlapping live ranges do not overlap in memory. Blocks are
// placed one by one in the smallest gap that fits (best fit), in several orders (largest first,
// longest lived first, ...); the best order is then improved by moving the block with the highest
// end forward. If the lower bound is not reached, a backtracking search tries to. The first result
// that reaches the bound, else the best one, is taken; the result is deterministic. *out_bytes is
// the arena's size.
//
// cost: O(n^2) an order, a few dozen of them if the bound is not reached; O(n) a step of the
// search, with at most 10,000 steps
void kiln_blocks_place(kiln_arena *scratch, int n, kiln_block *blocks, uint64_t *out_bytes);

#endif
