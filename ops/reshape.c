// Reshape, Flatten, Squeeze and Unsqueeze: views. source: ONNX Reshape-1, 5, 13, 14, 19; Flatten-1,
// 9, 11, 13; Squeeze-1, 11, 13, 21; Unsqueeze-1, 11, 13, 21
#include "fission/data_dependent.h"
#include "fission/terms.h"

enum { MOST_BESIDE_NOTHING = 64 };

static kiln_status check_elements(kiln_lower *lw, const kiln_tensor *x, int rank,
                                  const kiln_expr *const *shape) {
  int64_t have = 0, want = 0;
  const kiln_expr *made = kiln_multiply_all(lw->cx, rank, shape),
                  *from = kiln_multiply_all(lw->cx, x->rank, x->shape);
  if (lw->counts && made != from && kiln_data_dependent_uses(lw->counts, made))
    return kiln_lower_want_equal(lw, made, from, "elements beyond those of the input");
  if (kiln_expr_is_int(kiln_multiply_all(lw->cx, x->rank, x->shape), &have) &&
      kiln_expr_is_int(kiln_multiply_all(lw->cx, rank, shape), &want) && have != want)
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                     "the new shape must have the %" PRId64 " elements of the input, got %" PRId64,
                     have, want);
  return KILN_OK;
}

// Whether its elements may be 0 or -1 in a run: a whole shape, of which nothing is known.
static bool may_have_a_hole(const kiln_tensor *shape) {
  return shape && shape->role == KILN_INPUT && kiln_tensor_elems(shape) > 1;
}

// The extents for a |given| shape of which nothing is known: its 0 and -1 are resolved by the run.
static kiln_status find_extents(kiln_lower *lw, const kiln_tensor *x, int n,
                                const kiln_expr *const *given, bool allow_zero,
                                const kiln_expr **out) {
  kiln_ctx *cx = lw->cx;
  const kiln_expr *zero = kiln_int(cx, 0), *one = kiln_int(cx, 1), *others = one,
                  *total = kiln_multiply_all(cx, x->rank, x->shape);
  for (int i = 0; i < n; i++) {
    const kiln_expr *same = allow_zero || i >= x->rank ? zero : x->shape[i];
    out[i] = kiln_select(cx, kiln_compare(cx, KILN_EXPR_EQ, given[i], zero), same, given[i]);
    others = kiln_mul(cx, others,
                      kiln_select(cx, kiln_compare(cx, KILN_EXPR_LT, given[i], zero), one, out[i]));
  }
  const kiln_expr *rest = kiln_div(cx, total, kiln_most(cx, others, one));
  // Where an axis is empty, others may have any extent; otherwise none exceeds the elements.
  int64_t elements = 0;
  const bool is_empty_at_times = !kiln_expr_is_int(total, &elements) || elements == 0;
  const kiln_expr *most =
      is_empty_at_times ? kiln_most(cx, total, kiln_int(cx, MOST_BESIDE_NOTHING)) : total;
  for (int i = 0; i < n; i++) {
    kiln_stmt *s = kiln_lower_stmt(lw, "extent", KILN_I64, 0, 0, NULL);
    s->body = kiln_select(cx, kiln_compare(cx, KILN_EXPR_LT, given[i], zero), rest, out[i]);
    s->body = kiln_most(cx, zero, kiln_least(cx, s->body, most));
    KILN_TRY(kiln_lower_data_dependent_extent(lw, kiln_lower_tensor(lw, s), most, &out[i]));
  }
  return KILN_OK;
}

static kiln_status read_shape(kiln_lower *lw, int *out_n, const kiln_expr *const **out) {
  const int64_t *list = NULL;
  const kiln_tensor *x = lw->inputs[0];
  if (lw->node->opset >= 5 && may_have_a_hole(kiln_lower_in(lw, 1)))
    return kiln_lower_run_values(lw, 1, KILN_VALUE_SIGNED, out_n, out);
  if (lw->node->opset >= 5)
    return kiln_lower_extent_values(lw, 1, kiln_multiply_all(lw->cx, x->rank, x->shape), out_n,
                                    out);
  KILN_TRY(kiln_lower_ints(lw, "shape", out_n, &list));
  const kiln_expr **made = KILN_NEW_ARRAY(&lw->cx->perm, const kiln_expr *, *out_n);
  for (int i = 0; i < *out_n; i++) made[i] = kiln_int(lw->cx, list[i]);
  *out = made;
  return KILN_OK;
}

// Resolves 0 and -1; *out_hole is the place of -1, or -1.
static kiln_status resolve(kiln_lower *lw, const kiln_tensor *x, int n,
                           const kiln_expr *const *given, bool allow_zero, const kiln_expr **out,
                           int *out_hole) {
  *out_hole = -1;
  for (int i = 0; i < n; i++) {
    int64_t v = 1;
    out[i] = given[i];
    if (!kiln_expr_is_int(given[i], &v)) continue;
    if (v < -1 || v > INT64_C(1) << 40 || (v == -1 && *out_hole >= 0))
      return KILN_FAIL(
          lw->cx->diag, KILN_BAD_INPUT, lw->place,
          "shape: entries must lie in [0, 2^40] and one may be -1, got %" PRId64 " at %d", v, i);
    if (v == -1) *out_hole = i;
    if (v == 0 && !allow_zero) {
      if (i >= x->rank)
        return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                         "shape: 0 at %d must copy an axis of the input, whose rank is %d", i,
                         x->rank);
      out[i] = x->shape[i];
    }
  }
  return KILN_OK;
}

static kiln_status lower_reshape(kiln_lower *lw) {
  KILN_TRY(kiln_lower_want_inputs(lw, 1, 2));
  kiln_tensor *x = lw->inputs[0];
  int64_t allow_zero = 0;
  int n = -1, hole = -1;
  const kiln_expr *const *given = NULL, *shape[KILN_MAX_RANK];
  KILN_TRY(kiln_lower_int(lw, "allowzero", 0, &allow_zero));
  KILN_TRY(read_shape(lw, &n, &given));
  if (n < 0 || n > KILN_MAX_RANK)
    return KILN_FAIL(lw->cx->diag, n < 0 ? KILN_BAD_INPUT : KILN_UNSUPPORTED, lw->place,
                     "shape: must have at most %d entries, got %d", KILN_MAX_RANK, n);
  if (lw->node->opset >= 5 && may_have_a_hole(kiln_lower_in(lw, 1)))
    KILN_TRY(find_extents(lw, x, n, given, allow_zero != 0, shape));
  else KILN_TRY(resolve(lw, x, n, given, allow_zero != 0, shape, &hole));
  if (hole >= 0) {
    const kiln_expr *others[KILN_MAX_RANK];
    int m = 0;
    for (int i = 0; i < n; i++)
      if (i != hole) others[m++] = shape[i];
    KILN_TRY(kiln_lower_infer_extent(lw, x->rank, x->shape, m, others, &shape[hole]));
  }
  KILN_TRY(check_elements(lw, x, n, shape));
  lw->outputs[0] = kiln_lower_reshape(lw, x, n, shape);
  return KILN_OK;
}

static kiln_status lower_flatten(kiln_lower *lw) {
  KILN_TRY(kiln_lower_want_inputs(lw, 1, 1));
  kiln_tensor *x = lw->inputs[0];
  int64_t given = 1;
  int axis = 0;
  KILN_TRY(kiln_lower_int(lw, "axis", 1, &given));
  KILN_TRY(kiln_lower_axis(lw, given, x->rank, true, &axis));
  const kiln_expr *shape[] = {
      kiln_lower_tidy(lw->cx, kiln_multiply_all(lw->cx, axis, x->shape)),
      kiln_lower_tidy(lw->cx, kiln_multiply_all(lw->cx, x->rank - axis, x->shape + axis))};
  lw->outputs[0] = kiln_lower_reshape(lw, x, 2, shape);
  return KILN_OK;
}

// Squeeze and Unsqueeze change no element's order and keep the other axes: a direct index.
static void regroup(kiln_lower *lw, kiln_tensor *x, const char *name, int rank,
                    const kiln_expr *const *shape, const int *axis_of) {
  kiln_stmt *s = kiln_lower_stmt(lw, name, x->dtype, rank, 0, shape);
  const kiln_expr *at[KILN_MAX_RANK];
  for (int i = 0; i < x->rank; i++)
    at[i] = axis_of[i] < 0 ? kiln_int(lw->cx, 0) : kiln_stmt_var(lw->cx, s, axis_of[i]);
  kiln_lower_move(lw, s, x, at, 0);
}

static kiln_status lower_squeeze(kiln_lower *lw) {
  KILN_TRY(kiln_lower_want_inputs(lw, 1, 2));
  kiln_tensor *x = lw->inputs[0];
  int n = -1, axes[KILN_MAX_RANK], axis_of[KILN_MAX_RANK], rank = 0;
  KILN_TRY(kiln_lower_axes(lw, "axes", 1, x->rank, &n, axes));
  bool drop[KILN_MAX_RANK] = {false};
  for (int i = 0; i < n; i++) {
    int64_t v = 1;
    if (kiln_expr_is_int(x->shape[axes[i]], &v) && v != 1)
      return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                       "axis %d: must have extent 1, got %" PRId64, axes[i], v);
    drop[axes[i]] = true;
  }
  const kiln_expr *shape[KILN_MAX_RANK];
  for (int i = 0; i < x->rank; i++) {
    const bool gone = n < 0 ? kiln_expr_is(x->shape[i], 1) : drop[i];
    axis_of[i] = gone ? -1 : rank;
    if (!gone) shape[rank++] = x->shape[i];
  }
  regroup(lw, x, "squeeze", rank, shape, axis_of);
  return KILN_OK;
}

static kiln_status lower_unsqueeze(kiln_lower *lw) {
  KILN_TRY(kiln_lower_want_inputs(lw, 1, 2));
  kiln_tensor *x = lw->inputs[0];
  int n = -1, axes[KILN_MAX_RANK], axis_of[KILN_MAX_RANK];
  const int64_t *given = NULL;
  KILN_TRY(kiln_lower_ints(lw, "axes", &n, &given));
  if (n < 0) KILN_TRY(kiln_lower_const_ints(lw, 1, &n, &given));
  if (n < 0 || x->rank + n > KILN_MAX_RANK)
    return KILN_FAIL(lw->cx->diag, n < 0 ? KILN_BAD_INPUT : KILN_UNSUPPORTED, lw->place,
                     "axes: must be given and leave a rank of at most %d, got %d of them",
                     KILN_MAX_RANK, n);
  KILN_TRY(kiln_lower_axes(lw, "axes", 1, x->rank + n, &n, axes));
  bool added[KILN_MAX_RANK] = {false};
  for (int i = 0; i < n; i++) added[axes[i]] = true;
  const kiln_expr *shape[KILN_MAX_RANK];
  for (int i = 0, from = 0; i < x->rank + n; i++) {
    shape[i] = added[i] ? kiln_int(lw->cx, 1) : x->shape[from];
    if (!added[i]) axis_of[from++] = i;
  }
  regroup(lw, x, "unsqueeze", x->rank + n, shape, axis_of);
  return KILN_OK;
}

const kiln_op kiln_op_reshape[] = {
    {"", "Reshape", 1, 0, lower_reshape, NULL, "ops/reshape.c"},
    {"", "Flatten", 1, 0, lower_flatten, NULL, "ops/reshape.c"},
    {"", "Squeeze", 1, 0, lower_squeeze, NULL, "ops/reshape.c"},
    {"", "Unsqueeze", 1, 0, lower_unsqueeze, NULL, "ops/reshape.c"},
    {0},
};
