// The simulator of device loops (target/gpu/device/device.h): runs the threads of a block, warp by
// warp, and finds faults that only some GPUs, or some runs, would show.
//
// Warps run one after the other, each until it waits. Asynchronous copies land as late as allowed:
// cp.async at its thread's copy.wait, TMA copies when all warps wait. Reports do not depend on the
// order of warps: two accesses of an element, one of them a write, must be ordered by barriers and
// waits (happens-before, by vector clocks, clock.h). Asynchronous copies and wgmma instructions
// access memory from their issue until they are waited for.
//
// What the hardware requires of addresses and numbers is checked where they are used: alignment of
// words, of rows that instructions read, of operands of warp groups; tensor maps and copies by
// them; bytes and arrivals of mbarriers; registers of roles. A TMA copy reads what its tensor map
// says, which must be what its statement says.
//
// source: Lamport 1978; Flanagan, Freund (FastTrack) 2009
#ifndef KILN_TARGET_SIM_DEVICE_H
#define KILN_TARGET_SIM_DEVICE_H

#include "target/gpu/gpu.h"
#include "target/sim/sim.h"

// The launch of a function.
typedef struct kiln_sim_launch {
  int64_t grid[3], block[3]; // all rows of threads, the producer's too
  int64_t cluster;           // blocks of one, along x
  int warp;                  // threads of one
  const int64_t *offsets;    // [buffers] of SHARED ones in the arena; NULL: each lies by itself
  int64_t registers;         // that the threads of a block share; 0: as many as they want
  int n_maps;
  const kiln_gpu_map *maps; // of TMA copies, by number; |arg| is a buffer
} kiln_sim_launch;

// Runs |l| on |args|, the base addresses of its PARAM and WORKSPACE buffers in id order, and adds
// the bytes that its statements move to |io_traffic|, by buffer and scope; NULL: counts none.
//
// needs:  verified device loops
// errors: KILN_INTERNAL; the message names the buffer, the element and both places: a race; a read
//         out of bounds, or of an element that has not landed or was never written; an
//         instruction or copy without the fence that it needs; warp divergence at a barrier; a
//         deadlock, with the wait of each warp
kiln_status kiln_sim_run_device(kiln_ctx *cx, const kiln_loops *l, const kiln_sim_launch *launch,
                                void *const *args, kiln_sim_traffic *io_traffic);

#endif
