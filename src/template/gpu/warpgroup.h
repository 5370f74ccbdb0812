// Warp groups of 128 threads along x, the groups along y (target/gpu/wgmma.c): their operands lie
// in shared memory, swizzled, in lines of 64 elements; the layout of their sums is in layout.h.
#ifndef KILN_TEMPLATE_GPU_WARPGROUP_H
#define KILN_TEMPLATE_GPU_WARPGROUP_H

#include "template/gpu/grid.h"

enum { KILN_WARPGROUP = 128, KILN_WARPGROUP_ROWS = 64, KILN_WARPGROUP_LINE = 64 };

// An operand's tile that is copied to shared memory.
typedef struct kiln_warpgroup_tile {
  const kiln_stmt *s;
  int inside;                               // which of the last two axes, 0 or 1, is contiguous
  bool by_tma, is_im2col;                   // the latter in im2col mode
  kiln_symbol buffer, lines, rows, columns; // loops over TMA copies, and over their elements
} kiln_warpgroup_tile;

// Whether TMA can copy an operand as lines of 64 elements: its rows are whole lines.
bool kiln_warpgroup_has_lines(const kiln_lowering *w, const kiln_stmt *operand);
// Copies the part of an operand that an iteration of |at| reads to shared memory: by TMA, or by
// |threads| threads, cyclically.
//
// needs: s, inside, by_tma, is_im2col
kiln_status kiln_warpgroup_stage(kiln_lowering *w, kiln_warpgroup_tile *t, kiln_symbol at,
                                 int64_t threads);
// Swizzles the tile, which is filled |ahead| iterations of |step| ahead in |depth| stages; |depth|
// 1: at the begin of each, which with TMA must be the only one.
kiln_status kiln_warpgroup_fill(kiln_lowering *w, const kiln_warpgroup_tile *t, kiln_symbol step,
                                int depth, int ahead);

#endif
