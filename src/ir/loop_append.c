// Concatenation of loop programs.
#include "ir/loop.h"

typedef struct appending {
  kiln_ctx *cx;
  const char *suffix;
  int first;      // new id of |from|'s first buffer
  kiln_map names; // loop variable -> new name
} appending;

static kiln_symbol renamed(const appending *a, kiln_symbol name) {
  return kiln_symbol_printf(a->cx, "%s%s", kiln_symbol_text(a->cx, name), a->suffix);
}

static const kiln_expr *moved(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  const appending *a = argument;
  const kiln_expr *index[KILN_MAX_RANK + 4];
  if (e->kind == KILN_EXPR_VAR) {
    const uint64_t *name = kiln_map_find(&a->names, e->u.sym);
    return name ? kiln_var(cx, (kiln_symbol)*name) : NULL;
  }
  if (e->kind != KILN_EXPR_LOAD) return NULL;
  for (int k = 0; k < e->n_args; k++) index[k] = kiln_expr_replace(cx, e->args[k], moved, argument);
  return kiln_load(cx, e->u.tensor + a->first, e->dtype, e->n_args, index);
}

static const kiln_expr *move(appending *a, const kiln_expr *e) {
  return e ? kiln_expr_replace(a->cx, e, moved, a) : NULL;
}

static const kiln_expr **move_all(appending *a, int n, const kiln_expr *const *from) {
  const kiln_expr **to = KILN_NEW_ARRAY(&a->cx->perm, const kiln_expr *, n);
  for (int k = 0; k < n; k++) to[k] = move(a, from[k]);
  return to;
}

static void name_loops(appending *a, const kiln_loop *l) {
  for (; l; l = l->next) {
    if (l->kind == KILN_LOOP_FOR) kiln_map_put(&a->names, l->var, renamed(a, l->var));
    name_loops(a, l->body);
  }
}

static void move_nodes(appending *a, const kiln_loops *from, kiln_loop *l) {
  for (; l; l = l->next) {
    if (l->kind == KILN_LOOP_FOR) l->var = renamed(a, l->var);
    if (l->index) l->index = move_all(a, from->buffers.data[l->buffer]->rank, l->index);
    if (l->operands) l->operands = move_all(a, l->n_operands, l->operands);
    if (l->buffer >= 0) l->buffer += a->first;
    l->extent = move(a, l->extent);
    l->cond = move(a, l->cond);
    l->value = move(a, l->value);
    move_nodes(a, from, l->body);
  }
}

kiln_loop *kiln_loops_append(kiln_ctx *cx, kiln_loops *to, const kiln_loops *from,
                             const char *suffix) {
  appending a = {.cx = cx, .suffix = suffix, .first = to->buffers.n};
  kiln_loops *copy = kiln_loops_copy(&cx->perm, from);
  kiln_map_init(&a.names, &cx->scratch);
  name_loops(&a, from->body);
  move_nodes(&a, from, copy->body);
  for (int i = 0; i < copy->buffers.n; i++) {
    kiln_buffer *b = copy->buffers.data[i];
    b->id += a.first;
    b->name = renamed(&a, b->name);
    KILN_VEC_PUSH(&cx->perm, &to->buffers, b);
  }
  return copy->body;
}
