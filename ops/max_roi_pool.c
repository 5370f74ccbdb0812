// MaxRoiPool: the bounds of the bins along each axis, then the maximum over the columns of a bin,
// then that over its rows. source: ONNX MaxRoiPool-1, 22
#include "fission/terms.h"

typedef struct roi_pool {
  kiln_lower *lw;
  const kiln_tensor *x, *rois; // (N, C, H, W), (R, 5): batch, x1, y1, x2, y2
  const int64_t *bins;         // [2]
  double scale;
  kiln_dtype t;
} roi_pool;

// Halves go away from zero, as in C.
static const kiln_expr *rounded(const roi_pool *p, const kiln_expr *v) {
  kiln_ctx *cx = p->lw->cx;
  const kiln_expr *size = kiln_add(cx, kiln_unary(cx, KILN_EXPR_ABS, v), kiln_float(cx, p->t, 0.5));
  return kiln_mul(cx, kiln_unary(cx, KILN_EXPR_SIGN, v), kiln_unary(cx, KILN_EXPR_FLOOR, size));
}

static const kiln_expr *corner(const roi_pool *p, const kiln_expr *region, int column) {
  kiln_ctx *cx = p->lw->cx;
  const kiln_expr *at[] = {region, kiln_int(cx, column)};
  const kiln_expr *v = kiln_cast(cx, p->t, kiln_tensor_load(cx, p->rois, at));
  return column == 0 ? v : rounded(p, kiln_mul(cx, v, kiln_float(cx, p->t, p->scale)));
}

// B(r, q): where bin |q| of axis |axis|, 0 for rows, begins; or behind what it ends.
static const kiln_tensor *bounds(const roi_pool *p, int axis, bool ends) {
  kiln_ctx *cx = p->lw->cx;
  const kiln_expr *extents[] = {p->rois->shape[0], kiln_int(cx, p->bins[axis])}, *v[2];
  kiln_stmt *s = kiln_lower_stmt(p->lw, "bins", KILN_I64, 2, 0, extents);
  kiln_stmt_vars(cx, s, 0, 2, v);
  const kiln_expr *first = corner(p, v[0], 2 - axis), *last = corner(p, v[0], 4 - axis);
  const kiln_expr *one = kiln_float(cx, p->t, 1), *zero = kiln_int(cx, 0);
  const kiln_expr *span = kiln_most(cx, kiln_add(cx, kiln_sub(cx, last, first), one), one);
  const kiln_expr *size = kiln_div(cx, span, kiln_float(cx, p->t, (double)p->bins[axis]));
  const kiln_expr *bin = ends ? kiln_add(cx, v[1], kiln_int(cx, 1)) : v[1];
  const kiln_expr *place = kiln_mul(cx, kiln_cast(cx, p->t, bin), size);
  place = kiln_unary(cx, ends ? KILN_EXPR_CEIL : KILN_EXPR_FLOOR, place);
  place = kiln_cast(cx, KILN_I64, kiln_add(cx, place, first));
  s->body = kiln_least(cx, kiln_most(cx, place, zero), p->x->shape[2 + axis]);
  return kiln_lower_tensor(p->lw, s);
}

// Whether |place| lies in bin |bin| of region |region|.
static const kiln_expr *inside(const roi_pool *p, const kiln_tensor *const b[2],
                               const kiln_expr *region, const kiln_expr *bin,
                               const kiln_expr *place) {
  kiln_ctx *cx = p->lw->cx;
  const kiln_expr *at[] = {region, bin};
  return kiln_both(cx, kiln_compare(cx, KILN_EXPR_GE, place, kiln_tensor_load(cx, b[0], at)),
                   kiln_compare(cx, KILN_EXPR_LT, place, kiln_tensor_load(cx, b[1], at)));
}

// M(r, c, h, q) over the columns of a bin, w.
static const kiln_tensor *over_columns(const roi_pool *p, const kiln_tensor *const columns[2]) {
  kiln_ctx *cx = p->lw->cx;
  const kiln_tensor *x = p->x;
  const kiln_expr *extents[] = {p->rois->shape[0], x->shape[1], x->shape[2],
                                kiln_int(cx, p->bins[1]), x->shape[3]};
  const kiln_expr *v[5], *last = kiln_sub(cx, x->shape[0], kiln_int(cx, 1));
  kiln_stmt *s = kiln_lower_stmt(p->lw, "roi_rows", x->dtype, 4, 1, extents);
  kiln_stmt_vars(cx, s, 0, 5, v);
  const kiln_expr *batch = kiln_cast(cx, KILN_I64, corner(p, v[0], 0));
  batch = kiln_most(cx, kiln_int(cx, 0), kiln_least(cx, batch, last));
  const kiln_expr *at[] = {batch, v[1], v[2], v[4]};
  s->body = kiln_select(cx, inside(p, columns, v[0], v[3], v[4]), kiln_tensor_load(cx, x, at),
                        kiln_combiner_identity(cx, KILN_COMBINE_MAX, x->dtype));
  s->combiner = KILN_COMBINE_MAX;
  return kiln_lower_tensor(p->lw, s);
}

// Y(r, c, p, q): the maximum over the rows of a bin; 0 where a bin has no element.
static kiln_tensor *over_rows(const roi_pool *p, const kiln_tensor *const rows[2],
                              const kiln_tensor *const columns[2], const kiln_tensor *m) {
  kiln_ctx *cx = p->lw->cx;
  const kiln_expr *extents[] = {p->rois->shape[0], p->x->shape[1], kiln_int(cx, p->bins[0]),
                                kiln_int(cx, p->bins[1]), p->x->shape[2]};
  const kiln_expr *v[5], *none = kiln_combiner_identity(cx, KILN_COMBINE_MAX, p->x->dtype);
  kiln_stmt *s = kiln_lower_stmt(p->lw, "roi_bins", p->x->dtype, 4, 1, extents);
  kiln_stmt_vars(cx, s, 0, 5, v);
  const kiln_expr *at[] = {v[0], v[1], v[4], v[3]};
  s->body = kiln_select(cx, inside(p, rows, v[0], v[2], v[4]), kiln_tensor_load(cx, m, at), none);
  s->combiner = KILN_COMBINE_MAX;
  const kiln_tensor *top = kiln_lower_tensor(p->lw, s);
  kiln_stmt *y = kiln_lower_like(p->lw, "max_roi_pool", top, top->dtype, v);
  const kiln_expr *full = NULL;
  for (int axis = 0; axis < 2; axis++) {
    const kiln_expr *bin[] = {v[0], v[2 + axis]};
    const kiln_tensor *const *b = axis ? columns : rows;
    full = kiln_both(cx, full,
                     kiln_compare(cx, KILN_EXPR_LT, kiln_tensor_load(cx, b[0], bin),
                                  kiln_tensor_load(cx, b[1], bin)));
  }
  y->body = kiln_select(cx, full, kiln_tensor_load(cx, top, v), kiln_number(cx, top->dtype, 0));
  return kiln_lower_tensor(p->lw, y);
}

static kiln_status lower_max_roi_pool(kiln_lower *lw) {
  roi_pool p = {.lw = lw};
  int n = 0;
  KILN_TRY(kiln_lower_want_inputs(lw, 2, 2));
  for (int i = 0; i < 2; i++)
    KILN_TRY(kiln_lower_want_dtype(lw, i, kiln_dtype_is_float, "a float"));
  p.x = lw->inputs[0];
  p.rois = lw->inputs[1];
  p.t = kiln_accumulator(p.rois->dtype);
  KILN_TRY(kiln_lower_want_rank(lw, p.x, 4, 4));
  KILN_TRY(kiln_lower_want_rank(lw, p.rois, 2, 2));
  KILN_TRY(kiln_lower_want_extent(lw, p.rois, 1, kiln_int(lw->cx, 5)));
  KILN_TRY(kiln_lower_want_choice(lw, p.rois, p.x->shape[0]));
  const kiln_expr *zero = kiln_int(lw->cx, 0);
  const kiln_symbol column = kiln_symbol_of(lw->cx, "e1"); // the first holds the image's number
  const kiln_expr *image =
      kiln_expr_substitute(lw->cx, kiln_lower_element(lw, p.rois), 1, &column, &zero);
  KILN_TRY(kiln_lower_want_index(lw, p.rois, 0, image, NULL, zero, p.x->shape[0]));
  KILN_TRY(kiln_lower_float(lw, "spatial_scale", 1, &p.scale));
  KILN_TRY(kiln_lower_ints(lw, "pooled_shape", &n, &p.bins));
  if (n != 2 || p.bins[0] < 1 || p.bins[1] < 1)
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                     "pooled_shape: must be two positive extents, got %d numbers", n < 0 ? 0 : n);
  const kiln_tensor *rows[] = {bounds(&p, 0, false), bounds(&p, 0, true)};
  const kiln_tensor *columns[] = {bounds(&p, 1, false), bounds(&p, 1, true)};
  lw->outputs[0] = over_rows(&p, rows, columns, over_columns(&p, columns));
  return KILN_OK;
}

const kiln_op kiln_op_max_roi_pool[] = {
    {"", "MaxRoiPool", 1, 0, lower_max_roi_pool, NULL, "ops/max_roi_pool.c"},
    {0},
};
