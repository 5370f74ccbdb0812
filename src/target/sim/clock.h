// Happens-before by vector clocks.
//
// Every thread has a clock, and so has every agent of asynchronous accesses: the copies of a thread
// (cp.async), those that arrive at an mbarrier, the instructions of a warp group. at[t][c] is the
// time of clock c that thread t has seen: accesses by c up to it happened before t's next one. A
// barrier joins the clocks of its threads; a wait for copies joins their agent's.
#ifndef KILN_TARGET_SIM_CLOCK_H
#define KILN_TARGET_SIM_CLOCK_H

#include "ir/loop.h"

typedef struct sim_clocks {
  int n_threads, n; // clocks: threads', then agents'
  int32_t *at;      // [n_threads][n]
  int32_t epoch;    // barriers of all threads so far
} sim_clocks;

// An access by |clock| at |time|, of the statement |by|.
typedef struct sim_event {
  int clock; // -1: there is none
  int32_t time;
  const kiln_loop *by;
} sim_event;

// The access history of a place in memory.
typedef struct sim_place {
  int32_t run;    // of a cluster of blocks, in which what follows happened
  uint8_t before; // SIM_WAS_.. by blocks of earlier runs
  sim_event writer;
  int32_t fence;   // the writer's count of fences for asynchronous readers until then
  bool is_written; // ever
  int32_t epoch;   // the last barrier of all threads that its readers were checked at
  int n_readers, room;
  sim_event *readers; // since the last write
} sim_place;
enum { SIM_WAS_READ = 1, SIM_WAS_WRITTEN = 2 };
// Begins the place's history in |run|, if it is of an earlier one.
static inline void sim_place_enter(sim_place *p, int32_t run) {
  if (p->run == run) return;
  const int before =
      p->before | (p->n_readers ? SIM_WAS_READ : 0) | (p->is_written ? SIM_WAS_WRITTEN : 0);
  *p = (sim_place){.run = run, .before = (uint8_t)before, .writer = {.clock = -1}};
}

void sim_clocks_make(kiln_ctx *cx, sim_clocks *c, int n_threads, int n_agents);
void sim_clocks_reset(sim_clocks *c); // nothing has happened
static inline int32_t *sim_clock_of(const sim_clocks *c, int thread) {
  return c->at + (size_t)thread * (size_t)c->n;
}
// Whether |e| happened before |thread|'s next access.
static inline bool sim_knows(const sim_clocks *c, int thread, const sim_event *e) {
  return e->clock < 0 || sim_clock_of(c, thread)[e->clock] >= e->time;
}
void sim_clock_join(const sim_clocks *c, int32_t *io, const int32_t *from);
// Advances |thread|'s clock, so that its accesses until now can be ordered before later ones.
static inline void sim_clock_tick(const sim_clocks *c, int thread) {
  sim_clock_of(c, thread)[thread]++;
}
// Records the access |e|, begun by |thread|. Gives one that conflicts with it and did not happen
// before it; NULL: there is no race.
const sim_event *sim_place_read(kiln_ctx *cx, const sim_clocks *c, sim_place *p, int thread,
                                sim_event e);
const sim_event *sim_place_write(const sim_clocks *c, sim_place *p, int thread, sim_event e);

#endif
