// Micro-benchmarks of a GPU: CUDA C, each a loop of one instruction between two readings of the
// clock, or of a kind of access to memory.
//
//   void probe(uint32_t *out, char *in, uint64_t bytes, uint64_t n)
//
// out[2*block] are the clocks of |n| iterations, out[2*block + 1] their nanoseconds. |in| has
// |bytes| of random data, a power of two: zeros move faster.
#ifndef KILN_TUNE_GPU_PROBE_H
#define KILN_TUNE_GPU_PROBE_H

#include "target/target.h"

typedef enum kiln_gpu_probe_unit {
  KILN_GPU_PROBE_CLOCKS,  // a warp's instruction: clocks / (n * ops * warps)
  KILN_GPU_PROBE_LATENCY, // clocks / (n * ops)
  KILN_GPU_PROBE_BYTES    // n * ops bytes / clocks
} kiln_gpu_probe_unit;

typedef struct kiln_gpu_probe {
  kiln_gpu_figure figure;
  kiln_gpu_probe_unit unit;
  int capability; // the least; with |has_wgmma|, sm_90a's instructions
  bool needs_wgmma;
  bool on_all;          // multiprocessors, a block for each
  int threads, n, ops;  // of a block; iterations; instructions, or bytes of a block, of each
  uint64_t bytes;       // of |in|
  const char *declared; // in front of the loop
  const char *body;     // an iteration, |i|
} kiln_gpu_probe;

extern const kiln_gpu_probe kiln_gpu_probes[];
extern const int kiln_n_gpu_probes;

// The source of a probe, a function "probe".
const char *kiln_gpu_probe_source(kiln_ctx *cx, const kiln_gpu_probe *p);
// A kernel "probe" with the same parameters that runs for |n| clocks in every block; |early|: lets
// the next one begin, and waits for the one before.
const char *kiln_gpu_spin_source(kiln_ctx *cx, bool early);

#endif
