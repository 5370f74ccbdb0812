// Runs loop programs: statements, loops, instructions; packs constants.
#include "target/sim/eval.h"

#include "target/instr.h"

#include <string.h>

static void run(sim *m, const kiln_loop *first);

static bool is_concurrent(const kiln_loop *n) {
  return n->how == KILN_PARALLEL || kiln_how_is_block(n->how) || kiln_how_is_thread(n->how);
}

static void run_concurrent(sim *m, const kiln_loop *n, int64_t extent) {
  sim_concurrent *x = &m->around[m->depth++];
  *x = (sim_concurrent){n->var, n->how, extent, m->next_stamp, 0};
  m->next_stamp += extent + 1;
  for (int64_t i = 0; i < extent && m->status == KILN_OK; i++) {
    m->vars[n->var] = i;
    x->stamp = x->several + 1 + i;
    run(m, n->body);
  }
  m->depth--;
}

static void run_for(sim *m, const kiln_loop *n) {
  const int64_t extent = kiln_sim_eval_index(m, n->extent);
  if (is_concurrent(n)) {
    run_concurrent(m, n, extent > 0 ? extent : 0);
    return;
  }
  for (int64_t i = 0; i < extent && m->status == KILN_OK; i++) {
    m->vars[n->var] = i;
    run(m, n->body);
  }
}

static const kiln_expr_kind combiners[] = {
    [KILN_COMBINE_SUM] = KILN_EXPR_ADD, [KILN_COMBINE_PROD] = KILN_EXPR_MUL,
    [KILN_COMBINE_MAX] = KILN_EXPR_MAX, [KILN_COMBINE_MIN] = KILN_EXPR_MIN,
    [KILN_COMBINE_AND] = KILN_EXPR_AND, [KILN_COMBINE_OR] = KILN_EXPR_OR,
};

// Whether the store only moves an element that nobody wrote.
static bool moves_nothing(sim *m, const kiln_loop *n, const sim_cell *to) {
  const kiln_expr *x = n->value;
  if (n->combiner != KILN_COMBINE_NONE || !to->written) return false;
  while (x->kind == KILN_EXPR_SELECT) x = x->args[kiln_sim_eval(m, x->args[0]).i ? 1 : 2];
  if (x->kind != KILN_EXPR_LOAD || !m->cells[x->u.tensor].written) return false;
  const sim_cell *from = &m->cells[x->u.tensor];
  const int64_t element = kiln_sim_element(m, from, x->args);
  return element >= 0 && !from->written[element];
}

static void run_store(sim *m, const kiln_loop *n) {
  sim_cell *c = &m->cells[n->buffer];
  if (moves_nothing(m, n, c)) {
    const int64_t to = kiln_sim_element(m, c, n->index);
    if (to >= 0) c->written[to] = 0;
    return;
  }
  kiln_constant value = kiln_sim_eval(m, n->value);
  const int64_t element = kiln_sim_element(m, c, n->index);
  if (n->combiner != KILN_COMBINE_NONE)
    value = kiln_sim_binary(combiners[n->combiner], kiln_sim_read(m, c, element), value);
  kiln_sim_write(m, c, element, value);
}

// Memory for what is known of the elements.
static void track(sim *m, sim_cell *c, bool is_written) {
  kiln_arena *a = &m->cx->scratch;
  c->depth = m->depth;
  c->alive = true;
  if (!is_written) c->written = kiln_arena_zalloc(a, (size_t)c->elems + 1);
  if (m->depth == m->max_depth) return;
  c->writer = KILN_NEW_ARRAY(a, int64_t, c->elems * m->max_depth);
  c->reader = KILN_NEW_ARRAY(a, int64_t, c->elems * m->max_depth);
}

static void run_alloc(sim *m, const kiln_loop *n) {
  sim_cell *c = &m->cells[n->buffer];
  const kiln_mark mark = kiln_arena_mark(&m->cx->scratch);
  for (int d = 0; d < m->depth; d++)
    if (c->buffer->scope == KILN_SCOPE_SHARED && kiln_how_is_thread(m->around[d].how))
      kiln_sim_fail(m, "buffer %s: shared memory must be allocated outside of thread loop %s",
                    kiln_symbol_text(m->cx, c->buffer->name),
                    kiln_symbol_text(m->cx, m->around[d].var));
  const size_t bytes = (size_t)c->elems * (size_t)kiln_dtype_bytes(c->buffer->dtype);
  c->data = kiln_arena_zalloc(&m->cx->scratch, bytes + 1);
  track(m, c, false);
  run(m, n->body);
  c->alive = false;
  kiln_arena_rewind(&m->cx->scratch, mark);
}

static uint32_t max_var(const kiln_loop *first, uint32_t max) {
  for (; first; first = first->next) {
    if (first->kind == KILN_LOOP_FOR && first->var > max) max = first->var;
    max = max_var(first->body, max);
  }
  return max;
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

static void run(sim *m, const kiln_loop *first) {
  for (const kiln_loop *n = first; n && m->status == KILN_OK; n = n->next) switch (n->kind) {
    case KILN_LOOP_FOR: run_for(m, n); break;
    case KILN_LOOP_IF:
      if (kiln_sim_eval(m, n->cond).i) run(m, n->body);
      break;
    case KILN_LOOP_STORE: run_store(m, n); break;
    case KILN_LOOP_ALLOC: run_alloc(m, n); break;
    case KILN_LOOP_INSTR: break; // expanded
    case KILN_LOOP_PREFETCH: break;
    }
}

static void bind(sim *m, void *const *args) {
  int next = 0;
  for (int i = 0; i < m->l->buffers.n; i++) {
    sim_cell *c = &m->cells[i];
    c->buffer = m->l->buffers.data[i];
    c->elems = kiln_buffer_elems(c->buffer);
    if (c->buffer->scope != KILN_SCOPE_PARAM && c->buffer->scope != KILN_SCOPE_WORKSPACE) continue;
    c->data = args[next++];
    track(m, c, c->buffer->scope == KILN_SCOPE_PARAM);
  }
}

static kiln_status simulate(kiln_ctx *cx, const kiln_loops *l, void *const *args,
                            sim_meter *meter) {
  sim m = {.cx = cx, .l = l, .next_stamp = 1, .meter = meter};
  m.place = kiln_arena_printf(&cx->scratch, "sim: kernel %s", kiln_symbol_text(cx, l->name));
  m.cells = KILN_NEW_ARRAY(&cx->scratch, sim_cell, l->buffers.n);
  m.n_vars = max_var(l->body, 0) + 1;
  m.vars = KILN_NEW_ARRAY(&cx->scratch, int64_t, m.n_vars);
  m.max_depth = max_depth(l->body);
  m.around = KILN_NEW_ARRAY(&cx->scratch, sim_concurrent, m.max_depth);
  bind(&m, args);
  run(&m, l->body);
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
  *out = (kiln_sim_traffic){.n_buffers = l->buffers.n, .n_levels = n_levels};
  out->buffers = KILN_NEW_ARRAY(&cx->perm, kiln_sim_flow, l->buffers.n);
  out->levels = KILN_NEW_ARRAY(&cx->perm, kiln_sim_flow, n_levels);
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  sim_meter *meter = kiln_sim_meter_make(&cx->scratch, l, n_levels, levels, out);
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
