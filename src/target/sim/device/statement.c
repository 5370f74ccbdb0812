// Barriers, fences, commits and waits: the statements of device loops that threads meet at.
#include "target/sim/device/state.h"

// The threads of a warp wait for each other.
static void meet(sim_device *d, const sim_warp *w) {
  int32_t *all = KILN_NEW_ARRAY(&d->m.cx->scratch, int32_t, d->clocks.n);
  for (int t = w->first; t < w->first + w->n; t++)
    sim_clock_join(&d->clocks, all, sim_clock_of(&d->clocks, t));
  for (int t = w->first; t < w->first + w->n; t++) {
    sim_clock_join(&d->clocks, sim_clock_of(&d->clocks, t), all);
    sim_clock_tick(&d->clocks, t);
  }
}

static void commit(const sim_warp *w, int32_t *counts) {
  for (int t = w->first; t < w->first + sim_n_active(w); t++) counts[t]++;
}

static void end_group(sim_device *d, const sim_warp *w, int64_t latest) {
  const int group = w->first - w->first % d->n_block_threads % SIM_MAX_GROUP;
  for (int t = w->first; t < w->first + w->n; t++) {
    int32_t *known = &sim_clock_of(&d->clocks, t)[sim_agent_of_group(d, group)];
    const int32_t until = d->group_commits[w->first] - (int32_t)latest;
    if (until > *known) *known = until;
  }
}

// wgmma.take: each thread copies a buffer of its own.
static void take(sim_device *d, const sim_warp *w, const kiln_loop *l) {
  const sim_memory *to = &d->cells[l->operands[0]->u.tensor],
                   *from = &d->cells[l->operands[1]->u.tensor];
  for (int t = w->first; t < w->first + sim_n_active(w); t++)
    for (int64_t i = 0; i < to->elems && i < from->elems; i++) {
      sim_become(d, t, l);
      sim_store(d, to, i, sim_fetch(d, from, i));
    }
}

void sim_run_device(sim_device *d, sim_warp *w, const kiln_loop *l) {
  sim_become(d, w->first, l);
  switch (l->op->kind) {
  case KILN_DEVICE_BARRIER_BLOCK: sim_wait_at(w, SIM_AT_BLOCK, l, 0, 0); return;
  case KILN_DEVICE_BARRIER_WARP: meet(d, w); return;
  case KILN_DEVICE_BARRIER_SYNC:
  case KILN_DEVICE_BARRIER_ARRIVE: {
    const int64_t id = sim_argument(d, w, l, 0), threads = sim_argument(d, w, l, 1);
    if (id < 1 || id >= SIM_MAX_NAMED) {
      SIM_FAIL(d, "`%s` must be of a barrier from 1 to %d, got %" PRId64, sim_text_of(d, l),
               SIM_MAX_NAMED - 1, id);
      return;
    }
    if (threads % d->launch->warp) {
      SIM_FAIL(d, "`%s` must be of whole warps of %d threads, got %" PRId64, sim_text_of(d, l),
               d->launch->warp, threads);
      return;
    }
    sim_named_barrier *b = &d->named[w->block * SIM_MAX_NAMED + id];
    if (b->arrived && b->count != threads)
      SIM_FAIL(d,
               "`%s` must be of as many threads as others say who come there, got %" PRId64
               " and %" PRId64,
               sim_text_of(d, l), threads, b->count);
    b->count = threads;
    b->arrived += w->n;
    for (int t = w->first; t < w->first + w->n; t++) {
      sim_clock_join(&d->clocks, b->known, sim_clock_of(&d->clocks, t));
      sim_clock_tick(&d->clocks, t);
    }
    if (l->op->kind == KILN_DEVICE_BARRIER_SYNC) sim_wait_at(w, SIM_AT_NAMED, l, id, threads);
    return;
  }
  case KILN_DEVICE_CLUSTER_SYNC: sim_wait_at(w, SIM_AT_CLUSTER, l, 0, 0); return;
  case KILN_DEVICE_FENCE_ASYNC: commit(w, d->fences); return;
  case KILN_DEVICE_FENCE_CLUSTER:
  case KILN_DEVICE_LAUNCH_WAIT:
  case KILN_DEVICE_REGISTERS_SET:
  case KILN_DEVICE_MAPS_FETCH:
  case KILN_DEVICE_WGMMA_SETTLE:
  case KILN_DEVICE_MBARRIER_EXPECT:
  case KILN_DEVICE_ROLE_LEADERS:
  case KILN_DEVICE_ROLE_WARP:
  case KILN_N_DEVICE_KINDS:
  case KILN_DEVICE_COPY_ASYNC: return;
  case KILN_DEVICE_WGMMA_TAKE: take(d, w, l); return;
  case KILN_DEVICE_COPY_COMMIT: commit(w, d->commits); return;
  case KILN_DEVICE_COPY_WAIT: sim_end_copies(d, w, sim_argument(d, w, l, 0)); return;
  case KILN_DEVICE_MBARRIER_INIT_CLUSTER:
  case KILN_DEVICE_MBARRIER_INIT: sim_make_mbarriers(d, w, l); return;
  case KILN_DEVICE_MBARRIER_ARRIVE:
    sim_arrive(d, l, sim_mbarrier_of(d, l->operands[0]), w->first, sim_n_active(w));
    return;
  case KILN_DEVICE_MBARRIER_WAIT:
  case KILN_DEVICE_MBARRIER_AWAIT: sim_wait_mbarrier(d, w, l); return;
  case KILN_DEVICE_WGMMA_FENCE: commit(w, d->group_fences); return;
  case KILN_DEVICE_WGMMA_COMMIT: commit(w, d->group_commits); return;
  case KILN_DEVICE_WGMMA_WAIT: end_group(d, w, sim_argument(d, w, l, 0)); return;
  case KILN_DEVICE_MBARRIER_PHASES:
  case KILN_DEVICE_MBARRIER_FLIP: sim_set_phases(d, w, l); return;
  case KILN_DEVICE_MBARRIER_ARRIVE_CLUSTER: sim_arrive_cluster(d, w, l); return;
  case KILN_DEVICE_ROLE_FIRST: sim_enter_first(d, w, l); return;
  case KILN_DEVICE_TILES:
  case KILN_DEVICE_TILE_STEPS: sim_enter_tiles(d, w, l); return;
  case KILN_DEVICE_ROLE_CONSUMERS:
  case KILN_DEVICE_ROLE_PRODUCER: sim_enter_role(d, w, l); return;
  }
}
