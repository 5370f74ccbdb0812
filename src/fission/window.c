// Sliding windows and the convolution: see window.h.
#include "fission/window.h"

#include <string.h>

kiln_status kiln_conv_window_list(kiln_lower *lw, const char *attr, int n, int64_t otherwise,
                                  int64_t min, int64_t *out) {
  int count = -1;
  const int64_t *list = NULL;
  KILN_TRY(kiln_lower_ints(lw, attr, &count, &list));
  if (count >= 0 && count != n)
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place, "%s: must have %d entries, got %d",
                     attr, n, count);
  for (int i = 0; i < n; i++) {
    out[i] = count < 0 ? otherwise : list[i];
    if (out[i] < min || out[i] > INT32_MAX)
      return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                       "%s: each must be at least %" PRId64 ", got %" PRId64, attr, min, out[i]);
  }
  return KILN_OK;
}

kiln_status kiln_conv_window_kernel(kiln_lower *lw, const kiln_tensor *weights, int i,
                                    int64_t *out) {
  KILN_TRY(kiln_lower_extent(lw, weights, 2 + i, out));
  if (*out >= 1 && *out <= INT32_MAX) return KILN_OK;
  return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                   "%s: axis %d must be at least 1, got %" PRId64,
                   kiln_symbol_text(lw->cx, weights->name), 2 + i, *out);
}

static kiln_status read_kernel(kiln_lower *lw, const kiln_tensor *weights, kiln_conv_window *w) {
  if (!weights) {
    if (!kiln_lower_attr(lw, "kernel_shape"))
      return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place, "kernel_shape: must be given");
    return kiln_conv_window_list(lw, "kernel_shape", w->n, 1, 1, w->kernel);
  }
  int64_t named[KILN_MAX_RANK];
  KILN_TRY(kiln_conv_window_list(lw, "kernel_shape", w->n, 1, 1, named));
  for (int i = 0; i < w->n; i++) {
    KILN_TRY(kiln_conv_window_kernel(lw, weights, i, &w->kernel[i]));
    if (kiln_lower_attr(lw, "kernel_shape") && named[i] != w->kernel[i])
      return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                       "kernel_shape: must be that of the weights, %" PRId64 ", got %" PRId64,
                       w->kernel[i], named[i]);
  }
  return KILN_OK;
}

// SAME_UPPER and SAME_LOWER: out = ceil(in / stride); an odd total pads once more at the end or at
// the start.
static void same_pads(kiln_ctx *cx, kiln_conv_window *w, bool upper) {
  for (int i = 0; i < w->n; i++) {
    const kiln_expr *stride = kiln_int(cx, w->stride[i]), *zero = kiln_int(cx, 0);
    w->out[i] = kiln_lower_tidy(cx, kiln_ceil_div(cx, w->in[i], stride));
    const kiln_expr *span = kiln_mul(cx, kiln_sub(cx, w->out[i], kiln_int(cx, 1)), stride);
    const kiln_expr *wanted = kiln_add(cx, span, kiln_int(cx, kiln_conv_window_reach(w, i)));
    const kiln_expr *total =
        kiln_lower_tidy(cx, kiln_most(cx, kiln_sub(cx, wanted, w->in[i]), zero));
    const kiln_expr *half = kiln_div(cx, total, kiln_int(cx, 2));
    const kiln_expr *rest = kiln_sub(cx, total, half);
    w->begin[i] = kiln_lower_tidy(cx, upper ? half : rest);
    w->end[i] = kiln_lower_tidy(cx, upper ? rest : half);
  }
}

static kiln_status given_pads(kiln_lower *lw, kiln_conv_window *w, bool use) {
  int64_t pads[2 * KILN_MAX_RANK];
  KILN_TRY(kiln_conv_window_list(lw, "pads", 2 * w->n, 0, INT32_MIN, pads));
  for (int i = 0; i < w->n; i++) {
    w->begin[i] = kiln_int(lw->cx, use ? pads[i] : 0);
    w->end[i] = kiln_int(lw->cx, use ? pads[w->n + i] : 0);
  }
  return KILN_OK;
}

// out = (in + pads - reach) / stride + 1; with ceil_mode rounded up, but the last window must begin
// inside the input or its leading pad.
static kiln_status count_windows(kiln_lower *lw, kiln_conv_window *w, bool ceil_mode) {
  kiln_ctx *cx = lw->cx;
  for (int i = 0; i < w->n; i++) {
    const kiln_expr *stride = kiln_int(cx, w->stride[i]), *one = kiln_int(cx, 1);
    const kiln_expr *padded = kiln_add(cx, kiln_add(cx, w->in[i], w->begin[i]), w->end[i]);
    const kiln_expr *room =
        kiln_lower_tidy(cx, kiln_sub(cx, padded, kiln_int(cx, kiln_conv_window_reach(w, i))));
    int64_t v = 0;
    const int64_t short_by = ceil_mode ? 2 * w->stride[i] - 1 : w->stride[i]; // no window will do
    if (kiln_expr_is_int(room, &v) && v < -short_by)
      return KILN_FAIL(cx->diag, KILN_BAD_INPUT, lw->place,
                       "axis %d: the window of %" PRId64
                       " must fit into the padded input, which is %" PRId64 " too short",
                       2 + i, kiln_conv_window_reach(w, i), -v);
    if (ceil_mode) {
      const kiln_expr *all = kiln_add(cx, kiln_ceil_div(cx, room, stride), one);
      const kiln_expr *inside = kiln_sub(cx, kiln_add(cx, w->in[i], w->begin[i]), one);
      const kiln_expr *begun = kiln_add(cx, kiln_div(cx, inside, stride), one);
      w->out[i] = kiln_lower_tidy(cx, kiln_least(cx, all, begun));
    } else {
      w->out[i] = kiln_lower_tidy(cx, kiln_add(cx, kiln_div(cx, room, stride), one));
    }
  }
  return KILN_OK;
}

kiln_status kiln_conv_window_read(kiln_lower *lw, const kiln_tensor *x, const kiln_tensor *weights,
                                  kiln_conv_window *out) {
  KILN_TRY(kiln_lower_want_rank(lw, x, 3, KILN_MAX_RANK));
  if (weights) KILN_TRY(kiln_lower_want_rank(lw, weights, x->rank, x->rank));
  *out = (kiln_conv_window){.n = x->rank - 2};
  for (int i = 0; i < out->n; i++) out->in[i] = x->shape[2 + i];
  KILN_TRY(read_kernel(lw, weights, out));
  KILN_TRY(kiln_conv_window_list(lw, "strides", out->n, 1, 1, out->stride));
  KILN_TRY(kiln_conv_window_list(lw, "dilations", out->n, 1, 1, out->dilation));
  const char *mode = NULL;
  KILN_TRY(kiln_lower_string(lw, "auto_pad", "NOTSET", &mode));
  int64_t ceil_mode = 0;
  KILN_TRY(kiln_lower_int(lw, "ceil_mode", 0, &ceil_mode));
  if (!strcmp(mode, "SAME_UPPER") || !strcmp(mode, "SAME_LOWER")) {
    same_pads(lw->cx, out, !strcmp(mode, "SAME_UPPER"));
    return KILN_OK;
  }
  const bool given = !strcmp(mode, "NOTSET") || !strcmp(mode, "");
  if (!given && strcmp(mode, "VALID") != 0)
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                     "auto_pad: must be NOTSET, SAME_UPPER, SAME_LOWER or VALID, got %s", mode);
  KILN_TRY(given_pads(lw, out, given));
  return count_windows(lw, out, ceil_mode != 0);
}

kiln_tensor *kiln_conv_window_pad(kiln_lower *lw, kiln_tensor *x, const kiln_conv_window *w,
                                  const kiln_expr *outside) {
  kiln_ctx *cx = lw->cx;
  const kiln_expr *extents[KILN_MAX_RANK] = {x->shape[0], x->shape[1]};
  bool padded = false;
  for (int i = 0; i < w->n; i++) {
    const kiln_expr *longer = kiln_add(cx, w->in[i], kiln_add(cx, w->begin[i], w->end[i]));
    extents[2 + i] = kiln_lower_tidy(cx, longer);
    padded = padded || !kiln_expr_is(w->begin[i], 0) || !kiln_expr_is(w->end[i], 0);
  }
  if (!padded) return x;
  kiln_stmt *s = kiln_lower_stmt(lw, "pad", x->dtype, x->rank, 0, extents);
  const kiln_expr *at[KILN_MAX_RANK], *inside = NULL;
  kiln_stmt_vars(cx, s, 0, x->rank, at);
  for (int i = 0; i < w->n; i++) {
    const kiln_expr *h = kiln_sub(cx, at[2 + i], w->begin[i]), *zero = kiln_int(cx, 0);
    int64_t begin = 1, end = 1;
    if (!kiln_expr_is_int(w->begin[i], &begin) || begin > 0)
      inside = kiln_both(cx, inside, kiln_compare(cx, KILN_EXPR_GE, h, zero));
    if (!kiln_expr_is_int(w->end[i], &end) || end > 0)
      inside = kiln_both(cx, inside, kiln_compare(cx, KILN_EXPR_LT, h, w->in[i]));
    at[2 + i] = kiln_lower_tidy(cx, h);
  }
  s->body = kiln_tensor_load(cx, x, at);
  if (inside) s->body = kiln_select(cx, inside, s->body, outside);
  return kiln_lower_tensor(lw, s);
}

// A convolution between its steps.
typedef struct conv {
  kiln_lower *lw;
  const kiln_tensor *x; // (N, C, padded...)
  kiln_tensor *weights; // (M, C/group, kernel...)
  const kiln_conv_window *w;
  kiln_dtype accumulator;
  int64_t group, out_channels, group_channels;
} conv;

// body = x(n, c, o*stride + k*dilation) * weights(m..., k_c, k): |o| and |k| are the first dims of
// the outputs and of the window; at_w[0..n_m) are the indices for m, with room behind.
static void set_product(const conv *c, kiln_stmt *s, const kiln_expr *channel,
                        const kiln_expr **at_w, int n_m, const kiln_expr *k_c, int o, int k) {
  kiln_ctx *cx = c->lw->cx;
  const kiln_expr *at_x[KILN_MAX_RANK] = {kiln_stmt_var(cx, s, 0), channel};
  at_w[n_m] = k_c;
  for (int i = 0; i < c->w->n; i++) {
    const kiln_expr *tap = kiln_stmt_var(cx, s, k + i);
    const kiln_expr *start =
        kiln_mul(cx, kiln_stmt_var(cx, s, o + i), kiln_int(cx, c->w->stride[i]));
    at_x[2 + i] = kiln_add(cx, start, kiln_mul(cx, tap, kiln_int(cx, c->w->dilation[i])));
    at_w[n_m + 1 + i] = tap;
  }
  const kiln_expr *a = kiln_cast(cx, c->accumulator, kiln_tensor_load(cx, c->x, at_x));
  const kiln_expr *b = kiln_cast(cx, c->accumulator, kiln_tensor_load(cx, c->weights, at_w));
  s->body = kiln_mul(cx, a, b);
  s->combiner = KILN_COMBINE_SUM;
}

// group 1: (n, m, o... | c, k...); depthwise: (n, m, o... | k...).
static kiln_tensor *plain_conv(const conv *c, bool depthwise) {
  kiln_ctx *cx = c->lw->cx;
  const int n = c->w->n;
  const kiln_expr *extents[2 * KILN_MAX_RANK] = {c->x->shape[0], c->weights->shape[0]};
  int at = 2;
  for (int i = 0; i < n; i++) extents[at++] = c->w->out[i];
  if (!depthwise) extents[at++] = c->weights->shape[1];
  for (int i = 0; i < n; i++) extents[at++] = kiln_int(cx, c->w->kernel[i]);
  kiln_stmt *s = kiln_lower_stmt(c->lw, "conv", c->accumulator, 2 + n, at - 2 - n, extents);
  const kiln_expr *m = kiln_stmt_var(cx, s, 1), *at_w[KILN_MAX_RANK] = {m};
  if (depthwise) {
    set_product(c, s, m, at_w, 1, kiln_int(cx, 0), 2, 2 + n);
  } else {
    const kiln_expr *k_c = kiln_stmt_var(cx, s, 2 + n);
    set_product(c, s, k_c, at_w, 1, k_c, 2, 3 + n);
  }
  return kiln_lower_tensor(c->lw, s);
}

// Weights as (g, m, C/group, kernel...): the groups become an axis.
static kiln_tensor *weights_by_group(const conv *c) {
  kiln_ctx *cx = c->lw->cx;
  const kiln_expr *shape[KILN_MAX_RANK] = {kiln_int(cx, c->group),
                                           kiln_int(cx, c->out_channels / c->group)};
  for (int i = 1; i < c->weights->rank; i++) shape[1 + i] = c->weights->shape[i];
  return kiln_lower_reshape(c->lw, c->weights, 1 + c->weights->rank, shape);
}

// (n, g, m, o... | c, k...), then (n, g*m, o...).
static kiln_tensor *grouped_conv(conv *c) {
  kiln_ctx *cx = c->lw->cx;
  const int n = c->w->n;
  const kiln_expr *per_group = kiln_int(cx, c->out_channels / c->group);
  const kiln_expr *extents[2 * KILN_MAX_RANK] = {c->x->shape[0], kiln_int(cx, c->group), per_group};
  int at = 3;
  for (int i = 0; i < n; i++) extents[at++] = c->w->out[i];
  extents[at++] = kiln_int(cx, c->group_channels);
  for (int i = 0; i < n; i++) extents[at++] = kiln_int(cx, c->w->kernel[i]);
  c->weights = weights_by_group(c);
  kiln_stmt *s = kiln_lower_stmt(c->lw, "conv", c->accumulator, 3 + n, 1 + n, extents);
  const kiln_expr *g = kiln_stmt_var(cx, s, 1), *k_c = kiln_stmt_var(cx, s, 3 + n);
  const kiln_expr *channel = kiln_add(cx, kiln_mul(cx, g, kiln_int(cx, c->group_channels)), k_c);
  const kiln_expr *at_w[KILN_MAX_RANK] = {g, kiln_stmt_var(cx, s, 2)};
  set_product(c, s, channel, at_w, 2, k_c, 3, 4 + n);
  const kiln_expr *shape[KILN_MAX_RANK] = {c->x->shape[0], kiln_int(cx, c->out_channels)};
  for (int i = 0; i < n; i++) shape[2 + i] = c->w->out[i];
  return kiln_lower_reshape(c->lw, kiln_lower_tensor(c->lw, s), 2 + n, shape);
}

static kiln_status check_groups(const conv *c) {
  kiln_ctx *cx = c->lw->cx;
  int64_t channels = 0;
  if (c->group < 1 || c->out_channels % c->group != 0)
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, c->lw->place,
                     "group must divide the %" PRId64 " output channels, got %" PRId64,
                     c->out_channels, c->group);
  if (kiln_expr_is_int(c->x->shape[1], &channels) && channels != c->group_channels * c->group)
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, c->lw->place,
                     "the input must have %" PRId64 " channels (%" PRId64 " groups of %" PRId64
                     "), got %" PRId64,
                     c->group_channels * c->group, c->group, c->group_channels, channels);
  if (c->group > 1 && c->x->rank + 1 > KILN_MAX_RANK)
    return KILN_FAIL(cx->diag, KILN_UNSUPPORTED, c->lw->place,
                     "grouped convolution: rank must be below %d, got %d", KILN_MAX_RANK,
                     c->x->rank);
  return KILN_OK;
}

kiln_status kiln_lower_conv(kiln_lower *lw, kiln_tensor *x, kiln_tensor *weights, int64_t group,
                            const kiln_conv_window *w, kiln_dtype accumulator, kiln_tensor **out) {
  conv c = {
      .lw = lw, .x = x, .weights = weights, .w = w, .accumulator = accumulator, .group = group};
  KILN_TRY(kiln_lower_extent(lw, weights, 0, &c.out_channels));
  KILN_TRY(kiln_lower_extent(lw, weights, 1, &c.group_channels));
  KILN_TRY(check_groups(&c));
  c.x = kiln_conv_window_pad(lw, x, w, kiln_number(lw->cx, x->dtype, 0));
  const bool depthwise = group > 1 && c.group_channels == 1 && c.out_channels == group;
  *out = group == 1 || depthwise ? plain_conv(&c, depthwise) : grouped_conv(&c);
  return KILN_OK;
}

kiln_status kiln_lower_channel_bias(kiln_lower *lw, kiln_tensor *y, const kiln_tensor *bias,
                                    kiln_tensor **out) {
  *out = y;
  if (!bias) return KILN_OK;
  kiln_ctx *cx = lw->cx;
  KILN_TRY(kiln_lower_want_rank(lw, bias, 1, 1));
  int64_t have = 0, want = 0;
  if (kiln_expr_is_int(bias->shape[0], &have) && kiln_expr_is_int(y->shape[1], &want) &&
      have != want)
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, lw->place,
                     "bias: must have %" PRId64 " elements, got %" PRId64, want, have);
  const kiln_expr *at[KILN_MAX_RANK];
  kiln_stmt *s = kiln_lower_like(lw, "bias", y, y->dtype, at);
  const kiln_expr *b = kiln_cast(cx, y->dtype, kiln_tensor_load(cx, bias, &at[1]));
  s->body = kiln_add(cx, kiln_tensor_load(cx, y, at), b);
  *out = kiln_lower_tensor(lw, s);
  return KILN_OK;
}
