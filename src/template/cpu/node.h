// A contraction inside a kernel: tiling shared by every template that contains one.
//
// The statement is computed at some loop into local memory, or in a nest of its own, and its nest
// there is tiled for registers: the tile's accumulators stay in registers over the whole reduction,
// one operand is broadcast, the other is read as vectors along the contiguous dim, rows are
// unrolled.
#ifndef KILN_TEMPLATE_CPU_NODE_H
#define KILN_TEMPLATE_CPU_NODE_H

#include "template/lower.h"
#include "price/registers.h"

// Where a vector operand that is no constant is copied into panels.
typedef enum kiln_pack_way {
  KILN_PACKS_AS_NEEDED, // at pack_at, unless it has unit stride
  // With |step|: each step of a block copies its part, though it has unit stride: rows at a
  // large stride miss the TLB, and conflict in the caches' sets.
  KILN_PACKS_STEPS,
  KILN_PACKS_ONCE, // as a whole, before everything, though it has unit stride
} kiln_pack_way;

// One contraction of a template's kernel, and how to run it.
typedef struct kiln_contraction_node {
  // The contraction; it writes T and is still where kiln_schedule_begin put it.
  const kiln_stmt *stmt;
  // The map that reads T element by element over dims of the same names (bias, activation, a cast)
  // and that is computed in its place, T being in registers then; NULL: T itself is the result.
  const kiln_stmt *finish;
  // The loop at which the result is computed, into memory of |scope|, by compute_at. With scope
  // PARAM the result stays where begin, or the template, has put it: |at| is the innermost loop
  // around it that is not one of |loops|, 0 where there is none.
  kiln_symbol at;
  kiln_scope scope;
  // The loop of the result over each of its dims, where the template has split that; 0: as begin
  // named it.
  kiln_symbol loops[KILN_MAX_RANK];
  // The loop, around the result's, at which panels of the vector operand are copied, where they are
  // no constant and have no unit stride; 0: once, before everything.
  kiln_symbol pack_at;
  kiln_register_tile tile; // rows 0: chosen from the machine and the extents at the place
  // The step of the reduction along its contiguous dim: a step is summed in registers, then added
  // to sums in local memory. It divides that dim, and the tile's vectors the result's contiguous
  // dim. 0: all at once.
  int64_t step;
  kiln_pack_way packs;
  // The map that decodes (dequantizes) the vector operand from packed constants, for this statement
  // alone: a block of columns at a time goes to panels, which all rows read while they stay in the
  // L2. NULL: none.
  const kiln_stmt *decoded;
  int64_t pieces[KILN_MAX_RANK]; // by dim: extent inside of loops that are still to be made; 0: all
  bool keeps_panels;             // a constant is read in panels that other programs have
  bool is_parallel;              // the outer tile loops run on all threads; |at| is 0
  bool is_turned;                // |at|'s iterations transpose the block into the kernel's result
} kiln_contraction_node;

// The loops around the register tile, outermost first; those that |is_parallel| fused count as one.
typedef struct kiln_node_loops {
  int n;
  kiln_symbol loops[4 * KILN_MAX_RANK];
  int64_t extents[4 * KILN_MAX_RANK];
} kiln_node_loops;

// Whether the broadcast operand of |s|, a contraction, is copied where it is computed in a block
// (template/cpu/row_panels.h).
bool kiln_contraction_packs_rows(kiln_lowering *w, const kiln_stmt *s);
// Places |node|'s contraction and tiles it. Loops of the result are RESULT.DIM as begin named them
// (with |finish|) or T.copy.AXIS (without), split into .o and .i; those of T keep their names,
// T.DIM and T.init.DIM, and run inside the innermost tile loop.
//
// needs: every reader of the result lies in |node|->at: consumers are placed before producers.
//        Constant operands are packed for the whole kernel, so that two nodes that read one
//        constant must want the same panels
// gives: *out, the tile loops; NULL |out| is allowed
// errors: KILN_BAD_INPUT: no operand has the contiguous dim, or a primitive refuses
KILN_MUST_USE kiln_status kiln_lowering_contraction_node(kiln_lowering *w,
                                                         const kiln_contraction_node *node,
                                                         kiln_node_loops *out);

#endif
