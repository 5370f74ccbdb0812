// GridSample over any number of spatial axes: one statement computes the coordinates, one sums the
// taps around them, each a load at a computed place. source: ONNX GridSample-16, 20, 22
#include "fission/taps.h"

#include <string.h>

typedef struct sampler {
  kiln_taps taps;
  const kiln_tensor *grid; // (N, out..., n)
} sampler;

static const kiln_expr *number(const kiln_taps *g, double v) {
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
  *out = (sampler){.grid = lw->inputs[1],
                   .taps = {.lw = lw,
                            .x = lw->inputs[0],
                            .n = lw->inputs[0]->rank - 2,
                            .mode = nearest  ? KILN_TAPS_NEAREST
                                    : linear ? KILN_TAPS_LINEAR
                                             : KILN_TAPS_CUBIC,
                            .outside = zeros    ? KILN_OUTSIDE_ZEROS
                                       : border ? KILN_OUTSIDE_BORDER
                                                : KILN_OUTSIDE_REFLECTION,
                            .align_corners = align != 0,
                            .t = kiln_accumulator(lw->inputs[1]->dtype)}};
  const kiln_tensor *x = out->taps.x;
  KILN_TRY(kiln_lower_want_rank(lw, x, 3, 5));
  KILN_TRY(kiln_lower_want_rank(lw, out->grid, x->rank, x->rank));
  KILN_TRY(kiln_lower_want_extent(lw, out->grid, 0, x->shape[0]));
  for (int i = 0; i < out->taps.n && !zeros; i++)
    KILN_TRY(kiln_lower_want_choice(lw, out->grid, x->shape[2 + i]));
  int64_t n = 0;
  KILN_TRY(kiln_lower_extent(lw, out->grid, out->grid->rank - 1, &n));
  if (n == out->taps.n) return KILN_OK;
  return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                   "grid: the last axis must have extent %d, got %" PRId64, out->taps.n, n);
}

static const kiln_expr *bordered(const kiln_taps *g, int axis, const kiln_expr *v) {
  kiln_ctx *cx = g->lw->cx;
  const kiln_expr *last = kiln_sub(cx, kiln_taps_extent(g, axis), number(g, 1));
  return kiln_most(cx, number(g, 0), kiln_least(cx, v, last));
}

// The coordinate along |axis| in elements, mapped into the input where the padding says so.
static const kiln_tensor *coordinate(const kiln_taps *g, const kiln_tensor *grid, int axis) {
  kiln_ctx *cx = g->lw->cx;
  const kiln_expr *at[KILN_MAX_RANK];
  kiln_stmt *s = kiln_lower_stmt(g->lw, "grid_place", g->t, 1 + g->n, 0, grid->shape);
  kiln_stmt_vars(cx, s, 0, 1 + g->n, at);
  at[1 + g->n] = kiln_int(cx, g->n - 1 - axis); // x first
  const kiln_expr *v = kiln_cast(cx, g->t, kiln_tensor_load(cx, grid, at));
  const kiln_expr *half = kiln_div(cx, kiln_add(cx, v, number(g, 1)), number(g, 2));
  if (g->align_corners)
    v = kiln_mul(cx, half, kiln_sub(cx, kiln_taps_extent(g, axis), number(g, 1)));
  else v = kiln_sub(cx, kiln_mul(cx, half, kiln_taps_extent(g, axis)), number(g, 0.5));
  if (g->mode == KILN_TAPS_NEAREST) v = kiln_unary(cx, KILN_EXPR_ROUND, v);
  // The taps of cubic are mapped one by one, not their centre.
  if (g->mode != KILN_TAPS_CUBIC && g->outside == KILN_OUTSIDE_BORDER) v = bordered(g, axis, v);
  if (g->mode != KILN_TAPS_CUBIC && g->outside == KILN_OUTSIDE_REFLECTION)
    v = kiln_taps_reflected(g, axis, v);
  s->body = v;
  return kiln_lower_tensor(g->lw, s);
}

static kiln_status lower_grid_sample(kiln_lower *lw) {
  kiln_ctx *cx = lw->cx;
  sampler sampled;
  KILN_TRY(read_sampler(lw, &sampled));
  const kiln_taps *g = &sampled.taps;
  const kiln_tensor *places[KILN_MAX_RANK];
  for (int i = 0; i < g->n; i++) places[i] = coordinate(g, sampled.grid, i);
  const kiln_expr *extents[KILN_MAX_RANK] = {g->x->shape[0], g->x->shape[1]};
  const kiln_expr *v[KILN_MAX_RANK], *at_grid[KILN_MAX_RANK], *at[KILN_MAX_RANK];
  for (int i = 0; i < g->n; i++) extents[2 + i] = sampled.grid->shape[1 + i];
  kiln_stmt *s = kiln_lower_stmt(lw, "grid_sample", g->x->dtype, 2 + g->n, 0, extents);
  kiln_stmt_vars(cx, s, 0, 2 + g->n, v);
  at_grid[0] = v[0];
  for (int i = 0; i < g->n; i++) at_grid[1 + i] = v[2 + i];
  for (int i = 0; i < g->n; i++) at[i] = kiln_tensor_load(cx, places[i], at_grid);
  s->body = kiln_cast(cx, g->x->dtype, kiln_taps_sum(g, v, at));
  lw->outputs[0] = kiln_lower_tensor(lw, s);
  return KILN_OK;
}

const kiln_op kiln_op_grid_sample[] = {
    {"", "GridSample", 16, 0, lower_grid_sample, NULL, "ops/grid_sample.c"},
    {0},
};
