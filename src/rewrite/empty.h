// What no element is computed from, or none is computed of, once extents are known.
#ifndef KILN_REWRITE_EMPTY_H
#define KILN_REWRITE_EMPTY_H

#include "ir/prim.h"

// Makes statements without instances fills: of tensors without elements, which then read nothing,
// and of those that only their initial value or the combiner's identity reaches. What is loaded of
// tensors without elements, behind conditions that never hold, becomes zero. So what follows meets
// no index, no box and no loop over nothing but that of such a fill.
//
// keeps: inputs, outputs, and the statement of each tensor
void kiln_program_settle_empty(kiln_ctx *cx, kiln_program *p);

#endif
