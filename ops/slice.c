// Slice: one load at start + i*step. Bounds may be expressions of named dimensions; negative ones
// count from the end and all are clamped into the axis. source: ONNX Slice-1, 10, 11, 13
#include "fission/data_dependent.h"
#include "fission/terms.h"

typedef struct bounds {
  const kiln_expr *start, *end; // as given; NULL: the axis is whole
  int64_t step;
  // Where the run gives axes or steps: whether an entry is of this axis (NULL: always), and the
  // step.
  const kiln_expr *is_cut, *run_step;
} bounds;

// Clamps |v| as NumPy does: counted from the end when negative, then into [lo, hi].
static const kiln_expr *clamped(kiln_ctx *cx, const kiln_expr *v, const kiln_expr *extent,
                                const kiln_expr *lo, const kiln_expr *hi) {
  int64_t n = 0;
  // Beside an extent that is a name, anything at or beyond 2^31 - 1 is the exporters' way to say
  // "to the end".
  const bool is_named = kiln_expr_is_int(v, &n) && !kiln_expr_is_int(extent, NULL);
  if (is_named && n >= INT32_MAX) return hi;
  if (is_named && n <= INT32_MIN) return lo;
  const kiln_expr *negative = kiln_compare(cx, KILN_EXPR_LT, v, kiln_int(cx, 0));
  const kiln_expr *counted = kiln_select(cx, negative, kiln_add(cx, v, extent), v);
  return kiln_most(cx, lo, kiln_least(cx, counted, hi));
}

// The first element and the number of elements that |b| takes from an axis of |extent|, of which
// there may be none.
static void resolve(kiln_ctx *cx, const bounds *b, const kiln_expr *extent,
                    const kiln_expr **out_start, const kiln_expr **out_count) {
  const kiln_expr *zero = kiln_int(cx, 0), *last = kiln_sub(cx, extent, kiln_int(cx, 1));
  const kiln_expr *span = NULL, *step = kiln_int(cx, b->step < 0 ? -b->step : b->step);
  if (b->step > 0) {
    *out_start = clamped(cx, b->start, extent, zero, extent);
    span = kiln_sub(cx, clamped(cx, b->end, extent, zero, extent), *out_start);
  } else {
    *out_start = clamped(cx, b->start, extent, zero, last);
    span = kiln_sub(cx, *out_start, clamped(cx, b->end, extent, kiln_int(cx, -1), last));
    span = kiln_least(cx, span, extent);
  }
  *out_start = kiln_lower_tidy(cx, *out_start);
  *out_count = kiln_lower_tidy(cx, kiln_most(cx, zero, kiln_ceil_div(cx, span, step)));
}

// The same where only the run knows the step, or whether the axis is cut.
static void resolve_in_run(kiln_ctx *cx, const bounds *b, const kiln_expr *extent,
                           const kiln_expr **out_start, const kiln_expr **out_count) {
  const kiln_expr *zero = kiln_int(cx, 0), *one = kiln_int(cx, 1);
  const kiln_expr *last = kiln_sub(cx, extent, one), *below = kiln_int(cx, -1);
  const kiln_expr *is_up = kiln_compare(cx, KILN_EXPR_GT, b->run_step, zero);
  const kiln_expr *up = clamped(cx, b->start, extent, zero, extent),
                  *down = clamped(cx, b->start, extent, zero, last);
  const kiln_expr *span =
      kiln_select(cx, is_up, kiln_sub(cx, clamped(cx, b->end, extent, zero, extent), up),
                  kiln_sub(cx, down, clamped(cx, b->end, extent, below, last)));
  const kiln_expr *size =
      kiln_most(cx, one, kiln_most(cx, b->run_step, kiln_sub(cx, zero, b->run_step)));
  const kiln_expr *count = kiln_most(cx, zero, kiln_ceil_div(cx, span, size));
  *out_start = kiln_select(cx, is_up, up, down);
  if (b->is_cut) {
    *out_start = kiln_select(cx, b->is_cut, *out_start, zero);
    count = kiln_select(cx, b->is_cut, count, extent);
  }
  *out_count = kiln_least(cx, count, extent);
}

// No axis is longer than that, so that a longer step takes the first element alone, too.
static int64_t step_of(int64_t given) {
  const int64_t longest = INT64_C(1) << 48;
  return given > longest ? longest : given < -longest ? -longest : given;
}

static kiln_status list_of_ints(kiln_lower *lw, const char *attr, int *out_n,
                                const kiln_expr *const **out) {
  const int64_t *list = NULL;
  KILN_TRY(kiln_lower_ints(lw, attr, out_n, &list));
  if (*out_n < 0)
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                     "%s: must be given, got neither input nor attribute", attr);
  const kiln_expr **made = KILN_NEW_ARRAY(&lw->cx->perm, const kiln_expr *, *out_n);
  for (int i = 0; i < *out_n; i++) made[i] = kiln_int(lw->cx, list[i]);
  *out = made;
  return KILN_OK;
}

// Whether only the run knows input |i|.
static bool is_computed(const kiln_lower *lw, int i) {
  const kiln_tensor *t = kiln_lower_in(lw, i);
  return t && !t->data && !kiln_lower_values(lw, t) && kiln_tensor_elems(t) > 0;
}

// Lets the run check that axes are axes, and that no step is 0.
static kiln_status check_run(kiln_lower *lw, int rank) {
  kiln_ctx *cx = lw->cx;
  if (is_computed(lw, 3))
    KILN_TRY(kiln_lower_want_index(lw, lw->inputs[3], 0, NULL, NULL, kiln_int(cx, -rank),
                                   kiln_int(cx, rank)));
  if (!is_computed(lw, 4)) return KILN_OK;
  const kiln_expr *is_zero =
      kiln_compare(cx, KILN_EXPR_EQ, kiln_lower_element(lw, lw->inputs[4]), kiln_int(cx, 0));
  return kiln_lower_want_index(lw, lw->inputs[4], 0, NULL, is_zero, kiln_int(cx, 1),
                               kiln_int(cx, INT32_MAX));
}

// Chooses for each axis among the entries of the lists, of which the run tells the axes: the last
// entry that names it.
static kiln_status read_bounds_in_run(kiln_lower *lw, int rank, bounds *out) {
  kiln_ctx *cx = lw->cx;
  const kiln_expr *const *lists[4] = {NULL};
  int n[4];
  for (int i = 0; i < 4; i++)
    KILN_TRY(kiln_lower_run_values(lw, 1 + i, KILN_VALUE_SIGNED, &n[i], &lists[i]));
  if (n[1] != n[0] || (n[2] >= 0 && n[2] != n[0]) || (n[3] >= 0 && n[3] != n[0]) || n[0] > rank)
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                     "starts, ends, axes and steps must have one length of at most %d, got %d, %d, "
                     "%d, %d",
                     rank, n[0], n[1], n[2], n[3]);
  KILN_TRY(check_run(lw, rank));
  for (int a = 0; a < rank; a++) {
    const kiln_expr *zero = kiln_int(cx, 0), *never = kiln_int_of(cx, KILN_BOOL, 0);
    bounds *b = &out[a];
    *b = (bounds){zero, lw->inputs[0]->shape[a], 1, never, kiln_int(cx, 1)};
    for (int i = 0; i < n[0]; i++) {
      const kiln_expr *of = n[2] < 0 ? kiln_int(cx, i) : lists[2][i];
      of = kiln_select(cx, kiln_compare(cx, KILN_EXPR_LT, of, zero),
                       kiln_add(cx, of, kiln_int(cx, rank)), of);
      const kiln_expr *is = kiln_compare(cx, KILN_EXPR_EQ, of, kiln_int(cx, a));
      b->is_cut = kiln_binary(cx, KILN_EXPR_OR, b->is_cut, is);
      b->start = kiln_select(cx, is, lists[0][i], b->start);
      b->end = kiln_select(cx, is, lists[1][i], b->end);
      if (n[3] >= 0) b->run_step = kiln_select(cx, is, lists[3][i], b->run_step);
    }
  }
  return KILN_OK;
}

// Reads starts, ends, axes and steps; |out| has an entry for each axis, NULL start for whole ones.
static kiln_status read_bounds(kiln_lower *lw, int rank, bounds *out) {
  int n_starts = -1, n_ends = -1, n_axes = -1, n_steps = -1, axes[KILN_MAX_RANK];
  const kiln_expr *const *starts = NULL, *const *ends = NULL;
  const int64_t *steps = NULL;
  if (lw->node->opset < 10) {
    KILN_TRY(list_of_ints(lw, "starts", &n_starts, &starts));
    KILN_TRY(list_of_ints(lw, "ends", &n_ends, &ends));
    KILN_TRY(kiln_lower_axes(lw, "axes", -1, rank, &n_axes, axes));
  } else {
    KILN_TRY(kiln_lower_want_inputs(lw, 3, 5));
    if (lw->counts && (is_computed(lw, 3) || is_computed(lw, 4)))
      return read_bounds_in_run(lw, rank, out);
    KILN_TRY(kiln_lower_run_values(lw, 1, KILN_VALUE_SIGNED, &n_starts, &starts));
    KILN_TRY(kiln_lower_run_values(lw, 2, KILN_VALUE_SIGNED, &n_ends, &ends));
    KILN_TRY(kiln_lower_axes(lw, "", 3, rank, &n_axes, axes));
    KILN_TRY(kiln_lower_const_ints(lw, 4, &n_steps, &steps));
  }
  const int n = n_axes < 0 ? n_starts : n_axes;
  if (n_starts != n || n_ends != n || (n_steps >= 0 && n_steps != n) || n > rank)
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                     "starts, ends, axes and steps must have one length of at most %d, got %d, %d, "
                     "%d, %d",
                     rank, n_starts, n_ends, n, n_steps);
  for (int i = 0; i < rank; i++) out[i] = (bounds){0};
  for (int i = 0; i < n; i++) {
    const int64_t step = n_steps < 0 ? 1 : steps[i];
    if (step == 0)
      return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place, "steps: must not be 0, got 0 at %d",
                       i);
    out[n_axes < 0 ? i : axes[i]] =
        (bounds){.start = starts[i], .end = ends[i], .step = step_of(step)};
  }
  return KILN_OK;
}

static kiln_status lower_slice(kiln_lower *lw) {
  kiln_ctx *cx = lw->cx;
  KILN_TRY(kiln_lower_want_inputs(lw, 1, 5));
  const kiln_tensor *x = lw->inputs[0];
  bounds b[KILN_MAX_RANK];
  KILN_TRY(read_bounds(lw, x->rank, b));
  const kiln_expr *extents[KILN_MAX_RANK], *start[KILN_MAX_RANK], *at[KILN_MAX_RANK];
  for (int i = 0; i < x->rank; i++) {
    extents[i] = x->shape[i];
    if (b[i].run_step) resolve_in_run(cx, &b[i], x->shape[i], &start[i], &extents[i]);
    else if (b[i].start) resolve(cx, &b[i], x->shape[i], &start[i], &extents[i]);
  }
  kiln_stmt *s = kiln_lower_stmt(lw, "slice", x->dtype, x->rank, 0, extents);
  kiln_stmt_vars(cx, s, 0, x->rank, at);
  for (int i = 0; i < x->rank; i++) {
    const kiln_expr *step = b[i].run_step ? b[i].run_step : kiln_int(cx, b[i].step);
    if (b[i].start) at[i] = kiln_add(cx, kiln_mul(cx, at[i], step), start[i]);
  }
  kiln_lower_move(lw, s, x, at, 0);
  return KILN_OK;
}

const kiln_op kiln_op_slice[] = {
    {"", "Slice", 1, 0, lower_slice, NULL, "ops/slice.c"},
    {0},
};
