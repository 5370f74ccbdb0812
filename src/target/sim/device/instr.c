// Instructions of warps and warp groups: their meanings, computed on fragments and shared memory.
#include "target/sim/device/state.h"

#include "target/instr.h"

// The number of element |at| of operand |i|'s tile.
static int64_t number_in_tile(const sim_device *d, int i, const int64_t *at) {
  const kiln_buffer *b = d->instr->instr->loops->buffers.data[i];
  int64_t number = 0;
  for (int k = 0; k < b->rank; k++) number = number * b->extents[k] + at[k];
  return number;
}

// The lane that has element |at| of operand |i|'s tile, and its place there.
static sim_fragment fragment_of(sim_device *d, int i, int rank, const int64_t *at) {
  sim_fragment *f = &d->fragment[i][number_in_tile(d, i, at)];
  if (f->is_known) return *f;
  for (int k = 0; k < rank; k++) d->m.vars[d->tile_vars[k]] = at[k];
  *f = (sim_fragment){true, (int)kiln_sim_eval_index(&d->m, d->lane_of[i]),
                      (int)kiln_sim_eval_index(&d->m, d->place_of[i])};
  return *f;
}

// The element of memory, and its thread, that holds element |at| of operand |i|'s tile.
static int64_t operand_place(sim_device *d, int i, int rank, const int64_t *at,
                             const sim_memory **out) {
  const kiln_expr *o = d->instr->operands[i];
  *out = &d->cells[o->u.tensor];
  if (!d->lane_of[i]) {
    for (int k = 0; k < rank; k++) d->m.vars[d->tile_vars[k]] = at[k];
    return sim_element_of(d, *out, o->args);
  }
  const sim_fragment f = fragment_of(d, i, rank, at);
  const int clock = d->clock;
  const int32_t time = d->time;
  const bool is_async = d->is_async;
  sim_become(d, d->lanes + f.lane, d->instr);
  if (is_async) d->clock = clock, d->time = time, d->is_async = true;
  return sim_element_of(d, *out, o->args) + f.place;
}

// The thread or agent that accesses memory.
typedef struct identity {
  int t, space, clock;
  int32_t time;
  bool is_async;
  int64_t *vars;
  const kiln_loop *instr;
} identity;

static identity identity_of(const sim_device *d) {
  return (identity){d->t, d->space, d->clock, d->time, d->is_async, d->m.vars, d->instr};
}

static void become_again(sim_device *d, const identity *i) {
  d->t = i->t;
  d->space = i->space;
  d->clock = i->clock;
  d->time = i->time;
  d->is_async = i->is_async;
  d->m.vars = i->vars;
  d->instr = i->instr;
}

// The element at |at| of operand |i|'s tile.
static sim_tile_element *tile_element(sim_device *d, int i, const int64_t *at) {
  return &d->tiles[i][number_in_tile(d, i, at)];
}

// Reads it from memory, unless it is known.
static kiln_constant read_tile(sim_device *d, int i, int rank, const int64_t *at) {
  sim_tile_element *x = tile_element(d, i, at);
  if (x->instr == d->n_instrs) return x->value;
  const identity before = identity_of(d);
  const sim_memory *c = NULL;
  const int64_t element = operand_place(d, i, rank, at, &c);
  d->instr = NULL;
  *x = (sim_tile_element){.instr = d->n_instrs, .value = sim_fetch(d, c, element)};
  become_again(d, &before);
  return x->value;
}

static kiln_constant rounded(kiln_dtype t, kiln_constant v) {
  uint64_t bits = 0;
  if (!kiln_dtype_is_float(t)) return v;
  kiln_element_set(t, &bits, 0, v.f);
  v.f = kiln_element_get(t, &bits, 0);
  return v;
}

kiln_constant sim_load(sim *m, const kiln_expr *e) {
  sim_device *d = (sim_device *)(void *)m;
  int64_t at[KILN_MAX_TILE_RANK];
  if (!d->instr) {
    const sim_memory *c = &d->cells[e->u.tensor];
    return sim_fetch(d, c, sim_element_of(d, c, e->args));
  }
  for (int k = 0; k < e->n_args; k++) at[k] = kiln_sim_eval_index(m, e->args[k]);
  return read_tile(d, e->u.tensor, e->n_args, at);
}

static void compute(sim_device *d, const kiln_loop *meaning);

static void compute_store(sim_device *d, const kiln_loop *s) {
  const kiln_buffer *b = d->instr->instr->loops->buffers.data[s->buffer];
  int64_t at[KILN_MAX_TILE_RANK];
  for (int k = 0; k < b->rank; k++) at[k] = kiln_sim_eval_index(&d->m, s->index[k]);
  kiln_constant v = kiln_sim_eval(&d->m, s->value);
  if (s->combiner != KILN_COMBINE_NONE)
    v = kiln_sim_combine(&d->m, s->combiner, read_tile(d, s->buffer, b->rank, at), v);
  *tile_element(d, s->buffer, at) =
      (sim_tile_element){.instr = d->n_instrs, .is_new = true, .value = rounded(b->dtype, v)};
}

// --- rows ---

// The elements of operand |x->buffer| along a row, whose variable is 0.
static sim_run row_elements(sim_device *d, const sim_row_load *x, int64_t n, int64_t *at) {
  const kiln_buffer *b = d->instr->instr->loops->buffers.data[x->buffer];
  sim_run r = {.n = n};
  for (int k = 0; k < x->rank; k++) {
    at[k] = kiln_sim_eval_index(&d->m, x->index[k]);
    r.first = r.first * b->extents[k] + at[k];
    r.step = r.step * b->extents[k] + x->steps[k];
  }
  return r;
}

static void read_row(sim_device *d, const sim_row_load *x, int64_t n, kiln_constant *out) {
  int64_t at[KILN_MAX_TILE_RANK];
  const sim_run r = row_elements(d, x, n, at);
  for (int64_t k = 0; k < n; k++) {
    const sim_tile_element *e = &d->tiles[x->buffer][r.first + k * r.step];
    out[k] = e->instr == d->n_instrs ? e->value : read_tile(d, x->buffer, x->rank, at);
    for (int i = 0; i < x->rank; i++) at[i] += x->steps[i];
  }
}

// Adds all iterations of the loop |l| around one store to one element; false: that is not what it
// does.
static bool compute_row(sim_device *d, const kiln_loop *l, int64_t n) {
  kiln_constant loaded[SIM_ROW_LOADS][SIM_ROW_POINTS], v[SIM_ROW_POINTS];
  int64_t at[KILN_MAX_TILE_RANK];
  const kiln_loop *s = l->body;
  if (!s || s->next || s->kind != KILN_LOOP_STORE || s->combiner != KILN_COMBINE_SUM) return false;
  const kiln_buffer *b = d->instr->instr->loops->buffers.data[s->buffer];
  if (b->dtype != KILN_F32 || n < 2 || n > SIM_ROW_POINTS) return false;
  const sim_row *r = kiln_sim_row_find(&d->m, s, s->value, b->rank, l->var);
  if (!r) return false;
  d->m.vars[l->var] = 0;
  const sim_run to = row_elements(d, &r->to, n, at);
  if (to.step != 0) return false;
  for (int i = 0; i < r->n_loads; i++) read_row(d, &r->loads[i], n, loaded[i]);
  kiln_sim_row_values(&d->m, r, (int)n, loaded, v);
  kiln_constant sum = read_tile(d, s->buffer, b->rank, at);
  kiln_sim_row_combine(&d->m, s->combiner, n, v, &sum);
  d->tiles[s->buffer][to.first] =
      (sim_tile_element){.instr = d->n_instrs, .is_new = true, .value = sum};
  return true;
}

static void compute(sim_device *d, const kiln_loop *meaning) {
  for (const kiln_loop *n = meaning; n && d->m.status == KILN_OK; n = n->next) {
    if (n->kind == KILN_LOOP_STORE) compute_store(d, n);
    if (n->kind != KILN_LOOP_FOR) continue;
    const int64_t extent = kiln_sim_eval_index(&d->m, n->extent);
    if (compute_row(d, n, extent)) continue;
    for (int64_t i = 0; i < extent && d->m.status == KILN_OK; i++) {
      d->m.vars[n->var] = i;
      compute(d, n->body);
    }
  }
}

// Writes what the instruction computed of operand |i|.
static void write_tile(sim_device *d, int i) {
  const kiln_buffer *b = d->instr->instr->loops->buffers.data[i];
  const identity before = identity_of(d);
  int64_t at[KILN_MAX_TILE_RANK] = {0};
  for (int64_t n = kiln_buffer_elems(b), k = 0; k < n && d->m.status == KILN_OK; k++) {
    const sim_tile_element *x = &d->tiles[i][k];
    int64_t rest = k;
    if (x->instr != d->n_instrs || !x->is_new) continue;
    for (int r = b->rank - 1; r >= 0; rest /= b->extents[r--]) at[r] = rest % b->extents[r];
    const sim_memory *c = NULL;
    const int64_t element = operand_place(d, i, b->rank, at, &c);
    d->instr = NULL;
    sim_store(d, c, element, x->value);
    become_again(d, &before);
  }
}

static const kiln_expr *parsed(sim_device *d, const char *text) {
  const kiln_expr *e = NULL;
  if (text) (void)kiln_expr_parse(d->m.cx, &text, NULL, &e);
  return e;
}

void sim_find_fragments(sim_device *d, const kiln_instr *instr) {
  const uint64_t key = (uint64_t)(uintptr_t)instr;
  const uint64_t *known = kiln_map_find(&d->fragments, key);
  sim_fragments *f = known ? (sim_fragments *)(uintptr_t)*known : NULL;
  if (!f) {
    f = KILN_NEW(&d->m.cx->perm, sim_fragments);
    for (int i = 0; i < KILN_MAX_OPERANDS && i < instr->loops->buffers.n; i++) {
      f->lane_of[i] = parsed(d, instr->fragments[i].lane);
      f->place_of[i] = parsed(d, instr->fragments[i].element);
      const int64_t n = f->lane_of[i] ? kiln_buffer_elems(instr->loops->buffers.data[i]) : 0;
      f->at[i] = KILN_NEW_ARRAY(&d->m.cx->perm, sim_fragment, n);
    }
    kiln_map_put(&d->fragments, key, (uint64_t)(uintptr_t)f);
  }
  d->lane_of = f->lane_of;
  d->place_of = f->place_of;
  d->fragment = f->at;
}

static bool is_async(const kiln_instr *i) { return i->swizzled && !i->is_tma; }

void sim_run_instr(sim_device *d, const kiln_loop *l, int first) {
  sim_become(d, first, l);
  sim_find_fragments(d, l->instr);
  d->instr = l;
  d->lanes = first;
  if (is_async(l->instr)) {
    d->is_async = true;
    d->clock = sim_agent_of_group(d, first);
    d->time = d->group_commits[first] + 1;
  }
  d->n_instrs++;
  for (int i = 0; i < l->n_operands && i < l->instr->loops->buffers.n; i++)
    if (!d->lane_of[i]) sim_check_operand(d, i);
  compute(d, l->instr->loops->body);
  for (int i = 0; i < l->n_operands && i < l->instr->loops->buffers.n; i++) write_tile(d, i);
  d->instr = NULL;
}

void sim_make_tiles(sim_device *d, const kiln_loop *l) {
  for (; l; l = l->next) {
    sim_make_tiles(d, l->body);
    for (int i = 0; kiln_instr_is_warps(l) && i < l->instr->loops->buffers.n; i++) {
      const int64_t n = kiln_buffer_elems(l->instr->loops->buffers.data[i]);
      if (n <= d->n_tile[i]) continue;
      d->tiles[i] = KILN_NEW_ARRAY(&d->m.cx->scratch, sim_tile_element, n);
      d->n_tile[i] = n;
    }
  }
}
