// Whether iterations may run in another order, at once, or with memory of their own.
#ifndef KILN_SCHEDULE_LEGALITY_H
#define KILN_SCHEDULE_LEGALITY_H

#include "schedule/edit.h"

// --- legality.c ---

// Each says why not in a message that names two instances of statements and the element that they
// fight over. Index analysis decides what is easy, isl (conflict.c) the rest: exactly where the
// loops are affine, and otherwise by refusing.
//
// The n loops |from|, of one path from the outside, come to stand in the order |to|; |body| is what
// they run.
kiln_status kiln_check_reorder(kiln_edit *e, int n, const kiln_symbol *from, const kiln_symbol *to,
                               kiln_loop *body);
kiln_status kiln_check_parallel(kiln_edit *e, kiln_loop *loop);
kiln_status kiln_check_vectorize(kiln_edit *e, kiln_loop *loop);
// Registers have no addresses: indices may use loops inside of the ALLOC only.
kiln_status kiln_check_register(kiln_edit *e, kiln_loop *alloc);
kiln_status kiln_check_recompute(kiln_edit *e, kiln_loop *loop); // for KILN_TAIL_SHIFT
// The loops around |node| whose iterations run at once may still do so, after it was changed.
kiln_status kiln_check_around(kiln_edit *e, kiln_loop *node);
// Iteration i of |second| comes to run behind iteration i + shift of |first|, which it ran behind
// all iterations of. Both are siblings in |e|'s loops, |first| before |second|, as they were before
// the merge. What stands between them is the caller's matter.
kiln_status kiln_check_merge(kiln_edit *e, kiln_loop *first, kiln_loop *second, int64_t shift);

// |nest| comes to run a part at a time, each with its own copy of the buffers in the nest: refuses
// iterations that hand values on in one of them, as sliding windows and pipelines do.
kiln_status kiln_check_cut(kiln_edit *e, kiln_loop *nest);

// --- conflict.c ---

// A change of the order in which iterations run.
typedef enum kiln_reordering_kind {
  KILN_REORDERING_PARALLEL, // those of |first| at once
  KILN_REORDERING_VECTOR,   // the same, in lanes
  KILN_REORDERING_LOOPS,    // n loops change places
  KILN_REORDERING_MERGE,    // those of |second| |shift| behind those of |first|
  KILN_REORDERING_REPEAT,   // some of |first|, in order, once more behind themselves
  KILN_REORDERING_CUT,      // those of |first| each with memory of their own
  KILN_REORDERING_HOIST     // what conditions in |first| read, in front of all of its iterations
} kiln_reordering_kind;
typedef struct kiln_reordering {
  kiln_reordering_kind kind;
  kiln_symbol first, second;
  int64_t shift;
  int n;
  const kiln_symbol *from, *to;
} kiln_reordering;
// Whether two instances that touch one element of |buffer|, and do not commute, change places.
kiln_status kiln_check_exactly(kiln_edit *e, const kiln_reordering *change, int buffer);

#endif
