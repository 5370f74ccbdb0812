#include "template/gpu/occupancy.h"

#include "template/gpu/grid.h"

#include "support/integer.h"

#include <math.h>

double kiln_gpu_each(const kiln_lowering *w, double blocks) {
  return ceil(blocks / w->m->device->n_units);
}

int64_t kiln_gpu_depth(int64_t steps, int64_t most) {
  return kiln_min_i64(steps > 2 ? steps - 1 : steps, most);
}

kiln_gpu_occupancy kiln_gpu_occupancy_of(const kiln_lowering *w, const kiln_gpu_staged *b) {
  enum { ASYNC = 80, FEW = 3, RESERVED = KILN_GPU_RESERVED_BYTES };
  const kiln_gpu *g = &w->m->gpu;
  const kiln_gpu_block one = {.threads = b->threads, .registers = b->registers};
  kiln_gpu_occupancy o = {.blocks = b->blocks,
                          .each = kiln_gpu_each(w, b->blocks),
                          .resident = kiln_gpu_resident(g, &one)};
  if ((double)o.resident > o.each) o.resident = (int64_t)o.each;
  if (o.resident < 1) o.resident = 1;
  while (o.resident > 1 && (g->shared_bytes / o.resident < FEW * b->step_bytes ||
                            g->shared_bytes / o.resident - RESERVED < b->meet_bytes))
    o.resident--;
  const int64_t room = g->shared_bytes / o.resident - RESERVED,
                most = b->by_async && g->capability < ASYNC
                           ? 1
                           : kiln_gpu_depth(b->steps, b->max_depth);
  if (room >= b->meet_bytes) o.depth = (int)kiln_min_i64(room / b->step_bytes, most);
  return o;
}

double kiln_gpu_refill_ns(const kiln_lowering *w, double steps, int depth) {
  enum { DEEP = 3 };
  return steps > 1 && depth < DEEP ? w->m->device->levels[0].latency_ns : 0;
}

double kiln_gpu_rounds_ns(const kiln_lowering *w, const kiln_gpu_rounds *r) {
  const kiln_device *d = w->m->device;
  const double rounds = fmax(1, r->each / r->resident),
               memory = kiln_gpu_param_bytes(w) / d->levels[0].all_bytes_ns;
  return d->launch_ns + r->alone * (1 + r->again * (rounds - 1)) +
         fmax(memory, (r->each - 1) * r->turn);
}

double kiln_gpu_mma_step_ns(const kiln_lowering *w, const kiln_gpu_mma_step *s) {
  static const double FLOPS_BYTE = 16; // of shared memory's bandwidth
  const kiln_device *d = w->m->device;
  const double shared = kiln_gpu_shared(d)->unit_bytes_ns,
               one = s->flops / fmin(d->unit_flops_ns[KILN_PEAK_BF16], FLOPS_BYTE * shared) +
                     (s->copied + s->read) / shared,
               all = s->resident > 1 ? s->overlap * s->resident * one : one,
               moved = s->resident * (s->copied + s->row_bytes * s->rows) /
                       (s->l2_share * d->levels[1].unit_bytes_ns);
  return fmax(fmax(all, moved), s->alone);
}
