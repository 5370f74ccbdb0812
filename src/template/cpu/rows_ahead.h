// Rows of a contraction's broadcast operand, and of its result, that its tiles ask for, in turns,
// before others are done.
//
// A core's own prefetchers follow a few streams. Of an image whose channels lie in front, a tile
// reads a few pixels of each channel, all of them streams of their own, and of groups of channels
// that lie side by side a few lines of each pixel: what comes from behind the L2 is waited for
// line by line.
#ifndef KILN_TEMPLATE_CPU_ROWS_AHEAD_H
#define KILN_TEMPLATE_CPU_ROWS_AHEAD_H

#include "template/cpu/contraction.h"

// Whether k->col's rows lie in a piece, and the reduction runs over many such pieces, in an image
// from behind the L2.
bool kiln_rows_ahead_lie_apart(const kiln_contraction *k);
// As many of the |tiles| along k->col as make pieces of some lines: all of them where those are
// few, or where no number near that divides them.
int64_t kiln_rows_ahead_tiles(const kiln_contraction *k, int64_t tiles);
// The iterations of |tiles|, a loop in |around|, ask for the rows of the next iteration of
// |around|, where its part is known; those of |steps|, a loop in |tiles|, where that would be more
// lines at once than a core has on the way. 0: there is none.
KILN_MUST_USE kiln_status kiln_rows_ahead_ask(const kiln_contraction *k, kiln_symbol around,
                                              kiln_symbol tiles, kiln_symbol steps);
// The same of the result, where |k|'s node is turned: of the lines to which the next block is
// copied, across the streams in which they lie, where that is behind the L2.
KILN_MUST_USE kiln_status kiln_rows_ahead_ask_result(const kiln_contraction *k, kiln_symbol tiles,
                                                     kiln_symbol steps);

#endif
