// Whether a program is a part of another one: that of a model at smaller values of its dimensions,
// and that at the largest.
//
// It is where each element, which lies at some place among the larger program's, is computed there
// of the elements at the places of those that the smaller program computes it of, by the same
// operations and numbers. Places are the same indices, or, on an axis that was merged of several,
// those at the same indices before merging. That is checked at points of every statement, as it
// would be run: at all corners and at some between.
#ifndef KILN_DYNAMIC_EMBED_H
#define KILN_DYNAMIC_EMBED_H

#include "ir/prim.h"
#include "support/bits.h"

// How an axis lies in the larger one: index i at (i / inner) * most + i % inner; |inner| 0: at i.
typedef struct kiln_embedding {
  int64_t inner, most;
} kiln_embedding;

typedef struct kiln_embedded {
  kiln_embedding (*axes)[KILN_MAX_RANK]; // by tensor
  const char *what, *name;               // what differs and of whom; NULL: it is a part
  int stmt;                              // whose computation differs; -1: something else does
} kiln_embedded;

// In cx->perm. Reductions may run further in |all|, whose last tensor, that |some| has not, has the
// |values| of the dimensions. Axes may be merged in the results of the statements in |merged|.
kiln_embedded kiln_embed(kiln_ctx *cx, const kiln_program *all, const kiln_program *some,
                         const int64_t *values, const kiln_bits *merged);

#endif
