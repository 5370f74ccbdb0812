// Instructions in loop programs: an INSTR replaced by the loops that it means.
//
// An INSTR's operands are LOADs, one for each buffer of the meaning in its order, of the element
// (_0, _1, ...) of that operand's tile: `instr fma.6x2(C[6*i + _0, 32*j + _1], A[6*i + _0, k],
// B[k, 32*j + _1])` (kiln_tile_var).
#ifndef KILN_TARGET_INSTR_H
#define KILN_TARGET_INSTR_H

#include "target/target.h"

// |l| with every INSTR replaced by its meaning over the buffers of |l|; |l| itself when it has none.
//
// needs: the loops of the instructions' meanings (schedule/instr.h makes them)
kiln_loops *kiln_instrs_expand(kiln_ctx *cx, kiln_loops *l);

#endif
