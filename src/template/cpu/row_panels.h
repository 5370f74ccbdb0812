// Rows of a contraction's broadcast operand, copied so that a register tile reads them in one
// stream.
//
// Where an operand lies row by row, a tile of six rows follows six streams, whose lines share sets
// of the L1 where rows are a multiple of pages apart. In a panel, CHUNK neighbours of a row lie
// beside those of the tile's next row: [tiles][chunks of the reduction][rows of a tile][CHUNK],
// vectors being copied as they lie.
#ifndef KILN_TEMPLATE_CPU_ROW_PANELS_H
#define KILN_TEMPLATE_CPU_ROW_PANELS_H

#include "template/cpu/contraction.h"

enum { KILN_ROW_CHUNK = 4 };

// Whether rows can be copied and are read often enough: of an operand that the kernel does not
// compute and reads nowhere else, in whole chunks along the reduction, with rows along one dim,
// k->col. The tile is not looked at.
bool kiln_row_panels_pay(const kiln_contraction *k);
// Lets the schedule read the operand by axes of its own where its index is one number that counts
// them all.
//
// errors: KILN_BAD_INPUT: it is another one
KILN_MUST_USE kiln_status kiln_row_panels_view(const kiln_contraction *k);
// Copies the rows that an iteration of |at| reads.
KILN_MUST_USE kiln_status kiln_row_panels_stage(const kiln_contraction *k, kiln_symbol at);

#endif
