// Random inputs of a program, valid ones: values that are used as indices stay in range.
#ifndef KILN_VERIFY_RANDOM_H
#define KILN_VERIFY_RANDOM_H

#include "ir/prim.h"

// Fills the row-major elements of input |tensor| at |data|: floats in [-1, 1), integers as far as
// the statements that read them allow. The shapes are static. |*state| goes on.
void kiln_random_fill(kiln_ctx *cx, const kiln_program *p, int tensor, uint64_t *state, void *data);

#endif
