// Which buffers a nest touches, and whether two nests of a program touch one that either writes.
#ifndef KILN_ANALYSIS_USES_H
#define KILN_ANALYSIS_USES_H

#include "ir/loop.h"

enum { KILN_USES_READS = 1, KILN_USES_WRITES = 2 };

// gives: [buffers] what |nest| does with each, siblings left out; in scratch
uint8_t *kiln_uses_of(kiln_ctx *cx, const kiln_loops *l, const kiln_loop *nest);
// An argument of the kernel that one of the two nests writes and the other one touches; NULL: there
// is none, and they may run at the same time.
const kiln_buffer *kiln_nests_meet(kiln_ctx *cx, const kiln_loops *l, const kiln_loop *a,
                                   const kiln_loop *b);

#endif
