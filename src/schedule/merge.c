// merge: two sibling loops become one, the second running some iterations behind the first.
#include "analysis/polyhedra.h"
#include "schedule/edit.h"

#include <isl/ilp.h>


static kiln_loop *body_if(kiln_ctx *cx, const kiln_expr *cond, kiln_loop *body) {
  return kiln_expr_is_int(cond, NULL) ? body : kiln_if_make(cx, cond, body);
}

// Whether a statement of |a| and one of |b|, neither of them in the other, touch one buffer of which
// one writes.
static int shared_buffer(kiln_edit *e, kiln_loop *a, kiln_loop *b) {
  const kiln_accesses of_a = kiln_accesses_of(e->cx, e->l, a, false, -1);
  for (int i = 0; i < of_a.n; i++) {
    const int buffer = of_a.data[i].buffer;
    if (kiln_nest_uses(e->cx, e->l, b, buffer, true)) return buffer;
    if (of_a.data[i].write && kiln_nest_uses(e->cx, e->l, b, buffer, false)) return buffer;
  }
  return -1;
}

// The second loop moves to the first one, before all that stands between them.
static kiln_status check_between(kiln_edit *e, kiln_loop *first, kiln_loop *second) {
  for (kiln_loop *l = first->next; l && l != second; l = l->next) {
    const int buffer = shared_buffer(e, l, second);
    if (buffer >= 0)
      return kiln_refuse(e,
                         "what stands between loops %s and %s must not depend on the order, got a "
                         "statement that shares buffer %s with the second: merge that before",
                         kiln_edit_text(e, first->var), kiln_edit_text(e, second->var),
                         kiln_edit_text(e, e->l->buffers.data[buffer]->name));
  }
  return KILN_OK;
}

static kiln_status find_siblings(kiln_edit *e, kiln_loop *first, kiln_loop *second) {
  kiln_loop *l = first->next;
  while (l && l != second) l = l->next;
  if (l) return KILN_OK;
  return kiln_refuse(e, "loop %s must stand behind loop %s in the same body: merge the loops around "
                        "them before",
                     kiln_edit_text(e, second->var), kiln_edit_text(e, first->var));
}

// --- legality: no instance of the second loop may now run before one of the first that it depends on ---

// Two accesses to one element, in the terms of all loops around the one or the other.
typedef struct conflict {
  kiln_edit *e;
  kiln_loop *f, *g;
  const kiln_access *a, *b; // below |f|, below |g|
  kiln_vars vars;
  KILN_VEC(const kiln_expr *) extents;
  KILN_VEC(const kiln_expr *) conditions;
} conflict;

// The loops and conditions around |node|; loops around both are known by then.
static void surround(conflict *c, const kiln_loop *node) {
  kiln_arena *arena = &c->e->cx->perm;
  kiln_loop *path[KILN_MAX_DEPTH];
  const int depth = kiln_nest_path(c->e->l, node, path);
  for (int i = 0; i < depth; i++) {
    if (path[i]->kind == KILN_LOOP_IF) KILN_VEC_PUSH(arena, &c->conditions, path[i]->cond);
    if (path[i]->kind != KILN_LOOP_FOR || kiln_vars_has(&c->vars, path[i]->var)) continue;
    KILN_VEC_PUSH(arena, &c->vars, path[i]->var);
    KILN_VEC_PUSH(arena, &c->extents, path[i]->extent);
  }
}

// The largest f - g over the instances that touch one element; false where there are none. What isl
// does not decide may be anything: *out_known becomes false.
static bool farthest(conflict *c, const kiln_polyhedra *p, int64_t *out, bool *out_known) {
  kiln_ctx *cx = c->e->cx;
  bool exact = true;
  surround(c, c->a->node);
  surround(c, c->b->node);
  for (int k = 0; k < c->a->n && !c->a->opaque && !c->b->opaque; k++)
    KILN_VEC_PUSH(&cx->perm, &c->conditions,
                  kiln_binary(cx, KILN_EXPR_EQ, c->a->index[k], c->b->index[k]));
  const kiln_expr *behind = kiln_sub(cx, kiln_var(cx, c->f->var), kiln_var(cx, c->g->var));
  const kiln_poly_vars vars = {c->vars.n, c->vars.data};
  isl_space *space = kiln_poly_space(p, NULL, vars);
  isl_set *both = kiln_poly_domain(p, space, vars, c->extents.data, c->conditions.n,
                                   c->conditions.data, &exact);
  isl_pw_aff *distance = kiln_poly_expr(p, space, vars, behind);
  const bool none = isl_set_is_empty(both) == isl_bool_true;
  isl_val *most = isl_pw_aff_max_val(isl_pw_aff_intersect_domain(distance, both));
  *out_known = none || isl_val_is_int(most) == isl_bool_true;
  *out = *out_known && !none ? isl_val_get_num_si(most) : 0;
  isl_val_free(most);
  isl_space_free(space);
  return !none;
}

static bool is_free(const kiln_access *a, const kiln_access *b) {
  if (a->buffer != b->buffer || (!a->write && !b->write)) return true;
  return a->write && b->write && a->combiner != KILN_COMBINE_NONE && a->combiner == b->combiner;
}

static kiln_status check_pair(kiln_edit *e, const kiln_polyhedra *p, conflict *c, int64_t shift) {
  int64_t most = 0;
  bool known = true;
  const char *buffer = kiln_edit_text(e, e->l->buffers.data[c->a->buffer]->name);
  const char *first = kiln_edit_text(e, c->f->var), *second = kiln_edit_text(e, c->g->var);
  if (!farthest(c, p, &most, &known) || (known && most <= shift)) return KILN_OK;
  if (!known)
    return kiln_refuse(e, "iterations of loops %s and %s must be known not to depend on each other "
                          "the wrong way, got accesses to buffer %s that are not affine",
                       first, second, buffer);
  return kiln_refuse(e,
                     "loop %s must run behind what it depends on, got iterations that share "
                     "elements of buffer %s with iterations of loop %s up to %" PRId64
                     " further: shift by %" PRId64,
                     second, buffer, first, most, most);
}

static kiln_status check_all(kiln_edit *e, const kiln_polyhedra *p, kiln_loop *f, kiln_loop *g,
                             int64_t shift) {
  const kiln_accesses of_f = kiln_accesses_of(e->cx, e->l, f->body, true, -1);
  const kiln_accesses of_g = kiln_accesses_of(e->cx, e->l, g->body, true, -1);
  for (int i = 0; i < of_f.n; i++)
    for (int j = 0; j < of_g.n; j++) {
      conflict c = {.e = e, .f = f, .g = g, .a = &of_f.data[i], .b = &of_g.data[j]};
      if (!is_free(c.a, c.b)) KILN_TRY(check_pair(e, p, &c, shift));
    }
  return KILN_OK;
}

static kiln_status check_order(kiln_edit *e, kiln_loop *f, kiln_loop *g, int64_t shift) {
  kiln_polyhedra p;
  KILN_TRY(kiln_polyhedra_init(e->cx, KILN_POLYHEDRA_BUDGET, &p));
  const kiln_status st = check_all(e, &p, f, g, shift);
  kiln_polyhedra_deinit(&p);
  return st;
}

// --- the change ---

// first: v < n; second: shift <= v < shift + n. Each only as far as the merged range needs it.
static void join(kiln_edit *e, kiln_loop *f, kiln_loop *g, int64_t n_f, int64_t n_g, int64_t shift) {
  kiln_ctx *cx = e->cx;
  const int64_t n = n_f > n_g + shift ? n_f : n_g + shift;
  const kiln_expr *v = kiln_var(cx, f->var), *yes = kiln_int_of(cx, KILN_BOOL, 1);
  const kiln_expr *before = kiln_binary(cx, KILN_EXPR_LT, v, kiln_int(cx, n_f));
  const kiln_expr *from = kiln_binary(cx, KILN_EXPR_GE, v, kiln_int(cx, shift));
  const kiln_expr *to = kiln_binary(cx, KILN_EXPR_LT, v, kiln_int(cx, n_g + shift));
  const kiln_expr *moved = kiln_sub(cx, v, kiln_int(cx, shift));
  kiln_loop **slot = kiln_nest_slot(e->l, g);
  *slot = g->next;
  kiln_nest_substitute(cx, e->l, g->body, 1, &g->var, &moved);
  kiln_loop *second = body_if(cx, n_g + shift < n ? to : yes, g->body);
  second = body_if(cx, shift > 0 ? from : yes, second);
  f->body = body_if(cx, n_f < n ? before : yes, f->body);
  *kiln_nest_end(&f->body) = second;
  f->extent = kiln_int(cx, n);
}

kiln_status kiln_merge(kiln_schedule *s, kiln_symbol first, kiln_symbol second, int64_t shift) {
  kiln_edit e = kiln_edit_begin(s, "merge", first);
  kiln_loop *f = NULL, *g = NULL;
  int64_t n_f = 0, n_g = 0, end = 0;
  KILN_TRY(kiln_edit_loop(&e, first, &f));
  KILN_TRY(kiln_edit_loop(&e, second, &g));
  if (shift < 0 || shift > INT32_MAX)
    return kiln_refuse(&e, "shift must be 0 or positive, got %" PRId64, shift);
  KILN_TRY(kiln_edit_serial(&e, f));
  KILN_TRY(kiln_edit_serial(&e, g));
  KILN_TRY(kiln_edit_extent(&e, f, &n_f));
  KILN_TRY(kiln_edit_extent(&e, g, &n_g));
  if (__builtin_add_overflow(n_g, shift, &end)) return kiln_refuse(&e, "extents must be smaller");
  KILN_TRY(find_siblings(&e, f, g));
  KILN_TRY(check_between(&e, f, g));
  KILN_TRY(check_order(&e, f, g, shift));
  join(&e, f, g, n_f, n_g, shift);
  const char *word = kiln_edit_word(&e, second);
  if (shift == 0) return kiln_edit_commit(&e, "merge %s %s", kiln_edit_word(&e, first), word);
  return kiln_edit_commit(&e, "merge %s %s %" PRId64, kiln_edit_word(&e, first), word, shift);
}
