// Memory traffic of a scheduled kernel by static analysis: how many bytes its loops move across
// each boundary of the memory hierarchy.
//
// In one iteration of the outer loops, the inner loops access a footprint of the buffer: runs of
// bytes at regular distances, whose cache lines can be counted. From the inside out, each loop adds
// misses: a line that two iterations access stays cached if the lines accessed between leave room
// for it in its set; otherwise it is fetched again. Accesses of one buffer that move alike are
// counted together.
//
//     for i { for k { C[i] += A[i][k] * x[k] } }    x misses once if its lines and a row of A fit,
//                                                   else once for each i
//
// Model of a cache: LRU sets; each level sees all accesses. Data-dependent control flow and indices
// are approximated: both branches count, and every index is a new one. Checked
// against the counts of target/sim.
// source: the working sets of Wolf and Lam, "A data locality optimizing algorithm", PLDI'91; the
// conflicts of regular sections follow Ghosh, Martonosi and Malik, "Cache miss equations", TOPLAS
// 1999
#ifndef KILN_ANALYSIS_REUSE_H
#define KILN_ANALYSIS_REUSE_H

#include "ir/loop.h"

// A cache level; |usable_bytes| is the capacity that a kernel can count on.
typedef struct kiln_reuse_level {
  double usable_bytes;
  int line_bytes;
  bool stores_fetch; // a write miss fetches the line, even if all of it will be written
  int ways;          // lines of a set; 0: fully associative
} kiln_reuse_level;

// units: bytes that cross the boundary below a level, in whole lines, over the whole kernel: all
// threads together. Each thread has a cache of the given size.
typedef struct kiln_reuse_flow {
  double read_bytes, written_bytes;
} kiln_reuse_flow;

// Predicts the traffic of |l| through |levels|, the fastest first, empty at the start and written
// back at the end. PARAM and WORKSPACE buffers follow each other at multiples of 4096 bytes, LOCAL
// and SHARED ones are on a thread's stack; REGISTER buffers have no traffic.
//
// needs: no INSTR (target/instr.h expands them)
// gives: out[n_levels]; and with |out_buffers| not NULL, out_buffers[buffer * n_levels + level]
// cost: below a millisecond for a model's kernel; some kilobytes of the scratch arena
// errors: KILN_INTERNAL for an INSTR, or an extent without a bound
KILN_MUST_USE kiln_status kiln_reuse_predict(kiln_ctx *cx, const kiln_loops *l, int n_levels,
                                             const kiln_reuse_level *levels, kiln_reuse_flow *out,
                                             kiln_reuse_flow *out_buffers);

#endif
