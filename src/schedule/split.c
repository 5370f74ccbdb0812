// split: a loop becomes an outer and an inner one. peel: a loop is cut in two.
#include "schedule/edit.h"

kiln_status kiln_split(kiln_schedule *s, kiln_symbol loop, int64_t factor, kiln_tail tail,
                       kiln_symbol outer, kiln_symbol inner) {
  kiln_edit e = kiln_edit_begin(s, "split", loop);
  kiln_ctx *cx = e.cx;
  kiln_loop *l = NULL;
  int64_t extent = 0;
  if (factor <= 0) return kiln_refuse(&e, "factor must be positive, got %" PRId64, factor);
  KILN_TRY(kiln_edit_loop(&e, loop, &l));
  KILN_TRY(kiln_edit_extent(&e, l, &extent));
  KILN_TRY(kiln_edit_serial(&e, l));
  if (!outer) outer = kiln_symbol_printf(cx, "%s.o", kiln_edit_text(&e, loop));
  if (!inner) inner = kiln_symbol_printf(cx, "%s.i", kiln_edit_text(&e, loop));
  KILN_TRY(kiln_edit_new_loop(&e, outer));
  KILN_TRY(kiln_edit_new_loop(&e, inner));
  if (outer == inner) return kiln_refuse(&e, "new loops must have two names");
  const bool ragged = extent % factor != 0;
  if (ragged && tail == KILN_TAIL_SHIFT) {
    if (factor > extent)
      return kiln_refuse(
          &e, "factor of a shifted tail must be at most the extent %" PRId64 ", got %" PRId64,
          extent, factor);
    KILN_TRY(kiln_check_recompute(&e, l));
  }
  const kiln_expr *base = kiln_mul(cx, kiln_var(cx, outer), kiln_int(cx, factor));
  if (ragged && tail == KILN_TAIL_SHIFT)
    base = kiln_binary(cx, KILN_EXPR_MIN, base, kiln_int(cx, extent - factor));
  const kiln_expr *value = kiln_add(cx, base, kiln_var(cx, inner));
  kiln_nest_substitute(cx, e.l, l->body, 1, &loop, &value);
  kiln_loop *body = l->body;
  if (ragged && tail == KILN_TAIL_GUARD)
    body = kiln_if_make(cx, kiln_binary(cx, KILN_EXPR_LT, value, kiln_int(cx, extent)), body);
  l->body = kiln_for_make(cx, inner, kiln_int(cx, factor), body);
  l->var = outer;
  l->extent = kiln_int(cx, (extent + factor - 1) / factor);
  return kiln_edit_commit(&e, "split %s %" PRId64 " %s %s %s", kiln_edit_word(&e, loop), factor,
                          tail == KILN_TAIL_SHIFT ? "shift" : "guard", kiln_edit_word(&e, outer),
                          kiln_edit_word(&e, inner));
}

// --- peel ---

typedef struct renaming {
  kiln_edit *e;
  kiln_vars from, to;
  int *buffers; // [number of buffers before]: the copy's id
  int n_buffers;
} renaming;

// Gives a copy of a nest its own loop variables and its own buffers.
static kiln_status rename_all(renaming *r, kiln_loop *first) {
  kiln_edit *e = r->e;
  for (kiln_loop *l = first; l; l = l->next) {
    if (l->kind == KILN_LOOP_FOR) {
      const kiln_symbol to = kiln_symbol_printf(e->cx, "%s.b", kiln_edit_text(e, l->var));
      KILN_TRY(kiln_edit_new_loop(e, to));
      KILN_VEC_PUSH(&e->cx->perm, &r->from, l->var);
      KILN_VEC_PUSH(&e->cx->perm, &r->to, to);
      l->var = to;
    }
    if (l->kind == KILN_LOOP_ALLOC) {
      const kiln_buffer *b = e->l->buffers.data[l->buffer];
      const kiln_symbol to = kiln_symbol_printf(e->cx, "%s.b", kiln_edit_text(e, b->name));
      KILN_TRY(kiln_edit_new_buffer(e, to));
      r->buffers[b->id] = kiln_buffer_make(e->cx, e->l, kiln_edit_text(e, to), b->dtype, b->scope,
                                           b->rank, b->extents, b->strides)
                              ->id;
    }
    KILN_TRY(rename_all(r, l->body));
  }
  return KILN_OK;
}

static const kiln_expr *renamed(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  renaming *r = argument;
  if (e->kind == KILN_EXPR_VAR)
    for (int i = 0; i < r->from.n; i++)
      if (r->from.data[i] == e->u.sym) return kiln_var(cx, r->to.data[i]);
  if (e->kind != KILN_EXPR_LOAD || r->buffers[e->u.tensor] == e->u.tensor) return NULL;
  const kiln_expr *index[KILN_MAX_AXES];
  for (int k = 0; k < e->n_args; k++) index[k] = kiln_expr_replace(cx, e->args[k], renamed, r);
  return kiln_load(cx, r->buffers[e->u.tensor], e->dtype, e->n_args, index);
}

static void rename_stores(const renaming *r, kiln_loop *first) {
  for (kiln_loop *l = first; l; l = l->next) {
    if (l->buffer >= 0) l->buffer = r->buffers[l->buffer];
    rename_stores(r, l->body);
  }
}

kiln_status kiln_peel(kiln_schedule *s, kiln_symbol loop, int64_t at) {
  kiln_edit e = kiln_edit_begin(s, "peel", loop);
  kiln_ctx *cx = e.cx;
  kiln_loop *l = NULL;
  int64_t extent = 0;
  KILN_TRY(kiln_edit_loop(&e, loop, &l));
  KILN_TRY(kiln_edit_extent(&e, l, &extent));
  KILN_TRY(kiln_edit_serial(&e, l));
  if (at <= 0 || at >= extent)
    return kiln_refuse(&e, "cut must lie inside the extent %" PRId64 ", got %" PRId64, extent, at);
  kiln_loop *rest = kiln_loops_find(kiln_loops_copy(cx, e.l), loop);
  kiln_loop *next = l->next;
  rest->next = NULL;
  renaming r = {.e = &e, .n_buffers = e.l->buffers.n};
  r.buffers = KILN_NEW_ARRAY(&cx->perm, int, r.n_buffers);
  for (int i = 0; i < r.n_buffers; i++) r.buffers[i] = i;
  KILN_TRY(rename_all(&r, rest));
  kiln_nest_map(cx, e.l, rest, renamed, &r);
  rename_stores(&r, rest);
  const kiln_expr *moved = kiln_add(cx, kiln_var(cx, rest->var), kiln_int(cx, at));
  kiln_nest_substitute(cx, e.l, rest->body, 1, &rest->var, &moved);
  l->extent = kiln_int(cx, at);
  rest->extent = kiln_int(cx, extent - at);
  l->next = rest;
  rest->next = next;
  return kiln_edit_commit(&e, "peel %s %" PRId64, kiln_edit_word(&e, loop), at);
}
