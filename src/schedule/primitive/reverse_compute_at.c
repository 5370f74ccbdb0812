// reverse_compute_at: moves the nest of a consumer into a loop of its producer, after its body,
// where each iteration computes the elements whose inputs it has completed.
#include "schedule/index.h"

// A loop of the consumer, which runs over an axis of the box that an iteration completes.
typedef struct part {
  kiln_loop *loop;
  const kiln_expr *lo;
  int64_t n;
} part;

typedef struct move {
  kiln_edit e;
  kiln_buffer *consumer;
  kiln_loop *at, *top;     // the loop, and the top-level nest that it is in
  kiln_loop *nest, *store; // the consumer's
  kiln_vars inner, all;    // loops inside of |at|; all loops of |top|
  kiln_vars loops;         // the consumer's
  part parts[KILN_MAX_AXES];
  int n_parts;
} move;

static const char *at_name(const move *m) { return kiln_edit_text(&m->e, m->at->var); }

static kiln_status find_nest(move *m) {
  kiln_edit *e = &m->e;
  kiln_loop *path[KILN_MAX_DEPTH];
  for (kiln_loop *n = e->l->body; n; n = n->next) {
    if (!kiln_nest_uses(e->cx, e->l, n, m->consumer->id, true)) continue;
    if (m->nest)
      return kiln_refuse(e, "consumer must be computed in one nest: a map, no reduction");
    m->nest = n;
  }
  if (!m->nest) return kiln_refuse(e, "consumer must be computed by the kernel");
  const kiln_accesses a = kiln_accesses_of(e->cx, e->l, m->nest, false, -1);
  for (int i = 0; i < a.n; i++) {
    if (!a.data[i].write) continue;
    if (m->store || a.data[i].combiner != KILN_COMBINE_NONE || a.data[i].opaque)
      return kiln_refuse(e, "consumer must be assigned by the only statement of its nest");
    m->store = a.data[i].node;
  }
  const int depth = kiln_nest_path(e->l, m->store, path);
  for (int i = 0; i + 1 < depth; i++) {
    int64_t extent = 0;
    if (path[i]->body->next || path[i]->kind == KILN_LOOP_ALLOC)
      return kiln_refuse(e, "consumer must be assigned by the only statement of its nest");
    if (path[i]->kind == KILN_LOOP_FOR) KILN_TRY(kiln_edit_extent(e, path[i], &extent));
  }
  m->loops = kiln_vars_of(e->cx, m->nest);
  return KILN_OK;
}

static kiln_status find_place(move *m) {
  kiln_edit *e = &m->e;
  kiln_loop *path[KILN_MAX_DEPTH];
  (void)kiln_nest_path(e->l, m->at, path);
  m->top = path[0];
  KILN_TRY(kiln_edit_scalar(e, m->at));
  bool before = false;
  for (kiln_loop *n = m->top; n; n = n->next) before |= n == m->nest;
  if (!before || m->top == m->nest)
    return kiln_refuse(e, "consumer must be computed in a nest behind that of loop %s", at_name(m));
  m->inner = kiln_vars_under(e->cx, m->at->body);
  m->all = kiln_vars_of(e->cx, m->top);
  return KILN_OK;
}

// The elements of the consumer must each be written once, and nothing on the way be in its way.
static kiln_status check_order(move *m) {
  kiln_edit *e = &m->e;
  const kiln_expr *const *index = (const kiln_expr *const *)m->store->index;
  for (int i = 0; i < m->loops.n; i++) {
    const kiln_loop *l = kiln_loops_find(e->l, m->loops.data[i]);
    if (kiln_loop_is_unit(l)) continue;
    if (!kiln_index_determines(e, m->consumer->rank, index, &m->loops, l->var))
      return kiln_refuse(
          e, "consumer must write each element once, got loop %s, which is none of its indices",
          kiln_edit_text(e, l->var));
  }
  const kiln_accesses a = kiln_accesses_of(e->cx, e->l, m->nest, false, -1);
  for (kiln_loop *n = m->top; n != m->nest; n = n->next) {
    const int c = m->consumer->id;
    if (kiln_nest_uses(e->cx, e->l, n, c, true) || kiln_nest_uses(e->cx, e->l, n, c, false))
      return kiln_refuse(e, "consumer must not be used before its nest");
    for (int i = 0; n != m->top && i < a.n; i++)
      if (!a.data[i].write && kiln_nest_uses(e->cx, e->l, n, a.data[i].buffer, true))
        return kiln_refuse(e,
                           "the consumer's operands must be complete at loop %s, got buffer %s, "
                           "which is written behind it",
                           at_name(m),
                           kiln_edit_text(e, e->l->buffers.data[a.data[i].buffer]->name));
  }
  return KILN_OK;
}

// --- what an iteration completes ---

static kiln_status add_part(move *m, const kiln_buffer *b, int k, const kiln_expr *x,
                            const kiln_expr *lo, int64_t n) {
  kiln_edit *e = &m->e;
  int64_t extent = 0;
  kiln_loop *l = x->kind == KILN_EXPR_VAR && kiln_vars_has(&m->loops, x->u.sym)
                     ? kiln_loops_find(e->l, x->u.sym)
                     : NULL;
  if (!l && b->extents[k] == 1) return KILN_OK;
  if (!l || !kiln_expr_is_int(l->extent, &extent) || extent > b->extents[k])
    return kiln_refuse(e, "axis %d of buffer %s must be read at a loop of the consumer", k,
                       kiln_edit_text(e, b->name));
  for (int i = 0; i < m->n_parts; i++) {
    if (m->parts[i].loop != l) continue;
    if (m->parts[i].lo == lo && m->parts[i].n == n) return KILN_OK;
    return kiln_refuse(e, "loop %s of the consumer must run over one part, got two",
                       kiln_edit_text(e, l->var));
  }
  for (int i = 0; i < m->n_parts; i++)
    for (int v = 0; v < lo->vars->n; v++)
      if (kiln_expr_uses(m->parts[i].lo, lo->vars->vars[v]))
        return kiln_refuse(e, "loops %s and %s of the consumer must not both run along loop %s",
                           kiln_edit_text(e, m->parts[i].loop->var), kiln_edit_text(e, l->var),
                           kiln_edit_text(e, lo->vars->vars[v]));
  if (m->n_parts == KILN_MAX_AXES) return kiln_refuse(e, "consumer must read fewer axes");
  m->parts[m->n_parts++] = (part){l, lo, n};
  return KILN_OK;
}

// Requires that only one iteration writes an element, and that all iterations together write all.
static kiln_status check_writes(move *m, const kiln_buffer *b, const kiln_access *w) {
  kiln_edit *e = &m->e;
  kiln_loop *path[KILN_MAX_DEPTH];
  const int depth = kiln_nest_path(e->l, w->node, path);
  bool inside = false;
  for (int i = 0; i + 1 < depth && !inside; i++) {
    int64_t extent = 0;
    if (path[i]->kind == KILN_LOOP_IF &&
        kiln_index_kept(e, w->n, w->index, b->extents, path[i]->cond) < 0)
      return kiln_refuse(e,
                         "no condition but on the range of buffer %s must stand around loop %s: "
                         "reverse_compute_at a loop outside of it",
                         kiln_edit_text(e, b->name), at_name(m));
    if (path[i]->kind != KILN_LOOP_FOR) continue;
    inside = path[i] == m->at;
    KILN_TRY(kiln_edit_extent(e, path[i], &extent));
    if (extent != 1 && !kiln_index_determines(e, w->n, w->index, &m->all, path[i]->var))
      return kiln_refuse(e,
                         "an element of buffer %s must be complete after one iteration of loop %s, "
                         "got loop %s, whose iterations share them: reorder it inside, and split "
                         "with guard or peel",
                         kiln_edit_text(e, b->name), at_name(m), kiln_edit_text(e, path[i]->var));
  }
  if (!inside || w->opaque)
    return kiln_refuse(e,
                       "buffer %s must be written in loop %s only: decompose_reduction at a loop "
                       "inside of it",
                       kiln_edit_text(e, b->name), at_name(m));
  if (!kiln_index_covers(e, w->n, w->index, &m->all, b->extents))
    return kiln_refuse(e, "the loops around must run through all of buffer %s, one axis each",
                       kiln_edit_text(e, b->name));
  return KILN_OK;
}

static kiln_status check_producer(move *m, const kiln_access *read) {
  kiln_edit *e = &m->e;
  const kiln_buffer *b = e->l->buffers.data[read->buffer];
  const kiln_accesses w = kiln_accesses_of(e->cx, e->l, m->top, false, b->id);
  for (int i = 0; i < w.n; i++) {
    if (!w.data[i].write) continue;
    KILN_TRY(check_writes(m, b, &w.data[i]));
    for (int k = 0; k < b->rank; k++) {
      const kiln_expr *lo = NULL;
      int64_t n = 0;
      if (!kiln_index_spans(e, w.data[i].index[k], &m->inner, &lo, &n))
        return kiln_refuse(
            e, "axis %d of the part that loop %s computes of buffer %s must have no holes", k,
            at_name(m), kiln_edit_text(e, b->name));
      KILN_TRY(add_part(m, b, k, read->index[k], lo, n));
    }
  }
  return KILN_OK;
}

static kiln_status find_parts(move *m) {
  kiln_edit *e = &m->e;
  const kiln_accesses a = kiln_accesses_of(e->cx, e->l, m->nest, false, -1);
  bool found = false;
  for (int i = 0; i < a.n; i++) {
    if (a.data[i].write || !kiln_nest_uses(e->cx, e->l, m->top, a.data[i].buffer, true)) continue;
    KILN_TRY(check_producer(m, &a.data[i]));
    found = true;
  }
  if (found) return KILN_OK;
  return kiln_refuse(e, "consumer must read a result of the nest of loop %s", at_name(m));
}

// --- the change ---

static void shrink(move *m, const part *p) {
  kiln_ctx *cx = m->e.cx;
  int64_t extent = 0;
  (void)kiln_expr_is_int(p->loop->extent, &extent);
  const kiln_expr *value = kiln_add(cx, p->lo, kiln_var(cx, p->loop->var));
  kiln_nest_substitute(cx, m->e.l, p->loop->body, 1, &p->loop->var, &value);
  p->loop->extent = kiln_int(cx, p->n);
  const kiln_expr *from = kiln_binary(cx, KILN_EXPR_GE, value, kiln_int(cx, 0));
  const kiln_expr *to = kiln_binary(cx, KILN_EXPR_LT, value, kiln_int(cx, extent));
  // removed at the end if they always hold
  p->loop->body = kiln_if_make(cx, from, kiln_if_make(cx, to, p->loop->body));
}

kiln_status kiln_reverse_compute_at(kiln_schedule *s, kiln_symbol consumer, kiln_symbol loop) {
  move m = {.e = kiln_edit_begin(s, "reverse_compute_at", consumer)};
  kiln_edit *e = &m.e;
  KILN_TRY(kiln_edit_buffer(e, consumer, &m.consumer));
  KILN_TRY(kiln_edit_loop(e, loop, &m.at));
  KILN_TRY(find_nest(&m));
  KILN_TRY(find_place(&m));
  KILN_TRY(check_order(&m));
  KILN_TRY(find_parts(&m));
  kiln_loop **slot = kiln_nest_slot(e->l, m.nest);
  *slot = m.nest->next;
  m.nest->next = NULL;
  kiln_nest_unbind(m.nest);
  for (int i = 0; i < m.n_parts; i++) shrink(&m, &m.parts[i]);
  *kiln_nest_end(&m.at->body) = m.nest;
  return kiln_edit_commit(e, "reverse_compute_at %s %s", kiln_edit_word(e, consumer),
                          kiln_edit_word(e, loop));
}
