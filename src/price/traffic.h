// The predicted time of a lowered candidate by the traffic (analysis/reuse.h) and the instructions
// (price/work.h) of its loops, which is more precise than the estimate from its tiles.
#ifndef KILN_PRICE_TRAFFIC_H
#define KILN_PRICE_TRAFFIC_H

#include "tile/graph.h"

#include "ir/loop.h"

// Replaces the bytes between the levels of |io|, the cost of the candidate that |l| was lowered
// from, by those that its loops are predicted to move, the time of arithmetic by that of their
// instructions, loads from the L1 included, and the whole time by what follows from them.
//
// units: nanoseconds; instructions and transfers overlap but where they are equally long
// needs: a device
// errors: as kiln_reuse_predict
KILN_MUST_USE kiln_status kiln_traffic_price(kiln_ctx *cx, const kiln_machine *m, int n_threads,
                                             kiln_loops *l, kiln_tile_cost *io);
// The same of a kernel that streams: it does little with each line of its operands, so that it
// waits for one, computes, and stores, and nothing hides behind anything. Memory stays the tile
// graph's: what the kernel before has left in the shared cache is there.
KILN_MUST_USE kiln_status kiln_traffic_price_streamed(kiln_ctx *cx, const kiln_machine *m,
                                                      int n_threads, kiln_loops *l,
                                                      kiln_tile_cost *io);

#endif
