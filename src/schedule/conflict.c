// Exact dependence tests by isl: finds two instances of statements that conflict on an element and
// whose order a change reverses, and names them in a message.
#include "schedule/legality.h"
#include "schedule/nest.h"

#include "analysis/dependence.h"
#include "target/instr.h"

#include <string.h>

typedef struct search {
  kiln_edit *e;
  const kiln_reordering *change;
  const kiln_loops *l; // those of the edit, with instructions expanded to their meaning
  kiln_dependence_accesses touches;
  const kiln_dependence_access *x, *y; // the two conflicting accesses, in their original order
  kiln_dependence_witness found;
} search;

// --- when a pair conflicts ---

static const kiln_expr *yes(kiln_ctx *cx) { return kiln_int_of(cx, KILN_BOOL, 1); }
static const kiln_expr *no(kiln_ctx *cx) { return kiln_int_of(cx, KILN_BOOL, 0); }

static const kiln_expr *either(kiln_ctx *cx, const kiln_expr *a, const kiln_expr *b) {
  if (kiln_expr_is_int(a, NULL)) return a == no(cx) ? b : a;
  if (kiln_expr_is_int(b, NULL)) return b == no(cx) ? a : b;
  return kiln_binary(cx, KILN_EXPR_OR, a, b);
}

static const kiln_expr *second_var(kiln_ctx *cx, const kiln_access_pair *p, kiln_symbol v) {
  return kiln_access_pair_second(cx, p, kiln_var(cx, v));
}

// Whether instance |a| precedes |b| in the lexicographic order of the |n| loops |vars|.
static const kiln_expr *precedes(kiln_ctx *cx, const kiln_access_pair *p, int n,
                                 const kiln_symbol *vars, bool first_is_a) {
  const kiln_expr *x = no(cx);
  for (int i = n - 1; i >= 0; i--) {
    const kiln_expr *a = kiln_var(cx, vars[i]), *b = second_var(cx, p, vars[i]);
    const kiln_expr *less = kiln_binary(cx, first_is_a ? KILN_EXPR_LT : KILN_EXPR_GT, a, b);
    const kiln_expr *same = kiln_binary(cx, KILN_EXPR_EQ, a, b);
    x = x == no(cx) ? less : either(cx, less, kiln_binary(cx, KILN_EXPR_AND, same, x));
  }
  return x;
}

// Whether instance |a| runs before |b| within one run of |loop|: by the loops that they share, then
// by position in the text. A statement reads before it writes.
static const kiln_expr *runs_before(kiln_ctx *cx, const kiln_access_pair *p, bool is_earlier) {
  kiln_symbol *vars = KILN_NEW_ARRAY(&cx->perm, kiln_symbol, p->a->n_loops);
  int n = 0;
  for (int i = p->n_shared; i < p->a->n_loops && i < p->b->n_loops; i++)
    if (p->a->loops[i] == p->b->loops[i]) vars[n++] = p->a->loops[i]->var;
    else break;
  const kiln_expr *same = yes(cx);
  for (int i = 0; i < n; i++) {
    const kiln_expr *eq =
        kiln_binary(cx, KILN_EXPR_EQ, kiln_var(cx, vars[i]), second_var(cx, p, vars[i]));
    same = same == yes(cx) ? eq : kiln_binary(cx, KILN_EXPR_AND, same, eq);
  }
  return is_earlier ? either(cx, precedes(cx, p, n, vars, true), same)
                    : precedes(cx, p, n, vars, true);
}

// The conditions under which the change makes |b|, which ran after |a|, run before it or in
// parallel.
static int places(kiln_ctx *cx, const kiln_reordering *c, const kiln_access_pair *p,
                  bool is_earlier, const kiln_expr **out) {
  switch (c->kind) {
  case KILN_REORDERING_REPEAT: out[0] = runs_before(cx, p, is_earlier); return 1;
  case KILN_REORDERING_PARALLEL:
  case KILN_REORDERING_VECTOR:
  case KILN_REORDERING_CUT:
  case KILN_REORDERING_HOIST: out[0] = precedes(cx, p, 1, &c->first, true); return 1;
  case KILN_REORDERING_LOOPS:
    out[0] = precedes(cx, p, c->n, c->from, true);
    out[1] = precedes(cx, p, c->n, c->to, false);
    return 2;
  case KILN_REORDERING_MERGE:
    out[0] = kiln_binary(cx, KILN_EXPR_GT, kiln_var(cx, c->first),
                         kiln_add(cx, second_var(cx, p, c->second), kiln_int(cx, c->shift)));
    return 1;
  }
  return 0;
}

// --- whether two assignments store the same value ---

enum { MAX_NODES = 512 };

typedef struct comparison {
  search *s;
  kiln_loop *region; // that the change reorders
  int n_nodes;
} comparison;

// A condition that holds whenever |a| and |b| have different values.
static const kiln_expr *differ(comparison *c, const kiln_expr *a, const kiln_expr *b) {
  kiln_ctx *cx = c->s->e->cx;
  if (a == b && !kiln_expr_has_load(a)) return no(cx);
  if (++c->n_nodes > MAX_NODES) return yes(cx);
  if (a->dtype == KILN_I64 && b->dtype == KILN_I64 && !kiln_expr_has_load(a) &&
      !kiln_expr_has_load(b))
    return kiln_binary(cx, KILN_EXPR_NE, a, b);
  if (a->kind != b->kind || a->dtype != b->dtype || a->n_args != b->n_args || a->n_args == 0)
    return yes(cx);
  if (a->kind == KILN_EXPR_LOAD &&
      (a->u.tensor != b->u.tensor ||
       kiln_nest_uses(cx, c->s->l, c->region, a->u.tensor, /*writes=*/true)))
    return yes(cx);
  const kiln_expr *x = no(cx);
  for (int i = 0; i < a->n_args; i++) x = either(cx, x, differ(c, a->args[i], b->args[i]));
  return x;
}

static const kiln_expr *stored_differ(search *s, const kiln_access_pair *p) {
  const kiln_symbol outer =
      s->change->kind == KILN_REORDERING_LOOPS ? s->change->from[0] : s->change->first;
  comparison c = {.s = s, .region = kiln_loops_find(s->l, outer)};
  if (s->change->kind == KILN_REORDERING_MERGE) return yes(s->e->cx);
  return differ(&c, p->a->node->value, kiln_access_pair_second(s->e->cx, p, p->b->node->value));
}

// --- the search ---

static bool runs_at_once(const kiln_reordering *c) {
  return c->kind == KILN_REORDERING_PARALLEL || c->kind == KILN_REORDERING_VECTOR;
}

// The number of shared loops whose order the change keeps; -1 if it does not reorder the pair.
static int shared_depth(const kiln_reordering *c, const kiln_dependence_access *x,
                        const kiln_dependence_access *y) {
  const kiln_symbol first = c->kind == KILN_REORDERING_LOOPS ? c->from[0] : c->first;
  const kiln_symbol second = c->kind == KILN_REORDERING_MERGE ? c->second : first;
  const int depth = kiln_dependence_access_depth(x, first);
  return depth == kiln_dependence_access_depth(y, second) ? depth : -1;
}

static bool index_uses(const kiln_dependence_access *t, kiln_symbol v) {
  for (int k = 0; k < t->rank; k++)
    if (kiln_expr_uses(t->index[k], v)) return true;
  return false;
}

static bool combine_alike(const kiln_dependence_access *x, const kiln_dependence_access *y) {
  return x->write && y->write && x->combiner == y->combiner && x->combiner != KILN_COMBINE_NONE;
}

// Whether |v| indexes neither result, so that all its iterations combine into the same elements.
static bool reduce_into_one(const kiln_dependence_access *x, const kiln_dependence_access *y,
                            kiln_symbol v) {
  return combine_alike(x, y) && !index_uses(x, v) && !index_uses(y, v);
}

static bool commute(const kiln_reordering *c, const kiln_dependence_access *x,
                    const kiln_dependence_access *y) {
  if (!x->write && !y->write) return true;
  switch (c->kind) {
  case KILN_REORDERING_REPEAT: return x->write || !y->write;
  case KILN_REORDERING_CUT: return !x->write || y->write;
  case KILN_REORDERING_HOIST: return !x->write || y->write || y->node->kind != KILN_LOOP_IF;
  // lanes are reduced at the end
  case KILN_REORDERING_VECTOR: return reduce_into_one(x, y, c->first);
  case KILN_REORDERING_PARALLEL: return false;
  case KILN_REORDERING_LOOPS:
  case KILN_REORDERING_MERGE: return combine_alike(x, y);
  }
  return false;
}

static bool both_assign(const kiln_dependence_access *x, const kiln_dependence_access *y) {
  return x->write && y->write && x->combiner == KILN_COMBINE_NONE &&
         y->combiner == KILN_COMBINE_NONE;
}

// A witness is asked for only where there is one: that takes many times as long as the verdict.
static bool try_pair(search *s, const kiln_dependence_access *x, const kiln_dependence_access *y) {
  const int n_shared = shared_depth(s->change, x, y);
  if (n_shared < 0 || commute(s->change, x, y)) return false;
  const kiln_access_pair pair = {x, y, n_shared};
  const kiln_expr *conds[3];
  int n = places(s->e->cx, s->change, &pair, x < y, conds);
  if (both_assign(x, y)) conds[n++] = stored_differ(s, &pair);
  if (kiln_access_pair_verdict(s->e->cx, &pair, n, conds) == KILN_NEVER) return false;
  kiln_polyhedra p;
  kiln_polyhedra_init(s->e->cx, KILN_POLYHEDRA_BUDGET, &p);
  kiln_access_pair_witness(&p, &pair, n, conds, &s->found);
  kiln_polyhedra_deinit(&p);
  s->x = x;
  s->y = y;
  return s->found.verdict != KILN_NEVER;
}

static bool try_all(search *s) {
  for (int i = 0; i < s->touches.n; i++)
    for (int j = 0; j < s->touches.n; j++)
      if (try_pair(s, &s->touches.data[i], &s->touches.data[j])) return true;
  return false;
}

// The least shift with which the second loop never overtakes the first; -1 if there is none.
static int64_t least_shift(search *s) {
  const kiln_reordering *c = s->change;
  int64_t shift = c->shift;
  kiln_polyhedra p;
  kiln_polyhedra_init(s->e->cx, KILN_POLYHEDRA_BUDGET, &p);
  for (int i = 0; i < s->touches.n; i++)
    for (int j = 0; j < s->touches.n; j++) {
      const kiln_dependence_access *x = &s->touches.data[i], *y = &s->touches.data[j];
      const int n_shared = shared_depth(c, x, y);
      if (n_shared < 0 || commute(c, x, y)) continue;
      const kiln_access_pair pair = {x, y, n_shared};
      const kiln_expr *ahead =
          kiln_sub(s->e->cx, kiln_var(s->e->cx, c->first), second_var(s->e->cx, &pair, c->second));
      int64_t most = 0;
      if (kiln_access_pair_verdict(s->e->cx, &pair, 0, NULL) == KILN_NEVER) continue;
      if (!kiln_access_pair_max(&p, &pair, ahead, &most)) shift = INT64_MAX;
      else if (most > shift) shift = most;
    }
  kiln_polyhedra_deinit(&p);
  return shift == INT64_MAX ? -1 : shift;
}

// --- messages ---

// Prints an instance as "C(i=0, k=1)": without loops of extent 1, and without the statement's name
// in loop names.
static const char *instance(const search *s, const kiln_dependence_access *t,
                            const int64_t *values) {
  kiln_ctx *cx = s->e->cx;
  kiln_text out;
  kiln_text_init(&out, &cx->perm);
  const kiln_loop *n = t->node;
  const char *name = n->kind == KILN_LOOP_STORE
                         ? kiln_edit_text(s->e, s->l->buffers.data[n->buffer]->name)
                     : n->kind == KILN_LOOP_FOR ? kiln_edit_text(s->e, n->var)
                                                : "if";
  kiln_text_printf(&out, "%s(", name);
  const size_t skip = strlen(name);
  const char *comma = "";
  for (int i = 0; i < t->n_loops && i < KILN_MAX_WITNESS; i++) {
    if (kiln_loop_is_unit(t->loops[i])) continue;
    const char *var = kiln_edit_text(s->e, t->loops[i]->var);
    if (strncmp(var, name, skip) == 0 && var[skip] == '.' && var[skip + 1]) var += skip + 1;
    kiln_text_printf(&out, "%s%s=%" PRId64, comma, var, values[i]);
    comma = ", ";
  }
  kiln_text_add(&out, ")");
  return out.data;
}

static const char *element(const search *s) {
  kiln_text out;
  kiln_text_init(&out, &s->e->cx->perm);
  kiln_text_printf(&out, "%s[", kiln_edit_text(s->e, s->l->buffers.data[s->x->buffer]->name));
  for (int k = 0; k < s->x->rank; k++) {
    if (k > 0) kiln_text_add(&out, ", ");
    if (s->found.is_known[k]) kiln_text_printf(&out, "%" PRId64, s->found.element[k]);
    else kiln_text_add(&out, "?");
  }
  kiln_text_add(&out, "]");
  return out.data;
}

// Says how the two accesses conflict; at least one of them writes.
static void say_fight(const search *s, kiln_text *out) {
  const kiln_dependence_access *x = s->x, *y = s->y;
  const char *a = instance(s, x, s->found.a), *b = instance(s, y, s->found.b);
  const char *at = element(s);
  const bool x_combines = x->write && x->combiner != KILN_COMBINE_NONE;
  const bool y_combines = y->write && y->combiner != KILN_COMBINE_NONE;
  if (!y->write) kiln_text_printf(out, "%s reads %s, which %s writes before", b, at, a);
  else if (!x->write) kiln_text_printf(out, "%s reads %s, which %s writes after", a, at, b);
  else if (x_combines && y_combines) kiln_text_printf(out, "%s and %s combine into %s", a, b, at);
  else if (y_combines) kiln_text_printf(out, "%s combines into %s, which %s sets before", b, at, a);
  else if (x_combines) kiln_text_printf(out, "%s combines into %s, which %s sets after", a, at, b);
  else kiln_text_printf(out, "%s and %s write %s in order", a, b, at);
}

static void say_what(const search *s, kiln_text *out) {
  const kiln_reordering *c = s->change;
  const char *may = s->found.verdict == KILN_MAY_MEET ? "may " : "";
  const char *loop = kiln_edit_text(s->e, c->kind == KILN_REORDERING_LOOPS ? c->from[0] : c->first);
  switch (c->kind) {
  case KILN_REORDERING_PARALLEL:
  case KILN_REORDERING_VECTOR:
    kiln_text_printf(
        out, *may ? "loop %s may carry a dependence: " : "loop %s carries a dependence: ", loop);
    break;
  case KILN_REORDERING_LOOPS:
    kiln_text_printf(out, "the new order %s a dependence: ", *may ? "may reverse" : "reverses");
    break;
  case KILN_REORDERING_MERGE:
    kiln_text_printf(out, "loop %s must not run ahead of %s: ", kiln_edit_text(s->e, c->second),
                     loop);
    break;
  case KILN_REORDERING_CUT:
    kiln_text_printf(out,
                     "iterations of loop %s must not hand values on in a nest that moves: ", loop);
    break;
  case KILN_REORDERING_HOIST:
    kiln_text_printf(
        out, *may ? "loop %s may change its condition: " : "loop %s changes its condition: ", loop);
    break;
  case KILN_REORDERING_REPEAT:
    kiln_text_printf(out, "loop %s: a shifted tail runs iterations again: ", loop);
    break;
  }
}

// Suggests a way to make the change legal, if there is one.
static void say_remedy(const search *s, int64_t shift, kiln_text *out) {
  const kiln_reordering *c = s->change;
  if (runs_at_once(c) && reduce_into_one(s->x, s->y, c->first))
    kiln_text_printf(out, ": rfactor %s first", kiln_edit_word(s->e, c->first));
  if (c->kind == KILN_REORDERING_CUT) kiln_text_add(out, ": do this before store_at or pipeline");
  if (c->kind == KILN_REORDERING_REPEAT) kiln_text_add(out, ": use guard");
  if (c->kind == KILN_REORDERING_MERGE && shift > c->shift)
    kiln_text_printf(out, ": merge with shift %" PRId64, shift);
}

static kiln_status refuse(const search *s, int64_t shift) {
  kiln_text m;
  kiln_text_init(&m, &s->e->cx->perm);
  say_what(s, &m);
  const char *name = kiln_edit_text(s->e, s->l->buffers.data[s->x->buffer]->name);
  if (s->found.verdict == KILN_UNDECIDED) {
    kiln_text_printf(&m, "whether instances meet in buffer %s was not decided in %d steps", name,
                     KILN_POLYHEDRA_BUDGET);
    return kiln_refuse(s->e, "%s", m.data);
  }
  say_fight(s, &m);
  if (s->found.verdict == KILN_MAY_MEET) {
    kiln_text_printf(&m, " (not all indices and conditions are affine)");
  }
  say_remedy(s, shift, &m);
  return kiln_refuse(s->e, "%s", m.data);
}

kiln_status kiln_check_exactly(kiln_edit *e, const kiln_reordering *change, int buffer) {
  if (e->s->is_draft) return KILN_OK;
  search s = {.e = e, .change = change, .l = kiln_instrs_expand(e->cx, e->l)};
  s.touches = kiln_dependence_accesses_of(e->cx, s.l, buffer);
  if (s.touches.too_deep) return kiln_refuse(e, "loops must be nested less deep");
  if (!try_all(&s)) return KILN_OK;
  const bool may_shift = change->kind == KILN_REORDERING_MERGE && s.found.verdict == KILN_MEETS;
  return refuse(&s, may_shift ? least_shift(&s) : 0);
}
