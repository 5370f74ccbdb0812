// Col2Im: each element of the image is the sum of what the blocks that cover it hold.
// source: ONNX Col2Im-18
#include "fission/window.h"

typedef struct blocks {
  int n;                        // spatial axes
  const int64_t *image, *block; // extents [n]
  int64_t steps[KILN_MAX_RANK]; // of the blocks along each axis
  int64_t stride[KILN_MAX_RANK], dilation[KILN_MAX_RANK], pads[2 * KILN_MAX_RANK];
} blocks;

static kiln_status read_steps(kiln_lower *lw, blocks *b) {
  for (int i = 0; i < b->n; i++) {
    const int64_t reach = (b->block[i] - 1) * b->dilation[i] + 1;
    const int64_t room = b->image[i] + b->pads[i] + b->pads[b->n + i] - reach;
    if (b->image[i] < 1 || b->block[i] < 1 || room < 0)
      return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                       "block_shape: must fit in the padded image, got %" PRId64
                       " elements in an image of %" PRId64 " (axis %d)",
                       b->block[i], b->image[i], i);
    b->steps[i] = room / b->stride[i] + 1;
  }
  return KILN_OK;
}

static kiln_status read_blocks(kiln_lower *lw, blocks *b) {
  int n_block = 0;
  KILN_TRY(kiln_lower_const_ints(lw, 1, &b->n, &b->image));
  KILN_TRY(kiln_lower_const_ints(lw, 2, &n_block, &b->block));
  if (b->n < 1 || b->n != n_block || 2 + 2 * b->n > KILN_MAX_RANK + b->n)
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                     "image_shape and block_shape: must both have 1 to %d extents, got %d and %d",
                     KILN_MAX_RANK - 2, b->n, n_block);
  KILN_TRY(kiln_conv_window_list(lw, "strides", b->n, 1, 1, b->stride));
  KILN_TRY(kiln_conv_window_list(lw, "dilations", b->n, 1, 1, b->dilation));
  KILN_TRY(kiln_conv_window_list(lw, "pads", 2 * b->n, 0, 0, b->pads));
  return read_steps(lw, b);
}

static kiln_status lower_col2im(kiln_lower *lw) {
  kiln_ctx *cx = lw->cx;
  KILN_TRY(kiln_lower_want_inputs(lw, 3, 3));
  const kiln_tensor *x = lw->inputs[0]; // (N, C * block..., steps...)
  blocks b;
  int64_t rows = 0, taps = 1, all_steps = 1;
  KILN_TRY(kiln_lower_want_rank(lw, x, 3, 3));
  KILN_TRY(kiln_lower_extent(lw, x, 1, &rows));
  KILN_TRY(read_blocks(lw, &b));
  for (int i = 0; i < b.n; i++) taps *= b.block[i], all_steps *= b.steps[i];
  KILN_TRY(kiln_lower_want_extent(lw, x, 2, kiln_int(cx, all_steps)));
  if (rows % taps != 0)
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, lw->place,
                     "axis 1 must be a multiple of the %" PRId64
                     " elements of a block, got %" PRId64,
                     taps, rows);
  const kiln_expr *extents[2 + 2 * KILN_MAX_RANK] = {x->shape[0], kiln_int(cx, rows / taps)};
  const kiln_expr *v[2 + 2 * KILN_MAX_RANK], *inside = NULL;
  for (int i = 0; i < b.n; i++) {
    extents[2 + i] = kiln_int(cx, b.image[i]);
    extents[2 + b.n + i] = kiln_int(cx, b.block[i]);
  }
  const kiln_dtype sum = kiln_accumulator(x->dtype);
  kiln_stmt *s = kiln_lower_stmt(lw, "col2im", sum, 2 + b.n, b.n, extents);
  kiln_stmt_vars(cx, s, 0, 2 + 2 * b.n, v);
  const kiln_expr *at[] = {v[0], v[1], kiln_int(cx, 0)};
  for (int i = 0; i < b.n; i++) {
    const kiln_expr *tap = v[2 + b.n + i], *stride = kiln_int(cx, b.stride[i]);
    const kiln_expr *place = kiln_sub(cx, kiln_add(cx, v[2 + i], kiln_int(cx, b.pads[i])),
                                      kiln_mul(cx, tap, kiln_int(cx, b.dilation[i])));
    const kiln_expr *step = kiln_div(cx, place, stride), *steps = kiln_int(cx, b.steps[i]);
    const kiln_expr *starts =
        kiln_compare(cx, KILN_EXPR_EQ, kiln_mod(cx, place, stride), kiln_int(cx, 0));
    inside = kiln_both(cx, inside, kiln_compare(cx, KILN_EXPR_GE, place, kiln_int(cx, 0)));
    inside = kiln_both(cx, inside, kiln_compare(cx, KILN_EXPR_LT, step, steps));
    if (b.stride[i] > 1) inside = kiln_both(cx, inside, starts);
    at[1] = kiln_add(cx, kiln_mul(cx, at[1], kiln_int(cx, b.block[i])), tap);
    at[2] = kiln_add(cx, kiln_mul(cx, at[2], steps), step);
  }
  const kiln_expr *value = kiln_cast(cx, sum, kiln_tensor_load(cx, x, at));
  s->body = kiln_select(cx, inside, value, kiln_number(cx, sum, 0));
  s->combiner = KILN_COMBINE_SUM;
  kiln_stmt_tidy(cx, s);
  return kiln_lower_cast(lw, kiln_lower_tensor(lw, s), x->dtype, &lw->outputs[0]);
}

const kiln_op kiln_op_col2im[] = {
    {"", "Col2Im", 18, 0, lower_col2im, NULL, "ops/col2im.c"},
    {0},
};
