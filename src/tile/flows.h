// The predicted time of a lowered candidate, from the traffic of its loops (analysis/reuse.h) instead
// of that of its tiles.
#ifndef KILN_TILE_FLOWS_H
#define KILN_TILE_FLOWS_H

#include "tile/graph.h"

#include "ir/loop.h"

// Replaces the bytes between the levels of |io|, the cost of the candidate that |l| was lowered from, by
// those that its loops are predicted to move, and the time by what follows from them. What the caches
// in front of the registers deliver stays as it is.
//
// units: nanoseconds; arithmetic and transfers overlap but where they are equally long: the time is the
// 8-norm of them
// needs: no INSTR in |l| (target/instr.h)
// errors: as kiln_reuse_predict
KILN_MUST_USE kiln_status kiln_tile_flows(kiln_ctx *cx, const kiln_device *d, int n_threads,
                                          const kiln_loops *l, kiln_tile_cost *io);

#endif
