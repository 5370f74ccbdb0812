// Extents that only the run knows: how many elements are not zero, how many are different, how many
// boxes are left.
//
// An operator that makes such an extent counts it in a tensor and gets a variable for it. Until the
// graph is lowered that is a dimension like a named one: shapes, products and Shape's values hold
// it, and what needs a number refuses it. Then kiln_counts_resolve makes every extent the most that
// it can be, reads the tensor where the variable was, and leaves out of reductions and scatters
// what lies behind the counted elements. Elements behind them exist, hold anything, and are looked
// at by nobody: an output has its shape beside it.
#ifndef KILN_FISSION_COUNTS_H
#define KILN_FISSION_COUNTS_H

#include "fission/lower.h"

typedef struct kiln_count {
  kiln_symbol var;
  int tensor;            // i64, of no axes
  const kiln_expr *most; // of named dimensions alone
} kiln_count;

typedef struct kiln_counts {
  KILN_VEC(kiln_count) all;
} kiln_counts;

// The number in |count|, an i64 tensor of no axes made by this node, as an extent of at most
// |most|; a constant where all inputs of the node are constants.
//
// errors: KILN_UNSUPPORTED: no bound of |most| is known
kiln_status kiln_lower_count(kiln_lower *lw, const kiln_tensor *count, const kiln_expr *most,
                             const kiln_expr **out);
// The most that |e|, of named dimensions and counts, can be; NULL where none is known.
const kiln_expr *kiln_lower_most(const kiln_lower *lw, const kiln_expr *e);
const kiln_expr *kiln_counts_most(kiln_ctx *cx, const kiln_counts *counts, const kiln_expr *e);
// The count that the variable |e| is; NULL: it is none.
const kiln_count *kiln_counts_find(const kiln_counts *counts, const kiln_expr *e);
// How many of the elements of |flags| (N), 0 or 1 in i64, stand before each (N), and how many there
// are: the first is an i64 tensor (N), the second one of no axes.
void kiln_lower_places(kiln_lower *lw, const kiln_tensor *flags, kiln_tensor **out_places,
                       kiln_tensor **out_count);

// The numbers i of those |flags| (N) that are not 0, each at the place places(i) of |count|.
kiln_tensor *kiln_lower_listed(kiln_lower *lw, const kiln_tensor *flags, const kiln_tensor *places,
                               const kiln_expr *count);
// The numbers of those of |flags| that are 1, in order: i64, as many as the run counts.
kiln_status kiln_lower_rows(kiln_lower *lw, const kiln_tensor *flags, kiln_tensor **out_rows);

// Takes the variables out of the program, and gives every output whose shape has one a further
// output, its shape.
//
// needs:  all outputs in |p|
// keeps:  ids of statements and tensors; what is new stands behind
// errors: KILN_UNSUPPORTED, naming the node: no bound is known, or two counts would have to be
//         equal
kiln_status kiln_counts_resolve(kiln_ctx *cx, kiln_program *p, const kiln_counts *counts);

#endif
