// Resize and Upsample. Nearest is one load whose index is o/s or o*s where that is exact, else a
// table; linear and cubic go axis by axis, each a short sum over taps whose places and weights are
// tables made here. Coordinates are fractions, compared exactly: the nearest place does not depend
// on how a tie is rounded.
// source: ONNX Resize-10, 11, 13, 18, 19; Upsample-7, 9
#include "fission/data_dependent.h"
#include "fission/terms.h"

#include <math.h>
#include <string.h>

typedef enum interpolation { NEAREST, LINEAR, CUBIC } interpolation;
typedef enum rounding { ROUND_PREFER_FLOOR, ROUND_PREFER_CEIL, FLOOR, CEIL } rounding;
typedef enum coordinates {
  HALF_PIXEL,
  HALF_PIXEL_SYMMETRIC,
  PYTORCH_HALF_PIXEL,
  ALIGN_CORNERS,
  ASYMMETRIC,
  TF_HALF_PIXEL_FOR_NN,
  TF_CROP_AND_RESIZE
} coordinates;

// One axis; |in| and |out| are numbers unless it is |whole|, or |times| says an exact factor.
typedef struct axis_plan {
  bool whole; // nothing happens to it
  int64_t in, out;
  int64_t times; // out = in * times and the place is o / times, for a named extent; 0 otherwise
  float scale, start, end; // start, end: of the region of interest
  double up, down;         // the scale is up / down
  const kiln_expr *extent;
  // The same where extents are named: places and weights are computed in the run.
  bool is_named;
  const kiln_expr *n_in, *n_up, *n_down; // the scale is n_up / n_down
} axis_plan;

// keep_aspect_ratio_policy: whether one scale is chosen for all axes.
typedef enum aspect_policy { STRETCH, NOT_LARGER, NOT_SMALLER } aspect_policy;

typedef struct resize {
  kiln_lower *lw;
  kiln_tensor *x;
  interpolation mode;
  rounding round;
  coordinates coords;
  aspect_policy aspect;
  bool exclude_outside, antialias;
  double cubic_a, extrapolation;
  axis_plan axes[KILN_MAX_RANK];
} resize;

// --- attributes ---

static kiln_status choose(kiln_lower *lw, const char *attr, const char *otherwise, int n,
                          const char *const *names, int *out) {
  const char *text = NULL;
  KILN_TRY(kiln_lower_string(lw, attr, otherwise, &text));
  for (*out = 0; *out < n; ++*out)
    if (!strcmp(text, names[*out])) return KILN_OK;
  return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place, "%s: must be one of %s ... %s, got %s",
                   attr, names[0], names[n - 1], text);
}

static kiln_status read_modes(resize *r) {
  static const char *const modes[] = {"nearest", "linear", "cubic", "bilinear"};
  static const char *const rounds[] = {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"};
  static const char *const coords[] = {
      "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners",
      "asymmetric", "tf_half_pixel_for_nn", "tf_crop_and_resize"};
  static const char *const aspects[] = {"stretch", "not_larger", "not_smaller"};
  kiln_lower *lw = r->lw;
  const bool old = lw->node->opset < 11 || lw->node->op == kiln_symbol_of(lw->cx, "Upsample");
  int mode = 0, round = 0, coord = 0, aspect = 0;
  int64_t exclude = 0, antialias = 0;
  KILN_TRY(choose(lw, "mode", "nearest", KILN_LEN(modes), modes, &mode));
  KILN_TRY(choose(lw, "nearest_mode", old ? "floor" : "round_prefer_floor", KILN_LEN(rounds),
                  rounds, &round));
  KILN_TRY(choose(lw, "coordinate_transformation_mode", old ? "asymmetric" : "half_pixel",
                  KILN_LEN(coords), coords, &coord));
  KILN_TRY(choose(lw, "keep_aspect_ratio_policy", "stretch", KILN_LEN(aspects), aspects, &aspect));
  KILN_TRY(kiln_lower_int(lw, "exclude_outside", 0, &exclude));
  KILN_TRY(kiln_lower_int(lw, "antialias", 0, &antialias));
  KILN_TRY(kiln_lower_float(lw, "cubic_coeff_a", -0.75, &r->cubic_a));
  KILN_TRY(kiln_lower_float(lw, "extrapolation_value", 0, &r->extrapolation));
  r->mode = mode == 3 ? LINEAR : (interpolation)mode;
  r->round = (rounding)round;
  r->coords = (coordinates)coord;
  r->aspect = (aspect_policy)aspect;
  r->exclude_outside = exclude != 0;
  r->antialias = antialias != 0;
  return KILN_OK;
}

// --- coordinates ---

// A place in the input: twice it is top / bottom - shift. The numbers are integers below 2^50, or
// such a one times a scale as the model gives it, in single precision: they and their products are
// exact in double.
typedef struct coordinate {
  double top, bottom, shift;
} coordinate;

// The place in the input of place |o| of the output.
static coordinate source_of(const resize *r, const axis_plan *a, int64_t o) {
  const double x = (double)o, in = (double)a->in, out = (double)a->out;
  const coordinate middle = {(2 * x + 1) * a->down, a->up, 1}, first = {0, 1, 0};
  switch (r->coords) {
  case HALF_PIXEL: return middle;
  case HALF_PIXEL_SYMMETRIC: return (coordinate){(2 * x + 1 - out) * a->down, a->up, 1 - in};
  case PYTORCH_HALF_PIXEL: return a->out > 1 ? middle : first;
  case ALIGN_CORNERS:
    if (a->out <= 1) return first;
    if (a->up * in == out * a->down) return (coordinate){2 * x * (in - 1), out - 1, 0};
    return (coordinate){2 * x * (in - 1) * a->down, a->up * in - a->down, 0};
  case ASYMMETRIC: return (coordinate){2 * x * a->down, a->up, 0};
  case TF_HALF_PIXEL_FOR_NN: return (coordinate){middle.top, middle.bottom, 0};
  case TF_CROP_AND_RESIZE: break;
  }
  const double start = (double)a->start, end = (double)a->end;
  if (a->out <= 1) return (coordinate){(start + end) * (in - 1), 1, 0};
  const double along = 2 * (start * (out - 1) + x * (end - start));
  return (coordinate){along * (in - 1), out - 1, 0};
}

static double value_of(coordinate c) { return (c.top / c.bottom - c.shift) / 2; }

// The sign of the place less |twice| / 2.
static int side_of(coordinate c, double twice) {
  const double product = c.bottom * (twice + c.shift);
  const double rest = c.top - product - fma(c.bottom, twice + c.shift, -product);
  return (rest > 0) - (rest < 0);
}

static int64_t clamp(int64_t i, int64_t extent) { return i < 0 ? 0 : i >= extent ? extent - 1 : i; }

// Regions of interest may name any place, also none.
static bool is_far(double x) { return !(fabs(x) < (double)(INT64_C(1) << 40)); }

static int64_t nearest_of(const resize *r, const axis_plan *a, int64_t o) {
  const coordinate c = source_of(r, a, o);
  const double x = value_of(c);
  const int half = r->round == ROUND_PREFER_FLOOR || r->round == ROUND_PREFER_CEIL;
  if (is_far(x)) return x > 0 ? a->in - 1 : 0;
  double i = rint(x);                                       // or a neighbour
  if (r->round == ROUND_PREFER_FLOOR || r->round == CEIL) { // the first that is not below x
    while (side_of(c, 2 * i + half) > 0) i++;
    while (side_of(c, 2 * (i - 1) + half) <= 0) i--;
  } else { // the last that is not above x
    while (side_of(c, 2 * i - half) < 0) i--;
    while (side_of(c, 2 * (i + 1) - half) >= 0) i++;
  }
  return clamp((int64_t)i, a->in);
}

// --- coordinates over named extents ---

// A place in the input, top / bottom, as integers.
typedef struct ratio {
  const kiln_expr *top, *bottom;
} ratio;

// The place in the input of place |o| of the output: source_of, over expressions.
static ratio named_source(const resize *r, const axis_plan *a, const kiln_expr *o) {
  kiln_ctx *cx = r->lw->cx;
  const kiln_expr *zero = kiln_int(cx, 0), *one = kiln_int(cx, 1), *two = kiln_int(cx, 2);
  const kiln_expr *up = a->n_up, *down = a->n_down, *in_less = kiln_sub(cx, a->n_in, one);
  const kiln_expr *twice = kiln_mul(cx, kiln_add(cx, kiln_mul(cx, o, two), one), down);
  const kiln_expr *is_many = kiln_compare(cx, KILN_EXPR_GT, a->extent, one);
  const ratio middle = {kiln_sub(cx, twice, up), kiln_mul(cx, up, two)};
  switch (r->coords) {
  case HALF_PIXEL_SYMMETRIC: {
    const kiln_expr *left = kiln_sub(cx, twice, kiln_mul(cx, a->extent, down));
    return (ratio){kiln_add(cx, left, kiln_mul(cx, in_less, up)), middle.bottom};
  }
  case PYTORCH_HALF_PIXEL:
    return (ratio){kiln_select(cx, is_many, middle.top, zero), middle.bottom};
  case ALIGN_CORNERS: {
    const kiln_expr *span = kiln_sub(cx, kiln_mul(cx, up, a->n_in), down);
    return (ratio){kiln_mul(cx, kiln_mul(cx, o, in_less), down),
                   kiln_select(cx, is_many, kiln_most(cx, span, one), one)};
  }
  case ASYMMETRIC: return (ratio){kiln_mul(cx, o, down), up};
  case TF_HALF_PIXEL_FOR_NN: return (ratio){twice, middle.bottom};
  case HALF_PIXEL:
  case TF_CROP_AND_RESIZE: break; // the latter has numbers only
  }
  return middle;
}

static const kiln_expr *named_clamp(kiln_ctx *cx, const axis_plan *a, const kiln_expr *i) {
  const kiln_expr *last = kiln_sub(cx, a->n_in, kiln_int(cx, 1));
  return kiln_most(cx, kiln_int(cx, 0), kiln_least(cx, i, last));
}

static const kiln_expr *named_nearest(const resize *r, const axis_plan *a, const kiln_expr *o) {
  kiln_ctx *cx = r->lw->cx;
  const kiln_expr *zero = kiln_int(cx, 0), *two = kiln_int(cx, 2);
  ratio c = named_source(r, a, o);
  if (r->round == ROUND_PREFER_FLOOR || r->round == ROUND_PREFER_CEIL) { // half a place aside
    const kiln_expr *top = kiln_mul(cx, c.top, two);
    c.top =
        r->round == ROUND_PREFER_CEIL ? kiln_add(cx, top, c.bottom) : kiln_sub(cx, top, c.bottom);
    c.bottom = kiln_mul(cx, c.bottom, two);
  }
  const bool is_up = r->round == ROUND_PREFER_FLOOR || r->round == CEIL;
  if (!is_up) return named_clamp(cx, a, kiln_div(cx, c.top, c.bottom));
  const kiln_expr *below = kiln_div(cx, kiln_sub(cx, zero, c.top), c.bottom);
  return named_clamp(cx, a, kiln_sub(cx, zero, below));
}

// Whether an axis can be resized from, or to, a named extent; otherwise it must be a number.
static bool takes_name(const resize *r, const kiln_expr *extent) {
  return !kiln_expr_is_int(extent, NULL) && r->coords != TF_CROP_AND_RESIZE &&
         r->aspect == STRETCH && (r->mode == NEAREST || (!r->antialias && !r->exclude_outside));
}

// A scale with few binary digits: its product with an extent is exact in single precision.
static bool is_short(float scale, int64_t *out_up, int64_t *out_down) {
  enum { DIGITS = 1 << 8 };
  for (*out_down = 1; *out_down <= DIGITS; *out_down *= 2) {
    const float up = scale * (float)*out_down;
    *out_up = (int64_t)up;
    if ((float)*out_up == up && *out_up > 0) return *out_up <= DIGITS;
  }
  return false;
}

static void set_named(const resize *r, axis_plan *a, const kiln_expr *extent, const kiln_expr *up,
                      const kiln_expr *down) {
  a->is_named = true;
  a->n_in = a->extent;
  a->n_up = up;
  a->n_down = down;
  a->extent = kiln_lower_tidy(r->lw->cx, extent);
}

// --- extents ---

// Places of shorter axes are compared exactly.
static const int64_t max_extent = INT64_C(1) << 24;

static kiln_status want_axis_constant(resize *r, int axis, axis_plan *a) {
  KILN_TRY(kiln_lower_extent(r->lw, r->x, axis, &a->in));
  if (a->in > 0 && a->in <= max_extent) return KILN_OK;
  return KILN_FAIL(r->lw->cx->diag, KILN_BAD_INPUT, r->lw->place,
                   "axis %d: must have an extent in [1, 2^24] to be resized, got %" PRId64, axis,
                   a->in);
}

static kiln_status set_out(resize *r, int axis, double extent) {
  axis_plan *a = &r->axes[axis];
  if (!(extent >= 0) || extent > (double)max_extent)
    return KILN_FAIL(r->lw->cx->diag, KILN_UNSUPPORTED, r->lw->place,
                     "axis %d: must be resized to at most 2^24, got %g", axis, extent);
  a->out = (int64_t)extent;
  a->extent = kiln_int(r->lw->cx, a->out);
  return KILN_OK;
}

// A named extent can be scaled by a whole factor where nearest reads o / factor everywhere.
static bool scales_exactly(const resize *r, const axis_plan *a) {
  const int64_t times = (int64_t)a->scale;
  if (r->mode != NEAREST || r->coords == TF_CROP_AND_RESIZE || r->coords == ALIGN_CORNERS ||
      (float)times != a->scale || times < 1 || times > 64)
    return false;
  axis_plan probe = *a;
  probe.in = 8;
  probe.out = 8 * times;
  probe.up = (double)times;
  probe.down = 1;
  for (int64_t o = 0; o < probe.out; o++)
    if (nearest_of(r, &probe, o) != o / times) return false;
  return true;
}

static kiln_status plan_scale(resize *r, int axis, double scale) {
  kiln_ctx *cx = r->lw->cx;
  axis_plan *a = &r->axes[axis];
  a->scale = (float)scale;
  if (!(a->scale > 0) || !(a->scale < 1e6F))
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, r->lw->place, "scales: must be positive, got %g",
                     scale);
  a->whole = a->scale == 1 && (r->coords != TF_CROP_AND_RESIZE || (a->start == 0 && a->end == 1));
  a->whole = a->whole || kiln_expr_is(a->extent, 0); // no elements, at any scale
  if (a->whole) return KILN_OK;
  if (!kiln_expr_is_int(a->extent, NULL) && scales_exactly(r, a)) {
    a->times = (int64_t)a->scale;
    a->extent = kiln_mul(cx, a->extent, kiln_int(cx, a->times));
    return KILN_OK;
  }
  int64_t up = 0, down = 1;
  if (takes_name(r, a->extent) && is_short(a->scale, &up, &down)) {
    const kiln_expr *u = kiln_int(cx, up), *d = kiln_int(cx, down);
    set_named(r, a, kiln_div(cx, kiln_mul(cx, a->extent, u), d), u, d);
    return KILN_OK;
  }
  KILN_TRY(want_axis_constant(r, axis, a));
  KILN_TRY(set_out(r, axis, (double)floorf(a->scale * (float)a->in)));
  // A scale that is a ratio of the extents but for its rounding is that ratio.
  const bool is_ratio = (float)((double)a->out / (double)a->in) == a->scale;
  a->up = is_ratio ? (double)a->out : (double)a->scale;
  a->down = is_ratio ? (double)a->in : 1;
  return KILN_OK;
}

static kiln_status plan_size(resize *r, int axis, const kiln_expr *size) {
  axis_plan *a = &r->axes[axis];
  a->whole =
      size == a->extent && (r->coords != TF_CROP_AND_RESIZE || (a->start == 0 && a->end == 1));
  a->scale = 1;
  if (a->whole) return KILN_OK;
  if (takes_name(r, a->extent) || takes_name(r, size)) {
    set_named(r, a, size, size, a->extent);
    return KILN_OK;
  }
  KILN_TRY(want_axis_constant(r, axis, a));
  int64_t out = 0;
  if (!kiln_expr_is_int(size, &out))
    return KILN_FAIL(r->lw->cx->diag, KILN_UNSUPPORTED, r->lw->place,
                     "sizes: axis %d must be known when compiling, got a computed extent", axis);
  KILN_TRY(set_out(r, axis, (double)out));
  a->scale = (float)a->out / (float)a->in;
  a->up = (double)a->out;
  a->down = (double)a->in;
  return KILN_OK;
}

// keep_aspect_ratio_policy: one scale for all resized axes, the least or the greatest.
static kiln_status keep_ratio(resize *r, int n, const int *axes) {
  if (r->aspect == STRETCH) return KILN_OK;
  axis_plan chosen = {0};
  for (int i = 0; i < n; i++) {
    const axis_plan *a = &r->axes[axes[i]];
    const double apart = a->up * chosen.down - chosen.up * a->down;
    if (i == 0 || (r->aspect == NOT_LARGER ? apart < 0 : apart > 0)) chosen = *a;
  }
  for (int i = 0; i < n; i++) {
    axis_plan *a = &r->axes[axes[i]];
    KILN_TRY(want_axis_constant(r, axes[i], a));
    a->scale = chosen.scale;
    a->up = chosen.up;
    a->down = chosen.down;
    KILN_TRY(set_out(r, axes[i], floor((2 * a->up * (double)a->in + a->down) / (2 * a->down))));
    a->whole = a->out == a->in;
  }
  return KILN_OK;
}

static kiln_status want_count(kiln_lower *lw, const char *what, int have, int want) {
  if (have == want) return KILN_OK;
  return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place, "%s: must have %d entries, got %d",
                   what, want, have);
}

static kiln_status read_roi(resize *r, int n, const int *axes) {
  int n_roi = -1;
  const double *roi = NULL;
  if (r->coords != TF_CROP_AND_RESIZE) return KILN_OK;
  KILN_TRY(kiln_lower_const_floats(r->lw, 1, &n_roi, &roi));
  KILN_TRY(want_count(r->lw, "roi", n_roi, 2 * n));
  for (int i = 0; i < n; i++) {
    r->axes[axes[i]].start = (float)roi[i];
    r->axes[axes[i]].end = (float)roi[n + i];
  }
  return KILN_OK;
}

// scales as an attribute (Upsample-7), input 1 (Upsample-9, Resize-10) or input 2.
static kiln_status read_scales(resize *r, int *out_n, const double **out) {
  kiln_lower *lw = r->lw;
  const kiln_attr *a = kiln_lower_attr(lw, "scales");
  const bool second = lw->node->opset >= 11 && lw->node->op == kiln_symbol_of(lw->cx, "Resize");
  if (!a) return kiln_lower_const_floats(lw, second ? 2 : 1, out_n, out);
  if (a->kind != KILN_ATTR_FLOATS)
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                     "scales: must be a list of floats, got another attribute");
  double *scales = KILN_NEW_ARRAY(&lw->cx->perm, double, a->n);
  for (int i = 0; i < a->n; i++) scales[i] = (double)a->u.floats[i];
  *out_n = a->n;
  *out = scales;
  return KILN_OK;
}

// The axes that a model does not resize where it gives sizes: batch and channels.
static bool is_kept_axis(const resize *r, int axis) { return r->x->rank > 2 && axis < 2; }

// The most that each size may be, so that the result has a bound: the usual one, or, where the user
// leaves it to the compiler, what keeps the result below the elements that may be assumed.
static int64_t most_size(const resize *r, int n, const int *axes, bool keeps) {
  const kiln_lower *lw = r->lw;
  const int64_t usual = kiln_lower_assumed_extent(lw);
  double elements = KILN_MOST_ASSUMED;
  int n_free = 0;
  for (int a = 0; a < r->x->rank; a++) {
    bool is_sized = false;
    int64_t extent = 1;
    for (int i = 0; i < n; i++) is_sized |= axes[i] == a;
    if (is_sized && !(keeps && is_kept_axis(r, a))) n_free++;
    else if (kiln_lower_most(lw, r->x->shape[a], &extent) && extent > 0) elements /= (double)extent;
  }
  if (lw->counts->otherwise || n_free == 0) return usual;
  const double most = floor(pow(elements, 1.0 / n_free) * (1 + 1e-12));
  return most < 1 ? 1 : most < (double)usual ? (int64_t)most : usual;
}

// Sizes that the run gives. Where each might be the most that is assumed and the result would have
// too many elements, batch and channels stay, which the run checks.
static kiln_status sizes_of_run(resize *r, int n, const int *axes, int *out_n,
                                const kiln_expr *const **out) {
  kiln_lower *lw = r->lw;
  kiln_ctx *cx = lw->cx;
  const kiln_tensor *t = kiln_lower_in(lw, 3);
  const bool is_known = !t || t->data || kiln_lower_values(lw, t) || !lw->counts;
  if (is_known || kiln_tensor_elems(t) != n || kiln_dtype_is_float(t->dtype))
    return kiln_lower_shape_values(lw, 3, out_n, out);
  const bool keeps =
      most_size(r, n, axes, false) < kiln_lower_assumed_extent(lw) || lw->counts->otherwise;
  const int64_t most = most_size(r, n, axes, keeps);
  const kiln_expr **sizes = KILN_NEW_ARRAY(&cx->perm, const kiln_expr *, n);
  for (int i = 0; i < n; i++) {
    const kiln_expr *extent = r->x->shape[axes[i]];
    sizes[i] = kiln_lower_run_value(lw, t, i, KILN_VALUE_EXTENT);
    KILN_TRY(kiln_lower_want_extent_of(lw, sizes[i], most));
    sizes[i] = kiln_lower_positive(lw, sizes[i]);
    if (!keeps || !is_kept_axis(r, axes[i])) continue;
    KILN_TRY(kiln_lower_want_equal(lw, sizes[i], extent, "sizes less those of the input"));
    sizes[i] = extent;
  }
  *out_n = n;
  *out = sizes;
  return KILN_OK;
}

static kiln_status read_extents(resize *r) {
  kiln_lower *lw = r->lw;
  int n = -1, axes[KILN_MAX_RANK], n_scales = -1, n_sizes = -1;
  const double *scales = NULL;
  const kiln_expr *const *sizes = NULL;
  KILN_TRY(kiln_lower_axes(lw, "axes", -1, r->x->rank, &n, axes));
  if (n < 0)
    for (n = 0; n < r->x->rank; n++) axes[n] = n;
  for (int i = 0; i < r->x->rank; i++)
    r->axes[i] = (axis_plan){
        .whole = true, .end = 1, .scale = 1, .up = 1, .down = 1, .extent = r->x->shape[i]};
  KILN_TRY(read_roi(r, n, axes));
  KILN_TRY(read_scales(r, &n_scales, &scales));
  if (n_scales > 0) {
    KILN_TRY(want_count(lw, "scales", n_scales, n));
    for (int i = 0; i < n; i++) KILN_TRY(plan_scale(r, axes[i], scales[i]));
    return KILN_OK;
  }
  KILN_TRY(sizes_of_run(r, n, axes, &n_sizes, &sizes));
  KILN_TRY(want_count(lw, "sizes", n_sizes, n));
  for (int i = 0; i < n; i++) KILN_TRY(plan_size(r, axes[i], sizes[i]));
  return keep_ratio(r, n, axes);
}

// --- nearest ---

static const kiln_expr *table_load(resize *r, const char *name, int64_t n, const int64_t *table,
                                   const kiln_expr *at) {
  const kiln_tensor *t = kiln_lower_make_const(r->lw, name, KILN_I64, 1, &n, table);
  return kiln_tensor_load(r->lw->cx, t, &at);
}

static const kiln_expr *nearest_index(resize *r, const axis_plan *a, const kiln_expr *o) {
  kiln_ctx *cx = r->lw->cx;
  if (a->whole) return o;
  if (a->times) return kiln_div(cx, o, kiln_int(cx, a->times));
  if (a->is_named) return named_nearest(r, a, o);
  int64_t *table = KILN_NEW_ARRAY(&cx->scratch, int64_t, a->out);
  const int64_t up = a->out / a->in, down = a->out ? a->in / a->out : 0;
  bool divides = up > 0, multiplies = down > 0;
  for (int64_t i = 0; i < a->out; i++) {
    table[i] = nearest_of(r, a, i);
    divides = divides && table[i] == i / up;
    multiplies = multiplies && table[i] == i * down;
  }
  if (divides) return kiln_div(cx, o, kiln_int(cx, up));
  if (multiplies) return kiln_mul(cx, o, kiln_int(cx, down));
  return table_load(r, "resize_index", a->out, table, o);
}

static kiln_tensor *nearest(resize *r) {
  kiln_ctx *cx = r->lw->cx;
  const kiln_expr *extents[KILN_MAX_RANK], *at[KILN_MAX_RANK];
  for (int i = 0; i < r->x->rank; i++) extents[i] = r->axes[i].extent;
  kiln_stmt *s = kiln_lower_stmt(r->lw, "resize", r->x->dtype, r->x->rank, 0, extents);
  kiln_stmt_vars(cx, s, 0, r->x->rank, at);
  for (int i = 0; i < r->x->rank; i++) at[i] = nearest_index(r, &r->axes[i], at[i]);
  s->body = kiln_tensor_load(cx, r->x, at);
  return kiln_lower_tensor(r->lw, s);
}

// --- linear and cubic ---

static double tent(double x) { return fabs(x) < 1 ? 1 - fabs(x) : 0; }

static double keys(double x, double a) {
  x = fabs(x);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

// The taps of an output: places first, first + 1, ... with weights, the sum of which is 1.
typedef struct taps {
  int n;          // the same for all outputs of an axis
  double stretch; // the kernel's width is multiplied by 1/stretch
  int64_t before; // places before floor(x)
} taps;

static taps taps_of(const resize *r, const axis_plan *a) {
  const int radius = r->mode == LINEAR ? 1 : 2;
  const double stretch = r->antialias && a->up < a->down && a->out > 0 ? a->up / a->down : 1;
  const int64_t start = (int64_t)floor(-radius / stretch) + 1;
  return (taps){.n = (int)(2 - 2 * start), .stretch = stretch, .before = -start};
}

// Tap |k| takes over half of the greatest weight, and its place: the sum is the same, and reads no
// element that is no term of it.
static void halve_greatest(int n, int k, int64_t *places, double *weights) {
  int greatest = 0;
  for (int i = 1; i < n; i++)
    if (fabs(weights[i]) > fabs(weights[greatest])) greatest = i;
  places[k] = places[greatest];
  weights[k] = weights[greatest] /= 2;
}

static void weigh(const resize *r, const axis_plan *a, const taps *t, int64_t o, int64_t *places,
                  double *weights) {
  const double least = 0x1p-46; // what rounding makes of no weight is below
  const double given = value_of(source_of(r, a, o));
  const double x = !is_far(given) ? given
                   : given > 0    ? (double)(INT64_C(1) << 40)
                                  : -(double)(INT64_C(1) << 40);
  const int64_t base = (int64_t)floor(x);
  double sum = 0;
  for (int k = 0; k < t->n; k++) {
    const int64_t place = base - t->before + k;
    const double distance = ((double)place - x) * t->stretch;
    const bool outside = place < 0 || place >= a->in;
    weights[k] = r->mode == LINEAR ? tent(distance) : keys(distance, r->cubic_a);
    if (fabs(weights[k]) < least || (r->exclude_outside && outside)) weights[k] = 0;
    places[k] = clamp(place, a->in);
    sum += weights[k];
  }
  for (int k = 0; k < t->n && sum != 0; k++) weights[k] /= sum;
  for (int k = 0; k < t->n && sum != 0; k++) {
    const int64_t place = base - t->before + k;
    const bool left_out = r->antialias || (r->exclude_outside && (place < 0 || place >= a->in));
    if (weights[k] == 0 && left_out) halve_greatest(t->n, k, places, weights);
  }
}

typedef struct tap_tables {
  const kiln_tensor *places, *weights; // (out, taps)
} tap_tables;

static tap_tables make_tables(resize *r, const axis_plan *a, const taps *t, kiln_dtype dtype) {
  kiln_arena *arena = &r->lw->cx->scratch;
  const int64_t shape[] = {a->out, t->n};
  int64_t *places = KILN_NEW_ARRAY(arena, int64_t, a->out * t->n);
  double *weights = KILN_NEW_ARRAY(arena, double, a->out * t->n);
  float *single = KILN_NEW_ARRAY(arena, float, a->out * t->n);
  for (int64_t o = 0; o < a->out; o++) weigh(r, a, t, o, places + o * t->n, weights + o * t->n);
  for (int64_t i = 0; i < a->out * t->n; i++) single[i] = (float)weights[i];
  const void *data = dtype == KILN_F64 ? (const void *)weights : single;
  return (tap_tables){kiln_lower_make_const(r->lw, "resize_places", KILN_I64, 2, shape, places),
                      kiln_lower_make_const(r->lw, "resize_weights", dtype, 2, shape, data)};
}

// The weight of tap |k| of a place |rest| after the tap t->before.
static const kiln_expr *named_weight(const resize *r, const taps *t, int k, const kiln_expr *rest) {
  kiln_ctx *cx = r->lw->cx;
  const kiln_dtype f = KILN_F64;
  const double a = r->cubic_a;
  const int64_t off = k - t->before; // of the place from floor(x)
  const kiln_expr *d = off > 0 ? kiln_sub(cx, kiln_float(cx, f, (double)off), rest)
                               : kiln_add(cx, rest, kiln_float(cx, f, (double)-off));
  if (r->mode == LINEAR) return kiln_sub(cx, kiln_float(cx, f, 1), d);
  const bool is_near = off == 0 || off == 1;
  const double c[] = {is_near ? a + 2 : a, is_near ? -(a + 3) : -5 * a, is_near ? 0 : 8 * a,
                      is_near ? 1 : -4 * a};
  const kiln_expr *sum = kiln_float(cx, f, c[0]);
  for (int i = 1; i < 4; i++) sum = kiln_add(cx, kiln_mul(cx, sum, d), kiln_float(cx, f, c[i]));
  return sum;
}

// The tables of an axis with a named extent, as statements.
static tap_tables compute_tables(resize *r, const axis_plan *a, const taps *t, kiln_dtype dtype) {
  kiln_ctx *cx = r->lw->cx;
  const kiln_expr *extents[] = {a->extent, kiln_int(cx, t->n)};
  kiln_stmt *places = kiln_lower_stmt(r->lw, "resize_places", KILN_I64, 2, 0, extents),
            *weights = kiln_lower_stmt(r->lw, "resize_weights", dtype, 2, 0, extents);
  const ratio c = named_source(r, a, kiln_stmt_var(cx, places, 0));
  const kiln_expr *k = kiln_stmt_var(cx, places, 1), *base = kiln_div(cx, c.top, c.bottom);
  const kiln_expr *less = kiln_sub(cx, c.top, kiln_mul(cx, base, c.bottom));
  const kiln_expr *rest =
      kiln_div(cx, kiln_cast(cx, KILN_F64, less), kiln_cast(cx, KILN_F64, c.bottom));
  const kiln_expr *first = kiln_sub(cx, base, kiln_int(cx, t->before));
  places->body = named_clamp(cx, a, kiln_add(cx, first, k));
  const kiln_expr *w = named_weight(r, t, (int)t->n - 1, rest);
  for (int i = (int)t->n - 2; i >= 0; i--)
    w = kiln_select(cx, kiln_compare(cx, KILN_EXPR_EQ, k, kiln_int(cx, i)),
                    named_weight(r, t, i, rest), w);
  weights->body = kiln_cast(cx, dtype, w);
  return (tap_tables){kiln_lower_tensor(r->lw, places), kiln_lower_tensor(r->lw, weights)};
}

// weights(o, k) * x(..., places(o, k), ...) for the tap |k|.
static const kiln_expr *tap_term(kiln_ctx *cx, const kiln_tensor *x, const kiln_expr *const *o,
                                 int axis, const tap_tables *tables, const kiln_expr *k) {
  const kiln_expr *at[KILN_MAX_RANK], *entry[] = {o[axis], k};
  for (int i = 0; i < x->rank; i++) at[i] = o[i];
  at[axis] = kiln_tensor_load(cx, tables->places, entry);
  const kiln_expr *value = kiln_cast(cx, tables->weights->dtype, kiln_tensor_load(cx, x, at));
  return kiln_mul(cx, kiln_tensor_load(cx, tables->weights, entry), value);
}

// Few taps are written out, so that neighbours can be fused with them; many are a sum.
static kiln_tensor *resize_axis(resize *r, const kiln_tensor *x, int axis, kiln_dtype dtype) {
  enum { WRITTEN_OUT = 4 };
  kiln_ctx *cx = r->lw->cx;
  const axis_plan *a = &r->axes[axis];
  const taps t = taps_of(r, a);
  const tap_tables tables =
      a->is_named ? compute_tables(r, a, &t, dtype) : make_tables(r, a, &t, dtype);
  const kiln_expr *extents[KILN_MAX_RANK + 1], *o[KILN_MAX_RANK];
  for (int i = 0; i < x->rank; i++) extents[i] = i == axis ? a->extent : x->shape[i];
  extents[x->rank] = kiln_int(cx, t.n);
  const bool sums = t.n > WRITTEN_OUT;
  kiln_stmt *s = kiln_lower_stmt(r->lw, "resize", dtype, x->rank, sums, extents);
  kiln_stmt_vars(cx, s, 0, x->rank, o);
  if (sums) {
    s->body = tap_term(cx, x, o, axis, &tables, kiln_stmt_var(cx, s, x->rank));
    s->combiner = KILN_COMBINE_SUM;
    return kiln_lower_tensor(r->lw, s);
  }
  for (int k = 0; k < t.n; k++) {
    const kiln_expr *term = tap_term(cx, x, o, axis, &tables, kiln_int(cx, k));
    s->body = s->body ? kiln_add(cx, s->body, term) : term;
  }
  return kiln_lower_tensor(r->lw, s);
}

static kiln_status interpolate(resize *r, kiln_tensor **out) {
  const kiln_dtype dtype = r->x->dtype == KILN_F64 ? KILN_F64 : KILN_F32;
  kiln_tensor *y = r->x;
  for (int i = 0; i < r->x->rank; i++)
    if (!r->axes[i].whole) y = resize_axis(r, y, i, dtype);
  return kiln_lower_cast(r->lw, y, r->x->dtype, out);
}

// tf_crop_and_resize: what lies outside the input has the extrapolation value.
static kiln_tensor *extrapolate(resize *r, const kiln_tensor *y) {
  kiln_ctx *cx = r->lw->cx;
  const kiln_expr *at[KILN_MAX_RANK], *inside = NULL;
  kiln_stmt *s = kiln_lower_like(r->lw, "resize_outside", y, y->dtype, at);
  for (int i = 0; i < y->rank; i++) {
    const axis_plan *a = &r->axes[i];
    if (a->whole) continue;
    int64_t *table = KILN_NEW_ARRAY(&cx->scratch, int64_t, a->out);
    for (int64_t o = 0; o < a->out; o++) {
      const coordinate c = source_of(r, a, o);
      table[o] = side_of(c, 0) >= 0 && side_of(c, 2 * (double)(a->in - 1)) <= 0;
    }
    const kiln_expr *flag = table_load(r, "resize_inside", a->out, table, at[i]);
    inside = kiln_both(cx, inside, kiln_compare(cx, KILN_EXPR_NE, flag, kiln_int(cx, 0)));
  }
  s->body = kiln_tensor_load(cx, y, at);
  if (inside)
    s->body = kiln_select(cx, inside, s->body, kiln_number(cx, y->dtype, r->extrapolation));
  return kiln_lower_tensor(r->lw, s);
}

static kiln_status lower_resize(kiln_lower *lw) {
  KILN_TRY(kiln_lower_want_inputs(lw, 1, 4));
  KILN_TRY(kiln_lower_want_dtype(lw, 0, kiln_dtype_is_number, "a number"));
  resize r = {.lw = lw, .x = lw->inputs[0]};
  KILN_TRY(read_modes(&r));
  KILN_TRY(read_extents(&r));
  bool whole = true;
  for (int i = 0; i < r.x->rank; i++) whole = whole && r.axes[i].whole;
  kiln_tensor *y = r.x;
  if (!whole && r.mode == NEAREST) y = nearest(&r);
  else if (!whole) KILN_TRY(interpolate(&r, &y));
  lw->outputs[0] = whole || r.coords != TF_CROP_AND_RESIZE ? y : extrapolate(&r, y);
  return KILN_OK;
}

const kiln_op kiln_op_resize[] = {
    {"", "Resize", 10, 0, lower_resize, NULL, "ops/resize.c"},
    {"", "Upsample", 7, 0, lower_resize, NULL, "ops/resize.c"},
    {0},
};
