// Phases: statements in which no thread waits, run by the threads of a warp in lockstep.
#include "target/sim/device/state.h"

#include "target/instr.h"

bool sim_is_phase_op(const kiln_loop *l) {
  if (l->kind != KILN_LOOP_DEVICE) return true;
  const kiln_device_kind k = l->op->kind;
  return k == KILN_DEVICE_COPY_ASYNC || k == KILN_DEVICE_MBARRIER_EXPECT ||
         k == KILN_DEVICE_ROLE_LEADERS || k == KILN_DEVICE_ROLE_WARP;
}

bool sim_is_leaf(const kiln_loop *l) {
  if (!sim_is_phase_op(l) || (l->kind == KILN_LOOP_FOR && (int)l->how >= KILN_BLOCK_X))
    return false;
  for (const kiln_loop *c = l->body; c; c = c->next)
    if (!sim_is_leaf(c)) return false;
  return true;
}

static void run_phase(sim_device *d, const kiln_loop *list, int first, int n, const uint8_t *on);

static void run_phase_for(sim_device *d, const kiln_loop *l, int first, int n, const uint8_t *on) {
  int64_t extents[SIM_MAX_GROUP] = {0}, most = 0;
  uint8_t now[SIM_MAX_GROUP] = {0};
  for (int k = 0; k < n; k++) {
    if (!on[k]) continue;
    sim_become(d, first + k, l);
    extents[k] = kiln_sim_eval_index(&d->m, l->extent);
    if (extents[k] > most) most = extents[k];
  }
  for (int64_t i = 0; i < most && d->m.status == KILN_OK; i++) {
    for (int k = 0; k < n; k++) {
      now[k] = on[k] && i < extents[k];
      d->vars[(int64_t)(first + k) * d->m.n_vars + l->var] = i;
      if (now[k] && i == 0 && l->how == KILN_VECTORIZED) {
        sim_become(d, first + k, l);
        sim_check_words(d, l);
      }
    }
    run_phase(d, l->body, first, n, now);
  }
}

static void run_phase_if(sim_device *d, const kiln_loop *l, int first, int n, const uint8_t *on) {
  uint8_t now[SIM_MAX_GROUP] = {0};
  bool any = false;
  for (int k = 0; k < n; k++) {
    if (!on[k]) continue;
    sim_become(d, first + k, l);
    any |= now[k] = kiln_sim_eval(&d->m, l->cond).i != 0;
  }
  if (any) run_phase(d, l->body, first, n, now);
}

static void run_store(sim_device *d, const kiln_loop *l, int t) {
  sim_become(d, t, l);
  const sim_memory *c = &d->cells[l->buffer];
  kiln_constant v = kiln_sim_eval(&d->m, l->value);
  const int64_t element = sim_element_of(d, c, l->index);
  if (l->combiner != KILN_COMBINE_NONE)
    v = kiln_sim_combine(&d->m, l->combiner, sim_fetch(d, c, element), v);
  sim_store(d, c, element, v);
}

static void run_one(sim_device *d, const kiln_loop *l, int t) {
  if (l->kind == KILN_LOOP_STORE) run_store(d, l, t);
  else if (kiln_device_is(l, KILN_DEVICE_COPY_ASYNC)) sim_begin_copy(d, l, t);
  else if (kiln_device_is(l, KILN_DEVICE_MBARRIER_EXPECT)) sim_expect(d, l, t);
  else if (l->kind == KILN_LOOP_INSTR && l->instr->is_tma) sim_begin_tma(d, l, t);
}

// role.leaders, role.warp: some lanes alone
static void run_some(sim_device *d, const kiln_loop *l, int first, int n, const uint8_t *on) {
  uint8_t now[SIM_MAX_GROUP] = {0};
  for (int k = 0; k < n; k++) {
    const int64_t x = (first + k) % d->n_block_threads % d->launch->block[0];
    if (!on[k]) continue;
    sim_become(d, first + k, l);
    now[k] = l->op->kind == KILN_DEVICE_ROLE_LEADERS
                 ? x % d->launch->warp == 0
                 : x / d->launch->warp == kiln_sim_eval_index(&d->m, l->operands[0]);
  }
  run_phase(d, l->body, first, n, now);
}

static void run_phase(sim_device *d, const kiln_loop *list, int first, int n, const uint8_t *on) {
  for (const kiln_loop *l = list; l && d->m.status == KILN_OK; l = l->next) {
    if (l->kind == KILN_LOOP_FOR) run_phase_for(d, l, first, n, on);
    else if (l->kind == KILN_LOOP_IF) run_phase_if(d, l, first, n, on);
    else if (l->kind == KILN_LOOP_ALLOC) run_phase(d, l->body, first, n, on);
    else if (l->kind == KILN_LOOP_DEVICE && l->op->has_body) run_some(d, l, first, n, on);
    else if (kiln_instr_is_warps(l)) {
      if (on[0]) sim_run_instr(d, l, first);
    } else
      for (int k = 0; k < n; k++)
        if (on[k]) run_one(d, l, first + k);
  }
}

static bool holds_warps(const kiln_loop *l) {
  if (kiln_instr_is_warps(l)) return true;
  for (l = l->body; l; l = l->next)
    if (holds_warps(l)) return true;
  return false;
}

// Whether the thread runs statements outside of loops over some axes: the first along each does.
static bool is_first(const sim_device *d, const sim_warp *w, const kiln_loop *l, int thread) {
  for (int axis = 0; axis < 3; axis++) {
    if (!(w->bound & (unsigned)SIM_BLOCKS << axis) && sim_block_at(d, thread, axis)) return false;
    if (axis == 0 && (holds_warps(l) || kiln_device_is(l, KILN_DEVICE_ROLE_LEADERS))) continue;
    if (!(w->bound & (unsigned)SIM_THREADS << axis) && sim_coordinate(d, w, thread, axis))
      return false;
  }
  return true;
}

static int threads_of(sim_device *d, const kiln_loop *l) {
  const kiln_buffer *tile = l->instr->loops->buffers.data[0];
  sim_find_fragments(d, l->instr);
  sim_become(d, 0, l);
  for (int k = 0; k < tile->rank; k++) d->m.vars[d->tile_vars[k]] = tile->extents[k] - 1;
  return kiln_sim_eval_index(&d->m, d->lane_of[0]) >= d->launch->warp ? SIM_MAX_GROUP
                                                                      : d->launch->warp;
}

static int most_threads(sim_device *d, const kiln_loop *l) {
  if (kiln_instr_is_warps(l)) return threads_of(d, l);
  int most = 0;
  for (l = l->body; l; l = l->next) {
    const int n = most_threads(d, l);
    if (n > most) most = n;
  }
  return most;
}

int sim_group_size(sim_device *d, const kiln_loop *l) {
  const uint64_t key = (uint64_t)(uintptr_t)l;
  const uint64_t *known = kiln_map_find(&d->sizes, key);
  if (known) return (int)*known;
  const int n = most_threads(d, l);
  kiln_map_put(&d->sizes, key, (uint64_t)n);
  return n;
}

void sim_run_leaf(sim_device *d, const sim_warp *w, const kiln_loop *l, int first, int n) {
  kiln_loop one = *l;
  uint8_t on[SIM_MAX_GROUP] = {0};
  one.next = NULL;
  for (int k = 0; k < n; k++) {
    const int t = first + k;
    on[k] = d->on[t] && (w->is_single ? t == w->first : is_first(d, w, l, t));
  }
  kiln_loop *kept = KILN_NEW(&d->m.cx->scratch, kiln_loop);
  *kept = one;
  run_phase(d, kept, first, n, on);
}
