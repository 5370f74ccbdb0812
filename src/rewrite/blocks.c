// Blocked summation: a very long sum becomes a sum of the sums of blocks, so that its rounding
// error grows with the block's length plus the number of blocks instead of their product:
//     Y(s) = sum_r X(s, r)  becomes  P(s, b) = sum_i X(s, b * N + i),  Y(s) = sum_b P(s, b)
// A block is as many whole innermost dims as fit, and a part of the next one. Matrix products are
// left alone: contraction kernels already sum in chunks.
//
// If a reshape merged several axes into the summed one (a group's channels and pixels), the sum
// runs over the original axes, because blocks of the merged axis may be scattered if the tensor is
// stored in another order. Of three and more axes a block has the outermost and the innermost
// whole, so that it reads contiguous pieces whether the tensor is stored channels first or channels
// last.
#include "rewrite/product.h"
#include "rewrite/rules.h"

#include <string.h>

// A contiguous sum is divided among vector lanes already, so it counts as long only from LEAST_ROW
// on.
enum {
  LEAST_ROW = 1 << 16,
  LEAST_COLUMN = 1 << 14,
  FEW_RESULTS = 16,
  MANY_RESULTS = 256,
  BLOCK = 1 << 10,
  AXES_BLOCK = 1 << 14, // with three and more axes
  LEAST_BLOCK = 1 << 8
};

typedef struct side {
  const kiln_stmt *s;
  bool by_side; // a load reduces along the last axis
} side;

static void see_load(const kiln_expr *load, void *argument) {
  side *f = argument;
  const kiln_expr *last = load->n_args ? load->args[load->n_args - 1] : NULL;
  f->by_side |= last && kiln_stmt_reduces_along(f->s, last);
}

// The dims of a block: all those inner to |dim|, and |part| indices of |dim|, which has |n_parts|
// parts.
typedef struct blocks {
  int dim;
  int64_t part, n_parts;
  bool is_ragged; // the last part extends past the end
} blocks;

// A product with few results, or a matrix-vector product, whose kernels read the matrix in place.
static bool has_few_results(const kiln_stmt *s, const kiln_bilinear *product) {
  const int64_t n = kiln_dims_elems(s->n_space, s->dims);
  if (n <= FEW_RESULTS) return true;
  for (int k = 0; k < 2; k++) {
    bool moves = false;
    for (int d = 0; d < s->n_space; d++) moves |= kiln_expr_uses(product->args[k], s->dims[d].name);
    if (!moves) return n >= MANY_RESULTS;
  }
  return false;
}

static bool is_product(kiln_ctx *cx, kiln_stmt *s, kiln_bilinear *out) {
  return kiln_bilinear_of(cx, s, out) && out->args[0] != out->args[1];
}

// |only_products|: products whose results alone would occupy too few threads of a GPU.
static bool is_long_sum(kiln_ctx *cx, kiln_stmt *s, bool only_products) {
  kiln_bilinear product;
  const bool is_wide = s->body->dtype == KILN_F32 || s->body->dtype == KILN_F64;
  if (s->combiner != KILN_COMBINE_SUM || !is_wide || s->guard || s->init ||
      !kiln_stmt_is_plain(cx, s))
    return false;
  for (int d = s->n_space; d < s->n_space + s->n_reduce; d++)
    if (!kiln_expr_is_int(s->dims[d].extent, NULL)) return false;
  side f = {s, false};
  kiln_expr_visit_loads(cx, s->body, see_load, &f);
  if (kiln_dims_elems(s->n_reduce, s->dims + s->n_space) < (f.by_side ? LEAST_ROW : LEAST_COLUMN))
    return false;
  const bool multiplies = is_product(cx, s, &product);
  if (only_products) return multiplies && kiln_dims_elems(s->n_space, s->dims) <= FEW_RESULTS;
  return !multiplies || has_few_results(s, &product);
}

// --- axes behind a reshape ---

// Replaces a load of a view (a map that only moves elements) by a load of the viewed tensor.
static const kiln_expr *see_through(kiln_ctx *cx, const kiln_expr *e, void *argument) {
  const kiln_program *p = argument;
  const kiln_stmt *view = e->kind == KILN_EXPR_LOAD ? kiln_map_of(cx, p, e->u.tensor) : NULL;
  kiln_symbol vars[KILN_MAX_RANK];
  if (!view || view->body->kind != KILN_EXPR_LOAD || !kiln_only_moves(cx, view->body)) return NULL;
  for (int d = 0; d < view->n_space; d++) vars[d] = view->dims[d].name;
  return kiln_expr_substitute(cx, view->body, view->n_space, vars, e->args);
}

typedef struct divisor {
  kiln_symbol var;
  int64_t extent, largest;
  bool any; // a division or modulo by any number
} divisor;

static void find_divisor(const kiln_expr *e, void *argument) {
  divisor *d = argument;
  int64_t by = 0;
  if ((e->kind != KILN_EXPR_DIV && e->kind != KILN_EXPR_MOD) || kiln_dtype_is_float(e->dtype))
    return;
  d->any = true;
  if (e->args[0]->kind == KILN_EXPR_VAR && e->args[0]->u.sym == d->var &&
      kiln_expr_is_int(e->args[1], &by) && by > d->largest && by < d->extent && d->extent % by == 0)
    d->largest = by;
}

// Splits dim |at| of |s| in two; the inner extent is the largest divisor of the dim's extent that
// divides it in the body. Returns whether there is one.
static bool split_dim(kiln_ctx *cx, kiln_stmt *s, int at) {
  const int n = s->n_space + s->n_reduce;
  divisor d = {.var = s->dims[at].name, .extent = kiln_expr_int_or(s->dims[at].extent, 0)};
  kiln_expr_visit(cx, s->body, find_divisor, &d);
  if (d.largest == 0 || n == KILN_MAX_RANK) return false;
  kiln_dim *dims = KILN_NEW_ARRAY(&cx->perm, kiln_dim, n + 1);
  memcpy(dims, s->dims, (size_t)(at + 1) * sizeof *dims);
  memcpy(dims + at + 1, s->dims + at, (size_t)(n - at) * sizeof *dims);
  dims[at].extent = kiln_int(cx, d.extent / d.largest);
  dims[at + 1] = (kiln_dim){kiln_symbol_printf(cx, "%s.%d", kiln_symbol_text(cx, d.var), n),
                            kiln_int(cx, d.largest)};
  const kiln_expr *sum = kiln_add(cx, kiln_mul(cx, kiln_var(cx, d.var), kiln_int(cx, d.largest)),
                                  kiln_var(cx, dims[at + 1].name));
  s->dims = dims;
  s->n_reduce++;
  const kiln_ranges r = kiln_stmt_bounds(cx, s);
  s->body = kiln_simplify(cx, kiln_expr_substitute(cx, s->body, 1, &d.var, &sum), &r);
  return true;
}

// Sums over the axes before a reshape, if each becomes a plain index then.
static void find_axes(kiln_ctx *cx, const kiln_program *p, kiln_stmt *s) {
  kiln_stmt to = *s;
  kiln_bilinear product;
  if (is_product(cx, s, &product)) return; // the other operand has the merged layout
  to.body = kiln_expr_replace(cx, s->body, see_through, (void *)p);
  if (to.body == s->body) return;
  for (int d = to.n_space; d < to.n_space + to.n_reduce; d++)
    while (split_dim(cx, &to, d)) continue;
  divisor left = {.any = false};
  kiln_expr_visit(cx, to.body, find_divisor, &left);
  if (!left.any) *s = to;
}

// Moves the outermost of three and more axes before the innermost. Returns whether there are as
// many.
static bool order_axes(kiln_ctx *cx, kiln_stmt *s) {
  kiln_bilinear product;
  if (s->n_reduce < 3 || is_product(cx, s, &product)) return false;
  const int n = s->n_space + s->n_reduce;
  kiln_dim *dims = KILN_NEW_ARRAY(&cx->perm, kiln_dim, n);
  memcpy(dims, s->dims, (size_t)n * sizeof *dims);
  for (int d = s->n_space; d < n - 2; d++) dims[d] = s->dims[d + 1];
  dims[n - 2] = s->dims[s->n_space];
  s->dims = dims;
  return true;
}

// --- blocks ---

// The greatest divisor of |extent| that is at most |most|.
static int64_t divisor_of(int64_t extent, int64_t most) {
  int64_t part = most < extent ? most : extent;
  while (extent % part != 0) part--;
  return part;
}

static blocks find_blocks(const kiln_stmt *s, int64_t most) {
  int64_t inner = 1, extent = 1;
  blocks b = {.dim = s->n_space + s->n_reduce};
  do {
    inner *= extent;
    extent = kiln_expr_int_or(s->dims[--b.dim].extent, 1);
  } while (b.dim > s->n_space && inner * extent <= most);
  b.part = divisor_of(extent, inner < most ? most / inner : 1);
  b.is_ragged = b.part < extent && b.part * inner < LEAST_BLOCK;
  if (b.is_ragged) b.part = most / inner;
  b.n_parts = (extent + b.part - 1) / b.part;
  return b;
}

// The statement P: dims of |y|, the blocks, then the dims of a block.
static kiln_stmt *sum_blocks(kiln_ctx *cx, kiln_program *p, const kiln_stmt *y, const blocks *b) {
  const kiln_expr *extents[2 * KILN_MAX_RANK + 1], *values[2 * KILN_MAX_RANK];
  kiln_symbol vars[2 * KILN_MAX_RANK];
  const int n = y->n_space + y->n_reduce;
  for (int d = 0; d < n; d++) {
    extents[d < b->dim ? d : d + 1] = y->dims[d].extent;
    vars[d] = y->dims[d].name;
  }
  extents[b->dim] = kiln_int(cx, b->n_parts);
  extents[b->dim + 1] = kiln_int(cx, b->part);
  kiln_stmt *s = kiln_stmt_make(cx, p, kiln_symbol_text(cx, p->tensors.data[y->out]->name),
                                y->body->dtype, b->dim + 1, n - b->dim, extents);
  for (int d = 0; d < n; d++) values[d] = kiln_stmt_var(cx, s, d < b->dim ? d : d + 1);
  values[b->dim] = kiln_add(cx, kiln_mul(cx, kiln_stmt_var(cx, s, b->dim), kiln_int(cx, b->part)),
                            values[b->dim]);
  s->body = kiln_expr_substitute(cx, y->body, n, vars, values);
  if (b->is_ragged)
    s->body = kiln_select(cx, kiln_binary(cx, KILN_EXPR_LT, values[b->dim], y->dims[b->dim].extent),
                          s->body, kiln_float(cx, y->body->dtype, 0));
  s->combiner = KILN_COMBINE_SUM;
  s->origin = y->origin;
  return s;
}

static void split(kiln_ctx *cx, kiln_program *p, kiln_stmt *y, const blocks *b) {
  const kiln_stmt *s = sum_blocks(cx, p, y, b);
  const kiln_expr *index[KILN_MAX_RANK];
  y->n_reduce = b->dim - y->n_space + 1;
  y->dims[b->dim].extent = kiln_int(cx, b->n_parts);
  for (int d = 0; d <= b->dim; d++) index[d] = kiln_stmt_var(cx, y, d);
  y->body = kiln_tensor_load(cx, p->tensors.data[s->out], index);
}

static int split_sums(kiln_ctx *cx, kiln_program *p, bool only_products) {
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  const int n = p->stmts.n;
  kiln_stmt **order = KILN_NEW_ARRAY(&cx->scratch, kiln_stmt *, 2 * n);
  int n_all = 0, n_applied = 0;
  for (int i = 0; i < n; i++) { // statements are appended, so visit the first n
    kiln_stmt *s = p->stmts.data[i];
    if (is_long_sum(cx, s, only_products)) {
      if (!only_products) find_axes(cx, p, s);
      const blocks b = find_blocks(s, !only_products && order_axes(cx, s) ? AXES_BLOCK : BLOCK);
      if (b.dim < KILN_MAX_RANK) {
        split(cx, p, s, &b);
        order[n_all++] = p->stmts.data[n + n_applied++];
      }
    }
    order[n_all++] = s;
  }
  p->stmts.n = 0;
  for (int i = 0; i < n_all; i++) KILN_VEC_PUSH(&cx->perm, &p->stmts, order[i]);
  kiln_stmts_renumber(p);
  kiln_arena_rewind(&cx->scratch, mark);
  return n_applied;
}

int kiln_rule_blocks(kiln_ctx *cx, kiln_program *p) { return split_sums(cx, p, false); }
int kiln_rule_dots(kiln_ctx *cx, kiln_program *p) { return split_sums(cx, p, true); }
