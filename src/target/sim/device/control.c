// Control that waits within: loops, conditions, roles and tiles, as frames of a warp.
#include "target/sim/device/state.h"

#include <string.h>

static void push(sim_device *d, sim_warp *w, const kiln_loop *owner, int64_t extent,
                 uint8_t *was_on) {
  if (w->depth == SIM_MAX_FRAMES) SIM_FAIL(d, "loops must be at most %d deep", SIM_MAX_FRAMES);
  else
    w->frames[w->depth++] = (sim_frame){.next = owner->body,
                                        .owner = owner,
                                        .extent = extent,
                                        .was_on = was_on,
                                        .row = w->row,
                                        .rows = w->rows,
                                        .is_single = w->is_single};
}

static uint8_t *save_on(sim_device *d, const sim_warp *w) {
  uint8_t *was = KILN_NEW_ARRAY(&d->m.cx->scratch, uint8_t, w->n);
  memcpy(was, d->on + w->first, (size_t)w->n);
  return was;
}

static void set_var(sim_device *d, const sim_warp *w, kiln_symbol var, int64_t value) {
  for (int t = w->first; t < w->first + w->n; t++) d->vars[(int64_t)t * d->m.n_vars + var] = value;
}

static void enter_threads(sim_device *d, sim_warp *w, const kiln_loop *l) {
  const int axis = (int)l->how - KILN_THREAD_X;
  uint8_t *was = save_on(d, w);
  for (int t = w->first; t < w->first + w->n; t++) {
    sim_become(d, t, l);
    const int64_t at = sim_coordinate(d, w, t, axis);
    d->m.vars[l->var] = at;
    d->on[t] &= at < kiln_sim_eval_index(&d->m, l->extent);
  }
  w->bound |= (unsigned)SIM_THREADS << axis;
  push(d, w, l, 1, was);
}

static void enter_blocks(sim_device *d, sim_warp *w, const kiln_loop *l) {
  const int axis = (int)l->how - KILN_BLOCK_X;
  const int64_t at = sim_block_at(d, w->first, axis);
  set_var(d, w, l->var, at);
  sim_become(d, w->first, l);
  if (at >= kiln_sim_eval_index(&d->m, l->extent)) return;
  w->bound |= (unsigned)SIM_BLOCKS << axis;
  push(d, w, l, 1, NULL);
}

static bool holds_waits(const kiln_loop *l) {
  if (!sim_is_phase_op(l)) return true;
  for (l = l->body; l; l = l->next)
    if (holds_waits(l)) return true;
  return false;
}

// The largest value of |e|, of the control |l|, in the active threads of a warp; -1: none is
// active. *out_parts: the values differ (divergence), an error if statements within wait.
static int64_t most_of(sim_device *d, const sim_warp *w, const kiln_loop *l, const kiln_expr *e,
                       bool *out_parts) {
  int64_t most = -1;
  const int n = w->is_single ? 1 : w->n;
  *out_parts = false;
  for (int t = w->first; t < w->first + n && d->m.status == KILN_OK; t++) {
    if (!d->on[t]) continue;
    sim_become(d, t, l);
    const int64_t own = kiln_sim_eval_index(&d->m, e);
    *out_parts |= most >= 0 && own != most;
    if (own > most) most = own;
  }
  if (*out_parts && holds_waits(l))
    SIM_FAIL(d, "`%s` parts the threads of a warp, which wait for others within",
             sim_text_of(d, l));
  return most;
}

// Leaves those threads of |was_on| active that have an iteration |i|.
static void part(sim_device *d, const sim_warp *w, const kiln_loop *l, const kiln_expr *e,
                 int64_t i, const uint8_t *was_on) {
  for (int k = 0; k < w->n; k++) {
    sim_become(d, w->first + k, l);
    d->on[w->first + k] = was_on[k] && i < kiln_sim_eval_index(&d->m, e);
  }
}

static void enter_control(sim_device *d, sim_warp *w, const kiln_loop *l) {
  const kiln_expr *e = l->kind == KILN_LOOP_IF ? l->cond : l->extent;
  bool parts = false;
  const int64_t most = most_of(d, w, l, e, &parts);
  uint8_t *was_on = parts ? save_on(d, w) : NULL;
  if (most <= 0 || d->m.status != KILN_OK) return;
  if (parts) part(d, w, l, e, 0, was_on);
  if (l->kind == KILN_LOOP_FOR) set_var(d, w, l->var, 0);
  push(d, w, l, l->kind == KILN_LOOP_IF ? 1 : most, was_on);
}

void sim_enter(sim_device *d, sim_warp *w, const kiln_loop *l) {
  if (l->kind == KILN_LOOP_ALLOC) push(d, w, l, 1, NULL);
  else if (l->kind == KILN_LOOP_IF) enter_control(d, w, l);
  else if (kiln_how_is_thread(l->how)) enter_threads(d, w, l);
  else if (kiln_how_is_block(l->how)) enter_blocks(d, w, l);
  else enter_control(d, w, l);
}

static int64_t var_of(const sim_device *d, const sim_warp *w, kiln_symbol var) {
  return d->vars[(int64_t)w->first * d->m.n_vars + var];
}

// The loop of tiles around; NULL: there is none.
static const kiln_loop *tiles_around(const sim_warp *w) {
  for (int i = w->depth - 1; i >= 0; i--)
    if (w->frames[i].owner && kiln_device_is(w->frames[i].owner, KILN_DEVICE_TILES))
      return w->frames[i].owner;
  return NULL;
}

// Whether a loop of tiles or of a tile's steps has another iteration, which begins.
static bool goes_on(sim_device *d, sim_warp *w, sim_frame *f) {
  const kiln_loop *l = f->owner, *tiles = tiles_around(w);
  sim_become(d, w->first, l);
  if (l->op->kind == KILN_DEVICE_TILE_STEPS) {
    if (kiln_sim_eval(&d->m, l->cond).i) return false;
    set_var(d, w, tiles->var, var_of(d, w, tiles->var) + 1);
  } else if (l->op->kind == KILN_DEVICE_TILES) {
    const int64_t next = var_of(d, w, l->var) + kiln_sim_eval_index(&d->m, l->operands[2]);
    if (next >= kiln_sim_eval_index(&d->m, l->operands[1])) return false;
    set_var(d, w, l->var, next);
  } else return false;
  f->next = l->body;
  return true;
}

void sim_enter_tiles(sim_device *d, sim_warp *w, const kiln_loop *l) {
  sim_become(d, w->first, l);
  if (l->op->kind == KILN_DEVICE_TILES) {
    const int64_t from = kiln_sim_eval_index(&d->m, l->operands[0]);
    if (from >= kiln_sim_eval_index(&d->m, l->operands[1])) return;
    set_var(d, w, l->var, from);
  } else if (!tiles_around(w)) {
    SIM_FAIL(d, "`%s` must stand in a loop of tiles", sim_text_of(d, l));
    return;
  } else set_var(d, w, l->var, var_of(d, w, tiles_around(w)->var));
  push(d, w, l, 1, NULL);
}

void sim_enter_role(sim_device *d, sim_warp *w, const kiln_loop *l) {
  const int64_t row = sim_argument(d, w, l, 0);
  const bool is_producer = l->op->kind == KILN_DEVICE_ROLE_PRODUCER;
  const int64_t rows = is_producer ? 1 : sim_argument(d, w, l, 1),
                n = is_producer ? 1 : sim_argument(d, w, l, 2);
  const int64_t at = sim_coordinate(d, w, w->first, 1), x = sim_coordinate(d, w, w->first, 0);
  if (at < row || at >= row + rows * n || (is_producer && x)) return;
  push(d, w, l, 1, NULL);
  w->row = row;
  w->rows = rows;
  w->is_single = is_producer;
  for (int t = w->first; t < w->first + w->n; t++) d->group[t] = (uint8_t)((at - row) / rows);
  if (l->var) set_var(d, w, l->var, (at - row) / rows);
}

void sim_enter_first(sim_device *d, sim_warp *w, const kiln_loop *l) {
  if (w->first % d->n_block_threads) return;
  push(d, w, l, 1, NULL);
  w->is_single = true;
}

void sim_leave(sim_device *d, sim_warp *w) {
  sim_frame *f = &w->frames[w->depth - 1];
  const kiln_loop *l = f->owner;
  if (l && l->kind == KILN_LOOP_FOR && ++f->i < f->extent) {
    if (f->was_on) part(d, w, l, l->extent, f->i, f->was_on);
    set_var(d, w, l->var, f->i);
    f->next = l->body;
    return;
  }
  if (l && l->kind == KILN_LOOP_DEVICE && goes_on(d, w, f)) return;
  if (f->was_on) memcpy(d->on + w->first, f->was_on, (size_t)w->n);
  if (l && l->kind == KILN_LOOP_FOR && kiln_how_is_thread(l->how))
    w->bound &= ~((unsigned)SIM_THREADS << ((int)l->how - KILN_THREAD_X));
  if (l && l->kind == KILN_LOOP_FOR && kiln_how_is_block(l->how))
    w->bound &= ~((unsigned)SIM_BLOCKS << ((int)l->how - KILN_BLOCK_X));
  w->row = f->row;
  w->rows = f->rows;
  w->is_single = f->is_single;
  w->depth--;
}
