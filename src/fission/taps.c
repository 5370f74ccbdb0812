// Interpolation at computed coordinates: see taps.h.
#include "fission/taps.h"

static const kiln_expr *number(const kiln_taps *g, double v) {
  return kiln_float(g->lw->cx, g->t, v);
}

const kiln_expr *kiln_taps_extent(const kiln_taps *g, int axis) {
  return kiln_cast(g->lw->cx, g->t, g->x->shape[2 + axis]);
}

const kiln_expr *kiln_taps_reflected(const kiln_taps *g, int axis, const kiln_expr *v) {
  kiln_ctx *cx = g->lw->cx;
  const kiln_expr *low = number(g, g->align_corners ? 0 : -0.5);
  const kiln_expr *span =
      kiln_sub(cx, kiln_taps_extent(g, axis), number(g, g->align_corners ? 1 : 0));
  const kiln_expr *period = kiln_mul(cx, span, number(g, 2));
  const kiln_expr *u = kiln_mod(cx, kiln_sub(cx, v, low), period);
  const kiln_expr *back = kiln_add(cx, low, kiln_least(cx, u, kiln_sub(cx, period, u)));
  if (!g->align_corners) return back;
  // A single element has no span to reflect in.
  const kiln_expr *wide = kiln_compare(cx, KILN_EXPR_GT, span, number(g, 0));
  return kiln_select(cx, wide, back, number(g, 0));
}

// The weight of tap |k| around v = floor(v) + |r|.
static const kiln_expr *tap_weight(const kiln_taps *g, int k, const kiln_expr *r) {
  const double a = -0.75;
  kiln_ctx *cx = g->lw->cx;
  if (g->mode == KILN_TAPS_NEAREST) return number(g, 1);
  if (g->mode == KILN_TAPS_LINEAR) return k ? r : kiln_sub(cx, number(g, 1), r);
  const kiln_expr *d = k > 0 ? kiln_sub(cx, number(g, k), r) : kiln_add(cx, r, number(g, -k));
  const bool near = k == 0 || k == 1;
  const double c[4] = {near ? a + 2 : a, near ? -(a + 3) : -5 * a, near ? 0 : 8 * a,
                       near ? 1 : -4 * a};
  const kiln_expr *sum = number(g, c[0]);
  for (int i = 1; i < 4; i++) sum = kiln_add(cx, kiln_mul(cx, sum, d), number(g, c[i]));
  return sum;
}

// The index of a tap along |axis|, clamped into it; *inside becomes false where padding applies.
static const kiln_expr *tap_place(const kiln_taps *g, int axis, int k, const kiln_expr *base,
                                  const kiln_expr **inside) {
  kiln_ctx *cx = g->lw->cx;
  const kiln_expr *v = kiln_add(cx, base, number(g, k)), *zero = kiln_int(cx, 0);
  if (g->outside == KILN_OUTSIDE_REFLECTION) v = kiln_taps_reflected(g, axis, v);
  const kiln_expr *i = kiln_cast(cx, KILN_I64, kiln_unary(cx, KILN_EXPR_ROUND, v));
  const kiln_expr *extent = g->x->shape[2 + axis];
  if (g->outside != KILN_OUTSIDE_ZEROS)
    return kiln_most(cx, zero, kiln_least(cx, i, kiln_sub(cx, extent, kiln_int(cx, 1))));
  *inside = kiln_both(cx, *inside, kiln_compare(cx, KILN_EXPR_GE, i, zero));
  *inside = kiln_both(cx, *inside, kiln_compare(cx, KILN_EXPR_LT, i, extent));
  return i;
}

// |tap| enumerates the taps of all axes in mixed radix.
const kiln_expr *kiln_taps_sum(const kiln_taps *g, const kiln_expr *const first[2],
                               const kiln_expr *const *places) {
  kiln_ctx *cx = g->lw->cx;
  const int width = g->mode == KILN_TAPS_NEAREST ? 1 : g->mode == KILN_TAPS_LINEAR ? 2 : 4;
  const int low = g->mode == KILN_TAPS_CUBIC ? -1 : 0;
  int n_taps = 1;
  for (int i = 0; i < g->n; i++) n_taps *= width;
  const kiln_expr *sum = NULL;
  for (int tap = 0; tap < n_taps; tap++) {
    const kiln_expr *at[KILN_MAX_RANK] = {first[0], first[1]}, *inside = NULL, *weight = NULL;
    for (int i = g->n - 1, rest = tap; i >= 0; i--, rest /= width) {
      const int k = rest % width + low;
      const kiln_expr *base = kiln_unary(cx, KILN_EXPR_FLOOR, places[i]);
      const kiln_expr *w = tap_weight(g, k, kiln_sub(cx, places[i], base));
      at[2 + i] = tap_place(g, i, k, base, &inside);
      weight = weight ? kiln_mul(cx, weight, w) : w;
    }
    const kiln_expr *value = kiln_cast(cx, g->t, kiln_tensor_load(cx, g->x, at));
    if (inside) value = kiln_select(cx, inside, value, number(g, 0));
    if (g->mode != KILN_TAPS_NEAREST) value = kiln_mul(cx, weight, value);
    sum = sum ? kiln_add(cx, sum, value) : value;
  }
  return sum;
}
