// Scans: see scan.h. The axis is divided into blocks; each element reduces the elements before it
// in its block and the totals of the blocks before. Short or unbounded axes are one block, as a
// reduction with a guard.
#include "fission/scan.h"

#include "fission/data_dependent.h"
#include "fission/terms.h"

enum { BLOCK = 16 };

// Whether element |here| of the scan includes |other|.
static const kiln_expr *is_reduced(kiln_ctx *cx, const kiln_scan *c, const kiln_expr *here,
                                   const kiln_expr *other) {
  return kiln_compare(cx, c->exclusive ? KILN_EXPR_LT : KILN_EXPR_LE, c->reverse ? here : other,
                      c->reverse ? other : here);
}

static kiln_tensor *scan_few(kiln_lower *lw, const kiln_scan *c, const kiln_tensor *x) {
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

// Element |r| of block |b| if |wanted| (NULL: always) and in range, else the identity; |index| has
// the other axes.
static const kiln_expr *block_element(kiln_lower *lw, const kiln_scan *c, const kiln_tensor *x,
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

static kiln_tensor *reduce_blocks(kiln_lower *lw, const kiln_scan *c, const kiln_tensor *x,
                                  const kiln_expr *n_blocks) {
  const kiln_expr *extents[KILN_MAX_RANK + 1], *index[KILN_MAX_RANK];
  for (int a = 0; a < x->rank; a++) extents[a] = x->shape[a];
  extents[c->axis] = n_blocks;
  extents[x->rank] = kiln_int(lw->cx, BLOCK);
  kiln_stmt *s = kiln_lower_stmt(lw, "blocks", kiln_accumulator(x->dtype), x->rank, 1, extents);
  kiln_stmt_vars(lw->cx, s, 0, x->rank, index);
  s->combiner = c->combiner;
  s->body = block_element(lw, c, x, index[c->axis], kiln_stmt_var(lw->cx, s, x->rank), NULL, index);
  kiln_stmt_tidy(lw->cx, s);
  return kiln_lower_tensor(lw, s);
}

// The scan within blocks, the axis split into (blocks, elements of a block).
static kiln_tensor *scan_within(kiln_lower *lw, const kiln_scan *c, const kiln_tensor *x,
                                const kiln_expr *n_blocks) {
  kiln_ctx *cx = lw->cx;
  const kiln_expr *extents[KILN_MAX_RANK + 2], *vars[KILN_MAX_RANK], *index[KILN_MAX_RANK];
  for (int a = 0; a <= x->rank; a++) extents[a] = x->shape[a <= c->axis ? a : a - 1];
  extents[c->axis] = n_blocks;
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

// Scans the blocks' totals recursively; the depth is log_BLOCK of the extent.
static kiln_tensor *scan_blocks(kiln_lower *lw, const kiln_scan *c, const kiln_tensor *x) {
  kiln_ctx *cx = lw->cx;
  const kiln_expr *n_blocks =
      kiln_lower_tidy(cx, kiln_ceil_div(cx, x->shape[c->axis], kiln_int(cx, BLOCK)));
  const kiln_scan between = {c->axis, true, c->reverse, c->combiner};
  const kiln_tensor *before = kiln_lower_scan(lw, &between, reduce_blocks(lw, c, x, n_blocks)),
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

kiln_tensor *kiln_lower_scan(kiln_lower *lw, const kiln_scan *c, const kiln_tensor *x) {
  int64_t n = 0;
  const bool is_long = kiln_lower_most(lw, x->shape[c->axis], &n) && n > 2 * BLOCK;
  return is_long && x->rank + 2 < KILN_MAX_RANK ? scan_blocks(lw, c, x) : scan_few(lw, c, x);
}
