// CumSum and CumProd: each element reduces those before it in its block, and what the blocks before have reduced; all of
// them, by a guard on the reduction, where they are few or nobody knows how many.
// source: ONNX CumSum-11, 14; CumProd-26
#include "fission/terms.h"

#include <string.h>

enum { BLOCK = 16 };

typedef struct scan {
  int axis;
  bool exclusive, reverse;
  kiln_combiner combiner;
} scan;

static kiln_status read_scan(kiln_lower *lw, scan *c) {
  KILN_TRY(kiln_lower_want_inputs(lw, 2, 2));
  KILN_TRY(kiln_lower_want_dtype(lw, 0, kiln_dtype_is_number, "numbers"));
  int64_t exclusive = 0, reverse = 0;
  int n = 0;
  const int64_t *axis = NULL;
  KILN_TRY(kiln_lower_int(lw, "exclusive", 0, &exclusive));
  KILN_TRY(kiln_lower_int(lw, "reverse", 0, &reverse));
  KILN_TRY(kiln_lower_const_ints(lw, 1, &n, &axis));
  if (n != 1)
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                     "input 1 (axis): must have one element, got %d", n);
  c->exclusive = exclusive != 0;
  c->reverse = reverse != 0;
  const bool product = strcmp(kiln_symbol_text(lw->cx, lw->node->op), "CumProd") == 0;
  c->combiner = product ? KILN_COMBINE_PROD : KILN_COMBINE_SUM;
  return kiln_lower_axis(lw, axis[0], lw->inputs[0]->rank, false, &c->axis);
}

// Whether the element |here| reduces |other|.
static const kiln_expr *is_reduced(kiln_ctx *cx, const scan *c, const kiln_expr *here,
                                   const kiln_expr *other) {
  return kiln_compare(cx, c->exclusive ? KILN_EXPR_LT : KILN_EXPR_LE, c->reverse ? here : other,
                      c->reverse ? other : here);
}

static kiln_tensor *scan_few(kiln_lower *lw, const scan *c, const kiln_tensor *x) {
  kiln_ctx *cx = lw->cx;
  const kiln_expr *extents[KILN_MAX_RANK + 1], *index[KILN_MAX_RANK];
  for (int a = 0; a < x->rank; a++) extents[a] = x->shape[a];
  extents[x->rank] = x->shape[c->axis];
  kiln_stmt *s = kiln_lower_stmt(lw, NULL, kiln_accumulator(x->dtype), x->rank, 1, extents);
  kiln_stmt_vars(cx, s, 0, x->rank, index);
  const kiln_expr *here = index[c->axis], *r = kiln_stmt_var(cx, s, x->rank);
  index[c->axis] = r;
  s->combiner = c->combiner;
  s->body = kiln_cast(cx, kiln_accumulator(x->dtype), kiln_tensor_load(cx, x, index));
  s->guard = is_reduced(cx, c, here, r);
  return kiln_lower_tensor(lw, s);
}

// The element |r| of block |b| where |wanted| (NULL: always) and it is there, else the identity; |index| has the other axes.
static const kiln_expr *block_element(kiln_lower *lw, const scan *c, const kiln_tensor *x,
                                      const kiln_expr *b, const kiln_expr *r,
                                      const kiln_expr *wanted, const kiln_expr **index) {
  kiln_ctx *cx = lw->cx;
  const kiln_dtype t = kiln_accumulator(x->dtype);
  const kiln_expr *at = kiln_add(cx, kiln_mul(cx, b, kiln_int(cx, BLOCK)), r);
  index[c->axis] = at;
  return kiln_select(
      cx, kiln_both(cx, kiln_compare(cx, KILN_EXPR_LT, at, x->shape[c->axis]), wanted),
      kiln_cast(cx, t, kiln_tensor_load(cx, x, index)), kiln_combiner_identity(cx, c->combiner, t));
}

static kiln_tensor *reduce_blocks(kiln_lower *lw, const scan *c, const kiln_tensor *x,
                                  int64_t n_blocks) {
  const kiln_expr *extents[KILN_MAX_RANK + 1], *index[KILN_MAX_RANK];
  for (int a = 0; a < x->rank; a++) extents[a] = x->shape[a];
  extents[c->axis] = kiln_int(lw->cx, n_blocks);
  extents[x->rank] = kiln_int(lw->cx, BLOCK);
  kiln_stmt *s = kiln_lower_stmt(lw, "blocks", kiln_accumulator(x->dtype), x->rank, 1, extents);
  kiln_stmt_vars(lw->cx, s, 0, x->rank, index);
  s->combiner = c->combiner;
  s->body = block_element(lw, c, x, index[c->axis], kiln_stmt_var(lw->cx, s, x->rank), NULL, index);
  kiln_stmt_tidy(lw->cx, s);
  return kiln_lower_tensor(lw, s);
}

// With the axis as two, blocks and elements of a block.
static kiln_tensor *scan_within(kiln_lower *lw, const scan *c, const kiln_tensor *x,
                                int64_t n_blocks) {
  kiln_ctx *cx = lw->cx;
  const kiln_expr *extents[KILN_MAX_RANK + 2], *vars[KILN_MAX_RANK], *index[KILN_MAX_RANK];
  for (int a = 0; a <= x->rank; a++) extents[a] = x->shape[a <= c->axis ? a : a - 1];
  extents[c->axis] = kiln_int(cx, n_blocks);
  extents[c->axis + 1] = extents[x->rank + 1] = kiln_int(cx, BLOCK);
  kiln_stmt *s = kiln_lower_stmt(lw, "within", kiln_accumulator(x->dtype), x->rank + 1, 1, extents);
  kiln_stmt_vars(cx, s, 0, x->rank + 1, vars);
  for (int a = 0; a < x->rank; a++) index[a] = vars[a <= c->axis ? a : a + 1];
  const kiln_expr *here = vars[c->axis + 1], *r = kiln_stmt_var(cx, s, x->rank + 1);
  s->combiner = c->combiner;
  s->body = block_element(lw, c, x, vars[c->axis], r, is_reduced(cx, c, here, r), index);
  kiln_stmt_tidy(cx, s);
  return kiln_lower_tensor(lw, s);
}

static kiln_tensor *scan_axis(kiln_lower *lw, const scan *c, const kiln_tensor *x);

// The depth is the logarithm of the number of elements to the base BLOCK.
static kiln_tensor *scan_blocks(kiln_lower *lw, const scan *c, const kiln_tensor *x, int64_t n) {
  kiln_ctx *cx = lw->cx;
  const int64_t n_blocks = (n + BLOCK - 1) / BLOCK;
  const scan between = {c->axis, true, c->reverse, c->combiner};
  const kiln_tensor *before = scan_axis(lw, &between, reduce_blocks(lw, c, x, n_blocks)),
                    *within = scan_within(lw, c, x, n_blocks);
  const kiln_expr *index[KILN_MAX_RANK], *at[KILN_MAX_RANK], *block = kiln_int(cx, BLOCK);
  kiln_stmt *s = kiln_lower_like(lw, NULL, x, within->dtype, index);
  for (int a = 0; a < x->rank; a++) at[a <= c->axis ? a : a + 1] = index[a];
  at[c->axis] = kiln_div(cx, index[c->axis], block);
  at[c->axis + 1] = kiln_mod(cx, index[c->axis], block);
  const kiln_expr *here = kiln_tensor_load(cx, within, at);
  index[c->axis] = at[c->axis];
  s->body = kiln_combine(cx, c->combiner, kiln_tensor_load(cx, before, index), here);
  return kiln_lower_tensor(lw, s);
}

static kiln_tensor *scan_axis(kiln_lower *lw, const scan *c, const kiln_tensor *x) {
  int64_t n = 0;
  const bool is_known = kiln_expr_is_int(x->shape[c->axis], &n);
  return is_known && n > 2 * BLOCK && x->rank + 2 < KILN_MAX_RANK ? scan_blocks(lw, c, x, n)
                                                                  : scan_few(lw, c, x);
}

static kiln_status lower_scan(kiln_lower *lw) {
  scan c = {0};
  KILN_TRY(read_scan(lw, &c));
  return kiln_lower_cast(lw, scan_axis(lw, &c, lw->inputs[0]), lw->inputs[0]->dtype,
                         &lw->outputs[0]);
}

const kiln_op kiln_op_cumsum[] = {
    {"", "CumSum", 11, 0, lower_scan, NULL, "ops/cumsum.c"},
    {"", "CumProd", 26, 0, lower_scan, NULL, "ops/cumsum.c"},
    {0},
};
