// Products whose sums are added up in parts: a loop of the reduction gives each of its iterations sums of its own, and
// what follows adds these up. Splits are blocks' parts, which meet in memory; a second nest adds them up and finishes.
#ifndef KILN_TILE_GPU_SPLITS_H
#define KILN_TILE_GPU_SPLITS_H

#include "tile/gpu_blocks.h"

// Puts |loop| around the nest of the sums, whose loops are |outer| (0: none), those over the sums and |inner|, and
// gives each of its iterations a part of the sums: the buffer |name|, parts along its last axis.
kiln_status kiln_sums_factor(kiln_lowering *w, const kiln_product *p, kiln_symbol loop,
                             kiln_symbol outer, kiln_symbol inner, kiln_symbol name);
// Adds up the parts of |sum| along the last axis of the buffer |from| in registers of the thread that runs |at|.
// |clear_column| and |unit| are loops of the nest that clears |sum|: over columns, and over the splits, of which a
// block has one (0: |sum| has no such axis).
kiln_status kiln_sums_combine(kiln_lowering *w, const kiln_product *p, kiln_symbol sum,
                              kiln_symbol clear_column, kiln_symbol unit, const char *from,
                              kiln_symbol at);

// Whether the sums of splits can be of whole tiles of m x n, and their finish of whole words.
bool kiln_splits_fit(const kiln_lowering *w, const kiln_product *p, int64_t m, int64_t n);
// Rounds the sums' rows and columns up to whole tiles: what is stored in parts cannot be stored twice, as a result can
// where tiles overlap.
kiln_status kiln_splits_pad(kiln_lowering *w, const kiln_product *p, int64_t m, int64_t n);
// The sums |all| of splits, each split's together; and the result from them, some neighbours a thread: the second nest.
kiln_status kiln_splits_finish(kiln_lowering *w, const kiln_product *p, kiln_symbol all);
// What the second nest takes, in ns.
double kiln_splits_finish_ns(const kiln_lowering *w, const kiln_product *p, int64_t splits);

#endif
