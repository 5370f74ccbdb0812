// Axis coalescing: if two axes of a map are one axis of its operand, and are merged into one again
// by all its consumers, the map gets the merged axis.
//     T(n, w) = S(4 n + w) + M(w);  Y(k) = T(k / 4, k % 4)    becomes  T(k) = S(k) + M(k % 4)
// For example, a mask is added to attention scores of windows between two reshapes; after
// coalescing, the batch of the scores is one axis throughout.
//
// On CPUs a depthwise convolution with a channel multiplier gets one channel axis, too, if its data
// and the consumers of its result are stored channels last: vectors then run along channels, and
// each data element is repeated over the lanes of its group.
#include "transform/transform.h"

typedef struct cut_axis {
  int tensor, axis; // the first of the two axes
  int64_t inner;    // extent of the second axis
  int joined;       // the tensor with the merged axis
} cut_axis;

// The index into the operand's axis from which |load| cuts both axes; NULL if there is none.
static const kiln_expr *whole_of(const kiln_expr *load, const cut_axis *c) {
  const kiln_expr *outer = load->args[c->axis], *inner = load->args[c->axis + 1];
  int64_t by_outer, by_inner;
  const bool is_cut = outer->kind == KILN_EXPR_DIV && inner->kind == KILN_EXPR_MOD &&
                      outer->args[0] == inner->args[0] &&
                      kiln_expr_is_int(outer->args[1], &by_outer) &&
                      kiln_expr_is_int(inner->args[1], &by_inner);
  return is_cut && by_outer == c->inner && by_inner == c->inner ? outer->args[0] : NULL;
}

// Replaces a load of the tensor by one with the merged axis.
static const kiln_expr *join_load(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  const cut_axis *c = argument;
  const kiln_expr *index[KILN_MAX_RANK];
  if (e->kind != KILN_EXPR_LOAD || e->u.tensor != c->tensor) return NULL;
  const kiln_expr *whole = whole_of(e, c);
  for (int k = 0, n = 0; k < e->n_args; k++)
    if (k != c->axis + 1)
      index[n++] = kiln_expr_replace(cx, k == c->axis ? whole : e->args[k], join_load, argument);
  return kiln_load(cx, c->joined, e->dtype, e->n_args - 1, index);
}

static const kiln_expr *joined_reader(kiln_ctx *cx, const kiln_expr *e, cut_axis *c) {
  return e ? kiln_expr_replace(cx, e, join_load, c) : NULL;
}

// |e| of the map |s| over the merged dim, which keeps the first dim's name.
static const kiln_expr *joined_body(kiln_ctx *cx, const kiln_stmt *s, const kiln_expr *e,
                                    const cut_axis *c) {
  const kiln_symbol vars[] = {s->dims[c->axis].name, s->dims[c->axis + 1].name};
  const kiln_expr *whole = kiln_var(cx, vars[0]), *inner = kiln_int(cx, c->inner),
                  *const values[] = {kiln_div(cx, whole, inner), kiln_mod(cx, whole, inner)};
  kiln_ranges r = kiln_stmt_ranges(&cx->scratch, s);
  kiln_ranges_push(&r, vars[0], 0, kiln_dim_extent(&s->dims[c->axis]) * c->inner - 1);
  return kiln_simplify(cx, kiln_expr_substitute(cx, e, 2, vars, values), &r);
}

// Whether |s| indexes an operand's axis by both of its dims merged.
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

// --- depthwise convolutions with a channel multiplier ---

// A copy of the constant |t| with the two axes merged.
static int join_constant(kiln_ctx *cx, kiln_program *p, const kiln_tensor *t, const cut_axis *c) {
  kiln_const joined = {.dtype = t->dtype, .rank = t->rank - 1, .data = t->data, .bytes = t->bytes};
  int64_t shape[KILN_MAX_RANK];
  (void)kiln_tensor_static_shape(t, shape);
  for (int k = 0; k < joined.rank; k++)
    joined.shape[k] = k < c->axis ? shape[k] : k == c->axis ? shape[k] * c->inner : shape[k + 1];
  return kiln_tensor_make_const(cx, p, kiln_symbol_text(cx, t->name), &joined)->id;
}

// Whether |load| is indexed by the first of the two axes alone, at its own index, and is contiguous
// along it.
static bool reads_group(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s,
                        const kiln_expr *load, const cut_axis *c) {
  const kiln_expr *group = kiln_stmt_var(cx, s, c->axis);
  const kiln_tensor *t = p->tensors.data[load->u.tensor];
  int n = 0;
  for (int k = 0; k < load->n_args; k++) {
    if (kiln_expr_uses(load->args[k], s->dims[c->axis + 1].name)) return false;
    if (!kiln_expr_uses(load->args[k], s->dims[c->axis].name)) continue;
    if (kiln_stmt_simplify(cx, s, load->args[k]) != group || t->order[t->rank - 1] != k)
      return false;
    n++;
  }
  return n == 1;
}

// The axis k of |load| such that k and k + 1 are indexed by the two axes of |c|, and no other is;
// -1: none.
static int axis_of_both(kiln_ctx *cx, const kiln_stmt *s, const kiln_expr *load,
                        const cut_axis *c) {
  int at = -1, n = 0;
  for (int k = 0; k < load->n_args; k++) {
    if (k + 1 < load->n_args && load->args[k] == kiln_stmt_var(cx, s, c->axis) &&
        load->args[k + 1] == kiln_stmt_var(cx, s, c->axis + 1))
      at = k;
    n += kiln_expr_uses(load->args[k], s->dims[c->axis].name) ||
         kiln_expr_uses(load->args[k], s->dims[c->axis + 1].name);
  }
  return n == 2 ? at : -1;
}

// The weights of such a convolution; NULL: |s| is not one.
static const kiln_expr *group_weights(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s,
                                      const cut_axis *c) {
  const kiln_expr *a = NULL, *b = NULL;
  if (!kiln_stmt_is_contraction(s, &a, &b) || s->guard || !kiln_dtype_is_float(s->body->dtype))
    return NULL;
  const bool is_first = p->tensors.data[a->u.tensor]->role == KILN_CONST;
  const kiln_expr *w = is_first ? a : b, *x = is_first ? b : a;
  const kiln_tensor *t = p->tensors.data[w->u.tensor];
  const bool is_known = t->role == KILN_CONST && t->data;
  return is_known && reads_group(cx, p, s, x, c) && axis_of_both(cx, s, w, c) >= 0 ? w : NULL;
}

// Replaces a load of the weights by one with the merged axis.
static const kiln_expr *join_weights(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  const cut_axis *c = argument;
  const kiln_expr *index[KILN_MAX_RANK];
  if (e->kind != KILN_EXPR_LOAD || e->u.tensor != c->tensor) return NULL;
  const kiln_expr *whole =
      kiln_add(cx, kiln_mul(cx, e->args[c->axis], kiln_int(cx, c->inner)), e->args[c->axis + 1]);
  for (int k = 0, n = 0; k < e->n_args; k++)
    if (k != c->axis + 1) index[n++] = k == c->axis ? whole : e->args[k];
  return kiln_load(cx, c->joined, e->dtype, e->n_args - 1, index);
}

// --- the pass ---

static void join(kiln_ctx *cx, kiln_program *p, const kiln_users *users, kiln_stmt *s,
                 cut_axis *c) {
  kiln_tensor *t = p->tensors.data[s->out];
  const int n_dims = s->n_space + s->n_reduce;
  const kiln_expr **shape = KILN_NEW_ARRAY(&cx->perm, const kiln_expr *, t->rank);
  kiln_dim *dims = KILN_NEW_ARRAY(&cx->perm, kiln_dim, n_dims);
  const kiln_expr **index = KILN_NEW_ARRAY(&cx->perm, const kiln_expr *, t->rank);
  s->body = joined_body(cx, s, s->body, c);
  for (int k = 0, n = 0; k < n_dims; k++) {
    if (k == c->axis + 1) continue;
    dims[n] = s->dims[k];
    if (k == c->axis) dims[n].extent = kiln_int(cx, kiln_dim_extent(&s->dims[k]) * c->inner);
    if (k < t->rank) {
      shape[n] = dims[n].extent;
      index[n] = kiln_var(cx, dims[n].name);
    }
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
         kiln_stmt_is_plain(cx, s) && s->n_space == t->rank && c->inner > 1 &&
         all_read_whole(cx, p, users, c);
}

// needs: kiln_tile_inline has run, orders are those of the axes
kiln_status kiln_tile_coalesce(kiln_ctx *cx, kiln_program *p) {
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  const kiln_users users = kiln_users_make(cx, &cx->scratch, p);
  for (int i = 0; i < p->stmts.n; i++) {
    kiln_stmt *s = p->stmts.data[i];
    for (int axis = 0; s && axis + 1 < s->n_space; axis++) {
      cut_axis c = {s->out, axis, kiln_dim_extent(&s->dims[axis + 1]), s->out};
      if (kiln_stmt_is_map(cx, s) && may_join(cx, p, &users, s, &c) && reads_whole(cx, p, s, &c))
        join(cx, p, &users, s, &c);
    }
  }
  kiln_arena_rewind(&cx->scratch, mark);
  return KILN_OK;
}

// Whether tiles of two vectors, the widest of sliding-window kernels, begin at group boundaries.
static bool are_whole(const kiln_machine *m, const kiln_stmt *s, const cut_axis *c) {
  const int64_t lanes = m->vector_bytes / kiln_dtype_bytes(s->body->dtype);
  return c->inner > 1 && c->inner < lanes && lanes % c->inner == 0 &&
         kiln_dim_extent(&s->dims[c->axis]) * c->inner % (2 * lanes) == 0;
}

// Whether all readers of |s| are maps stored contiguously along |axis|, the first of the merged
// axes.
static bool are_stored_along(const kiln_ctx *cx, const kiln_program *p, const kiln_users *users,
                             const kiln_stmt *s, int axis) {
  for (int u = users->first[s->out]; u < users->first[s->out + 1]; u++) {
    const kiln_stmt *reader = p->stmts.data[users->users[u]];
    const kiln_tensor *t = p->tensors.data[reader->out];
    if (!kiln_stmt_is_map(cx, reader) || t->rank != s->n_space - 1 || t->order[t->rank - 1] != axis)
      return false;
  }
  return true;
}

// Stores the results of |s| channels last, like its data.
static void join_groups(kiln_ctx *cx, kiln_program *p, const kiln_users *users, kiln_stmt *s,
                        const kiln_expr *w, cut_axis *c) {
  kiln_tensor *t = p->tensors.data[s->out];
  cut_axis weights = {w->u.tensor, axis_of_both(cx, s, w, c), c->inner, 0};
  weights.joined = join_constant(cx, p, p->tensors.data[w->u.tensor], &weights);
  s->body = kiln_expr_replace(cx, s->body, join_weights, &weights);
  join(cx, p, users, s, c);
  for (int k = 0, n = 0; k < t->rank; k++)
    if (k != c->axis) t->order[n++] = (int8_t)k;
  t->order[t->rank - 1] = (int8_t)c->axis;
}

// needs: kiln_tile_layout has run
void kiln_tile_coalesce_groups(kiln_ctx *cx, kiln_program *p, const kiln_machine *m) {
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  const kiln_users users = kiln_users_make(cx, &cx->scratch, p);
  for (int i = 0; i < p->stmts.n; i++) {
    kiln_stmt *s = p->stmts.data[i];
    for (int axis = 0; s && axis + 1 < s->n_space; axis++) {
      cut_axis c = {s->out, axis, kiln_dim_extent(&s->dims[axis + 1]), s->out};
      const kiln_expr *w = are_whole(m, s, &c) ? group_weights(cx, p, s, &c) : NULL;
      if (w && are_stored_along(cx, p, &users, s, axis) && may_join(cx, p, &users, s, &c))
        join_groups(cx, p, &users, s, w, &c);
    }
  }
  kiln_arena_rewind(&cx->scratch, mark);
}
