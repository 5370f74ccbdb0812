// The time that lowered loops take on a GPU, nest by nest: what the tiles of a statement do not
// show.
//
// A nest takes as long as the multiprocessors' busiest part, or as long as its blocks, so many at
// once, take one behind the other. The first is counted: instructions of warps, the lines of 128
// bytes that a warp's loads and stores meet, banks of shared memory, sectors that come from the L2.
// The second is a block's phases in their order, each as long as its slowest thread: loads that
// wait for the L2 or for shared memory, as many at once as loops can be written out, and sums that
// wait for each other.
#ifndef KILN_PRICE_GPU_WORK_H
#define KILN_PRICE_GPU_WORK_H

#include "tile/graph.h"

#include "ir/loop.h"

// Replaces the time of arithmetic of |io|, the cost of the candidate that |l| was lowered from,
// what passes between the L2 and multiprocessors and through shared memory, and the whole time by
// what |l|'s loops say. Memory stays what it was: what the kernel before has left in the L2 is
// there.
//
// units: nanoseconds
// gives: false where a loop has no constant length or runs instructions of tensor cores: |io| stays
// cost:  well below a millisecond
bool kiln_gpu_work(kiln_ctx *cx, const kiln_machine *m, const kiln_loops *l, kiln_tile_cost *io);
// Instructions that compute |e| once, but for accesses and indices.
double kiln_gpu_instrs_of(kiln_ctx *cx, const kiln_expr *e);
// Nanoseconds of a launch that a run hides, 0 where it hides none: a run is a graph of launches, of
// which one begins while the one before ends, where both are Kiln's own (target/gpu).
double kiln_gpu_hidden_ns(const kiln_machine *m);
// The level that is a block's shared memory. |d| is a GPU.
const kiln_mem_level *kiln_gpu_shared(const kiln_device *d);

#endif
