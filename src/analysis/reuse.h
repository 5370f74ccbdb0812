// Traffic of a scheduled kernel, by analysis: how many bytes cross each boundary of the memory
// hierarchy when its loops run, without running them.
//
// For each loop the lines that one iteration, and all of them, touch of each buffer are counted from
// the box of its index expressions. Where what one iteration touches fits a level, only lines that are
// new in the next iteration cross the boundary behind it; where it does not, everything crosses anew.
// Checked against the counts of target/sim.
// source: the working sets of Wolf and Lam, "A data locality optimizing algorithm", PLDI'91
#ifndef KILN_ANALYSIS_REUSE_H
#define KILN_ANALYSIS_REUSE_H

#include "ir/loop.h"

// A cache as the analysis sees it; |usable_bytes| is what a kernel may count on.
typedef struct kiln_reuse_level {
  double usable_bytes;
  int line_bytes;
  bool stores_fetch; // a line that is written in part is read first
} kiln_reuse_level;

// units: bytes that move between a level and what lies behind it, in whole lines, over the whole
// kernel: all threads together. Counts are those of one cache of the given size a thread.
typedef struct kiln_reuse_flow {
  double read_bytes, written_bytes;
} kiln_reuse_flow;

// Predicts the flows of |l| through |levels|, the fastest first. PARAM and WORKSPACE buffers count;
// so does LOCAL and SHARED memory, which lies on a thread's stack; REGISTER buffers do not.
//
// gives: out[n_levels]; and with |out_buffers| not NULL, out_buffers[buffer * n_levels + level]
// errors: KILN_INTERNAL: an extent is not a constant and has no bound
KILN_MUST_USE kiln_status kiln_reuse_predict(kiln_ctx *cx, const kiln_loops *l, int n_levels,
                                             const kiln_reuse_level *levels, kiln_reuse_flow *out,
                                             kiln_reuse_flow *out_buffers);

#endif
