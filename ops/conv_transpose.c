// ConvTranspose by phases: outputs whose position has the same remainder by the stride read the
// same taps, so every phase is an ordinary convolution with stride 1. All phases together are one
// convolution with M * product(strides) channels over the weights in phase order, followed by an
// index map that interleaves them (as DepthToSpace does): no multiplication by inserted zeros, no
// scatter. source: ONNX ConvTranspose-1, 11, 22
#include "fission/window.h"

#include "support/integer.h"

#include <string.h>

enum { MAX_PHASES = 1 << 16 };

// begin holds what is cut from the start of the full result, out the extents of the output.
typedef struct transposed {
  kiln_lower *lw;
  const kiln_tensor *x, *weights; // (N, C, in...), (C, M/group, kernel...)
  kiln_window w;
  int64_t group, channels, per_group; // per_group: output channels of a group
  int64_t phases;                     // the product of the strides
  int64_t taps[KILN_MAX_RANK];        // of a phase: ceil(reach / stride)
} transposed;

static kiln_status read_geometry(transposed *c) {
  kiln_lower *lw = c->lw;
  kiln_window *w = &c->w;
  *w = (kiln_window){.n = c->x->rank - 2};
  KILN_TRY(kiln_window_list(lw, "strides", w->n, 1, 1, w->stride));
  KILN_TRY(kiln_window_list(lw, "dilations", w->n, 1, 1, w->dilation));
  c->phases = 1;
  for (int i = 0; i < w->n; i++) {
    KILN_TRY(kiln_window_kernel(lw, c->weights, i, &w->kernel[i]));
    w->in[i] = c->x->shape[2 + i];
    c->phases *= w->stride[i];
    if (c->phases > MAX_PHASES)
      return KILN_FAIL(lw->cx->diag, KILN_UNSUPPORTED, lw->place,
                       "strides: their product must be at most %d, got at least %" PRId64,
                       MAX_PHASES, c->phases);
    c->taps[i] = kiln_divide_up(kiln_window_reach(w, i), w->stride[i]);
  }
  return KILN_OK;
}

// Where output_shape or auto_pad says the extents, the pads follow from them.
static kiln_status shape_to_pads(transposed *c, const int64_t *output_padding, bool same,
                                 bool upper) {
  kiln_ctx *cx = c->lw->cx;
  kiln_window *w = &c->w;
  int64_t wanted[KILN_MAX_RANK];
  const bool given = kiln_lower_attr(c->lw, "output_shape") != NULL;
  KILN_TRY(kiln_window_list(c->lw, "output_shape", w->n, 1, 1, wanted));
  for (int i = 0; i < w->n; i++) {
    const kiln_expr *stride = kiln_int(cx, w->stride[i]), *one = kiln_int(cx, 1);
    w->out[i] =
        given ? kiln_int(cx, wanted[i]) : kiln_lower_tidy(cx, kiln_mul(cx, w->in[i], stride));
    const kiln_expr *full = kiln_mul(cx, kiln_sub(cx, w->in[i], one), stride);
    full = kiln_add(cx, full, kiln_int(cx, output_padding[i] + kiln_window_reach(w, i)));
    const kiln_expr *total = kiln_most(cx, kiln_sub(cx, full, w->out[i]), kiln_int(cx, 0));
    const kiln_expr *half = kiln_div(cx, total, kiln_int(cx, 2));
    const bool small_first = same && upper;
    w->begin[i] = kiln_lower_tidy(cx, small_first ? half : kiln_sub(cx, total, half));
  }
  return KILN_OK;
}

static kiln_status pads_to_shape(transposed *c, const int64_t *output_padding, bool use) {
  kiln_ctx *cx = c->lw->cx;
  kiln_window *w = &c->w;
  int64_t pads[2 * KILN_MAX_RANK];
  KILN_TRY(kiln_window_list(c->lw, "pads", 2 * w->n, 0, 0, pads));
  for (int i = 0; i < w->n; i++) {
    const int64_t begin = use ? pads[i] : 0, end = use ? pads[w->n + i] : 0;
    const int64_t more = kiln_window_reach(w, i) + output_padding[i] - begin - end;
    const kiln_expr *steps = kiln_sub(cx, w->in[i], kiln_int(cx, 1));
    const kiln_expr *full = kiln_mul(cx, steps, kiln_int(cx, w->stride[i]));
    w->begin[i] = kiln_int(cx, begin);
    w->out[i] = kiln_lower_tidy(cx, kiln_add(cx, full, kiln_int(cx, more)));
    int64_t v = 0;
    if (kiln_expr_is_int(w->out[i], &v) && v < 0)
      return KILN_FAIL(cx->diag, KILN_BAD_INPUT, c->lw->place,
                       "pads: must leave an output, got extent %" PRId64 " of axis %d", v, 2 + i);
  }
  return KILN_OK;
}

static kiln_status read_pads(transposed *c) {
  kiln_lower *lw = c->lw;
  const char *mode = NULL;
  int64_t output_padding[KILN_MAX_RANK];
  KILN_TRY(kiln_window_list(lw, "output_padding", c->w.n, 0, 0, output_padding));
  KILN_TRY(kiln_lower_string(lw, "auto_pad", "NOTSET", &mode));
  const bool upper = !strcmp(mode, "SAME_UPPER"), lower = !strcmp(mode, "SAME_LOWER");
  const bool valid = !strcmp(mode, "VALID");
  if (!upper && !lower && !valid && strcmp(mode, "NOTSET") != 0)
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                     "auto_pad: must be NOTSET, SAME_UPPER, SAME_LOWER or VALID, got %s", mode);
  if (kiln_lower_attr(lw, "output_shape") || upper || lower)
    return shape_to_pads(c, output_padding, upper || lower, upper);
  return pads_to_shape(c, output_padding, !valid);
}

// W2(e, c, j...): e = (g*phases + phase)*per_group + m, c inside the group, j counted backwards.
static kiln_tensor *phase_weights(const transposed *c) {
  kiln_ctx *cx = c->lw->cx;
  const kiln_window *w = &c->w;
  const int64_t group_in = c->channels / c->group, all = c->group * c->per_group;
  const kiln_expr *extents[KILN_MAX_RANK] = {kiln_int(cx, all * c->phases), kiln_int(cx, group_in)};
  for (int i = 0; i < w->n; i++) extents[2 + i] = kiln_int(cx, c->taps[i]);
  kiln_stmt *s = kiln_lower_stmt(c->lw, "phase_weights", c->weights->dtype, 2 + w->n, 0, extents);
  const kiln_expr *e = kiln_stmt_var(cx, s, 0), *at[KILN_MAX_RANK], *inside = NULL;
  const kiln_expr *per_group = kiln_int(cx, c->per_group), *phases = kiln_int(cx, c->phases);
  const kiln_expr *phase = kiln_mod(cx, kiln_div(cx, e, per_group), phases);
  const kiln_expr *g = kiln_div(cx, kiln_div(cx, e, per_group), phases);
  at[0] = kiln_add(cx, kiln_mul(cx, g, kiln_int(cx, group_in)), kiln_stmt_var(cx, s, 1));
  at[1] = kiln_mod(cx, e, per_group);
  for (int i = w->n - 1; i >= 0; i--) {
    const kiln_expr *stride = kiln_int(cx, w->stride[i]), *dilation = kiln_int(cx, w->dilation[i]);
    const kiln_expr *r = kiln_mod(cx, phase, stride);
    phase = kiln_div(cx, phase, stride);
    const kiln_expr *j = kiln_sub(cx, kiln_int(cx, c->taps[i] - 1), kiln_stmt_var(cx, s, 2 + i));
    const kiln_expr *place = kiln_add(cx, kiln_mul(cx, j, stride), r); // in the dilated kernel
    if (c->taps[i] * w->stride[i] != kiln_window_reach(w, i))
      inside = kiln_both(
          cx, inside, kiln_compare(cx, KILN_EXPR_LT, place, kiln_int(cx, kiln_window_reach(w, i))));
    if (w->dilation[i] > 1)
      inside =
          kiln_both(cx, inside,
                    kiln_compare(cx, KILN_EXPR_EQ, kiln_mod(cx, place, dilation), kiln_int(cx, 0)));
    at[2 + i] = kiln_div(cx, place, dilation);
  }
  s->body = kiln_tensor_load(cx, c->weights, at);
  if (inside) s->body = kiln_select(cx, inside, s->body, kiln_number(cx, c->weights->dtype, 0));
  kiln_stmt_tidy(cx, s);
  return kiln_lower_tensor(c->lw, s);
}

// The window of the convolution over phases: q = (o + begin) / stride runs over its outputs.
static kiln_window phase_window(const transposed *c) {
  kiln_ctx *cx = c->lw->cx;
  kiln_window w = {.n = c->w.n};
  for (int i = 0; i < w.n; i++) {
    const kiln_expr *last = kiln_add(cx, c->w.out[i], c->w.begin[i]);
    const kiln_expr *rows = kiln_ceil_div(cx, last, kiln_int(cx, c->w.stride[i]));
    w.kernel[i] = c->taps[i];
    w.stride[i] = w.dilation[i] = 1;
    w.in[i] = c->w.in[i];
    w.out[i] = kiln_lower_tidy(cx, rows);
    w.begin[i] = kiln_int(cx, c->taps[i] - 1);
    w.end[i] = kiln_lower_tidy(cx, kiln_sub(cx, w.out[i], w.in[i]));
  }
  return w;
}

// Y(n, g*per_group + m, o...) = Q(n, (g*phases + phase(o))*per_group + m, (o + begin) / stride...).
static kiln_tensor *interleave(const transposed *c, const kiln_tensor *q) {
  kiln_ctx *cx = c->lw->cx;
  const kiln_window *w = &c->w;
  const kiln_expr *extents[KILN_MAX_RANK] = {q->shape[0], kiln_int(cx, c->group * c->per_group)};
  for (int i = 0; i < w->n; i++) extents[2 + i] = w->out[i];
  kiln_stmt *s = kiln_lower_stmt(c->lw, "conv_transpose", q->dtype, 2 + w->n, 0, extents);
  const kiln_expr *at[KILN_MAX_RANK] = {kiln_stmt_var(cx, s, 0)};
  const kiln_expr *channel = kiln_stmt_var(cx, s, 1), *per_group = kiln_int(cx, c->per_group);
  at[1] = kiln_div(cx, channel, per_group);
  for (int i = 0; i < w->n; i++) {
    const kiln_expr *o = kiln_add(cx, kiln_stmt_var(cx, s, 2 + i), w->begin[i]);
    const kiln_expr *stride = kiln_int(cx, w->stride[i]);
    at[1] = kiln_add(cx, kiln_mul(cx, at[1], stride), kiln_mod(cx, o, stride));
    at[2 + i] = kiln_div(cx, o, stride);
  }
  at[1] = kiln_add(cx, kiln_mul(cx, at[1], per_group), kiln_mod(cx, channel, per_group));
  s->body = kiln_tensor_load(cx, q, at);
  kiln_stmt_tidy(cx, s);
  return kiln_lower_tensor(c->lw, s);
}

static kiln_status check_channels(transposed *c) {
  kiln_lower *lw = c->lw;
  KILN_TRY(kiln_lower_int(lw, "group", 1, &c->group));
  KILN_TRY(kiln_lower_extent(lw, c->weights, 0, &c->channels));
  KILN_TRY(kiln_lower_extent(lw, c->weights, 1, &c->per_group));
  int64_t have = 0;
  if (kiln_expr_is_int(c->x->shape[1], &have) && have != c->channels)
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                     "the weights must have %" PRId64 " input channels, got %" PRId64, have,
                     c->channels);
  if (c->group < 1 || c->channels % c->group != 0)
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                     "group must divide the %" PRId64 " input channels, got %" PRId64, c->channels,
                     c->group);
  return KILN_OK;
}

static kiln_status lower_conv_transpose(kiln_lower *lw) {
  KILN_TRY(kiln_lower_want_inputs(lw, 2, 3));
  KILN_TRY(kiln_lower_want_dtype(lw, 0, kiln_dtype_is_float, "a float"));
  kiln_tensor *x = lw->inputs[0], *y = NULL;
  KILN_TRY(kiln_lower_want_rank(lw, x, 3, KILN_MAX_RANK - 1));
  KILN_TRY(kiln_lower_want_rank(lw, lw->inputs[1], x->rank, x->rank));
  transposed c = {.lw = lw, .x = x, .weights = lw->inputs[1]};
  KILN_TRY(check_channels(&c));
  KILN_TRY(read_geometry(&c));
  KILN_TRY(read_pads(&c));
  const kiln_window w = phase_window(&c);
  KILN_TRY(kiln_lower_conv(lw, x, phase_weights(&c), c.group, &w, kiln_accumulator(x->dtype), &y));
  KILN_TRY(kiln_lower_channel_bias(lw, interleave(&c, y), kiln_lower_in(lw, 2), &y));
  return kiln_lower_cast(lw, y, x->dtype, &lw->outputs[0]);
}

const kiln_op kiln_op_conv_transpose[] = {
    {"", "ConvTranspose", 1, 0, lower_conv_transpose, NULL, "ops/conv_transpose.c"},
    {0},
};
