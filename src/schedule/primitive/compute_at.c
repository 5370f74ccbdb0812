// compute_at: moves the nests of a producer into a loop of its consumer, where they compute the box
// that one iteration needs. compute_root: requires that they were not moved.
#include "schedule/index.h"
#include "schedule/legality.h"

typedef struct move {
  kiln_edit e;
  kiln_buffer *b;
  kiln_loop *at;
  kiln_loop *nests[8]; // the producer's, at top level, in order
  int n_nests;
  kiln_vars inner; // loops inside of |at|
  kiln_box box;
  bool whole[KILN_MAX_AXES];
} move;

static const char *producer_name(const move *m) { return kiln_edit_text(&m->e, m->b->name); }

// Refuses, naming the outermost loop around a read outside of |at|.
static kiln_status refuse_reader(move *m, const kiln_accesses *all) {
  kiln_loop *path[KILN_MAX_DEPTH];
  for (int i = 0; i < all->n; i++) {
    const int depth = kiln_nest_path(m->e.l, all->data[i].node, path);
    bool inside = false;
    for (int k = 0; k + 1 < depth; k++) inside |= path[k] == m->at;
    if (all->data[i].write || inside) continue;
    for (int k = 0; k < depth; k++)
      if (path[k]->kind == KILN_LOOP_FOR)
        return kiln_refuse(&m->e,
                           "every use of the buffer must be inside of loop %s, got one in loop %s",
                           kiln_edit_text(&m->e, m->at->var), kiln_edit_text(&m->e, path[k]->var));
    return kiln_refuse(
        &m->e, "every use of the buffer must be inside of loop %s, got one outside of loops",
        kiln_edit_text(&m->e, m->at->var));
  }
  return KILN_OK;
}

// A nest may contain producers that were moved into it, but must write no other buffer that is read
// elsewhere.
static kiln_status check_alone(move *m, kiln_loop *nest) {
  const kiln_accesses a = kiln_accesses_of(m->e.cx, m->e.l, nest, false, -1);
  for (int i = 0; i < a.n; i++)
    if (a.data[i].write && a.data[i].buffer != m->b->id &&
        !kiln_nest_allocates(nest->body, a.data[i].buffer))
      return kiln_refuse(&m->e,
                         "a nest of the buffer must compute nothing else, got buffer %s in it",
                         kiln_edit_text(&m->e, m->e.l->buffers.data[a.data[i].buffer]->name));
  return KILN_OK;
}

static kiln_status collect_nests(move *m) {
  for (kiln_loop *n = m->e.l->body; n; n = n->next) {
    if (!kiln_nest_uses(m->e.cx, m->e.l, n, m->b->id, true)) continue;
    KILN_TRY(check_alone(m, n));
    KILN_TRY(kiln_check_cut(&m->e, n));
    if (m->n_nests == (int)KILN_LEN(m->nests))
      return kiln_refuse(&m->e, "the buffer must have at most %d nests", (int)KILN_LEN(m->nests));
    m->nests[m->n_nests++] = n;
  }
  if (m->n_nests > 0) return KILN_OK;
  return kiln_refuse(&m->e, "the buffer must be computed in nests of its own, got none");
}

static bool is_producer(const move *m, const kiln_loop *nest) {
  for (int i = 0; i < m->n_nests; i++)
    if (m->nests[i] == nest) return true;
  return false;
}

// The buffers that the nests read must have the same contents at the new place.
static kiln_status check_inputs(move *m, const kiln_loop *top) {
  for (int i = 0; i < m->n_nests; i++) {
    const kiln_accesses a = kiln_accesses_of(m->e.cx, m->e.l, m->nests[i], false, -1);
    for (int k = 0; k < a.n; k++) {
      const int b = a.data[k].buffer;
      if (b == m->b->id || a.data[k].write) continue;
      bool behind = false;
      for (kiln_loop *n = m->nests[i]; n; n = n->next) {
        if (!is_producer(m, n) && !behind && kiln_nest_uses(m->e.cx, m->e.l, n, b, true))
          return kiln_refuse(&m->e,
                             "buffer %s, which the nests read, must not be written between them "
                             "and loop %s",
                             kiln_edit_text(&m->e, m->e.l->buffers.data[b]->name),
                             kiln_edit_text(&m->e, m->at->var));
        behind |= n == top;
      }
    }
  }
  return KILN_OK;
}

// --- the box ---

// The loop of |nest| whose variable is the index of axis |k| in every store; NULL if there is none.
static kiln_loop *axis_loop(move *m, kiln_loop *nest, int k) {
  const kiln_accesses a = kiln_accesses_of(m->e.cx, m->e.l, nest, false, m->b->id);
  kiln_symbol v = 0;
  for (int i = 0; i < a.n; i++) {
    if (!a.data[i].write || a.data[i].opaque) return NULL;
    const kiln_expr *x = a.data[i].index[k];
    if (x->kind != KILN_EXPR_VAR || (v && v != x->u.sym)) return NULL;
    v = x->u.sym;
    for (int j = 0; j < a.data[i].n; j++)
      if (j != k && kiln_expr_uses(a.data[i].index[j], v)) return NULL;
  }
  kiln_loop *l = v ? kiln_loops_find(m->e.l, v) : NULL;
  int64_t extent = 0;
  return l && kiln_expr_is_int(l->extent, &extent) && extent == m->b->extents[k] ? l : NULL;
}

// Whether every load of the nests stays in range when axis |k| runs past its extent to the end of
// the box, as it does in padded operands of ragged matrix products.
static bool may_overhang(move *m, int k) {
  const kiln_interval lo = kiln_expr_interval(m->e.cx, m->box.lo[k], &m->e.ranges);
  for (int i = 0; i < m->n_nests; i++) {
    const kiln_loop *l = axis_loop(m, m->nests[i], k);
    const kiln_accesses a = kiln_accesses_of(m->e.cx, m->e.l, m->nests[i], false, -1);
    bool fits = true;
    kiln_ranges_push(&m->e.ranges, l->var, 0, lo.hi + m->box.extent[k] - 1);
    for (int j = 0; j < a.n; j++) {
      const kiln_buffer *b = m->e.l->buffers.data[a.data[j].buffer];
      if (b == m->b && a.data[j].write) continue;
      for (int x = 0; x < a.data[j].n; x++) {
        if (!kiln_expr_uses(a.data[j].index[x], l->var)) continue;
        const kiln_expr *index = kiln_edit_simplify(&m->e, a.data[j].index[x]);
        const kiln_interval r = kiln_expr_interval(m->e.cx, index, &m->e.ranges);
        fits &= r.lo >= 0 && r.hi < b->extents[x];
      }
    }
    kiln_ranges_pop(&m->e.ranges, 1);
    if (!fits) return false;
  }
  return true;
}

static kiln_status find_box(move *m, const kiln_accesses *reads) {
  kiln_box_of(&m->e, m->b, reads, &m->inner, &m->box);
  for (int k = 0; k < m->b->rank; k++) {
    m->whole[k] = m->box.extent[k] == m->b->extents[k];
    if (m->whole[k]) continue;
    for (int i = 0; i < m->n_nests; i++)
      if (!axis_loop(m, m->nests[i], k))
        return kiln_refuse(&m->e,
                           "axis %d of the buffer must be written by one loop over its extent "
                           "in each nest: compute_at before splitting its loops",
                           k);
    if (kiln_box_below(&m->e, &m->box, k)) kiln_box_shift_low(&m->e, &m->box, k);
    if (kiln_box_above(&m->e, &m->box, k, m->b->extents[k]) && !may_overhang(m, k))
      kiln_box_shift_high(&m->e, &m->box, k, m->b->extents[k]);
  }
  return KILN_OK;
}

// --- the change ---

static void move_element(kiln_ctx *cx, const void *argument, const kiln_expr *const *index,
                         const kiln_expr **out) {
  const move *m = argument;
  for (int k = 0; k < m->b->rank; k++) out[k] = kiln_sub(cx, index[k], m->box.lo[k]);
}

// Makes the loops of a nest run over the box only.
static void shrink_nest(move *m, kiln_loop *nest) {
  kiln_ctx *cx = m->e.cx;
  kiln_loop *loops[KILN_MAX_AXES];
  for (int k = 0; k < m->b->rank; k++) loops[k] = m->whole[k] ? NULL : axis_loop(m, nest, k);
  const kiln_accesses stores = kiln_accesses_of(cx, m->e.l, nest, false, m->b->id);
  for (int k = 0; k < m->b->rank; k++) {
    if (!loops[k]) continue;
    const kiln_symbol v = loops[k]->var;
    const kiln_expr *value = kiln_add(cx, m->box.lo[k], kiln_var(cx, v));
    loops[k]->extent = kiln_int(cx, m->box.extent[k]);
    kiln_nest_substitute(cx, m->e.l, loops[k]->body, 1, &v, &value);
  }
  for (int i = 0; i < stores.n; i++)
    for (int k = 0; k < m->b->rank; k++)
      if (loops[k]) stores.data[i].node->index[k] = kiln_var(cx, loops[k]->var);
}

static void unlink_nests(move *m) {
  for (int i = 0; i < m->n_nests; i++) {
    kiln_loop **slot = kiln_nest_slot(m->e.l, m->nests[i]);
    *slot = (*slot)->next;
    m->nests[i]->next = NULL;
    kiln_nest_unbind(m->nests[i]);
  }
}

// Stores the origin of the buffer's box in the ALLOC, for store_at.
static void note_origin(move *m, kiln_loop *alloc) {
  alloc->n_operands = m->b->rank;
  alloc->operands = KILN_NEW_ARRAY(&m->e.cx->perm, const kiln_expr *, m->b->rank);
  for (int k = 0; k < m->b->rank; k++) alloc->operands[k] = m->box.lo[k];
}

static kiln_status move_nests(move *m, kiln_scope scope) {
  kiln_ctx *cx = m->e.cx;
  bool shrinks = false;
  for (int k = 0; k < m->b->rank; k++) shrinks |= !m->whole[k];
  kiln_nest_drop_hints(&m->e.l->body, m->b->id);
  kiln_reindexing r = {m->b->id, m->b->id, m->b->rank, move_element, m};
  kiln_nest_reindex(cx, m->e.l, m->at->body, &r);
  for (int i = 0; i < m->n_nests; i++) shrink_nest(m, m->nests[i]);
  unlink_nests(m);
  if (shrinks) kiln_buffer_reshape(m->b, m->b->rank, m->box.extent);
  m->b->scope = scope;
  const int64_t bytes = kiln_buffer_elems(m->b) * kiln_dtype_bytes(m->b->dtype);
  if (bytes > KILN_MAX_STACK_BYTES)
    return kiln_refuse(
        &m->e,
        "the part of the buffer that loop %s needs must have at most %d bytes, got %" PRId64
        ": choose a loop further inside",
        kiln_edit_text(&m->e, m->at->var), KILN_MAX_STACK_BYTES, bytes);
  kiln_loop **slot = kiln_nest_first_use(cx, m->e.l, &m->at->body, m->b->id), *rest = *slot;
  for (int i = 0; i + 1 < m->n_nests; i++) m->nests[i]->next = m->nests[i + 1];
  m->nests[m->n_nests - 1]->next = rest;
  *slot = kiln_alloc_make(cx, m->b, m->nests[0]);
  note_origin(m, *slot);
  kiln_edit_measure(&m->e);
  return scope == KILN_SCOPE_REGISTER ? kiln_check_register(&m->e, *slot) : KILN_OK;
}

static kiln_status check_place(move *m) {
  kiln_loop *path[KILN_MAX_DEPTH];
  (void)kiln_nest_path(m->e.l, m->at, path);
  KILN_TRY(kiln_edit_scalar(&m->e, m->at));
  if (is_producer(m, path[0]))
    return kiln_refuse(&m->e,
                       "loop %s must be a loop of a consumer, got one that computes the buffer",
                       kiln_edit_text(&m->e, m->at->var));
  for (kiln_loop *n = path[0]; n; n = n->next)
    if (is_producer(m, n))
      return kiln_refuse(&m->e, "the buffer must be computed before loop %s, got a nest behind it",
                         kiln_edit_text(&m->e, m->at->var));
  return check_inputs(m, path[0]);
}

kiln_status kiln_compute_at(kiln_schedule *s, kiln_symbol producer, kiln_symbol loop,
                            kiln_scope scope) {
  move m = {.e = kiln_edit_begin(s, "compute_at", producer)};
  KILN_TRY(kiln_edit_buffer(&m.e, producer, &m.b));
  KILN_TRY(kiln_edit_loop(&m.e, loop, &m.at));
  if (kiln_scope_is_argument(scope))
    return kiln_refuse(&m.e, "scope must be shared, local or register");
  if (m.b->scope != KILN_SCOPE_WORKSPACE)
    return kiln_refuse(&m.e,
                       "buffer must be a workspace, as temporaries are before they are placed");
  KILN_TRY(collect_nests(&m));
  KILN_TRY(check_place(&m));
  const kiln_accesses all = kiln_accesses_of(m.e.cx, m.e.l, m.e.l->body, true, m.b->id);
  const kiln_accesses reads = kiln_accesses_of(m.e.cx, m.e.l, m.at->body, true, m.b->id);
  KILN_TRY(refuse_reader(&m, &all));
  if (reads.n == 0)
    return kiln_refuse(&m.e, "loop %s must read buffer %s", kiln_edit_text(&m.e, loop),
                       producer_name(&m));
  m.inner = kiln_vars_under(m.e.cx, m.at->body);
  KILN_TRY(find_box(&m, &reads));
  KILN_TRY(move_nests(&m, scope));
  return kiln_edit_commit(&m.e, "compute_at %s %s %s", kiln_edit_word(&m.e, producer),
                          kiln_edit_word(&m.e, loop), kiln_scope_text(scope));
}

// --- compute_root ---

static kiln_status refuse_placed(move *m) {
  kiln_loop *path[KILN_MAX_DEPTH];
  const kiln_accesses all = kiln_accesses_of(m->e.cx, m->e.l, m->e.l->body, true, m->b->id);
  const int depth = all.n ? kiln_nest_path(m->e.l, all.data[0].node, path) : 0;
  const char *at = NULL;
  for (int i = 0; i < depth; i++) {
    if (path[i]->kind == KILN_LOOP_ALLOC && path[i]->buffer == m->b->id) break;
    if (path[i]->kind == KILN_LOOP_FOR) at = kiln_edit_text(&m->e, path[i]->var);
  }
  return kiln_refuse(&m->e,
                     "buffer must be computed in nests of its own, got it at loop %s: leave out "
                     "the line that placed it there",
                     at ? at : "?");
}

kiln_status kiln_compute_root(kiln_schedule *s, kiln_symbol buffer) {
  move m = {.e = kiln_edit_begin(s, "compute_root", buffer)};
  KILN_TRY(kiln_edit_buffer(&m.e, buffer, &m.b));
  if (!kiln_scope_is_argument(m.b->scope)) return refuse_placed(&m);
  KILN_TRY(collect_nests(&m));
  return kiln_edit_commit(&m.e, "compute_root %s", kiln_edit_word(&m.e, buffer));
}
