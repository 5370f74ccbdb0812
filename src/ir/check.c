// Checking an expression: operators, dtypes and variables.
#include "ir/check.h"

#include "ir/fold.h"

#include <math.h>

typedef struct walk {
  const kiln_checker *c;
  const char *what;
  kiln_status status;
} walk;

#define BREACH(w, ...)                                                                             \
  ((w)->status = KILN_FAIL((w)->c->cx->diag, KILN_INTERNAL, (w)->c->place, __VA_ARGS__))

static void check_leaf(walk *w, const kiln_expr *e) {
  const bool is_float = kiln_dtype_is_float(e->dtype);
  if (e->kind == KILN_EXPR_VAR && e->dtype != KILN_I64)
    BREACH(w, "%s: a variable must be i64, got %s", w->what, kiln_dtype_text(e->dtype));
  if (e->kind == KILN_EXPR_INT && (is_float || kiln_int_wrap(e->dtype, e->u.i) != e->u.i))
    BREACH(w, "%s: an integer must fit its type, got %" PRId64 " of type %s", w->what, e->u.i,
           kiln_dtype_text(e->dtype));
  if (e->kind == KILN_EXPR_FLOAT && !is_float)
    BREACH(w, "%s: a float number must have a float type, got %s", w->what,
           kiln_dtype_text(e->dtype));
}

static void check_load(walk *w, const kiln_expr *e) {
  for (int i = 0; i < e->n_args; i++) {
    if (e->args[i]->dtype != KILN_I64)
      BREACH(w, "%s: an index must be i64, got %s", w->what, kiln_dtype_text(e->args[i]->dtype));
  }
  if (w->status != KILN_OK) return;
  if (w->c->load) w->status = w->c->load(w->c, e);
  else BREACH(w, "%s: must not load, got a load of %d", w->what, e->u.tensor);
}

static kiln_dtype dtype_of_result(const kiln_expr *e) {
  const kiln_expr_kind k = e->kind;
  if (kiln_expr_kind_is_cmp(k) || k == KILN_EXPR_ISNAN || k == KILN_EXPR_ISINF ||
      k == KILN_EXPR_NOT)
    return KILN_BOOL;
  if (k == KILN_EXPR_CAST || k == KILN_EXPR_BITCAST) return e->dtype;
  return e->args[k == KILN_EXPR_SELECT ? 1 : 0]->dtype;
}

static bool are_bits(kiln_dtype a, kiln_dtype b) {
  return (a == kiln_bits_type(b)) != (b == kiln_bits_type(a));
}

static void check_operator(walk *w, const kiln_expr *e) {
  const char *text = kiln_expr_kind_text(e->kind);
  const bool select = e->kind == KILN_EXPR_SELECT;
  if (e->n_args != kiln_expr_kind_args(e->kind)) {
    BREACH(w, "%s: %s must have %d arguments, got %d", w->what, text, kiln_expr_kind_args(e->kind),
           e->n_args);
    return;
  }
  const kiln_dtype t = e->args[select ? 1 : 0]->dtype;
  if (select && e->args[0]->dtype != KILN_BOOL)
    BREACH(w, "%s: the condition of ?: must be bool, got %s", w->what,
           kiln_dtype_text(e->args[0]->dtype));
  else if (e->n_args > 1 && e->args[e->n_args - 1]->dtype != t)
    BREACH(w, "%s: operands of %s must have one type, got %s and %s", w->what, text,
           kiln_dtype_text(t), kiln_dtype_text(e->args[e->n_args - 1]->dtype));
  else if (!select && !kiln_expr_kind_takes(e->kind, t))
    BREACH(w, "%s: %s must have operands of another type, got %s", w->what, text,
           kiln_dtype_text(t));
  else if (e->kind == KILN_EXPR_BITCAST && !are_bits(e->dtype, t))
    BREACH(w, "%s: bits must be those of a float or a code and an unsigned integer, got %s and %s",
           w->what, kiln_dtype_text(t), kiln_dtype_text(e->dtype));
  else if (e->kind == KILN_EXPR_CAST && kiln_dtype_is_code(e->dtype))
    BREACH(w, "%s: a cast must give no code, got %s", w->what, kiln_dtype_text(e->dtype));
  else if (dtype_of_result(e) != e->dtype)
    BREACH(w, "%s: %s must give %s, got %s", w->what, text, kiln_dtype_text(dtype_of_result(e)),
           kiln_dtype_text(e->dtype));
}

static void check_node(const kiln_expr *e, void *argument) {
  walk *w = argument;
  if (w->status != KILN_OK) return;
  if (e->kind == KILN_EXPR_LOAD) check_load(w, e);
  else if (e->kind == KILN_EXPR_INT || e->kind == KILN_EXPR_FLOAT || e->kind == KILN_EXPR_VAR)
    check_leaf(w, e);
  else check_operator(w, e);
}

static bool is_bound(const kiln_map *vars, kiln_symbol var) {
  const uint64_t *bound = vars ? kiln_map_find(vars, var) : NULL;
  return bound && *bound;
}

kiln_status kiln_check_expr(const kiln_checker *c, const char *what, kiln_dtype t,
                            const kiln_expr *e) {
  walk w = {c, what, KILN_OK};
  if (!e) return BREACH(&w, "%s: must be there, got none", what);
  if (e->dtype != t)
    return BREACH(&w, "%s: must be %s, got %s", what, kiln_dtype_text(t),
                  kiln_dtype_text(e->dtype));
  for (int i = 0; i < e->vars->n; i++) {
    if (!is_bound(c->vars, e->vars->vars[i]) && !is_bound(c->more, e->vars->vars[i]))
      return BREACH(&w, "%s: its variables must be bound, got '%s'", what,
                    kiln_symbol_text(c->cx, e->vars->vars[i]));
  }
  if (e->n_args == 0) check_node(e, &w);
  else kiln_expr_visit(c->cx, e, check_node, &w);
  return w.status;
}
