// The register tile (micro-kernel size) of a contraction, and its cost.
#ifndef KILN_PRICE_REGISTERS_H
#define KILN_PRICE_REGISTERS_H

#include "target/target.h"

// Instructions of a step of the reduction where it takes more than an FMA for each vector of the
// tile's elements; all zero: FMAs.
typedef struct kiln_step_work {
  double multiplies,
      all; // for an element and vector: of the multipliers (2 a cycle), and altogether (6 a cycle)
  double vector,
      element; // for a vector of the other operand, and for an element, beside loading it
} kiln_step_work;

// Extents of a contraction that is tiled in |col| and |row| (1: no such dim), dims of the broadcast
// operand, col being the inner one; |v| is the vector dim, |depth| the length of the reduction. The
// broadcast operand's next element along col, row and the reduction lies so many bytes on; 0: not
// known. Where none of |vectors| can be, any may.
typedef struct kiln_tile_extents {
  int64_t v, col, row, depth;
  int64_t col_bytes, row_bytes;
  uint32_t vectors; // bit n: tiles of n vectors may be; 0: all
  bool in_panels;   // the broadcast operand's elements of a step lie side by side
  kiln_step_work work;
  int64_t step_bytes;
} kiln_tile_extents;

// rows x cols elements of |vectors| vectors each.
typedef struct kiln_register_tile {
  int64_t rows, cols, vectors;
  double cycles;     // of the whole contraction
  double efficiency; // the share of them in which the multipliers work
} kiln_register_tile;

// The tile obeys rows*cols*vectors + vectors + 1 <= registers; among those the one with the least
// estimated cycles: FMAs (2 a cycle) or what is done in their place, loads (2 a cycle), at least 4
// cycles a step of the reduction for the latency of an FMA, and a cycle for each element that
// misses in every step, as more of them lie in one set of the L1 than it holds, or for each line
// that other vectors read again where those of all steps do not stay there; and no fewer than the
// L2 takes to give vectors that did not stay there.
kiln_register_tile kiln_tile_registers(const kiln_machine *m, const kiln_tile_extents *extents);
// The same among tiles whose vectors divide |v|, which a register must; those whose elements divide
// their extents, too, are preferred to others that are little better.
kiln_register_tile kiln_tile_registers_even(const kiln_machine *m,
                                            const kiln_tile_extents *extents);
// The same where the vectors divide |v|, and it is all the same whether the rows are whole tiles.
kiln_register_tile kiln_tile_registers_exact(const kiln_machine *m,
                                             const kiln_tile_extents *extents);
// The same figures for a tile that is given.
kiln_register_tile kiln_tile_given(const kiln_machine *m, const kiln_tile_extents *extents,
                                   const kiln_register_tile *tile);

#endif
