#include "price/traffic.h"

#include "analysis/reuse.h"
#include "target/instr.h"
#include "price/work.h"

#include <math.h>

// Lists the caches of |machine|, fastest first; out_level[k] is the device's boundary behind the
// k-th.
static int caches_of(const kiln_machine *machine, kiln_reuse_level *out, int *out_level) {
  const kiln_device *d = machine->device;
  int n = 0;
  for (int l = d->n_levels - 1; l > 0; l--) {
    const kiln_mem_level *m = &d->levels[l];
    if (m->is_explicit) continue;
    out[n] = (kiln_reuse_level){(double)m->capacity_bytes, m->transaction_bytes, true,
                                kiln_machine_ways(machine, n < 3 ? n + 1 : 3)};
    out_level[n++] = l - 1;
  }
  return n;
}

// Slightly more than the longest of arithmetic and transfers, which are prefetched.
static double overlapped(const kiln_device *d, const kiln_tile_cost *c) {
  enum { NORM = 8 };
  double sum = pow(c->compute_ns, NORM);
  for (int l = 0; l + 1 < d->n_levels; l++) sum += pow(c->level_ns[l], NORM);
  return pow(sum, 1.0 / NORM);
}

// The number of the slowest private cache among |n|, fastest first.
static int last_private(const kiln_device *d, int n, const int *boundary) {
  int k = 0;
  while (k + 1 < n && d->levels[boundary[k]].n_sharing <= 1) k++;
  return k;
}

kiln_status kiln_traffic_price(kiln_ctx *cx, const kiln_machine *m, int n_threads, kiln_loops *l,
                               kiln_tile_cost *io) {
  const kiln_device *d = m->device;
  kiln_work_units units = kiln_work_units_of(m);
  kiln_reuse_level levels[KILN_MAX_LEVELS];
  kiln_reuse_flow flows[KILN_MAX_LEVELS];
  int boundary[KILN_MAX_LEVELS];
  const int n = caches_of(m, levels, boundary), own = last_private(d, n, boundary);
  const double tiles = io->tiles > 0 ? (double)io->tiles : 1,
               active = tiles < n_threads ? tiles : n_threads;
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  kiln_reuse_flow *each = KILN_NEW_ARRAY(&cx->scratch, kiln_reuse_flow, l->buffers.n * n + 1);
  double *missed = KILN_NEW_ARRAY(&cx->scratch, double, l->buffers.n + 1);
  const kiln_status st = kiln_reuse_predict(cx, kiln_instrs_expand(cx, l), n, levels, flows, each);
  for (int i = 0; n > 0 && i < l->buffers.n; i++)
    missed[i] = each[i * n + own].read_bytes / levels[own].line_bytes;
  if (n > 0) units.miss_ns = d->levels[boundary[own]].latency_ns;
  if (st == KILN_OK)
    io->compute_ns = kiln_tile_work(cx, l, &units, n_threads, n > 0 ? missed : NULL);
  kiln_arena_rewind(&cx->scratch, mark);
  KILN_TRY(st);
  io->level_ns[d->n_levels - 2] = 0; // counted as load instructions
  for (int k = 0; k < n; k++) {
    const kiln_mem_level *level = &d->levels[boundary[k]];
    io->bytes[boundary[k]] = flows[k].read_bytes + flows[k].written_bytes;
    io->level_ns[boundary[k]] =
        io->bytes[boundary[k]] / fmin(level->all_bytes_ns, active * level->unit_bytes_ns);
  }
  io->ns = io->launch_ns + overlapped(d, io);
  return KILN_OK;
}

// The most iterations of a parallel nest.
static int64_t tasks_of(const kiln_loops *l) {
  int64_t most = 1, n = 1;
  for (const kiln_loop *nest = l->body; nest; nest = nest->next)
    if (nest->kind == KILN_LOOP_FOR && nest->how == KILN_PARALLEL &&
        kiln_expr_is_int(nest->extent, &n) && n > most)
      most = n;
  return most;
}

kiln_status kiln_traffic_price_streamed(kiln_ctx *cx, const kiln_machine *m, int n_threads,
                                        kiln_loops *l, kiln_tile_cost *io) {
  kiln_tile_cost c = *io;
  c.tiles = tasks_of(l);
  KILN_TRY(kiln_traffic_price(cx, m, n_threads, l, &c));
  c.bytes[0] = io->bytes[0];
  c.level_ns[0] = io->level_ns[0];
  c.tail = 1; // idle threads are part of the instructions' time
  c.streams = true;
  c.ns = c.launch_ns + c.compute_ns;
  for (int i = 0; i + 1 < m->device->n_levels; i++) c.ns += c.level_ns[i];
  *io = c;
  return KILN_OK;
}
