// Sum, Mean, Max and Min of any number of tensors, with broadcasting.
// source: ONNX Sum-6, 8, 13; Mean-6, 8, 13; Max-6, 8, 12, 13; Min-6, 8, 12, 13
#include "fission/terms.h"

// Operands of one statement.
enum { MOST = 64 };

// A statement that combines n tensors.
static kiln_status combine_some(kiln_lower *lw, kiln_expr_kind k, int n, kiln_tensor *const *of,
                                kiln_stmt **out) {
  const kiln_expr *shape[KILN_MAX_RANK];
  int rank = 0;
  KILN_TRY(kiln_lower_broadcast(lw, n, of, &rank, shape));
  kiln_stmt *s = kiln_lower_stmt(lw, NULL, of[0]->dtype, rank, 0, shape);
  s->body = kiln_lower_load_broadcast(lw, of[0], s, 0, rank);
  for (int i = 1; i < n; i++)
    s->body = kiln_binary(lw->cx, k, s->body, kiln_lower_load_broadcast(lw, of[i], s, 0, rank));
  *out = s;
  return KILN_OK;
}

// The combination of all inputs, the last of it in one statement; *out_stmt lets the caller go on
// from there. More than MOST are combined so many at a time, and the results again: no kernel gets
// thousands of arguments.
static kiln_status combine(kiln_lower *lw, kiln_expr_kind k, kiln_stmt **out_stmt) {
  kiln_ctx *cx = lw->cx;
  KILN_TRY(kiln_lower_want_inputs(lw, lw->n_inputs > 0 ? lw->n_inputs : 1, -1));
  const kiln_dtype t = lw->inputs[0]->dtype;
  for (int i = 1; i < lw->n_inputs; i++)
    if (lw->inputs[i]->dtype != t)
      return KILN_FAIL(cx->diag, KILN_BAD_INPUT, lw->place,
                       "input %d: must have the element type of the first, %s, got %s", i,
                       kiln_dtype_text(t), kiln_dtype_text(lw->inputs[i]->dtype));
  int n = lw->n_inputs;
  kiln_tensor **of = KILN_NEW_ARRAY(&cx->perm, kiln_tensor *, n);
  for (int i = 0; i < n; i++) of[i] = lw->inputs[i];
  for (; n > MOST; n = (n + MOST - 1) / MOST)
    for (int i = 0; i < n; i += MOST) {
      KILN_TRY(combine_some(lw, k, n - i < MOST ? n - i : MOST, of + i, out_stmt));
      of[i / MOST] = kiln_lower_tensor(lw, *out_stmt);
    }
  KILN_TRY(combine_some(lw, k, n, of, out_stmt));
  lw->outputs[0] = kiln_lower_tensor(lw, *out_stmt);
  return KILN_OK;
}

static kiln_status lower_sum(kiln_lower *lw) {
  kiln_stmt *s = NULL;
  return combine(lw, KILN_EXPR_ADD, &s);
}

static kiln_status lower_max(kiln_lower *lw) {
  kiln_stmt *s = NULL;
  return combine(lw, KILN_EXPR_MAX, &s);
}

static kiln_status lower_min(kiln_lower *lw) {
  kiln_stmt *s = NULL;
  return combine(lw, KILN_EXPR_MIN, &s);
}

static kiln_status lower_mean(kiln_lower *lw) {
  kiln_stmt *s = NULL;
  KILN_TRY(combine(lw, KILN_EXPR_ADD, &s));
  const kiln_dtype t = s->body->dtype;
  s->body = kiln_binary(lw->cx, kiln_dtype_is_float(t) ? KILN_EXPR_DIV : KILN_EXPR_TDIV, s->body,
                        kiln_number(lw->cx, t, lw->n_inputs));
  return KILN_OK;
}

const kiln_op kiln_op_variadic[] = {
    {"", "Sum", 6, 0, lower_sum, NULL, "ops/variadic.c"},
    {"", "Mean", 6, 0, lower_mean, NULL, "ops/variadic.c"},
    {"", "Max", 6, 0, lower_max, NULL, "ops/variadic.c"},
    {"", "Min", 6, 0, lower_min, NULL, "ops/variadic.c"},
    {0},
};
