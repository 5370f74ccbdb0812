// NonMaxSuppression: round by round, the best box that is left is taken in every class of every
// batch, and what overlaps it leaves.
//
// One statement runs the rounds of a class in order, in a row of keys that it reads and writes: the
// scores of the boxes, as integers of which the least is the best, then the best one of each round,
// then its box. A round has three steps, each a pass over the boxes: the least key that is left,
// the first box that has it, and what it suppresses. No box is sorted, and rounds behind the last
// one that found a box are asked once whether they run, so that the work is that of the boxes
// taken, however many a model allows for. source: ONNX NonMaxSuppression-10, 11
#include "fission/data_dependent.h"
#include "fission/terms.h"

#include <math.h>

// A key of none, and that of a box that has been taken or suppressed: steps take the least of what
// is there and of what they find.
static const int64_t none = INT32_MAX, gone = INT32_MIN;

typedef struct suppression {
  kiln_lower *lw;
  const kiln_tensor *corners[4]; // (B, N): low y, low x, high y, high x
  const kiln_tensor *areas;      // (B, N)
  const kiln_tensor *keys;       // (B, C, N)
  const kiln_expr *threshold;    // of overlaps
  const kiln_expr *n_boxes;      // the most that N can be
  const kiln_expr *n_rounds;     // K
  const kiln_expr *limit;        // of the rounds, where only the run knows it; else NULL
  kiln_tensor *row;              // (B, C, N + 2 * (K + 1))
} suppression;

static kiln_stmt *over_boxes(const suppression *p, const char *name) {
  const kiln_expr *const *extents = (const kiln_expr *const *)p->lw->inputs[0]->shape;
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

// Those of empty boxes are -inf: what they have in common with another is no part of that.
static void find_areas(suppression *p) {
  kiln_ctx *cx = p->lw->cx;
  kiln_stmt *s = over_boxes(p, "area");
  const kiln_expr *at[] = {kiln_stmt_var(cx, s, 0), kiln_stmt_var(cx, s, 1)};
  const kiln_expr *area = kiln_mul(cx, kiln_sub(cx, corner(p, 2, at), corner(p, 0, at)),
                                   kiln_sub(cx, corner(p, 3, at), corner(p, 1, at)));
  s->body = kiln_select(cx, kiln_compare(cx, KILN_EXPR_GT, area, kiln_float(cx, KILN_F32, 0)), area,
                        kiln_float(cx, KILN_F32, (double)-INFINITY));
  p->areas = kiln_lower_tensor(p->lw, s);
}

// The lesser of two, and the greater; |b| where one is NaN, which spares what carries a NaN on.
static const kiln_expr *lesser(kiln_ctx *cx, const kiln_expr *a, const kiln_expr *b) {
  return kiln_select(cx, kiln_compare(cx, KILN_EXPR_LT, a, b), a, b);
}

static const kiln_expr *greater(kiln_ctx *cx, const kiln_expr *a, const kiln_expr *b) {
  return kiln_select(cx, kiln_compare(cx, KILN_EXPR_GT, a, b), a, b);
}

// Whether intersection / union of two boxes is above the threshold.
static const kiln_expr *overlap(const suppression *p, const kiln_expr *const a[2],
                                const kiln_expr *const b[2]) {
  kiln_ctx *cx = p->lw->cx;
  const kiln_expr *zero = kiln_float(cx, KILN_F32, 0), *common = NULL;
  for (int axis = 0; axis < 2; axis++) {
    const kiln_expr *high = lesser(cx, corner(p, axis + 2, a), corner(p, axis + 2, b));
    const kiln_expr *low = greater(cx, corner(p, axis, a), corner(p, axis, b));
    const kiln_expr *length = greater(cx, kiln_sub(cx, high, low), zero);
    common = common ? kiln_mul(cx, common, length) : length;
  }
  const kiln_expr *x = kiln_tensor_load(cx, p->areas, a), *y = kiln_tensor_load(cx, p->areas, b);
  const kiln_expr *all = kiln_sub(cx, kiln_add(cx, x, y), common);
  return kiln_compare(cx, KILN_EXPR_GT, kiln_binary(cx, KILN_EXPR_DIV, common, all), p->threshold);
}

static const kiln_expr *key(const suppression *p, int64_t value) {
  return kiln_number(p->lw->cx, KILN_I32, (double)value);
}

// The scores above the threshold as keys; NaN is no score.
static kiln_status find_keys(suppression *p) {
  kiln_ctx *cx = p->lw->cx;
  const kiln_tensor *scores = p->lw->inputs[1], *given = kiln_lower_in(p->lw, 4);
  const kiln_expr *least = NULL, *at[3];
  if (given) KILN_TRY(kiln_lower_scalar(p->lw, given, KILN_F32, "score_threshold", &least));
  kiln_stmt *s = kiln_lower_like(p->lw, "keys", scores, KILN_I32, at);
  const kiln_expr *score = kiln_tensor_load(cx, scores, at);
  const kiln_expr *counts =
      kiln_compare(cx, least ? KILN_EXPR_GT : KILN_EXPR_EQ, score, least ? least : score);
  s->body = kiln_select(cx, counts, kiln_unary(cx, KILN_EXPR_BNOT, kiln_order_key(cx, score)),
                        key(p, none));
  p->keys = kiln_lower_tensor(p->lw, s);
  return KILN_OK;
}

// --- the row of a class: its boxes' keys, then the key and then the box of each round ---

// Where round |k| finds the best key, and behind all rounds, its box. Round -1 is the one that lets
// the first begin.
static const kiln_expr *best_column(const suppression *p, const kiln_expr *k) {
  kiln_ctx *cx = p->lw->cx;
  return kiln_add(cx, kiln_add(cx, k, kiln_int(cx, 1)), p->n_boxes);
}

static const kiln_expr *box_column(const suppression *p, const kiln_expr *k) {
  kiln_ctx *cx = p->lw->cx;
  const kiln_expr *all = kiln_add(cx, p->n_rounds, kiln_int(cx, 1));
  return kiln_add(cx, best_column(p, k), all);
}

static const kiln_expr *load_row(const suppression *p, const kiln_expr *b, const kiln_expr *c,
                                 const kiln_expr *column) {
  const kiln_expr *at[] = {b, c, column};
  return kiln_tensor_load(p->lw->cx, p->row, at);
}

// The row as it is before the first round.
static const kiln_expr *first_row(const suppression *p, const kiln_expr *const o[3]) {
  kiln_ctx *cx = p->lw->cx;
  const kiln_expr *one = kiln_int(cx, 1), *extent = p->keys->shape[2];
  const kiln_expr *at[] = {o[0], o[1], kiln_least(cx, o[2], kiln_sub(cx, p->n_boxes, one))};
  const kiln_expr *own = kiln_tensor_load(cx, p->keys, at);
  if (extent != p->n_boxes) // only the run knows how many there are
    own = kiln_select(cx, kiln_compare(cx, KILN_EXPR_LT, o[2], extent), own, key(p, none));
  const kiln_expr *is_box = kiln_compare(cx, KILN_EXPR_LT, o[2], p->n_boxes);
  const kiln_expr *begins = kiln_compare(cx, KILN_EXPR_LT, o[2], kiln_add(cx, p->n_boxes, one));
  return kiln_select(cx, is_box, own, kiln_select(cx, begins, key(p, gone), key(p, none)));
}

static void run_rounds(suppression *p) {
  kiln_ctx *cx = p->lw->cx;
  enum { B, C, K, STEP, N };
  const kiln_expr *const *scores = (const kiln_expr *const *)p->lw->inputs[1]->shape;
  const kiln_expr *one = kiln_int(cx, 1), *two = kiln_int(cx, 2), *v[5], *o[3];
  const kiln_expr *more = kiln_mul(cx, kiln_add(cx, p->n_rounds, one), two);
  const kiln_expr *shape[] = {scores[0], scores[1],
                              kiln_lower_tidy(cx, kiln_add(cx, p->n_boxes, more))};
  const kiln_expr *extents[] = {scores[0], scores[1], p->n_rounds, kiln_int(cx, 3), scores[2]};
  kiln_stmt *s = kiln_lower_scatter_new(p->lw, "rounds", KILN_I32, 3, shape, 2, 3, extents, o);
  kiln_stmt_vars(cx, s, 0, 5, v);
  p->row = kiln_lower_tensor(p->lw, s);
  s->init = first_row(p, o);
  const kiln_expr *finds = kiln_compare(cx, KILN_EXPR_LT, v[STEP], one),
                  *places = kiln_compare(cx, KILN_EXPR_LT, v[STEP], two);
  s->index[0] = v[B];
  s->index[1] = v[C];
  s->index[2] = kiln_select(cx, finds, best_column(p, v[K]),
                            kiln_select(cx, places, box_column(p, v[K]), v[N]));
  s->combiner = KILN_COMBINE_MIN;
  // A round begins where the one before has found a box, and goes on where it finds one itself.
  const kiln_expr *before = kiln_sub(cx, kiln_add(cx, v[K], kiln_least(cx, v[STEP], one)), one);
  s->guard =
      kiln_compare(cx, KILN_EXPR_LT, load_row(p, v[B], v[C], best_column(p, before)), key(p, none));
  if (p->limit) s->guard = kiln_both(cx, s->guard, kiln_compare(cx, KILN_EXPR_LT, v[K], p->limit));
  const kiln_expr *own = load_row(p, v[B], v[C], v[N]), *place = kiln_cast(cx, KILN_I32, v[N]);
  const kiln_expr *is_left = kiln_compare(cx, KILN_EXPR_NE, own, key(p, gone));
  const kiln_expr *best = load_row(p, v[B], v[C], best_column(p, v[K]));
  const kiln_expr *is_best = kiln_compare(cx, KILN_EXPR_EQ, own, best);
  const kiln_expr *box = load_row(p, v[B], v[C], box_column(p, v[K]));
  const kiln_expr *taken[] = {v[B], kiln_cast(cx, KILN_I64, box)}, *other[] = {v[B], v[N]};
  const kiln_expr *goes = kiln_binary(cx, KILN_EXPR_OR, kiln_compare(cx, KILN_EXPR_EQ, place, box),
                                      overlap(p, taken, other));
  const kiln_expr *steps[] = {kiln_select(cx, is_left, own, key(p, none)),
                              kiln_select(cx, is_best, place, key(p, none)),
                              kiln_select(cx, goes, key(p, gone), key(p, none))};
  s->body = kiln_select(cx, finds, steps[0], kiln_select(cx, places, steps[1], steps[2]));
}

// How many rounds there are at most.
static kiln_status count_rounds(suppression *p) {
  kiln_lower *lw = p->lw;
  kiln_ctx *cx = lw->cx;
  const kiln_tensor *given = kiln_lower_in(lw, 2);
  const kiln_expr *limit = kiln_int(cx, 0);
  int64_t n = 0;
  p->n_boxes = kiln_lower_upper_bound(lw, lw->inputs[0]->shape[1]);
  if (!p->n_boxes)
    return KILN_FAIL(cx->diag, KILN_UNSUPPORTED, lw->place,
                     "boxes: the most that there may be must be known when compiling");
  if (given) KILN_TRY(kiln_lower_scalar(lw, given, KILN_I64, "max_output_boxes_per_class", &limit));
  p->n_rounds = p->n_boxes;
  if (!kiln_expr_is_int(limit, &n)) p->limit = limit;
  else
    p->n_rounds = n > 0 ? kiln_lower_tidy(cx, kiln_least(cx, limit, p->n_boxes)) : kiln_int(cx, 0);
  return KILN_OK;
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

// How many boxes were taken in each class of each batch: i64 (B * C).
static kiln_tensor *count_taken(const suppression *p) {
  kiln_ctx *cx = p->lw->cx;
  const kiln_expr *extents[] = {p->row->shape[0], p->row->shape[1], p->n_rounds}, *v[3];
  kiln_stmt *s = kiln_lower_stmt(p->lw, "taken", KILN_I64, 2, 1, extents);
  kiln_stmt_vars(cx, s, 0, 3, v);
  const kiln_expr *best = load_row(p, v[0], v[1], best_column(p, v[2]));
  s->combiner = KILN_COMBINE_SUM;
  s->body = kiln_select(cx, kiln_compare(cx, KILN_EXPR_LT, best, key(p, none)), kiln_int(cx, 1),
                        kiln_int(cx, 0));
  const kiln_expr *n = kiln_lower_tidy(cx, kiln_multiply_all(cx, 2, extents));
  return kiln_lower_reshape(p->lw, kiln_lower_tensor(p->lw, s), 1, &n);
}

// The numbers, class by class, of the rounds that took a box: i64, as many as the run counts.
static kiln_status list_rounds(const suppression *p, const kiln_tensor **out) {
  kiln_ctx *cx = p->lw->cx;
  kiln_tensor *taken = count_taken(p), *places = NULL, *count = NULL;
  const kiln_expr *extents[] = {taken->shape[0], p->n_rounds}, *n = NULL, *v[2], *o[1];
  const kiln_expr *most = kiln_lower_tidy(cx, kiln_multiply_all(cx, 2, extents));
  kiln_lower_prefix_counts(p->lw, taken, &places, &count);
  KILN_TRY(kiln_lower_data_dependent_extent(p->lw, count, most, &n));
  kiln_stmt *s = kiln_lower_scatter_new(p->lw, "listed", KILN_I64, 1, &n, 2, 0, extents, o);
  kiln_stmt_vars(cx, s, 0, 2, v);
  s->init = kiln_int(cx, 0);
  s->index[0] = kiln_add(cx, kiln_tensor_load(cx, places, v), v[1]);
  s->guard = kiln_compare(cx, KILN_EXPR_LT, v[1], kiln_tensor_load(cx, taken, v));
  s->body = kiln_add(cx, kiln_mul(cx, v[0], p->n_rounds), v[1]);
  *out = kiln_lower_tensor(p->lw, s);
  return KILN_OK;
}

// Rows of batch, class and box.
static void list_boxes(const suppression *p, const kiln_tensor *listed) {
  kiln_ctx *cx = p->lw->cx;
  const kiln_expr *extents[] = {listed->shape[0], kiln_int(cx, 3)}, *v[2];
  kiln_stmt *s = kiln_lower_stmt(p->lw, NULL, KILN_I64, 2, 0, extents);
  kiln_stmt_vars(cx, s, 0, 2, v);
  const kiln_expr *number = kiln_tensor_load(cx, listed, v);
  const kiln_expr *outer = kiln_div(cx, number, p->n_rounds), *classes = p->row->shape[1];
  const kiln_expr *batch = kiln_div(cx, outer, classes), *c = kiln_mod(cx, outer, classes);
  const kiln_expr *box = load_row(p, batch, c, box_column(p, kiln_mod(cx, number, p->n_rounds)));
  const kiln_expr *is_class = kiln_compare(cx, KILN_EXPR_EQ, v[1], kiln_int(cx, 1));
  const kiln_expr *is_batch = kiln_compare(cx, KILN_EXPR_EQ, v[1], kiln_int(cx, 0));
  s->body =
      kiln_select(cx, is_batch, batch, kiln_select(cx, is_class, c, kiln_cast(cx, KILN_I64, box)));
  p->lw->outputs[0] = kiln_lower_tensor(p->lw, s);
}

static void list_nothing(kiln_lower *lw) {
  const kiln_expr *extents[] = {kiln_int(lw->cx, 0), kiln_int(lw->cx, 3)};
  kiln_stmt *s = kiln_lower_stmt(lw, NULL, KILN_I64, 2, 0, extents);
  s->body = kiln_int(lw->cx, 0);
  lw->outputs[0] = kiln_lower_tensor(lw, s);
}

static kiln_status lower_non_max_suppression(kiln_lower *lw) {
  suppression p = {.lw = lw, .threshold = kiln_float(lw->cx, KILN_F32, 0)};
  const kiln_tensor *threshold = kiln_lower_in(lw, 3), *listed = NULL;
  int64_t centered = 0;
  KILN_TRY(check(lw));
  KILN_TRY(kiln_lower_int(lw, "center_point_box", 0, &centered));
  if (threshold)
    KILN_TRY(kiln_lower_scalar(lw, threshold, KILN_F32, "iou_threshold", &p.threshold));
  KILN_TRY(count_rounds(&p));
  if (kiln_expr_is(p.n_rounds, 0)) return list_nothing(lw), KILN_OK;
  for (int k = 0; k < 4; k++) find_corner(&p, k, centered != 0);
  find_areas(&p);
  KILN_TRY(find_keys(&p));
  run_rounds(&p);
  KILN_TRY(list_rounds(&p, &listed));
  list_boxes(&p, listed);
  return KILN_OK;
}

const kiln_op kiln_op_non_max_suppression[] = {
    {"", "NonMaxSuppression", 10, 0, lower_non_max_suppression, NULL, "ops/non_max_suppression.c"},
    {0},
};
