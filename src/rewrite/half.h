// Conversion of f32 tensors to half types.
#ifndef KILN_REWRITE_HALF_H
#define KILN_REWRITE_HALF_H

#include "ir/prim.h"

// Stores f32 tensors as |half|, f16 or bf16: inputs and outputs, constants of two or more axes, and
// results of maps and contractions. Arithmetic stays f32: loads are widened, a value is rounded
// once when it is stored, and sums are accumulated in f32. Statistics stay f32, unless a product
// reads them: reductions whose results are much smaller than their operands (a mean, a maximum of
// scores), maps of such results alone (a variance, its root), and reductions to which, or to a map
// of which, an epsilon is added that is subnormal or 0 in the half type. Constants beyond the
// largest finite half become that.
//
// needs: static shapes
// gives: statements renumbered; an equivalent program up to rounding
void kiln_program_to_half(kiln_ctx *cx, kiln_program *p, kiln_dtype half);

#endif
