// The accesses of a loop program with the loops around them, and the regions they touch. The
// private half of analysis/reuse.h.
#ifndef KILN_ANALYSIS_TOUCH_H
#define KILN_ANALYSIS_TOUCH_H

#include "analysis/region.h"
#include "ir/loop.h"

// What runs one behind the other in a body: a loop or an access.
typedef struct touch_unit touch_unit;
typedef struct touch_loop touch_loop;
typedef struct touch touch;
struct touch_unit {
  touch_unit *next;
  touch_loop *loop; // or
  touch *access;
};
struct touch_loop {
  kiln_symbol var;
  int id, depth;    // loops around it
  double n;         // iterations
  touch_unit *body; // allocations and conditions inside are left out
};

typedef struct touch_term {
  int depth; // of the loop
  int64_t step;
} touch_term;
typedef struct touch_atom { // an index expression that is not affine, as in f/14
  const kiln_expr *e;
  int64_t step;
} touch_atom;

// A read or a write. The address is offset + sum of terms and atoms, in bytes.
struct touch {
  int id;
  const kiln_buffer *buffer;
  bool is_write;
  int depth;               // loops around it
  touch_loop *const *path; // [depth]
  kiln_stride *ranges;     // [depth] of the loops' variables: step is the first value; conditions
                           // around the access narrow them
  int hole_depth;          // loops that decide on the hole; 0: there is none
  const kiln_stride *hole; // [hole_depth] of the loops' variables: there it does not run; accesses
                           // under one condition share it
  int64_t offset;
  int n_terms, n_atoms;
  touch_term *terms; // by depth
  touch_atom *atoms;
};

typedef struct touches {
  touch_unit *body;
  int n_loops, n_accesses;
} touches;

// gives: |*out| in the scratch arena; buffers that are REGISTERs are left out
// errors: as kiln_reuse_predict
KILN_MUST_USE kiln_status kiln_touches_make(kiln_ctx *cx, const kiln_loops *l, touches *out);

// What |a| touches while the loops at |depth| and deeper run and the others stand still.
kiln_region kiln_touch_region(const touch *a, int depth, int64_t line_bytes);
// The same, the loop outside of |depth| running |n| times.
kiln_region kiln_touch_runs(const touch *a, int depth, double n, int64_t line_bytes);
// Whether the address changes with the loop at |depth|.
bool kiln_touch_moves(const touch *a, int depth);
// Whether the loops outside of |depth|, which both share, move both by the same, in memory of
// |size| bytes that begins again at its end.
bool kiln_touch_is_parallel(const touch *a, const touch *b, int depth, int64_t size);
// Whether both lie in one buffer, and move alike with the loops outside of |depth|, which they
// share.
bool kiln_touch_is_alike(const touch *a, const touch *b, int depth);

// In how many iterations of the loops outside of |depth|, which they share, both run; a hole that
// loops inside decide on does not count.
double kiln_touch_meetings(const touch *a, const touch *b, int depth);

// Whether both touch the same at each iteration, of the same loops, in which they both run.
bool kiln_touch_is_same(const touch *a, const touch *b);
// One touch for both, where they touch the same at each iteration and together run in one range of
// each loop; NULL otherwise. Lies in |arena|.
const touch *kiln_touch_merge(kiln_arena *arena, const touch *a, const touch *b);

#endif
