// Empty tensors and empty reductions.
#ifndef KILN_REWRITE_EMPTY_H
#define KILN_REWRITE_EMPTY_H

#include "ir/prim.h"

// Replaces statements with an empty domain by fills: an empty tensor then reads nothing, and the
// result of an empty reduction is its initial value or the combiner's identity. Loads of empty
// tensors, whose conditions never hold, become zero. Later passes thus meet extents of 0 only in
// such fills.
// keeps: inputs, outputs, and the statement of each tensor
void kiln_program_fold_empty(kiln_ctx *cx, kiln_program *p);

#endif
