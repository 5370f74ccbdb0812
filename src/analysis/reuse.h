// Traffic of a scheduled kernel, by analysis: how many bytes cross each boundary of the memory
// hierarchy when its loops run, without running them.
//
// An access touches, while some loops run and those outside of them stand still, a region of its
// buffer: runs of bytes at regular distances, whose lines can be counted. From the inside out each
//         loop
// adds to the lines that miss: where a line that one iteration touches is touched again by the
// next, it is still there if what is touched in between leaves room for it in its set; else it is
// fetched anew. Accesses of one buffer that move alike are counted together.
//
// Caches are taken for sets of least recently used lines, each level as if it saw all accesses.
// What a choice or an index takes from data is not known: both branches count, and such an index is
// a new one each time. Checked against the counts of target/sim.
// source: the working sets of Wolf and Lam, "A data locality optimizing algorithm", PLDI'91; the
// conflicts of regular sections follow Ghosh, Martonosi and Malik, "Cache miss equations", TOPLAS
// 1999
#ifndef KILN_ANALYSIS_REUSE_H
#define KILN_ANALYSIS_REUSE_H

#include "ir/loop.h"

// A cache as the analysis sees it; |usable_bytes| is what a kernel may count on.
typedef struct kiln_reuse_level {
  double usable_bytes;
  int line_bytes;
  bool
      stores_fetch; // a line that is written first is read from behind, even where all of it is written
  int ways;         // lines of a set; 0: fully associative
} kiln_reuse_level;

// units: bytes that move between a level and what lies behind it, in whole lines, over the whole
// kernel: all threads together. Counts are those of one cache of the given size a thread.
typedef struct kiln_reuse_flow {
  double read_bytes, written_bytes;
} kiln_reuse_flow;

// Predicts the flows of |l| through |levels|, the fastest first, which are empty before and written
// back at the end. PARAM and WORKSPACE buffers lie one behind the other at multiples of 4096 bytes,
// LOCAL and SHARED ones on a thread's stack; REGISTER buffers move nothing.
//
// needs: no INSTR (target/instr.h expands them)
// gives: out[n_levels]; and with |out_buffers| not NULL, out_buffers[buffer * n_levels + level]
// cost: well below a millisecond for a kernel of a model; some kilobytes of the scratch arena
// errors: KILN_INTERNAL: an INSTR, or an extent that has no bound
KILN_MUST_USE kiln_status kiln_reuse_predict(kiln_ctx *cx, const kiln_loops *l, int n_levels,
                                             const kiln_reuse_level *levels, kiln_reuse_flow *out,
                                             kiln_reuse_flow *out_buffers);

#endif
