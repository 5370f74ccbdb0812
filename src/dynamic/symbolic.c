// Programs with symbolic extents: see symbolic.h.
#include "dynamic/symbolic.h"

#include "analysis/simplify.h"

bool kiln_symbolic_uses(const kiln_symbolic *s, const kiln_expr *e) {
  bool uses = false;
  for (int d = 0; e && d < s->n_dims; d++) uses |= kiln_expr_uses(e, s->names[d]);
  return uses;
}

// --- extents ---

static kiln_ranges ranges_of(kiln_ctx *cx, const kiln_symbolic *s) {
  kiln_ranges r;
  kiln_ranges_init(&r, &cx->scratch);
  for (int d = 0; d < s->n_dims; d++) kiln_ranges_push(&r, s->names[d], s->least[d], s->most[d]);
  return r;
}

static const kiln_expr *at_values(kiln_ctx *cx, const kiln_symbolic *s, const int64_t *values,
                                  const kiln_expr *e) {
  const kiln_expr *numbers[KILN_MAX_DIMS];
  for (int d = 0; d < s->n_dims; d++) numbers[d] = kiln_int(cx, values[d]);
  return e ? kiln_expr_substitute(cx, e, s->n_dims, s->names, numbers) : NULL;
}

int64_t kiln_symbolic_value(kiln_ctx *cx, const kiln_symbolic *s, const int64_t *values,
                            const kiln_expr *e) {
  return kiln_expr_int_or(at_values(cx, s, values, e), -1);
}

// Whether |e| never falls where a dimension grows, as its form tells.
static bool never_falls(kiln_ctx *cx, const kiln_expr *e, const kiln_ranges *r) {
  int64_t c = 0;
  if (e->kind == KILN_EXPR_VAR || kiln_expr_is_int(e, NULL)) return true;
  if (e->n_args != 2 || !never_falls(cx, e->args[0], r)) return false;
  const bool is_number = kiln_expr_is_int(e->args[1], &c);
  switch ((int)e->kind) {
  case KILN_EXPR_ADD:
  case KILN_EXPR_MIN:
  case KILN_EXPR_MAX: return never_falls(cx, e->args[1], r);
  case KILN_EXPR_SUB: return is_number;
  case KILN_EXPR_DIV: return is_number && c > 0;
  case KILN_EXPR_MUL:
    return (is_number && c >= 0) ||
           (never_falls(cx, e->args[1], r) && kiln_expr_interval(cx, e->args[0], r).lo >= 0 &&
            kiln_expr_interval(cx, e->args[1], r).lo >= 0);
  default: return false;
  }
}

// The greatest value of an extent, or a bound of it; INT64_MAX: none is known.
static int64_t most_of(kiln_ctx *cx, const kiln_symbolic *s, const kiln_expr *e) {
  int64_t at_most = 0;
  if (kiln_expr_is_int(e, &at_most)) return at_most;
  const kiln_ranges r = ranges_of(cx, s);
  const int64_t hi = kiln_expr_interval(cx, e, &r).hi;
  const bool is_known = kiln_expr_is_int(at_values(cx, s, s->most, e), &at_most);
  return is_known && never_falls(cx, e, &r) && at_most < hi ? at_most : hi;
}

// --- extents as formulas ---

static const kiln_expr *without_choice(kiln_ctx *cx, const kiln_expr *e, void *argument);

static const kiln_expr *arithmetic(kiln_ctx *cx, const kiln_expr *e) {
  return kiln_expr_replace(cx, e, without_choice, NULL);
}

// a < b as 0 or 1: min(max(b - a, 0), 1).
static const kiln_expr *is_less(kiln_ctx *cx, const kiln_expr *a, const kiln_expr *b) {
  const kiln_expr *zero = kiln_int(cx, 0), *one = kiln_int(cx, 1);
  const kiln_expr *rise = kiln_binary(cx, KILN_EXPR_MAX, kiln_sub(cx, b, a), zero);
  return kiln_binary(cx, KILN_EXPR_MIN, rise, one);
}

// A condition as 0 or 1; NULL: it is none of integers.
static const kiln_expr *truth(kiln_ctx *cx, const kiln_expr *c) {
  const kiln_expr *one = kiln_int(cx, 1), *a = NULL, *b = NULL;
  const bool is_whole = c->n_args == 2 && c->args[0]->dtype == KILN_I64;
  if (is_whole) {
    a = arithmetic(cx, c->args[0]);
    b = arithmetic(cx, c->args[1]);
  } else if (c->n_args > 0 && c->args[0]->dtype == KILN_BOOL) {
    a = truth(cx, c->args[0]);
    b = c->n_args == 2 ? truth(cx, c->args[1]) : one;
    if (!a || !b) return NULL;
  }
  switch ((int)c->kind) {
  case KILN_EXPR_LT: return is_whole ? is_less(cx, a, b) : NULL;
  case KILN_EXPR_GT: return is_whole ? is_less(cx, b, a) : NULL;
  case KILN_EXPR_LE: return is_whole ? kiln_sub(cx, one, is_less(cx, b, a)) : NULL;
  case KILN_EXPR_GE: return is_whole ? kiln_sub(cx, one, is_less(cx, a, b)) : NULL;
  case KILN_EXPR_NE: return is_whole ? kiln_add(cx, is_less(cx, a, b), is_less(cx, b, a)) : NULL;
  case KILN_EXPR_EQ:
    return is_whole ? kiln_sub(cx, kiln_sub(cx, one, is_less(cx, a, b)), is_less(cx, b, a)) : NULL;
  case KILN_EXPR_AND: return a && !is_whole ? kiln_binary(cx, KILN_EXPR_MIN, a, b) : NULL;
  case KILN_EXPR_OR: return a && !is_whole ? kiln_binary(cx, KILN_EXPR_MAX, a, b) : NULL;
  case KILN_EXPR_NOT: return a && !is_whole ? kiln_sub(cx, one, a) : NULL;
  default: return NULL;
  }
}

// c ? a : b as arithmetic: min(a, b) for a < b, otherwise b + c * (a - b).
static const kiln_expr *choice(kiln_ctx *cx, const kiln_expr *e) {
  const kiln_expr *c = e->args[0], *a = arithmetic(cx, e->args[1]), *b = arithmetic(cx, e->args[2]);
  const bool is_order = c->n_args == 2 && ((c->args[0] == e->args[1] && c->args[1] == e->args[2]) ||
                                           (c->args[0] == e->args[2] && c->args[1] == e->args[1]));
  const bool is_first = is_order && c->args[0] == e->args[1];
  if (is_order && (c->kind == KILN_EXPR_LT || c->kind == KILN_EXPR_LE))
    return kiln_binary(cx, is_first ? KILN_EXPR_MIN : KILN_EXPR_MAX, a, b);
  if (is_order && (c->kind == KILN_EXPR_GT || c->kind == KILN_EXPR_GE))
    return kiln_binary(cx, is_first ? KILN_EXPR_MAX : KILN_EXPR_MIN, a, b);
  const kiln_expr *holds = truth(cx, c);
  return holds ? kiln_add(cx, b, kiln_mul(cx, holds, kiln_sub(cx, a, b))) : e;
}

static const kiln_expr *without_choice(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  (void)argument;
  if (e->n_tree > KILN_LONG_TREE) return e;
  if (e->kind == KILN_EXPR_SELECT && e->dtype == KILN_I64) return choice(cx, e);
  if (e->kind != KILN_EXPR_CAST || e->dtype != KILN_I64 || e->args[0]->dtype != KILN_BOOL)
    return NULL;
  const kiln_expr *holds = truth(cx, e->args[0]);
  return holds ? holds : e;
}

// In the ranges most conditions are decided: that an axis is stretched, for one.
static const kiln_expr *formula(kiln_ctx *cx, const kiln_ranges *r, const kiln_expr *e) {
  if (arithmetic(cx, e) == e) return e;
  return arithmetic(cx, kiln_simplify(cx, e, r));
}

void kiln_symbolic_make_formulas(kiln_ctx *cx, const kiln_symbolic *s, kiln_program *p) {
  kiln_ranges r;
  kiln_ranges_init(&r, &cx->scratch);
  for (int d = 0; d < s->n_dims; d++) kiln_ranges_push(&r, s->names[d], s->least[d], s->most[d]);
  for (int i = 0; i < p->tensors.n; i++)
    for (int a = 0; a < p->tensors.data[i]->rank; a++)
      p->tensors.data[i]->shape[a] = formula(cx, &r, p->tensors.data[i]->shape[a]);
  for (int i = 0; i < p->stmts.n; i++) {
    kiln_stmt *x = p->stmts.data[i];
    for (int d = 0; d < x->n_space + x->n_reduce; d++)
      x->dims[d].extent = formula(cx, &r, x->dims[d].extent);
  }
}

// Whether a formula of the module (runtime/dynamic.h) can say |e|.
static bool is_formula(const kiln_expr *e) {
  bool is = e->kind == KILN_EXPR_VAR || kiln_expr_is_int(e, NULL);
  switch ((int)e->kind) {
  case KILN_EXPR_ADD:
  case KILN_EXPR_SUB:
  case KILN_EXPR_MUL:
  case KILN_EXPR_DIV:
  case KILN_EXPR_MOD:
  case KILN_EXPR_MIN:
  case KILN_EXPR_MAX: is = is_formula(e->args[0]) && is_formula(e->args[1]); break;
  default: break;
  }
  return is;
}

static bool is_bounded(kiln_ctx *cx, const kiln_symbolic *s, const kiln_expr *e) {
  const int64_t most_extent = INT64_C(1) << 40;
  return e->n_tree <= KILN_LONG_TREE && is_formula(e) && most_of(cx, s, e) <= most_extent;
}

const char *kiln_symbolic_unbounded(kiln_ctx *cx, const kiln_symbolic *s,
                                    const kiln_expr **out_extent) {
  for (int i = 0; i < s->prog->tensors.n; i++) {
    const kiln_tensor *t = s->prog->tensors.data[i];
    for (int a = 0; a < t->rank; a++)
      if (!is_bounded(cx, s, *out_extent = t->shape[a])) return kiln_symbol_text(cx, t->name);
  }
  for (int i = 0; i < s->prog->stmts.n; i++) {
    const kiln_stmt *x = s->prog->stmts.data[i];
    for (int d = 0; d < x->n_space + x->n_reduce; d++)
      if (!is_bounded(cx, s, *out_extent = x->dims[d].extent))
        return kiln_symbol_text(cx, s->prog->tensors.data[x->out]->name);
  }
  return NULL;
}

typedef struct extending {
  const kiln_symbolic *s;
  const int64_t *values; // NULL: the greatest extents
} extending;

static const kiln_expr *extent_of(kiln_ctx *cx, const extending *x, const kiln_expr *e) {
  return x->values ? at_values(cx, x->s, x->values, e) : kiln_int(cx, most_of(cx, x->s, e));
}

static void set_extents(kiln_ctx *cx, kiln_program *p, const extending *how) {
  for (int i = 0; i < p->tensors.n; i++) {
    kiln_tensor *t = p->tensors.data[i];
    const kiln_expr **shape = KILN_NEW_ARRAY(&cx->perm, const kiln_expr *, t->rank);
    for (int a = 0; a < t->rank; a++) shape[a] = extent_of(cx, how, t->shape[a]);
    t->shape = shape;
  }
  for (int i = 0; i < p->stmts.n; i++) {
    kiln_stmt *x = p->stmts.data[i];
    for (int d = 0; d < x->n_space + x->n_reduce; d++)
      x->dims[d].extent = extent_of(cx, how, x->dims[d].extent);
  }
}

kiln_program *kiln_symbolic_bound(kiln_ctx *cx, const kiln_symbolic *s) {
  const extending how = {s, NULL};
  kiln_program *p = kiln_program_copy(cx, s->prog);
  set_extents(cx, p, &how);
  return p;
}

// --- numbers ---

kiln_program *kiln_symbolic_bind(kiln_ctx *cx, const kiln_symbolic *s, const int64_t *values) {
  const extending how = {s, values};
  kiln_program *p = kiln_program_copy(cx, s->prog);
  set_extents(cx, p, &how);
  for (int i = 0; i < p->stmts.n; i++) {
    kiln_stmt *x = p->stmts.data[i];
    x->body = at_values(cx, s, values, x->body);
    x->guard = at_values(cx, s, values, x->guard);
    x->init = at_values(cx, s, values, x->init);
    for (int a = 0; a < p->tensors.data[x->out]->rank; a++)
      x->index[a] = at_values(cx, s, values, x->index[a]);
  }
  return p;
}

const kiln_tensor *kiln_symbolic_add_input(kiln_ctx *cx, kiln_program *p, int n_dims) {
  const kiln_expr *n = kiln_int(cx, n_dims);
  const kiln_tensor *input = kiln_tensor_make(cx, p, "dims", KILN_I64, KILN_INPUT, 1, &n);
  KILN_VEC_PUSH(&cx->perm, &p->inputs, input->id);
  return input;
}

const kiln_expr *kiln_symbolic_read(kiln_ctx *cx, const kiln_symbolic *s, const kiln_tensor *input,
                                    const kiln_expr *e) {
  const kiln_expr *loads[KILN_MAX_DIMS];
  for (int d = 0; d < s->n_dims; d++) {
    const kiln_expr *at = kiln_int(cx, d);
    loads[d] = kiln_tensor_load(cx, input, &at);
  }
  return e ? kiln_expr_substitute(cx, e, s->n_dims, s->names, loads) : NULL;
}

kiln_program *kiln_symbolic_bind_extents(kiln_ctx *cx, const kiln_symbolic *s,
                                         const int64_t *values) {
  const extending how = {s, values};
  kiln_program *p = kiln_program_copy(cx, s->prog);
  set_extents(cx, p, &how);
  const kiln_tensor *input = kiln_symbolic_add_input(cx, p, s->n_dims);
  for (int i = 0; i < p->stmts.n; i++) {
    kiln_stmt *x = p->stmts.data[i];
    x->body = kiln_symbolic_read(cx, s, input, x->body);
    x->guard = kiln_symbolic_read(cx, s, input, x->guard);
    x->init = kiln_symbolic_read(cx, s, input, x->init);
    for (int a = 0; a < p->tensors.data[x->out]->rank; a++)
      x->index[a] = kiln_symbolic_read(cx, s, input, x->index[a]);
  }
  return p;
}

// Whether |e| is a number once the dimensions are known, and depends on them.
static bool is_number(const kiln_symbolic *s, const kiln_expr *e) {
  int n = 0;
  for (int d = 0; d < s->n_dims; d++) n += kiln_expr_uses(e, s->names[d]);
  return n > 0 && n == e->vars->n && !e->has_load;
}

static const kiln_expr *scale(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  const kiln_symbolic *s = argument;
  const bool scales =
      e->dtype == KILN_I64 &&
      (e->kind == KILN_EXPR_MUL || e->kind == KILN_EXPR_DIV || e->kind == KILN_EXPR_MOD);
  if (!scales || is_number(s, e)) return NULL;
  const kiln_expr *args[2];
  bool any = false;
  for (int i = 0; i < 2; i++) {
    const bool is = is_number(s, e->args[i]);
    args[i] = is ? at_values(cx, s, s->most, e->args[i])
                 : kiln_expr_replace(cx, e->args[i], scale, argument);
    any |= is;
  }
  return any ? kiln_expr_with_args(cx, e, args) : NULL;
}

const kiln_expr *kiln_symbolic_scale(kiln_ctx *cx, const kiln_symbolic *s, const kiln_expr *e) {
  return e ? kiln_expr_replace(cx, e, scale, (void *)(uintptr_t)s) : NULL;
}
