// The predicted time of lowered loops on a GPU, nest by nest, with throughput and latency bounds.
//
// Throughput: the busiest unit of a multiprocessor, by counts of warp instructions, 128-byte lines
// of a warp's loads and stores (coalescing), shared-memory bank conflicts and L2 sectors. Latency:
// the waves of resident blocks, each block its phases in order, each phase its slowest thread:
// loads wait for the L2 or shared memory, as many in flight as loops are unrolled, and dependent
// sums wait for each other. The nest takes the longer of the two.
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
