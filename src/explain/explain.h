// The report of `kiln explain`: its data, gathered from a build, and its text and JSON forms.
#ifndef KILN_EXPLAIN_EXPLAIN_H
#define KILN_EXPLAIN_EXPLAIN_H

#include "module/build.h"

enum { KILN_EXPLAINED_RIVALS = 3 };

// Bytes that cross the boundary of a level, by analysis/reuse.h.
typedef struct kiln_explained_traffic {
  const char *level;
  double read_bytes, written_bytes;
} kiln_explained_traffic;

// A tensor passed between statements, or between memory and a statement.
typedef struct kiln_explained_edge {
  const char *tensor, *dtype,
      *shape;            // as in the model, or for an intermediate as in the kernel
  const char *from, *to; // tensors' names, "memory", "constant"
  const char *level;     // memory level
  const char *box;       // the part in that level for one tile; NULL: unknown
  double bytes;          // of the whole tensor
  KILN_VEC(kiln_explained_traffic) moved; // by level; empty if unknown
} kiln_explained_edge;

typedef struct kiln_explained_candidate {
  const char *template_name, *tiles; // "block i0:64 i1:512; registers i0:8 i1:48; steps t0:256"
  double predicted_us;               // 0: the device is unknown
  const char *refused;               // NULL: accepted
} kiln_explained_candidate;

// Predicted bytes out of a level, and their time.
typedef struct kiln_explained_level {
  const char *level;
  double bytes, us;
} kiln_explained_level;

// A producer or consumer in another kernel, and the reason why they were not fused.
typedef struct kiln_explained_neighbour {
  bool is_before; // it is a producer
  const char *tensor, *nodes, *kernel, *reason;
} kiln_explained_neighbour;

typedef struct kiln_explained_kernel {
  const char *name, *nodes;
  const char *
      beside; // kernels horizontally fused with its first launch: "k5_contract_Conv, k7_rows_Pool";
              // "": none
  int n_launches;
  KILN_VEC(const char *) stmts;
  KILN_VEC(kiln_explained_edge) edges;
  kiln_explained_candidate taken; // no template: a schedule from the user or the polyhedral
                                  // scheduler
  KILN_VEC(kiln_explained_candidate) rivals;
  int n_candidates;
  KILN_VEC(kiln_explained_traffic) traffic;
  KILN_VEC(kiln_explained_traffic) counted; // by the simulator; empty if not requested
  KILN_VEC(kiln_explained_level) costed;
  double flops, bytes; // arithmetic operations and minimal memory traffic of a launch
  double compute_us, launch_us, tail;
  int64_t tiles;
  const char *bound;   // "compute", "L2", "launch"
  double predicted_us; // of one launch, by its loops (price/traffic.h); 0: the device is unknown
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
// |detail|: further members of the JSON object (detail.h); NULL: none.
void kiln_explained_json(kiln_ctx *cx, const kiln_explained *e, const char *detail, kiln_text *out);
// How often each rule and pass changed the program: "cse 12, merge 3, inline 5"; "none".
void kiln_explain_passes(kiln_ctx *cx, const kiln_build *b, kiln_text *out);

// Explains the edge between two graph nodes or statements in sentences. (why.c)
//
// errors: KILN_BAD_INPUT: no such node
kiln_status kiln_explain_why(kiln_ctx *cx, const kiln_build *b, const char *from, const char *to,
                             kiln_text *out);
// The memory level of tensor |t| of the kernel's program: that of its buffer's scope, or the
// fastest cache that holds it.
const char *kiln_explain_level(const kiln_build *b, const kiln_kernel *k, int t);
// The buffer of tensor |tensor| in the kernel's loops; NULL: none.
const kiln_buffer *kiln_explain_buffer(const kiln_kernel *k, int tensor);
// launches[stmt]: the launch that computes it, -1: none; in the scratch arena.
int *kiln_explain_launches(kiln_ctx *cx, const kiln_build *b);

#endif
