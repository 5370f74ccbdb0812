// NonZero and Compress: which elements there are is found by the run; how many there can be is
// known when compiling.
// source: ONNX NonZero-9, 13; Compress-9, 11
#include "fission/data_dependent.h"
#include "fission/terms.h"

// 1 where an element is not 0, else 0: i64, of one axis.
static kiln_tensor *flags_of(kiln_lower *lw, kiln_tensor *x) {
  kiln_ctx *cx = lw->cx;
  const kiln_expr *n =
      kiln_lower_tidy(cx, kiln_multiply_all(cx, x->rank, (const kiln_expr *const *)x->shape));
  const kiln_tensor *flat = kiln_lower_reshape(lw, x, 1, &n);
  kiln_stmt *s = kiln_lower_stmt(lw, "flags", KILN_I64, 1, 0, &n);
  const kiln_expr *i = kiln_stmt_var(cx, s, 0), *e = kiln_tensor_load(cx, flat, &i);
  const kiln_expr *is =
      x->dtype == KILN_BOOL ? e : kiln_compare(cx, KILN_EXPR_NE, e, kiln_number(cx, x->dtype, 0));
  s->body = kiln_select(cx, is, kiln_int(cx, 1), kiln_int(cx, 0));
  return kiln_lower_tensor(lw, s);
}

// Whether all elements are one number, as those of ConstantOfShape: then it says how many are not
// 0.
static bool is_fill(const kiln_lower *lw, const kiln_tensor *x, bool *out_zero) {
  const kiln_stmt *s = x->def >= 0 ? lw->prog->stmts.data[x->def] : NULL;
  if (!s || s->guard || s->init || s->combiner != KILN_COMBINE_NONE) return false;
  *out_zero = kiln_expr_is_zero(s->body);
  return s->body->kind == KILN_EXPR_INT || s->body->kind == KILN_EXPR_FLOAT;
}

// The number of the element of |x| that column |k| is about.
static kiln_status find_rows(kiln_lower *lw, kiln_tensor *x, kiln_tensor **out_rows) {
  kiln_ctx *cx = lw->cx;
  bool is_zero = false;
  if (!is_fill(lw, x, &is_zero)) return kiln_lower_rows(lw, flags_of(lw, x), out_rows);
  const kiln_expr *n = is_zero ? kiln_int(cx, 0)
                               : kiln_multiply_all(cx, x->rank, (const kiln_expr *const *)x->shape);
  n = kiln_lower_tidy(cx, n);
  kiln_stmt *s = kiln_lower_stmt(lw, "rows", KILN_I64, 1, 0, &n);
  s->body = kiln_stmt_var(cx, s, 0);
  *out_rows = kiln_lower_tensor(lw, s);
  return KILN_OK;
}

// A scalar counts as a vector of one element.
static kiln_status lower_non_zero(kiln_lower *lw) {
  kiln_ctx *cx = lw->cx;
  KILN_TRY(kiln_lower_want_inputs(lw, 1, 1));
  kiln_tensor *x = lw->inputs[0], *rows = NULL;
  const int rank = x->rank ? x->rank : 1;
  KILN_TRY(find_rows(lw, x, &rows));
  const kiln_expr *extents[] = {kiln_int(cx, rank), rows->shape[0]}, *stride = kiln_int(cx, 1);
  kiln_stmt *s = kiln_lower_stmt(lw, NULL, KILN_I64, 2, 0, extents);
  const kiln_expr *axis = kiln_stmt_var(cx, s, 0), *k = kiln_stmt_var(cx, s, 1);
  const kiln_expr *row = kiln_tensor_load(cx, rows, &k);
  s->body = x->rank ? kiln_mod(cx, row, x->shape[rank - 1]) : row;
  for (int a = rank - 2; a >= 0; a--) {
    stride = kiln_mul(cx, stride, x->shape[a + 1]);
    const kiln_expr *at = kiln_mod(cx, kiln_div(cx, row, stride), x->shape[a]);
    s->body = kiln_select(cx, kiln_compare(cx, KILN_EXPR_EQ, axis, kiln_int(cx, a)), at, s->body);
  }
  lw->outputs[0] = kiln_lower_tensor(lw, s);
  return KILN_OK;
}

static kiln_status check_condition(kiln_lower *lw, const kiln_tensor *condition,
                                   const kiln_expr *extent) {
  int64_t n = 0, most = 0;
  KILN_TRY(kiln_lower_want_rank(lw, condition, 1, 1));
  if (condition->dtype != KILN_BOOL)
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place, "condition: must be bool, got %s",
                     kiln_dtype_text(condition->dtype));
  if (condition->shape[0] == extent) return KILN_OK;
  if (!kiln_expr_is_int(condition->shape[0], &n) || !kiln_expr_is_int(extent, &most))
    return KILN_FAIL(lw->cx->diag, KILN_UNSUPPORTED, lw->place,
                     "condition: must be known to be at most as long as the axis when compiling");
  if (n <= most) return KILN_OK;
  return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                   "condition: must have at most %" PRId64 " elements, got %" PRId64, most, n);
}

static kiln_status lower_compress(kiln_lower *lw) {
  kiln_ctx *cx = lw->cx;
  int64_t given = 0;
  int axis = 0;
  KILN_TRY(kiln_lower_want_inputs(lw, 2, 2));
  kiln_tensor *x = lw->inputs[0], *rows = NULL;
  KILN_TRY(kiln_lower_int(lw, "axis", 0, &given));
  if (kiln_lower_attr(lw, "axis")) KILN_TRY(kiln_lower_axis(lw, given, x->rank, false, &axis));
  else {
    const kiln_expr *n =
        kiln_lower_tidy(cx, kiln_multiply_all(cx, x->rank, (const kiln_expr *const *)x->shape));
    x = kiln_lower_reshape(lw, x, 1, &n);
  }
  KILN_TRY(check_condition(lw, lw->inputs[1], x->shape[axis]));
  KILN_TRY(kiln_lower_rows(lw, flags_of(lw, lw->inputs[1]), &rows));
  const kiln_expr *extents[KILN_MAX_RANK], *at[KILN_MAX_RANK];
  for (int a = 0; a < x->rank; a++) extents[a] = a == axis ? rows->shape[0] : x->shape[a];
  kiln_stmt *s = kiln_lower_stmt(lw, NULL, x->dtype, x->rank, 0, extents);
  kiln_stmt_vars(cx, s, 0, x->rank, at);
  at[axis] = kiln_tensor_load(cx, rows, &at[axis]);
  kiln_lower_move(lw, s, x, at, 0);
  return KILN_OK;
}

const kiln_op kiln_op_non_zero[] = {
    {"", "NonZero", 9, 0, lower_non_zero, NULL, "ops/non_zero.c"},
    {"", "Compress", 9, 0, lower_compress, NULL, "ops/non_zero.c"},
    {0},
};
