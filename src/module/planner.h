// The memory planner (static buffer assignment): places blocks with lifetimes, the temporaries of a
// plan's launches, in one arena.
#ifndef KILN_MODULE_PLANNER_H
#define KILN_MODULE_PLANNER_H

#include "support/arena.h"

typedef struct kiln_block {
  uint64_t bytes;
  int first, last; // launches, inclusive, during which the block holds something
  uint64_t offset; // out: a multiple of 64
} kiln_block;

// The lower bound of an arena: the largest sum of blocks that are alive during one launch.
//
// units: bytes, each block counted in whole units of 64
// cost:  O(n log n)
uint64_t kiln_blocks_bound(kiln_arena *scratch, int n, const kiln_block *blocks);

// Gives offsets such that blocks alive at the same time do not overlap. Each block in turn is put
// into the smallest gap that takes it between those already placed; several orders are tried (the
// largest first, the longest alive first, ...), then the best of them is mended: what ends highest
// is placed earlier. Where all that misses the lower bound, a search with backtracking below it
// goes by birth. The first that reaches the bound, else the best, wins: same blocks, same offsets.
// The arena's size is
// *out_bytes.
//
// cost: O(n^2) an order, a few dozen of them where the bound is not reached, and O(n) a step of the
//       search, of which there are at most 10,000
void kiln_blocks_place(kiln_arena *scratch, int n, kiln_block *blocks, uint64_t *out_bytes);

#endif
