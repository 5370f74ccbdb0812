// specialize: duplicates the body of a loop for the iterations in which a condition holds.
#include "schedule/nearest.h"
#include "schedule/nest.h"

#include <string.h>

static kiln_status parse(kiln_edit *e, const char *text, const kiln_expr **out) {
  const kiln_expr_names names = kiln_edit_names(e);
  const char *at = text;
  if (kiln_expr_parse(e->cx, &at, &names, out) != KILN_OK)
    return kiln_refuse(e, "condition must be an expression, got \"%.200s\"", text);
  at += strspn(at, " \t\r");
  if (*at)
    return kiln_refuse(e, "condition must end with its expression, got \"%.200s\" behind it", at);
  if ((*out)->dtype == KILN_BOOL) return KILN_OK;
  return kiln_refuse(e, "condition must be bool, got %s", kiln_dtype_text((*out)->dtype));
}

// --- variables and loads of a condition ---

static kiln_status check_vars(kiln_edit *e, const kiln_loop *loop, const kiln_expr *cond) {
  kiln_loop *path[KILN_MAX_DEPTH];
  const int depth = kiln_nest_path(e->l, loop, path);
  for (int i = 0; i < cond->vars->n; i++) {
    bool known = false;
    kiln_nearest near = {.word = kiln_edit_text(e, cond->vars->vars[i])};
    for (int k = 0; k < depth; k++) {
      if (path[k]->kind != KILN_LOOP_FOR) continue;
      known |= path[k]->var == cond->vars->vars[i];
      kiln_nearest_offer(&near, kiln_edit_text(e, path[k]->var));
    }
    if (!known)
      return kiln_refuse(e, "condition must use loop %s or loops around it, got \"%s\"%s",
                         kiln_edit_text(e, loop->var), near.word, kiln_nearest_text(e->cx, &near));
  }
  return KILN_OK;
}

typedef struct load_check {
  kiln_edit *e;
  kiln_status status;
} load_check;

static kiln_status check_load(kiln_edit *e, const kiln_expr *load) {
  const kiln_buffer *b = e->l->buffers.data[load->u.tensor];
  const char *name = kiln_edit_text(e, b->name);
  bool written = false;
  for (kiln_loop *l = e->l->body; l; l = l->next)
    written |= kiln_nest_uses(e->cx, e->l, l, b->id, true);
  if (b->scope != KILN_SCOPE_PARAM || written)
    return kiln_refuse(e, "condition must read parameters that the kernel does not write, got %s",
                       name);
  for (int k = 0; k < b->rank; k++) {
    const kiln_expr *x = kiln_edit_simplify(e, load->args[k]);
    const kiln_interval i = kiln_expr_interval(e->cx, x, &e->ranges);
    if (i.lo < 0 || i.hi >= b->extents[k])
      return kiln_refuse(e, "condition must read %s in [0, %" PRId64 ") of axis %d", name,
                         b->extents[k], k);
  }
  return KILN_OK;
}

static void visit_load(const kiln_expr *e, void *argument) {
  load_check *c = argument;
  if (e->kind == KILN_EXPR_LOAD && c->status == KILN_OK) c->status = check_load(c->e, e);
}

// --- consequences of a condition ---

typedef struct facts {
  kiln_edit *e;
  int n_ranges;
  KILN_VEC(const kiln_expr *) from; // from[k] equals the constant to[k]
  KILN_VEC(const kiln_expr *) to;
  KILN_VEC(const kiln_expr *) least; // numbers that are at least 0
} facts;

static void add_range(facts *f, kiln_symbol v, int64_t lo, int64_t hi) {
  const kiln_interval known = kiln_expr_interval(f->e->cx, kiln_var(f->e->cx, v), &f->e->ranges);
  if (lo < known.lo) lo = known.lo;
  if (hi > known.hi) hi = known.hi;
  if (lo > hi) return; // the condition never holds
  kiln_ranges_push(&f->e->ranges, v, lo, hi);
  f->n_ranges++;
}

// What is at least 0 where the comparison holds; NULL: it is none of order.
static const kiln_expr *margin_of(kiln_ctx *cx, const kiln_expr *cond) {
  const kiln_expr *a = cond->args[0], *b = cond->args[1];
  if (cond->kind == KILN_EXPR_LE) return kiln_sub(cx, b, a);
  if (cond->kind == KILN_EXPR_GE) return kiln_sub(cx, a, b);
  if (cond->kind == KILN_EXPR_LT) return kiln_sub(cx, kiln_sub(cx, b, a), kiln_int(cx, 1));
  if (cond->kind == KILN_EXPR_GT) return kiln_sub(cx, kiln_sub(cx, a, b), kiln_int(cx, 1));
  return NULL;
}

// Whether |margin| is at least 0, as it is some number of a fact and more.
static bool follows(const facts *f, const kiln_expr *margin) {
  for (int i = 0; i < f->least.n; i++) {
    const kiln_expr *more = kiln_edit_simplify(f->e, kiln_sub(f->e->cx, margin, f->least.data[i]));
    if (kiln_expr_interval(f->e->cx, more, &f->e->ranges).lo >= 0) return true;
  }
  return false;
}

// The truth of a comparison of numbers that follows from the facts; NULL: none does.
static const kiln_expr *decided(const facts *f, const kiln_expr *e) {
  kiln_ctx *cx = f->e->cx;
  if (f->least.n == 0 || !kiln_expr_kind_is_cmp(e->kind) || e->args[0]->dtype != KILN_I64 ||
      e->has_load)
    return NULL;
  const kiln_expr *margin = margin_of(cx, e);
  if (!margin) return NULL;
  if (follows(f, margin)) return kiln_int_of(cx, KILN_BOOL, 1);
  const kiln_expr *beyond = kiln_sub(cx, kiln_int(cx, -1), margin);
  return follows(f, beyond) ? kiln_int_of(cx, KILN_BOOL, 0) : NULL;
}

static void add_facts(facts *f, const kiln_expr *cond) {
  int64_t c = 0;
  if (cond->kind == KILN_EXPR_AND) {
    add_facts(f, cond->args[0]);
    add_facts(f, cond->args[1]);
    return;
  }
  if (kiln_expr_kind_is_cmp(cond->kind) && cond->args[0]->dtype == KILN_I64 && !cond->has_load) {
    const kiln_expr *least = margin_of(f->e->cx, cond);
    if (least) KILN_VEC_PUSH(&f->e->cx->perm, &f->least, least);
  }
  if (!kiln_expr_kind_is_cmp(cond->kind) || !kiln_expr_is_int(cond->args[1], &c)) return;
  const kiln_expr *x = cond->args[0];
  if (cond->kind == KILN_EXPR_EQ) {
    KILN_VEC_PUSH(&f->e->cx->perm, &f->from, x);
    KILN_VEC_PUSH(&f->e->cx->perm, &f->to, cond->args[1]);
  }
  if (x->kind != KILN_EXPR_VAR) return;
  if (cond->kind == KILN_EXPR_LT && c > INT64_MIN) add_range(f, x->u.sym, INT64_MIN, c - 1);
  if (cond->kind == KILN_EXPR_LE) add_range(f, x->u.sym, INT64_MIN, c);
  if (cond->kind == KILN_EXPR_GT && c < INT64_MAX) add_range(f, x->u.sym, c + 1, INT64_MAX);
  if (cond->kind == KILN_EXPR_GE) add_range(f, x->u.sym, c, INT64_MAX);
}

static const kiln_expr *use_equal(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  (void)cx;
  const facts *f = argument;
  for (int i = 0; i < f->from.n; i++)
    if (f->from.data[i] == e) return f->to.data[i];
  return decided(f, e);
}

static const kiln_expr *use_all(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  facts *f = argument;
  return kiln_edit_simplify(f->e, kiln_expr_replace(cx, e, use_equal, f));
}

// Simplifies |list| assuming |cond|.
static void assume(kiln_edit *e, kiln_loop *list, const kiln_expr *cond) {
  facts f = {.e = e};
  add_facts(&f, cond);
  kiln_nest_map(e->cx, e->l, list, use_all, &f);
  kiln_ranges_pop(&e->ranges, f.n_ranges);
}

static kiln_status check_condition(kiln_edit *e, const kiln_loop *loop, const kiln_expr *cond) {
  load_check c = {e, KILN_OK};
  KILN_TRY(check_vars(e, loop, cond));
  kiln_expr_visit(e->cx, cond, visit_load, &c);
  return c.status;
}

kiln_status kiln_specialize(kiln_schedule *s, kiln_symbol loop, const char *condition) {
  kiln_edit e = kiln_edit_begin(s, "specialize", loop);
  kiln_ctx *cx = e.cx;
  kiln_loop *l = NULL, *twin = NULL;
  const kiln_expr *cond = NULL;
  KILN_TRY(kiln_edit_loop(&e, loop, &l));
  if (l->how == KILN_VECTORIZED) KILN_TRY(kiln_edit_serial(&e, l));
  KILN_TRY(parse(&e, condition, &cond));
  KILN_TRY(check_condition(&e, l, cond));
  KILN_TRY(kiln_nest_twin(&e, l, &twin));
  const kiln_expr *v = kiln_var(cx, loop);
  kiln_nest_substitute(cx, e.l, twin->body, 1, &twin->var, &v);
  assume(&e, l->body, cond);
  l->body = kiln_if_make(cx, cond, l->body);
  l->body->next = kiln_if_make(cx, kiln_unary(cx, KILN_EXPR_NOT, cond), twin->body);
  const kiln_expr_names names = kiln_edit_names(&e);
  kiln_text text;
  kiln_text_init(&text, &cx->perm);
  kiln_expr_print(cx, cond, &names, &text);
  return kiln_edit_commit(&e, "specialize %s %s", kiln_edit_word(&e, loop), text.data);
}
