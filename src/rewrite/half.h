// Tensors of f32 kept as half types.
#ifndef KILN_REWRITE_HALF_H
#define KILN_REWRITE_HALF_H

#include "ir/prim.h"

// Stores f32 tensors as |half|, f16 or bf16: what the interface has, constants of two or more axes,
// and what maps and contractions compute. Arithmetic stays f32: loads are widened, a value is
// rounded once, when it is stored, and sums run in f32. Results of other reductions that are much
// smaller than what they reduce (a mean, a maximum of scores) stay f32, and so does what follows
// from such results alone (a variance, the root of it), unless a product reads it, and sums to
// which, or to a map of which, an epsilon is added that the half type has as a subnormal or as 0.
// Constants beyond the largest finite number become that.
//
// needs: static shapes
// gives: statements renumbered; the program of the same meaning, rounded
void kiln_program_to_half(kiln_ctx *cx, kiln_program *p, kiln_dtype half);

#endif
