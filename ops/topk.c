// TopK by counting: the rank of an element is the number of those that come before it, and output k
// sums the one element of rank k, which is exact. The work is quadratic in the axis.
// source: ONNX TopK-1, 10, 11, 24
#include "fission/terms.h"

typedef struct top {
  kiln_lower *lw;
  const kiln_tensor *x, *ranks;
  int axis;
  bool largest;
  const kiln_expr *k;
} top;

static kiln_status read_k(kiln_lower *lw, top *p) {
  int n = 0;
  const kiln_expr *const *values = NULL;
  int64_t k = 0, extent = 0;
  if (lw->node->opset < 10) {
    KILN_TRY(kiln_lower_int(lw, "k", -1, &k));
    p->k = kiln_int(lw->cx, k);
  } else {
    KILN_TRY(kiln_lower_want_inputs(lw, 2, 2));
    KILN_TRY(kiln_lower_shape_values(lw, 1, &n, &values));
    p->k = n == 1 ? values[0] : kiln_int(lw->cx, -1);
  }
  if (!kiln_expr_is_int(p->k, &k)) return KILN_OK;
  const bool fixed = kiln_expr_is_int(p->x->shape[p->axis], &extent);
  if (k < 0 || (fixed && k > extent))
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                     "k: must be one number in [0, %" PRId64 "], got %" PRId64,
                     fixed ? extent : INT64_MAX, k);
  return KILN_OK;
}

// A statement over the shape of x, the axis replaced by |extent|, reduced over the axis.
static kiln_stmt *over_axis(const top *p, const char *name, kiln_dtype t, const kiln_expr *extent) {
  const kiln_expr *extents[KILN_MAX_RANK + 1];
  for (int a = 0; a < p->x->rank; a++) extents[a] = a == p->axis ? extent : p->x->shape[a];
  extents[p->x->rank] = p->x->shape[p->axis];
  kiln_stmt *s = kiln_lower_stmt(p->lw, name, t, p->x->rank, 1, extents);
  s->combiner = KILN_COMBINE_SUM;
  return s;
}

// The element of |t| with the reduction variable along the axis, or the space one.
static const kiln_expr *element(const top *p, const kiln_tensor *t, const kiln_stmt *s,
                                bool reduced) {
  const kiln_expr *index[KILN_MAX_RANK];
  kiln_stmt_vars(p->lw->cx, s, 0, t->rank, index);
  if (reduced) index[p->axis] = kiln_stmt_var(p->lw->cx, s, t->rank);
  return kiln_tensor_load(p->lw->cx, t, index);
}

static void count_ranks(top *p) {
  kiln_ctx *cx = p->lw->cx;
  kiln_stmt *s = over_axis(p, "rank", KILN_I64, p->x->shape[p->axis]);
  const kiln_expr *other = element(p, p->x, s, true), *mine = element(p, p->x, s, false);
  const kiln_expr *earlier = kiln_compare(cx, KILN_EXPR_LT, kiln_stmt_var(cx, s, p->x->rank),
                                          kiln_stmt_var(cx, s, p->axis));
  const kiln_expr *tie =
      kiln_binary(cx, KILN_EXPR_AND, kiln_compare(cx, KILN_EXPR_EQ, other, mine), earlier);
  const kiln_expr *before =
      kiln_binary(cx, KILN_EXPR_OR,
                  kiln_compare(cx, p->largest ? KILN_EXPR_GT : KILN_EXPR_LT, other, mine), tie);
  s->body = kiln_select(cx, before, kiln_int(cx, 1), kiln_int(cx, 0));
  p->ranks = kiln_lower_tensor(p->lw, s);
}

// Output k: the element (or its place) whose rank is k.
static kiln_tensor *choose(const top *p, bool places) {
  kiln_ctx *cx = p->lw->cx;
  const kiln_dtype t = places ? KILN_I64 : p->x->dtype;
  kiln_stmt *s = over_axis(p, places ? "indices" : NULL, t, p->k);
  const kiln_expr *hit =
      kiln_compare(cx, KILN_EXPR_EQ, element(p, p->ranks, s, true), kiln_stmt_var(cx, s, p->axis));
  const kiln_expr *what = places ? kiln_stmt_var(cx, s, p->x->rank) : element(p, p->x, s, true);
  s->body = kiln_select(cx, hit, what, kiln_number(cx, t, 0));
  return kiln_lower_tensor(p->lw, s);
}

static kiln_status lower_topk(kiln_lower *lw) {
  KILN_TRY(kiln_lower_want_inputs(lw, 1, 2));
  KILN_TRY(kiln_lower_want_dtype(lw, 0, kiln_dtype_is_number, "numbers"));
  top p = {.lw = lw, .x = lw->inputs[0]};
  int64_t axis = -1, largest = 1;
  KILN_TRY(kiln_lower_int(lw, "axis", -1, &axis));
  KILN_TRY(kiln_lower_int(lw, "largest", 1, &largest));
  KILN_TRY(kiln_lower_axis(lw, axis, p.x->rank, false, &p.axis));
  KILN_TRY(read_k(lw, &p));
  p.largest = largest != 0;
  count_ranks(&p);
  lw->outputs[0] = choose(&p, false);
  if (lw->n_outputs > 1) lw->outputs[1] = choose(&p, true);
  return KILN_OK;
}

const kiln_op kiln_op_topk[] = {
    {"", "TopK", 1, 0, lower_topk, NULL, "ops/topk.c"},
    {0},
};
