// How the blocks of a kernel share the multiprocessors, and the parts of its predicted time that
// follow from that: launch, rounds of blocks, memory, copies that are waited for. Each template
// predicts with constants of its own, fitted to its candidates on an H200.
#ifndef KILN_TEMPLATE_GPU_OCCUPANCY_H
#define KILN_TEMPLATE_GPU_OCCUPANCY_H

#include "template/lower.h"

typedef struct kiln_gpu_occupancy {
  double blocks, each; // all of them, and of the multiprocessor that has most
  int64_t resident;    // of one that run at the same time
  int depth; // steps along k whose operands are in shared memory or in flight; 0: none fits
} kiln_gpu_occupancy;

// A block that copies its operands a step along k at a time.
typedef struct kiln_gpu_staged {
  double blocks; // of the kernel
  int64_t threads, registers;
  int64_t steps, step_bytes;
  int64_t meet_bytes; // of shared memory for partial sums, in place of operands
  int64_t max_depth;
  bool by_async; // one step at a time where copies are not asynchronous, below sm_80
} kiln_gpu_staged;

// As many blocks as registers and threads allow, but no more than there are, each with room for
// three steps; and as many steps as fit then.
kiln_gpu_occupancy kiln_gpu_occupancy_of(const kiln_lowering *w, const kiln_gpu_staged *b);
// Blocks of the multiprocessor that has most of |blocks|.
double kiln_gpu_each(const kiln_lowering *w, double blocks);
// Stages of a pipeline: the last step's operands are not copied before those of the first are used
// (target/gpu/pipeline.c).
int64_t kiln_gpu_depth(int64_t steps, int64_t most);

// The wait of a step for the copies that it has just issued, in shallow pipelines.
double kiln_gpu_refill_ns(const kiln_lowering *w, double steps, int depth);

// Blocks of several rounds.
typedef struct kiln_gpu_rounds {
  double each, resident; // blocks of a multiprocessor, in all and at the same time
  double alone;          // the time of a block without others, which is bound by latency
  double again;          // the share of it that each further round takes
  double turn;           // the time of a block among others, bound by what they share
} kiln_gpu_rounds;
// The kernel's time: a block alone, and all others by what they share or by memory.
double kiln_gpu_rounds_ns(const kiln_lowering *w, const kiln_gpu_rounds *r);

// A step along k by mma, of several blocks that share a multiprocessor.
typedef struct kiln_gpu_mma_step {
  double flops, copied, read; // of a block: as if of halves; bytes to and from shared memory
  double rows;                // of its operands
  double resident, alone;     // |alone|: the latency of one warp
  double overlap, l2_share, row_bytes; // fitted
} kiln_gpu_mma_step;
double kiln_gpu_mma_step_ns(const kiln_lowering *w, const kiln_gpu_mma_step *s);

#endif
