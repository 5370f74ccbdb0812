// Vector clocks, and the access history of a place that they order.
#include "target/sim/clock.h"

#include <string.h>

void sim_clocks_make(kiln_ctx *cx, sim_clocks *c, int n_threads, int n_agents) {
  *c = (sim_clocks){.n_threads = n_threads, .n = n_threads + n_agents};
  c->at = KILN_NEW_ARRAY(&cx->scratch, int32_t, (int64_t)n_threads * c->n);
}

void sim_clocks_reset(sim_clocks *c) {
  memset(c->at, 0, (size_t)c->n_threads * (size_t)c->n * sizeof *c->at);
  for (int t = 0; t < c->n_threads; t++) sim_clock_of(c, t)[t] = 1;
  c->epoch = 0;
}

void sim_clock_join(const sim_clocks *c, int32_t *io, const int32_t *from) {
  for (int i = 0; i < c->n; i++)
    if (from[i] > io[i]) io[i] = from[i];
}

// Forgets readers that a barrier of all threads has ordered since, but for agents, which it does
// not wait for.
static void forget(const sim_clocks *c, sim_place *p) {
  int kept = 0;
  if (p->epoch == c->epoch) return;
  p->epoch = c->epoch;
  for (int i = 0; i < p->n_readers; i++)
    if (p->readers[i].clock >= c->n_threads) p->readers[kept++] = p->readers[i];
  p->n_readers = kept;
}

const sim_event *sim_place_read(kiln_ctx *cx, const sim_clocks *c, sim_place *p, int thread,
                                sim_event e) {
  if (!sim_knows(c, thread, &p->writer)) return &p->writer;
  forget(c, p);
  for (int i = 0; i < p->n_readers; i++)
    if (p->readers[i].clock == e.clock) {
      p->readers[i] = e;
      return NULL;
    }
  if (p->n_readers == p->room) {
    const int room = p->room ? 2 * p->room : 4;
    sim_event *more = KILN_NEW_ARRAY(&cx->scratch, sim_event, room);
    if (p->room) memcpy(more, p->readers, (size_t)p->room * sizeof *more);
    p->readers = more;
    p->room = room;
  }
  p->readers[p->n_readers++] = e;
  return NULL;
}

const sim_event *sim_place_write(const sim_clocks *c, sim_place *p, int thread, sim_event e) {
  if (!sim_knows(c, thread, &p->writer)) return &p->writer;
  forget(c, p);
  for (int i = 0; i < p->n_readers; i++)
    if (!sim_knows(c, thread, &p->readers[i])) return &p->readers[i];
  p->n_readers = 0;
  p->writer = e;
  p->is_written = true;
  return NULL;
}
