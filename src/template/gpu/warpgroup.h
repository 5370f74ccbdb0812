// Layouts of warp groups' instructions (target/gpu/wgmma.c): sums are distributed over the 128
// threads of a warp group along x, the groups along y; operands lie in shared
// memory, swizzled, in lines of 64 elements.
#ifndef KILN_TEMPLATE_GPU_WARPGROUP_H
#define KILN_TEMPLATE_GPU_WARPGROUP_H

#include "template/gpu/fragment.h"

enum { KILN_WARPGROUP = 128, KILN_WARPGROUP_ROWS = 64, KILN_WARPGROUP_LINE = 64 };

// Layouts of buffers, behind their first |n_lead| axes.
//
// Sums (m, n) of groups' tiles of |rows| rows:
// group, i / 16, i % 8, j % 8 / 2, m / 64, n / 8, i % 16 / 8, j % 2.
kiln_status kiln_warpgroup_layout_sums(kiln_lowering *w, kiln_symbol sums, int n_lead,
                                       int64_t rows);
// Row-wise values of the 64 rows of each group, (m, copies for the four lanes of a row):
// group, i / 16, i % 8, copy, i % 16 / 8.
kiln_status kiln_warpgroup_layout_rows(kiln_lowering *w, kiln_symbol f, int n_lead);

// A nest over the elements of groups' tiles of |m| rows, by the threads that hold their sums.
kiln_status kiln_warpgroup_run_elements(kiln_lowering *w, int64_t m, kiln_symbol rows,
                                        kiln_symbol columns);

// The instruction |name|; NULL: there is none.
kiln_instr *kiln_warpgroup_instr(kiln_lowering *w, const char *name);

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
