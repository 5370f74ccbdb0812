// ArgMax and ArgMin in two passes: the extreme value, then the first (or last) place that has it.
// NaN counts as extreme, as in NumPy. source: ONNX ArgMax-1, 11, 12, 13; ArgMin-1, 11, 12, 13
#include "fission/terms.h"

#include <string.h>

typedef struct arg {
  kiln_lower *lw;
  const kiln_tensor *x;
  int axis, rank; // rank of the result
  bool keep;
  const kiln_expr *extents[KILN_MAX_RANK + 1]; // of the result, then the axis
} arg;

static const kiln_expr *element(const arg *g, const kiln_stmt *s) {
  const kiln_expr *index[KILN_MAX_RANK];
  for (int a = 0, space = 0; a < g->x->rank; a++) {
    index[a] = kiln_stmt_var(g->lw->cx, s, a == g->axis ? g->rank : space);
    if (a != g->axis || g->keep) space++;
  }
  return kiln_tensor_load(g->lw->cx, g->x, index);
}

static kiln_tensor *lower(const arg *g, bool max, bool last) {
  kiln_ctx *cx = g->lw->cx;
  kiln_stmt *top = kiln_lower_stmt(g->lw, "extreme", g->x->dtype, g->rank, 1, g->extents);
  top->combiner = max ? KILN_COMBINE_MAX : KILN_COMBINE_MIN;
  top->body = element(g, top);
  kiln_stmt *s = kiln_lower_stmt(g->lw, NULL, KILN_I64, g->rank, 1, g->extents);
  const kiln_expr *index[KILN_MAX_RANK], *x = element(g, s);
  kiln_stmt_vars(cx, s, 0, g->rank, index);
  const kiln_expr *hit =
      kiln_compare(cx, KILN_EXPR_EQ, x, kiln_tensor_load(cx, kiln_lower_tensor(g->lw, top), index));
  if (kiln_dtype_is_float(x->dtype))
    hit = kiln_binary(cx, KILN_EXPR_OR, hit, kiln_unary(cx, KILN_EXPR_ISNAN, x));
  s->combiner = last ? KILN_COMBINE_MAX : KILN_COMBINE_MIN;
  s->body = kiln_select(cx, hit, kiln_stmt_var(cx, s, g->rank),
                        kiln_int(cx, last ? INT64_MIN : INT64_MAX));
  return kiln_lower_tensor(g->lw, s);
}

static kiln_status lower_arg(kiln_lower *lw) {
  KILN_TRY(kiln_lower_want_inputs(lw, 1, 1));
  KILN_TRY(kiln_lower_want_dtype(lw, 0, kiln_dtype_is_number, "numbers"));
  int64_t axis = 0, keep = 1, last = 0;
  KILN_TRY(kiln_lower_int(lw, "axis", 0, &axis));
  KILN_TRY(kiln_lower_int(lw, "keepdims", 1, &keep));
  KILN_TRY(kiln_lower_int(lw, "select_last_index", 0, &last));
  arg g = {.lw = lw, .x = lw->inputs[0], .keep = keep != 0};
  KILN_TRY(kiln_lower_axis(lw, axis, g.x->rank, false, &g.axis));
  for (int a = 0; a < g.x->rank; a++) {
    if (a != g.axis) g.extents[g.rank++] = g.x->shape[a];
    if (a == g.axis && g.keep) g.extents[g.rank++] = kiln_int(lw->cx, 1);
  }
  g.extents[g.rank] = g.x->shape[g.axis];
  const bool max = strcmp(kiln_symbol_text(lw->cx, lw->node->op), "ArgMax") == 0;
  lw->outputs[0] = lower(&g, max, last != 0);
  return KILN_OK;
}

const kiln_op kiln_op_arg[] = {
    {"", "ArgMax", 1, 0, lower_arg, NULL, "ops/arg.c"},
    {"", "ArgMin", 1, 0, lower_arg, NULL, "ops/arg.c"},
    {0},
};
