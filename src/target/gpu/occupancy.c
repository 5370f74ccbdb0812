// The occupancy of a multiprocessor, which all prices and templates ask for.
#include "target/target.h"

#include "support/integer.h"

int64_t kiln_gpu_resident(const kiln_gpu *g, const kiln_gpu_block *b) {
  enum { MAX_BLOCKS = 32, RESERVED = KILN_GPU_RESERVED_BYTES }; // at most, from sm_80 on
  int64_t n = kiln_min_i64(MAX_BLOCKS, g->max_resident / b->threads);
  if (g->registers && b->registers) n = kiln_min_i64(n, g->registers / (b->threads * b->registers));
  return kiln_min_i64(n, (g->shared_bytes + RESERVED) / (b->shared_bytes + RESERVED));
}
