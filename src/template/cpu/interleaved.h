// Groups whose channels lie side by side: where their loop runs.
//
// A grouped convolution's operands both move with the group. Where images lie channels last, a
// group's part of a row is a few channels of each pixel: an image that is read for one group after
// the other comes into a cache once for each, in lines of which a group uses a part. So the loop
// over groups may run inside of some of the loops over the tiles' rows: all groups of a piece of
// the image then follow each other, while it stays where it is, and their weights are read again
// for each piece.
#ifndef KILN_TEMPLATE_CPU_INTERLEAVED_H
#define KILN_TEMPLATE_CPU_INTERLEAVED_H

#include "template/cpu/contraction.h"

typedef struct kiln_interleaved {
  int n_around;  // loops over rows, from the outside, that run around the groups'
  bool is_far;   // pieces of the image come from behind the L2
  double l2, l1; // bytes that cross into them, of all operands and of the result
} kiln_interleaved;

// Whether groups are a loop of |k| that may run inside: of constant weights, whose panels stay in
// the L2 for one group.
bool kiln_interleaved_is(const kiln_contraction *k);
// The place at which least is waited for.
//
// needs: the register tile is chosen
kiln_interleaved kiln_interleaved_place(const kiln_contraction *k);

#endif
