// NonMaxSuppression: round by round, the best box that is left is taken in every class of every batch, and what
// overlaps it leaves. The rounds are unrolled; what the run took is counted behind them.
// source: ONNX NonMaxSuppression-10, 11
#include "fission/counts.h"
#include "fission/terms.h"
#include "fission/walk.h"

#include <math.h>

enum { MAX_ROUNDS = 1024 };

typedef struct suppression {
  kiln_lower *lw;
  const kiln_tensor *corners[4]; // (B, N): low y, low x, high y, high x
  const kiln_tensor *areas;      // (B, N)
  kiln_tensor *left;             // (B, C, N): the scores of boxes that are left, else -inf
  const kiln_expr *threshold;
} suppression;

static kiln_stmt *over_boxes(const suppression *p, const char *name) {
  const kiln_expr *extents[] = {p->lw->inputs[0]->shape[0], p->lw->inputs[0]->shape[1]};
  return kiln_lower_stmt(p->lw, name, KILN_F32, 2, 0, extents);
}

// Coordinate |k| of a box: of two corners in any order, or of a centre and extents.
static const kiln_expr *coordinate(const suppression *p, const kiln_stmt *s, int64_t k) {
  kiln_ctx *cx = p->lw->cx;
  const kiln_expr *at[] = {kiln_stmt_var(cx, s, 0), kiln_stmt_var(cx, s, 1), kiln_int(cx, k)};
  return kiln_tensor_load(cx, p->lw->inputs[0], at);
}

static void find_corner(suppression *p, int k, bool centered) {
  kiln_ctx *cx = p->lw->cx;
  kiln_stmt *s = over_boxes(p, "corner");
  const int axis = k % 2;
  const bool is_high = k >= 2;
  if (centered) { // x, y, width, height
    const kiln_expr *half =
        kiln_binary(cx, KILN_EXPR_DIV, coordinate(p, s, 3 - axis), kiln_float(cx, KILN_F32, 2));
    const kiln_expr *centre = coordinate(p, s, 1 - axis);
    s->body = is_high ? kiln_add(cx, centre, half) : kiln_sub(cx, centre, half);
  } else { // y, x, y, x
    s->body = kiln_binary(cx, is_high ? KILN_EXPR_MAX : KILN_EXPR_MIN, coordinate(p, s, axis),
                          coordinate(p, s, axis + 2));
  }
  p->corners[k] = kiln_lower_tensor(p->lw, s);
}

static const kiln_expr *corner(const suppression *p, int k, const kiln_expr *const at[2]) {
  return kiln_tensor_load(p->lw->cx, p->corners[k], at);
}

static void find_areas(suppression *p) {
  kiln_ctx *cx = p->lw->cx;
  kiln_stmt *s = over_boxes(p, "area");
  const kiln_expr *at[] = {kiln_stmt_var(cx, s, 0), kiln_stmt_var(cx, s, 1)};
  s->body = kiln_mul(cx, kiln_sub(cx, corner(p, 2, at), corner(p, 0, at)),
                     kiln_sub(cx, corner(p, 3, at), corner(p, 1, at)));
  p->areas = kiln_lower_tensor(p->lw, s);
}

// Whether intersection / union of two boxes is above the threshold; empty boxes meet nothing.
static const kiln_expr *overlap(const suppression *p, const kiln_expr *const a[2],
                                const kiln_expr *const b[2]) {
  kiln_ctx *cx = p->lw->cx;
  const kiln_expr *zero = kiln_float(cx, KILN_F32, 0), *common = NULL;
  for (int axis = 0; axis < 2; axis++) {
    const kiln_expr *high = kiln_least(cx, corner(p, axis + 2, a), corner(p, axis + 2, b));
    const kiln_expr *low = kiln_most(cx, corner(p, axis, a), corner(p, axis, b));
    const kiln_expr *length = kiln_most(cx, kiln_sub(cx, high, low), zero);
    common = common ? kiln_mul(cx, common, length) : length;
  }
  const kiln_expr *x = kiln_tensor_load(cx, p->areas, a), *y = kiln_tensor_load(cx, p->areas, b);
  const kiln_expr *all = kiln_sub(cx, kiln_add(cx, x, y), common);
  const kiln_expr *ratio = kiln_binary(cx, KILN_EXPR_DIV, common, all);
  const kiln_expr *is_full = kiln_both(cx, kiln_compare(cx, KILN_EXPR_GT, x, zero),
                                       kiln_compare(cx, KILN_EXPR_GT, y, zero));
  return kiln_both(cx, is_full, kiln_compare(cx, KILN_EXPR_GT, ratio, p->threshold));
}

static const kiln_expr *lowest(const suppression *p) {
  return kiln_float(p->lw->cx, KILN_F32, (double)-INFINITY);
}

// The scores above the threshold; -inf is none, and NaN is no score.
static kiln_status begin(suppression *p) {
  kiln_ctx *cx = p->lw->cx;
  const kiln_tensor *scores = p->lw->inputs[1], *given = kiln_lower_in(p->lw, 4);
  const kiln_expr *least = lowest(p), *at[3];
  if (given) KILN_TRY(kiln_lower_scalar(p->lw, given, KILN_F32, "score_threshold", &least));
  kiln_stmt *s = kiln_lower_like(p->lw, "left", scores, KILN_F32, at);
  const kiln_expr *score = kiln_tensor_load(cx, scores, at);
  s->body = kiln_select(cx, kiln_compare(cx, KILN_EXPR_GT, score, least), score, lowest(p));
  p->left = kiln_lower_tensor(p->lw, s);
  return KILN_OK;
}

// The best score that is left (B, C), and the first box that has it.
static void take_best(suppression *p, kiln_tensor **out_best, kiln_tensor **out_box) {
  kiln_ctx *cx = p->lw->cx;
  const kiln_expr *const *extents = (const kiln_expr *const *)p->left->shape;
  const kiln_expr *at[3];
  kiln_stmt *s = kiln_lower_stmt(p->lw, "best", KILN_F32, 2, 1, extents);
  kiln_stmt_vars(cx, s, 0, 3, at);
  s->combiner = KILN_COMBINE_MAX;
  s->body = kiln_tensor_load(cx, p->left, at);
  *out_best = kiln_lower_tensor(p->lw, s);
  s = kiln_lower_stmt(p->lw, "box", KILN_I64, 2, 1, extents);
  kiln_stmt_vars(cx, s, 0, 3, at);
  const kiln_expr *is_best = kiln_compare(cx, KILN_EXPR_EQ, kiln_tensor_load(cx, p->left, at),
                                          kiln_tensor_load(cx, *out_best, at));
  const kiln_expr *last = kiln_sub(cx, extents[2], kiln_int(cx, 1));
  s->combiner = KILN_COMBINE_MIN;
  s->body = kiln_select(cx, is_best, at[2], last);
  *out_box = kiln_lower_tensor(p->lw, s);
}

static void suppress(suppression *p, const kiln_tensor *box) {
  kiln_ctx *cx = p->lw->cx;
  const kiln_expr *at[3];
  kiln_stmt *s = kiln_lower_like(p->lw, "left", p->left, KILN_F32, at);
  const kiln_expr *taken[] = {at[0], kiln_tensor_load(cx, box, at)}, *own[] = {at[0], at[2]};
  const kiln_expr *goes = kiln_binary(
      cx, KILN_EXPR_OR, kiln_compare(cx, KILN_EXPR_EQ, at[2], taken[1]), overlap(p, taken, own));
  s->body = kiln_select(cx, goes, lowest(p), kiln_tensor_load(cx, p->left, at));
  p->left = kiln_lower_tensor(p->lw, s);
}

// How many rounds there are; *out_limit is how many of them count, where only the run knows it.
static kiln_status count_rounds(kiln_lower *lw, int64_t *out, const kiln_expr **out_limit) {
  const kiln_tensor *given = kiln_lower_in(lw, 2);
  const kiln_expr *limit = kiln_int(lw->cx, 0),
                  *most = kiln_lower_most(lw, lw->inputs[0]->shape[1]);
  int64_t n = INT64_MAX;
  *out_limit = NULL;
  if (given) KILN_TRY(kiln_lower_scalar(lw, given, KILN_I64, "max_output_boxes_per_class", &limit));
  if (!kiln_expr_is_int(limit, out)) {
    *out_limit = limit;
    *out = INT64_MAX;
  }
  if (most) (void)kiln_expr_is_int(most, &n);
  if (*out > n) *out = n;
  if (*out < 0) *out = 0;
  if (*out <= MAX_ROUNDS) return KILN_OK;
  return KILN_FAIL(lw->cx->diag, KILN_UNSUPPORTED, lw->place,
                   "boxes: at most %d of a class must be to be taken, got %" PRId64, MAX_ROUNDS,
                   *out);
}

static kiln_status check(kiln_lower *lw) {
  KILN_TRY(kiln_lower_want_inputs(lw, 2, 5));
  const kiln_tensor *boxes = lw->inputs[0], *scores = lw->inputs[1];
  KILN_TRY(kiln_lower_want_rank(lw, boxes, 3, 3));
  KILN_TRY(kiln_lower_want_rank(lw, scores, 3, 3));
  KILN_TRY(kiln_lower_want_extent(lw, boxes, 2, kiln_int(lw->cx, 4)));
  KILN_TRY(kiln_lower_want_extent(lw, scores, 0, boxes->shape[0]));
  KILN_TRY(kiln_lower_want_extent(lw, scores, 2, boxes->shape[1]));
  if (boxes->dtype == KILN_F32 && scores->dtype == KILN_F32) return KILN_OK;
  return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                   "boxes and scores: must be f32, got %s and %s", kiln_dtype_text(boxes->dtype),
                   kiln_dtype_text(scores->dtype));
}

// 1 for each box (B, C, K) that was taken, in a row.
static kiln_tensor *flags_of(kiln_lower *lw, const kiln_tensor *best, const kiln_expr *limit) {
  kiln_ctx *cx = lw->cx;
  const kiln_expr *at[3];
  kiln_stmt *s = kiln_lower_like(lw, "flags", best, KILN_I64, at);
  const kiln_expr *is = kiln_compare(cx, KILN_EXPR_GT, kiln_tensor_load(cx, best, at),
                                     kiln_float(cx, KILN_F32, (double)-INFINITY));
  if (limit) is = kiln_both(cx, is, kiln_compare(cx, KILN_EXPR_LT, at[2], limit));
  s->body = kiln_select(cx, is, kiln_int(cx, 1), kiln_int(cx, 0));
  const kiln_expr *n = kiln_product(cx, 3, (const kiln_expr *const *)best->shape);
  n = kiln_lower_tidy(cx, n);
  return kiln_lower_reshape(lw, kiln_lower_tensor(lw, s), 1, &n);
}

// Rows of batch, class and box.
static void list_boxes(kiln_lower *lw, const kiln_tensor *boxes, const kiln_tensor *rows) {
  kiln_ctx *cx = lw->cx;
  const kiln_expr *extents[] = {rows->shape[0], kiln_int(cx, 3)};
  const kiln_expr *classes = boxes->shape[1], *rounds = boxes->shape[2];
  kiln_stmt *s = kiln_lower_stmt(lw, NULL, KILN_I64, 2, 0, extents);
  const kiln_expr *i = kiln_stmt_var(cx, s, 0), *column = kiln_stmt_var(cx, s, 1);
  const kiln_expr *row = kiln_tensor_load(cx, rows, &i), *outer = kiln_div(cx, row, rounds);
  const kiln_expr *at[] = {kiln_div(cx, outer, classes), kiln_mod(cx, outer, classes),
                           kiln_mod(cx, row, rounds)};
  const kiln_expr *box = kiln_tensor_load(cx, boxes, at);
  const kiln_expr *is_class = kiln_compare(cx, KILN_EXPR_EQ, column, kiln_int(cx, 1));
  const kiln_expr *is_batch = kiln_compare(cx, KILN_EXPR_EQ, column, kiln_int(cx, 0));
  s->body = kiln_select(cx, is_batch, at[0], kiln_select(cx, is_class, at[1], box));
  lw->outputs[0] = kiln_lower_tensor(lw, s);
}

static void list_nothing(kiln_lower *lw) {
  const kiln_expr *extents[] = {kiln_int(lw->cx, 0), kiln_int(lw->cx, 3)};
  kiln_stmt *s = kiln_lower_stmt(lw, NULL, KILN_I64, 2, 0, extents);
  s->body = kiln_int(lw->cx, 0);
  lw->outputs[0] = kiln_lower_tensor(lw, s);
}

static kiln_status lower_non_max_suppression(kiln_lower *lw) {
  kiln_ctx *cx = lw->cx;
  suppression p = {.lw = lw, .threshold = kiln_float(cx, KILN_F32, 0)};
  const kiln_tensor *threshold = kiln_lower_in(lw, 3);
  const kiln_expr *limit = NULL;
  int64_t centered = 0, n = 0;
  kiln_tensor *best[MAX_ROUNDS], *box[MAX_ROUNDS], *all_best = NULL, *all_boxes = NULL,
                                                   *rows = NULL;
  KILN_TRY(check(lw));
  KILN_TRY(kiln_lower_int(lw, "center_point_box", 0, &centered));
  if (threshold)
    KILN_TRY(kiln_lower_scalar(lw, threshold, KILN_F32, "iou_threshold", &p.threshold));
  KILN_TRY(count_rounds(lw, &n, &limit));
  if (n == 0) return list_nothing(lw), KILN_OK;
  for (int k = 0; k < 4; k++) find_corner(&p, k, centered != 0);
  find_areas(&p);
  KILN_TRY(begin(&p));
  for (int64_t k = 0; k < n; k++) {
    take_best(&p, &best[k], &box[k]);
    if (k + 1 < n) suppress(&p, box[k]);
  }
  KILN_TRY(kiln_lower_stack(lw, (int)n, best, 2, &all_best));
  KILN_TRY(kiln_lower_stack(lw, (int)n, box, 2, &all_boxes));
  KILN_TRY(kiln_lower_rows(lw, flags_of(lw, all_best, limit), &rows));
  list_boxes(lw, all_boxes, rows);
  return KILN_OK;
}

const kiln_op kiln_op_non_max_suppression[] = {
    {"", "NonMaxSuppression", 10, 0, lower_non_max_suppression, NULL, "ops/non_max_suppression.c"},
    {0},
};
