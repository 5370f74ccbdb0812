// Instructions in loop programs: expansion of an INSTR to the loops of its meaning, and
// requirements on its operands.
//
// The operands of an INSTR are LOADs, one for each buffer of the meaning in order, of element (_0,
// _1, ...) of the operand's tile: `instr fma.6x2(C[6*i + _0, 32*j + _1], A[6*i + _0, k], B[k, 32*j
// + _1])` (kiln_tile_var). A copy may have a condition on its result's tile, `where 8*i + _0 < n`:
// other elements are zero, and are not loaded.
#ifndef KILN_TARGET_INSTR_H
#define KILN_TARGET_INSTR_H

#include "target/target.h"

// Whether the machine multiplies bytes by numbers of 4 bits, in registers of its vectors.
bool kiln_machine_multiplies_bits(kiln_ctx *cx, const kiln_machine *m);
// The instruction for that with a tile of |rows| x |vectors| and |group| numbers of a column; NULL:
// there is none.
kiln_instr *kiln_bit_instr_find(kiln_ctx *cx, const kiln_machine *m, int64_t rows, int64_t vectors,
                                int64_t group);

// |l| with each INSTR replaced by its meaning over the buffers of |l|; |l| itself if it has none.
//
// needs: the loops of the instructions' meanings (schedule/instr.h makes them)
kiln_loops *kiln_instrs_expand(kiln_ctx *cx, kiln_loops *l);
// The same except for warp instructions, whose results are fragments, and TMA copies.
kiln_loops *kiln_instrs_expand_threads(kiln_ctx *cx, kiln_loops *l);
bool kiln_instr_is_warps(const kiln_loop *l); // whether |l| is an INSTR of a warp, or a TMA copy
// A note on the loops that replace a warp's INSTR: they access the fragments of all lanes.
#define KILN_WARP_NOTE "warp"

// |value| without selections between it and zero; *out_where is their condition, NULL if there is
// none.
const kiln_expr *kiln_instr_copied(kiln_ctx *cx, const kiln_expr *value,
                                   const kiln_expr **out_where);

// The stride of an operand's tile along axis |axis|, in elements; 0 if it varies.
int64_t kiln_instr_distance(kiln_ctx *cx, const kiln_loops *l, const kiln_expr *operand, int axis);
// An axis along which an operand has another stride than its instruction needs.
typedef struct kiln_misfit {
  int operand, axis;
  int64_t want, got; // strides; 0: it varies
} kiln_misfit;
// Finds the first of these for the INSTR |instr| of |l|; false if all operands are right.
bool kiln_instr_find_misfit(kiln_ctx *cx, const kiln_loops *l, const kiln_loop *instr,
                            kiln_misfit *out);

#endif
