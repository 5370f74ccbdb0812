// A contraction's operands and tiling: shared by its lowering (node.c) and by the template that
// compares tilings (lower_contraction.c).
#ifndef KILN_TEMPLATE_CPU_CONTRACTION_H
#define KILN_TEMPLATE_CPU_CONTRACTION_H

#include "template/cpu/node.h"
#include "price/registers.h"

typedef struct kiln_contraction_axis {
  kiln_symbol dim;  // i2
  kiln_symbol loop; // of the result: "y.i2"
  int64_t extent;   // at the place
  int64_t piece;    // extent inside of loops that are still to be made around
  int64_t tile;     // of the register tile
  int64_t block;    // of sums in local memory, where the reduction is stepped; of packed rows
} kiln_contraction_axis;

// An instruction that adds products of |group| narrow elements at once.
typedef struct kiln_dot {
  const char *family; // "vpdpbusd"
  kiln_dtype a, b, sum;
  int group;
  int vector_bytes; // of the machines on which it fills a register; 0: any
  kiln_peak peak;
  double rate;      // of its products to those that |peak| counts
  int temporaries;  // registers that it takes besides a tile's
  bool wants_small; // b as facts.h's is_small has it
  kiln_step_work work;
} kiln_dot;

typedef struct kiln_contraction {
  kiln_lowering *w;
  const kiln_contraction_node *node;
  const kiln_stmt *c;     // writes T
  const kiln_expr *a, *b; // a is broadcast; b holds the vector dim
  kiln_symbol sums;       // the buffer of the sums: T, or its cache where T is the result
  kiln_contraction_axis dims[KILN_MAX_RANK]; // the result's dims but the vector dim
  int n_dims;
  int row, col; // dims of the register tile (-1: none); col is the inner one
  kiln_contraction_axis v;
  int64_t panel; // contiguous elements along v: a tile's, or fewer where it reads several panels
  bool direct;   // b is read in place, with unit stride
  bool point_by_point; // so is a: vectors times vectors
  bool has_own_rows;   // the tile's rows are b's (template/cpu/own_rows.h)
  // Where it is not 1, b is deinterleaved: elements of each |spread|th index are contiguous.
  int64_t spread;
  const kiln_dot *dot;      // the dot-product instruction that multiplies; NULL: multiply and add
  int64_t depth;            // product of the reduction's extents
  int order[KILN_MAX_RANK]; // the reduction dims, the one with the smallest stride in a last
  double efficiency;        // share of the peak that the register tile reaches
  double a_bytes, b_bytes;  // of the operands, for one index of the dims that both have
  double a_room;            // bytes of the broadcast operand that stay in the L2 while panels pass
  bool keeps_b;             // the other operand stays in the L2 as a whole
  bool packs_rows; // the broadcast operand is packed, a block at a time (template/cpu/row_panels.h)
  int n_around;    // loops over rows around those of the batch (interleaved.h)
  bool asks_ahead; // their iterations prefetch the next one's rows
} kiln_contraction;

// Whether |node| can be tiled: its statement has dims, and one operand the contiguous one.
bool kiln_contraction_is(kiln_lowering *w, const kiln_contraction_node *node);
// Reads |node|'s statement and chooses its tile and blocks. Extents are those of the loops of |w|'s
// schedule, or of the statement where none is begun.
//
// errors: KILN_BAD_INPUT: it has no dims, or no operand has the contiguous one
KILN_MUST_USE kiln_status kiln_contraction_describe(kiln_lowering *w,
                                                    const kiln_contraction_node *node,
                                                    kiln_contraction *out);
// The cost of |k| as a kernel of its own, on so many threads.
kiln_tile_cost kiln_contraction_cost(const kiln_contraction *k, int n_threads);

// Whether no other program has its constant packed in the panels of |k|.
bool kiln_contraction_wants_panels(const kiln_contraction *k);
// Whether the vector dim is shorter than a vector, as with a few channels a group: it is one vector
// of its own length then.
bool kiln_contraction_is_narrow(const kiln_contraction *k);
// Extents of the dims of the register tile's rows, and whether one tile has them all.
int64_t kiln_contraction_rows(const kiln_contraction *k);
bool kiln_contraction_is_one_tile(const kiln_contraction *k);
// Whether the numbers of the other operand are stored in fewer bytes than they are multiplied in.
bool kiln_contraction_widens(const kiln_contraction *k);
// Whether a step of the register tile leaves load slots for one prefetch a vector: loads and
// prefetches are at most 3/4 of its FMAs (a core issues two of each a cycle).
bool kiln_contraction_has_loads_to_spare(const kiln_contraction *k, int64_t vectors);
// Whether unrolled steps of the register tile leave registers for elements that they share: where a
// window slides along the tile's rows, later steps broadcast the same elements, which are kept.
bool kiln_contraction_has_room_for_steps(const kiln_contraction *k);
// Whether tiles of rows prefetch the next panel while they multiply by the current one: a
// constant's that comes from beyond the L2.
bool kiln_contraction_asks_in_turns(const kiln_contraction *k);
// Bytes of the panel that a register tile reads in its steps.
double kiln_contraction_panel_bytes(const kiln_contraction *k);
// Whether dim |d| belongs to the batch: both operands move with it.
static inline bool kiln_contraction_is_batch(const kiln_contraction *k, int d) {
  return kiln_expr_uses(k->b, k->dims[d].dim) && d != k->col;
}
// The instruction of |k|'s kind for a register tile, of all[n]; NULL: there is none.
kiln_instr *kiln_contraction_instr(const kiln_contraction *k, int64_t rows, int64_t vectors, int n,
                                   kiln_instr *all);
// Whether 8-bit |a| is multiplied by the constant weights |b| faster when widened to 16 bits.
bool kiln_contraction_wants_wide(kiln_ctx *cx, const kiln_machine *m, const kiln_facts *facts,
                                 const kiln_tensor *a, const kiln_tensor *b);
// The stepped dim: the last reduction dim in order.
static inline const kiln_dim *kiln_contraction_stepped(const kiln_contraction *k) {
  return &k->c->dims[k->c->n_space + k->order[k->c->n_reduce - 1]];
}
// The axis of a constant second operand along which a reduction in chunks is split, so that all
// panels of a chunk can be contiguous; -1: there is none, or they are contiguous anyway.
int kiln_contraction_chunk_axis(const kiln_contraction *k);

#endif
