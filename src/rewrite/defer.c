// Moves factors and divisors that are invariant in a sum from its operand to its result:
//     Y(s) = sum_r X(s, r) / d(s) * B(s, r)  becomes  Y(s) = (sum_r X(s, r) B(s, r)) / d(s)
// if the result has at most half the elements of X. Exception: division by a sum over the same X,
// as in softmax; attention and row kernels handle that themselves.
// source: Korch, ASPLOS'24, section 4
#include "rewrite/dce.h"
#include "rewrite/product.h"
#include "rewrite/readers.h"
#include "rewrite/rules.h"

enum { MAX_MOVES = 16 };

typedef struct deferring {
  kiln_ctx *cx;
  kiln_program *p;
  kiln_site *site;
  const int *n_readers;
  kiln_bilinear product;
  kiln_ranges ranges;
  const kiln_expr *factor, *rest; // operand = rest * factor or rest / factor
  kiln_expr_kind kind;
  int64_t elems; // elements for which the factor is applied
} deferring;

// The body of the map that |load| reads, at its index; NULL if it is not a map.
static const kiln_expr *opened(const deferring *f, const kiln_expr *load) {
  const kiln_stmt *s = kiln_map_of(f->cx, f->p, load->u.tensor);
  if (!s) return NULL;
  kiln_symbol vars[KILN_MAX_RANK];
  for (int k = 0; k < s->n_space; k++) vars[k] = s->dims[k].name;
  return kiln_simplify(f->cx, kiln_expr_substitute(f->cx, s->body, s->n_space, vars, load->args),
                       &f->ranges);
}

// A load through maps that move elements.
static const kiln_expr *moved(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  (void)cx;
  if (e->kind != KILN_EXPR_LOAD) return NULL;
  for (int i = 0; i < MAX_MOVES; i++) {
    const kiln_expr *next = opened(argument, e);
    if (!next || next->kind != KILN_EXPR_LOAD) break;
    e = next;
  }
  return e;
}

typedef struct own_sum {
  const kiln_program *p;
  int tensor;
  bool found;
} own_sum;

static void see_sum(const kiln_expr *e, void *argument) {
  own_sum *o = argument;
  if (e->kind != KILN_EXPR_LOAD) return;
  const int def = o->p->tensors.data[e->u.tensor]->def;
  const kiln_stmt *s = def >= 0 ? o->p->stmts.data[def] : NULL;
  o->found |= s && s->combiner == KILN_COMBINE_SUM && s->body->kind == KILN_EXPR_LOAD &&
              s->body->u.tensor == o->tensor;
}

static bool divides_by_own_sum(const deferring *f) {
  own_sum o = {f->p, f->rest->u.tensor, false};
  kiln_expr_visit(f->cx, f->factor, see_sum, &o);
  return o.found;
}

// Splits |e|, a product or quotient, into args[i] as the factor and the rest.
static bool split(deferring *f, const kiln_expr *e, int i) {
  if (e->args[!i]->kind != KILN_EXPR_LOAD || (e->kind == KILN_EXPR_DIV && i == 0)) return false;
  f->kind = e->kind;
  f->rest = e->args[!i];
  f->factor = kiln_simplify(f->cx, kiln_expr_replace(f->cx, e->args[i], moved, f), &f->ranges);
  return !kiln_stmt_reduces_along(f->product.s, f->factor) && !divides_by_own_sum(f);
}

// Finds a factor behind |load| and views of it, none of which has other readers.
static bool find_factor(deferring *f, const kiln_expr *load) {
  const kiln_expr *e = load;
  while (e && e->kind == KILN_EXPR_LOAD) {
    if (f->n_readers[e->u.tensor] != 1 || kiln_tensor_is_output(f->p, e->u.tensor)) return false;
    f->elems = kiln_tensor_elems(f->p->tensors.data[e->u.tensor]);
    e = opened(f, e);
  }
  return e && e->dtype == load->dtype && (e->kind == KILN_EXPR_MUL || e->kind == KILN_EXPR_DIV) &&
         (split(f, e, 1) || split(f, e, 0));
}

// The sum without the factor precedes the original statement, which becomes a map of it.
static void rewrite(deferring *f, int i) {
  kiln_stmt *y = f->product.s;
  const kiln_expr *extents[2 * KILN_MAX_RANK], *values[2 * KILN_MAX_RANK], *index[KILN_MAX_RANK];
  kiln_symbol vars[2 * KILN_MAX_RANK];
  const int n = y->n_space + y->n_reduce;
  for (int d = 0; d < n; d++) extents[d] = y->dims[d].extent;
  kiln_stmt *s =
      kiln_stmt_make(f->cx, f->p, kiln_symbol_text(f->cx, f->p->tensors.data[y->out]->name),
                     y->body->dtype, y->n_space, y->n_reduce, extents);
  for (int d = 0; d < n; d++) {
    vars[d] = y->dims[d].name;
    values[d] = kiln_stmt_var(f->cx, s, d);
    if (d < y->n_space) index[d] = kiln_stmt_var(f->cx, y, d);
  }
  const kiln_expr *other = f->product.args[!i];
  s->combiner = KILN_COMBINE_SUM;
  s->body = kiln_expr_substitute(
      f->cx, i == 0 ? kiln_mul(f->cx, f->rest, other) : kiln_mul(f->cx, other, f->rest), n, vars,
      values);
  s->origin = y->origin;
  y->n_reduce = 0;
  y->combiner = KILN_COMBINE_NONE;
  y->body = kiln_binary(f->cx, f->kind, kiln_tensor_load(f->cx, f->p->tensors.data[s->out], index),
                        f->factor);
}

static bool defer(deferring *f, kiln_stmt *y) {
  if (!kiln_bilinear_of(f->cx, y, &f->product)) return false;
  f->ranges = kiln_stmt_bounds(f->cx, y);
  const int64_t results = kiln_dims_elems(y->n_space, y->dims);
  for (int i = 0; i < 2; i++)
    if (find_factor(f, f->product.args[i]) && results <= f->elems / 2 &&
        kiln_site_enter(f->cx, f->site, f->p, y)) {
      rewrite(f, i);
      return true;
    }
  return false;
}

int kiln_rule_defer(kiln_ctx *cx, kiln_program *p, kiln_site *site) {
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  const int n = p->stmts.n;
  deferring f = {.cx = cx, .p = p, .site = site, .n_readers = kiln_readers_count(cx, p)};
  kiln_stmt **order = KILN_NEW_ARRAY(&cx->scratch, kiln_stmt *, 2 * n);
  int n_all = 0, n_applied = 0;
  for (int i = 0; i < n; i++) { // statements are appended, so visit the first n
    kiln_stmt *s = p->stmts.data[i];
    if (defer(&f, s)) order[n_all++] = p->stmts.data[n + n_applied++];
    order[n_all++] = s;
  }
  p->stmts.n = 0;
  for (int i = 0; i < n_all; i++) KILN_VEC_PUSH(&cx->perm, &p->stmts, order[i]);
  kiln_stmts_renumber(p);
  kiln_arena_rewind(&cx->scratch, mark);
  if (n_applied > 0) kiln_program_dce(cx, p);
  return n_applied;
}
