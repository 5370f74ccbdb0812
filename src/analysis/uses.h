// The buffers that a nest reads and writes, and whether two nests conflict.
#ifndef KILN_ANALYSIS_USES_H
#define KILN_ANALYSIS_USES_H

#include "ir/loop.h"

enum { KILN_USES_READS = 1, KILN_USES_WRITES = 2 };

// gives: [buffers] how |nest| uses each, its siblings left out; in scratch
uint8_t *kiln_uses_of(kiln_ctx *cx, const kiln_loops *l, const kiln_loop *nest);
// An argument of the kernel that one of the nests writes and the other reads or writes; NULL: there
// is none, and they may run concurrently.
const kiln_buffer *kiln_nests_conflict(kiln_ctx *cx, const kiln_loops *l, const kiln_loop *a,
                                       const kiln_loop *b);

#endif
