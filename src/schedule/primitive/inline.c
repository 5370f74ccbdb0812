// inline: replaces loads of a buffer without a reduction by its definition. prepack: computes a
// rearranged constant at compile time.
#include "schedule/nest.h"

typedef struct inlining {
  kiln_edit e;
  kiln_buffer *b;
  kiln_loop *store;
  int n_vars; // loops around the store, and the axis that each indexes
  kiln_symbol vars[KILN_MAX_AXES];
  int axis[KILN_MAX_AXES];
} inlining;

// Finds the only store of the buffer, in a nest of its own whose loops are the store's indices.
static kiln_status find_definition(inlining *w) {
  kiln_edit *e = &w->e;
  const kiln_accesses all = kiln_accesses_of(e->cx, e->l, e->l->body, true, w->b->id);
  int n_writes = 0;
  for (int i = 0; i < all.n; i++) {
    if (!all.data[i].write) continue;
    w->store = all.data[i].node;
    n_writes++;
  }
  if (n_writes != 1 || w->store->kind != KILN_LOOP_STORE || w->store->combiner != KILN_COMBINE_NONE)
    return kiln_refuse(
        e, "buffer must be assigned by one statement without a reduction: use compute_at");
  kiln_loop *path[KILN_MAX_DEPTH];
  const int depth = kiln_nest_path(e->l, w->store, path);
  for (int d = 0; d + 1 < depth; d++) {
    int64_t extent = 0;
    if (path[d]->kind != KILN_LOOP_FOR || path[d]->body->next)
      return kiln_refuse(e, "buffer must have a nest of loops of its own");
    KILN_TRY(kiln_edit_extent(e, path[d], &extent));
    if (extent == 1) continue;
    int at = -1;
    for (int k = 0; k < w->b->rank; k++) {
      const kiln_expr *x = w->store->index[k];
      if (x->kind == KILN_EXPR_VAR && x->u.sym == path[d]->var) at = k;
    }
    if (at < 0 || w->n_vars == KILN_MAX_AXES)
      return kiln_refuse(
          e, "loop %s must be an index of the buffer: inline before splitting its loops",
          kiln_edit_text(e, path[d]->var));
    w->vars[w->n_vars] = path[d]->var;
    w->axis[w->n_vars++] = at;
  }
  for (int k = 0; k < w->b->rank; k++) // the nest must write the whole buffer
    if (w->store->index[k]->kind != KILN_EXPR_VAR && w->b->extents[k] != 1)
      return kiln_refuse(e, "axis %d of the buffer must be written by one loop over its extent", k);
  return KILN_OK;
}

// Requires that the definition's operands have the same contents at every use, and that no
// instruction uses the buffer.
static kiln_status check_uses(inlining *w, kiln_loop *nest) {
  kiln_edit *e = &w->e;
  const kiln_accesses reads = kiln_accesses_of(e->cx, e->l, nest, false, -1);
  for (int i = 0; i < reads.n; i++)
    for (kiln_loop *n = nest->next; n && !reads.data[i].write; n = n->next)
      if (kiln_nest_uses(e->cx, e->l, n, reads.data[i].buffer, true))
        return kiln_refuse(e, "buffer %s, which the definition reads, must not be written later",
                           kiln_edit_text(e, e->l->buffers.data[reads.data[i].buffer]->name));
  const kiln_accesses uses = kiln_accesses_of(e->cx, e->l, e->l->body, true, w->b->id);
  for (int i = 0; i < uses.n; i++)
    if (uses.data[i].opaque)
      return kiln_refuse(e, "buffer must not be used by an instruction: inline before tensorize");
  return KILN_OK;
}

static const kiln_expr *expand(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  inlining *w = argument;
  if (e->kind != KILN_EXPR_LOAD || e->u.tensor != w->b->id) return NULL;
  const kiln_expr *values[KILN_MAX_AXES];
  for (int i = 0; i < w->n_vars; i++)
    values[i] = kiln_expr_replace(cx, e->args[w->axis[i]], expand, argument);
  return kiln_expr_substitute(cx, w->store->value, w->n_vars, w->vars, values);
}

static const kiln_expr *renumber(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  const int gone = *(const int *)argument;
  if (e->kind != KILN_EXPR_LOAD) return NULL;
  const kiln_expr *index[KILN_MAX_AXES];
  for (int k = 0; k < e->n_args; k++)
    index[k] = kiln_expr_replace(cx, e->args[k], renumber, argument);
  return kiln_load(cx, e->u.tensor - (e->u.tensor > gone), e->dtype, e->n_args, index);
}

static void renumber_stores(kiln_loop *first, int gone) {
  for (; first; first = first->next) {
    if (first->buffer > gone) first->buffer--;
    renumber_stores(first->body, gone);
  }
}

// Removes the buffer; buffers are numbered densely, so later ones get new numbers.
static void remove_buffer(inlining *w) {
  kiln_loops *l = w->e.l;
  int gone = w->b->id;
  kiln_nest_drop_hints(&l->body, gone);
  kiln_nest_map(w->e.cx, l, l->body, renumber, &gone);
  renumber_stores(l->body, gone);
  for (int i = gone; i + 1 < l->buffers.n; i++) {
    l->buffers.data[i] = l->buffers.data[i + 1];
    l->buffers.data[i]->id = i;
  }
  l->buffers.n--;
}

kiln_status kiln_inline(kiln_schedule *s, kiln_symbol producer) {
  inlining w = {.e = kiln_edit_begin(s, "inline", producer)};
  kiln_loop *path[KILN_MAX_DEPTH];
  KILN_TRY(kiln_edit_buffer(&w.e, producer, &w.b));
  if (w.b->scope != KILN_SCOPE_WORKSPACE)
    return kiln_refuse(&w.e, "buffer must be a temporary that no loop holds");
  KILN_TRY(find_definition(&w));
  kiln_nest_path(w.e.l, w.store, path);
  KILN_TRY(check_uses(&w, path[0]));
  kiln_loop **slot = kiln_nest_slot(w.e.l, path[0]);
  *slot = path[0]->next;
  kiln_nest_map(w.e.cx, w.e.l, w.e.l->body, expand, &w);
  remove_buffer(&w);
  return kiln_edit_commit(&w.e, "inline %s", kiln_edit_word(&w.e, producer));
}

// --- prepack ---

// The constant's element that |value| loads, as an index for each axis, and the condition under
// which it is loaded; the value is zero otherwise.
static kiln_status read_source(inlining *w, const kiln_expr **out_load,
                               const kiln_expr **out_valid) {
  const kiln_expr *value = w->store->value;
  *out_valid = NULL;
  if (value->kind == KILN_EXPR_SELECT && kiln_expr_is_zero(value->args[2])) {
    *out_valid = value->args[0];
    value = value->args[1];
  }
  const kiln_buffer *c =
      value->kind == KILN_EXPR_LOAD ? w->e.l->buffers.data[value->u.tensor] : NULL;
  const bool is_const = c && c->scope == KILN_SCOPE_PARAM && !c->pack && c->tensor >= 0 &&
                        w->e.s->prog->tensors.data[c->tensor]->role == KILN_CONST;
  if (!is_const || (*out_valid && kiln_expr_has_load(*out_valid)))
    return kiln_refuse(&w->e, "buffer must hold elements of a constant, as they are, or zero");
  const kiln_accesses all = kiln_accesses_of(w->e.cx, w->e.l, w->e.l->body, true, c->id);
  if (all.n != 1)
    return kiln_refuse(&w->e, "constant %s must be read nowhere else",
                       kiln_edit_text(&w->e, c->name));
  *out_load = value;
  return KILN_OK;
}

// The map from the buffer's index to the source's: -1 where the element is zero.
static const kiln_pack *make_pack(inlining *w, const kiln_expr *load, const kiln_expr *valid) {
  kiln_ctx *cx = w->e.cx;
  const kiln_expr *vars[KILN_MAX_AXES];
  kiln_pack *p = KILN_NEW(&cx->perm, kiln_pack);
  for (int i = 0; i < w->n_vars; i++)
    vars[i] = kiln_var(cx, kiln_symbol_printf(cx, "o%d", w->axis[i]));
  p->source = w->e.l->buffers.data[load->u.tensor]->tensor;
  p->rank = load->n_args;
  p->map = KILN_NEW_ARRAY(&cx->perm, const kiln_expr *, p->rank);
  for (int k = 0; k < p->rank; k++) {
    const kiln_expr *index = load->args[k];
    if (valid) index = kiln_select(cx, valid, index, kiln_int(cx, -1));
    p->map[k] = kiln_expr_substitute(cx, index, w->n_vars, w->vars, vars);
  }
  return p;
}

static const kiln_expr *read_other(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  const int *ids = argument;
  if (e->kind != KILN_EXPR_LOAD || e->u.tensor != ids[0]) return NULL;
  const kiln_expr *index[KILN_MAX_AXES];
  for (int k = 0; k < e->n_args; k++)
    index[k] = kiln_expr_replace(cx, e->args[k], read_other, argument);
  return kiln_load(cx, ids[1], e->dtype, e->n_args, index);
}

kiln_status kiln_prepack(kiln_schedule *s, kiln_symbol buffer) {
  inlining w = {.e = kiln_edit_begin(s, "prepack", buffer)};
  kiln_loop *path[KILN_MAX_DEPTH];
  const kiln_expr *load = NULL, *valid = NULL;
  KILN_TRY(kiln_edit_buffer(&w.e, buffer, &w.b));
  if (w.b->scope != KILN_SCOPE_WORKSPACE)
    return kiln_refuse(&w.e, "buffer must be a temporary that no loop holds");
  KILN_TRY(find_definition(&w));
  KILN_TRY(read_source(&w, &load, &valid));
  kiln_nest_path(w.e.l, w.store, path);
  KILN_TRY(check_uses(&w, path[0]));
  kiln_buffer *constant = w.e.l->buffers.data[load->u.tensor];
  constant->pack = make_pack(&w, load, valid);
  constant->tensor = -1;
  kiln_buffer_reshape(constant, w.b->rank, w.b->extents);
  kiln_loop **slot = kiln_nest_slot(w.e.l, path[0]);
  *slot = path[0]->next;
  int ids[2] = {w.b->id, constant->id};
  kiln_nest_map(w.e.cx, w.e.l, w.e.l->body, read_other, ids);
  const kiln_symbol name = w.b->name;
  remove_buffer(&w);
  constant->name = name;
  return kiln_edit_commit(&w.e, "prepack %s", kiln_edit_word(&w.e, buffer));
}
