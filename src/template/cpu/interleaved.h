// Where the loop over groups runs if the groups' channels are interleaved in memory.
//
// Both operands of a grouped convolution move with the group. With channels last, a group's part of
// a pixel is a few channels: one group after the other would load the whole image once each, in
// lines of which it uses a part. So the loop over groups may run inside of some tile loops over
// rows: all groups of a piece of the image run while the piece is in cache, and their weights are
// reread for each piece.
#ifndef KILN_TEMPLATE_CPU_INTERLEAVED_H
#define KILN_TEMPLATE_CPU_INTERLEAVED_H

#include "template/cpu/contraction.h"

typedef struct kiln_interleaved {
  int n_around;  // loops over rows, from the outside, that run around the groups'
  bool is_far;   // pieces of the image come from beyond the L2
  double l2, l1; // bytes that cross into them, of all operands and of the result
} kiln_interleaved;

// Whether groups are a loop of |k| that may run inside: of constant weights, whose panels stay in
// the L2 for one group.
bool kiln_interleaved_is(const kiln_contraction *k);
// The place with the least time of transfers.
//
// needs: the register tile is chosen
kiln_interleaved kiln_interleaved_place(const kiln_contraction *k);

#endif
