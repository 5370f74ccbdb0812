// Statements with empty domains, and loads of empty tensors: see empty.h.
#include "rewrite/empty.h"

static bool has_instances(const kiln_stmt *s) {
  for (int d = 0; d < s->n_space + s->n_reduce; d++) {
    int64_t extent = 1;
    if (kiln_expr_is_int(s->dims[d].extent, &extent) && extent == 0) return false;
  }
  return true;
}

static bool is_empty(const kiln_tensor *t) {
  for (int i = 0; i < t->rank; i++) {
    int64_t extent = 1;
    if (kiln_expr_is_int(t->shape[i], &extent) && extent == 0) return true;
  }
  return false;
}

// The axes' variables, for init, which is written over o0, o1, ...
typedef struct places {
  const kiln_stmt *s;
  int rank;
} places;

static const kiln_expr *place_of(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  const places *at = argument;
  if (e->kind != KILN_EXPR_VAR) return NULL;
  for (int k = 0; k < at->rank; k++)
    if (e->u.sym == kiln_symbol_printf(cx, "o%d", k)) return kiln_stmt_var(cx, at->s, k);
  return NULL;
}

// Makes |s| a fill: T(i0, i1, ...) = |value|, or init if that is NULL.
static void fill(kiln_ctx *cx, kiln_stmt *s, const kiln_tensor *t, const kiln_expr *value) {
  places at = {s, t->rank};
  s->dims = KILN_NEW_ARRAY(&cx->perm, kiln_dim, t->rank);
  s->index = KILN_NEW_ARRAY(&cx->perm, const kiln_expr *, t->rank);
  s->n_space = t->rank;
  s->n_reduce = 0;
  for (int k = 0; k < t->rank; k++) {
    s->dims[k] = (kiln_dim){kiln_symbol_printf(cx, "i%d", k), t->shape[k]};
    s->index[k] = kiln_stmt_var(cx, s, k);
  }
  s->body = value ? value : kiln_expr_replace(cx, s->init, place_of, &at);
  s->combiner = KILN_COMBINE_NONE;
  s->guard = s->init = NULL;
}

static const kiln_expr *without_nothing(kiln_ctx *cx, const kiln_expr *e, void *argument);

static const kiln_expr *read_something(kiln_ctx *cx, const kiln_expr *e, kiln_program *p) {
  return e && kiln_expr_has_load(e) ? kiln_expr_replace(cx, e, without_nothing, p) : e;
}

static const kiln_expr *without_nothing(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  kiln_program *p = argument;
  if (!kiln_expr_has_load(e)) return e;
  if (e->kind != KILN_EXPR_LOAD) return NULL;
  if (is_empty(p->tensors.data[e->u.tensor])) return kiln_number(cx, e->dtype, 0);
  const kiln_expr *index[KILN_MAX_RANK];
  for (int a = 0; a < e->n_args; a++) index[a] = read_something(cx, e->args[a], p);
  return kiln_load(cx, e->u.tensor, e->dtype, e->n_args, index);
}

void kiln_program_fold_empty(kiln_ctx *cx, kiln_program *p) {
  bool any = false;
  for (int t = 0; t < p->tensors.n; t++) any = any || is_empty(p->tensors.data[t]);
  for (int i = 0; i < p->stmts.n; i++) {
    kiln_stmt *s = p->stmts.data[i];
    const kiln_tensor *t = p->tensors.data[s->out];
    if (is_empty(t)) fill(cx, s, t, kiln_number(cx, t->dtype, 0));
    else if (!has_instances(s))
      fill(cx, s, t, s->init ? NULL : kiln_combiner_identity(cx, s->combiner, t->dtype));
    if (!any) continue;
    s->body = read_something(cx, s->body, p);
    s->guard = read_something(cx, s->guard, p);
    s->init = read_something(cx, s->init, p);
    for (int k = 0; k < t->rank; k++) s->index[k] = read_something(cx, s->index[k], p);
  }
}
