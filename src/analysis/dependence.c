// Accesses with all the conditions under which they run, and whether instances of two access one
// element.
#include "analysis/dependence.h"

#include "analysis/witness.h"

#include <isl/ilp.h>
#include <string.h>

// --- accesses ---

// A value with more nodes is visited once a node instead of as a tree; conditions of its SELECTs
// are then ignored.
enum { MAX_NODES = 2048, MAX_FRAMES = 192 };

typedef struct collector {
  kiln_ctx *cx;
  const kiln_loops *l;
  int buffer;
  kiln_dependence_accesses *out;
  const kiln_loop *node;
  int n_loops, n_conds, n_nodes;
  const kiln_loop *loops[MAX_FRAMES];
  const kiln_expr *conds[MAX_FRAMES];
} collector;

static const void *copy_of(kiln_ctx *cx, const void *from, int n) {
  void **to = KILN_NEW_ARRAY(&cx->perm, void *, n);
  if (n > 0) memcpy(to, from, sizeof *to * (size_t)n);
  return to;
}

static void push_touch(collector *c, kiln_dependence_access t) {
  if (c->buffer >= 0 && t.buffer != c->buffer) return;
  t.node = c->node;
  t.n_loops = c->n_loops;
  t.n_conds = c->n_conds;
  t.loops = copy_of(c->cx, c->loops, c->n_loops);
  t.conds = copy_of(c->cx, c->conds, c->n_conds);
  KILN_VEC_PUSH(&c->cx->perm, c->out, t);
}

static void push_load(const kiln_expr *e, void *argument) {
  if (e->kind == KILN_EXPR_LOAD)
    push_touch(argument, (kiln_dependence_access){
                             .buffer = e->u.tensor, .rank = e->n_args, .index = e->args});
}

static void collect_value(collector *c, const kiln_expr *e);

static void collect_under(collector *c, const kiln_expr *cond, const kiln_expr *e) {
  const int n = c->n_conds;
  if (n < MAX_FRAMES) c->conds[c->n_conds++] = cond;
  collect_value(c, e);
  c->n_conds = n;
}

static void collect_value(collector *c, const kiln_expr *e) {
  if (!e || !kiln_expr_has_load(e)) return;
  if (++c->n_nodes > MAX_NODES) {
    kiln_expr_visit(c->cx, e, push_load, c);
    return;
  }
  push_load(e, c);
  if (e->kind == KILN_EXPR_SELECT) {
    collect_value(c, e->args[0]);
    collect_under(c, e->args[0], e->args[1]);
    collect_under(c, kiln_unary(c->cx, KILN_EXPR_NOT, e->args[0]), e->args[2]);
    return;
  }
  for (int i = 0; i < e->n_args; i++) collect_value(c, e->args[i]);
}

static void collect_store(collector *c, const kiln_loop *n) {
  const int rank = c->l->buffers.data[n->buffer]->rank;
  for (int k = 0; k < rank; k++) collect_value(c, n->index[k]);
  collect_value(c, n->value);
  push_touch(c, (kiln_dependence_access){.buffer = n->buffer,
                                         .rank = rank,
                                         .write = true,
                                         .combiner = n->combiner,
                                         .index = n->index});
}

static void collect(collector *c, const kiln_loop *n) {
  for (; n; n = n->next) {
    const int n_loops = c->n_loops, n_conds = c->n_conds;
    c->node = n;
    c->n_nodes = 0;
    switch (n->kind) {
    case KILN_LOOP_FOR:
      collect_value(c, n->extent);
      c->out->too_deep |= c->n_loops == MAX_FRAMES;
      if (c->n_loops < MAX_FRAMES) c->loops[c->n_loops++] = n;
      break;
    case KILN_LOOP_IF:
      collect_value(c, n->cond);
      if (c->n_conds < MAX_FRAMES) c->conds[c->n_conds++] = n->cond;
      break;
    case KILN_LOOP_STORE: collect_store(c, n); break;
    case KILN_LOOP_ALLOC: break;
    case KILN_LOOP_INSTR: break;    // warp-level: on lanes' own memory; others were expanded before
    case KILN_LOOP_PREFETCH: break; // a hint reads nothing
    case KILN_LOOP_DEVICE: break;   // not in loops
    }
    collect(c, n->body);
    c->n_loops = n_loops;
    c->n_conds = n_conds;
  }
}

kiln_dependence_accesses kiln_dependence_accesses_of(kiln_ctx *cx, const kiln_loops *l,
                                                     int buffer) {
  kiln_dependence_accesses out = {0};
  collector c = {.cx = cx, .l = l, .buffer = buffer, .out = &out};
  collect(&c, l->body);
  return out;
}

int kiln_dependence_access_depth(const kiln_dependence_access *t, kiln_symbol loop) {
  for (int i = 0; i < t->n_loops; i++)
    if (t->loops[i]->var == loop) return i;
  return -1;
}

// --- pairs ---

static kiln_symbol other(kiln_ctx *cx, kiln_symbol var) {
  return kiln_symbol_printf(cx, "%s'", kiln_symbol_text(cx, var));
}

const kiln_expr *kiln_access_pair_second(kiln_ctx *cx, const kiln_access_pair *p,
                                         const kiln_expr *e) {
  kiln_symbol from[MAX_FRAMES];
  const kiln_expr *to[MAX_FRAMES];
  int n = 0;
  for (int i = p->n_shared; i < p->b->n_loops; i++, n++) {
    from[n] = p->b->loops[i]->var;
    to[n] = kiln_var(cx, other(cx, from[n]));
  }
  return kiln_expr_substitute(cx, e, n, from, to);
}

// A query for isl. Everything is gathered from arenas before isl is called, because isl objects
// would leak if an allocation failed.
typedef struct query {
  const kiln_access_pair *pair;
  int n_vars;
  kiln_symbol *vars; // shared, then those of a, then those of b
  const kiln_expr **extents;
  struct {
    const kiln_expr **data;
    int n, cap;
  } conds;
} query;

static void push_var(query *q, kiln_symbol var, const kiln_expr *extent) {
  q->vars[q->n_vars] = var;
  q->extents[q->n_vars++] = extent;
}

static query query_of(kiln_ctx *cx, const kiln_access_pair *p, int n_conds,
                      const kiln_expr *const *conds) {
  const kiln_dependence_access *a = p->a, *b = p->b;
  query q = {.pair = p,
             .vars = KILN_NEW_ARRAY(&cx->perm, kiln_symbol, a->n_loops + b->n_loops),
             .extents = KILN_NEW_ARRAY(&cx->perm, const kiln_expr *, a->n_loops + b->n_loops)};
  for (int i = 0; i < a->n_loops; i++) push_var(&q, a->loops[i]->var, a->loops[i]->extent);
  for (int i = p->n_shared; i < b->n_loops; i++)
    push_var(&q, other(cx, b->loops[i]->var), kiln_access_pair_second(cx, p, b->loops[i]->extent));
  for (int i = 0; i < a->n_conds; i++) KILN_VEC_PUSH(&cx->perm, &q.conds, a->conds[i]);
  for (int i = 0; i < b->n_conds; i++)
    KILN_VEC_PUSH(&cx->perm, &q.conds, kiln_access_pair_second(cx, p, b->conds[i]));
  for (int k = 0; k < a->rank; k++) {
    const kiln_expr *x = a->index[k], *y = kiln_access_pair_second(cx, p, b->index[k]);
    if (x != y) KILN_VEC_PUSH(&cx->perm, &q.conds, kiln_binary(cx, KILN_EXPR_EQ, x, y));
  }
  for (int i = 0; i < n_conds; i++) KILN_VEC_PUSH(&cx->perm, &q.conds, conds[i]);
  return q;
}

static isl_set *ask(const kiln_polyhedra *p, const query *q, bool *out_exact) {
  const kiln_poly_vars vars = {q->n_vars, q->vars};
  isl_space *space = kiln_poly_space(p, NULL, vars);
  isl_set *s = kiln_poly_domain(p, space, vars, q->extents, q->conds.n,
                                (const kiln_expr *const *)q->conds.data, out_exact);
  isl_space_free(space);
  return s;
}

// --- witnesses ---

static int64_t coordinate(isl_point *at, int k) {
  isl_val *v = isl_point_get_coordinate_val(at, isl_dim_set, k);
  const int64_t i = v ? isl_val_get_num_si(v) : 0;
  isl_val_free(v);
  return i;
}

static bool element_at(const kiln_polyhedra *p, const query *q, isl_point *at, int k,
                       int64_t *out) {
  const kiln_poly_vars vars = {q->n_vars, q->vars};
  isl_space *space = isl_point_get_space(at);
  isl_pw_aff *x = kiln_poly_expr(p, space, vars, q->pair->a->index[k]);
  isl_space_free(space);
  if (!x) return false;
  isl_val *v = isl_pw_aff_eval(x, isl_point_copy(at));
  const bool is_known = v && isl_val_is_int(v) == isl_bool_true;
  if (is_known) *out = isl_val_get_num_si(v);
  isl_val_free(v);
  return is_known;
}

static void witness(const kiln_polyhedra *p, const query *q, isl_point *at,
                    kiln_dependence_witness *out) {
  const kiln_dependence_access *a = q->pair->a, *b = q->pair->b;
  const int n_shared = q->pair->n_shared;
  for (int i = 0; i < a->n_loops && i < KILN_MAX_WITNESS; i++) out->a[i] = coordinate(at, i);
  for (int i = 0; i < b->n_loops && i < KILN_MAX_WITNESS; i++)
    out->b[i] = coordinate(at, i < n_shared ? i : a->n_loops + i - n_shared);
  for (int k = 0; k < a->rank; k++) out->is_known[k] = element_at(p, q, at, k, &out->element[k]);
}

// Verdict from |s|, the set of pairs of instances that access one element.
static kiln_dependence_verdict verdict_of(const kiln_polyhedra *p, isl_set *s, bool exact) {
  const isl_bool is_empty = isl_set_is_empty(s);
  if (is_empty == isl_bool_error || kiln_polyhedra_failed(p)) return KILN_UNDECIDED;
  return is_empty == isl_bool_true ? KILN_NEVER : exact ? KILN_MEETS : KILN_MAY_MEET;
}

// --- cache of verdicts ---

// Expressions are interned, so equal words mean equal queries.
typedef struct judged {
  const struct judged *next; // of the same hash
  int n;
  const uint64_t *words; // [n] the query
  kiln_dependence_verdict verdict;
} judged;

static const uint64_t *words_of(kiln_ctx *cx, const query *q, int *out_n) {
  uint64_t *words = KILN_NEW_ARRAY(&cx->perm, uint64_t, 1 + 2 * q->n_vars + q->conds.n);
  int n = 0;
  words[n++] = (uint64_t)q->n_vars;
  for (int i = 0; i < q->n_vars; i++) words[n++] = q->vars[i];
  for (int i = 0; i < q->n_vars; i++) words[n++] = q->extents[i]->id;
  for (int i = 0; i < q->conds.n; i++) words[n++] = q->conds.data[i]->id;
  *out_n = n;
  return words;
}

static bool is_used(const query *q, kiln_symbol var) {
  for (int i = 0; i < q->conds.n; i++)
    if (kiln_expr_uses(q->conds.data[i], var)) return true;
  for (int i = 0; i < q->n_vars; i++)
    if (kiln_expr_uses(q->extents[i], var)) return true;
  return false;
}

// The query with variables named by position, without unused variables of nonempty ranges: tiles of
// one shape are one query, independent of names and of the grid around them.
static query canonical(kiln_ctx *cx, const query *q) {
  query c = {.vars = KILN_NEW_ARRAY(&cx->perm, kiln_symbol, q->n_vars),
             .extents = KILN_NEW_ARRAY(&cx->perm, const kiln_expr *, q->n_vars)};
  kiln_symbol *from = KILN_NEW_ARRAY(&cx->perm, kiln_symbol, q->n_vars);
  const kiln_expr **to = KILN_NEW_ARRAY(&cx->perm, const kiln_expr *, q->n_vars);
  for (int i = 0; i < q->n_vars; i++) {
    if (kiln_expr_int_or(q->extents[i], 0) > 0 && !is_used(q, q->vars[i])) continue;
    from[c.n_vars] = q->vars[i];
    c.vars[c.n_vars] = kiln_symbol_printf(cx, "#%d", c.n_vars);
    to[c.n_vars] = kiln_var(cx, c.vars[c.n_vars]);
    c.extents[c.n_vars++] = q->extents[i];
  }
  for (int i = 0; i < c.n_vars; i++)
    c.extents[i] = kiln_expr_substitute(cx, c.extents[i], c.n_vars, from, to);
  for (int i = 0; i < q->conds.n; i++)
    KILN_VEC_PUSH(&cx->perm, &c.conds,
                  kiln_expr_substitute(cx, q->conds.data[i], c.n_vars, from, to));
  return c;
}

// Nodes evaluated in the search for a witness that precedes the query to isl.
enum { WITNESS_BUDGET = 20000 };

static kiln_dependence_verdict judge(kiln_ctx *cx, const query *q) {
  if (kiln_find_witness(cx, q->n_vars, q->vars, q->extents, q->conds.n, q->conds.data,
                        WITNESS_BUDGET))
    return KILN_MEETS;
  kiln_polyhedra p;
  bool exact = true;
  kiln_polyhedra_init(cx, KILN_POLYHEDRA_BUDGET, &p);
  isl_set *s = ask(&p, q, &exact);
  const kiln_dependence_verdict verdict = verdict_of(&p, s, exact);
  isl_set_free(s);
  kiln_polyhedra_deinit(&p);
  return verdict;
}

static kiln_dependence_verdict recall(kiln_ctx *cx, const query *asked) {
  const query q = canonical(cx, asked);
  int n = 0;
  const uint64_t *words = words_of(cx, &q, &n), bytes = (uint64_t)n * sizeof *words,
                 hash = kiln_hash_bytes(words, bytes, 0), *found = kiln_map_find(&cx->judged, hash);
  const judged *first = found ? (const judged *)(uintptr_t)*found : NULL;
  for (const judged *j = first; j; j = j->next)
    if (j->n == n && memcmp(j->words, words, bytes) == 0) return j->verdict;
  judged *j = KILN_NEW(&cx->perm, judged);
  *j = (judged){first, n, words, judge(cx, &q)};
  kiln_map_put(&cx->judged, hash, (uint64_t)(uintptr_t)j);
  return j->verdict;
}

// --- queries ---

kiln_dependence_verdict kiln_access_pair_verdict(kiln_ctx *cx, const kiln_access_pair *pair,
                                                 int n_conds, const kiln_expr *const *conds) {
  const query q = query_of(cx, pair, n_conds, conds);
  return recall(cx, &q);
}

bool kiln_conditions_never_hold(kiln_ctx *cx, int n_vars, const kiln_symbol *vars,
                                const int64_t *extents, int n_conds,
                                const kiln_expr *const *conds) {
  query q = {.n_vars = n_vars,
             .vars = KILN_NEW_ARRAY(&cx->perm, kiln_symbol, n_vars),
             .extents = KILN_NEW_ARRAY(&cx->perm, const kiln_expr *, n_vars)};
  for (int i = 0; i < n_vars; i++) {
    q.vars[i] = vars[i];
    q.extents[i] = kiln_int(cx, extents[i]);
  }
  for (int i = 0; i < n_conds; i++) KILN_VEC_PUSH(&cx->perm, &q.conds, conds[i]);
  return recall(cx, &q) == KILN_NEVER;
}

void kiln_access_pair_witness(const kiln_polyhedra *p, const kiln_access_pair *pair, int n_conds,
                              const kiln_expr *const *conds, kiln_dependence_witness *out) {
  const query q = query_of(p->cx, pair, n_conds, conds);
  bool exact = true;
  isl_set *s = ask(p, &q, &exact);
  *out = (kiln_dependence_witness){.verdict = verdict_of(p, s, exact)};
  if (out->verdict == KILN_NEVER || out->verdict == KILN_UNDECIDED) {
    isl_set_free(s);
    return;
  }
  isl_point *at = isl_set_sample_point(isl_set_lexmin(s));
  if (at && isl_point_is_void(at) == isl_bool_false) witness(p, &q, at, out);
  else out->verdict = KILN_UNDECIDED;
  isl_point_free(at);
  if (kiln_polyhedra_failed(p)) out->verdict = KILN_UNDECIDED;
}

bool kiln_access_pair_max(const kiln_polyhedra *p, const kiln_access_pair *pair, const kiln_expr *e,
                          int64_t *out) {
  const query q = query_of(p->cx, pair, 0, NULL);
  const kiln_poly_vars vars = {q.n_vars, q.vars};
  bool exact = true, found = false;
  isl_set *s = ask(p, &q, &exact);
  isl_space *space = kiln_poly_space(p, NULL, vars);
  isl_aff *x = isl_pw_aff_as_aff(kiln_poly_expr(p, space, vars, e));
  isl_val *v = isl_set_max_val(s, x);
  if (v && isl_val_is_int(v) == isl_bool_true && exact) {
    *out = isl_val_get_num_si(v);
    found = true;
  }
  isl_val_free(v);
  isl_aff_free(x);
  isl_set_free(s);
  isl_space_free(space);
  return found && !kiln_polyhedra_failed(p);
}
