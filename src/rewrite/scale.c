// Folds constant factors around a contraction into its constants:
//     Y = f (X W + b) + c  becomes  Y = X (f W) + (f b + c)   and   (f X) W  becomes  X (f W)
// if f W is no larger than W, and W is smaller than the tensor that would be scaled in every run. A
// batch normalization after a convolution is a factor and a shift.
// source: Korch, ASPLOS'24, section 4
#include "rewrite/constants.h"
#include "rewrite/product.h"
#include "rewrite/readers.h"
#include "rewrite/rules.h"

typedef struct scaling {
  kiln_ctx *cx;
  kiln_program *p;
  kiln_site *site;
  const int *n_readers;
  kiln_bilinear product;
} scaling;

// --- constants ---

// A load, at the dims of |s|, of a new constant with value |e|, which reads constants at these
// dims.
static const kiln_expr *constant_of(scaling *f, const kiln_stmt *s, const kiln_expr *e) {
  const kiln_expr *extents[2 * KILN_MAX_RANK], *index[2 * KILN_MAX_RANK],
      *values[2 * KILN_MAX_RANK];
  kiln_symbol vars[2 * KILN_MAX_RANK];
  int n = 0;
  if (!e->has_load || e->kind == KILN_EXPR_LOAD) return e;
  for (int d = 0; d < s->n_space + s->n_reduce; d++)
    if (kiln_expr_uses(e, s->dims[d].name)) {
      vars[n] = s->dims[d].name;
      index[n] = kiln_stmt_var(f->cx, s, d);
      extents[n++] = s->dims[d].extent;
    }
  kiln_stmt *c =
      kiln_stmt_make(f->cx, f->p, kiln_symbol_text(f->cx, f->p->tensors.data[s->out]->name),
                     e->dtype, n, 0, extents);
  for (int d = 0; d < n; d++) values[d] = kiln_stmt_var(f->cx, c, d);
  c->body = kiln_expr_substitute(f->cx, e, n, vars, values);
  c->origin = s->origin;
  return kiln_tensor_load(f->cx, f->p->tensors.data[c->out], index);
}

// The number of elements of |e| over the dims of |s| that it uses.
static int64_t elems_of(const kiln_stmt *s, const kiln_expr *e, int *out_rank) {
  int64_t n = 1;
  *out_rank = 0;
  for (int d = 0; d < s->n_space + s->n_reduce; d++)
    if (kiln_expr_uses(e, s->dims[d].name)) {
      n *= kiln_dims_elems(1, &s->dims[d]);
      ++*out_rank;
    }
  return n;
}

// Whether |factor| may be folded into operand |w|, saving the scaling of |saved| elements.
static bool folds(const scaling *f, const kiln_expr *w, const kiln_expr *factor, int64_t saved) {
  int rank = 0;
  const int64_t before = elems_of(f->product.s, w, &rank),
                after = elems_of(f->product.s, kiln_mul(f->cx, factor, w), &rank);
  return kiln_reads_constants(f->cx, f->p, w) && after <= before && rank <= KILN_MAX_RANK &&
         after <= saved && after <= KILN_MAX_FOLDED_STEPS &&
         kiln_site_enter(f->cx, f->site, f->p, f->product.s);
}

static void multiply(scaling *f, int i, const kiln_expr *factor, const kiln_expr *other) {
  kiln_stmt *s = f->product.s;
  const kiln_expr *w = constant_of(f, s, kiln_mul(f->cx, factor, f->product.args[i]));
  s->body = i == 0 ? kiln_mul(f->cx, w, other) : kiln_mul(f->cx, other, w);
}

// --- factors of the result ---

// The subexpression of a map that is linear in |tensor|.
typedef struct part {
  kiln_ctx *cx;
  const kiln_program *p;
  int tensor;
  const kiln_expr *whole;
  kiln_linear in;
} part;

// Subexpressions are visited first, so the last match is the largest.
static void see_part(const kiln_expr *e, void *argument) {
  part *t = argument;
  kiln_linear in;
  if (kiln_linear_in(t->cx, t->p, e, t->tensor, &in) && in.factor) {
    t->whole = e;
    t->in = in;
  }
}

static void see_tensor(const kiln_expr *e, void *argument) {
  part *t = argument;
  if (e->kind == KILN_EXPR_LOAD && e->u.tensor == t->tensor) t->whole = e;
}

static bool reads(kiln_ctx *cx, const kiln_expr *e, int tensor) {
  part t = {.tensor = tensor};
  kiln_expr_visit(cx, e, see_tensor, &t);
  return t.whole != NULL;
}

static const kiln_expr *inlined(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  const kiln_stmt *s = argument;
  if (e->kind != KILN_EXPR_LOAD || e->u.tensor != s->out) return NULL;
  kiln_symbol vars[KILN_MAX_RANK];
  for (int k = 0; k < s->n_space; k++) vars[k] = s->dims[k].name;
  return kiln_expr_substitute(cx, s->body, s->n_space, vars, e->args);
}

// The map that is the only reader of |tensor|; NULL if there is none, or the tensor is an output.
static kiln_stmt *sole_map(const scaling *f, int tensor) {
  if (f->n_readers[tensor] != 1 || kiln_tensor_is_output(f->p, tensor)) return NULL;
  for (int i = f->p->tensors.data[tensor]->def + 1; i < f->p->stmts.n; i++) {
    kiln_stmt *s = f->p->stmts.data[i];
    if (s->n_reduce || s->combiner != KILN_COMBINE_NONE || s->guard || s->init ||
        !kiln_stmt_is_plain(f->cx, s)) {
      if (reads(f->cx, s->body, tensor)) return NULL;
    } else if (reads(f->cx, s->body, tensor)) {
      return s;
    }
  }
  return NULL;
}

// Maps dims of |m| to those of |s|, whose result |m| must read element by element; false otherwise.
static bool is_own_place(const kiln_stmt *s, const kiln_stmt *m, const kiln_expr *load,
                         kiln_symbol *vars) {
  if (m->n_space != s->n_space) return false;
  for (int k = 0; k < m->n_space; k++) {
    const bool is_unit = kiln_expr_is_zero(load->args[k]) && kiln_dims_elems(1, &s->dims[k]) == 1;
    vars[k] = m->dims[k].name;
    if (!is_unit &&
        (load->args[k]->kind != KILN_EXPR_VAR || load->args[k]->u.sym != m->dims[k].name))
      return false;
  }
  return true;
}

// Folds the factor of map |m|, with |body|, which reads |s|'s result through shifts.
static bool fold_behind(scaling *f, kiln_stmt *m, const kiln_expr *body) {
  kiln_stmt *s = f->product.s;
  part t = {f->cx, f->p, s->out, NULL, {0}};
  kiln_symbol vars[KILN_MAX_RANK];
  const kiln_expr *own[KILN_MAX_RANK];
  kiln_expr_visit(f->cx, body, see_part, &t);
  if (!t.whole || !is_own_place(s, m, t.in.load, vars)) return false;
  const kiln_expr *sum =
      t.in.shift ? kiln_add(f->cx, t.in.load, t.in.shift) : t.in.load; // the shift stays
  const kiln_expr *without =
      kiln_expr_replace_one(f->cx, body, t.whole, kiln_float(f->cx, body->dtype, 0));
  if (reads(f->cx, without, s->out)) return false;
  for (int k = 0; k < m->n_space; k++) own[k] = kiln_stmt_var(f->cx, s, k);
  const kiln_expr *factor = kiln_expr_substitute(f->cx, t.in.factor, m->n_space, vars, own);
  for (int i = 0; i < 2; i++) {
    if (!folds(f, f->product.args[i], factor, kiln_dims_elems(s->n_space, s->dims))) continue;
    multiply(f, i, factor, f->product.args[!i]);
    if (t.in.shift) sum = kiln_add(f->cx, t.in.load, constant_of(f, m, t.in.shift));
    m->body = kiln_expr_replace_one(f->cx, body, t.whole, sum);
    return true;
  }
  return false;
}

static bool scale_behind(scaling *f) {
  const int tensor = f->product.s->out;
  kiln_stmt *m = sole_map(f, tensor);
  kiln_linear whole;
  if (!m) return false;
  if (fold_behind(f, m, m->body)) return true;
  if (!kiln_linear_in(f->cx, f->p, m->body, tensor, &whole)) return false;
  kiln_stmt *next = sole_map(f, m->out); // follows maps that only add
  if (!next) return false;
  const kiln_ranges ranges = kiln_stmt_bounds(f->cx, next);
  return fold_behind(
      f, next, kiln_simplify(f->cx, kiln_expr_replace(f->cx, next->body, inlined, m), &ranges));
}

// --- factors of the operand ---

static bool scale_in_front(scaling *f) {
  const kiln_ranges ranges = kiln_stmt_bounds(f->cx, f->product.s);
  for (int i = 0; i < 2; i++) {
    const kiln_expr *x = f->product.args[!i];
    if (!kiln_reads_constants(f->cx, f->p, f->product.args[i])) continue;
    const kiln_linear in = kiln_linear_of(f->cx, f->p, f->n_readers, &ranges, x);
    if (!in.factor || in.shift ||
        !folds(f, f->product.args[i], in.factor,
               kiln_tensor_elems(f->p->tensors.data[x->u.tensor])))
      continue;
    multiply(f, i, in.factor, in.load);
    return true;
  }
  return false;
}

// New constants' statements go to the beginning of the program.
static bool scale_one(kiln_ctx *cx, kiln_program *p, kiln_site *site) {
  const int n = p->stmts.n;
  scaling f = {.cx = cx, .p = p, .site = site, .n_readers = kiln_readers_count(cx, p)};
  for (int i = 0; i < n; i++) {
    if (!kiln_bilinear_of(cx, p->stmts.data[i], &f.product) ||
        (!scale_behind(&f) && !scale_in_front(&f)))
      continue;
    const int made = p->stmts.n - n;
    kiln_stmt *added[2];
    for (int k = 0; k < made; k++) added[k] = p->stmts.data[n + k];
    for (int k = n - 1; k >= 0; k--) p->stmts.data[k + made] = p->stmts.data[k];
    for (int k = 0; k < made; k++) p->stmts.data[k] = added[k];
    return true;
  }
  return false;
}

int kiln_rule_scale(kiln_ctx *cx, kiln_program *p, kiln_site *site) {
  return kiln_rewrite_all(cx, p, site, scale_one);
}
