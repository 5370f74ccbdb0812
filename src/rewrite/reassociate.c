// Reassociates products of products to minimize multiplications:
//     Y(s) = sum_r T(i(s, r)) B(s, r)  with  T(t) = sum_q F(t, q) G(t, q)
// becomes, if F(i(s, r), q) does not depend on all of r = (u, v), but only on u,
//     Y(s) = sum_uq F(i(s, r), q) H(s, u, q)  with  H(s, u, q) = sum_v G(i(s, r), q) B(s, r)
// as in (Q K) V = Q (K V), two adjacent linear layers, and a projection after attention heads.
// source: Korch, ASPLOS'24, section 4; Katharopoulos et al., "Transformers are RNNs", ICML'20
#include "rewrite/constants.h"
#include "rewrite/product.h"
#include "rewrite/readers.h"
#include "rewrite/rules.h"

enum { MAX_SUMS = 2 * KILN_MAX_RANK };

typedef struct dim_list {
  int n;
  kiln_dim at[MAX_SUMS];
} dim_list;

typedef struct chain {
  kiln_ctx *cx;
  kiln_program *p;
  const int *n_readers;
  kiln_bilinear outer;           // Y
  const kiln_expr *b;            // B
  kiln_linear through;           // Y's view of T
  const kiln_expr *factors[2];   // F and G at i(s, r)
  dim_list space, sums;          // dims of Y; r
  dim_list inner;                // q
  double before, after;          // multiplications a run
  dim_list kept, summed, shared; // u, v, and the dims of H
} chain;

static void push(dim_list *l, kiln_symbol name, const kiln_expr *extent) {
  l->at[l->n++] = (kiln_dim){name, extent};
}

static int64_t elems(const dim_list *l) { return kiln_dims_elems(l->n, l->at); }

static bool uses(const kiln_expr *e, kiln_symbol name) { return e && kiln_expr_uses(e, name); }

static kiln_ranges ranges_of(const chain *c) {
  const dim_list *const lists[] = {&c->space, &c->sums, &c->inner};
  kiln_ranges r;
  kiln_ranges_init(&r, &c->cx->scratch);
  for (size_t i = 0; i < KILN_LEN(lists); i++)
    for (int d = 0; d < lists[i]->n; d++)
      kiln_ranges_push(&r, lists[i]->at[d].name, 0, kiln_dims_elems(1, &lists[i]->at[d]) - 1);
  return r;
}

// --- sums over heads: r is split into (r/c, r%c) if it is used that way ---

typedef struct cut {
  const dim_list *sums;
  int dim; // -1: none
  int64_t length;
} cut;

static void find_cut(const kiln_expr *e, void *argument) {
  cut *k = argument;
  int64_t length = 0;
  if ((e->kind != KILN_EXPR_DIV && e->kind != KILN_EXPR_MOD) || k->dim >= 0 ||
      e->args[0]->kind != KILN_EXPR_VAR || !kiln_expr_is_int(e->args[1], &length) || length <= 1)
    return;
  for (int d = 0; d < k->sums->n; d++)
    if (k->sums->at[d].name == e->args[0]->u.sym &&
        kiln_dims_elems(1, &k->sums->at[d]) % length == 0) {
      k->dim = d;
      k->length = length;
    }
}

static void substitute(chain *c, kiln_symbol name, const kiln_expr *value) {
  const kiln_expr **const all[] = {&c->b, &c->through.load, &c->through.factor, &c->through.shift};
  const kiln_ranges ranges = ranges_of(c);
  for (size_t i = 0; i < KILN_LEN(all); i++)
    if (*all[i])
      *all[i] =
          kiln_simplify(c->cx, kiln_expr_substitute(c->cx, *all[i], 1, &name, &value), &ranges);
}

// Splits a dim of the sum; false if none is indexed by quotient and remainder.
static bool cut_sums(chain *c) {
  cut k = {.sums = &c->sums, .dim = -1};
  kiln_expr_visit(c->cx, c->through.load, find_cut, &k);
  if (k.dim < 0 || c->sums.n == KILN_MAX_RANK) return false;
  kiln_dim *d = &c->sums.at[k.dim];
  const kiln_symbol whole = d->name;
  const int64_t n = kiln_dims_elems(1, d) / k.length;
  const kiln_symbol outer = kiln_symbol_printf(c->cx, "%s'", kiln_symbol_text(c->cx, whole)),
                    rest = kiln_symbol_printf(c->cx, "%s''", kiln_symbol_text(c->cx, whole));
  *d = (kiln_dim){outer, kiln_int(c->cx, n)};
  push(&c->sums, rest, kiln_int(c->cx, k.length));
  substitute(c, whole,
             kiln_add(c->cx, kiln_mul(c->cx, kiln_var(c->cx, outer), kiln_int(c->cx, k.length)),
                      kiln_var(c->cx, rest)));
  return true;
}

// --- matching ---

// Matches operand |i| of the product |c->outer| with T; false if it is not a product.
static bool take(chain *c, int i) {
  const kiln_stmt *s = c->outer.s;
  c->space.n = c->sums.n = c->inner.n = 0;
  for (int d = 0; d < s->n_space + s->n_reduce; d++)
    if (kiln_dims_elems(1, &s->dims[d]) > 1)
      push(d < s->n_space ? &c->space : &c->sums, s->dims[d].name, s->dims[d].extent);
  const kiln_ranges ranges = ranges_of(c);
  c->b = c->outer.args[!i];
  c->through = kiln_linear_of(c->cx, c->p, c->n_readers, &ranges, c->outer.args[i]);
  const kiln_tensor *t = c->p->tensors.data[c->through.load->u.tensor];
  kiln_bilinear inner;
  if (t->def < 0 || c->n_readers[t->id] != 1 || kiln_tensor_is_output(c->p, t->id) ||
      !kiln_bilinear_of(c->cx, c->p->stmts.data[t->def], &inner))
    return false;
  while (cut_sums(c)) {}
  kiln_symbol vars[2 * KILN_MAX_RANK];
  const kiln_expr *values[2 * KILN_MAX_RANK];
  for (int d = 0; d < inner.s->n_space + inner.s->n_reduce; d++) {
    const bool is_space = d < inner.s->n_space;
    const kiln_symbol q = kiln_symbol_printf(c->cx, "q%d", d);
    vars[d] = inner.s->dims[d].name;
    values[d] = is_space ? c->through.load->args[d] : kiln_var(c->cx, q);
    if (!is_space && kiln_dims_elems(1, &inner.s->dims[d]) > 1)
      push(&c->inner, q, inner.s->dims[d].extent);
  }
  const double steps = (double)kiln_tensor_elems(t) * (double)elems(&c->inner);
  if (steps <= KILN_MAX_FOLDED_STEPS && kiln_reads_constants(c->cx, c->p, inner.s->body))
    return false; // constant: only one product is left at run time
  const kiln_ranges all = ranges_of(c);
  for (int k = 0; k < 2; k++)
    c->factors[k] =
        kiln_simplify(c->cx,
                      kiln_expr_substitute(c->cx, inner.args[k],
                                           inner.s->n_space + inner.s->n_reduce, vars, values),
                      &all);
  c->before = steps + (double)elems(&c->space) * (double)elems(&c->sums);
  return true;
}

// Whether a statement over |space| and |sums| that reads |e| will be constant-folded.
static bool is_folded(const chain *c, const kiln_expr *e, const dim_list *space,
                      const dim_list *sums) {
  return kiln_reads_constants(c->cx, c->p, e) &&
         (double)elems(space) * (double)elems(sums) <= KILN_MAX_FOLDED_STEPS;
}

// Adds the dims of |from| that |a|, |b| or |c| depend on.
static void add_used(dim_list *l, const dim_list *from, const kiln_expr *a, const kiln_expr *b,
                     const kiln_expr *c) {
  for (int d = 0; d < from->n; d++)
    if (uses(a, from->at[d].name) || uses(b, from->at[d].name) || uses(c, from->at[d].name))
      push(l, from->at[d].name, from->at[d].extent);
}

static bool shift_is_folded(const chain *c) {
  dim_list space = {0};
  if (!c->through.shift) return true;
  add_used(&space, &c->space, c->through.shift, c->b, NULL);
  return elems(&space) < elems(&c->space) &&
         is_folded(c, kiln_mul(c->cx, c->through.shift, c->b), &space, &c->sums);
}

// Whether summing factors[!f] * B first takes fewer multiplications.
static bool pays(chain *c, int f) {
  const kiln_expr *g = c->factors[!f], *a = c->through.factor;
  c->kept.n = c->summed.n = c->shared.n = 0;
  for (int d = 0; d < c->sums.n; d++)
    push(uses(c->factors[f], c->sums.at[d].name) ? &c->kept : &c->summed, c->sums.at[d].name,
         c->sums.at[d].extent);
  if (c->summed.n == 0 || c->kept.n + c->inner.n > KILN_MAX_RANK) return false;
  add_used(&c->shared, &c->space, g, c->b, a);
  add_used(&c->shared, &c->kept, g, c->b, a);
  add_used(&c->shared, &c->inner, g, c->b, a);
  if (c->shared.n == 0 || c->shared.n > KILN_MAX_RANK) return false;
  const double h = (double)elems(&c->shared);
  const kiln_expr *body = kiln_mul(c->cx, g, c->b);
  c->after = (double)elems(&c->space) * (double)elems(&c->kept) * (double)elems(&c->inner);
  if (is_folded(c, body, &c->shared, &c->summed)) return c->after < c->before;
  c->after += h * (double)elems(&c->summed);
  const int64_t through = kiln_tensor_elems(c->p->tensors.data[c->through.load->u.tensor]);
  return !kiln_reads_constants(c->cx, c->p, body) && c->after <= c->before / 2 &&
         h <= (double)through / 2;
}

// --- the new statements ---

// A statement that sums |body| over |sums|, with result dims |space|.
static kiln_stmt *make_sum(const chain *c, const dim_list *space, const dim_list *sums,
                           const kiln_expr *body) {
  const kiln_expr *extents[2 * KILN_MAX_RANK], *values[2 * KILN_MAX_RANK];
  kiln_symbol vars[2 * KILN_MAX_RANK];
  const int n = space->n + sums->n;
  for (int d = 0; d < n; d++) {
    const kiln_dim *dim = d < space->n ? &space->at[d] : &sums->at[d - space->n];
    vars[d] = dim->name;
    extents[d] = dim->extent;
  }
  const kiln_stmt *y = c->outer.s;
  kiln_stmt *s =
      kiln_stmt_make(c->cx, c->p, kiln_symbol_text(c->cx, c->p->tensors.data[y->out]->name),
                     body->dtype, space->n, sums->n, extents);
  for (int d = 0; d < n; d++) values[d] = kiln_stmt_var(c->cx, s, d);
  s->combiner = KILN_COMBINE_SUM;
  s->body = kiln_expr_substitute(c->cx, body, n, vars, values);
  s->origin = y->origin;
  return s;
}

// A load of |s|'s result at its dims.
static const kiln_expr *load_of(const chain *c, const kiln_stmt *s, const dim_list *dims) {
  const kiln_expr *index[KILN_MAX_RANK];
  for (int d = 0; d < dims->n; d++) index[d] = kiln_var(c->cx, dims->at[d].name);
  return kiln_tensor_load(c->cx, c->p->tensors.data[s->out], index);
}

static dim_list whole_space(const kiln_stmt *s) {
  dim_list l = {0};
  for (int d = 0; d < s->n_space; d++) push(&l, s->dims[d].name, s->dims[d].extent);
  return l;
}

// The statements of H and of the shift precede |c->outer.s|, which becomes the sum over (u, q), or
// a map of it.
static void rewrite(chain *c, int f) {
  const dim_list space = whole_space(c->outer.s);
  dim_list sums = c->kept, shifted = {0};
  for (int d = 0; d < c->inner.n; d++) push(&sums, c->inner.at[d].name, c->inner.at[d].extent);
  const kiln_expr *scaled = c->through.factor ? kiln_mul(c->cx, c->through.factor, c->b) : c->b;
  const kiln_stmt *h = make_sum(c, &c->shared, &c->summed, kiln_mul(c->cx, c->factors[!f], scaled));
  kiln_stmt *y = c->outer.s;
  const kiln_expr *shift = NULL;
  if (c->through.shift) {
    add_used(&shifted, &c->space, c->through.shift, c->b, NULL);
    shift = load_of(c, make_sum(c, &shifted, &c->sums, kiln_mul(c->cx, c->through.shift, c->b)),
                    &shifted);
  }
  const kiln_stmt *sum =
      make_sum(c, &space, &sums, kiln_mul(c->cx, c->factors[f], load_of(c, h, &c->shared)));
  if (shift) {
    y->n_reduce = 0;
    y->combiner = KILN_COMBINE_NONE;
    y->body = kiln_add(c->cx, load_of(c, sum, &space), shift);
    return;
  }
  c->p->stmts.n--; // will replace |y|
  y->dims = sum->dims;
  y->index = sum->index;
  y->n_reduce = sum->n_reduce;
  y->body = sum->body;
}

static bool improve(chain *c, kiln_stmt *s) {
  if (!kiln_bilinear_of(c->cx, s, &c->outer)) return false;
  for (int i = 0; i < 2; i++) {
    if (!take(c, i) || !shift_is_folded(c)) continue;
    for (int f = 0; f < 2; f++)
      if (pays(c, f)) {
        rewrite(c, f);
        return true;
      }
  }
  return false;
}

// Applies the first improvement; lists of statements and readers are then out of date.
static bool improve_one(kiln_ctx *cx, kiln_program *p, kiln_site *site) {
  (void)site;
  const int n = p->stmts.n;
  chain c = {.cx = cx, .p = p, .n_readers = kiln_readers_count(cx, p)};
  for (int i = 0; i < n; i++) {
    kiln_stmt *s = p->stmts.data[i];
    if (!improve(&c, s)) continue;
    const int made = p->stmts.n - n;
    kiln_stmt *added[3];
    for (int k = 0; k < made; k++) added[k] = p->stmts.data[n + k];
    for (int k = n - 1; k >= i; k--) p->stmts.data[k + made] = p->stmts.data[k];
    for (int k = 0; k < made; k++) p->stmts.data[i + k] = added[k];
    return true;
  }
  return false;
}

int kiln_rule_reassociate(kiln_ctx *cx, kiln_program *p) {
  return kiln_rewrite_all(cx, p, NULL, improve_one);
}
