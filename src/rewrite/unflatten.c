// Rows that are flattened before a product with constants, and split after it, keep their axes:
//     R(m, k) = X(m / B, m % B, k);  T(m, n) +=! R(m, r) W(r, n);  Y(a, b, n) = f(T(a B + b, n))
//   becomes
//     R(a, b, k) = X(a, b, k);  T(a, b, n) +=! R(a, b, r) W(r, n);  Y(a, b, n) = f(T(a, b, n))
// A product of matrices between two reshapes becomes one of the tensors around them: its producers,
// itself and its consumers iterate over the same axes, without divisions of row numbers.
//
// The axis is split in all maps and products with constants that are connected by it row by row. It
// stays flat at the ends of such a chain: in a sum over it and in a result of the program.
#include "analysis/simplify.h"
#include "rewrite/rules.h"

enum { MAX_MEMBERS = 32, MAX_FACTORS = 8 };

// Tensors that share an axis of outer * inner rows, which becomes two axes.
typedef struct flat {
  kiln_ctx *cx;
  kiln_program *p;
  int64_t outer, inner;
  int n;
  struct {
    int tensor, axis;
    const kiln_expr *body; // of its defining statement, over the split axes
  } members[MAX_MEMBERS];
  bool has_product;
  const kiln_stmt *s; // current statement
  int at;             // current member
  bool fails;
} flat;

static int member_of(const flat *f, int tensor) {
  for (int i = 0; i < f->n; i++)
    if (f->members[i].tensor == tensor) return i;
  return -1;
}

// --- which statements may carry a split axis ---

typedef struct operands {
  const kiln_program *p;
  bool reads_constant, are_rows;
} operands;

static void see_operand(const kiln_expr *load, void *argument) {
  operands *o = argument;
  o->reads_constant |= o->p->tensors.data[load->u.tensor]->role == KILN_CONST;
  for (int k = 0; k < load->n_args; k++)
    o->are_rows &= load->args[k]->kind == KILN_EXPR_VAR || kiln_expr_is_int(load->args[k], NULL);
}

// Whether |s| multiplies rows by a constant matrix. False for convolutions, whose index is a sum.
static bool is_row_product(const flat *f, const kiln_stmt *s) {
  operands o = {f->p, false, true};
  if (s->combiner != KILN_COMBINE_SUM || s->n_reduce == 0) return false;
  kiln_expr_visit_loads(f->cx, s->body, see_operand, &o);
  return o.reads_constant && o.are_rows;
}

static bool is_map(const kiln_stmt *s) {
  return s->combiner == KILN_COMBINE_NONE && s->n_reduce == 0;
}

// Adds a tensor to the members; false if its axis cannot be split.
static bool take_in(flat *f, int tensor, int axis) {
  const kiln_tensor *t = f->p->tensors.data[tensor];
  const int known = member_of(f, tensor);
  if (known >= 0) return f->members[known].axis == axis;
  if (t->role != KILN_TEMP || t->def < 0 || t->rank >= KILN_MAX_RANK || f->n == MAX_MEMBERS ||
      kiln_tensor_is_output(f->p, tensor))
    return false;
  const kiln_stmt *s = f->p->stmts.data[t->def];
  const bool is_product = is_row_product(f, s);
  if (!kiln_stmt_is_plain(f->cx, s) || s->guard || !(is_product || is_map(s)) ||
      kiln_dim_extent(&s->dims[axis]) != f->outer * f->inner)
    return false;
  f->has_product |= is_product;
  f->members[f->n].tensor = tensor;
  f->members[f->n++].axis = axis;
  return true;
}

// An operand that a member indexes by its axis alone is a member, too: `X(m, k)` in `Y(m, n)`.
static void follow_operand(const kiln_expr *load, void *argument) {
  flat *f = argument;
  const kiln_symbol row = f->s->dims[f->members[f->at].axis].name;
  for (int k = 0; k < load->n_args && !f->fails; k++)
    if (load->args[k]->kind == KILN_EXPR_VAR && load->args[k]->u.sym == row)
      f->fails = !take_in(f, load->u.tensor, k);
}

// A statement that indexes a member by one of its own space dims defines a member, too. Other
// indices, as a B + b, are only simplified after the split.
static void follow_reader(const kiln_expr *load, void *argument) {
  flat *f = argument;
  if (load->u.tensor != f->members[f->at].tensor || f->fails) return;
  const kiln_expr *row = load->args[f->members[f->at].axis];
  if (row->kind != KILN_EXPR_VAR) return;
  const int dim = kiln_stmt_space_dim(f->s, row->u.sym);
  f->fails = dim < 0 || !take_in(f, f->s->out, dim);
}

// Whether |s| loads |tensor| in its guard, initial value or output index.
static bool loads_beside_body(kiln_ctx *cx, const kiln_program *p, const kiln_stmt *s, int tensor) {
  bool does = kiln_expr_loads(cx, s->guard, tensor) || kiln_expr_loads(cx, s->init, tensor);
  for (int k = 0; k < p->tensors.data[s->out]->rank && !does; k++)
    does = kiln_expr_loads(cx, s->index[k], tensor);
  return does;
}

// Adds all tensors connected to the first member by the axis.
static bool find_members(flat *f) {
  for (f->at = 0; f->at < f->n && !f->fails; f->at++) {
    const int tensor = f->members[f->at].tensor, def = f->p->tensors.data[tensor]->def;
    f->s = f->p->stmts.data[def];
    kiln_expr_visit_loads(f->cx, f->s->body, follow_operand, f);
    for (int i = def + 1; i < f->p->stmts.n && !f->fails; i++) {
      f->s = f->p->stmts.data[i];
      f->fails = loads_beside_body(f->cx, f->p, f->s, tensor);
      if (kiln_expr_loads(f->cx, f->s->body, tensor))
        kiln_expr_visit_loads(f->cx, f->s->body, follow_reader, f);
    }
  }
  return !f->fails && f->has_product;
}

// --- the program over split axes ---

static const kiln_expr *split_load(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  const flat *f = argument;
  const kiln_expr *index[KILN_MAX_RANK], *inner = kiln_int(cx, f->inner);
  const int member = e->kind == KILN_EXPR_LOAD ? member_of(f, e->u.tensor) : -1;
  int n = 0;
  if (member < 0) return NULL;
  for (int k = 0; k < e->n_args; k++) {
    index[n++] = kiln_expr_replace(cx, e->args[k], split_load, argument);
    if (k != f->members[member].axis) continue;
    index[n] = kiln_mod(cx, index[n - 1], inner);
    index[n - 1] = kiln_div(cx, index[n - 1], inner);
    n++;
  }
  return kiln_load(cx, e->u.tensor, e->dtype, n, index);
}

// A name for space dim |k| that no reduction dim of |s| has.
static kiln_symbol name_dim(kiln_ctx *cx, const kiln_stmt *s, int k) {
  kiln_symbol name = kiln_symbol_printf(cx, "i%d", k);
  while (kiln_stmt_dim(s, name) >= s->n_space)
    name = kiln_symbol_printf(cx, "%s_", kiln_symbol_text(cx, name));
  return name;
}

// The dims of |s| with |axis| split.
static kiln_dim *split_dims(const flat *f, const kiln_stmt *s, int axis) {
  kiln_dim *dims = KILN_NEW_ARRAY(&f->cx->perm, kiln_dim, s->n_space + s->n_reduce + 1);
  for (int k = 0, n = 0; k < s->n_space + s->n_reduce; k++, n++) {
    dims[n] = s->dims[k];
    if (k < s->n_space) dims[n].name = name_dim(f->cx, s, n);
    if (k != axis) continue;
    dims[n].extent = kiln_int(f->cx, f->outer);
    n++;
    dims[n] = (kiln_dim){name_dim(f->cx, s, n), kiln_int(f->cx, f->inner)};
  }
  return dims;
}

// |body| over the split |dims| of |s|.
static const kiln_expr *over_dims(const flat *f, const kiln_stmt *s, int axis, const kiln_dim *dims,
                                  const kiln_expr *body) {
  kiln_symbol vars[KILN_MAX_RANK];
  const kiln_expr *values[KILN_MAX_RANK];
  for (int k = 0; k < s->n_space; k++) {
    vars[k] = s->dims[k].name;
    values[k] = kiln_var(f->cx, dims[k > axis ? k + 1 : k].name);
    if (k == axis)
      values[k] = kiln_add(f->cx, kiln_mul(f->cx, values[k], kiln_int(f->cx, f->inner)),
                           kiln_var(f->cx, dims[k + 1].name));
  }
  return kiln_expr_substitute(f->cx, body, s->n_space, vars, values);
}

// |s| after the split: with split dims if it defines |member|, else (member < 0) with its own dims.
static kiln_stmt split_stmt(flat *f, const kiln_stmt *s, int member) {
  kiln_stmt split = *s;
  split.body = kiln_expr_replace(f->cx, s->body, split_load, f);
  if (member >= 0) {
    const int axis = f->members[member].axis;
    split.dims = split_dims(f, s, axis);
    split.n_space++;
    split.body = over_dims(f, s, axis, split.dims, split.body);
  }
  split.body = kiln_stmt_simplify(f->cx, &split, split.body);
  return split;
}

// --- profitability ---

typedef struct divisions {
  int n;
  kiln_symbol outer, inner; // the dims of a split axis, or 0
  int64_t extent;           // of |inner|
  bool is_flat;             // an expression still computes the row number outer * extent + inner
} divisions;

static bool uses_both(const divisions *d, const kiln_expr *e) {
  return d->outer && kiln_expr_uses(e, d->outer) && kiln_expr_uses(e, d->inner);
}

// Whether |e| is affine in the row number: c * (outer * extent + inner) + rest.
static bool moves_flat(const divisions *d, const kiln_expr *e) {
  const kiln_symbol vars[] = {d->outer, d->inner};
  int64_t coef[2], constant;
  return uses_both(d, e) && kiln_expr_affine(e, 2, vars, coef, &constant) &&
         coef[0] == coef[1] * d->extent;
}

static void see_division(const kiln_expr *e, void *argument) {
  divisions *d = argument;
  const bool divides = e->kind == KILN_EXPR_DIV || e->kind == KILN_EXPR_MOD;
  if (divides && !kiln_dtype_is_float(e->dtype)) d->n++;
  if (e->kind == KILN_EXPR_LOAD)
    for (int k = 0; k < e->n_args; k++) d->is_flat |= moves_flat(d, e->args[k]);
  else if (!e->has_load && (divides || kiln_expr_kind_is_cmp(e->kind)))
    d->is_flat |= uses_both(d, e);
}

static divisions divisions_of(const flat *f, const kiln_stmt *s, int member) {
  divisions d = {0};
  if (member >= 0) {
    const kiln_dim *dim = &s->dims[f->members[member].axis];
    d.outer = dim[0].name;
    d.inner = dim[1].name;
    d.extent = f->inner;
  }
  kiln_expr_visit(f->cx, s->body, see_division, &d);
  return d;
}

// Whether |s| reads a member.
static bool reads_member(const flat *f, const kiln_stmt *s) {
  for (int i = 0; i < f->n; i++)
    if (kiln_expr_loads(f->cx, s->body, f->members[i].tensor)) return true;
  return false;
}

// Whether some statement has fewer divisions than before, none has more, and none computes the row
// number.
static bool is_better(flat *f) {
  int saved = 0;
  for (int i = 0; i < f->p->stmts.n; i++) {
    const kiln_stmt *s = f->p->stmts.data[i];
    const int member = member_of(f, s->out);
    if (member < 0 && !reads_member(f, s)) continue;
    const kiln_stmt split = split_stmt(f, s, member);
    const divisions before = divisions_of(f, s, -1), after = divisions_of(f, &split, member);
    if (after.is_flat || after.n > before.n) return false;
    saved += before.n - after.n;
  }
  return saved > 0;
}

static void set_axes(flat *f, kiln_stmt *s) {
  kiln_tensor *t = f->p->tensors.data[s->out];
  const kiln_expr **shape = KILN_NEW_ARRAY(&f->cx->perm, const kiln_expr *, s->n_space);
  const kiln_expr **index = KILN_NEW_ARRAY(&f->cx->perm, const kiln_expr *, s->n_space);
  for (int k = 0; k < s->n_space; k++) {
    shape[k] = s->dims[k].extent;
    index[k] = kiln_stmt_var(f->cx, s, k);
    t->order[k] = (int8_t)k;
  }
  t->rank = s->n_space;
  t->shape = shape;
  s->index = index;
}

static void rewrite(flat *f) {
  for (int i = 0; i < f->p->stmts.n; i++) {
    kiln_stmt *s = f->p->stmts.data[i];
    const int member = member_of(f, s->out);
    if (member < 0 && !reads_member(f, s)) continue;
    *s = split_stmt(f, s, member);
    if (member >= 0) set_axes(f, s);
  }
}

// --- factors ---

typedef struct factors {
  kiln_symbol row;
  int n;
  int64_t data[MAX_FACTORS];
} factors;

static void add_factor(factors *f, int64_t factor) {
  for (int i = 0; i < f->n; i++)
    if (f->data[i] == factor) return;
  if (f->n < MAX_FACTORS) f->data[f->n++] = factor;
}

// Collects inner extents: B of m / B and m % B, C * D of m / C % D.
static void see_factor(const kiln_expr *e, void *argument) {
  factors *f = argument;
  int64_t by = 0, below = 0;
  if ((e->kind != KILN_EXPR_DIV && e->kind != KILN_EXPR_MOD) ||
      !kiln_expr_is_int(e->args[1], &by) || by <= 1)
    return;
  const kiln_expr *x = e->args[0];
  if (e->kind == KILN_EXPR_MOD && x->kind == KILN_EXPR_DIV &&
      kiln_expr_is_int(x->args[1], &below) && below > 0 && by <= INT32_MAX / below) {
    by *= below;
    x = x->args[0];
  }
  if (x->kind == KILN_EXPR_VAR && x->u.sym == f->row) add_factor(f, by);
}

static int split_axis(kiln_ctx *cx, kiln_program *p, const kiln_stmt *s, int axis) {
  const int64_t extent = kiln_dim_extent(&s->dims[axis]);
  factors of = {.row = s->dims[axis].name};
  kiln_expr_visit(cx, s->body, see_factor, &of);
  for (int i = 0; i < of.n; i++) {
    flat f = {.cx = cx, .p = p, .outer = extent / of.data[i], .inner = of.data[i]};
    if (f.outer <= 1 || f.outer * f.inner != extent) continue;
    if (!take_in(&f, s->out, axis) || !find_members(&f) || !is_better(&f)) continue;
    rewrite(&f);
    return 1;
  }
  return 0;
}

int kiln_rule_unflatten(kiln_ctx *cx, kiln_program *p) {
  int n = 0;
  for (int i = 0; i < p->stmts.n; i++) {
    const kiln_stmt *s = p->stmts.data[i];
    const kiln_mark mark = kiln_arena_mark(&cx->scratch);
    for (int k = 0; is_map(s) && k < s->n_space; k++) n += split_axis(cx, p, s, k);
    kiln_arena_rewind(&cx->scratch, mark);
  }
  return n;
}
