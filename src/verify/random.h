// Valid random inputs of a program: values used as indices are in range.
#ifndef KILN_VERIFY_RANDOM_H
#define KILN_VERIFY_RANDOM_H

#include "ir/prim.h"

// Fills the row-major elements of input |tensor| at |data|: floats in [-1, 1), integers within the
// range that their readers allow. The shapes are static. Advances |*state|.
void kiln_random_fill(kiln_ctx *cx, const kiln_program *p, int tensor, uint64_t *state, void *data);

#endif
