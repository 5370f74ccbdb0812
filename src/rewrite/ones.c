// A sum over an operand that a contraction also reduces over the same axes becomes one more column
// of that contraction, a product with ones:
//     S(i) = sum_r X(i, r),  Y(i, j) = sum_r X(i, r) W(r, j)
//     becomes  T = X [W 1],  S(i) = T(i, n),  Y(i, j) = T(i, j)
// so that X is read once. A scale of X between the two that is invariant in the sum moves to the
// result: for softmax, Y(i, j) = sum_r X(i, r) / S(i) W(r, j) becomes T(i, j) / T(i, n), if Y has
// no more elements than X.
//
// A sum that shares its operand with no contraction is left alone: a product with ones reads and
// adds as much.
//
// source: Korch, ASPLOS'24, section 4 (ReduceSum as MatMul)
#include "rewrite/constants.h"
#include "rewrite/product.h"
#include "rewrite/readers.h"
#include "rewrite/rules.h"

typedef struct joining {
  kiln_ctx *cx;
  kiln_program *p;
  const int *n_readers;
  kiln_stmt *sum;
  const kiln_expr *summed; // the sum's load, with dims of extent 1 as 0
  kiln_bilinear product;   // the product to be extended
  int i;                   // index of the factor that is the sum's operand, or scaled from it
  const kiln_expr *scaled; // the factor: |load|, times or divided by an invariant of the sum
  const kiln_expr *load;
  int column, axis; // the product's dim and the other factor's axis that get one more column
  int dim_of[2 * KILN_MAX_RANK]; // [product dims] the sum's dim with the same axis of the operand;
                                 // -1: none
} joining;

static int64_t extent_of(const kiln_stmt *s, int d) {
  return kiln_expr_int_or(s->dims[d].extent, -1);
}

// |s| sums elements of a tensor; products are excluded.
static bool find_sum(joining *o, kiln_stmt *s) {
  if (s->combiner != KILN_COMBINE_SUM || s->n_reduce == 0 || s->guard ||
      !kiln_stmt_is_plain(o->cx, s) || s->body->kind != KILN_EXPR_LOAD ||
      (s->body->dtype != KILN_F32 && s->body->dtype != KILN_F64))
    return false;
  const kiln_expr *zero = kiln_int(o->cx, 0);
  o->sum = s;
  o->summed = s->body;
  for (int d = 0; d < s->n_space + s->n_reduce; d++)
    if (extent_of(s, d) == 1)
      o->summed = kiln_expr_substitute(o->cx, o->summed, 1, &s->dims[d].name, &zero);
  return true;
}

// Matches the factor with the sum's operand, or with a map of it that has no other reader.
static bool find_operand(joining *o) {
  const kiln_expr *e = o->product.args[o->i];
  const int tensor = e->u.tensor, operand = o->summed->u.tensor;
  o->scaled = o->load = e;
  if (tensor == operand) return true;
  const kiln_stmt *map = kiln_map_of(o->cx, o->p, tensor);
  if (!map || o->n_readers[tensor] != 1 || kiln_tensor_is_output(o->p, tensor)) return false;
  kiln_symbol vars[KILN_MAX_RANK];
  for (int k = 0; k < map->n_space; k++) vars[k] = map->dims[k].name;
  const kiln_ranges ranges = kiln_stmt_bounds(o->cx, o->product.s);
  e = kiln_simplify(o->cx, kiln_expr_substitute(o->cx, map->body, map->n_space, vars, e->args),
                    &ranges);
  if (e->kind != KILN_EXPR_MUL && e->kind != KILN_EXPR_DIV) return false;
  const int at = e->args[0]->kind == KILN_EXPR_LOAD && e->args[0]->u.tensor == operand ? 0 : 1;
  o->scaled = e;
  o->load = e->args[at];
  return o->load->kind == KILN_EXPR_LOAD && o->load->u.tensor == operand &&
         !(at == 1 && e->kind == KILN_EXPR_DIV) &&
         !kiln_stmt_reduces_along(o->product.s, e->args[!at]) &&
         kiln_tensor_elems(o->p->tensors.data[o->product.s->out]) <=
             kiln_tensor_elems(o->p->tensors.data[operand]);
}

// Pairs dims of the two statements that index the same axes of the operand: each of the sum's dims
// has a partner of the same kind (space or reduction), and so has each of the product's except the
// columns.
static bool pair_dims(joining *o) {
  const kiln_stmt *s = o->sum, *y = o->product.s;
  const int n = y->n_space + y->n_reduce;
  bool is_paired[2 * KILN_MAX_RANK] = {false};
  for (int d = 0; d < n; d++) o->dim_of[d] = -1;
  for (int k = 0; k < o->load->n_args; k++) {
    const int a = kiln_stmt_dim_of(s, o->summed->args[k]),
              b = kiln_stmt_dim_of(y, o->load->args[k]);
    if (a < 0 && b < 0 && o->summed->args[k] == o->load->args[k] &&
        o->load->args[k]->kind == KILN_EXPR_INT)
      continue;
    if (a < 0 || b < 0 || is_paired[a] || o->dim_of[b] >= 0 || extent_of(s, a) != extent_of(y, b) ||
        (a < s->n_space) != (b < y->n_space))
      return false;
    is_paired[a] = true;
    o->dim_of[b] = a;
  }
  for (int a = 0; a < s->n_space + s->n_reduce; a++)
    if (!is_paired[a] && extent_of(s, a) != 1) return false;
  o->column = -1;
  for (int b = 0; b < n; b++) {
    if (o->dim_of[b] >= 0 || extent_of(y, b) == 1) continue;
    if (b >= y->n_space || o->column >= 0) return false;
    o->column = b;
  }
  return o->column >= 0;
}

// The axis of the other factor indexed by the columns, in full.
static bool find_axis(joining *o) {
  const kiln_expr *w = o->product.args[!o->i];
  const kiln_dim *column = &o->product.s->dims[o->column];
  o->axis = -1;
  for (int k = 0; k < w->n_args; k++) {
    if (!kiln_expr_uses(w->args[k], column->name)) continue;
    if (o->axis >= 0 || w->args[k]->kind != KILN_EXPR_VAR) return false;
    o->axis = k;
  }
  const kiln_tensor *t = o->p->tensors.data[w->u.tensor];
  return o->axis >= 0 && t->shape[o->axis] == column->extent;
}

// The position of the extended product: that of the first of the two statements, if the other
// factor is computed before.
static int place_of(const joining *o) {
  const int at = o->sum->id < o->product.s->id ? o->sum->id : o->product.s->id;
  const kiln_tensor *w = o->p->tensors.data[o->product.args[!o->i]->u.tensor];
  const bool fits =
      w->role == KILN_CONST ? kiln_tensor_elems(w) <= KILN_MAX_FOLDED_STEPS : w->def < at;
  return fits ? at : -1;
}

static bool fits(joining *o, kiln_stmt *y) {
  const kiln_program *p = o->p;
  if (y == o->sum || !kiln_bilinear_of(o->cx, y, &o->product) ||
      y->body->dtype != o->summed->dtype ||
      p->tensors.data[y->out]->dtype != p->tensors.data[o->sum->out]->dtype)
    return false;
  for (o->i = 0; o->i < 2; o->i++)
    if (find_operand(o) && pair_dims(o) && find_axis(o) && place_of(o) >= 0) return true;
  return false;
}

// --- rewriting ---

static const char *name_of(const joining *o, int tensor) {
  return kiln_symbol_text(o->cx, o->p->tensors.data[tensor]->name);
}

// The other factor with a column of ones appended.
static const kiln_tensor *with_ones(joining *o) {
  const kiln_tensor *w = o->p->tensors.data[o->product.args[!o->i]->u.tensor];
  const kiln_expr *extents[KILN_MAX_RANK], *vars[KILN_MAX_RANK];
  const kiln_expr *n = w->shape[o->axis];
  for (int k = 0; k < w->rank; k++) extents[k] = w->shape[k];
  extents[o->axis] = kiln_add(o->cx, n, kiln_int(o->cx, 1));
  kiln_stmt *s = kiln_stmt_make(o->cx, o->p, name_of(o, w->id), w->dtype, w->rank, 0, extents);
  for (int k = 0; k < w->rank; k++) vars[k] = kiln_stmt_var(o->cx, s, k);
  s->body = kiln_select(o->cx, kiln_binary(o->cx, KILN_EXPR_LT, vars[o->axis], n),
                        kiln_tensor_load(o->cx, w, vars), kiln_float(o->cx, w->dtype, 1));
  s->origin = o->product.s->origin;
  return o->p->tensors.data[s->out];
}

static kiln_stmt *make_product(joining *o, const kiln_tensor *w) {
  const kiln_stmt *y = o->product.s;
  const kiln_expr *extents[2 * KILN_MAX_RANK], *values[2 * KILN_MAX_RANK];
  kiln_symbol vars[2 * KILN_MAX_RANK];
  const int n = y->n_space + y->n_reduce;
  for (int d = 0; d < n; d++) extents[d] = y->dims[d].extent;
  extents[o->column] = w->shape[o->axis];
  kiln_stmt *t = kiln_stmt_make(o->cx, o->p, name_of(o, y->out), y->body->dtype, y->n_space,
                                y->n_reduce, extents);
  for (int d = 0; d < n; d++) {
    vars[d] = y->dims[d].name;
    values[d] = kiln_stmt_var(o->cx, t, d);
  }
  const kiln_expr *other = kiln_tensor_load(o->cx, w, o->product.args[!o->i]->args);
  t->combiner = KILN_COMBINE_SUM;
  t->body = kiln_expr_substitute(
      o->cx, o->i == 0 ? kiln_mul(o->cx, o->load, other) : kiln_mul(o->cx, other, o->load), n, vars,
      values);
  t->origin = y->origin;
  return t;
}

static void become_map(kiln_stmt *s, const kiln_expr *body) {
  s->n_reduce = 0;
  s->combiner = KILN_COMBINE_NONE;
  s->body = body;
}

static void join(joining *o) {
  kiln_stmt *y = o->product.s, *s = o->sum;
  const int at = place_of(o), n = o->p->stmts.n;
  const kiln_tensor *w = with_ones(o);
  const kiln_stmt *product = make_product(o, w); // reallocates the program's arrays
  const kiln_tensor *t = o->p->tensors.data[product->out];
  const kiln_expr *own[KILN_MAX_RANK], *last[KILN_MAX_RANK];
  for (int d = 0; d < y->n_space; d++) {
    own[d] = kiln_stmt_var(o->cx, y, d);
    last[d] = d == o->column      ? y->dims[d].extent
              : o->dim_of[d] >= 0 ? kiln_stmt_var(o->cx, s, o->dim_of[d])
                                  : kiln_int(o->cx, 0);
  }
  become_map(y, kiln_expr_replace_one(o->cx, o->scaled, o->load, kiln_tensor_load(o->cx, t, own)));
  become_map(s, kiln_tensor_load(o->cx, t, last));
  kiln_stmt *made[] = {o->p->stmts.data[n], o->p->stmts.data[n + 1]};
  for (int k = n - 1; k >= at; k--) o->p->stmts.data[k + 2] = o->p->stmts.data[k];
  for (int k = 0; k < 2; k++) o->p->stmts.data[at + k] = made[k];
}

static bool join_one(kiln_ctx *cx, kiln_program *p, kiln_site *site) {
  joining o = {.cx = cx, .p = p, .n_readers = kiln_readers_count(cx, p)};
  for (int i = 0; i < p->stmts.n; i++) {
    if (!find_sum(&o, p->stmts.data[i])) continue;
    for (int k = 0; k < p->stmts.n; k++) {
      if (!fits(&o, p->stmts.data[k]) || !kiln_site_enter(cx, site, p, o.sum)) continue;
      join(&o);
      return true;
    }
  }
  return false;
}

int kiln_rule_ones(kiln_ctx *cx, kiln_program *p, kiln_site *site) {
  return kiln_rewrite_all(cx, p, site, join_one);
}
