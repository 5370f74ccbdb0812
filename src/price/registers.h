// The register tile (micro-kernel size) of a contraction, and its cost.
#ifndef KILN_PRICE_REGISTERS_H
#define KILN_PRICE_REGISTERS_H

#include "target/target.h"

// The instructions of a reduction step that is no single FMA for each vector of the tile; all zero:
// an FMA.
typedef struct kiln_step_work {
  double multiplies,
      all; // for an element and vector: by the multipliers (2 a cycle), and in total (6 a cycle)
  double vector,
      element; // for a vector of the other operand, and for an element, besides its load
} kiln_step_work;

// Extents of a contraction that is tiled along |col| and |row| (1: no such dim), dims of the
// broadcast operand of which col is the inner one. |v| is the vector dim, |depth| the extent of the
// reduction. The strides are those of the broadcast operand along col, row and the reduction in
// bytes; 0: unknown. If no tile has a width of |vectors|, any width may be chosen.
typedef struct kiln_tile_extents {
  int64_t v, col, row, depth;
  int64_t col_bytes, row_bytes;
  uint32_t vectors; // bit n: n vectors are allowed; 0: any number
  bool in_panels;   // the broadcast elements of a step are contiguous
  kiln_step_work work;
  int64_t step_bytes;
} kiln_tile_extents;

// rows x cols elements of |vectors| vectors each.
typedef struct kiln_register_tile {
  int64_t rows, cols, vectors;
  double cycles;     // of the whole contraction
  double efficiency; // the share of |cycles| in which the multipliers are busy
} kiln_register_tile;

// The tile of least estimated cycles with rows*cols*vectors + vectors + 1 <= registers. Cycles are
// the longest of: FMAs (2 a cycle) or the instructions in their place; loads (2 a cycle); 4 cycles
// a step, the latency of an FMA; each plus a cycle for every element that misses the L1 in each
// step because of set conflicts, or for every line that later vectors load again; but at least the
// time in which the L2 delivers evicted vectors.
kiln_register_tile kiln_tile_registers(const kiln_machine *m, const kiln_tile_extents *extents);
// The same for tiles whose vectors must divide |v|. Tiles whose rows and cols divide their extents,
// too, are preferred unless others are much better.
kiln_register_tile kiln_tile_registers_even(const kiln_machine *m,
                                            const kiln_tile_extents *extents);
// The same for tiles whose vectors must divide |v|, without a cost of partial tiles of rows.
kiln_register_tile kiln_tile_registers_exact(const kiln_machine *m,
                                             const kiln_tile_extents *extents);
// The figures of a given tile.
kiln_register_tile kiln_tile_given(const kiln_machine *m, const kiln_tile_extents *extents,
                                   const kiln_register_tile *tile);

#endif
