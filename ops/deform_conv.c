// DeformConv: one statement samples the input where the offsets place each tap, times the mask, one
// sums the samples with the weights. source: ONNX DeformConv-19, 22
#include "fission/taps.h"
#include "fission/window.h"

typedef struct deformed {
  kiln_lower *lw;
  kiln_tensor *x, *weights; // (N, C, in...), (M, C / group, kernel...)
  const kiln_tensor *offset,
      *mask; // (N, groups * kernel * n, out...), (N, groups * kernel, out...)
  kiln_conv_window w;
  int64_t group, offset_groups, channels, filters, taps; // taps: of the kernel
  kiln_dtype t;
} deformed;

static kiln_status check_offsets(const deformed *d) {
  kiln_lower *lw = d->lw;
  kiln_ctx *cx = lw->cx;
  const int64_t rows = d->offset_groups * d->taps;
  const kiln_tensor *const both[] = {d->offset, d->mask};
  for (int k = 0; k < 2; k++) {
    if (!both[k]) continue;
    KILN_TRY(kiln_lower_want_rank(lw, both[k], d->x->rank, d->x->rank));
    KILN_TRY(kiln_lower_want_extent(lw, both[k], 0, d->x->shape[0]));
    KILN_TRY(kiln_lower_want_extent(lw, both[k], 1, kiln_int(cx, k == 0 ? rows * d->w.n : rows)));
    for (int i = 0; i < d->w.n; i++)
      KILN_TRY(kiln_lower_want_extent(lw, both[k], 2 + i, d->w.out[i]));
  }
  return KILN_OK;
}

static kiln_status read_node(kiln_lower *lw, deformed *d) {
  KILN_TRY(kiln_lower_want_inputs(lw, 3, 5));
  KILN_TRY(kiln_lower_want_dtype(lw, 0, kiln_dtype_is_float, "a float"));
  *d = (deformed){.lw = lw,
                  .x = lw->inputs[0],
                  .weights = lw->inputs[1],
                  .offset = lw->inputs[2],
                  .mask = kiln_lower_in(lw, 4),
                  .t = kiln_accumulator(lw->inputs[0]->dtype),
                  .taps = 1};
  KILN_TRY(kiln_lower_want_rank(lw, d->x, 3, 5));
  KILN_TRY(kiln_lower_want_rank(lw, d->weights, d->x->rank, d->x->rank));
  KILN_TRY(kiln_lower_int(lw, "group", 1, &d->group));
  KILN_TRY(kiln_lower_int(lw, "offset_group", 1, &d->offset_groups));
  KILN_TRY(kiln_lower_extent(lw, d->x, 1, &d->channels));
  KILN_TRY(kiln_lower_extent(lw, d->weights, 0, &d->filters));
  if (d->group < 1 || d->channels % d->group != 0 || d->filters % d->group != 0 ||
      d->offset_groups < 1 || d->channels % d->offset_groups != 0)
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                     "group and offset_group must divide the %" PRId64 " channels and %" PRId64
                     " filters, got %" PRId64 " and %" PRId64,
                     d->channels, d->filters, d->group, d->offset_groups);
  KILN_TRY(kiln_lower_want_extent(lw, d->weights, 1, kiln_int(lw->cx, d->channels / d->group)));
  KILN_TRY(kiln_conv_window_read(lw, d->x, d->weights, &d->w));
  for (int i = 0; i < d->w.n; i++) d->taps *= d->w.kernel[i];
  return check_offsets(d);
}

// S(n, c, k, out...): the input at the place of tap |k|, which counts through the kernel.
static const kiln_tensor *samples(const deformed *d) {
  kiln_ctx *cx = d->lw->cx;
  const kiln_conv_window *w = &d->w;
  const kiln_expr *extents[KILN_MAX_RANK] = {d->x->shape[0], kiln_int(cx, d->channels),
                                             kiln_int(cx, d->taps)};
  const kiln_expr *v[KILN_MAX_RANK], *at[KILN_MAX_RANK], *places[KILN_MAX_RANK];
  for (int i = 0; i < w->n; i++) extents[3 + i] = w->out[i];
  kiln_stmt *s = kiln_lower_stmt(d->lw, "deformed", d->x->dtype, 3 + w->n, 0, extents);
  kiln_stmt_vars(cx, s, 0, 3 + w->n, v);
  const kiln_expr *group = kiln_div(cx, v[1], kiln_int(cx, d->channels / d->offset_groups));
  const kiln_expr *row = kiln_add(cx, kiln_mul(cx, group, kiln_int(cx, d->taps)), v[2]);
  at[0] = v[0];
  for (int i = 0; i < w->n; i++) at[2 + i] = v[3 + i];
  const kiln_expr *rest = v[2];
  for (int i = w->n - 1; i >= 0; i--) {
    const kiln_expr *tap = kiln_mod(cx, rest, kiln_int(cx, w->kernel[i]));
    const kiln_expr *first =
        kiln_sub(cx, kiln_mul(cx, v[3 + i], kiln_int(cx, w->stride[i])), w->begin[i]);
    first = kiln_add(cx, first, kiln_mul(cx, tap, kiln_int(cx, w->dilation[i])));
    at[1] = kiln_add(cx, kiln_mul(cx, row, kiln_int(cx, w->n)), kiln_int(cx, i));
    places[i] = kiln_add(cx, kiln_cast(cx, d->t, first),
                         kiln_cast(cx, d->t, kiln_tensor_load(cx, d->offset, at)));
    rest = kiln_div(cx, rest, kiln_int(cx, w->kernel[i]));
  }
  const kiln_taps taps = {.lw = d->lw, .x = d->x, .n = w->n, .mode = KILN_TAPS_LINEAR, .t = d->t};
  const kiln_expr *value = kiln_taps_sum(&taps, v, places);
  at[1] = row;
  if (d->mask) value = kiln_mul(cx, value, kiln_cast(cx, d->t, kiln_tensor_load(cx, d->mask, at)));
  s->body = kiln_cast(cx, d->x->dtype, value);
  kiln_stmt_tidy(cx, s);
  return kiln_lower_tensor(d->lw, s);
}

// Y(n, m, out...) = sum over c and k of S(n, group(m) * C / group + c, k, out...) * W(m, c, k).
static kiln_tensor *weighted(const deformed *d, const kiln_tensor *sampled) {
  kiln_ctx *cx = d->lw->cx;
  const int n = d->w.n;
  const kiln_expr *flat[] = {kiln_int(cx, d->filters), kiln_int(cx, d->channels / d->group),
                             kiln_int(cx, d->taps)};
  const kiln_tensor *weights = kiln_lower_reshape(d->lw, d->weights, 3, flat);
  const kiln_expr *extents[KILN_MAX_RANK + 2] = {d->x->shape[0], flat[0]};
  const kiln_expr *v[KILN_MAX_RANK + 2], *at[KILN_MAX_RANK];
  for (int i = 0; i < n; i++) extents[2 + i] = d->w.out[i];
  extents[2 + n] = flat[1];
  extents[3 + n] = flat[2];
  kiln_stmt *s = kiln_lower_stmt(d->lw, "deform_conv", d->t, 2 + n, 2, extents);
  kiln_stmt_vars(cx, s, 0, 4 + n, v);
  const kiln_expr *group = kiln_div(cx, v[1], kiln_int(cx, d->filters / d->group));
  at[0] = v[0];
  at[1] = kiln_add(cx, kiln_mul(cx, group, flat[1]), v[2 + n]);
  at[2] = v[3 + n];
  for (int i = 0; i < n; i++) at[3 + i] = v[2 + i];
  const kiln_expr *at_weights[] = {v[1], v[2 + n], v[3 + n]};
  s->body = kiln_mul(cx, kiln_cast(cx, d->t, kiln_tensor_load(cx, sampled, at)),
                     kiln_cast(cx, d->t, kiln_tensor_load(cx, weights, at_weights)));
  s->combiner = KILN_COMBINE_SUM;
  kiln_stmt_tidy(cx, s);
  return kiln_lower_tensor(d->lw, s);
}

static kiln_status lower_deform_conv(kiln_lower *lw) {
  deformed d;
  kiln_tensor *y = NULL;
  KILN_TRY(read_node(lw, &d));
  KILN_TRY(kiln_lower_cast(lw, weighted(&d, samples(&d)), d.x->dtype, &y));
  return kiln_lower_channel_bias(lw, y, kiln_lower_in(lw, 3), &lw->outputs[0]);
}

const kiln_op kiln_op_deform_conv[] = {
    {"", "DeformConv", 19, 0, lower_deform_conv, NULL, "ops/deform_conv.c"},
    {0},
};
