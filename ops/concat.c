// Concat: one statement; the body chooses the input by nested comparisons, halving the list so that
// its depth is the logarithm of the number of inputs. Many inputs are put together so many at a
// time, and these pieces again: no kernel chooses among thousands, and pieces are written in place
// (transform/assemble.c).
// source: ONNX Concat-1, 4, 11, 13
#include "fission/terms.h"

enum { MOST = 64 }; // parts of one statement

typedef struct concat {
  kiln_lower *lw;
  int axis, n;
  const kiln_tensor **parts;
  const kiln_expr **starts; // [n + 1]
  const kiln_expr *at[KILN_MAX_RANK];
} concat;

static const kiln_expr *choose(concat *c, int first, int end) {
  kiln_ctx *cx = c->lw->cx;
  if (end - first > 1) {
    const int middle = (first + end) / 2;
    const kiln_expr *below = kiln_compare(cx, KILN_EXPR_LT, c->at[c->axis], c->starts[middle]);
    return kiln_select(cx, below, choose(c, first, middle), choose(c, middle, end));
  }
  const kiln_expr *at[KILN_MAX_RANK];
  for (int i = 0; i < c->parts[first]->rank; i++) at[i] = c->at[i];
  at[c->axis] = kiln_sub(cx, at[c->axis], c->starts[first]);
  return kiln_tensor_load(cx, c->parts[first], at);
}

// Parts [first, end) in one tensor, whose extents but for the axis are |extents|.
static kiln_tensor *put_together(const concat *all, int first, int end, const kiln_expr **extents) {
  kiln_ctx *cx = all->lw->cx;
  concat c = {.lw = all->lw, .axis = all->axis, .n = end - first, .parts = all->parts + first};
  const kiln_tensor *one = c.parts[0];
  c.starts = KILN_NEW_ARRAY(&cx->perm, const kiln_expr *, c.n + 1);
  for (int k = 0; k <= c.n; k++)
    c.starts[k] = kiln_lower_tidy(cx, kiln_sub(cx, all->starts[first + k], all->starts[first]));
  extents[c.axis] = c.starts[c.n];
  kiln_stmt *s = kiln_lower_stmt(c.lw, "concat", one->dtype, one->rank, 0, extents);
  kiln_stmt_vars(cx, s, 0, one->rank, c.at);
  s->body = choose(&c, 0, c.n);
  return kiln_lower_tensor(c.lw, s);
}

static kiln_status check_part(concat *c, const kiln_tensor *first, const kiln_tensor *t) {
  kiln_ctx *cx = c->lw->cx;
  KILN_TRY(kiln_lower_want_rank(c->lw, t, first->rank, first->rank));
  for (int i = 0; i < t->rank; i++) {
    int64_t have = 0, want = 0;
    if (i != c->axis && kiln_expr_is_int(t->shape[i], &have) &&
        kiln_expr_is_int(first->shape[i], &want) && have != want)
      return KILN_FAIL(cx->diag, KILN_BAD_INPUT, c->lw->place,
                       "axis %d: all inputs must have extent %" PRId64 ", got %" PRId64, i, want,
                       have);
  }
  if (t->dtype != first->dtype)
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, c->lw->place,
                     "all inputs must have one dtype, got %s and %s", kiln_dtype_text(first->dtype),
                     kiln_dtype_text(t->dtype));
  return KILN_OK;
}

static kiln_status lower_concat(kiln_lower *lw) {
  kiln_ctx *cx = lw->cx;
  KILN_TRY(kiln_lower_want_inputs(lw, 1, INT32_MAX));
  concat c = {.lw = lw};
  const kiln_tensor *first = lw->inputs[0];
  int64_t axis = 1; // the default of opset 1
  KILN_TRY(kiln_lower_int(lw, "axis", 1, &axis));
  KILN_TRY(kiln_lower_axis(lw, axis, first->rank, false, &c.axis));
  c.parts = KILN_NEW_ARRAY(&cx->perm, const kiln_tensor *, lw->n_inputs);
  c.starts = KILN_NEW_ARRAY(&cx->perm, const kiln_expr *, lw->n_inputs + 1);
  c.starts[0] = kiln_int(cx, 0);
  const kiln_expr *extents[KILN_MAX_RANK];
  for (int i = 0; i < first->rank; i++) extents[i] = first->shape[i];
  for (int k = 0; k < lw->n_inputs; k++) {
    kiln_tensor *t = kiln_lower_in(lw, k);
    if (!t) continue;
    KILN_TRY(check_part(&c, first, t));
    for (int i = 0; i < t->rank; i++)
      if (i != c.axis && kiln_expr_is_int(t->shape[i], NULL)) extents[i] = t->shape[i];
    if (kiln_expr_is(t->shape[c.axis], 0)) continue;
    c.starts[c.n + 1] = kiln_lower_tidy(cx, kiln_add(cx, c.starts[c.n], t->shape[c.axis]));
    c.parts[c.n++] = t;
  }
  lw->outputs[0] = lw->inputs[0];
  if (c.n == 0) return KILN_OK;
  while (c.n > MOST) {
    int n = 0;
    for (int k = 0; k < c.n; k += MOST, n++) {
      c.parts[n] = put_together(&c, k, c.n - k < MOST ? c.n : k + MOST, extents);
      c.starts[n] = c.starts[k];
    }
    c.starts[n] = c.starts[c.n];
    c.n = n;
  }
  lw->outputs[0] = put_together(&c, 0, c.n, extents);
  return KILN_OK;
}

const kiln_op kiln_op_concat[] = {
    {"", "Concat", 1, 0, lower_concat, NULL, "ops/concat.c"},
    {0},
};
