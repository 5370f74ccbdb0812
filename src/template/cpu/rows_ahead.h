// Software prefetch of rows of a contraction's broadcast operand, and of its result: tiles issue
// it, spread over their steps, before the tiles that use the rows.
//
// Hardware prefetchers track a few streams. With channels first, a tile reads a few pixels of each
// channel, each of them a stream; with interleaved groups of channels, a few lines of each pixel:
// without prefetches, each line from beyond the L2 costs its full latency.
#ifndef KILN_TEMPLATE_CPU_ROWS_AHEAD_H
#define KILN_TEMPLATE_CPU_ROWS_AHEAD_H

#include "template/cpu/contraction.h"

// Whether k->col's rows are contiguous, and the reduction runs over many of these runs, in an image
// from beyond the L2.
bool kiln_rows_ahead_lie_apart(const kiln_contraction *k);
// As many of the |tiles| along k->col as make runs of some lines: all of them where those are few,
// or where no number near that divides them.
int64_t kiln_rows_ahead_tiles(const kiln_contraction *k, int64_t tiles);
// The iterations of |tiles|, a loop in |around|, prefetch the rows of the next iteration of
// |around|, where its part is known; those of |steps|, a loop in |tiles|, where that would be more
// lines at once than a core keeps in flight. 0: there is none.
KILN_MUST_USE kiln_status kiln_rows_ahead_ask(const kiln_contraction *k, kiln_symbol around,
                                              kiln_symbol tiles, kiln_symbol steps);
// The same for the result, where |k|'s node is turned: the lines into which the next block is
// transposed, where the result is beyond the L2.
KILN_MUST_USE kiln_status kiln_rows_ahead_ask_result(const kiln_contraction *k, kiln_symbol tiles,
                                                     kiln_symbol steps);

#endif
