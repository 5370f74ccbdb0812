// mbarriers: arrivals, bytes that are expected, phases, and the clocks that they pass on.
#include "target/sim/device/state.h"

enum { MOST = (1 << 20) - 1 }; // arrivals, and bytes

int sim_mbarrier_of(sim_device *d, const kiln_expr *e) {
  const sim_memory *c = &d->cells[e->u.tensor];
  const int block = d->t / d->n_block_threads;
  return block * d->max_mbarriers + d->mbarrier_at[e->u.tensor] +
         (int)sim_element_of(d, c, e->args);
}

void sim_complete(sim_device *d, sim_mbarrier *m) {
  if (m->arrived < m->count || m->bytes) return;
  m->arrived = 0;
  m->done++;
  sim_clock_join(&d->clocks, m->known, m->sofar);
  m->known[d->first_mbarrier + (int)(m - d->mbarriers)] = (int32_t)m->done;
}

// Whether thread |t| knows that |m| is initialised.
static bool check_made(sim_device *d, const kiln_loop *l, const sim_mbarrier *m, int t) {
  const bool knows = m->count > 0 && sim_knows(&d->clocks, t, &m->made);
  if (!knows)
    SIM_FAIL(d, "`%s` must come behind a barrier behind the initialisation of its mbarrier",
             sim_text_of(d, l));
  return knows;
}

void sim_arrive(sim_device *d, const kiln_loop *l, int at, int first, int n) {
  sim_mbarrier *m = &d->mbarriers[at];
  if (!check_made(d, l, m, first)) return;
  for (int t = first; t < first + n; t++) {
    sim_clock_join(&d->clocks, m->sofar, sim_clock_of(&d->clocks, t));
    sim_clock_tick(&d->clocks, t);
  }
  m->arrived++;
  if (m->arrived > m->count)
    SIM_FAIL(d, "`%s` arrives at an mbarrier at which all %" PRId64 " have arrived in this phase",
             sim_text_of(d, l), m->count);
  sim_complete(d, m);
}

void sim_expect(sim_device *d, const kiln_loop *l, int t) {
  sim_become(d, t, l);
  const int at = sim_mbarrier_of(d, l->operands[0]);
  const int64_t bytes = kiln_sim_eval_index(&d->m, l->operands[1]);
  sim_mbarrier *m = &d->mbarriers[at];
  m->bytes += bytes;
  if (bytes < 0 || m->bytes > MOST)
    SIM_FAIL(d, "`%s` must leave %d bytes to be copied at most, got %" PRId64, sim_text_of(d, l),
             MOST, m->bytes);
  sim_arrive(d, l, at, t, 1);
}

// The blocks of the mask |mask|, as the block that runs sees them: a bit each.
static unsigned peers_of(const sim_device *d, int64_t mask) {
  return (unsigned)((uint64_t)mask >> 8 * (d->t / d->n_block_threads)) & 255;
}

void sim_arrive_cluster(sim_device *d, const sim_warp *w, const kiln_loop *l) {
  const int at = sim_mbarrier_of(d, l->operands[0]) - w->block * d->max_mbarriers;
  const unsigned peers = peers_of(d, sim_argument(d, w, l, 1));
  for (int p = 0; p < d->n_blocks; p++)
    if (peers >> p & 1) sim_arrive(d, l, p * d->max_mbarriers + at, w->first, w->n);
}

void sim_make_mbarriers(sim_device *d, const sim_warp *w, const kiln_loop *l) {
  const int at = sim_mbarrier_of(d, l->operands[0]);
  const bool has_peers = l->op->kind == KILN_DEVICE_MBARRIER_INIT_CLUSTER;
  const int64_t n = sim_argument(d, w, l, 1),
                sharers = has_peers ? __builtin_popcount(peers_of(d, sim_argument(d, w, l, 3))) : 1,
                count = sim_argument(d, w, l, 2) * sharers;
  if (w->first % d->n_block_threads) return; // the block's first thread does it
  if (count < 1 || count > MOST)
    SIM_FAIL(d, "`%s` must have 1 to %d arrivals, got %" PRId64, sim_text_of(d, l), MOST, count);
  sim_check_word(d, &d->cells[l->operands[0]->u.tensor], 0, sizeof(uint64_t));
  for (int64_t i = 0; i < n; i++) {
    sim_mbarrier *m = &d->mbarriers[at + i];
    m->made = sim_event_of(d);
    m->count = count;
    sim_clock_join(&d->clocks, m->known, sim_clock_of(&d->clocks, w->first));
  }
  sim_clock_tick(&d->clocks, w->first);
}

void sim_set_phases(sim_device *d, const sim_warp *w, const kiln_loop *l) {
  const kiln_expr *p = l->operands[0];
  for (int t = w->first; t < w->first + sim_n_active(w); t++) {
    sim_become(d, t, l);
    uint32_t *bits = (uint32_t *)(void *)sim_data_of(d, &d->cells[p->u.tensor], t);
    const uint32_t by = (uint32_t)kiln_sim_eval_index(&d->m, l->operands[1]);
    *bits = l->op->kind == KILN_DEVICE_MBARRIER_FLIP ? *bits ^ by : by;
  }
}

void sim_wait_mbarrier(sim_device *d, sim_warp *w, const kiln_loop *l) {
  sim_become(d, w->first, l);
  const int at = sim_mbarrier_of(d, l->operands[0]);
  if (!check_made(d, l, &d->mbarriers[at], w->first)) return;
  if (l->op->kind == KILN_DEVICE_MBARRIER_AWAIT) {
    if (w->first % d->n_block_threads && !w->is_single) return;
    sim_wait_at(w, SIM_AT_MBARRIER, l, at, sim_argument(d, w, l, 1));
    return;
  }
  const kiln_expr *phases = l->operands[1];
  const sim_memory *c = &d->cells[phases->u.tensor];
  const int bit = (int)sim_element_of(d, &d->cells[l->operands[0]->u.tensor], l->operands[0]->args);
  int64_t parity = 0;
  for (int t = w->first + sim_n_active(w) - 1; t >= w->first; t--) {
    sim_become(d, t, l);
    const int64_t element = sim_element_of(d, c, phases->args);
    uint32_t *bits = (uint32_t *)(void *)(sim_data_of(d, c, t)) + element;
    parity = *bits >> bit & 1;
    *bits ^= UINT32_C(1) << bit;
  }
  sim_wait_at(w, SIM_AT_MBARRIER, l, at, parity);
}

bool sim_release_mbarrier(sim_device *d, sim_warp *w) {
  const sim_mbarrier *m = &d->mbarriers[w->id];
  if (w->wait != SIM_AT_MBARRIER || (m->done & 1) == (w->count & 1)) return false;
  sim_learn(d, w, m->known);
  w->wait = SIM_READY;
  return true;
}
