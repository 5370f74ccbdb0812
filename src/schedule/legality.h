// Whether iterations may run in another order, in parallel, or with private memory.
#ifndef KILN_SCHEDULE_LEGALITY_H
#define KILN_SCHEDULE_LEGALITY_H

#include "schedule/edit.h"

// --- legality.c ---

// Each refuses with a message that names two instances of statements and the element on which they
// conflict. Index analysis decides the easy cases, isl (conflict.c) the others: exactly if the
// loops are affine, otherwise by refusing.
//
// The n loops |from|, of one path and outermost first, are to be ordered as |to|; |body| is their
// innermost body.
kiln_status kiln_check_reorder(kiln_edit *e, int n, const kiln_symbol *from, const kiln_symbol *to,
                               kiln_loop *body);
kiln_status kiln_check_parallel(kiln_edit *e, kiln_loop *loop);
kiln_status kiln_check_vectorize(kiln_edit *e, kiln_loop *loop);
// Registers have no addresses: only loops inside of the ALLOC may index them.
kiln_status kiln_check_register(kiln_edit *e, kiln_loop *alloc);
kiln_status kiln_check_recompute(kiln_edit *e, kiln_loop *loop); // for KILN_TAIL_SHIFT
// Requires that the parallel loops around |node| may stay parallel after its change.
kiln_status kiln_check_around(kiln_edit *e, kiln_loop *node);
// Iteration i of |second| is to run after iteration i + shift of |first|; now it runs after all of
// |first|. Both are siblings in |e|'s loops, |first| before |second|, as before the merge. The
// caller checks what stands between them.
kiln_status kiln_check_merge(kiln_edit *e, kiln_loop *first, kiln_loop *second, int64_t shift);

// |nest| is to run in parts, each with a private copy of the nest's buffers. Refuses dependences
// between iterations through these buffers, as sliding windows and pipelines have.
kiln_status kiln_check_cut(kiln_edit *e, kiln_loop *nest);

// --- conflict.c ---

// A change of the order in which iterations run.
typedef enum kiln_reordering_kind {
  KILN_REORDERING_PARALLEL, // iterations of |first| run in parallel
  KILN_REORDERING_VECTOR,   // iterations of |first| run in vector lanes
  KILN_REORDERING_LOOPS,    // n loops are permuted
  KILN_REORDERING_MERGE,    // iteration i of |second| follows iteration i + |shift| of |first|
  KILN_REORDERING_REPEAT,   // some iterations of |first| are repeated in order, after them
  KILN_REORDERING_CUT,      // iterations of |first| have private memory
  KILN_REORDERING_HOIST     // loads of conditions in |first| move before the loop
} kiln_reordering_kind;
typedef struct kiln_reordering {
  kiln_reordering_kind kind;
  kiln_symbol first, second;
  int64_t shift;
  int n;
  const kiln_symbol *from, *to;
} kiln_reordering;
// Whether the change reverses two instances that access one element of |buffer| and do not commute.
kiln_status kiln_check_exactly(kiln_edit *e, const kiln_reordering *change, int buffer);

#endif
