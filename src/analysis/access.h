// Access summaries of a loop program: each read and write with its affine address, the loops around
// it, and its footprint. The private half of analysis/reuse.h.
//
//     for i < 8 { for j < 4 { y[4*i + j] = x[j] } }    x: 4 * j, moves with loop j alone
//                                                      y: 16 * i + 4 * j, in bytes of f32
#ifndef KILN_ANALYSIS_ACCESS_H
#define KILN_ANALYSIS_ACCESS_H

#include "analysis/footprint.h"
#include "ir/loop.h"

// An item of a loop body, in order of execution: a loop or an access.
typedef struct access_unit access_unit;
typedef struct access_loop access_loop;
typedef struct access_summary access_summary;
struct access_unit {
  access_unit *next;
  access_loop *loop; // or
  access_summary *access;
};
struct access_loop {
  kiln_symbol var;
  int id, depth;     // loops around it
  double n;          // iterations
  access_unit *body; // allocations and conditions inside are left out
};

typedef struct access_term {
  int depth; // of the loop
  int64_t step;
} access_term;
typedef struct access_atom { // an index expression that is not affine, as in f/14
  const kiln_expr *e;
  int64_t step;
} access_atom;

// A read or a write. The address is offset + sum of terms and atoms, in bytes.
struct access_summary {
  int id;
  const kiln_buffer *buffer;
  bool is_write;
  int depth;                // loops around it
  access_loop *const *path; // [depth]
  kiln_stride *ranges;      // [depth] of the loops' variables: step is the first value; conditions
                            // around the access narrow them
  int hole_depth;           // loops that decide on the hole; 0: there is none
  const kiln_stride *hole;  // [hole_depth] of the loops' variables: there it does not run; accesses
                            // under one condition share it
  int64_t offset;
  int n_terms, n_atoms;
  access_term *terms; // by depth
  access_atom *atoms;
};

typedef struct access_list {
  access_unit *body;
  int n_loops, n_accesses;
} access_list;

// gives: |*out| in the scratch arena; buffers that are REGISTERs are left out
// errors: as kiln_reuse_predict
KILN_MUST_USE kiln_status kiln_accesses_make(kiln_ctx *cx, const kiln_loops *l, access_list *out);

// The footprint of |a| in one iteration of the loops outside of |depth|: the bytes that it reads or
// writes while the loops at |depth| and deeper run.
kiln_footprint kiln_access_footprint(const access_summary *a, int depth, int64_t line_bytes);
// The same, the loop outside of |depth| running |n| times.
kiln_footprint kiln_access_runs(const access_summary *a, int depth, double n, int64_t line_bytes);
// Whether the address changes with the loop at |depth|.
bool kiln_access_moves(const access_summary *a, int depth);
// Whether the loops outside of |depth|, which both share, move both by the same, in memory of
// |size| bytes that begins again at its end.
bool kiln_access_is_parallel(const access_summary *a, const access_summary *b, int depth,
                             int64_t size);
// Whether both lie in one buffer, and move alike with the loops outside of |depth|, which they
// share.
bool kiln_access_is_alike(const access_summary *a, const access_summary *b, int depth);

// In how many iterations of the loops outside of |depth|, which they share, both run; a hole that
// loops inside decide on does not count.
double kiln_access_meetings(const access_summary *a, const access_summary *b, int depth);

// Whether both access the same bytes in every iteration in which both run.
bool kiln_access_is_same(const access_summary *a, const access_summary *b);
// One access summary for both, if they access the same bytes in every iteration and the iterations
// of both together are one range of each loop; NULL otherwise. In |arena|.
const access_summary *kiln_access_merge(kiln_arena *arena, const access_summary *a,
                                        const access_summary *b);

#endif
