// The predicted time of lowered loops on a GPU, nest by nest, by throughput and latency bounds.
//
// Throughput is that of a multiprocessor's busiest unit, by counts of warp instructions, 128-byte
// lines of a warp's accesses (coalescing), shared-memory bank conflicts and L2 sectors. Latency is
// that of the waves of resident blocks: a block runs its phases in order, each as long as its
// slowest thread; loads wait for the L2 or shared memory, as many in flight as loops are unrolled,
// and dependent sums wait for each other. The nest takes the longer of the two.
#ifndef KILN_PRICE_GPU_WORK_H
#define KILN_PRICE_GPU_WORK_H

#include "price/gpu_loops.h"
#include "tile/graph.h"

// Replaces in |io|, the cost of the candidate that |l| was lowered from, the time of arithmetic, of
// traffic between L2 and multiprocessors and through shared memory, and the whole time, by a
// prediction from |l|'s loops. Traffic from memory stays, because it accounts for results of
// earlier kernels in the L2.
//
// units: nanoseconds
// gives: false, |io| unchanged, if a loop has no constant extent or runs tensor core instructions
// cost:  well below a millisecond
bool kiln_gpu_work(kiln_ctx *cx, const kiln_machine *m, const kiln_loops *l, kiln_tile_cost *io);
// The nanoseconds of launch latency that overlap in a graph of launches, in which a kernel may
// begin before the previous one ends if both are Kiln's (target/gpu); 0 if they do not overlap.
double kiln_gpu_hidden_ns(const kiln_machine *m);
// The shared memory level of the GPU |d|.
const kiln_mem_level *kiln_gpu_shared(const kiln_device *d);

#endif
