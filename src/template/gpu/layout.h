// Thread-value layouts: which thread of a block holds element (row, column) of a tile, and in which
// of its registers. A layout is a value, a list of digits of mixed-radix numbers:
//
//     sums of mma.m16n8 (i, j), a warp's tile of 32 x 64          digit  axis / stride % extent
//     lane      4 (i % 8) + j % 8 / 2                             lane    i / 1 % 8,  j / 2 % 4
//     register  (((i / 16) 8 + j / 8) 2 + i % 16 / 8) 2 + j % 2   register  i / 16 % 2,  j / 8 % 8,
//                                                                           i / 8 % 2,  j / 1 % 2
//
// A fragment is a buffer that stores its digits as axes, in this order: warps, lanes, registers.
// Its elements in memory order are then distributed over the threads in equal parts, as the loop
// level distributes LOCAL buffers outside of thread loops (ir/loop.h). The layout of an operand is
// read off the instruction's row (kiln_instr.fragments); no layout of an instruction is written by
// hand.
//
// Layouts are plain values that own nothing. A warp below is a warp of 32 lanes along thread.x, or
// a warp group of 128; warps are numbered along thread.y.
#ifndef KILN_TEMPLATE_GPU_LAYOUT_H
#define KILN_TEMPLATE_GPU_LAYOUT_H

#include "template/gpu/grid.h"

typedef enum kiln_holder { KILN_HOLDER_WARP, KILN_HOLDER_LANE, KILN_HOLDER_REGISTER } kiln_holder;

typedef struct kiln_layout_digit {
  kiln_holder holder;
  int axis;
  int64_t stride, extent;
} kiln_layout_digit;

enum { KILN_MAX_DIGITS = 16, KILN_MAX_LAYOUT_RANK = 3 };
typedef struct kiln_layout {
  int rank;                              // axes of the tile: rows and columns, behind others
  int64_t extents[KILN_MAX_LAYOUT_RANK]; // along them
  int n;
  kiln_layout_digit
      digits[KILN_MAX_DIGITS]; // as they are stored: warps, lanes, registers; none of one
} kiln_layout;

// --- layouts ---

// The tile of one instruction: operand |operand| of |instr|, 0 its result. Axes of its meaning
// behind the first count as one, row-major. A copy to a fragment has operand 0 alone in registers.
//
// gives: false if the operand lies in memory, or if its elements are not all of a lane's registers
bool kiln_layout_of_instr(kiln_ctx *cx, kiln_instr *instr, int operand, kiln_layout *out);
// A tile of |extents| elements, of which each warp has |warp| elements, in tiles of |one| that
// follow each other in its registers, fastest along axis |inner|.
//
// gives: false if tiles of |one| do not fill a warp's part, or these the tile
bool kiln_layout_tiled(const kiln_layout *one, const int64_t *extents, const int64_t *warp,
                       int inner, kiln_layout *out);
// The same for an operand of a matrix instruction, in the register order of the kernel templates:
// tiles along n, and along k.
typedef enum kiln_operand {
  KILN_OPERAND_SUMS,            // (m, n)
  KILN_OPERAND_LEFT,            // (m, k)
  KILN_OPERAND_RIGHT,           // (k, n)
  KILN_OPERAND_RIGHT_TRANSPOSED // (n, k)
} kiln_operand;
bool kiln_layout_of_operand(kiln_ctx *cx, kiln_instr *instr, kiln_operand operand,
                            const int64_t *extents, const int64_t *warp, kiln_layout *out);
// Rows and columns change places.
kiln_layout kiln_layout_transposed(const kiln_layout *l);
// |extent| tiles of layout |l|, along a new axis in front, of which each warp has |warp|.
bool kiln_layout_stacked(const kiln_layout *l, int64_t extent, int64_t warp, kiln_layout *out);

// Sums in warps, as all of mma.m16n8 leave them, or in warp groups, as wgmma does.
bool kiln_layout_of_sums(const kiln_lowering *w, bool by_warpgroups, const int64_t *extents,
                         const int64_t *warp, kiln_layout *out);

// Register tiles of threads without matrix instructions, of any type: each thread has |unit|
// neighbours along an axis, then those of |lanes| others and |warps|. With |interleaves|, lanes 2i
// and 2i + 1 differ in their column, lanes i and i + 2 in their row.
typedef struct kiln_simt_tile {
  int64_t extents[2], warps[2], lanes[2], unit[2];
  bool interleaves;
} kiln_simt_tile;
bool kiln_layout_of_simt(const kiln_simt_tile *t, kiln_layout *out);

// What a reduction along |axis| of |l| leaves: a tile with one element for each copy along |axis|,
// since all threads that had an element of a row have its result. Copies are numbered as these
// threads are, warps first: |axis| of 4 copies for sums of mma.m16n8 by whole rows.
void kiln_layout_reduced(const kiln_layout *l, int axis, kiln_layout *out);
// The number of copies of an element, by lanes of one warp, and by warps.
int64_t kiln_layout_copies(const kiln_layout *l, int axis, kiln_holder holder);

// The instruction that combines, along |axis|, what each lane made of its own elements: its tile
// has the lanes of kiln_layout_reduced; NULL: there is none, as for one lane, or digits of the axis
// that are apart.
kiln_instr *kiln_layout_reduction(const kiln_lowering *w, const kiln_layout *l, int axis,
                                  kiln_combiner combiner);

// The number of the copy that the thread of an element has, which is at |index| along |axis|.
const kiln_expr *kiln_layout_copy(kiln_ctx *cx, const kiln_layout *l, int axis,
                                  const kiln_expr *index);

int64_t kiln_layout_extent(const kiln_layout *l, kiln_holder holder); // warps, lanes, registers
// The thread (warp times lanes plus lane) and the register of the element at |index|.
void kiln_layout_find(const kiln_layout *l, const int64_t *index, int64_t *out_thread,
                      int64_t *out_register);

// --- conversions ---

// How elements in layout |from| come to layout |to| of the same tile.
typedef enum kiln_conversion {
  KILN_CONVERSION_NONE,      // the same threads and the same registers
  KILN_CONVERSION_REGISTERS, // the same threads: a renaming of registers
  KILN_CONVERSION_SHUFFLE,   // lanes of the same warp exchange elements
  KILN_CONVERSION_SHARED     // warps exchange elements, through shared memory
} kiln_conversion;
kiln_conversion kiln_layout_conversion(const kiln_layout *from, const kiln_layout *to);

// --- operations ---

// The extents of the last |rank| axes of |buffer|; NULL: it has fewer.
const int64_t *kiln_layout_extents(const kiln_lowering *w, kiln_symbol buffer, int rank);
// Stores |buffer|, whose last |l|->rank axes are the tile's, in layout |l|.
kiln_status kiln_layout_apply(kiln_lowering *w, kiln_symbol buffer, const kiln_layout *l);
// The same in that of |operand| of |instr|, of which each warp has |warp| elements; NULL: all.
//
// errors: KILN_BAD_INPUT: tiles of the instruction do not fill it
kiln_status kiln_layout_apply_operand(kiln_lowering *w, kiln_symbol buffer, kiln_instr *instr,
                                      kiln_operand operand, const int64_t *warp);
// The digits of |axis|, the highest first.
int kiln_layout_digits(const kiln_layout *l, int axis, const kiln_layout_digit **out);
// Cuts |loop|, which runs along |axis|, into a loop for each of these digits.
//
// gives: out_loops[*out_n], out_digits[*out_n]
kiln_status kiln_layout_cut(kiln_lowering *w, const kiln_layout *l, int axis, kiln_symbol loop,
                            kiln_symbol *out_loops, const kiln_layout_digit **out_digits,
                            int *out_n);
// Combines along |axis| of two, by |instr| (kiln_layout_reduction), what lanes hold of rows: the
// nest of |rows|, along the other axis, and the |n| loops |inner|, which the instruction takes
// whole.
kiln_status kiln_layout_run_reduction(kiln_lowering *w, const kiln_layout *l, int axis,
                                      kiln_symbol rows, int n, const kiln_symbol *inner,
                                      kiln_instr *instr);
// Runs the nest of |loop| on |lanes| x |warps| threads, by those that hold the elements of the
// largest fragment that it reads or writes (the primitive `distribute`).
//
// needs: fragments in their layouts
kiln_status kiln_layout_run(kiln_lowering *w, kiln_symbol loop, int64_t lanes, int64_t warps);

#endif
