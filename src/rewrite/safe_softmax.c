// Safe softmax: weights that are not a number become 0, as exporters write softmax of rows whose
// keys may all be masked. In exact arithmetic a weight is no number only if all scores of its row
// are -inf, which depends on the masks alone: products of finite numbers are finite.
//     P = softmax(Z), Q = isnan(P) ? 0 : P, O = Q V    becomes
//     P = softmax(Z), X(m) = max_n Z0(m, n), O = X(m) == -inf ? 0 : (P V)(m)
// where Z0 is Z with 0 in place of its products. Scores without masks need no X. So weights are
// plain softmax's, and the products around them one kernel (attention).
//
// Products that overflow to an infinity or NaN give NaN, where they gave rows of zeros.
#include "rewrite/product.h"
#include "rewrite/rules.h"

#include <math.h>

enum { MAX_DEPTH = 16, MAX_TREE = 256 };

typedef struct safe {
  kiln_ctx *cx;
  kiln_program *p;
  const kiln_stmt *q;     // chooses 0 for what is no number
  const kiln_expr *own;   // its load of the weights
  const kiln_stmt *z;     // what softmax is of has the dims of this statement, the row's last
  const kiln_expr *masks; // Z0 over |z|'s dims
  int depth;
} safe;

static bool is_own(const safe *s, const kiln_stmt *of, const kiln_expr *load) {
  if (load->kind != KILN_EXPR_LOAD || load->n_args != of->n_space) return false;
  for (int k = 0; k < load->n_args; k++)
    if (load->args[k] != kiln_stmt_var(s->cx, of, k) &&
        !(kiln_expr_is_zero(load->args[k]) && kiln_dim_extent(&of->dims[k]) == 1))
      return false;
  return true;
}

// What |load|'s tensor is computed by, if that is a map; at |load|'s index.
static const kiln_expr *map_at(const safe *s, const kiln_expr *load) {
  const kiln_stmt *from = kiln_map_of(s->cx, s->p, load->u.tensor);
  kiln_symbol vars[KILN_MAX_RANK];
  if (!from) return NULL;
  for (int k = 0; k < from->n_space; k++) vars[k] = from->dims[k].name;
  return kiln_expr_substitute(s->cx, from->body, from->n_space, vars, load->args);
}

// Whether |s|->q is isnan(P) ? 0 : P.
static bool is_choice(safe *s) {
  const kiln_expr *e = s->q->body;
  if (e->kind != KILN_EXPR_SELECT || !kiln_expr_is_zero(e->args[1]) || !is_own(s, s->q, e->args[2]))
    return false;
  const kiln_expr *c = e->args[0];
  if (c->kind == KILN_EXPR_LOAD) c = map_at(s, c);
  s->own = e->args[2];
  return c && c->kind == KILN_EXPR_ISNAN && c->args[0] == s->own;
}

// The statement that reduces |of|'s last dim with |how| into |load|'s tensor.
static const kiln_stmt *reduction_of(const safe *s, const kiln_expr *load, kiln_combiner how) {
  const int def = load->kind == KILN_EXPR_LOAD ? s->p->tensors.data[load->u.tensor]->def : -1;
  const kiln_stmt *from = def < 0 ? NULL : s->p->stmts.data[def];
  return from && from->combiner == how && from->n_reduce == 1 && !from->guard && !from->init ? from
                                                                                             : NULL;
}

// Whether |load|, at the dims of the row alone, is of the sum or the greatest of |tensor|'s rows.
static bool reduces(const safe *s, const kiln_expr *load, kiln_combiner how, int tensor) {
  const kiln_stmt *r = reduction_of(s, load, how);
  return r && r->body->kind == KILN_EXPR_LOAD && r->body->u.tensor == tensor;
}

// The exponentials E in E / S, E * (1 / S) or (1 / S) * E, where S is their sum.
static const kiln_expr *exponentials_of(const safe *s, const kiln_expr *e) {
  const kiln_expr *top = NULL, *sum = NULL;
  if (e->kind == KILN_EXPR_DIV) top = e->args[0], sum = e->args[1];
  for (int k = 0; e->kind == KILN_EXPR_MUL && k < 2; k++)
    if (e->args[k]->kind == KILN_EXPR_DIV) sum = e->args[k]->args[1], top = e->args[1 - k];
  return top && top->kind == KILN_EXPR_LOAD && reduces(s, sum, KILN_COMBINE_SUM, top->u.tensor)
             ? top
             : NULL;
}

// Finds the scores whose softmax the weights are.
static bool find_scores(safe *s) {
  const kiln_stmt *weights = kiln_map_of(s->cx, s->p, s->own->u.tensor);
  const kiln_expr *e = weights ? exponentials_of(s, weights->body) : NULL;
  const kiln_stmt *exps = e && is_own(s, weights, e) ? kiln_map_of(s->cx, s->p, e->u.tensor) : NULL;
  if (!exps || exps->body->kind != KILN_EXPR_EXP || exps->body->args[0]->kind != KILN_EXPR_SUB)
    return false;
  const kiln_expr *z = exps->body->args[0]->args[0], *most = exps->body->args[0]->args[1];
  if (!is_own(s, exps, z) || !reduces(s, most, KILN_COMBINE_MAX, z->u.tensor)) return false;
  s->z = exps;
  s->masks = z;
  return true;
}

// Replaces products by 0, and maps by what they compute.
static const kiln_expr *without_products(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  safe *s = argument;
  kiln_bilinear product;
  if (e->kind != KILN_EXPR_LOAD) return NULL;
  const int def = s->p->tensors.data[e->u.tensor]->def;
  if (def >= 0 && s->p->stmts.data[def]->n_reduce > 0 &&
      kiln_bilinear_of(cx, s->p->stmts.data[def], &product))
    return kiln_float(cx, e->dtype, 0);
  const kiln_expr *map = s->depth < MAX_DEPTH ? map_at(s, e) : NULL;
  if (!map || map->n_tree > MAX_TREE) return NULL;
  s->depth++;
  const kiln_expr *found = kiln_expr_replace(cx, map, without_products, s);
  s->depth--;
  return found;
}

static void see_infinity(const kiln_expr *e, void *argument) {
  if (e->kind == KILN_EXPR_LOAD || (e->kind == KILN_EXPR_FLOAT && !isfinite(e->u.f)))
    *(bool *)argument = true;
}

// Whether the scores may be -inf where their products are finite: they read masks, or have some.
static bool has_masks(safe *s) {
  bool found = false;
  s->masks = kiln_expr_replace(s->cx, s->masks, without_products, s);
  s->masks = kiln_stmt_simplify(s->cx, s->z, s->masks);
  kiln_expr_visit(s->cx, s->masks, see_infinity, &found);
  return found;
}

static void insert(kiln_program *p, kiln_stmt *s, int at) { // |s| is the last
  for (int i = p->stmts.n - 1; i > at; i--) p->stmts.data[i] = p->stmts.data[i - 1];
  p->stmts.data[at] = s;
}

// Adds X at statement |at|, over the dims of the scores' rows that masks depend on.
//
// gives: *out_axes, these dims, as a bit mask
static const kiln_stmt *add_most(safe *s, int at, uint32_t *out_axes) {
  const int row = s->z->n_space - 1;
  const kiln_expr *extents[KILN_MAX_RANK], *values[KILN_MAX_RANK];
  kiln_symbol vars[KILN_MAX_RANK];
  int n = 0;
  *out_axes = 0;
  for (int d = 0; d < row; d++) {
    if (!kiln_expr_uses(s->masks, s->z->dims[d].name)) continue;
    *out_axes |= 1u << d;
    vars[n] = s->z->dims[d].name;
    extents[n++] = s->z->dims[d].extent;
  }
  vars[n] = s->z->dims[row].name;
  extents[n] = s->z->dims[row].extent;
  kiln_stmt *x = kiln_stmt_make(s->cx, s->p, "visible", s->masks->dtype, n, 1, extents);
  for (int d = 0; d <= n; d++) values[d] = kiln_stmt_var(s->cx, x, d);
  x->combiner = KILN_COMBINE_MAX;
  x->body = kiln_expr_substitute(s->cx, s->masks, n + 1, vars, values);
  x->origin = s->q->origin;
  insert(s->p, x, at);
  return x;
}

typedef struct reading {
  int from, to;
  const kiln_expr *found;
} reading;

static const kiln_expr *read_weights(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  reading *r = argument;
  if (e->kind != KILN_EXPR_LOAD || e->u.tensor != r->from) return NULL;
  r->found = e;
  return kiln_load(cx, r->to, e->dtype, e->n_args, e->args);
}

// Whether the product |r| may read the weights: its rows are theirs, by dims of its own.
static bool is_reader(safe *s, kiln_stmt *r) {
  kiln_bilinear product;
  if (!kiln_bilinear_of(s->cx, r, &product)) return false;
  for (int i = 0; i < 2; i++) {
    const kiln_expr *load = product.args[i];
    if (load->u.tensor != s->q->out || kiln_expr_loads(s->cx, product.args[1 - i], s->q->out))
      continue;
    const kiln_expr *last = load->args[load->n_args - 1];
    if (r->n_reduce != 1 || last != kiln_stmt_var(s->cx, r, r->n_space)) return false;
    for (int k = 0; k + 1 < load->n_args; k++)
      if (load->args[k]->kind != KILN_EXPR_VAR && !kiln_expr_is_int(load->args[k], NULL))
        return false;
    return true;
  }
  return false;
}

static bool has_readers(safe *s) {
  int n = 0;
  if (kiln_tensor_is_output(s->p, s->q->out)) return false;
  for (int i = 0; i < s->p->stmts.n; i++) {
    kiln_stmt *r = s->p->stmts.data[i];
    if (!kiln_expr_loads(s->cx, r->body, s->q->out)) continue;
    if (!is_reader(s, r)) return false;
    n++;
  }
  return n > 0;
}

// The product at statement |at| reads the weights, and a map behind it makes rows without keys 0.
static void guard_rows(safe *s, int at, const kiln_stmt *most, uint32_t axes,
                       const kiln_expr *weights) {
  kiln_ctx *cx = s->cx;
  kiln_stmt *r = s->p->stmts.data[at];
  kiln_tensor *t = s->p->tensors.data[r->out];
  const kiln_expr *index[KILN_MAX_RANK], *own[KILN_MAX_RANK];
  kiln_symbol vars[KILN_MAX_RANK];
  int n = 0;
  kiln_stmt *y =
      kiln_stmt_make(cx, s->p, kiln_symbol_text(cx, t->name), t->dtype, t->rank, 0, t->shape);
  for (int k = 0; k < t->rank; k++) {
    own[k] = kiln_stmt_var(cx, y, k);
    vars[k] = r->dims[k].name;
  }
  for (int k = 0; k < weights->n_args; k++)
    if (axes >> k & 1)
      index[n++] = kiln_expr_substitute(cx, weights->args[k], r->n_space, vars, own);
  const kiln_expr *x = kiln_tensor_load(cx, s->p->tensors.data[most->out], index),
                  *none = kiln_binary(cx, KILN_EXPR_EQ, x, kiln_float(cx, x->dtype, -INFINITY));
  y->body = kiln_select(cx, none, kiln_float(cx, t->dtype, 0),
                        kiln_tensor_load(cx, s->p->tensors.data[y->out], own));
  y->origin = r->origin;
  r->out = y->out; // a new tensor for the product, whose own the map writes
  y->out = t->id;
  insert(s->p, y, at + 1);
}

static bool rewrite_one(kiln_ctx *cx, kiln_program *p, kiln_site *site) {
  (void)site;
  for (int i = 0; i < p->stmts.n; i++) {
    safe s = {.cx = cx, .p = p, .q = p->stmts.data[i]};
    if (kiln_map_of(cx, p, s.q->out) != s.q || !is_choice(&s) || !find_scores(&s) ||
        !has_readers(&s))
      continue;
    const bool masked = has_masks(&s);
    uint32_t axes = 0;
    const kiln_stmt *most = masked ? add_most(&s, i, &axes) : NULL;
    for (int k = i; k < p->stmts.n; k++) {
      kiln_stmt *r = p->stmts.data[k];
      reading w = {s.q->out, s.own->u.tensor, NULL};
      const kiln_expr *body = kiln_expr_replace(cx, r->body, read_weights, &w);
      if (!w.found) continue;
      r->body = body;
      if (masked) guard_rows(&s, k, most, axes, w.found);
    }
    return true;
  }
  return false;
}

int kiln_rule_safe_softmax(kiln_ctx *cx, kiln_program *p) {
  return kiln_rewrite_all(cx, p, NULL, rewrite_one);
}
