// unswitch: loop unswitching. A selection that is invariant in the loops inside of a loop becomes a
// branch around them.
#include "schedule/legality.h"
#include "schedule/nest.h"

typedef struct unswitching {
  kiln_edit e;
  const kiln_loop *loop;
  int depth;
  kiln_loop *path[KILN_MAX_DEPTH]; // the nodes around |loop|, and |loop|
  const kiln_expr *cond;           // of the first invariant selection; NULL: none
  const kiln_expr *value;          // the value of |cond| in the current branch
} unswitching;

static bool counts_around(const unswitching *u, kiln_symbol var) {
  for (int i = 0; i < u->depth; i++)
    if (u->path[i]->kind == KILN_LOOP_FOR && u->path[i]->var == var) return true;
  return false;
}

typedef struct reads {
  unswitching *u;
  bool are_fixed;
} reads;

// Loads of the condition must be in range, because they now run where the selection was not
// reached, and the loop must not write them.
static void visit_read(const kiln_expr *e, void *argument) {
  reads *r = argument;
  kiln_edit *x = &r->u->e;
  if (e->kind != KILN_EXPR_LOAD) return;
  const kiln_buffer *b = x->l->buffers.data[e->u.tensor];
  for (int k = 0; k < b->rank; k++) {
    const kiln_expr *index = kiln_edit_simplify(x, e->args[k]);
    const kiln_interval i = kiln_expr_interval(x->cx, index, &x->ranges);
    r->are_fixed &= i.lo >= 0 && i.hi < b->extents[k];
  }
  for (kiln_loop *l = r->u->loop->body; l; l = l->next)
    r->are_fixed &= !kiln_nest_uses(x->cx, x->l, l, b->id, /*writes=*/true);
}

static void visit_select(const kiln_expr *e, void *argument) {
  unswitching *u = argument;
  reads r = {u, true};
  if (u->cond || e->kind != KILN_EXPR_SELECT) return;
  const kiln_expr *cond = e->args[0];
  for (int k = 0; k < cond->vars->n; k++)
    if (!counts_around(u, cond->vars->vars[k])) return;
  kiln_expr_visit(u->e.cx, cond, visit_read, &r);
  if (r.are_fixed) u->cond = cond;
}

static void find_cond(unswitching *u, const kiln_loop *list) {
  for (const kiln_loop *l = list; l && !u->cond; l = l->next) {
    if (l->kind == KILN_LOOP_STORE) kiln_expr_visit(u->e.cx, l->value, visit_select, u);
    find_cond(u, l->body);
  }
}

static const kiln_expr *decide(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  (void)cx;
  const unswitching *u = argument;
  return e == u->cond ? u->value : NULL;
}

static const kiln_expr *decide_all(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  unswitching *u = argument;
  return kiln_edit_simplify(&u->e, kiln_expr_replace(cx, e, decide, u));
}

// Makes |body| the branch in which the condition is |holds|.
static void branch(unswitching *u, kiln_loop *body, bool holds) {
  u->value = kiln_int_of(u->e.cx, KILN_BOOL, holds);
  kiln_nest_map(u->e.cx, u->e.l, body, decide_all, u);
}

kiln_status kiln_unswitch(kiln_schedule *s, kiln_symbol loop) {
  unswitching u = {.e = kiln_edit_begin(s, "unswitch", loop)};
  kiln_edit *e = &u.e;
  kiln_loop *l = NULL, *twin = NULL;
  KILN_TRY(kiln_edit_loop(e, loop, &l));
  if (l->how == KILN_VECTORIZED) KILN_TRY(kiln_edit_serial(e, l));
  u.loop = l;
  u.depth = kiln_nest_path(e->l, l, u.path);
  find_cond(&u, l->body);
  if (!u.cond)
    return kiln_refuse(e, "a selection in the loop must be the same in all iterations of the loops "
                          "inside, and read no buffer that the loop writes");
  KILN_TRY(kiln_nest_twin(e, l, &twin));
  const kiln_expr *v = kiln_var(e->cx, loop);
  kiln_nest_substitute(e->cx, e->l, twin->body, 1, &twin->var, &v);
  branch(&u, l->body, true);
  branch(&u, twin->body, false);
  l->body = kiln_if_make(e->cx, u.cond, l->body);
  l->body->next = kiln_if_make(e->cx, kiln_unary(e->cx, KILN_EXPR_NOT, u.cond), twin->body);
  return kiln_edit_commit(e, "unswitch %s", kiln_edit_word(e, loop));
}
