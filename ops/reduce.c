// The reductions: one table of combiner, what is done to each element before and to the result
// after. Half types are summed in f32. source: ONNX Reduce*-1, 11, 12, 13, 18, 20
#include "fission/terms.h"

#include <string.h>

typedef enum step { STEP_NONE, STEP_ABS, STEP_SQUARE, STEP_SQRT, STEP_LOG, STEP_MEAN } step;

typedef struct row {
  const char *name;
  int axes_input_since; // opset where axes became an input
  kiln_combiner combiner;
  step before, after;
} row;

static const row rows[] = {
    {"ReduceSum", 13, KILN_COMBINE_SUM, STEP_NONE, STEP_NONE},
    {"ReduceMean", 18, KILN_COMBINE_SUM, STEP_NONE, STEP_MEAN},
    {"ReduceProd", 18, KILN_COMBINE_PROD, STEP_NONE, STEP_NONE},
    {"ReduceMax", 18, KILN_COMBINE_MAX, STEP_NONE, STEP_NONE},
    {"ReduceMin", 18, KILN_COMBINE_MIN, STEP_NONE, STEP_NONE},
    {"ReduceL1", 18, KILN_COMBINE_SUM, STEP_ABS, STEP_NONE},
    {"ReduceL2", 18, KILN_COMBINE_SUM, STEP_SQUARE, STEP_SQRT},
    {"ReduceSumSquare", 18, KILN_COMBINE_SUM, STEP_SQUARE, STEP_NONE},
    {"ReduceLogSum", 18, KILN_COMBINE_SUM, STEP_NONE, STEP_LOG},
    {"ReduceLogSumExp", 18, KILN_COMBINE_SUM, STEP_NONE, STEP_LOG},
};

typedef struct reduction {
  kiln_lower *lw;
  kiln_tensor *x;
  kiln_dtype sum; // what is accumulated in
  bool reduced[KILN_MAX_RANK], keep;
  int n_reduced, rank;                   // rank of the result
  const kiln_expr *shape[KILN_MAX_RANK]; // of the result
  const kiln_expr *count;                // elements reduced into one
} reduction;

// Which axes; absent or empty is all, unless noop_with_empty_axes.
static kiln_status find_axes(reduction *r, const row *w) {
  kiln_lower *lw = r->lw;
  int n = -1, axes[KILN_MAX_RANK];
  int64_t keep = 1, noop = 0;
  const int input = lw->node->opset >= w->axes_input_since ? 1 : -1;
  KILN_TRY(kiln_lower_axes(lw, "axes", input, r->x->rank, &n, axes));
  KILN_TRY(kiln_lower_int(lw, "keepdims", 1, &keep));
  KILN_TRY(kiln_lower_int(lw, "noop_with_empty_axes", 0, &noop));
  r->keep = keep != 0;
  r->count = kiln_int(lw->cx, 1);
  for (int a = 0; a < r->x->rank; a++) r->reduced[a] = n <= 0 && !noop;
  for (int i = 0; i < n; i++) r->reduced[axes[i]] = true;
  for (int a = 0; a < r->x->rank; a++) {
    if (r->reduced[a]) r->count = kiln_mul(lw->cx, r->count, r->x->shape[a]);
    if (r->reduced[a]) r->n_reduced++;
    if (r->reduced[a] && r->keep) r->shape[r->rank++] = kiln_int(lw->cx, 1);
    if (!r->reduced[a]) r->shape[r->rank++] = r->x->shape[a];
  }
  return KILN_OK;
}

static kiln_stmt *result_stmt(const reduction *r, const char *name, kiln_dtype t, bool reduces) {
  const kiln_expr *extents[2 * KILN_MAX_RANK];
  int n = 0;
  for (int a = 0; a < r->rank; a++) extents[n++] = r->shape[a];
  for (int a = 0; a < r->x->rank && reduces; a++)
    if (r->reduced[a]) extents[n++] = r->x->shape[a];
  return kiln_lower_stmt(r->lw, name, t, r->rank, n - r->rank, extents);
}

// The element of x that the dims of a reducing statement name.
static const kiln_expr *element(const reduction *r, const kiln_stmt *s) {
  const kiln_expr *index[KILN_MAX_RANK];
  int space = 0, reduce = r->rank;
  for (int a = 0; a < r->x->rank; a++) {
    index[a] = kiln_stmt_var(r->lw->cx, s, r->reduced[a] ? reduce++ : space++);
    if (r->reduced[a] && r->keep) space++;
  }
  return kiln_tensor_load(r->lw->cx, r->x, index);
}

// The element of an earlier result at the same place.
static const kiln_expr *result(const reduction *r, const kiln_tensor *t, const kiln_stmt *s) {
  const kiln_expr *index[KILN_MAX_RANK];
  kiln_stmt_vars(r->lw->cx, s, 0, r->rank, index);
  return kiln_tensor_load(r->lw->cx, t, index);
}

// Roots and logarithms of integers are taken in f64.
static const kiln_expr *apply(const reduction *r, step k, const kiln_expr *e) {
  kiln_ctx *cx = r->lw->cx;
  const kiln_dtype t = e->dtype;
  const bool is_float = kiln_dtype_is_float(t);
  switch (k) {
  case STEP_NONE: return e;
  case STEP_ABS: return kiln_unary(cx, KILN_EXPR_ABS, e);
  case STEP_SQUARE: return kiln_mul(cx, e, e);
  case STEP_SQRT:
  case STEP_LOG:
    return kiln_cast(cx, t,
                     kiln_unary(cx, k == STEP_SQRT ? KILN_EXPR_SQRT : KILN_EXPR_LOG,
                                is_float ? e : kiln_cast(cx, KILN_F64, e)));
  case STEP_MEAN:
    return kiln_binary(cx, is_float ? KILN_EXPR_DIV : KILN_EXPR_TDIV, e,
                       kiln_cast(cx, t, r->count));
  }
  return e;
}

static kiln_combiner combiner_of(const reduction *r, kiln_combiner c) {
  if (r->n_reduced == 0) return KILN_COMBINE_NONE;
  if (r->x->dtype != KILN_BOOL) return c;
  return c == KILN_COMBINE_MIN || c == KILN_COMBINE_PROD ? KILN_COMBINE_AND : KILN_COMBINE_OR;
}

static void reduce(reduction *r, const row *w) {
  kiln_ctx *cx = r->lw->cx;
  const kiln_dtype t = r->x->dtype;
  const bool selects = w->combiner == KILN_COMBINE_MAX || w->combiner == KILN_COMBINE_MIN;
  if (selects) r->sum = t;
  kiln_stmt *s = result_stmt(r, NULL, r->sum, true);
  s->combiner = combiner_of(r, w->combiner);
  s->body = apply(r, w->before, kiln_cast(cx, r->sum, element(r, s)));
  if (w->after != STEP_NONE || r->sum != t) {
    const kiln_tensor *total = kiln_lower_tensor(r->lw, s);
    s = result_stmt(r, NULL, t, false);
    s->body = kiln_cast(cx, t, apply(r, w->after, result(r, total, s)));
  }
  r->lw->outputs[0] = kiln_lower_tensor(r->lw, s);
}

// The maximum where it is finite, else 0, so that inf - inf never arises.
static const kiln_expr *shift(const reduction *r, const kiln_tensor *top, const kiln_stmt *s) {
  kiln_ctx *cx = r->lw->cx;
  const kiln_expr *m = kiln_cast(cx, r->sum, result(r, top, s));
  return kiln_select(cx, kiln_unary(cx, KILN_EXPR_ISINF, m), kiln_float(cx, r->sum, 0), m);
}

// log(sum(exp(x))) = m + log(sum(exp(x - m))), which never overflows.
static void reduce_log_sum_exp(reduction *r) {
  kiln_ctx *cx = r->lw->cx;
  const kiln_dtype t = r->x->dtype;
  kiln_stmt *top = result_stmt(r, "top", t, true);
  top->combiner = combiner_of(r, KILN_COMBINE_MAX);
  top->body = element(r, top);
  const kiln_tensor *m = kiln_lower_tensor(r->lw, top);
  kiln_stmt *sum = result_stmt(r, "sum", r->sum, true);
  sum->combiner = combiner_of(r, KILN_COMBINE_SUM);
  sum->body = kiln_unary(cx, KILN_EXPR_EXP,
                         kiln_sub(cx, kiln_cast(cx, r->sum, element(r, sum)), shift(r, m, sum)));
  const kiln_tensor *total = kiln_lower_tensor(r->lw, sum);
  kiln_stmt *s = result_stmt(r, NULL, t, false);
  s->body = kiln_cast(
      cx, t, kiln_add(cx, kiln_unary(cx, KILN_EXPR_LOG, result(r, total, s)), shift(r, m, s)));
  r->lw->outputs[0] = kiln_lower_tensor(r->lw, s);
}

static kiln_status lower_reduce(kiln_lower *lw) {
  const char *name = kiln_symbol_text(lw->cx, lw->node->op);
  const row *w = rows;
  while (strcmp(w->name, name) != 0) w++; // there is a row for each name of the table below
  KILN_TRY(kiln_lower_want_inputs(lw, 1, 2));
  reduction r = {.lw = lw, .x = lw->inputs[0]};
  r.sum = kiln_accumulator(r.x->dtype);
  KILN_TRY(find_axes(&r, w));
  const bool plain = w->before == STEP_NONE && w->after == STEP_NONE;
  if (r.n_reduced == 0 && (plain || w->after == STEP_MEAN)) {
    lw->outputs[0] = r.x;
  } else if (strcmp(name, "ReduceLogSumExp") == 0 && kiln_dtype_is_float(r.x->dtype)) {
    reduce_log_sum_exp(&r);
  } else if (r.x->dtype == KILN_BOOL && !plain) {
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place, "input 0: must be numbers, got bool");
  } else if (strcmp(name, "ReduceLogSumExp") == 0) {
    return KILN_FAIL(lw->cx->diag, KILN_UNSUPPORTED, lw->place, "input 0: must be floats, got %s",
                     kiln_dtype_text(r.x->dtype));
  } else {
    reduce(&r, w);
  }
  return KILN_OK;
}

const kiln_op kiln_op_reduce[] = {
    {"", "ReduceSum", 1, 0, lower_reduce, NULL, "ops/reduce.c"},
    {"", "ReduceMean", 1, 0, lower_reduce, NULL, "ops/reduce.c"},
    {"", "ReduceProd", 1, 0, lower_reduce, NULL, "ops/reduce.c"},
    {"", "ReduceMax", 1, 0, lower_reduce, NULL, "ops/reduce.c"},
    {"", "ReduceMin", 1, 0, lower_reduce, NULL, "ops/reduce.c"},
    {"", "ReduceL1", 1, 0, lower_reduce, NULL, "ops/reduce.c"},
    {"", "ReduceL2", 1, 0, lower_reduce, NULL, "ops/reduce.c"},
    {"", "ReduceSumSquare", 1, 0, lower_reduce, NULL, "ops/reduce.c"},
    {"", "ReduceLogSum", 1, 0, lower_reduce, NULL, "ops/reduce.c"},
    {"", "ReduceLogSumExp", 1, 0, lower_reduce, NULL, "ops/reduce.c"},
    {0},
};
