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
  access_loop *loop; // exactly one of loop and access is set
  access_summary *access;
};
struct access_loop {
  kiln_symbol var;
  int id, depth;     // loops around it
  double n;          // iterations
  access_unit *body; // in order of execution; allocations and conditions are left out
};

typedef struct access_term {
  int depth; // of the loop whose variable this is
  int64_t step;
} access_term;
typedef struct access_atom { // a term that is not affine, as f/14 or T[f]
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
  kiln_stride *ranges;      // [depth] of the loops' variables: step is the first value, n their
                            // number; narrowed by conditions around the access
  int hole_depth;           // the hole is a box over this many outermost loops; 0: there is none
  const kiln_stride *hole;  // [hole_depth] ranges in which a condition around the access is false,
                            // so it does not run; shared by all accesses under that condition
  int64_t offset;
  int n_terms, n_atoms;
  access_term *terms; // by depth
  access_atom *atoms;
};

typedef struct access_list {
  access_unit *body;
  int n_loops, n_accesses;
} access_list;

// gives: |*out| in the scratch arena, without accesses to REGISTER buffers
// errors: as kiln_reuse_predict
KILN_MUST_USE kiln_status kiln_accesses_make(kiln_ctx *cx, const kiln_loops *l, access_list *out);

// The footprint of |a| in one iteration of the loops outside of |depth|: the bytes that it reads or
// writes while the loops at |depth| and deeper run.
kiln_footprint kiln_access_footprint(const access_summary *a, int depth, int64_t line_bytes);
// The same over |n| iterations of the loop at |depth| - 1.
kiln_footprint kiln_access_footprint_over(const access_summary *a, int depth, double n,
                                          int64_t line_bytes);
// Whether the address changes with the loop at |depth|.
bool kiln_access_moves(const access_summary *a, int depth);
// Whether each of the loops outside of |depth|, shared by both, moves both addresses by the same
// distance modulo |size|: then their cache sets keep their distance.
bool kiln_access_is_parallel(const access_summary *a, const access_summary *b, int depth,
                             int64_t size);
// Whether both access one buffer and have equal strides in the loops outside of |depth|, which they
// share.
bool kiln_access_is_alike(const access_summary *a, const access_summary *b, int depth);

// The number of iterations of the loops outside of |depth| (shared by both) in which both run; a
// hole that depends on loops inside is ignored.
double kiln_access_common_iterations(const access_summary *a, const access_summary *b, int depth);

// Whether both access the same bytes in every iteration in which both run.
bool kiln_access_is_same(const access_summary *a, const access_summary *b);
// One access summary for both, if they access the same bytes in every iteration and the iterations
// of both together are one range of each loop; NULL otherwise. In |arena|.
const access_summary *kiln_access_merge(kiln_arena *arena, const access_summary *a,
                                        const access_summary *b);

#endif
