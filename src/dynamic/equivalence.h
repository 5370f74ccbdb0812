// Equivalence check of shape buckets: whether the program compiled for the largest extents
// computes, in its leading elements, the same as the program for smaller extents.
//
// Both programs must have the same statements, and each element of the smaller program must be
// computed in the larger one by the same operations on corresponding elements. Elements correspond
// if their indices are equal; on an axis that was merged of several, if the indices before merging
// are. For example, with [n, 4] merged to one axis, element i of n = 2 is element i of n = 8, too;
// with [4, n] merged, it is element i / 2 * 8 + i % 2. The check evaluates every statement at all
// corners of its iteration domain and at some points between.
#ifndef KILN_DYNAMIC_EQUIVALENCE_H
#define KILN_DYNAMIC_EQUIVALENCE_H

#include "ir/prim.h"
#include "support/bits.h"

// The correspondence of an axis: index i is index (i / inner) * most + i % inner of the larger
// program, or i if |inner| is 0.
typedef struct kiln_axis_map {
  int64_t inner, most;
} kiln_axis_map;

typedef struct kiln_equivalence {
  kiln_axis_map (*axes)[KILN_MAX_RANK]; // by tensor
  const char *what, *name; // the difference and the name of its tensor; NULL: equivalent
  int stmt;                // the statement with the difference; -1: none
} kiln_equivalence;

// Compares |some|, of smaller extents, with |all|. The last tensor of |all|, which |some| may lack,
// holds the |values| of the dimensions. Reductions may have more terms in |all|: neutral padding
// (neutral_padding.h) cancels them. Axes of results of the statements in |merged| may be merged
// axes. In cx->perm.
kiln_equivalence kiln_check_equivalence(kiln_ctx *cx, const kiln_program *all,
                                        const kiln_program *some, const int64_t *values,
                                        const kiln_bits *merged);

#endif
