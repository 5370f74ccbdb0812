// ConvTranspose by phases: outputs whose position has the same remainder by the stride read the
// same taps, so every phase is an ordinary convolution with stride 1. Phases that lie together and
// have as many taps at the same distances (all of them, where the strides divide the kernel) are
// one convolution with M times as many channels; an index map interleaves them (as DepthToSpace
// does): no multiplication by inserted zeros, of the input or of the weights, no scatter. So
// infinity and NaN reach the elements that have a term of them and no other.
// source: ONNX ConvTranspose-1, 11, 22
#include "fission/window.h"

#include "support/integer.h"

#include <string.h>

enum { MAX_PHASES = 1 << 16 };

// begin holds what is cut from the start of the full result, out the extents of the output.
typedef struct transposed {
  kiln_lower *lw;
  kiln_tensor *x;             // (N, C, in...)
  const kiln_tensor *weights; // (C, M/group, kernel...)
  kiln_conv_window w;
  int64_t group, channels, per_group; // per_group: output channels of a group
  int64_t phases;                     // the product of the strides
} transposed;

// The taps that a phase has along an axis: elements first, first + step, ... of those that lie a
// stride apart.
typedef struct taps {
  int64_t first, step, n;
} taps;

// Phases [first, first + count), which have the same taps along every axis; n = 0 along one: no
// taps.
typedef struct run {
  int64_t first, count;
  taps taps[KILN_MAX_RANK];
} run;

static kiln_status read_geometry(transposed *c) {
  kiln_lower *lw = c->lw;
  kiln_conv_window *w = &c->w;
  *w = (kiln_conv_window){.n = c->x->rank - 2};
  KILN_TRY(kiln_conv_window_list(lw, "strides", w->n, 1, 1, w->stride));
  KILN_TRY(kiln_conv_window_list(lw, "dilations", w->n, 1, 1, w->dilation));
  c->phases = 1;
  for (int i = 0; i < w->n; i++) {
    KILN_TRY(kiln_conv_window_kernel(lw, c->weights, i, &w->kernel[i]));
    w->in[i] = c->x->shape[2 + i];
    c->phases *= w->stride[i];
    if (c->phases > MAX_PHASES)
      return KILN_FAIL(lw->cx->diag, KILN_UNSUPPORTED, lw->place,
                       "strides: their product must be at most %d, got at least %" PRId64,
                       MAX_PHASES, c->phases);
  }
  return KILN_OK;
}

// Where output_shape or auto_pad says the extents, the pads follow from them.
static kiln_status shape_to_pads(transposed *c, const int64_t *output_padding, bool same,
                                 bool upper) {
  kiln_ctx *cx = c->lw->cx;
  kiln_conv_window *w = &c->w;
  int64_t wanted[KILN_MAX_RANK];
  const bool given = kiln_lower_attr(c->lw, "output_shape") != NULL;
  KILN_TRY(kiln_conv_window_list(c->lw, "output_shape", w->n, 1, 1, wanted));
  for (int i = 0; i < w->n; i++) {
    const kiln_expr *stride = kiln_int(cx, w->stride[i]), *one = kiln_int(cx, 1);
    w->out[i] =
        given ? kiln_int(cx, wanted[i]) : kiln_lower_tidy(cx, kiln_mul(cx, w->in[i], stride));
    const kiln_expr *full = kiln_mul(cx, kiln_sub(cx, w->in[i], one), stride);
    full = kiln_add(cx, full, kiln_int(cx, output_padding[i] + kiln_conv_window_reach(w, i)));
    const kiln_expr *total = kiln_most(cx, kiln_sub(cx, full, w->out[i]), kiln_int(cx, 0));
    const kiln_expr *half = kiln_div(cx, total, kiln_int(cx, 2));
    const bool small_first = same && upper;
    w->begin[i] = kiln_lower_tidy(cx, small_first ? half : kiln_sub(cx, total, half));
  }
  return KILN_OK;
}

static kiln_status pads_to_shape(transposed *c, const int64_t *output_padding, bool use) {
  kiln_ctx *cx = c->lw->cx;
  kiln_conv_window *w = &c->w;
  int64_t pads[2 * KILN_MAX_RANK];
  KILN_TRY(kiln_conv_window_list(c->lw, "pads", 2 * w->n, 0, 0, pads));
  for (int i = 0; i < w->n; i++) {
    const int64_t begin = use ? pads[i] : 0, end = use ? pads[w->n + i] : 0;
    const int64_t more = kiln_conv_window_reach(w, i) + output_padding[i] - begin - end;
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
  KILN_TRY(kiln_conv_window_list(lw, "output_padding", c->w.n, 0, 0, output_padding));
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

// Kernel element k stands at k*dilation of the dilated kernel, and belongs to the phase of that
// remainder.
static taps taps_of(const kiln_conv_window *w, int axis, int64_t remainder) {
  const int64_t stride = w->stride[axis], dilation = w->dilation[axis], kernel = w->kernel[axis];
  const int64_t common = kiln_gcd(stride, dilation);
  int64_t k = 0;
  while (k < kernel && k < stride && k * dilation % stride != remainder) k++;
  if (k == kernel || k == stride) return (taps){0};
  return (taps){.first = k * dilation / stride,
                .step = dilation / common,
                .n = kiln_divide_up(kernel - k, stride / common)};
}

static run phase_of(const kiln_conv_window *w, int64_t phase) {
  run r = {.first = phase, .count = 1};
  for (int i = w->n - 1; i >= 0; phase /= w->stride[i--])
    r.taps[i] = taps_of(w, i, phase % w->stride[i]);
  return r;
}

static bool is_empty(const kiln_conv_window *w, const run *r) {
  for (int i = 0; i < w->n; i++)
    if (r->taps[i].n == 0) return true;
  return false;
}

static bool are_alike(const kiln_conv_window *w, const run *a, const run *b) {
  if (is_empty(w, a) || is_empty(w, b)) return is_empty(w, a) && is_empty(w, b);
  bool same = true;
  for (int i = 0; i < w->n; i++) {
    const taps *s = &a->taps[i], *t = &b->taps[i];
    same = same && s->first == t->first && s->n == t->n && (s->n == 1 || s->step == t->step);
  }
  return same;
}

// The run that begins with phase |first|.
static run next_run(const transposed *c, int64_t first) {
  run r = phase_of(&c->w, first);
  for (; first + r.count < c->phases; r.count++) {
    const run other = phase_of(&c->w, first + r.count);
    if (!are_alike(&c->w, &r, &other)) break;
  }
  return r;
}

// W2(e, c, j...): e = (g*count + phase - first)*per_group + m, c inside the group, j counted
// backwards.
static kiln_tensor *phase_weights(const transposed *c, const run *r) {
  kiln_ctx *cx = c->lw->cx;
  const kiln_conv_window *w = &c->w;
  const int64_t group_in = c->channels / c->group, all = c->group * c->per_group;
  const kiln_expr *extents[KILN_MAX_RANK] = {kiln_int(cx, all * r->count), kiln_int(cx, group_in)};
  for (int i = 0; i < w->n; i++) extents[2 + i] = kiln_int(cx, r->taps[i].n);
  kiln_stmt *s = kiln_lower_stmt(c->lw, "phase_weights", c->weights->dtype, 2 + w->n, 0, extents);
  const kiln_expr *e = kiln_stmt_var(cx, s, 0), *at[KILN_MAX_RANK];
  const kiln_expr *per_group = kiln_int(cx, c->per_group), *count = kiln_int(cx, r->count);
  const kiln_expr *phase = kiln_mod(cx, kiln_div(cx, e, per_group), count);
  const kiln_expr *g = kiln_div(cx, kiln_div(cx, e, per_group), count);
  phase = kiln_add(cx, phase, kiln_int(cx, r->first));
  at[0] = kiln_add(cx, kiln_mul(cx, g, kiln_int(cx, group_in)), kiln_stmt_var(cx, s, 1));
  at[1] = kiln_mod(cx, e, per_group);
  for (int i = w->n - 1; i >= 0; i--) {
    const taps *t = &r->taps[i];
    const kiln_expr *stride = kiln_int(cx, w->stride[i]), *dilation = kiln_int(cx, w->dilation[i]);
    const kiln_expr *back = kiln_sub(cx, kiln_int(cx, t->n - 1), kiln_stmt_var(cx, s, 2 + i));
    const kiln_expr *j =
        kiln_add(cx, kiln_mul(cx, back, kiln_int(cx, t->step)), kiln_int(cx, t->first));
    const kiln_expr *place = kiln_add(cx, kiln_mul(cx, j, stride), kiln_mod(cx, phase, stride));
    at[2 + i] = kiln_div(cx, place, dilation); // from a place in the dilated kernel
    phase = kiln_div(cx, phase, stride);
  }
  s->body = kiln_tensor_load(cx, c->weights, at);
  kiln_stmt_tidy(cx, s);
  return kiln_lower_tensor(c->lw, s);
}

// The window of the convolution of a run: q = (o + begin) / stride runs over its outputs.
static kiln_conv_window phase_window(const transposed *c, const run *r) {
  kiln_ctx *cx = c->lw->cx;
  kiln_conv_window w = {.n = c->w.n};
  for (int i = 0; i < w.n; i++) {
    const taps *t = &r->taps[i];
    const kiln_expr *last = kiln_add(cx, c->w.out[i], c->w.begin[i]);
    const kiln_expr *rows = kiln_ceil_div(cx, last, kiln_int(cx, c->w.stride[i]));
    const kiln_expr *behind = kiln_add(cx, c->w.in[i], kiln_int(cx, t->first));
    w.kernel[i] = t->n;
    w.stride[i] = 1;
    w.dilation[i] = t->n == 1 ? 1 : t->step;
    w.in[i] = c->w.in[i];
    w.out[i] = kiln_lower_tidy(cx, rows);
    w.begin[i] = kiln_int(cx, t->first + (t->n - 1) * t->step);
    w.end[i] = kiln_lower_tidy(cx, kiln_sub(cx, w.out[i], behind));
  }
  return w;
}

// Pads the input once for the windows of all runs, which leave out what is not theirs: their pads
// become negative.
static void pad_for_all(transposed *c, int n, kiln_conv_window *windows) {
  kiln_ctx *cx = c->lw->cx;
  kiln_conv_window all = windows[0];
  for (int k = 0; k < n; k++)
    for (int i = 0; i < all.n; i++) {
      all.begin[i] = kiln_lower_tidy(cx, kiln_most(cx, all.begin[i], windows[k].begin[i]));
      all.end[i] = kiln_lower_tidy(cx, kiln_most(cx, all.end[i], windows[k].end[i]));
    }
  c->x = kiln_conv_window_pad(c->lw, c->x, &all, kiln_number(cx, c->x->dtype, 0));
  for (int k = 0; k < n; k++)
    for (int i = 0; i < all.n; i++) {
      windows[k].in[i] = c->x->shape[2 + i];
      windows[k].begin[i] = kiln_lower_tidy(cx, kiln_sub(cx, windows[k].begin[i], all.begin[i]));
      windows[k].end[i] = kiln_lower_tidy(cx, kiln_sub(cx, windows[k].end[i], all.end[i]));
    }
}

// The phases of a run: (n, (g, phase - first, m), q...).
static kiln_status lower_phases(const transposed *c, const run *r, const kiln_conv_window *w,
                                kiln_tensor **out) {
  return kiln_lower_conv(c->lw, c->x, phase_weights(c, r), c->group, w,
                         kiln_accumulator(c->x->dtype), out);
}

// The place o + begin of the output's element along spatial axis |i| in the full result.
static const kiln_expr *full_place(const transposed *c, const kiln_stmt *s, int i) {
  return kiln_add(c->lw->cx, kiln_stmt_var(c->lw->cx, s, 2 + i), c->w.begin[i]);
}

static kiln_stmt *make_result(const transposed *c) {
  kiln_ctx *cx = c->lw->cx;
  const kiln_expr *extents[KILN_MAX_RANK] = {c->x->shape[0], kiln_int(cx, c->group * c->per_group)};
  for (int i = 0; i < c->w.n; i++) extents[2 + i] = c->w.out[i];
  return kiln_lower_stmt(c->lw, "conv_transpose", kiln_accumulator(c->x->dtype), 2 + c->w.n, 0,
                         extents);
}

// What a phase has alone: its first place along each axis, and its elements, (n, (g, m), q -
// first...); NULL: zeros.
typedef struct part {
  const kiln_expr *first[KILN_MAX_RANK];
  const kiln_tensor *elems;
} part;

// The element of the phases from |phase| on that have axes before |axis| in common.
static const kiln_expr *choose(const transposed *c, const kiln_stmt *s, const part *parts, int axis,
                               int64_t phase) {
  kiln_ctx *cx = c->lw->cx;
  const kiln_conv_window *w = &c->w;
  if (axis == w->n) {
    const part *p = &parts[phase];
    const kiln_expr *at[KILN_MAX_RANK] = {kiln_stmt_var(cx, s, 0), kiln_stmt_var(cx, s, 1)};
    if (!p->elems) return kiln_number(cx, kiln_accumulator(c->x->dtype), 0);
    for (int i = 0; i < w->n; i++) {
      const kiln_expr *q = kiln_div(cx, full_place(c, s, i), kiln_int(cx, w->stride[i]));
      at[2 + i] = kiln_sub(cx, q, p->first[i]);
    }
    return kiln_tensor_load(cx, p->elems, at);
  }
  int64_t inner = 1;
  for (int i = axis + 1; i < w->n; i++) inner *= w->stride[i];
  const kiln_expr *remainder = kiln_mod(cx, full_place(c, s, axis), kiln_int(cx, w->stride[axis]));
  const kiln_expr *e = NULL;
  for (int64_t r = w->stride[axis] - 1; r >= 0; r--) {
    const kiln_expr *one = choose(c, s, parts, axis + 1, phase + r * inner);
    const kiln_expr *is_this = kiln_compare(cx, KILN_EXPR_EQ, remainder, kiln_int(cx, r));
    e = e ? kiln_select(cx, is_this, one, e) : one;
  }
  return e;
}

// The window of one phase, whose q runs over the elements that the output has of it and no others.
static kiln_conv_window window_alone(const transposed *c, const run *r, part *out) {
  kiln_ctx *cx = c->lw->cx;
  kiln_conv_window w = phase_window(c, r);
  int64_t phase = r->first;
  for (int i = w.n - 1; i >= 0; phase /= c->w.stride[i--]) {
    const kiln_expr *stride = kiln_int(cx, c->w.stride[i]),
                    *from = kiln_sub(cx, c->w.begin[i], kiln_int(cx, phase % c->w.stride[i])),
                    *first = kiln_lower_tidy(cx, kiln_ceil_div(cx, from, stride)),
                    *end = kiln_ceil_div(cx, kiln_add(cx, from, c->w.out[i]), stride);
    w.begin[i] = kiln_lower_tidy(cx, kiln_sub(cx, w.begin[i], first));
    w.end[i] = kiln_lower_tidy(cx, kiln_add(cx, w.end[i], kiln_sub(cx, end, w.out[i])));
    w.out[i] = kiln_lower_tidy(cx, kiln_sub(cx, end, first));
    out->first[i] = first;
  }
  return w;
}

static bool has_no_elements(const kiln_conv_window *w) {
  for (int i = 0; i < w->n; i++)
    if (kiln_expr_is(w->out[i], 0)) return true;
  return false;
}

// Phases with different taps: a convolution each, put between each other.
static kiln_status lower_apart(transposed *c, kiln_tensor **out) {
  kiln_ctx *cx = c->lw->cx;
  run *runs = KILN_NEW_ARRAY(&cx->perm, run, c->phases);
  part *parts = KILN_NEW_ARRAY(&cx->perm, part, c->phases);
  kiln_conv_window *windows = KILN_NEW_ARRAY(&cx->perm, kiln_conv_window, c->phases);
  int64_t *phases = KILN_NEW_ARRAY(&cx->perm, int64_t, c->phases);
  int n = 0;
  for (int64_t phase = 0; phase < c->phases; phase++) {
    runs[n] = phase_of(&c->w, phase);
    if (is_empty(&c->w, &runs[n])) continue;
    windows[n] = window_alone(c, &runs[n], &parts[phase]);
    if (!has_no_elements(&windows[n])) phases[n++] = phase;
  }
  if (n > 0) pad_for_all(c, n, windows);
  for (int k = 0; k < n; k++) {
    kiln_tensor *elems = NULL;
    KILN_TRY(lower_phases(c, &runs[k], &windows[k], &elems));
    parts[phases[k]].elems = elems;
  }
  kiln_stmt *s = make_result(c);
  s->body = choose(c, s, parts, 0, 0);
  kiln_stmt_tidy(cx, s);
  *out = kiln_lower_tensor(c->lw, s);
  return KILN_OK;
}

// Y(n, g*per_group + m, o...) = Q(n, (g*phases + phase(o))*per_group + m, (o + begin) / stride...).
static kiln_tensor *interleave(const transposed *c, const kiln_tensor *q) {
  kiln_ctx *cx = c->lw->cx;
  const kiln_conv_window *w = &c->w;
  kiln_stmt *s = make_result(c);
  const kiln_expr *at[KILN_MAX_RANK] = {kiln_stmt_var(cx, s, 0)};
  const kiln_expr *channel = kiln_stmt_var(cx, s, 1), *per_group = kiln_int(cx, c->per_group);
  at[1] = kiln_div(cx, channel, per_group);
  for (int i = 0; i < w->n; i++) {
    const kiln_expr *o = full_place(c, s, i), *stride = kiln_int(cx, w->stride[i]);
    at[1] = kiln_add(cx, kiln_mul(cx, at[1], stride), kiln_mod(cx, o, stride));
    at[2 + i] = kiln_div(cx, o, stride);
  }
  at[1] = kiln_add(cx, kiln_mul(cx, at[1], per_group), kiln_mod(cx, channel, per_group));
  s->body = kiln_tensor_load(cx, q, at);
  kiln_stmt_tidy(cx, s);
  return kiln_lower_tensor(c->lw, s);
}

// Phases that have the same taps are one convolution.
static kiln_status lower_together(const transposed *c, const run *all, kiln_tensor **out) {
  const kiln_conv_window w = phase_window(c, all);
  KILN_TRY(lower_phases(c, all, &w, out));
  *out = interleave(c, *out);
  return KILN_OK;
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
  const run first = next_run(&c, 0);
  KILN_TRY(first.count == c.phases ? lower_together(&c, &first, &y) : lower_apart(&c, &y));
  KILN_TRY(kiln_lower_channel_bias(lw, y, kiln_lower_in(lw, 2), &y));
  return kiln_lower_cast(lw, y, x->dtype, &lw->outputs[0]);
}

const kiln_op kiln_op_conv_transpose[] = {
    {"", "ConvTranspose", 1, 0, lower_conv_transpose, NULL, "ops/conv_transpose.c"},
    {0},
};
