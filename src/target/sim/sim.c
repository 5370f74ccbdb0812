// Runs loop programs: statements, loops, instructions; packs constants.
#include "target/sim/eval.h"

#include "target/instr.h"

#include <string.h>

static void run(sim *m, const kiln_loop *first);

static bool is_concurrent(const kiln_loop *n) {
  return n->how == KILN_PARALLEL || kiln_how_is_block(n->how) || kiln_how_is_thread(n->how);
}

// --- lanes ---

// Makes |lane| the one that computes; false when it is off.
static bool enter(sim *m, int64_t lane) {
  m->lanes->at = lane;
  m->vars[m->lanes->var] = lane;
  return m->lanes->on[lane] && m->status == KILN_OK;
}

static sim_lanes lanes_make(sim *m, kiln_symbol var, int64_t n) {
  kiln_arena *a = &m->cx->scratch;
  sim_lanes x = {.var = var, .n = n, .stamp = m->next_stamp};
  x.on = kiln_arena_zalloc(a, (size_t)n + 1);
  x.pending = KILN_NEW_ARRAY(a, sim_pending, n);
  memset(x.on, 1, (size_t)n);
  m->next_stamp += n;
  return x;
}

static void run_lanes(sim *m, const kiln_loop *n, int64_t extent) {
  sim_lanes *before = m->lanes, x = lanes_make(m, n->var, extent);
  m->lanes = &x;
  kiln_sim_begin_loop(m, n->var, 0);
  kiln_sim_turn(m, n->var, 0);
  run(m, n->body);
  kiln_sim_end_loop(m);
  m->lanes = before;
}

// --- loops ---

static sim_concurrent *push_concurrent(sim *m, const kiln_loop *n, int64_t extent) {
  sim_concurrent *x = &m->around[m->depth++];
  *x = (sim_concurrent){n->var, n->how, extent, m->next_stamp, 0};
  m->next_stamp += extent + 1;
  return x;
}

// Whether |n| is a serial loop around one store, of so many iterations that a row pays.
static bool is_row(const kiln_loop *n, int64_t extent) {
  enum { SHORT = 3 };
  const kiln_loop *s = n->body;
  return extent > SHORT && s && s->kind == KILN_LOOP_STORE && !s->next && !is_concurrent(n);
}

// Lanes whose loop is over wait for the others.
static void run_iterations(sim *m, const kiln_loop *n, const int64_t *extents, int64_t most) {
  sim_lanes *x = m->lanes;
  uint8_t *before = x->on, *on = kiln_arena_zalloc(&m->cx->scratch, (size_t)x->n + 1);
  sim_concurrent *c = is_concurrent(n) ? push_concurrent(m, n, most) : NULL;
  x->on = on;
  kiln_sim_begin_loop(m, n->var, most);
  kiln_sim_turn(m, n->var, 0);
  const bool is_done =
      x->n == 1 && before[0] && is_row(n, most) && kiln_sim_run_row(m, n->body, n->var, most);
  for (int64_t i = 0; !is_done && i < most && m->status == KILN_OK; i++) {
    for (int64_t k = 0; k < x->n; k++) on[k] = before[k] && i < extents[k];
    kiln_sim_turn(m, n->var, i);
    if (c) c->stamp = c->several + 1 + i;
    run(m, n->body);
  }
  kiln_sim_end_loop(m);
  x->on = before;
  if (c) m->depth--;
}

static bool is_warps(const sim *m, const kiln_loop *n) {
  return n->notes && strcmp(kiln_symbol_text(m->cx, n->notes->key), KILN_WARP_NOTE) == 0;
}

static void run_for(sim *m, const kiln_loop *n) {
  const kiln_mark mark = kiln_arena_mark(&m->cx->scratch);
  int64_t *extents = KILN_NEW_ARRAY(&m->cx->scratch, int64_t, m->lanes->n), most = 0;
  for (int64_t k = 0; k < m->lanes->n; k++) {
    if (!enter(m, k)) continue;
    extents[k] = kiln_sim_eval_index(m, n->extent);
    if (extents[k] > most) most = extents[k];
  }
  const bool warp = is_warps(m, n);
  m->in_warp += warp;
  if (n->how == KILN_VECTORIZED && m->lanes->n == 1) run_lanes(m, n, most);
  else run_iterations(m, n, extents, most);
  m->in_warp -= warp;
  kiln_arena_rewind(&m->cx->scratch, mark);
}

static void run_if(sim *m, const kiln_loop *n) {
  const kiln_mark mark = kiln_arena_mark(&m->cx->scratch);
  sim_lanes *x = m->lanes;
  uint8_t *before = x->on, *on = kiln_arena_zalloc(&m->cx->scratch, (size_t)x->n + 1);
  bool any = false;
  for (int64_t k = 0; k < x->n; k++)
    if (enter(m, k)) any |= on[k] = kiln_sim_eval(m, n->cond).i != 0;
  x->on = on;
  if (any) run(m, n->body);
  x->on = before;
  kiln_arena_rewind(&m->cx->scratch, mark);
}

// --- stores ---

// Whether lanes may differ in |x|: that is seen in the text, as compiled code has to.
static kiln_search find_varying(const kiln_expr *x, void *argument) {
  const sim *m = argument;
  const bool is_own = x->kind == KILN_EXPR_LOAD && m->cells[x->u.tensor].lanes == m->lanes;
  return is_own ? KILN_SEARCH_ENDS : x->has_load ? KILN_SEARCH_INTO : KILN_SEARCH_PAST;
}

static bool varies(sim *m, const kiln_expr *x) {
  return kiln_expr_uses(x, m->lanes->var) ||
         (x->has_load && kiln_expr_search(m->cx, x, find_varying, m));
}

// Whether all lanes combine into one element.
static bool reduces(sim *m, const kiln_loop *n) {
  const sim_cell *c = &m->cells[n->buffer];
  if (n->combiner == KILN_COMBINE_NONE || m->lanes->n == 1 || c->lanes == m->lanes) return false;
  for (int k = 0; k < c->buffer->rank; k++)
    if (varies(m, n->index[k])) return false;
  return true;
}

// What |x| is where it chooses.
static const kiln_expr *chosen(sim *m, const kiln_expr *x) {
  while (x->kind == KILN_EXPR_SELECT) x = x->args[kiln_sim_eval(m, x->args[0]).i ? 1 : 2];
  return x;
}

// Whether a store of |x| to |to| only moves an element that nobody wrote. Such a read is noted too:
// nobody else may write that element.
static bool moves_nothing(sim *m, const kiln_expr *x, const sim_cell *to) {
  if (!to->written || x->kind != KILN_EXPR_LOAD || !m->cells[x->u.tensor].written) return false;
  sim_cell *from = &m->cells[x->u.tensor];
  const int64_t element = kiln_sim_element(m, from, x->args);
  if (element < 0 || from->written[element]) return false;
  kiln_sim_note_read(m, from, element);
  return true;
}

static sim_pending computed(sim *m, const kiln_loop *n, bool is_reduction) {
  sim_cell *c = &m->cells[n->buffer];
  const bool combines = n->combiner != KILN_COMBINE_NONE;
  const kiln_expr *x = chosen(m, n->value);
  sim_pending p = {.is_nothing = !combines && moves_nothing(m, x, c)};
  if (!p.is_nothing) p.value = kiln_sim_eval(m, x);
  p.element = kiln_sim_element(m, c, n->index);
  if (combines && !is_reduction)
    p.value = kiln_sim_combine(m, n->combiner, kiln_sim_read(m, c, p.element), p.value);
  return p;
}

// All lanes read before one writes.
static void run_store(sim *m, const kiln_loop *n) {
  sim_lanes *x = m->lanes;
  sim_cell *c = &m->cells[n->buffer];
  if (x->n > 1 && kiln_sim_run_row(m, n, x->var, x->n)) return;
  const bool is_reduction = reduces(m, n);
  for (int64_t k = 0; k < x->n; k++)
    if (enter(m, k)) x->pending[k] = computed(m, n, is_reduction);
  for (int64_t k = 0; k < x->n; k++) {
    const sim_pending *p = &x->pending[k];
    if (!enter(m, k)) continue;
    if (p->is_nothing) kiln_sim_move_nothing(m, c, p->element);
    else if (is_reduction) kiln_sim_reduce(m, c, p->element, n->combiner, p->value);
    else kiln_sim_write(m, c, p->element, p->value);
  }
}

// --- memory ---

// Memory for what is known of the elements.
static void track(sim *m, sim_cell *c, bool is_written) {
  kiln_arena *a = &m->cx->scratch;
  const int64_t elems = c->elems * m->lanes->n;
  c->lanes = m->lanes;
  c->depth = m->depth;
  c->alive = true;
  if (!is_written) c->written = kiln_arena_zalloc(a, (size_t)elems + 1);
  if (m->has_vectors) {
    c->lane_writer = KILN_NEW_ARRAY(a, int64_t, elems);
    c->lane_reader = KILN_NEW_ARRAY(a, int64_t, elems);
    c->lane_how = kiln_arena_zalloc(a, (size_t)elems + 1);
  }
  if (m->depth == m->max_depth) return;
  c->writer = KILN_NEW_ARRAY(a, int64_t, elems * m->max_depth);
  c->reader = KILN_NEW_ARRAY(a, int64_t, elems * m->max_depth);
}

// Whether loops bound to threads in |list| use |buffer|.
static bool uses_in_threads(kiln_ctx *cx, const kiln_loop *list, int buffer, bool in_thread) {
  for (const kiln_loop *n = list; n; n = n->next) {
    const bool is_thread = n->kind == KILN_LOOP_FOR && kiln_how_is_thread(n->how);
    if (in_thread && n->kind == KILN_LOOP_STORE && n->buffer == buffer) return true;
    if (in_thread &&
        (kiln_expr_loads(cx, n->extent, buffer) || kiln_expr_loads(cx, n->cond, buffer) ||
         kiln_expr_loads(cx, n->value, buffer)))
      return true;
    if (uses_in_threads(cx, n->body, buffer, in_thread || is_thread)) return true;
  }
  return false;
}

static void run_alloc(sim *m, const kiln_loop *n) {
  sim_cell *c = &m->cells[n->buffer];
  const kiln_scope scope = c->buffer->scope;
  const bool is_private = kiln_scope_is_private(scope);
  const bool has_threads = m->threads[0] * m->threads[1] * m->threads[2] > 1;
  c->is_spread = is_private && has_threads && uses_in_threads(m->cx, n->body, n->buffer, false);
  const kiln_mark mark = kiln_arena_mark(&m->cx->scratch);
  for (int d = 0; d < m->depth; d++)
    if (c->buffer->scope == KILN_SCOPE_SHARED && kiln_how_is_thread(m->around[d].how))
      kiln_sim_fail(m, "buffer %s: shared memory must be allocated outside of thread loop %s",
                    kiln_symbol_text(m->cx, c->buffer->name),
                    kiln_symbol_text(m->cx, m->around[d].var));
  const size_t elems = (size_t)(c->elems * m->lanes->n);
  c->data =
      kiln_arena_zalloc(&m->cx->scratch, elems * (size_t)kiln_dtype_bytes(c->buffer->dtype) + 1);
  track(m, c, false);
  run(m, n->body);
  c->alive = false;
  kiln_arena_rewind(&m->cx->scratch, mark);
}

static int max_depth(const kiln_loop *first) {
  int max = 0;
  for (; first; first = first->next) {
    const int below =
        max_depth(first->body) + (first->kind == KILN_LOOP_FOR && is_concurrent(first));
    if (below > max) max = below;
  }
  return max;
}

static int loops_deep(const kiln_loop *first) {
  int max = 0;
  for (; first; first = first->next) {
    const int below = loops_deep(first->body) + (first->kind == KILN_LOOP_FOR);
    if (below > max) max = below;
  }
  return max;
}

static bool has_vectors(const kiln_loop *first) {
  for (; first; first = first->next) {
    if (first->kind == KILN_LOOP_FOR && first->how == KILN_VECTORIZED) return true;
    if (has_vectors(first->body)) return true;
  }
  return false;
}

static void run(sim *m, const kiln_loop *first) {
  for (const kiln_loop *n = first; n && m->status == KILN_OK; n = n->next) switch (n->kind) {
    case KILN_LOOP_FOR: run_for(m, n); break;
    case KILN_LOOP_IF: run_if(m, n); break;
    case KILN_LOOP_STORE: run_store(m, n); break;
    case KILN_LOOP_ALLOC: run_alloc(m, n); break;
    case KILN_LOOP_INSTR: break; // expanded
    case KILN_LOOP_PREFETCH: break;
    case KILN_LOOP_DEVICE: break; // not in loops
    }
}

// The threads of a block of |nest|: the largest loop of each axis.
static void measure_threads(int64_t *threads, const kiln_loop *list) {
  for (const kiln_loop *n = list; n; n = n->next) {
    int64_t extent = 0;
    if (n->kind == KILN_LOOP_FOR && kiln_how_is_thread(n->how) &&
        kiln_expr_is_int(n->extent, &extent) && extent > threads[n->how - KILN_THREAD_X])
      threads[n->how - KILN_THREAD_X] = extent;
    measure_threads(threads, n->body);
  }
}

// The nests of the program, each on blocks of its own.
static void run_nests(sim *m) {
  for (const kiln_loop *n = m->l->body; n && m->status == KILN_OK; n = n->next) {
    kiln_loop nest = *n;
    nest.next = NULL;
    for (int k = 0; k < 3; k++) m->threads[k] = 1;
    measure_threads(m->threads, &nest);
    run(m, &nest);
  }
}

static void bind(sim *m, void *const *args) {
  int next = 0;
  for (int i = 0; i < m->l->buffers.n; i++) {
    sim_cell *c = &m->cells[i];
    c->buffer = m->l->buffers.data[i];
    c->elems = kiln_buffer_elems(c->buffer);
    if (!kiln_scope_is_argument(c->buffer->scope)) continue;
    c->data = args[next++];
    track(m, c, c->buffer->scope == KILN_SCOPE_PARAM);
  }
}

static kiln_status simulate(kiln_ctx *cx, const kiln_loops *l, void *const *args,
                            sim_meter *meter) {
  sim m = {.cx = cx, .l = l, .next_stamp = 1, .meter = meter};
  m.place = kiln_arena_printf(&cx->scratch, "sim: kernel %s", kiln_symbol_text(cx, l->name));
  m.cells = KILN_NEW_ARRAY(&cx->scratch, sim_cell, l->buffers.n);
  m.n_vars = kiln_sim_n_vars(l);
  m.vars = KILN_NEW_ARRAY(&cx->scratch, int64_t, m.n_vars);
  m.max_depth = max_depth(l->body);
  kiln_sim_keep_values(&m, loops_deep(l->body));
  m.around = KILN_NEW_ARRAY(&cx->scratch, sim_concurrent, m.max_depth);
  m.has_vectors = has_vectors(l->body);
  kiln_map_init(&m.rows, &cx->perm);
  sim_lanes one = lanes_make(&m, 0, 1);
  m.lanes = &one;
  bind(&m, args);
  run_nests(&m);
  return m.status;
}

kiln_status kiln_sim_run(kiln_ctx *cx, kiln_loops *l, void *const *args) {
  l = kiln_instrs_expand(cx, l);
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  const kiln_status s = simulate(cx, l, args, NULL);
  kiln_arena_rewind(&cx->scratch, mark);
  return s;
}

kiln_status kiln_sim_measure(kiln_ctx *cx, kiln_loops *l, void *const *args, int n_levels,
                             const kiln_sim_level *levels, kiln_sim_traffic *out) {
  l = kiln_instrs_expand(cx, l);
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  sim_meter *meter = kiln_sim_meter_make(cx, l, n_levels, levels, out);
  const kiln_status s = simulate(cx, l, args, meter);
  kiln_sim_meter_flush(meter);
  kiln_arena_rewind(&cx->scratch, mark);
  return s;
}

// --- packing ---

// The row-major element of the source that belongs at |at|; -1 for a zero.
static int64_t source_element(sim *m, const kiln_pack *p, const int64_t *shape) {
  int64_t element = 0;
  for (int k = 0; k < p->rank; k++) {
    const int64_t i = kiln_sim_eval_index(m, p->map[k]);
    if (i < 0 || i >= shape[k]) return -1;
    element = element * shape[k] + i;
  }
  return element;
}

kiln_status kiln_sim_pack(kiln_ctx *cx, const kiln_program *p, const kiln_buffer *b,
                          const void *source, void *out) {
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  const int64_t elems = kiln_buffer_elems(b);
  const size_t bytes = (size_t)kiln_dtype_bytes(b->dtype);
  int64_t shape[KILN_MAX_RANK], at[KILN_MAX_RANK + 4] = {0};
  kiln_symbol vars[KILN_MAX_RANK + 4];
  sim m = {.cx = cx, .place = "sim: pack"};
  if (!kiln_tensor_static_shape(p->tensors.data[b->pack->source], shape))
    kiln_sim_fail(&m, "shape of %s must be static", kiln_symbol_text(cx, b->name));
  for (int k = 0; k < b->rank; k++) {
    vars[k] = kiln_symbol_printf(cx, "o%d", k);
    if (vars[k] >= m.n_vars) m.n_vars = vars[k] + 1;
  }
  m.vars = KILN_NEW_ARRAY(&cx->scratch, int64_t, m.n_vars);
  memset(out, 0, (size_t)elems * bytes);
  for (int64_t n = 0; n < elems && m.status == KILN_OK; n++) {
    int64_t target = 0;
    for (int k = 0; k < b->rank; k++) {
      m.vars[vars[k]] = at[k];
      target += at[k] * b->strides[k];
    }
    const int64_t from = source_element(&m, b->pack, shape);
    if (from >= 0)
      memcpy((char *)out + (size_t)target * bytes, (const char *)source + (size_t)from * bytes,
             bytes);
    for (int k = b->rank - 1; k >= 0 && ++at[k] == b->extents[k]; k--) at[k] = 0;
  }
  kiln_arena_rewind(&cx->scratch, mark);
  return m.status;
}
