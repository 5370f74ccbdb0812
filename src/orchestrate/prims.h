// The graph of prims of a program: a prim is a statement, or several that a pass has bound into one
// kernel.
#ifndef KILN_ORCHESTRATE_PRIMS_H
#define KILN_ORCHESTRATE_PRIMS_H

#include "orchestrate/states.h"
#include "tile/facts.h"
#include "tile/query.h"

typedef struct kiln_prim {
  int n, *stmts; // ascending; the last one has the prim's result
  bool is_alone; // must be a kernel of its own: a pass made it, or it scatters to data-dependent
                 // positions
  // Its pieces are written in place by their producers, so it needs no kernel. Another kernel may
  // still compute it like any statement.
  bool is_free;
  const kiln_bits *pieces; // of a free prim: prims whose results are stored inside of its own
  bool
      is_pinned; // its result is inside another tensor, so kernels that execute it must store it as
                 // their last result
  bool is_needed; // its result is an output of the program
} kiln_prim;

typedef struct kiln_prims {
  int n;
  kiln_prim *prims;       // by last statement
  int *prim_of;           // [statements]; -1: removed
  kiln_prim_graph *graph; // of all prims
} kiln_prims;

// Lives in the scratch arena.
kiln_prims kiln_prims_of(kiln_ctx *cx, const kiln_program *p, const kiln_facts *facts);
// The subgraph of prims [begin, end), renumbered from 0. Needed are outputs of the program and
// results read by later prims.
kiln_prim_graph *kiln_prims_part(kiln_ctx *cx, const kiln_prims *prims, int begin, int end);

// The cuts of a program: part i has prims [cuts[i], cuts[i + 1]).
typedef struct kiln_cuts {
  int n;     // parts
  int *cuts; // [n + 1]
} kiln_cuts;
// Cuts where few results cross, and never through one of the |n_kept| sets kept[] of prims. Among
// equally narrow places the smallest key decides, so that equal layers are cut at equal places.
//
// needs: key[prim] equal for prims of equal form
kiln_cuts kiln_prims_cut(kiln_ctx *cx, const kiln_prims *prims, const uint64_t *key, int n_kept,
                         const kiln_bits *const *kept, int least, int most);

#endif
