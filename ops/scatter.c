// ScatterND, ScatterElements and Scatter: the scatter form of a statement, which copies the data
// and then writes the updates in order. Updates whose index only the run can tell to be out of
// range are left out, and checked. source: ONNX ScatterND-11, 13, 16, 18; ScatterElements-11, 13,
// 16, 18; Scatter-9; MaxUnpool-1, 9, 11; TensorScatter-24
#include "fission/window.h"

#include <string.h>

static kiln_status read_reduction(kiln_lower *lw, kiln_combiner *out) {
  static const struct {
    const char *name;
    kiln_combiner combiner;
  } rows[] = {{"none", KILN_COMBINE_NONE},
              {"add", KILN_COMBINE_SUM},
              {"mul", KILN_COMBINE_PROD},
              {"max", KILN_COMBINE_MAX},
              {"min", KILN_COMBINE_MIN}};
  const char *text = NULL;
  KILN_TRY(kiln_lower_string(lw, "reduction", "none", &text));
  for (size_t i = 0; i < KILN_LEN(rows); i++) {
    if (strcmp(text, rows[i].name) != 0) continue;
    *out = rows[i].combiner;
    return KILN_OK;
  }
  return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                   "reduction: must be none, add, mul, max or min, got %s", text);
}

static kiln_status want_scatter(kiln_lower *lw) {
  KILN_TRY(kiln_lower_want_inputs(lw, 3, 3));
  KILN_TRY(kiln_lower_want_dtype(lw, 1, kiln_dtype_is_index, "i32 or i64"));
  if (lw->inputs[2]->dtype == lw->inputs[0]->dtype) return KILN_OK;
  return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place, "updates: must be %s, got %s",
                   kiln_dtype_text(lw->inputs[0]->dtype), kiln_dtype_text(lw->inputs[2]->dtype));
}

// Updates of one tensor of indices for all axes, or for one (k < 0).
static kiln_status want_indices(kiln_lower *lw, const kiln_tensor *indices, int k, int axis,
                                const kiln_expr *extent) {
  kiln_ctx *cx = lw->cx;
  const kiln_expr *element = kiln_lower_element(lw, indices), *own = kiln_int(cx, k);
  const kiln_symbol last = kiln_symbol_printf(cx, "e%d", indices->rank - 1);
  if (k >= 0) element = kiln_expr_substitute(cx, element, 1, &last, &own);
  return kiln_lower_want_index(lw, indices, axis, element, NULL,
                               kiln_sub(cx, kiln_int(cx, 0), extent), extent);
}

// The index into axis |axis| that |indices| holds at |at|, counted from the end when negative; what
// lies outside is left to the guard of |s|.
static void scatter_index(kiln_lower *lw, kiln_stmt *s, const kiln_tensor *indices,
                          const kiln_expr *const *at, int axis, const kiln_expr *extent) {
  kiln_ctx *cx = lw->cx;
  const kiln_expr *zero = kiln_int(cx, 0);
  const kiln_expr *i = kiln_cast(cx, KILN_I64, kiln_tensor_load(cx, indices, at));
  const kiln_expr *below = kiln_compare(cx, KILN_EXPR_LT, i, zero);
  i = kiln_select(cx, below, kiln_add(cx, i, extent), i);
  s->index[axis] = i;
  s->guard = kiln_both(cx, s->guard, kiln_compare(cx, KILN_EXPR_GE, i, zero));
  s->guard = kiln_both(cx, s->guard, kiln_compare(cx, KILN_EXPR_LT, i, extent));
}

static kiln_status lower_scatter_elements(kiln_lower *lw) {
  kiln_ctx *cx = lw->cx;
  KILN_TRY(want_scatter(lw));
  const kiln_tensor *data = lw->inputs[0], *indices = lw->inputs[1], *updates = lw->inputs[2];
  KILN_TRY(kiln_lower_want_rank(lw, indices, data->rank, data->rank));
  KILN_TRY(kiln_lower_want_rank(lw, updates, data->rank, data->rank));
  int64_t given = 0;
  int axis = 0;
  kiln_combiner combiner = KILN_COMBINE_NONE;
  KILN_TRY(kiln_lower_int(lw, "axis", 0, &given));
  KILN_TRY(kiln_lower_axis(lw, given, data->rank, false, &axis));
  KILN_TRY(read_reduction(lw, &combiner));
  for (int i = 0; i < data->rank; i++) {
    int64_t have = 0, limit = 0;
    KILN_TRY(kiln_lower_want_extent(lw, updates, i, indices->shape[i]));
    if (i != axis && kiln_expr_is_int(indices->shape[i], &have) &&
        kiln_expr_is_int(data->shape[i], &limit) && have > limit)
      return KILN_FAIL(cx->diag, KILN_BAD_INPUT, lw->place,
                       "indices: axis %d must be at most %" PRId64 ", got %" PRId64, i, limit,
                       have);
  }
  kiln_stmt *s = kiln_lower_scatter(lw, "scatter", data, data->rank, indices->shape);
  const kiln_expr *at[KILN_MAX_RANK];
  kiln_stmt_vars(cx, s, 0, data->rank, at);
  for (int i = 0; i < data->rank; i++) s->index[i] = at[i];
  KILN_TRY(want_indices(lw, indices, -1, axis, data->shape[axis]));
  scatter_index(lw, s, indices, at, axis, data->shape[axis]);
  s->body = kiln_tensor_load(cx, updates, at);
  s->combiner = combiner;
  lw->outputs[0] = kiln_lower_tensor(lw, s);
  return KILN_OK;
}

static kiln_status lower_scatter_nd(kiln_lower *lw) {
  kiln_ctx *cx = lw->cx;
  KILN_TRY(want_scatter(lw));
  const kiln_tensor *data = lw->inputs[0], *indices = lw->inputs[1], *updates = lw->inputs[2];
  KILN_TRY(kiln_lower_want_rank(lw, indices, 1, KILN_MAX_RANK));
  int64_t depth = 0;
  kiln_combiner combiner = KILN_COMBINE_NONE;
  KILN_TRY(kiln_lower_extent(lw, indices, indices->rank - 1, &depth));
  KILN_TRY(read_reduction(lw, &combiner));
  if (depth < 1 || depth > data->rank)
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, lw->place,
                     "indices: the last axis must lie in [1, %d], got %" PRId64, data->rank, depth);
  const int n_picks = indices->rank - 1, rest = data->rank - (int)depth;
  KILN_TRY(kiln_lower_want_rank(lw, updates, n_picks + rest, n_picks + rest));
  for (int i = 0; i < n_picks; i++)
    KILN_TRY(kiln_lower_want_extent(lw, updates, i, indices->shape[i]));
  for (int i = 0; i < rest; i++)
    KILN_TRY(kiln_lower_want_extent(lw, updates, n_picks + i, data->shape[depth + i]));
  kiln_stmt *s = kiln_lower_scatter(lw, "scatter", data, updates->rank, updates->shape);
  const kiln_expr *at[KILN_MAX_RANK], *picked[KILN_MAX_RANK];
  kiln_stmt_vars(cx, s, 0, updates->rank, at);
  kiln_stmt_vars(cx, s, 0, n_picks, picked);
  for (int k = 0; k < depth; k++) {
    picked[n_picks] = kiln_int(cx, k);
    KILN_TRY(want_indices(lw, indices, k, k, data->shape[k]));
    scatter_index(lw, s, indices, picked, k, data->shape[k]);
  }
  for (int i = 0; i < rest; i++) s->index[depth + i] = at[n_picks + i];
  s->body = kiln_tensor_load(cx, updates, at);
  s->combiner = combiner;
  lw->outputs[0] = kiln_lower_tensor(lw, s);
  return KILN_OK;
}

// --- MaxUnpool ---

// The extents of the pooled input, unless output_shape says larger ones.
static kiln_status unpooled_shape(kiln_lower *lw, const kiln_tensor *x, const kiln_expr **out) {
  kiln_ctx *cx = lw->cx;
  const int n = x->rank - 2;
  int64_t kernel[KILN_MAX_RANK], stride[KILN_MAX_RANK], pads[2 * KILN_MAX_RANK];
  KILN_TRY(kiln_conv_window_list(lw, "kernel_shape", n, 1, 1, kernel));
  KILN_TRY(kiln_conv_window_list(lw, "strides", n, 1, 1, stride));
  KILN_TRY(kiln_conv_window_list(lw, "pads", 2 * n, 0, 0, pads));
  for (int i = 0; i < x->rank; i++) out[i] = x->shape[i];
  for (int i = 0; i < n; i++) {
    const kiln_expr *steps = kiln_sub(cx, x->shape[2 + i], kiln_int(cx, 1));
    const kiln_expr *span = kiln_mul(cx, steps, kiln_int(cx, stride[i]));
    const int64_t more = kernel[i] - pads[i] - pads[n + i];
    out[2 + i] = kiln_lower_tidy(cx, kiln_add(cx, span, kiln_int(cx, more)));
  }
  return KILN_OK;
}

// The indices count in the pooled input, as MaxPool gives them; output_shape only enlarges.
static kiln_status lower_max_unpool(kiln_lower *lw) {
  kiln_ctx *cx = lw->cx;
  KILN_TRY(kiln_lower_want_inputs(lw, 2, 3));
  const kiln_tensor *x = lw->inputs[0], *indices = lw->inputs[1];
  KILN_TRY(kiln_lower_want_dtype(lw, 1, kiln_dtype_is_index, "i32 or i64"));
  KILN_TRY(kiln_lower_want_rank(lw, x, 3, KILN_MAX_RANK));
  KILN_TRY(kiln_lower_want_rank(lw, indices, x->rank, x->rank));
  for (int i = 0; i < x->rank; i++) KILN_TRY(kiln_lower_want_extent(lw, indices, i, x->shape[i]));
  const kiln_expr *inner[KILN_MAX_RANK], *outer[KILN_MAX_RANK], *at[KILN_MAX_RANK];
  const kiln_expr *const *given = NULL;
  int n = -1;
  KILN_TRY(unpooled_shape(lw, x, inner));
  KILN_TRY(kiln_lower_shape_values(lw, 2, &n, &given));
  if (n >= 0 && n != x->rank)
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, lw->place,
                     "output_shape: must have %d entries, got %d", x->rank, n);
  for (int i = 0; i < x->rank; i++) outer[i] = n < 0 ? inner[i] : given[i];
  kiln_stmt *zeros = kiln_lower_stmt(lw, "zeros", x->dtype, x->rank, 0, outer);
  zeros->body = kiln_number(cx, x->dtype, 0);
  const kiln_tensor *data = kiln_lower_tensor(lw, zeros);
  kiln_stmt *s = kiln_lower_scatter(lw, "max_unpool", data, x->rank, x->shape);
  kiln_stmt_vars(cx, s, 0, x->rank, at);
  const kiln_expr *flat = kiln_cast(cx, KILN_I64, kiln_tensor_load(cx, indices, at));
  for (int i = x->rank - 1; i >= 0; i--) {
    s->index[i] = i > 0 ? kiln_mod(cx, flat, inner[i]) : flat;
    flat = kiln_div(cx, flat, inner[i]);
    const kiln_expr *inside = kiln_compare(cx, KILN_EXPR_LT, s->index[i], outer[i]);
    s->guard = kiln_both(cx, s->guard, inside);
  }
  const kiln_expr *positive = kiln_compare(cx, KILN_EXPR_GE, s->index[0], kiln_int(cx, 0));
  s->guard = kiln_both(cx, s->guard, positive);
  KILN_TRY(kiln_lower_want_index(lw, indices, 0, NULL, NULL, kiln_int(cx, 0),
                                 kiln_multiply_all(cx, x->rank, inner)));
  s->body = kiln_tensor_load(cx, x, at);
  lw->outputs[0] = kiln_lower_tensor(lw, s);
  return KILN_OK;
}

// --- TensorScatter ---

// Row j of the update goes to row write_indices + j of the cache; circular: modulo the cache's
// length.
static kiln_status lower_tensor_scatter(kiln_lower *lw) {
  kiln_ctx *cx = lw->cx;
  KILN_TRY(kiln_lower_want_inputs(lw, 2, 3));
  const kiln_tensor *cache = lw->inputs[0], *update = lw->inputs[1], *begin = kiln_lower_in(lw, 2);
  int64_t given = 0;
  int axis = 0;
  const char *mode = NULL;
  KILN_TRY(kiln_lower_string(lw, "mode", "linear", &mode));
  KILN_TRY(kiln_lower_int(lw, "axis", -2, &given));
  KILN_TRY(kiln_lower_axis(lw, given, cache->rank, false, &axis));
  const bool is_circular = strcmp(mode, "circular") == 0;
  if (axis == 0 || (!is_circular && strcmp(mode, "linear") != 0))
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, lw->place,
                     "mode and axis: must be linear or circular along another axis than the first, "
                     "got %s along axis %d",
                     mode, axis);
  KILN_TRY(kiln_lower_want_rank(lw, update, cache->rank, cache->rank));
  for (int i = 0; i < cache->rank; i++)
    if (i != axis) KILN_TRY(kiln_lower_want_extent(lw, update, i, cache->shape[i]));
  kiln_stmt *s = kiln_lower_scatter(lw, "scatter", cache, update->rank, update->shape);
  const kiln_expr *at[KILN_MAX_RANK];
  kiln_stmt_vars(cx, s, 0, update->rank, at);
  s->body = kiln_tensor_load(cx, update, at);
  for (int i = 0; i < cache->rank; i++) s->index[i] = at[i];
  if (begin) {
    KILN_TRY(kiln_lower_want_dtype(lw, 2, kiln_dtype_is_index, "i32 or i64"));
    KILN_TRY(kiln_lower_want_rank(lw, begin, 1, 1));
    KILN_TRY(kiln_lower_want_extent(lw, begin, 0, cache->shape[0]));
    const kiln_expr *end =
        kiln_add(cx, kiln_sub(cx, cache->shape[axis], update->shape[axis]), kiln_int(cx, 1));
    if (!is_circular)
      KILN_TRY(kiln_lower_want_index(lw, begin, axis, NULL, NULL, kiln_int(cx, 0), end));
    at[axis] = kiln_add(cx, at[axis], kiln_cast(cx, KILN_I64, kiln_tensor_load(cx, begin, at)));
  }
  const kiln_expr *extent = cache->shape[axis];
  s->index[axis] = is_circular ? kiln_mod(cx, at[axis], extent) : at[axis];
  s->guard = kiln_both(cx, kiln_compare(cx, KILN_EXPR_GE, s->index[axis], kiln_int(cx, 0)),
                       kiln_compare(cx, KILN_EXPR_LT, s->index[axis], extent));
  lw->outputs[0] = kiln_lower_tensor(lw, s);
  return KILN_OK;
}

const kiln_op kiln_op_scatter[] = {
    {"", "Scatter", 9, 10, lower_scatter_elements, NULL, "ops/scatter.c"},
    {"", "ScatterElements", 11, 0, lower_scatter_elements, NULL, "ops/scatter.c"},
    {"", "ScatterND", 11, 0, lower_scatter_nd, NULL, "ops/scatter.c"},
    {"", "MaxUnpool", 9, 0, lower_max_unpool, NULL, "ops/scatter.c"},
    {"", "TensorScatter", 24, 0, lower_tensor_scatter, NULL, "ops/scatter.c"},
    {0},
};
