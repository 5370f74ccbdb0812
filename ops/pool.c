// MaxPool (with Indices), AveragePool and LpPool over windows of any rank. source: ONNX MaxPool-1,
// 8, 10, 11, 12, 22; AveragePool-1, 7, 10, 11, 19, 22; LpPool-2, 11, 18, 22
#include "fission/bytes.h"

// A window at work in a statement with dims (n, c, o... | k...).
typedef struct pool {
  kiln_lower *lw;
  const kiln_tensor *x;
  kiln_conv_window w;
} pool;

static kiln_stmt *pool_stmt(const pool *p, const char *name, kiln_dtype t) {
  kiln_ctx *cx = p->lw->cx;
  const kiln_expr *extents[2 * KILN_MAX_RANK] = {p->x->shape[0], p->x->shape[1]};
  for (int i = 0; i < p->w.n; i++) {
    extents[2 + i] = p->w.out[i];
    extents[2 + p->w.n + i] = kiln_int(cx, p->w.kernel[i]);
  }
  return kiln_lower_stmt(p->lw, name, t, 2 + p->w.n, p->w.n, extents);
}

// Whether a window of axis |i| may end behind the input.
static bool may_pass_end(const pool *p, int i) {
  kiln_ctx *cx = p->lw->cx;
  const kiln_conv_window *w = &p->w;
  const kiln_expr *last =
      kiln_mul(cx, kiln_sub(cx, w->out[i], kiln_int(cx, 1)), kiln_int(cx, w->stride[i]));
  last = kiln_add(cx, last, kiln_int(cx, (w->kernel[i] - 1) * w->dilation[i]));
  const kiln_expr *input = kiln_add(cx, w->in[i], w->begin[i]);
  int64_t past = 0;
  const kiln_expr *rest = kiln_lower_tidy(cx, kiln_sub(cx, last, input));
  if (kiln_expr_is_int(rest, &past)) return past >= 0;
  int64_t ceil_mode = 0;
  const bool floors = kiln_lower_int(p->lw, "ceil_mode", 0, &ceil_mode) == KILN_OK && !ceil_mode;
  return !floors || !kiln_expr_is(w->end[i], 0); // floor: the last window fits the padded input
}

// The place in x of the window's element, and (NULL for always) when it is inside.
static const kiln_expr *place(const pool *p, const kiln_stmt *s, const kiln_expr **at) {
  kiln_ctx *cx = p->lw->cx;
  const kiln_conv_window *w = &p->w;
  const kiln_expr *inside = NULL;
  at[0] = kiln_stmt_var(cx, s, 0);
  at[1] = kiln_stmt_var(cx, s, 1);
  for (int i = 0; i < w->n; i++) {
    const kiln_expr *start = kiln_mul(cx, kiln_stmt_var(cx, s, 2 + i), kiln_int(cx, w->stride[i]));
    const kiln_expr *tap =
        kiln_mul(cx, kiln_stmt_var(cx, s, 2 + w->n + i), kiln_int(cx, w->dilation[i]));
    const kiln_expr *h = kiln_sub(cx, kiln_add(cx, start, tap), w->begin[i]);
    if (!kiln_expr_is(w->begin[i], 0))
      inside = kiln_both(cx, inside, kiln_compare(cx, KILN_EXPR_GE, h, kiln_int(cx, 0)));
    if (may_pass_end(p, i))
      inside = kiln_both(cx, inside, kiln_compare(cx, KILN_EXPR_LT, h, w->in[i]));
    at[2 + i] = h;
  }
  return inside;
}

static void reduce(const pool *p, kiln_stmt *s, kiln_combiner combiner, const kiln_expr *inside,
                   const kiln_expr *value) {
  kiln_ctx *cx = p->lw->cx;
  const kiln_expr *otherwise = kiln_combiner_identity(cx, combiner, value->dtype);
  s->body = inside ? kiln_select(cx, inside, value, otherwise) : value;
  s->combiner = combiner;
}

static kiln_status read_pool(kiln_lower *lw, pool *out) {
  KILN_TRY(kiln_lower_want_inputs(lw, 1, 1));
  *out = (pool){.lw = lw, .x = lw->inputs[0]};
  return kiln_conv_window_read(lw, out->x, NULL, &out->w);
}

// --- MaxPool ---

// Row-major place |flat| in a tensor of x's shape, as the column-major place of the spatial axes.
static const kiln_expr *column_major(const pool *p, const kiln_expr *flat) {
  kiln_ctx *cx = p->lw->cx;
  const kiln_expr *plane = kiln_multiply_all(cx, p->w.n, p->w.in),
                  *rest = kiln_mod(cx, flat, plane);
  const kiln_expr *at[KILN_MAX_RANK], *column = kiln_int(cx, 0);
  for (int i = p->w.n - 1; i >= 0; i--) {
    at[i] = kiln_mod(cx, rest, p->w.in[i]);
    rest = kiln_div(cx, rest, p->w.in[i]);
  }
  for (int i = p->w.n - 1; i >= 0; i--)
    column = kiln_add(cx, kiln_mul(cx, column, p->w.in[i]), at[i]);
  return kiln_add(cx, kiln_mul(cx, kiln_div(cx, flat, plane), plane), column);
}

// The least row-major place in the window whose element is the maximum (or NaN).
static kiln_status max_indices(const pool *p, const kiln_tensor *top, kiln_tensor **out) {
  kiln_ctx *cx = p->lw->cx;
  kiln_stmt *s = pool_stmt(p, "pool_indices", KILN_I64);
  const kiln_expr *at[KILN_MAX_RANK], *o[KILN_MAX_RANK], *flat = kiln_int(cx, 0);
  const kiln_expr *inside = place(p, s, at);
  kiln_stmt_vars(cx, s, 0, p->x->rank, o);
  for (int i = 0; i < p->x->rank; i++)
    flat = kiln_add(cx, kiln_mul(cx, flat, p->x->shape[i]), at[i]);
  const kiln_expr *x = kiln_tensor_load(cx, p->x, at);
  const kiln_expr *hit = kiln_compare(cx, KILN_EXPR_EQ, x, kiln_tensor_load(cx, top, o));
  if (kiln_dtype_is_float(p->x->dtype))
    hit = kiln_binary(cx, KILN_EXPR_OR, hit, kiln_unary(cx, KILN_EXPR_ISNAN, x));
  const kiln_expr *never = kiln_combiner_identity(cx, KILN_COMBINE_MIN, KILN_I64);
  reduce(p, s, KILN_COMBINE_MIN, inside, kiln_select(cx, hit, flat, never));
  *out = kiln_lower_tensor(p->lw, s);
  int64_t storage_order = 0;
  KILN_TRY(kiln_lower_int(p->lw, "storage_order", 0, &storage_order));
  if (storage_order == 0) return KILN_OK;
  kiln_stmt *c = kiln_lower_like(p->lw, "pool_columns", *out, KILN_I64, o);
  c->body = column_major(p, kiln_tensor_load(cx, *out, o));
  *out = kiln_lower_tensor(p->lw, c);
  return KILN_OK;
}

static kiln_tensor *max_of_windows(const pool *p) {
  const kiln_expr *at[KILN_MAX_RANK];
  kiln_stmt *s = pool_stmt(p, "max_pool", p->x->dtype);
  const kiln_expr *inside = place(p, s, at);
  reduce(p, s, KILN_COMBINE_MAX, inside, kiln_tensor_load(p->lw->cx, p->x, at));
  return kiln_lower_tensor(p->lw, s);
}

// Whether the maximum along one axis after the other takes less than half of the comparisons.
static bool is_separable(const pool *p) {
  int64_t together = 1, apart = 0;
  for (int i = 0; i < p->w.n; i++) {
    if (p->w.stride[i] != 1) return false;
    if (__builtin_mul_overflow(together, p->w.kernel[i], &together)) together = INT64_MAX;
    apart += p->w.kernel[i];
  }
  return apart < together / 2;
}

static kiln_tensor *max_by_axes(const pool *p) {
  pool one = *p;
  kiln_tensor *y = NULL;
  for (int axis = 0; axis < p->w.n; axis++) {
    for (int i = 0; i < p->w.n; i++) {
      if (i == axis) continue;
      one.w.in[i] = one.w.out[i] = one.x->shape[2 + i];
      one.w.begin[i] = one.w.end[i] = kiln_int(p->lw->cx, 0);
      one.w.kernel[i] = one.w.dilation[i] = 1;
    }
    one.w.in[axis] = p->w.in[axis];
    one.w.out[axis] = p->w.out[axis];
    one.w.begin[axis] = p->w.begin[axis];
    one.w.end[axis] = p->w.end[axis];
    one.w.kernel[axis] = p->w.kernel[axis];
    one.w.dilation[axis] = p->w.dilation[axis];
    one.x = y = max_of_windows(&one);
  }
  return y;
}

// Whether every window has an element of x.
static bool meets_input(const pool *p) {
  for (int i = 0; i < p->w.n; i++) {
    int64_t begin = 0, end = 0;
    if (!kiln_expr_is_int(p->w.begin[i], &begin) || !kiln_expr_is_int(p->w.end[i], &end) ||
        begin >= p->w.kernel[i] || end >= p->w.kernel[i] ||
        (p->w.dilation[i] != 1 && begin + end > 0))
      return false;
  }
  return true;
}

// The greatest of dequantised elements is what the greatest code stands for.
static kiln_status lower_max_pool(kiln_lower *lw) {
  pool p;
  KILN_TRY(read_pool(lw, &p));
  const kiln_quantised *q = kiln_lower_quantised(lw, p.x);
  const bool of_codes =
      lw->n_outputs == 1 && kiln_quantised_keeps_order(lw, p.x) && meets_input(&p);
  if (of_codes) p.x = q->codes;
  kiln_tensor *y = is_separable(&p) ? max_by_axes(&p) : max_of_windows(&p);
  if (of_codes) {
    const kiln_quantised from = {y, q->scale, q->zero, {0}};
    return kiln_lower_dequantised(lw, &from, KILN_F32, &lw->outputs[0]);
  }
  lw->outputs[0] = y;
  if (lw->n_outputs > 1) return max_indices(&p, lw->outputs[0], &lw->outputs[1]);
  return KILN_OK;
}

// --- AveragePool ---

// How many taps of axis |i| count: those in [0, in), or in the padded axis when pads count.
static const kiln_expr *taps_inside(const pool *p, const kiln_stmt *s, int i, bool pads_count) {
  kiln_ctx *cx = p->lw->cx;
  const kiln_conv_window *w = &p->w;
  const kiln_expr *all = kiln_int(cx, w->kernel[i]), *one = kiln_int(cx, 1);
  const kiln_expr *dilation = kiln_int(cx, w->dilation[i]), *zero = kiln_int(cx, 0);
  const bool starts_inside = pads_count || kiln_expr_is(w->begin[i], 0);
  if (starts_inside && !may_pass_end(p, i)) return all;
  const kiln_expr *start = kiln_mul(cx, kiln_stmt_var(cx, s, 2 + i), kiln_int(cx, w->stride[i]));
  start = kiln_sub(cx, start, w->begin[i]);
  const kiln_expr *end = pads_count ? kiln_add(cx, w->in[i], w->end[i]) : w->in[i];
  const kiln_expr *room = kiln_sub(cx, kiln_sub(cx, end, one), start);
  const kiln_expr *until = kiln_least(cx, all, kiln_add(cx, kiln_div(cx, room, dilation), one));
  if (starts_inside) return until;
  const kiln_expr *before = kiln_ceil_div(cx, kiln_sub(cx, zero, start), dilation);
  return kiln_sub(cx, until, kiln_most(cx, before, zero));
}

static kiln_status lower_average_pool(kiln_lower *lw) {
  kiln_ctx *cx = lw->cx;
  pool p;
  KILN_TRY(read_pool(lw, &p));
  KILN_TRY(kiln_lower_want_dtype(lw, 0, kiln_dtype_is_float, "a float"));
  int64_t pads_count = 0;
  KILN_TRY(kiln_lower_int(lw, "count_include_pad", 0, &pads_count));
  const kiln_dtype sum = kiln_accumulator(p.x->dtype);
  const kiln_expr *at[KILN_MAX_RANK];
  kiln_stmt *s = pool_stmt(&p, "pool_sum", sum);
  const kiln_expr *inside = place(&p, s, at);
  reduce(&p, s, KILN_COMBINE_SUM, inside, kiln_cast(cx, sum, kiln_tensor_load(cx, p.x, at)));
  const kiln_tensor *total = kiln_lower_tensor(lw, s);
  kiln_stmt *mean = kiln_lower_like(lw, "average_pool", total, p.x->dtype, at);
  const kiln_expr *count = kiln_int(cx, 1);
  for (int i = 0; i < p.w.n; i++)
    count = kiln_mul(cx, count, taps_inside(&p, mean, i, pads_count != 0));
  const kiln_expr *y = kiln_div(cx, kiln_tensor_load(cx, total, at), kiln_cast(cx, sum, count));
  mean->body = kiln_cast(cx, p.x->dtype, y);
  lw->outputs[0] = kiln_lower_tensor(lw, mean);
  return KILN_OK;
}

// --- LpPool ---

static kiln_status read_p(kiln_lower *lw, double *out) {
  const kiln_attr *a = kiln_lower_attr(lw, "p");
  if (a && a->kind == KILN_ATTR_FLOAT) return kiln_lower_float(lw, "p", 2, out); // LpPool-1
  int64_t p = 2;
  KILN_TRY(kiln_lower_int(lw, "p", 2, &p));
  *out = (double)p;
  return KILN_OK;
}

static kiln_status lower_lp_pool(kiln_lower *lw) {
  kiln_ctx *cx = lw->cx;
  pool p;
  double power = 2;
  KILN_TRY(read_pool(lw, &p));
  KILN_TRY(kiln_lower_want_dtype(lw, 0, kiln_dtype_is_float, "a float"));
  KILN_TRY(read_p(lw, &power));
  const kiln_dtype sum = kiln_accumulator(p.x->dtype);
  const kiln_expr *at[KILN_MAX_RANK];
  kiln_stmt *s = pool_stmt(&p, "pool_sum", sum);
  const kiln_expr *inside = place(&p, s, at);
  const kiln_expr *x = kiln_cast(cx, sum, kiln_tensor_load(cx, p.x, at));
  const kiln_expr *e = kiln_float(cx, sum, power);
  const kiln_expr *term = power == 2 ? kiln_mul(cx, x, x)
                          : power == 1
                              ? kiln_unary(cx, KILN_EXPR_ABS, x)
                              : kiln_binary(cx, KILN_EXPR_POW, kiln_unary(cx, KILN_EXPR_ABS, x), e);
  reduce(&p, s, KILN_COMBINE_SUM, inside, term);
  const kiln_tensor *total = kiln_lower_tensor(lw, s);
  kiln_stmt *root = kiln_lower_like(lw, "lp_pool", total, p.x->dtype, at);
  const kiln_expr *y = kiln_tensor_load(cx, total, at);
  if (power == 2) y = kiln_unary(cx, KILN_EXPR_SQRT, y);
  else if (power != 1) y = kiln_binary(cx, KILN_EXPR_POW, y, kiln_float(cx, sum, 1 / power));
  root->body = kiln_cast(cx, p.x->dtype, y);
  lw->outputs[0] = kiln_lower_tensor(lw, root);
  return KILN_OK;
}

const kiln_op kiln_op_pool[] = {
    {"", "MaxPool", 1, 0, lower_max_pool, NULL, "ops/pool.c"},
    {"", "AveragePool", 1, 0, lower_average_pool, NULL, "ops/pool.c"},
    {"", "LpPool", 1, 0, lower_lp_pool, NULL, "ops/pool.c"},
    {0},
};
