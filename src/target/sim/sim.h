// The simulator: runs any loop program on host memory, and checks on the way what compiled code
// takes for granted.
//
// Every access lies within its buffer's extents; LOCAL, REGISTER and WORKSPACE elements are written
// before they are read; iterations of a PARALLEL loop do not read what another one writes, nor
// write one element with different values. Loops run serially, whatever they are marked. An
// instruction runs as its meaning.
#ifndef KILN_TARGET_SIM_SIM_H
#define KILN_TARGET_SIM_SIM_H

#include "target/target.h"

// Runs |l| on |args|, the base addresses of its PARAM and WORKSPACE buffers in id order (WORKSPACEs
// and packed PARAMs too).
//
// errors: KILN_INTERNAL on a breach of the above; the message names buffer and index
KILN_MUST_USE kiln_status kiln_sim_run(kiln_ctx *cx, kiln_loops *l, void *const *args);
// Fills |out|, room for kiln_buffer_elems(b) elements, with packed |b| from the constant's
// row-major elements at |source|.
KILN_MUST_USE kiln_status kiln_sim_pack(kiln_ctx *cx, const kiln_program *p, const kiln_buffer *b,
                                        const void *source, void *out);

#endif
