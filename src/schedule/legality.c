// What makes a change of order legal, by index analysis: conservative, never wrong.
//
// The naive loops of a plain statement write each element as a function of its index alone, so
// assignments may be repeated and reordered, and combinations reordered. The primitives keep this.
// What is left to check is that no iteration reads what another writes, and, where iterations run
// at once, that two of them do not combine into one element.
#include "schedule/edit.h"

// --- what the body of a loop does to a buffer ---

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

static bool allocates(const kiln_loop *first, int buffer) {
  for (; first; first = first->next) {
    if (first->kind == KILN_LOOP_ALLOC && first->buffer == buffer) return true;
    if (allocates(first->body, buffer)) return true;
  }
  return false;
}

static int writes_of(const effect *f) { return f->n_assigns + f->n_combines; }

static const kiln_stmt *definition(const kiln_edit *e, const kiln_buffer *b) {
  const kiln_program *p = e->s->prog;
  for (int i = 0; i < p->stmts.n; i++)
    if (p->tensors.data[p->stmts.data[i]->out]->name == b->name) return p->stmts.data[i];
  return NULL;
}

// Whether instances that write the same element of |b| do so with the same value or by its
// combiner, in any order: false for scatters.
static bool is_unordered(kiln_edit *e, const kiln_buffer *b) {
  const kiln_stmt *s = definition(e, b);
  if (!s) return true; // a copy or a partial result, made by a primitive
  const int n = s->n_space + s->n_reduce, rank = e->s->prog->tensors.data[s->out]->rank;
  kiln_vars dims = {0};
  kiln_edit at = *e; // the statement's dims have ranges of their own
  kiln_ranges_init(&at.ranges, &e->cx->perm);
  for (int k = 0; k < n; k++) {
    int64_t extent = 1;
    (void)kiln_expr_is_int(s->dims[k].extent, &extent);
    KILN_VEC_PUSH(&e->cx->perm, &dims, s->dims[k].name);
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

// Whether the assignments of |f| may be repeated and reordered. An init and an update that assigns
// are two functions of the index.
static bool assigns_freely(kiln_edit *e, const effect *f) {
  const kiln_stmt *s = definition(e, f->buffer);
  if (f->n_assigns > 1 && s && s->init) return false;
  return is_unordered(e, f->buffer);
}

// --- distinctness ---

// The part of |index| besides coef * v: outer part, and the interval of the rest.
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

// Whether axis |k| alone keeps the iterations of |v| apart: all accesses lie in windows of one
// stride that do not overlap.
static bool axis_separates(kiln_edit *e, const effect *f, int k, kiln_symbol v,
                           const kiln_vars *inner) {
  window first = {0};
  int64_t lo = 0, hi = 0;
  for (int i = 0; i < f->all.n; i++) {
    window w;
    if (!window_of(e, f->all.data[i].index[k], v, inner, &w)) return false;
    if (i == 0) first = w;
    int64_t shift = 0;
    const kiln_expr *d = kiln_edit_simplify(e, kiln_sub(e->cx, w.outer, first.outer));
    if (w.coef != first.coef || !kiln_expr_is_int(d, &shift)) return false;
    if (shift < lo) lo = shift;
    if (shift + w.width > hi) hi = shift + w.width;
  }
  const int64_t coef = first.coef < 0 ? -first.coef : first.coef;
  return hi - lo < coef;
}

static bool is_private(kiln_edit *e, const effect *f, kiln_symbol v, const kiln_vars *inner) {
  if (f->opaque) return false;
  for (int k = 0; k < f->buffer->rank; k++)
    if (axis_separates(e, f, k, v, inner)) return true;
  return false;
}

static bool store_determines(kiln_edit *e, const effect *f, kiln_symbol v, const kiln_vars *inner) {
  if (f->opaque || f->all.n != 1) return false;
  kiln_vars unknown = {0};
  for (int i = 0; i < inner->n; i++) KILN_VEC_PUSH(&e->cx->perm, &unknown, inner->data[i]);
  KILN_VEC_PUSH(&e->cx->perm, &unknown, v);
  return kiln_index_determines(e, f->all.data[0].n, f->all.data[0].index, &unknown, v);
}

static bool is_single(kiln_edit *e, kiln_symbol v) {
  const kiln_loop *l = kiln_loops_find(e->l, v);
  int64_t extent = 0;
  return l && kiln_expr_is_int(l->extent, &extent) && extent <= 1;
}

// --- the checks ---

static kiln_status carried(kiln_edit *e, kiln_symbol loop, const effect *f, const char *why) {
  return kiln_refuse(e, "loop %s carries a dependence: %s buffer %s", kiln_edit_text(e, loop), why,
                     kiln_edit_text(e, f->buffer->name));
}

static kiln_status reorder_buffer(kiln_edit *e, int n, const kiln_symbol *loops,
                                  const kiln_vars *inner, const effect *f) {
  const bool pure = f->n_reads == 0 && !f->mixed && !f->opaque;
  if (pure && f->n_combines == 0 && assigns_freely(e, f)) return KILN_OK;
  if (pure && f->n_assigns == 0) return KILN_OK;
  for (int i = 0; i < n; i++) {
    if (is_single(e, loops[i]) || is_private(e, f, loops[i], inner)) continue;
    if (pure && store_determines(e, f, loops[i], inner)) continue;
    return carried(e, loops[i], f,
                   f->n_reads ? "an iteration may read what another writes in"
                              : "iterations write the same element in order in");
  }
  return KILN_OK;
}

kiln_status kiln_check_reorder(kiln_edit *e, int n, const kiln_symbol *loops, kiln_loop *body) {
  kiln_vars inner = kiln_vars_under(e->cx, body);
  for (int i = 0; i < n; i++) KILN_VEC_PUSH(&e->cx->perm, &inner, loops[i]);
  for (int b = 0; b < e->l->buffers.n; b++) {
    const effect f = effect_of(e, body, e->l->buffers.data[b]);
    if (writes_of(&f) == 0 || allocates(body, b)) continue;
    // each loop is looked at while the others are as unknown as the inner ones
    KILN_TRY(reorder_buffer(e, n, loops, &inner, &f));
  }
  return KILN_OK;
}

static kiln_status parallel_buffer(kiln_edit *e, kiln_symbol v, const kiln_vars *inner,
                                   const effect *f) {
  if (is_single(e, v) || is_private(e, f, v, inner)) return KILN_OK;
  if (f->n_reads > 0) return carried(e, v, f, "an iteration may read what another writes in");
  if (f->n_combines == 0 && !f->opaque && assigns_freely(e, f)) return KILN_OK;
  if (store_determines(e, f, v, inner)) return KILN_OK;
  return carried(e, v, f,
                 f->n_combines ? "iterations combine into the same element (rfactor helps) of"
                               : "iterations write the same element in order in");
}

kiln_status kiln_check_parallel(kiln_edit *e, kiln_loop *loop) {
  const kiln_vars inner = kiln_vars_under(e->cx, loop->body);
  for (int b = 0; b < e->l->buffers.n; b++) {
    const effect f = effect_of(e, loop->body, e->l->buffers.data[b]);
    if (writes_of(&f) == 0 || allocates(loop->body, b)) continue;
    KILN_TRY(parallel_buffer(e, loop->var, &inner, &f));
  }
  return KILN_OK;
}

static bool index_uses(const kiln_access *a, kiln_symbol v) {
  for (int k = 0; k < a->n; k++)
    if (kiln_expr_uses(a->index[k], v)) return true;
  return false;
}

static kiln_status vectorize_buffer(kiln_edit *e, kiln_symbol v, const kiln_vars *inner,
                                    const effect *f) {
  if (is_private(e, f, v, inner)) return KILN_OK;
  if (f->opaque)
    return kiln_refuse(e, "loop %s must not hold an instruction", kiln_edit_text(e, v));
  if (f->n_reads > 0) return carried(e, v, f, "an iteration may read what another writes in");
  bool uses = false;
  for (int i = 0; i < f->all.n; i++) uses |= index_uses(&f->all.data[i], v);
  if (f->n_combines == 0) {
    if (uses && assigns_freely(e, f)) return KILN_OK;
    return carried(e, v, f, "iterations write the same element in order in");
  }
  if (f->n_assigns == 0 && !f->mixed && !uses) return KILN_OK; // a reduction over the lanes
  if (store_determines(e, f, v, inner)) return KILN_OK;
  return carried(e, v, f, "lanes combine into the same element (rfactor helps) of");
}

kiln_status kiln_check_vectorize(kiln_edit *e, kiln_loop *loop) {
  const kiln_vars inner = kiln_vars_under(e->cx, loop->body);
  if (is_single(e, loop->var)) return KILN_OK;
  for (int b = 0; b < e->l->buffers.n; b++) {
    const effect f = effect_of(e, loop->body, e->l->buffers.data[b]);
    if (writes_of(&f) == 0 || allocates(loop->body, b)) continue;
    KILN_TRY(vectorize_buffer(e, loop->var, &inner, &f));
  }
  return KILN_OK;
}

kiln_status kiln_check_recompute(kiln_edit *e, kiln_loop *loop) {
  for (int b = 0; b < e->l->buffers.n; b++) {
    const effect f = effect_of(e, loop->body, e->l->buffers.data[b]);
    if (writes_of(&f) == 0 || allocates(loop->body, b)) continue;
    if (f.n_combines > 0 || f.opaque)
      return kiln_refuse(
          e,
          "loop %s: a shifted tail recomputes elements, so the loop must only assign "
          "buffer %s, got a reduction into it: use guard",
          kiln_edit_text(e, loop->var), kiln_edit_text(e, f.buffer->name));
    if (!assigns_freely(e, &f))
      return kiln_refuse(e, "loop %s: buffer %s is written in order: use guard",
                         kiln_edit_text(e, loop->var), kiln_edit_text(e, f.buffer->name));
  }
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
