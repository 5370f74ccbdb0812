// Which accesses happen before which: vector clocks of threads, and of what they began and did not
// wait for yet.
//
// Every thread has a clock, and so has every agent: the copies of a thread (cp.async), those that
// land at an mbarrier, the instructions of a warp group. Thread t knows the time |at[t][c]| of
// clock c: what c did up to then happened before. A barrier lets all its threads know what each
// knows; a wait for copies lets a thread know their agent's time.
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

// What is known of a place in memory.
typedef struct sim_place {
  sim_event writer;
  int32_t fence;   // of the writer: its fences for asynchronous readers until then
  bool is_written; // ever
  int32_t epoch;   // of the readers
  int n_readers, room;
  sim_event *readers; // since the last write
} sim_place;

void sim_clocks_init(kiln_ctx *cx, sim_clocks *c, int n_threads, int n_agents);
static inline int32_t *sim_clock_of(const sim_clocks *c, int thread) {
  return c->at + (size_t)thread * (size_t)c->n;
}
// Whether |thread| knows of |e|.
static inline bool sim_knows(const sim_clocks *c, int thread, const sim_event *e) {
  return e->clock < 0 || sim_clock_of(c, thread)[e->clock] >= e->time;
}
void sim_clock_join(const sim_clocks *c, int32_t *io, const int32_t *from);
// What |thread| did until now is before what it does from now on, for those that hear of it.
static inline void sim_clock_tick(const sim_clocks *c, int thread) {
  sim_clock_of(c, thread)[thread]++;
}
// The event that |e|, begun by |thread|, must not meet: NULL: there is none. Notes |e|.
const sim_event *sim_place_read(kiln_ctx *cx, const sim_clocks *c, sim_place *p, int thread,
                                sim_event e);
const sim_event *sim_place_write(const sim_clocks *c, sim_place *p, int thread, sim_event e);

#endif
