#include "price/gpu_work.h"

#include "price/price.h"

#include <math.h>

const kiln_mem_level *kiln_gpu_shared(const kiln_device *d) {
  return &d->levels[kiln_device_level(d, "shared")];
}

enum {
  WARP = 32,
  LINE = 128 // bytes that a warp's access transfers at once
};
// Nanoseconds of a barrier, of the gap between nests, of a kernel's begin and end, of the first
// fetch of an instruction, of a load from the L1. INSTRUCTION_NS is what kernels of much code took
// beyond all other terms, measured on an H200.
static const double BARRIER_NS = 20, NEST_NS = 1000, BEGIN_END_NS = 1500, INSTRUCTION_NS = 1.5,
                    L1_NS = 20;

// The number of blocks that fit a multiprocessor.
static double resident_of(const kiln_machine *m, const kiln_gpu_nest_counts *n) {
  const kiln_gpu_block one = {.threads = WARP * (int64_t)ceil(n->threads / WARP),
                              .shared_bytes = (int64_t)n->shared_bytes};
  return fmax(1, (double)kiln_gpu_resident(&m->gpu, &one));
}

// Adds the cost of the nest |n| to |io|.
static void add_nest(const kiln_machine *m, const kiln_gpu_nest_counts *n, kiln_tile_cost *io) {
  const kiln_device *d = m->device;
  const int shared = kiln_device_level(d, "shared");
  const double busy = fmin(n->blocks, d->n_units),
               waves = ceil(n->blocks / (d->n_units * resident_of(m, n))),
               per_unit = n->blocks / busy / m->clock_ghz,
               lines = n->unit[KILN_GPU_UNIT_SHARED] + n->unit[KILN_GPU_UNIT_LINES],
               l2_bytes = n->blocks * n->block_l2_bytes;
  double waits = 0;
  for (int k = 0; k < KILN_N_GPU_WAITS; k++) waits += n->wait[k];
  io->compute_ns += fmax(n->unit[KILN_GPU_UNIT_ISSUE] * per_unit, waves * waits);
  io->bytes[1] += l2_bytes;
  io->level_ns[1] += l2_bytes / fmin(d->levels[1].all_bytes_ns, busy * d->levels[1].unit_bytes_ns);
  io->bytes[shared] += n->blocks * lines * LINE;
  io->level_ns[shared] += lines * per_unit;
}

bool kiln_gpu_work(kiln_ctx *cx, const kiln_machine *m, const kiln_loops *l, kiln_tile_cost *io) {
  const kiln_gpu_counting by = {.clocks = m->clock_ghz,
                                .shared = kiln_gpu_shared(m->device)->latency_ns,
                                .l2 = m->device->levels[1].latency_ns,
                                .l1 = L1_NS,
                                .barrier = BARRIER_NS};
  kiln_tile_cost c = *io;
  const int shared = kiln_device_level(m->device, "shared");
  double nests = 0, code = 0;
  c.compute_ns = c.level_ns[1] = c.level_ns[shared] = c.bytes[1] = c.bytes[shared] = 0;
  for (const kiln_loop *n = l->body; n; n = n->next, nests++) {
    kiln_gpu_nest_counts one;
    if (!kiln_gpu_count_nest(cx, m, &by, l, n, &one)) return false;
    add_nest(m, &one, &c);
    code += one.code;
  }
  c.launch_ns = m->device->launch_ns + BEGIN_END_NS + (nests - 1) * NEST_NS + code * INSTRUCTION_NS;
  c.ns = c.launch_ns; // the template's estimate is known, and is replaced below
  c.ns = kiln_tile_price_of(&c);
  *io = c;
  return true;
}

double kiln_gpu_hidden_ns(const kiln_machine *m) {
  enum { CAPABILITY = 90, HIDDEN_NS = 1600 }; // measured on an H200
  return m->gpu.capability >= CAPABILITY ? HIDDEN_NS : 0;
}
