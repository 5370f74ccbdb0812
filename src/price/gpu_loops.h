// What lowered loops ask of a GPU, nest by nest: work of each unit of a multiprocessor, what a
// block waits for, bytes from the L2 and from memory, and what limits the resident blocks.
//
// Loops are walked once, and never iterated: an access is looked at for the lanes of one warp in
// the middle of all loops (coalescing, bank conflicts), and for the blocks that run together (what
// they share in the L2). Copies are asynchronous where they fill a stage ahead of its use
// (`pipeline`): by TMA, or in words of 16 bytes from sm_80 on.
#ifndef KILN_PRICE_GPU_LOOPS_H
#define KILN_PRICE_GPU_LOOPS_H

#include "ir/loop.h"
#include "target/target.h"

// Units of a multiprocessor, which work side by side.
typedef enum kiln_gpu_unit {
  KILN_GPU_UNIT_ISSUE,   // schedulers
  KILN_GPU_UNIT_SPECIAL, // exponentials, roots
  KILN_GPU_UNIT_MMA,
  KILN_GPU_UNIT_WGMMA,
  KILN_GPU_UNIT_SHARED, // rounds of 128 bytes through the banks
  KILN_GPU_UNIT_LINES,  // lines of the L1 that accesses to memory meet
  KILN_GPU_UNIT_L2,     // bytes at the rate of a multiprocessor alone
  KILN_N_GPU_UNITS
} kiln_gpu_unit;

// What a block waits for, one after the other.
typedef enum kiln_gpu_stall {
  KILN_GPU_WAIT_ISSUE,  // instructions of a warp that depend on each other
  KILN_GPU_WAIT_MMA,    // matrix instructions of a warp, or of a warp group
  KILN_GPU_WAIT_SHARED, // loads from shared memory
  KILN_GPU_WAIT_GLOBAL, // loads from memory
  KILN_GPU_WAIT_AHEAD,  // copies that were not issued early enough, and the first of a loop
  KILN_GPU_WAIT_BARRIER,
  KILN_GPU_WAIT_GROUP, // for the end of a group of wgmma
  KILN_GPU_WAIT_SUM,   // dependent sums
  KILN_N_GPU_WAITS
} kiln_gpu_stall;

typedef struct kiln_gpu_nest_counts {
  double blocks, threads, registers; // |threads|: of a block; |registers|: of a thread
  double shared_bytes;               // of a block
  double resident;                   // blocks of a multiprocessor at the same time, at most
  double unit[KILN_N_GPU_UNITS], wait[KILN_N_GPU_WAITS]; // of a block
  double block_l2_bytes;                                 // of a block, on average
  double l2_bytes, memory_bytes;                         // of all blocks
  double code;                                           // instructions, loops unrolled
  double cluster;                                        // blocks of one
  bool is_specialized;                                   // has a producer warp
} kiln_gpu_nest_counts;

// The unit of time that waits are counted in, and how finely a nest is looked at.
typedef struct kiln_gpu_counting {
  double clocks;                  // of a unit of time
  double shared, l2, l1, barrier; // latencies: of loads from each, of a barrier
  // Counts registers, resident blocks, instructions of warps, asynchronous copies and the bytes of
  // the L2 that blocks share; waits for shared memory apart from those for memory. Otherwise these
  // stay 0, and a nest with such instructions, or with an extent that depends on loops, is unknown.
  bool is_fine;
} kiln_gpu_counting;

// gives: false: |nest|, of |l|, is unknown
bool kiln_gpu_count_nest(kiln_ctx *cx, const kiln_machine *m, const kiln_gpu_counting *by,
                         const kiln_loops *l, const kiln_loop *nest, kiln_gpu_nest_counts *out);
// Instructions of one evaluation of |e|, without accesses and indices.
double kiln_gpu_instrs_of(kiln_ctx *cx, const kiln_expr *e);

enum { KILN_GPU_MAX_NESTS = 16 };
typedef struct kiln_gpu_counts {
  int n;
  kiln_gpu_nest_counts nests[KILN_GPU_MAX_NESTS];
} kiln_gpu_counts;

// All nests, finely, by the figures that were measured (target/device.h): times are clocks of a
// multiprocessor.
//
// gives: false: there are too many nests, or loops whose extent is not known
// cost:  well below a millisecond
bool kiln_gpu_count_loops(kiln_ctx *cx, const kiln_machine *m, const kiln_loops *l,
                          kiln_gpu_counts *out);

#endif
