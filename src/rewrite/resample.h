// Pointwise contractions in front of resampling.
#ifndef KILN_REWRITE_RESAMPLE_H
#define KILN_REWRITE_RESAMPLE_H

#include "ir/prim.h"

// Moves contractions over channels that read enlarged tensors to before the enlargement: both are
// linear, one along the channels, the other along the rest, so they commute, and the contraction is over
// fewer elements. Where the enlarged tensor is a part of a concatenation along the channels, the
// contraction is first cut into one for each part:
//     C = W [up(X); Y]  becomes  C = up(W_x X) + W_y Y
// Sums are taken in another order: results differ by rounding. Applied where the elements shrink to half
// or less and nobody else reads what is skipped.
//
// needs: static shapes
// gives: dead statements removed and ids renumbered where anything was moved
// source: Korch, ASPLOS'24, section 4 (transformations of the primitive graph)
void kiln_program_commute_resampling(kiln_ctx *cx, kiln_program *p);

#endif
