// Gemm: the contraction reads both operands in their own order; alpha, beta and C follow in one
// elementwise statement where they change anything. source: ONNX Gemm-1, 6, 7, 9, 11, 13
#include "fission/bytes.h"

static kiln_status product(kiln_lower *lw, const kiln_tensor *a, bool trans_a, const kiln_tensor *b,
                           bool trans_b, kiln_dtype sum, kiln_tensor **out) {
  kiln_ctx *cx = lw->cx;
  KILN_TRY(kiln_lower_want_rank(lw, a, 2, 2));
  KILN_TRY(kiln_lower_want_rank(lw, b, 2, 2));
  const kiln_expr *ka = a->shape[trans_a ? 0 : 1], *kb = b->shape[trans_b ? 1 : 0];
  int64_t va = 0, vb = 0;
  if (kiln_expr_is_int(ka, &va) && kiln_expr_is_int(kb, &vb) && va != vb)
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, lw->place,
                     "the inner extents must be equal, got %" PRId64 " and %" PRId64, va, vb);
  const kiln_expr *extents[] = {a->shape[trans_a ? 1 : 0], b->shape[trans_b ? 0 : 1],
                                kiln_expr_is_int(ka, NULL) ? ka : kb};
  kiln_stmt *s = kiln_lower_stmt(lw, "gemm", sum, 2, 1, extents);
  const kiln_expr *v[3];
  kiln_stmt_vars(cx, s, 0, 3, v);
  const kiln_expr *at_a[] = {trans_a ? v[2] : v[0], trans_a ? v[0] : v[2]};
  const kiln_expr *at_b[] = {trans_b ? v[1] : v[2], trans_b ? v[2] : v[1]};
  s->body = kiln_mul(cx, kiln_cast(cx, sum, kiln_tensor_load(cx, a, at_a)),
                     kiln_cast(cx, sum, kiln_tensor_load(cx, b, at_b)));
  s->combiner = KILN_COMBINE_SUM;
  *out = kiln_lower_tensor(lw, s);
  return KILN_OK;
}

// Of the bytes that the operands were dequantised from, where they were.
static kiln_status multiply(kiln_lower *lw, bool trans_a, bool trans_b, kiln_tensor **out) {
  const kiln_tensor *a = lw->inputs[0], *b = lw->inputs[1];
  kiln_byte_product bytes;
  kiln_byte_factors f;
  if (b->rank != 2 || !kiln_bytes_find(lw, a, b, trans_b ? 0 : 1, &bytes))
    return product(lw, a, trans_a, b, trans_b, kiln_accumulator(a->dtype), out);
  KILN_TRY(kiln_bytes_prepare(lw, &bytes, &f));
  KILN_TRY(product(lw, f.x, trans_a, f.weights, trans_b, KILN_I32, out));
  const kiln_tensor *data = kiln_bytes_sum_data(lw, &f, trans_a ? 0 : 1);
  KILN_TRY(kiln_bytes_take_off(lw, &f, data, *out, 1, out));
  return kiln_bytes_scale(lw, a, b, *out, 1, out);
}

static const kiln_expr *scaled(kiln_ctx *cx, const kiln_expr *e, double by) {
  return by == 1 ? e : kiln_mul(cx, e, kiln_number(cx, e->dtype, by));
}

// C must broadcast into Y without widening it; old opsets align it with the attribute broadcast,
// which changes nothing for the shapes that they allow.
static kiln_status check_addend(kiln_lower *lw, const kiln_tensor *y, const kiln_tensor *c) {
  KILN_TRY(kiln_lower_want_rank(lw, c, 0, 2));
  for (int i = 0; i < c->rank; i++) {
    int64_t have = 0, want = 0;
    if (kiln_expr_is_int(c->shape[i], &have) &&
        kiln_expr_is_int(y->shape[2 - c->rank + i], &want) && have != 1 && have != want)
      return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                       "C: axis %d must be 1 or %" PRId64 ", got %" PRId64, i, want, have);
  }
  return KILN_OK;
}

static kiln_status lower_gemm(kiln_lower *lw) {
  KILN_TRY(kiln_lower_want_inputs(lw, 2, 3));
  KILN_TRY(kiln_lower_want_dtype(lw, 0, kiln_dtype_is_number, "a number"));
  kiln_ctx *cx = lw->cx;
  int64_t trans_a = 0, trans_b = 0;
  double alpha = 1, beta = 1;
  KILN_TRY(kiln_lower_int(lw, "transA", 0, &trans_a));
  KILN_TRY(kiln_lower_int(lw, "transB", 0, &trans_b));
  KILN_TRY(kiln_lower_float(lw, "alpha", 1, &alpha));
  KILN_TRY(kiln_lower_float(lw, "beta", 1, &beta));
  kiln_tensor *y = NULL;
  const kiln_tensor *c = kiln_lower_in(lw, 2);
  KILN_TRY(multiply(lw, trans_a != 0, trans_b != 0, &y));
  if (c) KILN_TRY(check_addend(lw, y, c));
  if (alpha != 1 || (c && beta != 0)) {
    const kiln_expr *at[2];
    kiln_stmt *s = kiln_lower_like(lw, "gemm_bias", y, y->dtype, at);
    s->body = scaled(cx, kiln_tensor_load(cx, y, at), alpha);
    if (c && beta != 0) {
      const kiln_expr *addend = kiln_lower_load_broadcast(lw, c, s, 0, 2);
      s->body = kiln_add(cx, s->body, scaled(cx, kiln_cast(cx, y->dtype, addend), beta));
    }
    y = kiln_lower_tensor(lw, s);
  }
  return kiln_lower_cast(lw, y, lw->inputs[0]->dtype, &lw->outputs[0]);
}

const kiln_op kiln_op_gemm[] = {
    {"", "Gemm", 1, 0, lower_gemm, NULL, "ops/gemm.c"},
    {0},
};
