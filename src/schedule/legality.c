// Legality of a change of order, by index analysis: conservative, never wrong, and cheap, because
// the schedules of a model take thousands of steps. It leaves undecided cases to isl (conflict.c).
//
// The naive loops of a plain statement write each element as a function of its index alone, so
// assignments may be repeated and reordered, and combinations reordered. The primitives keep this
// invariant. What is left to check is that no iteration reads an element that another writes and,
// for parallel iterations, that two of them do not combine into one element.
#include "schedule/index.h"
#include "schedule/legality.h"

// --- accesses of a loop's body to a buffer ---

typedef struct effect {
  const kiln_buffer *buffer;
  kiln_accesses all;
  int n_reads, n_assigns, n_combines;
  bool opaque;
  kiln_combiner combiner;
  bool mixed; // two different combiners
} effect;

static effect effect_of(kiln_edit *e, kiln_loop *body, const kiln_buffer *b) {
  effect f = {.buffer = b, .all = kiln_accesses_of(e->cx, e->l, body, true, b->id)};
  for (int i = 0; i < f.all.n; i++) {
    const kiln_access *a = &f.all.data[i];
    f.opaque |= a->opaque;
    if (!a->write) {
      f.n_reads++;
    } else if (a->combiner == KILN_COMBINE_NONE) {
      f.n_assigns++;
    } else {
      f.mixed |= f.n_combines > 0 && f.combiner != a->combiner;
      f.combiner = a->combiner;
      f.n_combines++;
    }
  }
  return f;
}

static int writes_of(const effect *f) { return f->n_assigns + f->n_combines; }

static const kiln_stmt *definition(const kiln_edit *e, const kiln_buffer *b) {
  const kiln_program *p = e->s->prog;
  for (int i = 0; i < p->stmts.n; i++)
    if (p->tensors.data[p->stmts.data[i]->out]->name == b->name) return p->stmts.data[i];
  return NULL;
}

// Whether instances of |s| that write the same element write the same value, or combine into it, so
// that their order does not matter; false for scatters.
static bool is_unordered(kiln_edit *e, const kiln_stmt *s) {
  const int n = s->n_space + s->n_reduce, rank = e->s->prog->tensors.data[s->out]->rank;
  kiln_vars dims = {0};
  kiln_edit at = *e; // with the ranges of the statement's dims
  kiln_ranges_init(&at.ranges, &e->cx->scratch);
  for (int k = 0; k < n; k++) {
    int64_t extent = 1;
    (void)kiln_expr_is_int(s->dims[k].extent, &extent);
    KILN_VEC_PUSH(&e->cx->scratch, &dims, s->dims[k].name);
    kiln_ranges_push(&at.ranges, s->dims[k].name, 0, extent - 1);
  }
  const int n_needed = s->combiner == KILN_COMBINE_NONE ? n : s->n_space;
  for (int k = 0; k < rank; k++)
    if (kiln_expr_has_load(s->index[k])) return false;
  for (int k = 0; k < n_needed; k++)
    if (!kiln_index_determines(&at, rank, (const kiln_expr *const *)s->index, &dims,
                               s->dims[k].name))
      return false;
  return true;
}

// Whether |b| has more elements than |s| computes: added iterations write there. Their bodies were
// simplified for the smaller range, and need not compute the statement's value.
static bool is_rounded(const kiln_edit *e, const kiln_stmt *s, const kiln_buffer *b) {
  int64_t elems = 1;
  for (int k = 0; k < b->rank; k++) elems *= b->extents[k];
  return elems > kiln_tensor_elems(e->s->prog->tensors.data[s->out]);
}

// Whether the assignments of |f| may be repeated and reordered. An init and an assigning update are
// two functions of the index, so a buffer must not have both; each iteration uses the elements of a
// buffer that lives in it anew.
static bool assigns_freely(kiln_edit *e, const effect *f) {
  const kiln_stmt *s = definition(e, f->buffer);
  if (!s || (f->n_assigns > 1 && s->init) || is_rounded(e, s, f->buffer)) return false;
  if (!kiln_scope_is_argument(f->buffer->scope)) return false;
  return is_unordered(e, s);
}

// --- disjointness of iterations ---

// |index| without coef * v: its part in outer variables, and the interval of the rest.
typedef struct window {
  int64_t coef;
  const kiln_expr *outer;
  int64_t width;
} window;

static bool window_of(kiln_edit *e, const kiln_expr *index, kiln_symbol v, const kiln_vars *inner,
                      window *out) {
  const kiln_terms t = kiln_terms_of(e->cx, index);
  const kiln_expr *rest = kiln_int(e->cx, t.constant);
  out->coef = 0;
  for (int i = 0; i < t.n; i++) {
    const kiln_term *term = &t.data[i];
    if (term->atom->kind == KILN_EXPR_VAR && term->atom->u.sym == v) {
      out->coef = term->coef;
      continue;
    }
    if (kiln_expr_uses(term->atom, v)) return false;
    rest = kiln_add(e->cx, rest, kiln_mul(e->cx, term->atom, kiln_int(e->cx, term->coef)));
  }
  return out->coef != 0 && kiln_box_bound(e, rest, inner, &out->outer, &out->width);
}

// The accesses of iterations of |v| to one buffer, with the variables |inner| unknown.
typedef struct iterations {
  const effect *f;
  kiln_symbol v;
  const kiln_vars *inner;
} iterations;

// Whether axis |k| alone separates iterations of the n loops: their accesses lie in disjoint
// windows of equal stride.
static bool axis_separates(kiln_edit *e, int n, const iterations *of, int k) {
  window first = {0};
  int64_t lo = 0, hi = 0;
  for (int i = 0; i < n; i++)
    for (int j = 0; j < of[i].f->all.n; j++) {
      window w;
      if (!window_of(e, of[i].f->all.data[j].index[k], of[i].v, of[i].inner, &w)) return false;
      if (i == 0 && j == 0) first = w;
      int64_t shift = 0;
      const kiln_expr *d = kiln_edit_simplify(e, kiln_sub(e->cx, w.outer, first.outer));
      if (w.coef != first.coef || !kiln_expr_is_int(d, &shift)) return false;
      if (shift < lo) lo = shift;
      if (shift + w.width > hi) hi = shift + w.width;
    }
  const int64_t coef = first.coef < 0 ? -first.coef : first.coef;
  return hi - lo < coef;
}

// Whether different iterations of the n loops access disjoint elements.
static bool are_apart(kiln_edit *e, int n, const iterations *of) {
  for (int i = 0; i < n; i++)
    if (of[i].f->opaque) return false;
  for (int k = 0; k < of[0].f->buffer->rank; k++)
    if (axis_separates(e, n, of, k)) return true;
  return false;
}

static bool is_private(kiln_edit *e, const effect *f, kiln_symbol v, const kiln_vars *inner) {
  const iterations of = {f, v, inner};
  return are_apart(e, 1, &of);
}

static bool store_determines(kiln_edit *e, const effect *f, kiln_symbol v, const kiln_vars *inner) {
  if (f->opaque || f->all.n != 1) return false;
  kiln_vars unknown = {0};
  for (int i = 0; i < inner->n; i++) KILN_VEC_PUSH(&e->cx->scratch, &unknown, inner->data[i]);
  KILN_VEC_PUSH(&e->cx->scratch, &unknown, v);
  return kiln_index_determines(e, f->all.data[0].n, f->all.data[0].index, &unknown, v);
}

static bool is_single(kiln_edit *e, kiln_symbol v) {
  const kiln_loop *l = kiln_loops_find(e->l, v);
  int64_t extent = 0;
  return l && kiln_expr_is_int(l->extent, &extent) && extent <= 1;
}

// --- the checks ---

// Decides cheaply that a change is legal for one buffer that |loop|'s body writes and does not
// allocate; isl decides about the others.
typedef bool (*shortcut)(kiln_edit *e, const kiln_reordering *c, const kiln_vars *inner,
                         const effect *f);

static kiln_status check_buffers(kiln_edit *e, const kiln_reordering *c, kiln_loop *body,
                                 const kiln_vars *inner, shortcut is_plain) {
  for (int b = 0; b < e->l->buffers.n; b++) {
    const effect f = effect_of(e, body, e->l->buffers.data[b]);
    if (writes_of(&f) == 0 || kiln_nest_allocates(body, b)) continue;
    if (!is_plain(e, c, inner, &f)) KILN_TRY(kiln_check_exactly(e, c, b));
  }
  return KILN_OK;
}

static bool keeps_order(kiln_edit *e, const kiln_reordering *c, const kiln_vars *inner,
                        const effect *f) {
  const bool pure = f->n_reads == 0 && !f->mixed && !f->opaque;
  if (pure && f->n_combines == 0 && assigns_freely(e, f)) return true;
  if (pure && f->n_assigns == 0) return true;
  // one loop at a time; the others are unknown, like the inner ones
  for (int i = 0; i < c->n; i++)
    if (!is_single(e, c->from[i]) && !is_private(e, f, c->from[i], inner) &&
        !(pure && store_determines(e, f, c->from[i], inner)))
      return false;
  return true;
}

kiln_status kiln_check_reorder(kiln_edit *e, int n, const kiln_symbol *from, const kiln_symbol *to,
                               kiln_loop *body) {
  while (n > 0 && *from == *to) n--, from++, to++;
  const kiln_reordering c = {.kind = KILN_REORDERING_LOOPS, .n = n, .from = from, .to = to};
  kiln_vars inner = kiln_vars_under(e->cx, body);
  for (int i = 0; i < n; i++) KILN_VEC_PUSH(&e->cx->scratch, &inner, from[i]);
  return n > 0 ? check_buffers(e, &c, body, &inner, keeps_order) : KILN_OK;
}

static bool runs_apart(kiln_edit *e, const kiln_reordering *c, const kiln_vars *inner,
                       const effect *f) {
  if (is_single(e, c->first) || is_private(e, f, c->first, inner)) return true;
  if (f->n_reads > 0) return false;
  if (f->n_combines == 0 && !f->opaque && assigns_freely(e, f)) return true;
  return store_determines(e, f, c->first, inner);
}

kiln_status kiln_check_parallel(kiln_edit *e, kiln_loop *loop) {
  const kiln_reordering c = {.kind = KILN_REORDERING_PARALLEL, .first = loop->var};
  const kiln_vars inner = kiln_vars_under(e->cx, loop->body);
  return check_buffers(e, &c, loop->body, &inner, runs_apart);
}

kiln_status kiln_check_around(kiln_edit *e, kiln_loop *node) {
  kiln_loop *path[KILN_MAX_DEPTH];
  for (int i = kiln_nest_path(e->l, node, path) - 2; i >= 0; i--)
    if (path[i]->kind == KILN_LOOP_FOR &&
        (path[i]->how == KILN_PARALLEL || path[i]->how >= KILN_BLOCK_X))
      KILN_TRY(kiln_check_parallel(e, path[i]));
  return KILN_OK;
}

static bool index_uses(const effect *f, kiln_symbol v) {
  for (int i = 0; i < f->all.n; i++)
    for (int k = 0; k < f->all.data[i].n; k++)
      if (kiln_expr_uses(f->all.data[i].index[k], v)) return true;
  return false;
}

static bool has_instr(const kiln_loop *l) {
  for (; l; l = l->next)
    if (l->kind == KILN_LOOP_INSTR || has_instr(l->body)) return true;
  return false;
}

static bool lanes_apart(kiln_edit *e, const kiln_reordering *c, const kiln_vars *inner,
                        const effect *f) {
  if (is_private(e, f, c->first, inner)) return true;
  if (f->n_reads > 0) return false;
  const bool uses = index_uses(f, c->first);
  if (f->n_combines == 0) return uses && assigns_freely(e, f);
  if (f->n_assigns == 0 && !f->mixed && !uses) return true; // a reduction over the lanes
  return store_determines(e, f, c->first, inner);
}

kiln_status kiln_check_vectorize(kiln_edit *e, kiln_loop *loop) {
  const kiln_reordering c = {.kind = KILN_REORDERING_VECTOR, .first = loop->var};
  const kiln_vars inner = kiln_vars_under(e->cx, loop->body);
  if (is_single(e, loop->var)) return KILN_OK;
  if (has_instr(loop->body))
    return kiln_refuse(e, "loop %s must not hold an instruction", kiln_edit_text(e, loop->var));
  return check_buffers(e, &c, loop->body, &inner, lanes_apart);
}

static bool reads_nothing(kiln_edit *e, const kiln_reordering *c, const kiln_vars *inner,
                          const effect *f) {
  (void)e;
  (void)c;
  (void)inner;
  return f->n_reads == 0;
}

kiln_status kiln_check_recompute(kiln_edit *e, kiln_loop *loop) {
  for (int b = 0; b < e->l->buffers.n; b++) {
    const effect f = effect_of(e, loop->body, e->l->buffers.data[b]);
    if (f.n_combines == 0 || kiln_nest_allocates(loop->body, b)) continue;
    return kiln_refuse(e,
                       "loop %s: a shifted tail recomputes elements, so the loop must only assign "
                       "buffer %s, got a reduction into it: use guard",
                       kiln_edit_text(e, loop->var), kiln_edit_text(e, f.buffer->name));
  }
  const kiln_reordering c = {.kind = KILN_REORDERING_REPEAT, .first = loop->var};
  return check_buffers(e, &c, loop->body, NULL, reads_nothing);
}

// Sets |touched| for the buffers that |body| accesses, and |written| for those that it writes.
static void mark_buffers(kiln_edit *e, kiln_loop *body, bool *touched, bool *written) {
  const kiln_accesses all = kiln_accesses_of(e->cx, e->l, body, true, -1);
  for (int i = 0; i < all.n; i++) {
    touched[all.data[i].buffer] = true;
    written[all.data[i].buffer] |= all.data[i].write;
  }
}

kiln_status kiln_check_merge(kiln_edit *e, kiln_loop *first, kiln_loop *second, int64_t shift) {
  const kiln_reordering c = {
      .kind = KILN_REORDERING_MERGE, .first = first->var, .second = second->var, .shift = shift};
  const int n = e->l->buffers.n;
  bool *by_first = KILN_NEW_ARRAY(&e->cx->scratch, bool, n),
       *by_second = KILN_NEW_ARRAY(&e->cx->scratch, bool, n),
       *written = KILN_NEW_ARRAY(&e->cx->scratch, bool, n);
  const kiln_vars in_first = kiln_vars_under(e->cx, first->body),
                  in_second = kiln_vars_under(e->cx, second->body);
  mark_buffers(e, first->body, by_first, written);
  mark_buffers(e, second->body, by_second, written);
  for (int b = 0; b < n; b++) {
    if (!by_first[b] || !by_second[b] || !written[b]) continue;
    const effect f = effect_of(e, first->body, e->l->buffers.data[b]);
    const effect g = effect_of(e, second->body, e->l->buffers.data[b]);
    const iterations both[] = {{&f, first->var, &in_first}, {&g, second->var, &in_second}};
    // equal iterations keep their order
    if (!are_apart(e, 2, both)) KILN_TRY(kiln_check_exactly(e, &c, b));
  }
  return KILN_OK;
}

static kiln_status check_hands(kiln_edit *e, kiln_loop *list, int buffer) {
  for (kiln_loop *l = list; l; l = l->next) {
    if (l->kind == KILN_LOOP_ALLOC && l->buffer == buffer) continue;
    KILN_TRY(check_hands(e, l->body, buffer));
    if (l->kind != KILN_LOOP_FOR || is_single(e, l->var)) continue;
    const effect f = effect_of(e, l->body, e->l->buffers.data[buffer]);
    const kiln_vars inner = kiln_vars_under(e->cx, l->body);
    const kiln_reordering c = {.kind = KILN_REORDERING_CUT, .first = l->var};
    if (f.n_reads > 0 && writes_of(&f) > 0 && !kiln_nest_allocates(l->body, buffer) &&
        !is_private(e, &f, l->var, &inner))
      KILN_TRY(kiln_check_exactly(e, &c, buffer));
  }
  return KILN_OK;
}

kiln_status kiln_check_cut(kiln_edit *e, kiln_loop *nest) {
  if (nest->kind == KILN_LOOP_ALLOC) KILN_TRY(check_hands(e, nest->body, nest->buffer));
  for (kiln_loop *l = nest->body; l; l = l->next) KILN_TRY(kiln_check_cut(e, l));
  return KILN_OK;
}

kiln_status kiln_check_register(kiln_edit *e, kiln_loop *alloc) {
  const kiln_buffer *b = e->l->buffers.data[alloc->buffer];
  const kiln_accesses a = kiln_accesses_of(e->cx, e->l, alloc, false, b->id);
  const kiln_vars inside = kiln_vars_under(e->cx, alloc->body);
  for (int i = 0; i < a.n; i++)
    for (int k = 0; k < a.data[i].n; k++) {
      const kiln_expr *x = kiln_edit_simplify(e, a.data[i].index[k]);
      for (int v = 0; v < e->ranges.entries.n; v++) {
        const kiln_symbol var = e->ranges.entries.data[v].var;
        if (kiln_expr_uses(x, var) && !kiln_vars_has(&inside, var))
          return kiln_refuse(
              e,
              "register buffer %s must be indexed by loops inside of its alloc, got %s "
              "in axis %d: split with shift, or use local",
              kiln_edit_text(e, b->name), kiln_edit_text(e, var), k);
      }
      if (kiln_expr_has_load(x))
        return kiln_refuse(e, "register buffer %s must be indexed by loops, got data in axis %d",
                           kiln_edit_text(e, b->name), k);
    }
  return KILN_OK;
}
