// Data-dependent shapes: extents computed from values, as of NonZero, Unique and NonMaxSuppression.
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
  int tensor;            // i64 scalar
  const kiln_expr *most; // upper bound, over named dimensions only
} kiln_data_dependent_extent;

typedef struct kiln_data_dependent_extents {
  KILN_VEC(kiln_data_dependent_extent) all;
} kiln_data_dependent_extents;

// The value of |count|, an i64 scalar made by this node, as an extent of at most |most|; a constant
// if all inputs of the node are constants.
//
// errors: KILN_UNSUPPORTED: |most| has no known bound
kiln_status kiln_lower_data_dependent_extent(kiln_lower *lw, const kiln_tensor *count,
                                             const kiln_expr *most, const kiln_expr **out);
// An upper bound of |e|, an expression of named and data-dependent dimensions; NULL: unknown.
const kiln_expr *kiln_lower_upper_bound(const kiln_lower *lw, const kiln_expr *e);
const kiln_expr *kiln_data_dependent_most(kiln_ctx *cx, const kiln_data_dependent_extents *counts,
                                          const kiln_expr *e);
// The count that variable |e| stands for; NULL if it is an ordinary variable.
const kiln_data_dependent_extent *
kiln_data_dependent_find(const kiln_data_dependent_extents *counts, const kiln_expr *e);
// Exclusive prefix sum of |flags| (N), 0 or 1 in i64, and their total: an i64 tensor (N) and an i64
// scalar.
void kiln_lower_prefix_counts(kiln_lower *lw, const kiln_tensor *flags, kiln_tensor **out_places,
                              kiln_tensor **out_count);

// Stream compaction: the indices i with flags(i) != 0, each written to places(i) of |count|
// elements.
kiln_tensor *kiln_lower_compact(kiln_lower *lw, const kiln_tensor *flags, const kiln_tensor *places,
                                const kiln_expr *count);
// The indices of the |flags| that are 1, ascending: i64, a data-dependent number.
kiln_status kiln_lower_rows(kiln_lower *lw, const kiln_tensor *flags, kiln_tensor **out_rows);

// Removes the variables from the program, and adds for every output with a data-dependent shape an
// output that holds the shape.
//
// needs:  all outputs in |p|
// keeps:  ids of statements and tensors; new ones are appended
// errors: KILN_UNSUPPORTED, naming the node: no bound is known, or two counts would have to be
//         equal
kiln_status kiln_data_dependent_resolve(kiln_ctx *cx, kiln_program *p,
                                        const kiln_data_dependent_extents *counts);

#endif
