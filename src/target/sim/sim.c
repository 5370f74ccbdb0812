// Runs loop programs: statements, loops, instructions; packs constants.
#include "target/sim/eval.h"

#include "target/instr.h"

#include <string.h>

static void run(sim *m, const kiln_loop *first);

static void run_parallel(sim *m, const kiln_loop *n, int64_t extent) {
  for (int i = 0; i < m->l->buffers.n; i++) {
    sim_cell *c = &m->cells[i];
    for (int64_t k = 0; c->writer && k < c->elems; k++) c->writer[k] = c->reader[k] = SIM_NOBODY;
  }
  for (int64_t i = 0; i < extent && m->status == KILN_OK; i++) {
    m->vars[n->var] = i;
    m->iteration = (int32_t)i;
    run(m, n->body);
  }
  m->iteration = SIM_NOBODY;
}

static void run_for(sim *m, const kiln_loop *n) {
  const int64_t extent = kiln_sim_eval_index(m, n->extent);
  if (n->how == KILN_PARALLEL && m->iteration == SIM_NOBODY) {
    run_parallel(m, n, extent);
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

static void run_store(sim *m, const kiln_loop *n) {
  sim_cell *c = &m->cells[n->buffer];
  kiln_constant value = kiln_sim_eval(m, n->value);
  const int64_t element = kiln_sim_element(m, c, n->index);
  if (n->combiner != KILN_COMBINE_NONE)
    value = kiln_sim_binary(combiners[n->combiner], kiln_sim_read(m, c, element), value);
  kiln_sim_write(m, c, element, value);
}

static void run_alloc(sim *m, const kiln_loop *n) {
  sim_cell *c = &m->cells[n->buffer];
  const size_t elems = (size_t)c->elems;
  const kiln_mark mark = kiln_arena_mark(&m->cx->scratch);
  c->data =
      kiln_arena_zalloc(&m->cx->scratch, elems * (size_t)kiln_dtype_bytes(c->buffer->dtype) + 1);
  c->written = kiln_arena_zalloc(&m->cx->scratch, elems + 1);
  c->alive = true;
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
  kiln_arena *a = &m->cx->scratch;
  int next = 0;
  for (int i = 0; i < m->l->buffers.n; i++) {
    sim_cell *c = &m->cells[i];
    c->buffer = m->l->buffers.data[i];
    c->elems = kiln_buffer_elems(c->buffer);
    if (c->buffer->scope != KILN_SCOPE_PARAM && c->buffer->scope != KILN_SCOPE_WORKSPACE) continue;
    c->data = args[next++];
    c->alive = true;
    c->writer = KILN_NEW_ARRAY(a, int32_t, c->elems);
    c->reader = KILN_NEW_ARRAY(a, int32_t, c->elems);
    if (c->buffer->scope == KILN_SCOPE_WORKSPACE)
      c->written = kiln_arena_zalloc(a, (size_t)c->elems + 1);
  }
}

kiln_status kiln_sim_run(kiln_ctx *cx, kiln_loops *l, void *const *args) {
  l = kiln_instrs_expand(cx, l);
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  sim m = {.cx = cx, .l = l, .iteration = SIM_NOBODY};
  m.place = kiln_arena_printf(&cx->scratch, "sim: kernel %s", kiln_symbol_text(cx, l->name));
  m.cells = KILN_NEW_ARRAY(&cx->scratch, sim_cell, l->buffers.n);
  m.n_vars = max_var(l->body, 0) + 1;
  m.vars = KILN_NEW_ARRAY(&cx->scratch, int64_t, m.n_vars);
  bind(&m, args);
  run(&m, l->body);
  kiln_arena_rewind(&cx->scratch, mark);
  return m.status;
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
  sim m = {.cx = cx, .iteration = SIM_NOBODY, .place = "sim: pack"};
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
