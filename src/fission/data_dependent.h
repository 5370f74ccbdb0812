// Data-dependent shapes: extents that follow from values, as the results of NonZero, Unique and
// NonMaxSuppression have.
//
// An operator with such an extent counts its elements in a tensor, and gets a variable (an unbacked
// symbol, as PyTorch calls it) for the count. While the graph is lowered, the variable is used as a
// named dimension; operators that need a constant refuse it. kiln_data_dependent_resolve then
// replaces each extent by its upper bound, reads the count wherever the variable was used, and
// guards reductions and scatters so that elements beyond the count contribute nothing. Those
// elements are allocated and undefined; an output of such a shape has a second output, its shape.
//
//     NonZero(x: 8)  ->  y: 8 places, count = 3     y[0..3) are defined
#ifndef KILN_FISSION_DATA_DEPENDENT_H
#define KILN_FISSION_DATA_DEPENDENT_H

#include "fission/lower.h"

typedef struct kiln_data_dependent_extent {
  kiln_symbol var;
  int tensor;            // i64, of no axes
  const kiln_expr *most; // of named dimensions alone
} kiln_data_dependent_extent;

typedef struct kiln_data_dependent_extents {
  KILN_VEC(kiln_data_dependent_extent) all;
} kiln_data_dependent_extents;

// The number in |count|, an i64 tensor of no axes made by this node, as an extent of at most
// |most|; a constant where all inputs of the node are constants.
//
// errors: KILN_UNSUPPORTED: no bound of |most| is known
kiln_status kiln_lower_data_dependent_extent(kiln_lower *lw, const kiln_tensor *count,
                                             const kiln_expr *most, const kiln_expr **out);
// An upper bound of |e|, which is of named and data-dependent dimensions; NULL: none is known.
const kiln_expr *kiln_lower_most(const kiln_lower *lw, const kiln_expr *e);
const kiln_expr *kiln_data_dependent_most(kiln_ctx *cx, const kiln_data_dependent_extents *counts,
                                          const kiln_expr *e);
// The count that the variable |e| is; NULL: it is none.
const kiln_data_dependent_extent *
kiln_data_dependent_find(const kiln_data_dependent_extents *counts, const kiln_expr *e);
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
kiln_status kiln_data_dependent_resolve(kiln_ctx *cx, kiln_program *p,
                                        const kiln_data_dependent_extents *counts);

#endif
