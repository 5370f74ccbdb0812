// Warps in turns: each runs until it waits; releases those that wait no longer, finds deadlocks.
#include "target/sim/device/state.h"

// Runs a warp until it waits or is done.
static void run_warp(sim_device *d, sim_warp *w) {
  while (w->wait == SIM_READY && d->m.status == KILN_OK) {
    if (!w->depth) {
      w->wait = SIM_DONE;
      return;
    }
    sim_frame *f = &w->frames[w->depth - 1];
    const kiln_loop *l = f->next;
    if (!l) {
      sim_leave(d, w);
      continue;
    }
    f->next = l->next;
    if (!sim_is_leaf(l)) {
      if (l->kind == KILN_LOOP_DEVICE) sim_run_device(d, w, l);
      else sim_enter(d, w, l);
    } else if (sim_group_size(d, l) > w->n) {
      sim_wait_at(w, SIM_AT_GROUP, l, 0, 0);
    } else sim_run_leaf(d, w, l, w->first, w->n);
  }
}

// Releases the warps |from| to |from| + |n| - 1, if all of them wait as |kind|.
static bool release_all(sim_device *d, sim_wait kind, int from, int n) {
  int32_t *all = NULL;
  for (int i = from; i < from + n; i++)
    if (d->warps[i].wait != kind) return false;
  all = KILN_NEW_ARRAY(&d->m.cx->scratch, int32_t, d->clocks.n);
  for (int i = from; i < from + n; i++)
    for (int t = d->warps[i].first; t < d->warps[i].first + d->warps[i].n; t++)
      sim_clock_join(&d->clocks, all, sim_clock_of(&d->clocks, t));
  for (int i = from; i < from + n; i++) {
    d->warps[i].wait = SIM_READY;
    sim_learn(d, &d->warps[i], all);
  }
  d->clocks.epoch += d->n_blocks == 1;
  return true;
}

// A warp group's instruction, once its warps have all come.
static bool release_group(sim_device *d, int from) {
  const sim_warp *w = &d->warps[from];
  const int n = SIM_MAX_GROUP / d->launch->warp;
  if (w->wait != SIM_AT_GROUP || w->first % d->n_block_threads % SIM_MAX_GROUP) return false;
  for (int i = from; i < from + n; i++)
    if (i >= d->n_warps || d->warps[i].wait != SIM_AT_GROUP || d->warps[i].at != w->at)
      return false;
  sim_run_leaf(d, w, w->at, w->first, SIM_MAX_GROUP);
  for (int i = from; i < from + n; i++) d->warps[i].wait = SIM_READY;
  return true;
}

static bool release_named(sim_device *d, int block, int id) {
  sim_named_barrier *b = &d->named[block * SIM_MAX_NAMED + id];
  if (!b->count || b->arrived < b->count) return false;
  if (b->arrived > b->count)
    SIM_FAIL(d, "more than %" PRId64 " threads come to barrier %d", b->count, id);
  for (int i = 0; i < d->n_warps; i++) {
    sim_warp *w = &d->warps[i];
    if (w->block != block || w->wait != SIM_AT_NAMED || w->id != id) continue;
    sim_learn(d, w, b->known);
    w->wait = SIM_READY;
  }
  b->arrived = b->count = 0;
  return true;
}

static bool release_some(sim_device *d) {
  bool any = false;
  const int per_block = d->n_warps / d->n_blocks;
  for (int b = 0; b < d->n_blocks; b++) {
    any |= release_all(d, SIM_AT_BLOCK, b * per_block, per_block);
    for (int id = 1; id < SIM_MAX_NAMED; id++) any |= release_named(d, b, id);
  }
  any |= release_all(d, SIM_AT_CLUSTER, 0, d->n_warps);
  for (int i = 0; i < d->n_warps; i++)
    any |= release_group(d, i) || sim_release_mbarrier(d, &d->warps[i]);
  return any;
}

static void fail_deadlock(sim_device *d) {
  kiln_text t;
  kiln_text_init(&t, &d->m.cx->scratch);
  int n = 0;
  for (int i = 0; i < d->n_warps; i++) {
    const sim_warp *w = &d->warps[i];
    bool known = w->wait == SIM_DONE;
    for (int k = 0; k < i; k++) known |= d->warps[k].wait != SIM_DONE && d->warps[k].at == w->at;
    if (known || n++ > 2) continue;
    kiln_text_printf(&t, "%swarp %d at `%s`", n > 1 ? ", " : "", i, sim_text_of(d, w->at));
    const int64_t bytes = w->wait == SIM_AT_MBARRIER ? d->mbarriers[w->id].bytes : 0;
    if (bytes)
      kiln_text_printf(&t, ", where copies brought %" PRId64 " bytes too %s",
                       bytes > 0 ? bytes : -bytes, bytes > 0 ? "few" : "many");
  }
  SIM_FAIL(d, "deadlock: nobody can go on: %s", t.data ? t.data : "");
}

// Memory of a block that has ended is another's.
static void check_landed(sim_device *d) {
  for (int i = 0; i < d->flights.n; i++)
    if (d->flights.data[i].thread < 0 && !d->flights.data[i].is_over)
      SIM_FAIL(d, "nobody waits for `%s` before its block ends",
               sim_text_of(d, d->flights.data[i].by));
}

void sim_run_cluster(sim_device *d) {
  for (;;) {
    bool all_done = true;
    for (int i = 0; i < d->n_warps; i++) run_warp(d, &d->warps[i]);
    for (int i = 0; i < d->n_warps; i++) all_done &= d->warps[i].wait == SIM_DONE;
    if (all_done) check_landed(d);
    if (all_done || d->m.status != KILN_OK) return;
    if (release_some(d) || sim_land_one(d)) continue;
    fail_deadlock(d);
    return;
  }
}
