// Axes cut apart for nothing: a map that is stored by two axes which are one axis of what it reads, and one again to all that
// read it, is stored by that one. So a mask is added to the windows of all images, seen as images and windows, between two
// reshapes; where they go, the scores' batch is one axis all the way.
#include "tile/tile.h"

typedef struct cut_axis {
  int tensor, axis; // and the one behind it
  int64_t inner;    // the extent of that
} cut_axis;

// What |load| reads along both axes, as one number; NULL: they aren't cut from one.
static const kiln_expr *whole_of(const kiln_expr *load, const cut_axis *c) {
  const kiln_expr *outer = load->args[c->axis], *inner = load->args[c->axis + 1];
  int64_t by_outer, by_inner;
  const bool is_cut = outer->kind == KILN_EXPR_DIV && inner->kind == KILN_EXPR_MOD &&
                      outer->args[0] == inner->args[0] &&
                      kiln_expr_is_int(outer->args[1], &by_outer) &&
                      kiln_expr_is_int(inner->args[1], &by_inner);
  return is_cut && by_outer == c->inner && by_inner == c->inner ? outer->args[0] : NULL;
}

// A load of the tensor, by the joined axis.
static const kiln_expr *join_load(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  const cut_axis *c = argument;
  const kiln_expr *index[KILN_MAX_RANK];
  if (e->kind != KILN_EXPR_LOAD || e->u.tensor != c->tensor) return NULL;
  const kiln_expr *whole = whole_of(e, c);
  for (int k = 0, n = 0; k < e->n_args; k++)
    if (k != c->axis + 1)
      index[n++] = kiln_expr_replace(cx, k == c->axis ? whole : e->args[k], join_load, argument);
  return kiln_load(cx, c->tensor, e->dtype, e->n_args - 1, index);
}

static const kiln_expr *joined_reader(kiln_ctx *cx, const kiln_expr *e, cut_axis *c) {
  return e ? kiln_expr_replace(cx, e, join_load, c) : NULL;
}

// |e| of the map |s| over the joined dim, which takes the first one's name.
static const kiln_expr *joined_body(kiln_ctx *cx, const kiln_stmt *s, const kiln_expr *e,
                                    const cut_axis *c) {
  const kiln_symbol vars[] = {s->dims[c->axis].name, s->dims[c->axis + 1].name};
  const kiln_expr *whole = kiln_var(cx, vars[0]), *inner = kiln_int(cx, c->inner),
                  *const values[] = {kiln_div(cx, whole, inner), kiln_mod(cx, whole, inner)};
  kiln_ranges r = kiln_stmt_ranges(&cx->scratch, s);
  kiln_ranges_push(&r, vars[0], 0, kiln_dim_extent(&s->dims[c->axis]) * c->inner - 1);
  return kiln_simplify(cx, kiln_expr_substitute(cx, e, 2, vars, values), &r);
}

// Whether |s| reads something by both of its dims as one.
static bool reads_whole(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s,
                        const cut_axis *c) {
  const kiln_loads loads = kiln_stmt_loads(cx, &cx->scratch, p, s);
  const kiln_expr *whole = kiln_var(cx, s->dims[c->axis].name);
  for (int i = 0; i < loads.n; i++)
    for (int k = 0; k < loads.data[i]->n_args; k++)
      if (kiln_expr_uses(loads.data[i]->args[k], s->dims[c->axis + 1].name) &&
          joined_body(cx, s, loads.data[i]->args[k], c) == whole)
        return true;
  return false;
}

static bool all_read_whole(kiln_ctx *cx, const kiln_program *p, const kiln_users *users,
                           const cut_axis *c) {
  for (int u = users->first[c->tensor]; u < users->first[c->tensor + 1]; u++) {
    const kiln_loads loads = kiln_stmt_loads(cx, &cx->scratch, p, p->stmts.data[users->users[u]]);
    for (int i = 0; i < loads.n; i++)
      if (loads.data[i]->u.tensor == c->tensor && !whole_of(loads.data[i], c)) return false;
  }
  return true;
}

static void join(kiln_ctx *cx, kiln_program *p, const kiln_users *users, kiln_stmt *s,
                 cut_axis *c) {
  kiln_tensor *t = p->tensors.data[s->out];
  const kiln_expr **shape = KILN_NEW_ARRAY(&cx->perm, const kiln_expr *, t->rank);
  kiln_dim *dims = KILN_NEW_ARRAY(&cx->perm, kiln_dim, s->n_space);
  const kiln_expr **index = KILN_NEW_ARRAY(&cx->perm, const kiln_expr *, t->rank);
  s->body = joined_body(cx, s, s->body, c);
  for (int k = 0, n = 0; k < t->rank; k++) {
    if (k == c->axis + 1) continue;
    dims[n] = s->dims[k];
    if (k == c->axis) dims[n].extent = kiln_int(cx, kiln_dim_extent(&s->dims[k]) * c->inner);
    shape[n] = dims[n].extent;
    index[n] = kiln_var(cx, dims[n].name);
    n++;
  }
  s->dims = dims;
  s->index = index;
  t->rank = --s->n_space;
  t->shape = shape;
  for (int u = users->first[t->id]; u < users->first[t->id + 1]; u++) {
    kiln_stmt *reader = p->stmts.data[users->users[u]];
    reader->body = joined_reader(cx, reader->body, c);
    reader->guard = joined_reader(cx, reader->guard, c);
    reader->init = joined_reader(cx, reader->init, c);
    for (int k = 0; k < p->tensors.data[reader->out]->rank; k++)
      reader->index[k] = joined_reader(cx, reader->index[k], c);
  }
}

static bool may_join(kiln_ctx *cx, const kiln_program *p, const kiln_users *users,
                     const kiln_stmt *s, const cut_axis *c) {
  const kiln_tensor *t = p->tensors.data[s->out];
  return t->role == KILN_TEMP && users->first[t->id] < users->first[t->id + 1] &&
         kiln_stmt_is_map(cx, s) && s->n_space == t->rank && c->inner > 1 &&
         all_read_whole(cx, p, users, c) && reads_whole(cx, p, s, c);
}

// needs: kiln_tile_absorb has run, orders are those of the axes
kiln_status kiln_tile_join(kiln_ctx *cx, kiln_program *p) {
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  const kiln_users users = kiln_users_make(cx, &cx->scratch, p);
  for (int i = 0; i < p->stmts.n; i++) {
    kiln_stmt *s = p->stmts.data[i];
    for (int axis = 0; s && axis + 1 < s->n_space; axis++) {
      cut_axis c = {s->out, axis, kiln_dim_extent(&s->dims[axis + 1])};
      if (may_join(cx, p, &users, s, &c)) join(cx, p, &users, s, &c);
    }
  }
  kiln_arena_rewind(&cx->scratch, mark);
  return KILN_OK;
}
