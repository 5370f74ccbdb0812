// Messages of the device simulator: a statement as one line, and who races with whom.
#include "target/sim/device/state.h"

#include <string.h>

const char *sim_text_of(sim_device *d, const kiln_loop *by) {
  if (!by) return "nothing";
  kiln_text t;
  kiln_loop alone = *by;
  kiln_loops one = *d->l;
  alone.next = alone.body = NULL;
  one.body = &alone;
  kiln_text_init(&t, &d->m.cx->scratch);
  kiln_loops_print(d->m.cx, &one, &t);
  const bool has_body =
      by->kind == KILN_LOOP_FOR || by->kind == KILN_LOOP_IF || by->kind == KILN_LOOP_ALLOC;
  for (int lines = has_body ? 3 : 2; lines > 0; lines--) *strrchr(t.data, '\n') = 0;
  return strrchr(t.data, '\n') + 1 + strspn(strrchr(t.data, '\n') + 1, " ");
}

static const char *who(sim_device *d, int clock) {
  kiln_arena *a = &d->m.cx->scratch;
  const int n = d->n_threads;
  if (clock < n) return kiln_arena_printf(a, "thread %d", clock % d->n_block_threads);
  if (clock < d->first_group)
    return kiln_arena_printf(a, "a copy of thread %d", (clock - n) % d->n_block_threads);
  if (clock < d->first_mbarrier)
    return kiln_arena_printf(a, "the instructions of thread %d",
                             (clock - d->first_group) * SIM_MAX_GROUP % d->n_block_threads);
  return "a TMA copy";
}

void sim_fail_race(sim_device *d, const sim_memory *c, int64_t element, bool writes,
                   const sim_event *other) {
  SIM_FAIL(d,
           "buffer %s: race: %s %s element %" PRId64 " in `%s`, which %s is not waited for: `%s`",
           kiln_symbol_text(d->m.cx, c->b->name), who(d, d->clock), writes ? "writes" : "reads",
           element, sim_text_of(d, d->by), who(d, other->clock), sim_text_of(d, other->by));
}
