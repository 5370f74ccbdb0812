// GridSample over any number of spatial axes: one statement computes the coordinates, one sums the
// taps around them, each a load at a computed place. source: ONNX GridSample-16, 20, 22
#include "fission/terms.h"

#include <string.h>

typedef enum interpolation { NEAREST, LINEAR, CUBIC } interpolation;
typedef enum padding { ZEROS, BORDER, REFLECTION } padding;

typedef struct sampler {
  kiln_lower *lw;
  const kiln_tensor *x, *grid; // (N, C, in...), (N, out..., n)
  int n;                       // spatial axes
  interpolation mode;
  padding padding;
  bool align_corners;
  kiln_dtype t; // of the arithmetic
} sampler;

static const kiln_expr *number(const sampler *g, double v) {
  return kiln_float(g->lw->cx, g->t, v);
}

static kiln_status read_sampler(kiln_lower *lw, sampler *out) {
  const char *mode = NULL, *pads = NULL;
  int64_t align = 0;
  KILN_TRY(kiln_lower_want_inputs(lw, 2, 2));
  KILN_TRY(kiln_lower_want_dtype(lw, 0, kiln_dtype_is_float, "a float"));
  KILN_TRY(kiln_lower_want_dtype(lw, 1, kiln_dtype_is_float, "a float"));
  KILN_TRY(kiln_lower_string(lw, "mode", "linear", &mode));
  KILN_TRY(kiln_lower_string(lw, "padding_mode", "zeros", &pads));
  KILN_TRY(kiln_lower_int(lw, "align_corners", 0, &align));
  const bool nearest = !strcmp(mode, "nearest");
  const bool linear = !strcmp(mode, "linear") || !strcmp(mode, "bilinear");
  const bool cubic = !strcmp(mode, "cubic") || !strcmp(mode, "bicubic");
  const bool zeros = !strcmp(pads, "zeros"), border = !strcmp(pads, "border");
  if (!(nearest || linear || cubic) || !(zeros || border || !strcmp(pads, "reflection")))
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                     "mode and padding_mode must be known ones, got %s and %s", mode, pads);
  *out = (sampler){.lw = lw,
                   .x = lw->inputs[0],
                   .grid = lw->inputs[1],
                   .n = lw->inputs[0]->rank - 2,
                   .mode = nearest  ? NEAREST
                           : linear ? LINEAR
                                    : CUBIC,
                   .padding = zeros    ? ZEROS
                              : border ? BORDER
                                       : REFLECTION,
                   .align_corners = align != 0,
                   .t = kiln_accumulator(lw->inputs[1]->dtype)};
  KILN_TRY(kiln_lower_want_rank(lw, out->x, 3, 5));
  KILN_TRY(kiln_lower_want_rank(lw, out->grid, out->x->rank, out->x->rank));
  KILN_TRY(kiln_lower_want_extent(lw, out->grid, 0, out->x->shape[0]));
  for (int i = 0; i < out->n; i++)
    KILN_TRY(kiln_lower_want_choice(lw, out->grid, out->x->shape[2 + i]));
  int64_t n = 0;
  KILN_TRY(kiln_lower_extent(lw, out->grid, out->grid->rank - 1, &n));
  if (n == out->n) return KILN_OK;
  return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                   "grid: the last axis must have extent %d, got %" PRId64, out->n, n);
}

static const kiln_expr *extent_of(const sampler *g, int axis) {
  return kiln_cast(g->lw->cx, g->t, g->x->shape[2 + axis]);
}

// |v| mirrored into [low, high], whichever side it lies on.
static const kiln_expr *reflected(const sampler *g, int axis, const kiln_expr *v) {
  kiln_ctx *cx = g->lw->cx;
  const kiln_expr *low = number(g, g->align_corners ? 0 : -0.5);
  const kiln_expr *span = kiln_sub(cx, extent_of(g, axis), number(g, g->align_corners ? 1 : 0));
  const kiln_expr *period = kiln_mul(cx, span, number(g, 2));
  const kiln_expr *u = kiln_mod(cx, kiln_sub(cx, v, low), period);
  const kiln_expr *back = kiln_add(cx, low, kiln_least(cx, u, kiln_sub(cx, period, u)));
  if (!g->align_corners) return back;
  // One element has no span to be mirrored in.
  const kiln_expr *wide = kiln_compare(cx, KILN_EXPR_GT, span, number(g, 0));
  return kiln_select(cx, wide, back, number(g, 0));
}

static const kiln_expr *bordered(const sampler *g, int axis, const kiln_expr *v) {
  kiln_ctx *cx = g->lw->cx;
  const kiln_expr *last = kiln_sub(cx, extent_of(g, axis), number(g, 1));
  return kiln_most(cx, number(g, 0), kiln_least(cx, v, last));
}

// The coordinate along |axis| in elements, mapped into the input where the padding says so.
static const kiln_tensor *coordinate(const sampler *g, int axis) {
  kiln_ctx *cx = g->lw->cx;
  const kiln_expr *at[KILN_MAX_RANK];
  kiln_stmt *s = kiln_lower_stmt(g->lw, "grid_place", g->t, 1 + g->n, 0, g->grid->shape);
  kiln_stmt_vars(cx, s, 0, 1 + g->n, at);
  at[1 + g->n] = kiln_int(cx, g->n - 1 - axis); // x first
  const kiln_expr *v = kiln_cast(cx, g->t, kiln_tensor_load(cx, g->grid, at));
  const kiln_expr *half = kiln_div(cx, kiln_add(cx, v, number(g, 1)), number(g, 2));
  if (g->align_corners) v = kiln_mul(cx, half, kiln_sub(cx, extent_of(g, axis), number(g, 1)));
  else v = kiln_sub(cx, kiln_mul(cx, half, extent_of(g, axis)), number(g, 0.5));
  if (g->mode == NEAREST) v = kiln_unary(cx, KILN_EXPR_ROUND, v);
  // The taps of cubic are mapped one by one, not their centre.
  if (g->mode != CUBIC && g->padding == BORDER) v = bordered(g, axis, v);
  if (g->mode != CUBIC && g->padding == REFLECTION) v = reflected(g, axis, v);
  s->body = v;
  return kiln_lower_tensor(g->lw, s);
}

// The weight of the tap |k| places from floor(v), where v = floor(v) + |r|.
static const kiln_expr *tap_weight(const sampler *g, int k, const kiln_expr *r) {
  const double a = -0.75;
  kiln_ctx *cx = g->lw->cx;
  if (g->mode == NEAREST) return number(g, 1);
  if (g->mode == LINEAR) return k ? r : kiln_sub(cx, number(g, 1), r);
  const kiln_expr *d = k > 0 ? kiln_sub(cx, number(g, k), r) : kiln_add(cx, r, number(g, -k));
  const bool near = k == 0 || k == 1;
  const double c[4] = {near ? a + 2 : a, near ? -(a + 3) : -5 * a, near ? 0 : 8 * a,
                       near ? 1 : -4 * a};
  const kiln_expr *sum = number(g, c[0]);
  for (int i = 1; i < 4; i++) sum = kiln_add(cx, kiln_mul(cx, sum, d), number(g, c[i]));
  return sum;
}

// The place of a tap along |axis|, always inside; *inside gathers when it is not mapped there.
static const kiln_expr *tap_place(const sampler *g, int axis, int k, const kiln_expr *base,
                                  const kiln_expr **inside) {
  kiln_ctx *cx = g->lw->cx;
  const kiln_expr *v = kiln_add(cx, base, number(g, k)), *zero = kiln_int(cx, 0);
  if (g->padding == REFLECTION) v = reflected(g, axis, v);
  const kiln_expr *i = kiln_cast(cx, KILN_I64, kiln_unary(cx, KILN_EXPR_ROUND, v));
  const kiln_expr *extent = g->x->shape[2 + axis];
  if (g->padding != ZEROS)
    return kiln_most(cx, zero, kiln_least(cx, i, kiln_sub(cx, extent, kiln_int(cx, 1))));
  *inside = kiln_both(cx, *inside, kiln_compare(cx, KILN_EXPR_GE, i, zero));
  *inside = kiln_both(cx, *inside, kiln_compare(cx, KILN_EXPR_LT, i, extent));
  return i;
}

// The sum over all taps: |tap| counts through the places along every axis.
static const kiln_expr *tap_sum(const sampler *g, const kiln_expr *const *v,
                                const kiln_expr *const *at_grid, const kiln_tensor **places) {
  kiln_ctx *cx = g->lw->cx;
  const int width = g->mode == NEAREST ? 1 : g->mode == LINEAR ? 2 : 4;
  const int first = g->mode == CUBIC ? -1 : 0;
  int n_taps = 1;
  for (int i = 0; i < g->n; i++) n_taps *= width;
  const kiln_expr *sum = NULL;
  for (int tap = 0; tap < n_taps; tap++) {
    const kiln_expr *at[KILN_MAX_RANK] = {v[0], v[1]}, *inside = NULL, *weight = NULL;
    for (int i = g->n - 1, rest = tap; i >= 0; i--, rest /= width) {
      const int k = rest % width + first;
      const kiln_expr *place = kiln_tensor_load(cx, places[i], at_grid);
      const kiln_expr *base = kiln_unary(cx, KILN_EXPR_FLOOR, place);
      const kiln_expr *w = tap_weight(g, k, kiln_sub(cx, place, base));
      at[2 + i] = tap_place(g, i, k, base, &inside);
      weight = weight ? kiln_mul(cx, weight, w) : w;
    }
    const kiln_expr *value = kiln_cast(cx, g->t, kiln_tensor_load(cx, g->x, at));
    if (inside) value = kiln_select(cx, inside, value, number(g, 0));
    if (g->mode != NEAREST) value = kiln_mul(cx, weight, value);
    sum = sum ? kiln_add(cx, sum, value) : value;
  }
  return sum;
}

static kiln_status lower_grid_sample(kiln_lower *lw) {
  kiln_ctx *cx = lw->cx;
  sampler g;
  KILN_TRY(read_sampler(lw, &g));
  const kiln_tensor *places[KILN_MAX_RANK];
  for (int i = 0; i < g.n; i++) places[i] = coordinate(&g, i);
  const kiln_expr *extents[KILN_MAX_RANK] = {g.x->shape[0], g.x->shape[1]};
  const kiln_expr *v[KILN_MAX_RANK], *at_grid[KILN_MAX_RANK];
  for (int i = 0; i < g.n; i++) extents[2 + i] = g.grid->shape[1 + i];
  kiln_stmt *s = kiln_lower_stmt(lw, "grid_sample", g.x->dtype, 2 + g.n, 0, extents);
  kiln_stmt_vars(cx, s, 0, 2 + g.n, v);
  at_grid[0] = v[0];
  for (int i = 0; i < g.n; i++) at_grid[1 + i] = v[2 + i];
  s->body = kiln_cast(cx, g.x->dtype, tap_sum(&g, v, at_grid, places));
  lw->outputs[0] = kiln_lower_tensor(lw, s);
  return KILN_OK;
}

const kiln_op kiln_op_grid_sample[] = {
    {"", "GridSample", 16, 0, lower_grid_sample, NULL, "ops/grid_sample.c"},
    {0},
};
