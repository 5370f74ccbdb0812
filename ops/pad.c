// Pad: one statement; a comparison chooses between the load and the value, or the index is mapped
// back into the input. Negative pads crop. source: ONNX Pad-1, 2, 11, 13, 18, 19, 21
#include "fission/data_dependent.h"
#include "fission/terms.h"

#include <string.h>

typedef enum mode { CONSTANT, REFLECT, EDGE, WRAP } mode;

static kiln_status read_mode(kiln_lower *lw, mode *out) {
  static const char *const names[] = {"constant", "reflect", "edge", "wrap"};
  const char *text = NULL;
  KILN_TRY(kiln_lower_string(lw, "mode", "constant", &text));
  for (int i = 0; i < (int)KILN_LEN(names); i++) {
    if (strcmp(text, names[i]) != 0) continue;
    *out = (mode)i;
    return KILN_OK;
  }
  return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                   "mode: must be constant, reflect, edge or wrap, got %s", text);
}

// begin[rank], end[rank] from the attribute (pads, or paddings in opset 1) or the inputs.
static kiln_status read_pads(kiln_lower *lw, int rank, const kiln_expr **begin,
                             const kiln_expr **end) {
  kiln_ctx *cx = lw->cx;
  int n = -1, n_axes = -1, axes[KILN_MAX_RANK];
  const int64_t *list = NULL;
  const kiln_expr *const *pads = NULL;
  if (lw->node->opset < 11) {
    KILN_TRY(kiln_lower_ints(lw, lw->node->opset < 2 ? "paddings" : "pads", &n, &list));
    const kiln_expr **made = KILN_NEW_ARRAY(&cx->perm, const kiln_expr *, n);
    for (int i = 0; i < n; i++) made[i] = kiln_int(cx, list[i]);
    pads = made;
  } else {
    KILN_TRY(kiln_lower_want_inputs(lw, 2, 4));
    KILN_TRY(kiln_lower_run_values(lw, 1, KILN_VALUE_SIGNED, &n, &pads));
    KILN_TRY(kiln_lower_axes(lw, "", 3, rank, &n_axes, axes));
  }
  const int n_padded = n_axes < 0 ? rank : n_axes;
  if (n != 2 * n_padded)
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, lw->place, "pads: must have %d entries, got %d",
                     2 * n_padded, n);
  for (int i = 0; i < n; i++) {
    int64_t v = 0;
    if (kiln_expr_is_int(pads[i], &v) && (v < INT32_MIN || v > INT32_MAX))
      return KILN_FAIL(cx->diag, KILN_BAD_INPUT, lw->place,
                       "pads: must lie in [-2^31, 2^31), got %" PRId64, v);
  }
  for (int i = 0; i < rank; i++) begin[i] = end[i] = kiln_int(cx, 0);
  for (int i = 0; i < n_padded; i++) {
    begin[n_axes < 0 ? i : axes[i]] = pads[i];
    end[n_axes < 0 ? i : axes[i]] = pads[n_padded + i];
  }
  return KILN_OK;
}

static kiln_status read_value(kiln_lower *lw, const kiln_expr **out) {
  const kiln_dtype t = lw->inputs[0]->dtype;
  const kiln_tensor *value = lw->node->opset >= 11 ? kiln_lower_in(lw, 2) : NULL;
  if (value) return kiln_lower_scalar(lw, value, t, "constant_value", out);
  double v = 0;
  KILN_TRY(kiln_lower_float(lw, "value", 0, &v));
  *out = kiln_number(lw->cx, t, v);
  return KILN_OK;
}

// The place in an axis of |extent| that place |x| outside it shows.
static const kiln_expr *mapped(kiln_ctx *cx, mode m, const kiln_expr *x, const kiln_expr *extent,
                               const kiln_expr *begin, const kiln_expr *end) {
  const kiln_expr *zero = kiln_int(cx, 0), *last = kiln_sub(cx, extent, kiln_int(cx, 1));
  if (m == WRAP) return kiln_mod(cx, x, extent);
  if (m == EDGE) return kiln_most(cx, zero, kiln_least(cx, x, last));
  // Reflections repeat with a period of 2*last; one reflection is enough where pads are short.
  int64_t b = 0, e = 0, l = 0;
  const kiln_expr *twice = kiln_mul(cx, last, kiln_int(cx, 2));
  if (kiln_expr_is(last, 0)) return zero;
  if (kiln_expr_is_int(last, &l) && kiln_expr_is_int(begin, &b) && kiln_expr_is_int(end, &e) &&
      (b > l || e > l))
    x = kiln_mod(cx, x, twice);
  const kiln_expr *above = kiln_compare(cx, KILN_EXPR_GT, x, last);
  const kiln_expr *back = kiln_select(cx, above, kiln_sub(cx, twice, x), x);
  const kiln_expr *below = kiln_compare(cx, KILN_EXPR_LT, x, zero);
  return kiln_select(cx, below, kiln_sub(cx, zero, x), back);
}

static kiln_status check_extent(kiln_lower *lw, int axis, const kiln_expr *in, const kiln_expr *out,
                                mode m) {
  int64_t have = 0, want = 0;
  if (kiln_expr_is_int(out, &want) && want < 0)
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                     "pads: must leave an output, got extent %" PRId64 " of axis %d", want, axis);
  if (m != CONSTANT && kiln_expr_is_int(in, &have) && have == 0 && want > 0)
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                     "pads: axis %d must have something to repeat, got one that is empty", axis);
  return KILN_OK;
}

static bool is_of_run(const kiln_lower *lw, const kiln_expr *e) {
  return lw->counts && kiln_data_dependent_uses(lw->counts, e);
}

static kiln_status lower_pad(kiln_lower *lw) {
  kiln_ctx *cx = lw->cx;
  KILN_TRY(kiln_lower_want_inputs(lw, 1, 4));
  const kiln_tensor *x = lw->inputs[0];
  const kiln_expr *begin[KILN_MAX_RANK], *end[KILN_MAX_RANK], *extents[KILN_MAX_RANK];
  const kiln_expr *value = NULL, *inside = NULL, *at[KILN_MAX_RANK];
  mode m = CONSTANT;
  KILN_TRY(read_mode(lw, &m));
  KILN_TRY(read_pads(lw, x->rank, begin, end));
  KILN_TRY(read_value(lw, &value));
  for (int i = 0; i < x->rank; i++) {
    const kiln_expr *longer = kiln_add(cx, x->shape[i], kiln_add(cx, begin[i], end[i]));
    extents[i] = kiln_lower_tidy(cx, longer);
    if (is_of_run(lw, begin[i]) || is_of_run(lw, end[i])) {
      KILN_TRY(kiln_lower_want_bound(lw, extents[i]));
      extents[i] = kiln_lower_positive(lw, extents[i]);
    }
    KILN_TRY(check_extent(lw, i, x->shape[i], extents[i], m));
  }
  kiln_stmt *s = kiln_lower_stmt(lw, "pad", x->dtype, x->rank, 0, extents);
  kiln_stmt_vars(cx, s, 0, x->rank, at);
  for (int i = 0; i < x->rank; i++) {
    if (kiln_expr_is(begin[i], 0) && kiln_expr_is(end[i], 0)) continue;
    at[i] = kiln_sub(cx, at[i], begin[i]);
    if (m != CONSTANT) {
      at[i] = mapped(cx, m, at[i], x->shape[i], begin[i], end[i]);
      continue;
    }
    const kiln_expr *zero = kiln_int(cx, 0);
    if (!kiln_expr_is(begin[i], 0))
      inside = kiln_both(cx, inside, kiln_compare(cx, KILN_EXPR_GE, at[i], zero));
    if (!kiln_expr_is(end[i], 0))
      inside = kiln_both(cx, inside, kiln_compare(cx, KILN_EXPR_LT, at[i], x->shape[i]));
  }
  kiln_lower_move(lw, s, x, at, 0);
  if (inside) s->body = kiln_select(cx, inside, s->body, value);
  return KILN_OK;
}

const kiln_op kiln_op_pad[] = {
    {"", "Pad", 1, 0, lower_pad, NULL, "ops/pad.c"},
    {0},
};
