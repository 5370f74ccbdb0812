// Online softmax: reductions over one axis are fused into one loop over chunks of it, including
// those that weight their terms by exp(u - M) where M is the maximum of u that one of them is still
// computing.
//
// In each chunk M is updated; sums so far, which used the previous maximum, are multiplied by exp(M
// before - M); the weights of the chunk are computed, once for all sums that use them; and the sums
// continue. A factor or divisor of a sum that is another sum's result is applied after the loop.
// softmax(X)*V so needs only a chunk of X at a time. Bases other than e are supported. Weights that
// are rounded to a narrower type are rounded under the maximum so far.
// source: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018
#include "schedule/index.h"
#include "schedule/legality.h"

#include <math.h>
#include <string.h>

enum { MAX_PARTS = 8, MAX_FACTORS = 4 };

// How a sum uses another sum's result, which is applied after the loop.
typedef enum leaving { MULTIPLIED, DIVIDED, MULTIPLIED_BY_INVERSE } leaving;

// One of the fused reductions.
typedef struct part {
  kiln_loop *loop, *store; // over the chunks; the only statement in it
  kiln_buffer *to;
  int depth;
  kiln_loop *path[KILN_MAX_DEPTH]; // from |loop| to |store|
  const kiln_expr *weight; // exp(u - M[...]) in its value, rounded or not; NULL: it has no weight
  int n_left;              // factors and divisors that are applied after the loop
  const kiln_expr *left[MAX_FACTORS];
  leaving how[MAX_FACTORS];
} part;

typedef struct fusing {
  kiln_edit e;
  kiln_symbol name;
  int n;
  part parts[MAX_PARTS];
  int64_t n_chunks;
  part *top;             // whose result is M; NULL until it is found
  kiln_dtype rounded;    // the type to which weights are rounded
  const kiln_expr *base; // of the weights' power; NULL: e
  bool flushes;          // weights that would be subnormal are 0
  kiln_symbol copies;    // the loop of M that numbers its copies; 0: none
  const kiln_expr *copy; // the copy by which weights are computed
  kiln_buffer *before, *shift, *scale, *weights;
} fusing;

static const char *name_of(const fusing *t, const part *p) {
  return kiln_edit_text(&t->e, p->to->name);
}

static part *part_of(fusing *t, int buffer) {
  for (int i = 0; i < t->n; i++)
    if (t->parts[i].to->id == buffer) return &t->parts[i];
  return NULL;
}

// --- the reductions ---

static kiln_status find_store(fusing *t, part *p) {
  kiln_edit *e = &t->e;
  const kiln_accesses all = kiln_accesses_of(e->cx, e->l, p->loop->body, true, -1);
  int n_writes = 0;
  for (int i = 0; i < all.n; i++) {
    if (!all.data[i].write) continue;
    p->store = all.data[i].node;
    n_writes++;
  }
  if (n_writes != 1 || p->store->kind != KILN_LOOP_STORE || p->store->combiner == KILN_COMBINE_NONE)
    return kiln_refuse(e, "loop %s must hold one reduction and nothing else",
                       kiln_edit_text(e, p->loop->var));
  p->to = e->l->buffers.data[p->store->buffer];
  kiln_loop *path[KILN_MAX_DEPTH];
  const int depth = kiln_nest_path(e->l, p->store, path);
  int at = 0;
  while (path[at] != p->loop) at++;
  for (; at < depth; at++) {
    const kiln_loop *l = p->path[p->depth++] = path[at];
    int64_t extent = 0;
    if (l->kind == KILN_LOOP_FOR) KILN_TRY(kiln_edit_extent(e, l, &extent));
    if (l->kind == KILN_LOOP_ALLOC || (l->kind == KILN_LOOP_FOR && extent < 1))
      return kiln_refuse(e, "loop %s must hold loops that run: online_softmax before compute_at",
                         kiln_edit_text(e, p->loop->var));
  }
  return KILN_OK;
}

// The loop of |p| that alone indexes axis |k| of its result, over all of it; NULL if there is none.
static const kiln_loop *axis_loop(const part *p, int k) {
  const kiln_expr *x = p->store->index[k];
  for (int j = 0; j < p->to->rank; j++)
    if (x->kind != KILN_EXPR_VAR || (j != k && kiln_expr_uses(p->store->index[j], x->u.sym)))
      return NULL;
  for (int i = 1; i < p->depth; i++) {
    int64_t extent = 0;
    if (p->path[i]->kind == KILN_LOOP_FOR && p->path[i]->var == x->u.sym)
      return kiln_expr_is_int(p->path[i]->extent, &extent) && extent == p->to->extents[k]
                 ? p->path[i]
                 : NULL;
  }
  return NULL;
}

// Requires that the reduction covers its whole buffer in each iteration of its loop.
static kiln_status check_whole(fusing *t, part *p) {
  for (int k = 0; k < p->to->rank; k++)
    if (p->to->extents[k] != 1 && !axis_loop(p, k))
      return kiln_refuse(
          &t->e,
          "axis %d of buffer %s must be the index of one loop in loop %s, over all "
          "of it: compute_at the buffer where the loop is, and online_softmax before "
          "splitting its loops",
          k, name_of(t, p), kiln_edit_text(&t->e, p->loop->var));
  return KILN_OK;
}

static bool is_own(const part *p, kiln_symbol v) {
  for (int i = 0; i < p->depth; i++)
    if (p->path[i]->kind == KILN_LOOP_FOR && p->path[i]->var == v) return true;
  return false;
}

static bool indexes_result(const part *p, kiln_symbol v) {
  for (int k = 0; k < p->to->rank; k++)
    if (kiln_expr_uses(p->store->index[k], v)) return true;
  return false;
}

// Conditions may exclude the same summands of all elements, but not all summands.
static kiln_status check_conditions(fusing *t, part *p) {
  kiln_edit *e = &t->e;
  for (int i = 1; i < p->depth; i++) {
    if (p->path[i]->kind != KILN_LOOP_IF) continue;
    const kiln_expr *cond = p->path[i]->cond;
    bool is_plain = !cond->has_load;
    kiln_symbol vars[KILN_MAX_DEPTH];
    const kiln_expr *zeros[KILN_MAX_DEPTH];
    const int n = cond->vars ? cond->vars->n : 0;
    for (int v = 0; v < n && v < KILN_MAX_DEPTH; v++) {
      vars[v] = cond->vars->vars[v];
      zeros[v] = kiln_int(e->cx, 0);
      is_plain &= is_own(p, vars[v]) && !indexes_result(p, vars[v]);
    }
    int64_t holds = 0;
    if (is_plain && n <= KILN_MAX_DEPTH) {
      const kiln_expr *first = kiln_expr_substitute(e->cx, cond, n, vars, zeros);
      if (kiln_expr_is_int(kiln_edit_simplify(e, first), &holds) && holds) continue;
    }
    return kiln_refuse(e,
                       "conditions in loop %s must be about the loops that reduce alone, and hold "
                       "where they begin",
                       kiln_edit_text(e, p->loop->var));
  }
  return KILN_OK;
}

static bool is_behind(const kiln_loop *l, const kiln_loop *first) {
  while (first && first != l) first = first->next;
  return first != NULL;
}

static bool shares_buffer(fusing *t, kiln_loop *a, kiln_loop *b) {
  const kiln_accesses of_a = kiln_accesses_of(t->e.cx, t->e.l, a, false, -1);
  for (int i = 0; i < of_a.n; i++)
    if (kiln_nest_uses(t->e.cx, t->e.l, b, of_a.data[i].buffer, true) ||
        (of_a.data[i].write && kiln_nest_uses(t->e.cx, t->e.l, b, of_a.data[i].buffer, false)))
      return true;
  return false;
}

static bool is_part(const fusing *t, const kiln_loop *l) {
  for (int i = 0; i < t->n; i++)
    if (t->parts[i].loop == l) return true;
  return false;
}

// Whether |l| shares a buffer with a statement between |from| and |l| that is not hoisted.
static bool waits(fusing *t, kiln_loop *from, kiln_loop *l) {
  for (kiln_loop *before = from; before != l; before = before->next)
    if (shares_buffer(t, before, l)) return true;
  return false;
}

// Moves statements between the reductions before the first of them if they are independent of those
// before, as initialisations of sums are; the others stay after all of them.
static kiln_status check_between(fusing *t) {
  kiln_loop *first = t->parts[0].loop, *last = t->parts[t->n - 1].loop, *next = NULL;
  for (kiln_loop *l = first->next; l != last; l = next) {
    next = l->next;
    if (is_part(t, l)) continue;
    if (!waits(t, first, l)) {
      *kiln_nest_slot(t->e.l, l) = next;
      kiln_loop **slot = kiln_nest_slot(t->e.l, first);
      l->next = first;
      *slot = l;
      continue;
    }
    for (int i = 1; i < t->n; i++)
      if (is_behind(t->parts[i].loop, l) && shares_buffer(t, l, t->parts[i].loop))
        return kiln_refuse(&t->e,
                           "statements between loops %s and %s must be independent of the order, "
                           "got one that shares a buffer with the second",
                           kiln_edit_text(&t->e, first->var),
                           kiln_edit_text(&t->e, t->parts[i].loop->var));
  }
  return KILN_OK;
}

// Moves ALLOCs between the reductions before the first one, so that all of them have one parent.
static void hoist_allocs(fusing *t) {
  kiln_loop *first = t->parts[0].loop;
  kiln_loop **slot = &first->next;
  while (*slot) {
    kiln_loop *alloc = *slot;
    if (alloc->kind != KILN_LOOP_ALLOC) {
      slot = &alloc->next;
      continue;
    }
    kiln_loop **front = kiln_nest_slot(t->e.l, first), *behind = alloc->next;
    *slot = alloc->body;
    *front = alloc;
    alloc->body = first;
    alloc->next = NULL;
    *kiln_nest_end(&alloc->body) = behind;
  }
}

// Requires that the reductions are in one body, in order, and none uses a later one's result.
static kiln_status check_order(fusing *t) {
  kiln_edit *e = &t->e;
  hoist_allocs(t);
  for (int i = 1; i < t->n; i++) {
    part *p = &t->parts[i], *before = &t->parts[i - 1];
    int64_t extent = 0;
    KILN_TRY(kiln_edit_extent(e, p->loop, &extent));
    if (extent != t->n_chunks)
      return kiln_refuse(
          e, "loops must have one extent, got %" PRId64 " of %s and %" PRId64 " of %s", t->n_chunks,
          kiln_edit_text(e, t->parts[0].loop->var), extent, kiln_edit_text(e, p->loop->var));
    if (!is_behind(p->loop, before->loop->next))
      return kiln_refuse(e, "loop %s must stand behind loop %s in the same body",
                         kiln_edit_text(e, p->loop->var), kiln_edit_text(e, before->loop->var));
    for (int j = 0; j < i; j++)
      if (kiln_nest_uses(e->cx, e->l, t->parts[j].loop, p->to->id, false) ||
          t->parts[j].to == p->to)
        return kiln_refuse(e, "loop %s must not use buffer %s, which loop %s reduces into later",
                           kiln_edit_text(e, t->parts[j].loop->var), name_of(t, p),
                           kiln_edit_text(e, p->loop->var));
  }
  return check_between(t);
}

// --- the terms of a reduction ---

typedef struct finding {
  fusing *t;
  bool found;
} finding;

static void find_result(const kiln_expr *x, void *argument) {
  finding *f = argument;
  if (x->kind == KILN_EXPR_LOAD && part_of(f->t, x->u.tensor)) f->found = true;
}

static bool reads_results(fusing *t, const kiln_expr *x) {
  finding f = {t, false};
  if (x->has_load) kiln_expr_visit(t->e.cx, x, find_result, &f);
  return f.found;
}

static kiln_status refuse_value(fusing *t, part *p) {
  return kiln_refuse(
      &t->e,
      "the terms of buffer %s must depend on results of the other loops only through exp(x - M), M "
      "being the maximum of x, or through factors of the whole "
      "sum",
      name_of(t, p));
}

// The exponential in a weight, without its rounding to a narrower type and back.
static const kiln_expr *exponential(const kiln_expr *weight) {
  const bool is_rounded = weight->kind == KILN_EXPR_CAST &&
                          weight->args[0]->kind == KILN_EXPR_CAST &&
                          weight->args[0]->args[0]->dtype == weight->dtype;
  return is_rounded ? weight->args[0]->args[0] : weight;
}

static kiln_dtype rounded_to(const kiln_expr *weight) {
  return weight->kind == KILN_EXPR_CAST ? weight->args[0]->dtype : weight->dtype;
}

// The exponent u - M of a weight.
static const kiln_expr *difference(const kiln_expr *weight) {
  const kiln_expr *x = exponential(weight);
  return x->args[x->kind == KILN_EXPR_POW];
}

// The base of a weight's power; NULL: e.
static const kiln_expr *base_of(const kiln_expr *weight) {
  const kiln_expr *x = exponential(weight);
  return x->kind == KILN_EXPR_POW ? x->args[0] : NULL;
}

static const kiln_expr *power(fusing *t, const kiln_expr *x) {
  return t->base ? kiln_binary(t->e.cx, KILN_EXPR_POW, t->base, x)
                 : kiln_unary(t->e.cx, KILN_EXPR_EXP, x);
}

// The load of M in a weight.
static const kiln_expr *top_of(const kiln_expr *weight) { return difference(weight)->args[1]; }

static bool is_weight(fusing *t, const kiln_expr *weight) {
  const kiln_expr *x = exponential(weight);
  const bool is_power = x->kind == KILN_EXPR_POW && x->args[0]->kind == KILN_EXPR_FLOAT &&
                        x->args[0]->u.f > 1 && x->args[0]->u.f < INFINITY;
  if ((x->kind != KILN_EXPR_EXP && !is_power) || difference(x)->kind != KILN_EXPR_SUB) return false;
  const kiln_expr *u = difference(x)->args[0], *top = difference(x)->args[1];
  return top->kind == KILN_EXPR_LOAD && part_of(t, top->u.tensor) && !reads_results(t, u);
}

// Whether the load of another result is constant over the reduction of |p|.
static bool is_factor(const part *p, const kiln_expr *load) {
  for (int k = 0; k < load->n_args; k++) {
    const kiln_expr_vars *v = load->args[k]->vars;
    if (load->args[k]->has_load) return false;
    for (int i = 0; v && i < v->n; i++)
      if (is_own(p, v->vars[i]) && !indexes_result(p, v->vars[i])) return false;
  }
  return true;
}

static kiln_status leave(fusing *t, part *p, const kiln_expr *load, leaving how) {
  if (!is_factor(p, load) || load->u.tensor == p->to->id || p->n_left == MAX_FACTORS)
    return refuse_value(t, p);
  p->left[p->n_left] = load;
  p->how[p->n_left++] = how;
  return KILN_OK;
}

// Removes from the product |x| the factors that are applied after the loop.
static kiln_status take_apart(fusing *t, part *p, const kiln_expr *x, const kiln_expr **out) {
  kiln_ctx *cx = t->e.cx;
  *out = x;
  if (!reads_results(t, x)) return KILN_OK;
  if (x->n_tree > KILN_LONG_TREE) return refuse_value(t, p);
  if (x->kind == KILN_EXPR_LOAD) {
    *out = kiln_number(cx, x->dtype, 1);
    return leave(t, p, x, MULTIPLIED);
  }
  if (is_weight(t, x) && !p->weight) {
    p->weight = x;
    return KILN_OK;
  }
  if (x->kind != KILN_EXPR_MUL && x->kind != KILN_EXPR_DIV) return refuse_value(t, p);
  const kiln_expr *a = NULL, *b = x->args[1];
  KILN_TRY(take_apart(t, p, x->args[0], &a));
  if (x->kind == KILN_EXPR_MUL) {
    KILN_TRY(take_apart(t, p, b, &b));
  } else if (b->kind == KILN_EXPR_LOAD && part_of(t, b->u.tensor)) {
    const kiln_expr *one = kiln_number(cx, x->dtype, 1);
    KILN_TRY(leave(t, p, b, a == one ? MULTIPLIED_BY_INVERSE : DIVIDED));
    b = one;
  } else if (reads_results(t, b)) return refuse_value(t, p);
  *out = kiln_binary(cx, x->kind, a, b);
  return KILN_OK;
}

static kiln_status analyse(fusing *t, part *p) {
  kiln_edit *e = &t->e;
  for (int i = 1; i < p->depth; i++)
    if (p->path[i]->kind == KILN_LOOP_IF && reads_results(t, p->path[i]->cond))
      return refuse_value(t, p);
  for (int k = 0; k < p->to->rank; k++)
    if (reads_results(t, p->store->index[k])) return refuse_value(t, p);
  if (!reads_results(t, p->store->value)) return KILN_OK;
  if (p->store->combiner != KILN_COMBINE_SUM || !kiln_dtype_is_float(p->to->dtype))
    return refuse_value(t, p);
  KILN_TRY(take_apart(t, p, p->store->value, &p->store->value));
  if (!p->weight) return KILN_OK;
  part *top = part_of(t, top_of(p->weight)->u.tensor);
  if (top->store->combiner != KILN_COMBINE_MAX || top >= p || top->to->dtype != p->to->dtype)
    return refuse_value(t, p);
  if (t->top && t->top != top)
    return kiln_refuse(e, "the sums must be weighted by one maximum, got buffers %s and %s",
                       name_of(t, t->top), name_of(t, top));
  if (t->top && t->rounded != rounded_to(p->weight))
    return kiln_refuse(e, "the weights must be rounded to one type, got %s and %s",
                       kiln_dtype_text(t->rounded), kiln_dtype_text(rounded_to(p->weight)));
  if (t->top && t->base != base_of(p->weight))
    return kiln_refuse(e, "the weights must be powers of one number");
  t->rounded = rounded_to(p->weight);
  t->base = base_of(p->weight);
  t->top = top;
  return KILN_OK;
}

// --- weights and their maximum ---

// The loops of the maximum, each matched to an expression over another reduction's loops.
typedef struct matching {
  kiln_edit *e;
  int n;
  kiln_symbol vars[KILN_MAX_DEPTH];
  const kiln_expr *values[KILN_MAX_DEPTH];
} matching;

static bool match(matching *m, const kiln_expr *from, const kiln_expr *to);

static bool match_variable(matching *m, int i, const kiln_expr *to) {
  if (m->values[i]) return m->values[i] == to;
  m->values[i] = to;
  return true;
}

// Matches sums of terms in any order.
static bool match_terms(matching *m, const kiln_expr *from, const kiln_expr *to) {
  const kiln_terms a = kiln_terms_of(m->e->cx, from), b = kiln_terms_of(m->e->cx, to);
  if (a.n != b.n || a.constant != b.constant) return false;
  for (int i = 0; i < a.n; i++) {
    bool found = false;
    for (int j = 0; j < b.n && !found; j++) {
      if (b.data[j].coef != a.data[i].coef) continue;
      found = match(m, a.data[i].atom, b.data[j].atom);
      if (found) b.data[j].coef = 0;
    }
    if (!found) return false;
  }
  return true;
}

static bool match(matching *m, const kiln_expr *from, const kiln_expr *to) {
  for (int i = 0; i < m->n; i++)
    if (from->kind == KILN_EXPR_VAR && from->u.sym == m->vars[i]) return match_variable(m, i, to);
  if (from == to && !from->vars) return true;
  if (from->n_tree > KILN_LONG_TREE) return false;
  if (from->dtype != to->dtype) return false;
  const bool is_sum =
      from->kind == KILN_EXPR_ADD || from->kind == KILN_EXPR_SUB || from->kind == KILN_EXPR_MUL;
  if (from->dtype == KILN_I64 && is_sum) return match_terms(m, from, to);
  if (from->kind != to->kind || from->n_args != to->n_args) return false;
  if (from->kind == KILN_EXPR_LOAD && from->u.tensor != to->u.tensor) return false;
  if (from->n_args == 0) return from == to;
  for (int k = 0; k < from->n_args; k++)
    if (!match(m, from->args[k], to->args[k])) return false;
  return true;
}

static bool holds_condition(matching *m, const part *p, const kiln_expr *cond) {
  for (int i = 1; i < p->depth; i++) {
    matching copy = *m;
    if (p->path[i]->kind == KILN_LOOP_IF && match(&copy, cond, p->path[i]->cond)) return true;
  }
  return false;
}

// Matches the loops of the maximum with those of |p|: u must be the term of M, over the same range.
static kiln_status match_weight(fusing *t, part *p, matching *m) {
  kiln_edit *e = &t->e;
  const kiln_expr *load = top_of(p->weight);
  const part *top = t->top;
  *m = (matching){.e = e};
  for (int i = 1; i < top->depth; i++)
    if (top->path[i]->kind == KILN_LOOP_FOR) m->vars[m->n++] = top->path[i]->var;
  bool same = true;
  for (int k = 0; k < load->n_args; k++) same &= match(m, top->store->index[k], load->args[k]);
  same &= match(m, top->store->value, difference(p->weight)->args[0]);
  for (int i = 1, v = 0; i < top->depth && same; i++) {
    int64_t extent = 0;
    if (top->path[i]->kind == KILN_LOOP_IF) same = holds_condition(m, p, top->path[i]->cond);
    if (top->path[i]->kind != KILN_LOOP_FOR) continue;
    (void)kiln_expr_is_int(top->path[i]->extent, &extent);
    if (!m->values[v] && extent == 1) m->values[v] = kiln_int(e->cx, 0);
    if (!m->values[v]) same = false;
    else {
      const kiln_interval r = kiln_expr_interval(e->cx, m->values[v], &e->ranges);
      same = r.lo >= 0 && r.hi < extent;
    }
    v++;
  }
  if (same) return KILN_OK;
  return kiln_refuse(
      e,
      "the weights of buffer %s, exp(x - %s), must be of all x of which buffer %s is the maximum",
      name_of(t, p), name_of(t, top), name_of(t, top));
}

// --- initial values ---

static kiln_status refuse_begin(fusing *t, part *p) {
  return kiln_refuse(&t->e,
                     "buffer %s must be set to %s before loop %s, all of it and by one nest in the "
                     "same body: compute_at or decompose_reduction before",
                     name_of(t, p), p == t->top ? "one number" : "0",
                     kiln_edit_text(&t->e, p->loop->var));
}

// Whether the nest only initialises the whole buffer, with 0, or with any constant if it is M.
static bool sets_begin(fusing *t, part *p, kiln_loop *nest) {
  kiln_edit *e = &t->e;
  const kiln_accesses a = kiln_accesses_of(e->cx, e->l, nest, false, p->to->id);
  if (a.n != 1 || a.data[0].combiner != KILN_COMBINE_NONE || a.data[0].opaque) return false;
  for (const kiln_loop *l = nest; l; l = l->body)
    if (l->kind == KILN_LOOP_IF || l->kind == KILN_LOOP_INSTR || (l != nest && l->next))
      return false;
  const kiln_vars inner = kiln_vars_of(e->cx, nest);
  const kiln_expr *value = a.data[0].node->value;
  const bool is_number = p == t->top && !value->has_load && (!value->vars || value->vars->n == 0);
  return (is_number || kiln_expr_is_zero(value)) &&
         kiln_index_covers(e, a.data[0].n, a.data[0].index, &inner, p->to->extents);
}

static kiln_status check_begin(fusing *t, part *p) {
  kiln_edit *e = &t->e;
  kiln_loop *path[KILN_MAX_DEPTH];
  for (int i = kiln_nest_path(e->l, p->loop, path) - 1; i >= 0; i--) {
    kiln_loop *list = i ? path[i - 1]->body : e->l->body, *last = NULL;
    for (kiln_loop *l = list; l != path[i]; l = l->next)
      if (kiln_nest_uses(e->cx, e->l, l, p->to->id, true)) last = l;
    if (last) return sets_begin(t, p, last) ? KILN_OK : refuse_begin(t, p);
    if (i > 0 && path[i - 1]->kind != KILN_LOOP_ALLOC) break;
  }
  return refuse_begin(t, p);
}

// --- the change ---

// Whether |l|, a loop of the maximum, is a loop of the weights as well.
static bool is_weights_loop(const fusing *t, const kiln_loop *l) {
  return l->kind == KILN_LOOP_FOR && l->var != t->copies;
}

static kiln_status make_buffers(fusing *t) {
  kiln_edit *e = &t->e;
  kiln_ctx *cx = e->cx;
  const part *top = t->top;
  int64_t extents[KILN_MAX_DEPTH];
  int rank = 0;
  for (int i = 1; i < top->depth; i++)
    if (is_weights_loop(t, top->path[i]))
      (void)kiln_expr_is_int(top->path[i]->extent, &extents[rank++]);
  if (rank > KILN_MAX_AXES)
    return kiln_refuse(e, "loop %s must hold at most %d loops", kiln_edit_text(e, top->loop->var),
                       KILN_MAX_AXES);
  KILN_TRY(kiln_edit_extents(e, t->name, rank, extents));
  kiln_buffer **const made[] = {&t->before, &t->shift, &t->scale};
  static const char *const suffixes[] = {"before", "shift", "scale"};
  for (size_t i = 0; i < KILN_LEN(made); i++) {
    const kiln_symbol name =
        kiln_symbol_printf(cx, "%s.%s", kiln_edit_text(e, t->name), suffixes[i]);
    if (t->n_chunks == 1 && i != 1) continue;
    KILN_TRY(kiln_edit_new_buffer(e, name));
    *made[i] = kiln_buffer_make(cx, e->l, kiln_symbol_text(cx, name), top->to->dtype,
                                KILN_SCOPE_LOCAL, top->to->rank, top->to->extents, NULL);
    KILN_TRY(kiln_edit_size(e, *made[i]));
  }
  t->weights = kiln_buffer_make(cx, e->l, kiln_edit_text(e, t->name), t->rounded, KILN_SCOPE_LOCAL,
                                rank, extents, NULL);
  return kiln_edit_size(e, t->weights);
}

// Loops NAME.PART.0, ... over a whole buffer.
typedef struct whole {
  int n;
  kiln_symbol vars[KILN_MAX_AXES];
  const kiln_expr *at[KILN_MAX_AXES];
} whole;

static kiln_status make_whole(fusing *t, const kiln_buffer *b, const char *suffix, whole *w) {
  kiln_edit *e = &t->e;
  w->n = b->rank;
  for (int k = 0; k < b->rank; k++) {
    w->vars[k] = kiln_symbol_printf(e->cx, "%s%s.%d", kiln_edit_text(e, b->name), suffix, k);
    KILN_TRY(kiln_edit_new_loop(e, w->vars[k]));
    w->at[k] = kiln_var(e->cx, w->vars[k]);
  }
  return KILN_OK;
}

static const kiln_expr *load_at(fusing *t, const kiln_buffer *b, const kiln_expr *const *at) {
  return kiln_load(t->e.cx, b->id, b->dtype, b->rank, at);
}

// Makes the nest |b| = |value| over the whole buffer, |value| being in terms of |w|.
static kiln_loop *assign(fusing *t, const kiln_buffer *b, const whole *w, const kiln_expr *value) {
  kiln_ctx *cx = t->e.cx;
  return kiln_nest_around(cx, w->n, w->vars, b->extents,
                          kiln_store_make(cx, b, w->at, KILN_COMBINE_NONE, value));
}

static const kiln_expr *is_lowest(fusing *t, const kiln_expr *x) {
  return kiln_binary(t->e.cx, KILN_EXPR_EQ, x, kiln_float(t->e.cx, x->dtype, -(double)INFINITY));
}

// Copies the previous maximum before a chunk.
static kiln_status keep_before(fusing *t, kiln_loop **out) {
  whole w;
  KILN_TRY(make_whole(t, t->before, "", &w));
  *out = assign(t, t->before, &w, load_at(t, t->top->to, w.at));
  return KILN_OK;
}

// Makes the shift of the exponents: M, or 0 while all u are -inf, whose weight is then 0; and its
// change since the previous chunk.
static kiln_status make_shift(fusing *t, kiln_loop **out) {
  kiln_ctx *cx = t->e.cx;
  whole w;
  KILN_TRY(make_whole(t, t->shift, "", &w));
  const kiln_expr *top = load_at(t, t->top->to, w.at);
  *out = assign(t, t->shift, &w,
                kiln_select(cx, is_lowest(t, top), kiln_float(cx, top->dtype, 0), top));
  if (t->n_chunks == 1) return KILN_OK;
  KILN_TRY(make_whole(t, t->scale, "", &w));
  const kiln_expr *moved = kiln_sub(cx, load_at(t, t->before, w.at), load_at(t, t->shift, w.at));
  (*out)->next = assign(t, t->scale, &w, power(t, moved));
  return KILN_OK;
}

// exp(d) if that is a normal number; otherwise 0.
static const kiln_expr *normal_power(fusing *t, const kiln_expr *d) {
  kiln_ctx *cx = t->e.cx;
  const kiln_expr *least = kiln_float(cx, d->dtype, d->dtype == KILN_F64 ? -708.396 : -87.33654);
  return kiln_select(cx, kiln_binary(cx, KILN_EXPR_LT, d, least), kiln_float(cx, d->dtype, 0),
                     power(t, kiln_binary(cx, KILN_EXPR_MAX, d, least)));
}

// Makes the nest of the weights, with copies of the maximum's loops: NAME.0, ...
static kiln_status make_weights(fusing *t, kiln_loop **out) {
  kiln_edit *e = &t->e;
  kiln_ctx *cx = e->cx;
  const part *top = t->top;
  whole w;
  kiln_symbol from[KILN_MAX_AXES];
  const kiln_expr *at[KILN_MAX_AXES], *copy = t->copy;
  int n = 0;
  KILN_TRY(make_whole(t, t->weights, "", &w));
  for (int i = 1; i < top->depth; i++)
    if (is_weights_loop(t, top->path[i])) from[n++] = top->path[i]->var;
  for (int k = 0; k < top->to->rank; k++) {
    at[k] = kiln_expr_substitute(cx, top->store->index[k], n, from, w.at);
    if (copy) at[k] = kiln_expr_substitute(cx, at[k], 1, &t->copies, &copy);
  }
  const kiln_expr *u = kiln_expr_substitute(cx, top->store->value, n, from, w.at);
  const kiln_expr *d = kiln_sub(cx, u, load_at(t, t->shift, at)),
                  *value = t->flushes ? normal_power(t, d) : power(t, d);
  if (t->rounded != value->dtype) value = kiln_cast(cx, t->rounded, value);
  kiln_loop *body = kiln_store_make(cx, t->weights, w.at, KILN_COMBINE_NONE, value);
  for (int i = top->depth - 1; i > 0; i--)
    if (top->path[i]->kind == KILN_LOOP_IF)
      body = kiln_if_make(cx, kiln_expr_substitute(cx, top->path[i]->cond, n, from, w.at), body);
  *out = kiln_nest_around(cx, w.n, w.vars, t->weights->extents, body);
  return KILN_OK;
}

// The load of another result in |p|, for the element of |p|'s result at |w|.
static kiln_status load_for(fusing *t, const part *p, const whole *w, const kiln_expr *load,
                            const kiln_buffer *b, const kiln_expr **out) {
  kiln_ctx *cx = t->e.cx;
  kiln_symbol from[KILN_MAX_AXES];
  const kiln_expr *to[KILN_MAX_AXES], *at[KILN_MAX_AXES];
  int n = 0;
  for (int k = 0; k < p->to->rank; k++) {
    if (p->store->index[k]->kind != KILN_EXPR_VAR) continue;
    from[n] = p->store->index[k]->u.sym;
    to[n++] = w->at[k];
  }
  for (int k = 0; k < load->n_args; k++) {
    at[k] = kiln_expr_substitute(cx, load->args[k], n, from, to);
    for (int i = 0; at[k]->vars && i < at[k]->vars->n; i++)
      if (is_own(p, at[k]->vars->vars[i])) return refuse_value(t, (part *)p);
  }
  *out = load_at(t, b, at);
  return KILN_OK;
}

static kiln_status rescale(fusing *t, part *p, kiln_loop **out) {
  whole w;
  const kiln_expr *scale = NULL;
  KILN_TRY(make_whole(t, p->to, ".scale", &w));
  KILN_TRY(load_for(t, p, &w, top_of(p->weight), t->scale, &scale));
  *out = assign(t, p->to, &w, kiln_mul(t->e.cx, load_at(t, p->to, w.at), scale));
  return KILN_OK;
}

// Rewrites a reduction in the common loop to read its weight.
static kiln_status read_weight(fusing *t, part *p) {
  matching m;
  if (!p->weight) return KILN_OK;
  KILN_TRY(match_weight(t, p, &m));
  int n = 0;
  for (int v = 0; v < m.n; v++)
    if (m.vars[v] != t->copies) m.values[n++] = m.values[v];
  const kiln_expr *weight = load_at(t, t->weights, m.values);
  if (t->rounded != p->weight->dtype) weight = kiln_cast(t->e.cx, p->weight->dtype, weight);
  p->store->value = kiln_expr_replace_one(t->e.cx, p->store->value, p->weight, weight);
  return KILN_OK;
}

// Makes the nest after the loop: applies factors and divisors, and sets NaN where all u were -inf,
// as exp(u - M) is there.
static kiln_status finish_part(fusing *t, part *p, kiln_loop **out) {
  kiln_ctx *cx = t->e.cx;
  *out = NULL;
  if (!p->weight && p->n_left == 0) return KILN_OK;
  whole w;
  KILN_TRY(make_whole(t, p->to, ".end", &w));
  const kiln_expr *value = load_at(t, p->to, w.at), *other = NULL;
  if (p->weight) {
    KILN_TRY(load_for(t, p, &w, top_of(p->weight), t->top->to, &other));
    value = kiln_select(cx, is_lowest(t, other), kiln_float(cx, value->dtype, (double)NAN), value);
  }
  for (int i = 0; i < p->n_left; i++) {
    KILN_TRY(load_for(t, p, &w, p->left[i], part_of(t, p->left[i]->u.tensor)->to, &other));
    if (p->how[i] == MULTIPLIED_BY_INVERSE)
      other = kiln_binary(cx, KILN_EXPR_DIV, kiln_number(cx, other->dtype, 1), other);
    value = kiln_binary(cx, p->how[i] == DIVIDED ? KILN_EXPR_DIV : KILN_EXPR_MUL, value, other);
  }
  *out = assign(t, p->to, &w, value);
  return KILN_OK;
}

static void append(kiln_loop **list, kiln_loop *more) { *kiln_nest_end(list) = more; }

// Whether only the weights read M.
static bool only_weighs(fusing *t) {
  const kiln_edit *e = &t->e;
  const kiln_buffer *top = t->top->to;
  if (!kiln_scope_is_private(top->scope)) return false;
  const kiln_accesses all = kiln_accesses_of(e->cx, e->l, e->l->body, true, top->id);
  for (int i = 0; i < all.n; i++) {
    bool is_known = all.data[i].combiner == KILN_COMBINE_NONE && all.data[i].write;
    for (int j = 0; j < t->n; j++) is_known |= all.data[i].node == t->parts[j].store;
    if (!is_known || all.data[i].opaque) return false;
  }
  for (int i = 0; i < t->n; i++)
    for (int j = 0; j < t->parts[i].n_left; j++)
      if (t->parts[i].left[j]->u.tensor == top->id) return false;
  return true;
}

// A maximum that ignores NaN takes one instruction, one that propagates it three. The weight of NaN
// is NaN in either case, and so are the sums.
static void pass_by_nan(fusing *t) {
  kiln_ctx *cx = t->e.cx;
  kiln_loop *s = t->top->store;
  const kiln_expr *before = load_at(t, t->top->to, s->index), *x = s->value;
  s->value = kiln_select(cx, kiln_binary(cx, KILN_EXPR_GT, x, before), x, before);
  s->combiner = KILN_COMBINE_NONE;
}

// After the maximum of a chunk: makes its weights and rescales the sums so far.
static kiln_status weigh(fusing *t, kiln_loop **body) {
  kiln_loop *one = NULL;
  KILN_TRY(make_shift(t, &one));
  append(body, one);
  for (int i = 0; i < t->n && t->n_chunks > 1; i++) {
    if (!t->parts[i].weight) continue;
    KILN_TRY(rescale(t, &t->parts[i], &one));
    append(body, one);
  }
  KILN_TRY(make_weights(t, &one));
  append(body, one);
  return KILN_OK;
}

static kiln_status join(fusing *t) {
  kiln_ctx *cx = t->e.cx;
  kiln_loop *body = NULL, *behind = NULL, *one = NULL;
  const bool passes_by = only_weighs(t);
  if (t->n_chunks > 1) KILN_TRY(keep_before(t, &body));
  for (int i = 0; i < t->n; i++) {
    part *p = &t->parts[i];
    KILN_TRY(read_weight(t, p));
    append(&body, p->loop->body);
    KILN_TRY(finish_part(t, p, &one));
    append(&behind, one);
    if (p == t->top) KILN_TRY(weigh(t, &body));
  }
  if (passes_by) pass_by_nan(t);
  for (int i = 1; i < t->n; i++) {
    kiln_loop **slot = kiln_nest_slot(t->e.l, t->parts[i].loop);
    *slot = t->parts[i].loop->next;
  }
  kiln_loop *loop = t->parts[0].loop;
  kiln_buffer *const held[] = {t->weights, t->scale, t->shift, t->before};
  for (size_t i = 0; i < KILN_LEN(held); i++)
    if (held[i]) body = kiln_alloc_make(cx, held[i], body);
  append(&behind, loop->next);
  loop->body = body;
  loop->next = behind;
  kiln_edit_measure(&t->e);
  return kiln_check_around(&t->e, loop);
}

static kiln_status find_parts(fusing *t, const kiln_symbol *loops) {
  kiln_edit *e = &t->e;
  if (t->n < 2 || t->n > MAX_PARTS)
    return kiln_refuse(e, "must have 2 to %d loops, got %d", MAX_PARTS, t->n);
  for (int i = 0; i < t->n; i++) {
    part *p = &t->parts[i];
    KILN_TRY(kiln_edit_loop(e, loops[i], &p->loop));
    KILN_TRY(kiln_edit_serial(e, p->loop));
    KILN_TRY(kiln_edit_scalar(e, p->loop));
    KILN_TRY(find_store(t, p));
    if (indexes_result(p, p->loop->var))
      return kiln_refuse(e, "loop %s must be a reduction loop, got one that indexes buffer %s",
                         kiln_edit_text(e, p->loop->var), name_of(t, p));
    KILN_TRY(check_whole(t, p));
    KILN_TRY(check_conditions(t, p));
  }
  return kiln_edit_extent(e, t->parts[0].loop, &t->n_chunks);
}

// needs: the reductions found and in order; from here on their terms are in terms of the first
//        one's loop
static kiln_status analyse_parts(fusing *t) {
  kiln_edit *e = &t->e;
  const kiln_expr *v = kiln_var(e->cx, t->parts[0].loop->var);
  for (int i = 1; i < t->n; i++)
    kiln_nest_substitute(e->cx, e->l, t->parts[i].loop->body, 1, &t->parts[i].loop->var, &v);
  for (int i = 0; i < t->n; i++) {
    part *p = &t->parts[i];
    KILN_TRY(analyse(t, p));
    if (p->weight || p->n_left > 0) KILN_TRY(check_begin(t, p));
  }
  if (t->top) return KILN_OK;
  return kiln_refuse(e, "a sum must be weighted by exp(x - M), M being the maximum that one of the "
                        "loops looks for, got none: merge the loops");
}

// --- copies of the maximum ---

// The loop of the maximum that numbers copies: its term does not depend on it.
static kiln_status find_copies(fusing *t, const kiln_loop **out) {
  const part *top = t->top;
  *out = NULL;
  for (int i = 1; i < top->depth; i++) {
    const kiln_loop *l = top->path[i];
    int64_t extent = 0;
    if (l->kind != KILN_LOOP_FOR || kiln_expr_uses(top->store->value, l->var)) continue;
    (void)kiln_expr_is_int(l->extent, &extent);
    if (extent == 1 || !indexes_result(top, l->var)) continue;
    if (*out) break;
    *out = l;
  }
  return check_begin(t, t->top);
}

static int no_buffer(const void *program, const char *name, size_t n, kiln_dtype *out_dtype,
                     int *out_rank) {
  (void)program, (void)name, (void)n, (void)out_dtype, (void)out_rank;
  return -1;
}

// Parses the number of the copy that weights are computed by: text over the loops NAME.K.
static kiln_status read_copy(fusing *t, const char *text) {
  kiln_edit *e = &t->e;
  const kiln_expr_names names = {.find = no_buffer, .bracket = '['};
  const kiln_loop *l = NULL;
  const char *at = text;
  int64_t extent = 0;
  int n = 0;
  KILN_TRY(find_copies(t, &l));
  if (!l) return kiln_refuse(e, "the maximum must have copies, got none");
  if (kiln_expr_parse(e->cx, &at, &names, &t->copy) != KILN_OK || at[strspn(at, " \t\r")] ||
      t->copy->dtype != KILN_I64)
    return kiln_refuse(e, "the copy must be a number, got \"%.200s\"", text);
  t->copies = l->var;
  int n_known = 0;
  for (int i = 1; i < t->top->depth; i++) {
    if (!is_weights_loop(t, t->top->path[i])) continue;
    const kiln_symbol v = kiln_symbol_printf(e->cx, "%s.%d", kiln_edit_text(e, t->name), n++);
    (void)kiln_expr_is_int(t->top->path[i]->extent, &extent);
    kiln_ranges_push(&e->ranges, v, 0, extent - 1);
    n_known += kiln_expr_uses(t->copy, v);
  }
  (void)kiln_expr_is_int(l->extent, &extent);
  const kiln_interval r = kiln_expr_interval(e->cx, t->copy, &e->ranges);
  kiln_ranges_pop(&e->ranges, n);
  if (n_known == (t->copy->vars ? t->copy->vars->n : 0) && r.lo >= 0 && r.hi < extent)
    return KILN_OK;
  return kiln_refuse(e, "the copy must be in [0, %" PRId64 ") and of loops %s.K, got \"%.200s\"",
                     extent, kiln_edit_text(e, t->name), text);
}

static kiln_status check_flush(fusing *t) {
  const kiln_dtype type = t->top ? t->top->to->dtype : KILN_I64;
  if (t->base || (type != KILN_F32 && type != KILN_F64))
    return kiln_refuse(&t->e, "weights to be flushed must be powers of e in f32 or f64");
  t->flushes = true;
  return KILN_OK;
}

kiln_status kiln_online_softmax(kiln_schedule *s, int n, const kiln_symbol *loops, kiln_symbol name,
                                bool flushes, const char *copy) {
  fusing t = {.e = kiln_edit_begin(s, "online_softmax", name), .name = name, .n = n};
  kiln_edit *e = &t.e;
  KILN_TRY(kiln_edit_new_buffer(e, name));
  KILN_TRY(find_parts(&t, loops));
  KILN_TRY(check_order(&t));
  KILN_TRY(analyse_parts(&t));
  if (copy) KILN_TRY(read_copy(&t, copy));
  if (flushes) KILN_TRY(check_flush(&t));
  KILN_TRY(make_buffers(&t));
  KILN_TRY(join(&t));
  kiln_text line;
  kiln_text_init(&line, &e->cx->perm);
  kiln_text_printf(&line, "online_softmax %s", kiln_edit_word(e, name));
  for (int i = 0; i < n; i++) kiln_text_printf(&line, " %s", kiln_edit_word(e, loops[i]));
  if (flushes) kiln_text_printf(&line, " flush");
  if (copy) kiln_text_printf(&line, " copy %s", copy);
  return kiln_edit_commit(e, "%s", line.data);
}
