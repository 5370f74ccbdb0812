// The graph of prims of a scheduled program: its statements, of which those that a pass has made
// one kernel of are one prim.
#ifndef KILN_ORCHESTRATE_PRIMS_H
#define KILN_ORCHESTRATE_PRIMS_H

#include "orchestrate/states.h"
#include "tile/facts.h"
#include "tile/query.h"

typedef struct kiln_prim {
  int n, *stmts; // ascending; the last one's result is the prim's
  bool
      is_alone; // no kernel but its own executes it: a pass has made it, or data says where it writes
  // Its pieces are written by their producers, in place: alone it is no kernel, and nothing is left
  // to run. Another kernel may compute it again as it stands.
  bool is_free;
  const kiln_bits *pieces; // of a free one: prims whose results lie in its own
  bool
      is_pinned; // its result lies inside another tensor, so that whoever executes it stores it last
  bool is_needed; // its result is the program's
} kiln_prim;

typedef struct kiln_prims {
  int n;
  kiln_prim *prims;       // by their last statement
  int *prim_of;           // by statement; -1: no statement
  kiln_prim_graph *graph; // of all of them
} kiln_prims;

// Lives in the scratch arena.
kiln_prims kiln_prims_of(kiln_ctx *cx, const kiln_program *p, const kiln_facts *facts);
// The part of the graph between prims |begin| and |end|, which is numbered from 0: needed is what
// the program needs, and what later prims read.
kiln_prim_graph *kiln_prims_part(kiln_ctx *cx, const kiln_prims *prims, int begin, int end);

// How a program is cut: part i is the prims cuts[i]..cuts[i + 1].
typedef struct kiln_cuts {
  int n;     // parts
  int *cuts; // [n + 1]
} kiln_cuts;
// Cuts where few results pass, and never through one of the |n_kept| sets kept[] of prims. Parts of
// equal layers begin at equal prims: where two places are as narrow, what stands there decides.
//
// needs: key[prim] equal for prims of equal form
kiln_cuts kiln_prims_cut(kiln_ctx *cx, const kiln_prims *prims, const uint64_t *key, int n_kept,
                         const kiln_bits *const *kept, int least, int most);

#endif
