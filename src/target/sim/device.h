// The simulator of device loops (target/gpu/device/device.h): runs the threads of a block, warp by
// warp, and finds what goes wrong on some card or other.
//
// Warps run one after the other until each waits. Asynchronous copies land as late as they may:
// those of a thread at its copy.wait, TMA copies when all warps wait. What is reported does not
// depend on the order in which warps run: two accesses of an element, one of them a write, must be
// ordered by barriers and waits (vector clocks, clock.h), also where one is that of a copy or of
// an instruction of a warp group, which last from their begin to the wait for them.
//
// source: Lamport 1978; Flanagan, Freund (FastTrack) 2009
#ifndef KILN_TARGET_SIM_DEVICE_H
#define KILN_TARGET_SIM_DEVICE_H

#include "ir/loop.h"

// The launch of a function.
typedef struct kiln_sim_launch {
  int64_t grid[3], block[3]; // all rows of threads, the producer's too
  int64_t cluster;           // blocks of one, along x
  int warp;                  // threads of one
  const int64_t *offsets;    // [buffers] of SHARED ones in the arena; NULL: each lies by itself
} kiln_sim_launch;

// Runs |l| on |args|, the base addresses of its PARAM and WORKSPACE buffers in id order.
//
// needs:  verified device loops
// errors: KILN_INTERNAL; the message names the buffer, the element and both places: a race; a read
//         of what has not landed or was never written, or beyond a buffer; an instruction or copy
//         without the fence that it needs; threads of a warp that part at a barrier; a deadlock,
//         with what each warp waits for
kiln_status kiln_sim_run_device(kiln_ctx *cx, const kiln_loops *l, const kiln_sim_launch *launch,
                                void *const *args);

#endif
