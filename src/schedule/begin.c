// The naive loops of a kernel: one nest for each statement, and one before it for initial values.
#include "schedule/nest.h"

typedef struct maker {
  kiln_edit e;
  const kiln_program *p;
  kiln_loop **end; // of the top-level nests
} maker;

static kiln_status make_buffer(maker *m, const kiln_tensor *t) {
  int64_t shape[KILN_MAX_RANK], strides[KILN_MAX_RANK];
  const char *name = kiln_edit_text(&m->e, t->name);
  if (!kiln_tensor_static_shape(t, shape))
    return kiln_refuse(&m->e, "tensor %s: shape must be static: bind the named dimensions", name);
  const bool param = kiln_tensor_is_param(m->p, t->id);
  if (param) kiln_tensor_strides(t, strides);
  kiln_buffer *b = kiln_buffer_make(m->e.cx, m->e.l, name, t->dtype,
                                    param ? KILN_SCOPE_PARAM : KILN_SCOPE_WORKSPACE, t->rank, shape,
                                    param ? strides : NULL);
  if (param) b->tensor = t->id;
  return KILN_OK;
}

static bool index_is_identity(const kiln_stmt *s, int rank) {
  if (s->n_space != rank) return false;
  for (int k = 0; k < rank; k++)
    if (s->index[k]->kind != KILN_EXPR_VAR || s->index[k]->u.sym != s->dims[k].name) return false;
  return true;
}

static void append(maker *m, kiln_loop *nest) {
  *m->end = nest;
  m->end = &nest->next;
}

// Makes the nest T(o) = init(o) over all elements.
static void make_init(maker *m, const kiln_stmt *s, const kiln_tensor *t, const kiln_buffer *b) {
  kiln_ctx *cx = m->e.cx;
  kiln_symbol elements[KILN_MAX_RANK], loops[KILN_MAX_RANK];
  const kiln_expr *vars[KILN_MAX_RANK];
  const bool identity = index_is_identity(s, t->rank);
  for (int k = 0; k < t->rank; k++) {
    elements[k] = kiln_symbol_printf(cx, "o%d", k);
    const kiln_symbol part = identity ? s->dims[k].name : elements[k];
    loops[k] = kiln_symbol_printf(cx, "%s.init.%s", kiln_symbol_text(cx, t->name),
                                  kiln_symbol_text(cx, part));
    vars[k] = kiln_var(cx, loops[k]);
  }
  const kiln_expr *value = s->init ? kiln_expr_substitute(cx, s->init, t->rank, elements, vars)
                                   : kiln_combiner_identity(cx, s->combiner, t->dtype);
  kiln_loop *store = kiln_store_make(cx, b, vars, KILN_COMBINE_NONE, value);
  append(m, kiln_nest_around(cx, t->rank, loops, b->extents, store));
}

static kiln_status make_update(maker *m, const kiln_stmt *s, const kiln_tensor *t,
                               const kiln_buffer *b) {
  kiln_ctx *cx = m->e.cx;
  const int n = s->n_space + s->n_reduce;
  kiln_symbol *dims = KILN_NEW_ARRAY(&cx->perm, kiln_symbol, n);
  kiln_symbol *loops = KILN_NEW_ARRAY(&cx->perm, kiln_symbol, n);
  const kiln_expr **vars = KILN_NEW_ARRAY(&cx->perm, const kiln_expr *, n);
  int64_t *extents = KILN_NEW_ARRAY(&cx->perm, int64_t, n);
  for (int k = 0; k < n; k++) {
    dims[k] = s->dims[k].name;
    loops[k] = kiln_symbol_printf(cx, "%s.%s", kiln_symbol_text(cx, t->name),
                                  kiln_symbol_text(cx, dims[k]));
    vars[k] = kiln_var(cx, loops[k]);
    if (!kiln_expr_is_int(s->dims[k].extent, &extents[k]))
      return kiln_refuse(&m->e, "loop %s: extent must be static: bind the named dimensions",
                         kiln_symbol_text(cx, loops[k]));
  }
  const kiln_expr *index[KILN_MAX_RANK];
  for (int k = 0; k < t->rank; k++) index[k] = kiln_expr_substitute(cx, s->index[k], n, dims, vars);
  kiln_loop *body =
      kiln_store_make(cx, b, index, s->combiner, kiln_expr_substitute(cx, s->body, n, dims, vars));
  if (s->guard) body = kiln_if_make(cx, kiln_expr_substitute(cx, s->guard, n, dims, vars), body);
  append(m, kiln_nest_around(cx, n, loops, extents, body));
  return KILN_OK;
}

kiln_status kiln_schedule_begin(kiln_ctx *cx, const kiln_program *p, kiln_schedule *out) {
  *out = (kiln_schedule){.cx = cx, .prog = p};
  out->loops = kiln_loops_make(cx, kiln_symbol_text(cx, p->name));
  kiln_text_init(&out->script, &cx->perm);
  maker m = {.e = {.s = out, .cx = cx, .l = out->loops, .place = "schedule"}, .p = p};
  m.end = &out->loops->body;
  // a buffer's id is its tensor's, so bodies need no renaming
  for (int i = 0; i < p->tensors.n; i++) KILN_TRY(make_buffer(&m, p->tensors.data[i]));
  for (int i = 0; i < p->stmts.n; i++) {
    const kiln_stmt *s = p->stmts.data[i];
    const kiln_tensor *t = p->tensors.data[s->out];
    const kiln_buffer *b = out->loops->buffers.data[s->out];
    if (s->init || s->combiner != KILN_COMBINE_NONE) make_init(&m, s, t, b);
    KILN_TRY(make_update(&m, s, t, b));
  }
  kiln_nest_tidy(&m.e);
  return KILN_OK;
}

const char *kiln_schedule_script(const kiln_schedule *s) {
  return s->script.data ? s->script.data : "";
}
