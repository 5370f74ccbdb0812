// Det: elimination with the largest pivot of each column, unrolled over the columns, down to two
// rows.
// source: ONNX Det-11, 22
#include "fission/terms.h"

enum { MAX_ROWS = 128 };

typedef struct elimination {
  kiln_lower *lw;
  int n_batch;
  kiln_dtype t;
  const kiln_tensor *a; // (b..., n, n): what is left
  int64_t n;
  const kiln_tensor *det; // (b...): the product of the pivots so far; NULL: 1
} elimination;

// A statement over the batch and |n_more| further dims, the last |n_reduce| of them reduced.
static kiln_stmt *batch_stmt(const elimination *e, const char *name, kiln_dtype t, int n_more,
                             int n_reduce, int64_t extent, const kiln_expr **v) {
  kiln_ctx *cx = e->lw->cx;
  const kiln_expr *extents[KILN_MAX_RANK];
  for (int i = 0; i < e->n_batch; i++) extents[i] = e->a->shape[i];
  for (int i = 0; i < n_more; i++) extents[e->n_batch + i] = kiln_int(cx, extent);
  kiln_stmt *s = kiln_lower_stmt(e->lw, name, t, e->n_batch + n_more - n_reduce, n_reduce, extents);
  kiln_stmt_vars(cx, s, 0, e->n_batch + n_more, v);
  return s;
}

// A(b..., row, column) behind the batch indices in |v|.
static const kiln_expr *element(const elimination *e, const kiln_expr *const *v,
                                const kiln_expr *row, const kiln_expr *column) {
  const kiln_expr *at[KILN_MAX_RANK];
  for (int i = 0; i < e->n_batch; i++) at[i] = v[i];
  at[e->n_batch] = row;
  at[e->n_batch + 1] = column;
  return kiln_cast(e->lw->cx, e->t, kiln_tensor_load(e->lw->cx, e->a, at));
}

// The first row whose element of column 0 has the largest magnitude.
static const kiln_tensor *pivot_row(const elimination *e) {
  kiln_ctx *cx = e->lw->cx;
  const kiln_expr *v[KILN_MAX_RANK], *zero = kiln_int(cx, 0);
  kiln_stmt *top = batch_stmt(e, "pivot", e->t, 1, 1, e->n, v);
  top->body = kiln_unary(cx, KILN_EXPR_ABS, element(e, v, v[e->n_batch], zero));
  top->combiner = KILN_COMBINE_MAX;
  kiln_stmt *row = batch_stmt(e, "pivot_row", KILN_I64, 1, 1, e->n, v);
  const kiln_expr *size = kiln_unary(cx, KILN_EXPR_ABS, element(e, v, v[e->n_batch], zero));
  const kiln_expr *best = kiln_tensor_load(cx, kiln_lower_tensor(e->lw, top), v);
  row->body = kiln_select(cx, kiln_compare(cx, KILN_EXPR_EQ, size, best), v[e->n_batch],
                          kiln_int(cx, e->n - 1)); // of NaN, too
  row->combiner = KILN_COMBINE_MIN;
  return kiln_lower_tensor(e->lw, row);
}

static const kiln_expr *so_far(const elimination *e, const kiln_expr *const *v) {
  return e->det ? kiln_tensor_load(e->lw->cx, e->det, v) : kiln_float(e->lw->cx, e->t, 1);
}

// Moves the pivot's row to the top, takes it from the others, and leaves these.
static void eliminate(elimination *e) {
  kiln_ctx *cx = e->lw->cx;
  const kiln_expr *v[KILN_MAX_RANK], *zero = kiln_int(cx, 0), *one = kiln_int(cx, 1);
  const kiln_tensor *pivots = pivot_row(e);
  kiln_stmt *det = batch_stmt(e, "det", e->t, 0, 0, 0, v);
  const kiln_expr *p = kiln_tensor_load(cx, pivots, v);
  const kiln_expr *pivot = element(e, v, p, zero);
  const kiln_expr *stays = kiln_compare(cx, KILN_EXPR_EQ, p, zero);
  const kiln_expr *factor = kiln_select(cx, stays, pivot, kiln_unary(cx, KILN_EXPR_NEG, pivot));
  det->body = kiln_mul(cx, so_far(e, v), factor);
  kiln_stmt *rest = batch_stmt(e, "eliminated", e->t, 2, 0, e->n - 1, v);
  const kiln_expr *below = kiln_add(cx, v[e->n_batch], one);
  const kiln_expr *right = kiln_add(cx, v[e->n_batch + 1], one);
  p = kiln_tensor_load(cx, pivots, v);
  pivot = element(e, v, p, zero);
  const kiln_expr *row = kiln_select(cx, kiln_compare(cx, KILN_EXPR_EQ, below, p), zero, below);
  const kiln_expr *is_zero = kiln_compare(cx, KILN_EXPR_EQ, pivot, kiln_float(cx, e->t, 0));
  const kiln_expr *ratio = kiln_select(cx, is_zero, kiln_float(cx, e->t, 0),
                                       kiln_div(cx, element(e, v, row, zero), pivot));
  rest->body =
      kiln_sub(cx, element(e, v, row, right), kiln_mul(cx, ratio, element(e, v, p, right)));
  e->det = kiln_lower_tensor(e->lw, det);
  e->a = kiln_lower_tensor(e->lw, rest);
  e->n--;
}

static kiln_status lower_det(kiln_lower *lw) {
  kiln_ctx *cx = lw->cx;
  KILN_TRY(kiln_lower_want_inputs(lw, 1, 1));
  KILN_TRY(kiln_lower_want_dtype(lw, 0, kiln_dtype_is_float, "a float"));
  const kiln_tensor *x = lw->inputs[0];
  KILN_TRY(kiln_lower_want_rank(lw, x, 2, KILN_MAX_RANK));
  elimination e = {.lw = lw, .n_batch = x->rank - 2, .t = kiln_accumulator(x->dtype), .a = x};
  KILN_TRY(kiln_lower_extent(lw, x, x->rank - 1, &e.n));
  KILN_TRY(kiln_lower_want_extent(lw, x, x->rank - 2, kiln_int(cx, e.n)));
  if (e.n > MAX_ROWS)
    return KILN_FAIL(cx->diag, KILN_UNSUPPORTED, lw->place,
                     "matrices must have at most %d rows, got %" PRId64, MAX_ROWS, e.n);
  while (e.n > 2) eliminate(&e);
  const kiln_expr *v[KILN_MAX_RANK], *zero = kiln_int(cx, 0), *one = kiln_int(cx, 1);
  kiln_stmt *s = batch_stmt(&e, "det", x->dtype, 0, 0, 0, v);
  const kiln_expr *last =
      e.n == 0 ? kiln_float(cx, e.t, 1) : element(&e, v, zero, zero); // of no rows: 1
  if (e.n == 2)
    last = kiln_sub(cx, kiln_mul(cx, last, element(&e, v, one, one)),
                    kiln_mul(cx, element(&e, v, zero, one), element(&e, v, one, zero)));
  if (e.det) last = kiln_mul(cx, so_far(&e, v), last);
  s->body = kiln_cast(cx, x->dtype, last);
  lw->outputs[0] = kiln_lower_tensor(lw, s);
  return KILN_OK;
}

const kiln_op kiln_op_det[] = {
    {"", "Det", 11, 0, lower_det, NULL, "ops/det.c"},
    {0},
};
