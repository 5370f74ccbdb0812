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
#include "rewrite/checks.h"

typedef struct kiln_data_dependent_extent {
  kiln_symbol var;
  int tensor;            // i64 scalar
  const kiln_expr *most; // upper bound, over named dimensions only; NULL: unknown (of a run value)
  // Of a run value: the element |at| of tensor |from|, -1 for a count; -min(element, 0) if
  // |is_negated|, otherwise max(element, 0).
  int from;
  int64_t at;
  bool is_negated, is_assumed; // |most| is assumed
} kiln_data_dependent_extent;

// The bound of an extent that is assumed where none is known, and of the elements of a tensor that
// has such extents; where the user gives the former, tensors may have up to 2^31 elements.
enum { KILN_MOST_EXTENT = 1024, KILN_MOST_ASSUMED = 1 << 24 };

// Statements [first, end) that the run needs if |when| holds.
typedef struct kiln_conditional {
  int first, end;
  const kiln_expr *when;
} kiln_conditional;

typedef struct kiln_data_dependent_extents {
  KILN_VEC(kiln_data_dependent_extent) all;
  KILN_VEC(kiln_conditional) conditional; // inner ones before outer ones
  int64_t otherwise;                      // bound where none is known; 0: KILN_MOST_EXTENT
  struct kiln_kept_loops *regions; // loops that are kept (fission/flow/kept.h); NULL: none are
} kiln_data_dependent_extents;

// What is asked of integers that only the run knows and that shapes depend on.
typedef enum kiln_value_kind {
  KILN_VALUE_KNOWN,  // they must be known when compiling
  KILN_VALUE_EXTENT, // the run checks that they are at least 0 and at most the bound
  KILN_VALUE_SIGNED  // any
} kiln_value_kind;

// The element |at| of an integer tensor that is computed by the run, as an expression of variables
// that are at least 0: p, or p - q if it may be negative. The same element has the same variables.
//
//     n: an input      Range(0, n) and Expand(x, [n])  both have the extent p, where p = max(n, 0)
const kiln_expr *kiln_lower_run_value(kiln_lower *lw, const kiln_tensor *t, int64_t at,
                                      kiln_value_kind kind);
// max(e, 0); of p - q, it is p.
const kiln_expr *kiln_lower_positive(kiln_lower *lw, const kiln_expr *e);
// Gives all run values in |e| that have no bound the one that is assumed, and a check: then |e| may
// be an extent.
kiln_status kiln_lower_want_bound(kiln_lower *lw, const kiln_expr *e);
// The same, for values of which none may be negative, and at most |most|.
kiln_status kiln_lower_want_extent_of(kiln_lower *lw, const kiln_expr *e, int64_t most);
int64_t kiln_lower_assumed_extent(const kiln_lower *lw); // the bound where none is known
// The same as kiln_lower_shape_values, for integers of that kind.
kiln_status kiln_lower_run_values(kiln_lower *lw, int i, kiln_value_kind kind, int *out_n,
                                  const kiln_expr *const **out);
// The value of |count|, an i64 scalar that is at least 0, as an extent that the run checks to be at
// most the bound that is assumed; |what| it counts, for messages.
kiln_status kiln_lower_run_extent(kiln_lower *lw, const kiln_tensor *count, const char *what,
                                  const kiln_expr **out);
// The same as kiln_lower_shape_values, where the integers are at most |most| (NULL: unknown).
kiln_status kiln_lower_extent_values(kiln_lower *lw, int i, const kiln_expr *most, int *out_n,
                                     const kiln_expr *const **out);
// Lets the run check that |a| and |b|, integers of named dimensions and values of the run, are
// equal; |what| they are, for messages.
kiln_status kiln_lower_want_equal(kiln_lower *lw, const kiln_expr *a, const kiln_expr *b,
                                  const char *what);
// The same of a count that needs no check, at most |most|.
const kiln_expr *kiln_lower_count(kiln_lower *lw, const kiln_tensor *count, int64_t most,
                                  bool is_assumed);
// The extent of both branches of a choice: |then| if the condition |is_true| holds, else
// |otherwise|.
kiln_status kiln_lower_chosen_extent(kiln_lower *lw, const kiln_expr *is_true,
                                     const kiln_expr *then, const kiln_expr *otherwise,
                                     const kiln_expr **out);

// The value of |count|, an i64 scalar made by this node, as an extent of at most |most|; a constant
// if all inputs of the node are constants.
//
// errors: KILN_UNSUPPORTED: |most| has no known bound
kiln_status kiln_lower_data_dependent_extent(kiln_lower *lw, const kiln_tensor *count,
                                             const kiln_expr *most, const kiln_expr **out);
// An upper bound of |e|, an expression of named and data-dependent dimensions; NULL: unknown.
const kiln_expr *kiln_lower_upper_bound(const kiln_lower *lw, const kiln_expr *e);
// The same as a number, in the ranges of the named dimensions; false: there is none.
bool kiln_lower_most(const kiln_lower *lw, const kiln_expr *e, int64_t *out);
const kiln_expr *kiln_data_dependent_most(kiln_ctx *cx, const kiln_data_dependent_extents *counts,
                                          const kiln_expr *e);
bool kiln_data_dependent_uses(const kiln_data_dependent_extents *counts, const kiln_expr *e);
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
// output that holds the shape. Where two extents must be equal and only the run knows, it checks.
//
// needs:  all outputs in |p|
// keeps:  ids of statements and tensors; new ones are appended
// errors: KILN_UNSUPPORTED, naming the node: no bound is known
kiln_status kiln_data_dependent_resolve(kiln_ctx *cx, kiln_program *p,
                                        const kiln_data_dependent_extents *counts,
                                        kiln_checks *checks);

#endif
