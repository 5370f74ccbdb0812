// Packing of a contraction's broadcast operand, so that a register tile reads its rows as one
// stream.
//
// Stored row by row, an operand gives a tile of six rows six streams, which conflict in the sets of
// the L1 where rows are a multiple of pages apart. In a panel, CHUNK elements of a row are followed
// by those of the tile's next row: [tiles][chunks of the reduction][rows of a tile][CHUNK]. Packing
// copies whole vectors.
#ifndef KILN_TEMPLATE_CPU_ROW_PANELS_H
#define KILN_TEMPLATE_CPU_ROW_PANELS_H

#include "template/cpu/contraction.h"

enum { KILN_ROW_CHUNK = 4 };

// Whether rows can be copied and are read often enough: of an operand that the kernel does not
// compute and reads nowhere else, in whole chunks along the reduction, with rows along one dim,
// k->col. The tile is not looked at.
bool kiln_row_panels_pay(const kiln_contraction *k);
// Lets the schedule read the operand by separate axes where its index is one number that flattens
// them.
//
// errors: KILN_BAD_INPUT: the index has another form
KILN_MUST_USE kiln_status kiln_row_panels_view(const kiln_contraction *k);
// Copies the rows that an iteration of |at| reads.
KILN_MUST_USE kiln_status kiln_row_panels_stage(const kiln_contraction *k, kiln_symbol at);

#endif
