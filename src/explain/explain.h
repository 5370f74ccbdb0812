// The report of `kiln explain`: its data, gathered from a build, and its text and JSON forms.
#ifndef KILN_EXPLAIN_EXPLAIN_H
#define KILN_EXPLAIN_EXPLAIN_H

#include "module/build.h"

enum { KILN_EXPLAINED_RIVALS = 3 };

// Bytes between a level and the caches in front of it, as the loops move them by analysis/reuse.h.
typedef struct kiln_explained_traffic {
  const char *level;
  double read_bytes, written_bytes;
} kiln_explained_traffic;

// A tensor that passes between statements, or between memory and a statement.
typedef struct kiln_explained_edge {
  const char *tensor, *dtype,
      *shape;            // as the model has it; of what stays inside, as the kernel has
  const char *from, *to; // statements' results, "memory", "constant"
  const char *level;     // where it passes
  const char *box;       // of it, that is there for one tile; NULL: not known
  double bytes;          // of all its elements
  KILN_VEC(kiln_explained_traffic) moved; // of it, by level; none where it is not known
} kiln_explained_edge;

typedef struct kiln_explained_candidate {
  const char *family, *tiles; // "block i0:64 i1:512; registers i0:8 i1:48; steps t0:256"
  double predicted_us;        // 0: the device is not known
  const char *refused;        // NULL: not
} kiln_explained_candidate;

// Bytes out of a level, as they are predicted, and the time that they take.
typedef struct kiln_explained_level {
  const char *level;
  double bytes, us;
} kiln_explained_level;

// A neighbour in another kernel, and why.
typedef struct kiln_explained_neighbour {
  bool is_before; // it makes what the kernel reads
  const char *tensor, *nodes, *kernel, *reason;
} kiln_explained_neighbour;

typedef struct kiln_explained_kernel {
  const char *name, *nodes;
  const char *
      beside; // kernels that its first launch runs beside: "k5_contract_Conv, k7_rows_Pool"; "": none
  int n_launches;
  KILN_VEC(const char *) stmts;
  KILN_VEC(kiln_explained_edge) edges;
  kiln_explained_candidate taken; // no family: the schedule is the user's or a polyhedral one
  KILN_VEC(kiln_explained_candidate) rivals;
  int n_candidates;
  KILN_VEC(kiln_explained_traffic) traffic;
  KILN_VEC(kiln_explained_traffic) counted; // by the simulator; none where that was not asked for
  KILN_VEC(kiln_explained_level) costed;
  double flops, bytes; // arithmetic, and what a launch must move of memory at least
  double compute_us, launch_us, tail;
  int64_t tiles;
  const char *bound;   // "compute", "L2", "launch"
  double predicted_us; // of one launch, by its loops (price/traffic.h); 0: the device is not known
  double measured_us;  // of one launch; 0: not measured
  KILN_VEC(kiln_explained_neighbour) neighbours;
} kiln_explained_kernel;

typedef struct kiln_explained {
  const char *model, *device;
  int threads;
  bool is_measured_device;
  KILN_VEC(kiln_explained_kernel) kernels;
  int n_launches;
  double predicted_us, measured_us; // of a run
  const kiln_build *build;
} kiln_explained;

void kiln_explained_text(kiln_ctx *cx, const kiln_explained *e, kiln_text *out);
// |detail|: further members of the object (detail.h); NULL: none.
void kiln_explained_json(kiln_ctx *cx, const kiln_explained *e, const char *detail, kiln_text *out);
// How often each rule and pass changed the program: "cse 12, merge 3, inline 5"; "none".
void kiln_explain_passes(kiln_ctx *cx, const kiln_build *b, kiln_text *out);

// What became of the edge between the graph nodes or statements |a| and |b|, as sentences. (why.c)
//
// errors: KILN_BAD_INPUT: no such node
kiln_status kiln_explain_why(kiln_ctx *cx, const kiln_build *b, const char *from, const char *to,
                             kiln_text *out);
// The level where tensor |t| of the kernel's program passes: where its buffer lies, or by how much
// of it there is.
const char *kiln_explain_level(const kiln_build *b, const kiln_kernel *k, int t);
// The buffer of the kernel's loops that holds tensor |tensor|; NULL: there is none.
const kiln_buffer *kiln_explain_buffer(const kiln_kernel *k, int tensor);
// launches[stmt]: the launch that computes it, -1 for what no launch does; in the scratch arena.
int *kiln_explain_launches(kiln_ctx *cx, const kiln_build *b);

#endif
