// Instructions in loop programs: an INSTR replaced by the loops that it means, and what it wants of
// its operands.
//
// An INSTR's operands are LOADs, one for each buffer of the meaning in its order, of the element
// (_0, _1, ...) of that operand's tile: `instr fma.6x2(C[6*i + _0, 32*j + _1], A[6*i + _0, k],
// B[k, 32*j + _1])` (kiln_tile_var). A copy may have a condition over the axes of its result's
// tile, `where 8*i + _0 < n`: elements for which it does not hold are zero, and are not read.
#ifndef KILN_TARGET_INSTR_H
#define KILN_TARGET_INSTR_H

#include "target/target.h"

// |l| with every INSTR replaced by its meaning over the buffers of |l|; |l| itself when it has
// none.
//
// needs: the loops of the instructions' meanings (schedule/instr.h makes them)
kiln_loops *kiln_instrs_expand(kiln_ctx *cx, kiln_loops *l);
// The same for all but those of warps, whose results are fragments, and copies of boxes.
kiln_loops *kiln_instrs_expand_threads(kiln_ctx *cx, kiln_loops *l);
bool kiln_instr_is_warps(const kiln_loop *l); // whether |l| is such an INSTR
// The note on the loop that a warp's INSTR expands to: what it does to fragments the lanes do
// together.
#define KILN_WARP_NOTE "warp"

// |value| without the choices of zero around it; *out_where what has to hold for it, NULL: nothing.
const kiln_expr *kiln_instr_copied(kiln_ctx *cx, const kiln_expr *value,
                                   const kiln_expr **out_where);

// How far neighbours along axis |axis| of an operand's tile lie apart, in elements; 0: it varies.
int64_t kiln_instr_distance(kiln_ctx *cx, const kiln_loops *l, const kiln_expr *operand, int axis);
// An axis of an operand's tile along which neighbours do not lie as the spelling wants them.
typedef struct kiln_misfit {
  int operand, axis;
  int64_t want, got; // elements apart; 0: it varies
} kiln_misfit;
// Finds the first of the INSTR |instr| of |l|. False when all is as it should be.
bool kiln_instr_find_misfit(kiln_ctx *cx, const kiln_loops *l, const kiln_loop *instr,
                            kiln_misfit *out);

#endif
