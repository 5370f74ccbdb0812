// The predicted time of a lowered candidate by the traffic (analysis/reuse.h) and the instructions
// (price/work.h) of its loops, which is more precise than the estimate from its tiles.
#ifndef KILN_PRICE_TRAFFIC_H
#define KILN_PRICE_TRAFFIC_H

#include "tile/graph.h"

#include "ir/loop.h"

// Replaces in |io|, the cost of the candidate that |l| was lowered from: the bytes between levels
// by the predicted traffic of |l|'s loops, the time of arithmetic by that of their instructions,
// including loads from the L1, and the whole time by what follows from both.
//
// units: nanoseconds; instructions and transfers overlap except where they take equally long
// needs: a device
// errors: as kiln_reuse_predict
KILN_MUST_USE kiln_status kiln_traffic_price(kiln_ctx *cx, const kiln_machine *m, int n_threads,
                                             kiln_loops *l, kiln_tile_cost *io);
// The same for a streaming kernel, which does little with each line of its operands: it waits for a
// line, computes and stores, without overlap. Traffic from memory stays the tile graph's, which
// accounts for the previous kernel's results in the shared cache.
KILN_MUST_USE kiln_status kiln_traffic_price_streamed(kiln_ctx *cx, const kiln_machine *m,
                                                      int n_threads, kiln_loops *l,
                                                      kiln_tile_cost *io);

#endif
