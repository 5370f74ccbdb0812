// Memory of simulated threads, blocks and the caller: elements, and the checks of each access.
#include "target/sim/device/state.h"

#include <string.h>

char *sim_data_of(sim_device *d, const sim_memory *c, int thread) {
  if (c->b->scope == KILN_SCOPE_SHARED)
    return d->shared + d->space * d->arena_bytes + c->offset + d->group[thread] * c->own_bytes;
  const int64_t bytes = c->elems * kiln_dtype_bytes(c->b->dtype);
  return sim_is_private(c) ? c->data + thread * bytes : c->data;
}

int64_t sim_shared_byte(const sim_device *d, const sim_memory *c, int64_t element) {
  return d->space * d->arena_bytes + c->offset + d->group[d->t] * c->own_bytes +
         element * kiln_dtype_bytes(c->b->dtype);
}

static sim_place *place_of(sim_device *d, const sim_memory *c, int64_t element) {
  if (c->b->scope != KILN_SCOPE_SHARED) return c->places ? &c->places[element] : NULL;
  return &d->arena[sim_shared_byte(d, c, element) / d->unit];
}

// Checks an access of thread-private memory: instructions in flight, and fences for them.
static void check_private(sim_device *d, const sim_memory *c, int64_t element, bool writes) {
  sim_own *own = &c->own[d->t * c->elems + element];
  if (own->run != d->run)
    *own = (sim_own){.run = d->run, .sums = {.clock = -1}, .reader = {.clock = -1}};
  sim_event *sums = &own->sums;
  if (d->is_async) {
    if (own->stamp && own->stamp == d->group_fences[d->t] + 1)
      SIM_FAIL(
          d, "buffer %s: `%s` must come behind a wgmma.fence, as thread %d wrote element %" PRId64,
          kiln_symbol_text(d->m.cx, c->b->name), sim_text_of(d, d->by), d->t % d->n_block_threads,
          element);
    if (!writes) own->reader = sim_event_of(d);
    if (writes) *sums = sim_event_of(d);
    if (writes) own->stamp = 0;
    return;
  }
  if (sums->by && !sim_knows(&d->clocks, d->t, sums))
    SIM_FAIL(d, "buffer %s: thread %d %s element %" PRId64 " in `%s` before it waits for `%s`",
             kiln_symbol_text(d->m.cx, c->b->name), d->t % d->n_block_threads,
             writes ? "writes" : "reads", element, sim_text_of(d, d->by), sim_text_of(d, sums->by));
  if (!writes) return;
  if (own->reader.by && !sim_knows(&d->clocks, d->t, &own->reader))
    SIM_FAIL(d,
             "buffer %s: thread %d writes element %" PRId64
             " in `%s` before it waits for `%s`, which reads it",
             kiln_symbol_text(d->m.cx, c->b->name), d->t % d->n_block_threads, element,
             sim_text_of(d, d->by), sim_text_of(d, own->reader.by));
  *sums = (sim_event){-1, 0, NULL};
  own->stamp = d->group_fences[d->t] + 1;
}

// Blocks of a launch may run in any order: none reads or changes what another one writes.
static void check_blocks(sim_device *d, const sim_memory *c, const sim_place *p, int64_t element,
                         bool writes) {
  const int conflict = writes ? SIM_WAS_READ | SIM_WAS_WRITTEN : SIM_WAS_WRITTEN;
  if (c->b->scope == KILN_SCOPE_SHARED || !(p->before & conflict)) return;
  SIM_FAIL(d, "buffer %s: race: `%s` %s element %" PRId64 ", which another block %s",
           kiln_symbol_text(d->m.cx, c->b->name), sim_text_of(d, d->by),
           writes ? "writes" : "reads", element, p->before & SIM_WAS_WRITTEN ? "writes" : "reads");
}

// Checks an access of memory that threads share.
static void check_shared(sim_device *d, const sim_memory *c, int64_t element, bool writes) {
  const bool is_shared = c->b->scope == KILN_SCOPE_SHARED;
  const int64_t n = is_shared ? kiln_dtype_bytes(c->b->dtype) / d->unit : 1;
  sim_place *p = place_of(d, c, element);
  for (int64_t k = 0; p && k < n && d->m.status == KILN_OK; k++) {
    sim_place *one = p + k;
    sim_place_enter(one, d->run);
    check_blocks(d, c, one, element, writes);
    if (!writes && is_shared && !one->is_written)
      SIM_FAIL(d, "buffer %s: element %" PRId64 " must be written before `%s` reads it",
               kiln_symbol_text(d->m.cx, c->b->name), element, sim_text_of(d, d->by));
    if (!writes && d->is_async && one->fence && one->writer.clock >= 0 &&
        one->writer.clock < d->n_threads && one->fence == d->fences[one->writer.clock] + 1)
      SIM_FAIL(d,
               "buffer %s: `%s` reads element %" PRId64
               ", which `%s` writes without a fence.async behind it",
               kiln_symbol_text(d->m.cx, c->b->name), sim_text_of(d, d->by), element,
               sim_text_of(d, one->writer.by));
    const sim_event *other = writes
                                 ? sim_place_write(&d->clocks, one, d->t, sim_event_of(d))
                                 : sim_place_read(d->m.cx, &d->clocks, one, d->t, sim_event_of(d));
    if (other) sim_fail_race(d, c, element, writes, other);
    if (writes) one->fence = d->is_async ? 0 : d->fences[d->t] + 1;
  }
}

void sim_check(sim_device *d, const sim_memory *c, int64_t element, bool writes) {
  if (d->m.status != KILN_OK) return;
  if (sim_is_private(c)) check_private(d, c, element, writes);
  else check_shared(d, c, element, writes);
}

int64_t sim_element_of(sim_device *d, const sim_memory *c, const kiln_expr *const *index) {
  int64_t element = 0;
  for (int k = 0; k < c->b->rank && d->m.status == KILN_OK; k++) {
    const int64_t i = kiln_sim_eval_index(&d->m, index[k]);
    if (i < 0 || i >= c->b->extents[k])
      SIM_FAIL(d, "buffer %s: index %d must lie in [0, %" PRId64 "), got %" PRId64 " in `%s`",
               kiln_symbol_text(d->m.cx, c->b->name), k, c->b->extents[k], i,
               sim_text_of(d, d->by));
    else element += i * c->b->strides[k];
  }
  return element;
}

// Buffers that the lowering adds behind those of the loops, as registers, count by their scope.
void sim_count(sim_device *d, const sim_memory *c, bool writes) {
  if (!d->traffic) return;
  const bool is_added = c->b->id >= d->traffic->n_buffers;
  kiln_sim_flow *const flows[] = {&d->traffic->scopes[c->b->scope],
                                  is_added ? NULL : &d->traffic->buffers[c->b->id]};
  for (int i = 0; i < 2 && flows[i]; i++)
    *(writes ? &flows[i]->written_bytes : &flows[i]->read_bytes) += kiln_dtype_bytes(c->b->dtype);
}

kiln_constant sim_fetch(sim_device *d, const sim_memory *c, int64_t element) {
  const kiln_dtype t = c->b->dtype;
  kiln_constant v = {.dtype = kiln_dtype_is_half(t) ? KILN_F32 : t};
  if (d->m.status != KILN_OK) return v;
  sim_check(d, c, element, false);
  sim_count(d, c, false);
  const void *data = sim_data_of(d, c, d->t);
  if (kiln_dtype_is_float(t)) v.f = kiln_element_get(t, data, element);
  else v.i = kiln_element_get_int(t, data, element);
  return v;
}

void sim_set(sim_device *d, const sim_memory *c, int64_t element, kiln_constant v) {
  void *data = sim_data_of(d, c, d->t);
  if (d->m.status != KILN_OK) return;
  if (kiln_dtype_is_float(c->b->dtype)) kiln_element_set(c->b->dtype, data, element, v.f);
  else kiln_element_set_int(c->b->dtype, data, element, v.i);
}

void sim_store(sim_device *d, const sim_memory *c, int64_t element, kiln_constant v) {
  enum { WIDEST = 8 };
  if (d->m.status != KILN_OK) return;
  const int bytes = kiln_dtype_bytes(c->b->dtype);
  const char *at = sim_data_of(d, c, d->t) + element * bytes;
  char before[WIDEST];
  memcpy(before, at, (size_t)bytes);
  sim_set(d, c, element, v);
  sim_count(d, c, true);
  const sim_place *p = c->places ? &c->places[element] : NULL;
  const bool is_there = p && (p->is_written || (p->before & SIM_WAS_WRITTEN));
  if (!is_there || memcmp(before, at, (size_t)bytes) != 0) sim_check(d, c, element, true);
}

void sim_become(sim_device *d, int thread, const kiln_loop *by) {
  d->t = thread;
  d->space = thread / d->n_block_threads;
  d->by = by;
  d->clock = thread;
  d->time = sim_clock_of(&d->clocks, thread)[thread];
  d->is_async = false;
  d->m.vars = d->vars + (int64_t)thread * d->m.n_vars;
}
