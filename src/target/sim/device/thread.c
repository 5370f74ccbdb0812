// The threads of a warp: where they are, what they wait for, and what they know afterwards.
#include "target/sim/device/state.h"

int64_t sim_coordinate(const sim_device *d, const sim_warp *w, int thread, int axis) {
  const int64_t *b = d->launch->block;
  const int64_t in = thread % d->n_block_threads, at = axis == 0   ? in % b[0]
                                                       : axis == 1 ? in / b[0] % b[1]
                                                                   : in / (b[0] * b[1]);
  return axis == 1 && w->rows ? (at - w->row) % w->rows : at;
}

int64_t sim_block_at(const sim_device *d, int thread, int axis) {
  return d->block0[axis] + (axis == 0 ? thread / d->n_block_threads : 0);
}

int64_t sim_argument(sim_device *d, const sim_warp *w, const kiln_loop *l, int argument) {
  sim_become(d, w->first, l);
  return kiln_sim_eval_index(&d->m, l->operands[argument]);
}

void sim_wait_at(sim_warp *w, sim_wait kind, const kiln_loop *l, int64_t id, int64_t count) {
  w->wait = kind;
  w->at = l;
  w->id = id;
  w->count = count;
}

void sim_learn(sim_device *d, const sim_warp *w, const int32_t *known) {
  for (int t = w->first; t < w->first + sim_n_active(w); t++) {
    sim_clock_join(&d->clocks, sim_clock_of(&d->clocks, t), known);
    sim_clock_tick(&d->clocks, t);
  }
}
