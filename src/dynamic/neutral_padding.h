// Neutral-element padding: beyond the end of an axis that is shorter in this run, operands of a
// reduction get the reduction's neutral element, 0 for sums and -inf for maxima.
//
// The padding is a select in the map that computes the operand, or in a map of its own. Later
// reductions often follow for free: with scores of -inf beyond the end, a softmax's exponentials
// are 0 there, and their sum needs no padding. A scatter gets a guard instead.
#ifndef KILN_DYNAMIC_NEUTRAL_PADDING_H
#define KILN_DYNAMIC_NEUTRAL_PADDING_H

#include "ir/prim.h"

// Dimension |dim| of statement |stmt| (a reduction dimension, or any of a scatter) has |extent|
// iterations in a run. |extent| may load the dimensions' values.
typedef struct kiln_reach {
  int stmt, dim;
  const kiln_expr *extent;
} kiln_reach;

// Axes of tensors whose padding is read: bit k for axis k.
typedef struct kiln_neutrally_padded {
  int n;
  uint8_t *axes; // [n] by tensor of the changed program
} kiln_neutrally_padded;

// Changes |p|; |reaches| are in ascending order of statements. *out in cx->perm.
void kiln_program_pad_neutrally(kiln_ctx *cx, kiln_program *p, int n, const kiln_reach *reaches,
                                kiln_neutrally_padded *out);

#endif
