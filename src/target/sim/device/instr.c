// Instructions of warps and warp groups: their meanings, computed on fragments and shared memory.
#include "target/sim/device/state.h"

#include "target/instr.h"

// The thread that has element |at| of operand |i|'s tile, and its place there.
static int64_t operand_place(sim_device *d, int i, int rank, const int64_t *at,
                             const sim_memory **out) {
  const kiln_expr *o = d->instr->operands[i];
  *out = &d->cells[o->u.tensor];
  for (int k = 0; k < rank; k++) d->m.vars[d->tile_vars[k]] = at[k];
  if (!d->lane_of[i]) return sim_element_of(d, *out, o->args);
  const int64_t lane = kiln_sim_eval_index(&d->m, d->lane_of[i]),
                place = kiln_sim_eval_index(&d->m, d->place_of[i]);
  const int clock = d->clock;
  const int32_t time = d->time;
  const bool is_async = d->is_async;
  sim_become(d, d->lanes + (int)lane, d->instr);
  if (is_async) d->clock = clock, d->time = time, d->is_async = true;
  return sim_element_of(d, *out, o->args) + place;
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
  const kiln_buffer *b = d->instr->instr->loops->buffers.data[i];
  int64_t number = 0;
  for (int k = 0; k < b->rank; k++) number = number * b->extents[k] + at[k];
  return &d->tiles[i][number];
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

static void compute(sim_device *d, const kiln_loop *meaning) {
  for (const kiln_loop *n = meaning; n && d->m.status == KILN_OK; n = n->next) {
    if (n->kind == KILN_LOOP_STORE) compute_store(d, n);
    if (n->kind != KILN_LOOP_FOR) continue;
    const int64_t extent = kiln_sim_eval_index(&d->m, n->extent);
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
  if (known) d->lane_of = (const kiln_expr **)(uintptr_t)*known;
  else d->lane_of = KILN_NEW_ARRAY(&d->m.cx->perm, const kiln_expr *, 2 * KILN_MAX_OPERANDS);
  d->place_of = d->lane_of + KILN_MAX_OPERANDS;
  if (known) return;
  for (int i = 0; i < KILN_MAX_OPERANDS; i++) {
    d->lane_of[i] = parsed(d, instr->fragments[i].lane);
    d->place_of[i] = parsed(d, instr->fragments[i].element);
  }
  kiln_map_put(&d->fragments, key, (uint64_t)(uintptr_t)d->lane_of);
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
