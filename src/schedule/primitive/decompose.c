// decompose_reduction: moves the initial values of a reduction from their own nest to just before a
// loop of it.
#include "schedule/index.h"

typedef struct decomposition {
  kiln_edit e;
  kiln_buffer *b;
  kiln_loop *loop, *update;        // the loop, and the accumulating store
  kiln_loop *init, *store;         // the initialising nest, and its store
  kiln_loop *path[KILN_MAX_DEPTH]; // to |update|
  int depth, at;                   // the path's length; position of |loop| in it
  int level;                       // of the node in the path that is in one list with |init|
  kiln_vars outer, inner, both; // loops from that level to |loop|, from |loop| on, and all of them
} decomposition;

static kiln_status find_stores(decomposition *d) {
  kiln_edit *e = &d->e;
  const kiln_accesses all = kiln_accesses_of(e->cx, e->l, e->l->body, true, d->b->id);
  int n_assigns = 0, n_updates = 0;
  for (int i = 0; i < all.n; i++) {
    const kiln_access *a = &all.data[i];
    if (a->opaque)
      return kiln_refuse(e, "buffer must not be used by an instruction: do this before tensorize");
    if (!a->write) continue;
    if (a->combiner == KILN_COMBINE_NONE) {
      d->store = a->node;
      n_assigns++;
    } else {
      d->update = a->node;
      n_updates++;
    }
  }
  if (n_assigns != 1 || n_updates != 1)
    return kiln_refuse(e,
                       "buffer must be initialised by one statement and accumulated into by one, "
                       "got %d and %d",
                       n_assigns, n_updates);
  for (int k = 0; k < d->b->rank; k++)
    if (kiln_expr_has_load(d->update->index[k]) || kiln_expr_has_load(d->store->index[k]))
      return kiln_refuse(e, "buffer must not be indexed by data");
  d->depth = kiln_nest_path(e->l, d->update, d->path);
  for (d->at = 0; d->at < d->depth && d->path[d->at] != d->loop;) d->at++;
  if (d->at == d->depth)
    return kiln_refuse(e, "loop %s must be one of the nest that accumulates into the buffer",
                       kiln_edit_text(e, d->loop->var));
  return KILN_OK;
}

// Finds the initialising nest, a sibling of a node of the path and before it.
static kiln_status find_init(decomposition *d) {
  kiln_edit *e = &d->e;
  for (d->level = 0; d->level <= d->at && !d->init; d->level++) {
    kiln_loop *list = d->level ? d->path[d->level - 1]->body : e->l->body;
    for (kiln_loop *n = list; n != d->path[d->level]; n = n->next)
      if (kiln_nest_uses(e->cx, e->l, n, d->b->id, true)) d->init = n;
  }
  d->level--;
  if (!d->init)
    return kiln_refuse(e, "buffer must be initialised in a nest of its own, before loop %s",
                       kiln_edit_text(e, d->loop->var));
  const kiln_accesses a = kiln_accesses_of(e->cx, e->l, d->init, false, -1);
  for (int i = 0; i < a.n; i++)
    if (a.data[i].write != (a.data[i].buffer == d->b->id))
      return kiln_refuse(e, "the nest that initialises the buffer must do nothing else");
  for (kiln_loop *n = d->init->next; n; n = n == d->path[d->level] ? NULL : n->next) {
    if (n != d->path[d->level] && kiln_nest_uses(e->cx, e->l, n, d->b->id, false))
      return kiln_refuse(e, "buffer must not be read before loop %s accumulates into it",
                         kiln_edit_text(e, d->loop->var));
    for (int i = 0; i < a.n; i++)
      if (!a.data[i].write && kiln_nest_uses(e->cx, e->l, n, a.data[i].buffer, true))
        return kiln_refuse(e, "buffer %s, which the initial values read, must not change before",
                           kiln_edit_text(e, e->l->buffers.data[a.data[i].buffer]->name));
  }
  return KILN_OK;
}

static kiln_status find_loops(decomposition *d) {
  kiln_edit *e = &d->e;
  KILN_TRY(kiln_edit_scalar(e, d->loop));
  for (int i = 0; i < d->depth; i++) {
    int64_t extent = 0;
    if (d->path[i]->kind != KILN_LOOP_FOR) continue;
    KILN_TRY(kiln_edit_extent(e, d->path[i], &extent));
    if (i < d->level) continue;
    kiln_vars *part = i < d->at ? &d->outer : &d->inner;
    KILN_VEC_PUSH(&e->cx->perm, part, d->path[i]->var);
    KILN_VEC_PUSH(&e->cx->perm, &d->both, d->path[i]->var);
  }
  return KILN_OK;
}

// The axis of |store| that the condition keeps in range; -1 for any other condition.
static int kept_axis(decomposition *d, const kiln_loop *store, const kiln_expr *cond) {
  return kiln_index_kept(&d->e, d->b->rank, (const kiln_expr *const *)store->index, d->b->extents,
                         cond);
}

// Whether a condition around the loop bounds axis |k| by its extent.
static bool is_kept(decomposition *d, int k) {
  for (int i = 0; i < d->at; i++)
    if (d->path[i]->kind == KILN_LOOP_IF && d->path[i]->cond->kind == KILN_EXPR_LT &&
        kept_axis(d, d->update, d->path[i]->cond) == k)
      return true;
  return false;
}

// An initialisation under another condition would not reach all elements that are accumulated into.
static kiln_status check_init(decomposition *d) {
  kiln_edit *e = &d->e;
  kiln_loop *path[KILN_MAX_DEPTH];
  const int depth = kiln_nest_path(e->l, d->store, path);
  bool inside = false;
  for (int i = 0; i < depth; i++) {
    inside |= path[i] == d->init;
    if (inside && path[i]->kind == KILN_LOOP_IF && kept_axis(d, d->store, path[i]->cond) < 0)
      return kiln_refuse(e, "buffer must be initialised under no condition but on its range: "
                            "decompose_reduction before pad, merge or specialize");
  }
  return KILN_OK;
}

// Requires that each element is initialised, and not again after it was accumulated into.
static kiln_status check_elements(decomposition *d) {
  kiln_edit *e = &d->e;
  const kiln_expr *const *index = (const kiln_expr *const *)d->update->index;
  for (int i = 0; i < d->outer.n; i++) {
    const kiln_symbol v = d->outer.data[i];
    if (kiln_loop_is_unit(kiln_loops_find(e->l, v))) continue;
    if (!kiln_index_determines(e, d->b->rank, index, &d->both, v))
      return kiln_refuse(e, "loop %s around loop %s must not reduce: reorder it inside of that",
                         kiln_edit_text(e, v), kiln_edit_text(e, d->loop->var));
  }
  for (int i = d->level; i < d->at; i++)
    if (d->path[i]->kind == KILN_LOOP_IF && kept_axis(d, d->update, d->path[i]->cond) < 0)
      return kiln_refuse(e,
                         "no condition but on the range of the buffer must stand around loop %s: "
                         "decompose_reduction at a loop outside of it",
                         kiln_edit_text(e, d->loop->var));
  if (!kiln_index_covers(e, d->b->rank, index, &d->both, d->b->extents))
    return kiln_refuse(e, "the loops of the nest that accumulates must run through the whole "
                          "buffer, one axis each: decompose_reduction before fuse");
  return KILN_OK;
}

// Copies of the loops from |loop| on that index the buffer, as a nest that initialises its
// elements.
typedef struct copy {
  int n;
  kiln_symbol from[KILN_MAX_DEPTH], to[KILN_MAX_DEPTH];
  const kiln_expr *vars[KILN_MAX_DEPTH];
  int64_t extents[KILN_MAX_DEPTH];
} copy;

static kiln_status copy_loops(decomposition *d, copy *c) {
  kiln_edit *e = &d->e;
  for (int i = d->at; i < d->depth; i++) {
    const kiln_loop *l = d->path[i];
    bool moves = false;
    for (int k = 0; k < d->b->rank && l->kind == KILN_LOOP_FOR; k++)
      moves |= kiln_expr_uses(d->update->index[k], l->var);
    if (!moves) continue;
    c->from[c->n] = l->var;
    c->to[c->n] = kiln_symbol_printf(e->cx, "%s.init", kiln_edit_text(e, l->var));
    KILN_TRY(kiln_edit_new_loop(e, c->to[c->n]));
    KILN_TRY(kiln_edit_extent(e, l, &c->extents[c->n]));
    c->vars[c->n] = kiln_var(e->cx, c->to[c->n]);
    c->n++;
  }
  return KILN_OK;
}

// The initial value of the element at |at|: the initialising store's value with its loops replaced
// by |at|.
static kiln_status value_at(decomposition *d, const kiln_expr *const *at, const kiln_expr **out) {
  kiln_edit *e = &d->e;
  kiln_symbol from[KILN_MAX_AXES];
  const kiln_expr *to[KILN_MAX_AXES];
  int n = 0;
  for (int k = 0; k < d->b->rank; k++) {
    if (d->store->index[k]->kind != KILN_EXPR_VAR) continue;
    from[n] = d->store->index[k]->u.sym;
    to[n++] = at[k];
  }
  const kiln_vars gone = kiln_vars_of(e->cx, d->init);
  *out = kiln_expr_substitute(e->cx, d->store->value, n, from, to);
  if (kiln_vars_in(&gone, *out))
    return kiln_refuse(e, "the nest that initialises the buffer must have one loop an axis: "
                          "decompose_reduction before splitting them");
  return KILN_OK;
}

static kiln_status make_init(decomposition *d, kiln_loop **out) {
  kiln_edit *e = &d->e;
  kiln_ctx *cx = e->cx;
  copy c = {0};
  const kiln_expr *at[KILN_MAX_AXES], *valid = NULL, *value = NULL;
  KILN_TRY(copy_loops(d, &c));
  for (int k = 0; k < d->b->rank; k++) {
    const kiln_interval i = kiln_expr_interval(cx, d->update->index[k], &e->ranges);
    at[k] = kiln_expr_substitute(cx, d->update->index[k], c.n, c.from, c.vars);
    if (i.lo >= 0 && (i.hi < d->b->extents[k] || is_kept(d, k))) continue;
    const kiln_expr *in = kiln_binary(cx, KILN_EXPR_LT, at[k], kiln_int(cx, d->b->extents[k]));
    if (i.lo < 0)
      in =
          kiln_binary(cx, KILN_EXPR_AND, in, kiln_binary(cx, KILN_EXPR_GE, at[k], kiln_int(cx, 0)));
    valid = valid ? kiln_binary(cx, KILN_EXPR_AND, valid, in) : in;
  }
  KILN_TRY(value_at(d, at, &value));
  kiln_loop *store = kiln_store_make(cx, d->b, at, KILN_COMBINE_NONE, value);
  if (valid) store = kiln_if_make(cx, valid, store);
  *out = kiln_nest_around(cx, c.n, c.to, c.extents, store);
  return KILN_OK;
}

kiln_status kiln_decompose_reduction(kiln_schedule *s, kiln_symbol buffer, kiln_symbol loop) {
  decomposition d = {.e = kiln_edit_begin(s, "decompose_reduction", buffer)};
  kiln_edit *e = &d.e;
  kiln_loop *nest = NULL;
  KILN_TRY(kiln_edit_buffer(e, buffer, &d.b));
  KILN_TRY(kiln_edit_loop(e, loop, &d.loop));
  KILN_TRY(find_stores(&d));
  KILN_TRY(find_init(&d));
  KILN_TRY(check_init(&d));
  KILN_TRY(find_loops(&d));
  KILN_TRY(check_elements(&d));
  KILN_TRY(make_init(&d, &nest));
  kiln_loop **slot = kiln_nest_slot(e->l, d.init);
  *slot = d.init->next;
  slot = kiln_nest_slot(e->l, d.loop);
  *kiln_nest_end(&nest) = d.loop;
  *slot = nest;
  return kiln_edit_commit(e, "decompose_reduction %s %s", kiln_edit_word(e, buffer),
                          kiln_edit_word(e, loop));
}
