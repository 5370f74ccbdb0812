// TopK. Few of many elements are found in rounds, each the first among those behind the last one found. Else by counting:
// the rank of an element is the number of those that come before it, and output k sums the one element of rank k, which
// is exact, but the work is quadratic in the axis.
// source: ONNX TopK-1, 10, 11, 24
#include "fission/terms.h"

enum { MAX_ROUNDS = 32 };

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

// --- in rounds ---

typedef struct found {
  const kiln_tensor *value, *place; // x without the axis; place is of i64
} found;

// A statement over the shape of x without the axis, reduced over the axis; |at|: the element that it looks at.
static kiln_stmt *over_rest(const top *p, const char *name, kiln_dtype t, const kiln_expr **at) {
  const kiln_expr *extents[KILN_MAX_RANK];
  int n = 0;
  for (int a = 0; a < p->x->rank; a++)
    if (a != p->axis) extents[n++] = p->x->shape[a];
  extents[n] = p->x->shape[p->axis];
  kiln_stmt *s = kiln_lower_stmt(p->lw, name, t, n, 1, extents);
  for (int a = 0, d = 0; a < p->x->rank; a++)
    at[a] = kiln_stmt_var(p->lw->cx, s, a == p->axis ? n : d++);
  return s;
}

// The element of a tensor without the axis that belongs to x's at |at|.
static const kiln_expr *rest_of(const top *p, const kiln_tensor *t, const kiln_expr *const *at) {
  const kiln_expr *index[KILN_MAX_RANK];
  int n = 0;
  for (int a = 0; a < p->x->rank; a++)
    if (a != p->axis) index[n++] = at[a];
  return kiln_tensor_load(p->lw->cx, t, index);
}

// Whether the element at |at| comes behind |last|; NULL: all do.
static const kiln_expr *is_behind(const top *p, const found *last, const kiln_expr *const *at) {
  kiln_ctx *cx = p->lw->cx;
  if (!last) return NULL;
  const kiln_expr *x = kiln_tensor_load(cx, p->x, at), *value = rest_of(p, last->value, at);
  const kiln_expr *tie =
      kiln_both(cx, kiln_compare(cx, KILN_EXPR_EQ, x, value),
                kiln_compare(cx, KILN_EXPR_GT, at[p->axis], rest_of(p, last->place, at)));
  return kiln_binary(cx, KILN_EXPR_OR,
                     kiln_compare(cx, p->largest ? KILN_EXPR_LT : KILN_EXPR_GT, x, value), tie);
}

static found find_next(const top *p, const found *last) {
  kiln_ctx *cx = p->lw->cx;
  const kiln_expr *at[KILN_MAX_RANK];
  const kiln_dtype t = p->x->dtype;
  found f;
  kiln_stmt *s = over_rest(p, "best", t, at);
  s->combiner = p->largest ? KILN_COMBINE_MAX : KILN_COMBINE_MIN;
  const kiln_expr *behind = is_behind(p, last, at), *x = kiln_tensor_load(cx, p->x, at);
  s->body = behind ? kiln_select(cx, behind, x, kiln_combiner_identity(cx, s->combiner, t)) : x;
  f.value = kiln_lower_tensor(p->lw, s);
  s = over_rest(p, "place", KILN_I64, at);
  s->combiner = KILN_COMBINE_MIN;
  const kiln_expr *is_best =
      kiln_compare(cx, KILN_EXPR_EQ, kiln_tensor_load(cx, p->x, at), rest_of(p, f.value, at));
  s->body = kiln_select(cx, kiln_both(cx, is_best, is_behind(p, last, at)), at[p->axis],
                        kiln_sub(cx, p->x->shape[p->axis], kiln_int(cx, 1)));
  f.place = kiln_lower_tensor(p->lw, s);
  return f;
}

static kiln_tensor *gather_rounds(const top *p, int n, const found *rounds, bool places) {
  kiln_ctx *cx = p->lw->cx;
  const kiln_expr *extents[KILN_MAX_RANK], *at[KILN_MAX_RANK];
  for (int a = 0; a < p->x->rank; a++) extents[a] = a == p->axis ? p->k : p->x->shape[a];
  kiln_stmt *s = kiln_lower_stmt(p->lw, places ? "indices" : NULL, places ? KILN_I64 : p->x->dtype,
                                 p->x->rank, 0, extents);
  kiln_stmt_vars(cx, s, 0, p->x->rank, at);
  for (int i = n - 1; i >= 0; i--) {
    const kiln_expr *one = rest_of(p, places ? rounds[i].place : rounds[i].value, at);
    s->body = i == n - 1
                  ? one
                  : kiln_select(cx, kiln_compare(cx, KILN_EXPR_LE, at[p->axis], kiln_int(cx, i)),
                                one, s->body);
  }
  return kiln_lower_tensor(p->lw, s);
}

// Whether rounds look at less than counting does.
static bool has_few_rounds(const top *p, int *out_n) {
  int64_t k = 0, extent = 0;
  if (!kiln_expr_is_int(p->k, &k) || !kiln_expr_is_int(p->x->shape[p->axis], &extent)) return false;
  *out_n = (int)(k <= MAX_ROUNDS ? k : 0);
  return *out_n > 0 && 4 * k < extent;
}

static void lower_rounds(const top *p, int n) {
  found rounds[MAX_ROUNDS];
  for (int i = 0; i < n; i++) rounds[i] = find_next(p, i ? &rounds[i - 1] : NULL);
  p->lw->outputs[0] = gather_rounds(p, n, rounds, false);
  if (p->lw->n_outputs > 1) p->lw->outputs[1] = gather_rounds(p, n, rounds, true);
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
  int n_rounds = 0;
  if (has_few_rounds(&p, &n_rounds)) {
    lower_rounds(&p, n_rounds);
    return KILN_OK;
  }
  count_ranks(&p);
  lw->outputs[0] = choose(&p, false);
  if (lw->n_outputs > 1) lw->outputs[1] = choose(&p, true);
  return KILN_OK;
}

const kiln_op kiln_op_topk[] = {
    {"", "TopK", 1, 0, lower_topk, NULL, "ops/topk.c"},
    {0},
};
