// split: a loop becomes an outer and an inner one. peel: a loop is cut in two.
#include "schedule/index.h"
#include "schedule/legality.h"
#include "support/integer.h"

#include <string.h>

// --- peel ---

typedef struct renaming {
  kiln_edit *e;
  kiln_vars from, to;
  int *buffers; // [number of buffers before]: the copy's id
  int n_buffers;
  char suffix[64];
} renaming;

static kiln_symbol suffixed(const renaming *r, kiln_symbol name) {
  return kiln_symbol_printf(r->e->cx, "%s%s", kiln_edit_text(r->e, name), r->suffix);
}

static bool has_buffer(const kiln_edit *e, kiln_symbol name) {
  for (int i = 0; i < e->l->buffers.n; i++)
    if (e->l->buffers.data[i]->name == name) return true;
  return false;
}

static bool suffix_is_free(const renaming *r, const kiln_loop *l) {
  if (l->kind == KILN_LOOP_FOR && kiln_loops_find(r->e->l, suffixed(r, l->var))) return false;
  if (l->kind == KILN_LOOP_ALLOC &&
      has_buffer(r->e, suffixed(r, r->e->l->buffers.data[l->buffer]->name)))
    return false;
  for (const kiln_loop *b = l->body; b; b = b->next)
    if (!suffix_is_free(r, b)) return false;
  return true;
}

// Renames the loop variables and buffers of a copied nest.
static void rename_all(renaming *r, kiln_loop *first) {
  kiln_edit *e = r->e;
  for (kiln_loop *l = first; l; l = l->next) {
    if (l->kind == KILN_LOOP_FOR) {
      const kiln_symbol to = suffixed(r, l->var);
      KILN_VEC_PUSH(&e->cx->perm, &r->from, l->var);
      KILN_VEC_PUSH(&e->cx->perm, &r->to, to);
      l->var = to;
    }
    if (l->kind == KILN_LOOP_ALLOC) {
      const kiln_buffer *b = e->l->buffers.data[l->buffer];
      const char *to = kiln_edit_text(e, suffixed(r, b->name));
      r->buffers[b->id] =
          kiln_buffer_make(e->cx, e->l, to, b->dtype, b->scope, b->rank, b->extents, b->strides)
              ->id;
    }
    rename_all(r, l->body);
  }
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

kiln_status kiln_nest_twin(kiln_edit *e, kiln_loop *loop, kiln_loop **out) {
  kiln_ctx *cx = e->cx;
  renaming r = {.e = e, .n_buffers = e->l->buffers.n};
  kiln_loop *twin = kiln_loops_find(kiln_schedule_copy(e->s, e->l), loop->var);
  twin->next = *out = NULL;
  do {
    if (strlen(r.suffix) + 3 > sizeof r.suffix)
      return kiln_refuse(e, "loop %s must be cut less often", kiln_edit_text(e, loop->var));
    strcat(r.suffix, ".b");
  } while (!suffix_is_free(&r, loop));
  r.buffers = KILN_NEW_ARRAY(&cx->perm, int, r.n_buffers);
  for (int i = 0; i < r.n_buffers; i++) r.buffers[i] = i;
  rename_all(&r, twin);
  kiln_nest_map(cx, e->l, twin, renamed, &r);
  rename_stores(&r, twin);
  *out = twin;
  return KILN_OK;
}

// Makes the iterations from |at| on a nest of their own, |*out|, after the loop.
static kiln_status cut(kiln_edit *e, kiln_loop *l, int64_t at, kiln_loop **out) {
  kiln_ctx *cx = e->cx;
  int64_t extent = 0;
  KILN_TRY(kiln_edit_extent(e, l, &extent));
  KILN_TRY(kiln_nest_twin(e, l, out));
  kiln_loop *rest = *out;
  const kiln_expr *moved = kiln_add(cx, kiln_var(cx, rest->var), kiln_int(cx, at));
  kiln_nest_substitute(cx, e->l, rest->body, 1, &rest->var, &moved);
  l->extent = kiln_int(cx, at);
  rest->extent = kiln_int(cx, extent - at);
  rest->next = l->next;
  l->next = rest;
  return KILN_OK;
}

kiln_status kiln_peel(kiln_schedule *s, kiln_symbol loop, int64_t at) {
  kiln_edit e = kiln_edit_begin(s, "peel", loop);
  kiln_loop *l = NULL, *rest = NULL;
  int64_t extent = 0;
  KILN_TRY(kiln_edit_loop(&e, loop, &l));
  KILN_TRY(kiln_edit_extent(&e, l, &extent));
  KILN_TRY(kiln_edit_serial(&e, l));
  if (at <= 0 || at >= extent)
    return kiln_refuse(&e, "cut must lie inside the extent %" PRId64 ", got %" PRId64, extent, at);
  KILN_TRY(cut(&e, l, at, &rest));
  return kiln_edit_commit(&e, "peel %s %" PRId64, kiln_edit_word(&e, loop), at);
}

// --- split ---

static const char *const tail_words[] = {[KILN_TAIL_GUARD] = "guard",
                                         [KILN_TAIL_SHIFT] = "shift",
                                         [KILN_TAIL_PEEL] = "peel",
                                         [KILN_TAIL_ROUND] = "round",
                                         [KILN_TAIL_EXACT] = "exact"};

const char *kiln_tail_text(kiln_tail tail) { return tail_words[tail]; }

// Prepares a ragged loop for splitting, by the tail's kind; |*extent| is then the extent to split.
static kiln_status prepare_tail(kiln_edit *e, kiln_loop *l, int64_t factor, kiln_tail tail,
                                int64_t *extent) {
  kiln_loop *rest = NULL;
  if ((tail == KILN_TAIL_SHIFT || tail == KILN_TAIL_PEEL) && factor > *extent)
    return kiln_refuse(e,
                       "factor of a %s tail must be at most the extent %" PRId64 ", got %" PRId64,
                       tail == KILN_TAIL_SHIFT ? "shifted" : "peeled", *extent, factor);
  switch (tail) {
  case KILN_TAIL_GUARD: break;
  case KILN_TAIL_SHIFT: return kiln_check_recompute(e, l);
  case KILN_TAIL_PEEL: *extent -= *extent % factor; return cut(e, l, *extent, &rest);
  case KILN_TAIL_ROUND:
    KILN_TRY(kiln_pad_loop(e, l, factor));
    return kiln_edit_extent(e, l, extent);
  case KILN_TAIL_EXACT:
    return kiln_refuse(e,
                       "factor must divide the extent %" PRId64 ", got %" PRId64
                       ": use guard, shift, peel or round",
                       *extent, factor);
  }
  return KILN_OK;
}

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
  if (extent > INT64_MAX - factor)
    return kiln_refuse(&e, "extent %" PRId64 " must be smaller", extent);
  if (extent % factor != 0) KILN_TRY(prepare_tail(&e, l, factor, tail, &extent));
  const bool ragged = extent % factor != 0;
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
  l->extent = kiln_int(cx, kiln_divide_up(extent, factor));
  return kiln_edit_commit(&e, "split %s %" PRId64 " %s %s %s", kiln_edit_word(&e, loop), factor,
                          kiln_tail_text(tail), kiln_edit_word(&e, outer),
                          kiln_edit_word(&e, inner));
}
