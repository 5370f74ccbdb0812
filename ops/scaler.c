// Scaler, (x - offset) * scale, and Imputer, which replaces one value: by numbers for each feature,
// or by one for all. source: ONNX Scaler-1, Imputer-1
#include "fission/classical/scores.h"
#include "fission/terms.h"

#include <math.h>

// The number for the feature at |at|, of a list for each feature or of one for all.
static kiln_status number_of(kiln_lower *lw, const char *name, kiln_dtype t, int64_t n,
                             const void *list, const kiln_expr *const *at, const kiln_expr **out) {
  const kiln_tensor *x = lw->inputs[0];
  const kiln_tensor *table = kiln_lower_make_const(lw, name, t, 1, &n, list);
  const kiln_expr *place = n == 1 ? kiln_int(lw->cx, 0) : at[x->rank - 1];
  if (n != 1) KILN_TRY(kiln_lower_want_extent(lw, x, x->rank - 1, kiln_int(lw->cx, n)));
  *out = kiln_tensor_load(lw->cx, table, &place);
  return KILN_OK;
}

static kiln_status want_list(kiln_lower *lw, const char *attr, int n) {
  if (n > 0) return KILN_OK;
  return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                   "attribute %s: must be a list of numbers", attr);
}

static kiln_status lower_scaler(kiln_lower *lw) {
  kiln_ctx *cx = lw->cx;
  KILN_TRY(kiln_lower_want_inputs(lw, 1, 1));
  KILN_TRY(kiln_lower_want_dtype(lw, 0, kiln_dtype_has_order, "numbers"));
  const kiln_tensor *x = lw->inputs[0];
  KILN_TRY(kiln_lower_want_rank(lw, x, 1, KILN_MAX_RANK));
  int n_scale = 0, n_offset = 0;
  const float *scale = NULL, *offset = NULL;
  KILN_TRY(kiln_lower_floats(lw, "scale", &n_scale, &scale));
  KILN_TRY(kiln_lower_floats(lw, "offset", &n_offset, &offset));
  KILN_TRY(want_list(lw, "scale", n_scale));
  KILN_TRY(want_list(lw, "offset", n_offset));
  const kiln_expr *at[KILN_MAX_RANK], *by = NULL, *off = NULL;
  const kiln_dtype t = x->dtype == KILN_F64 ? KILN_F64 : KILN_F32;
  kiln_stmt *s = kiln_lower_like(lw, NULL, x, KILN_F32, at);
  KILN_TRY(number_of(lw, "scale", KILN_F32, n_scale, scale, at, &by));
  KILN_TRY(number_of(lw, "offset", KILN_F32, n_offset, offset, at, &off));
  const kiln_expr *value = kiln_cast(cx, t, kiln_tensor_load(cx, x, at));
  s->body = kiln_cast(
      cx, KILN_F32, kiln_mul(cx, kiln_sub(cx, value, kiln_cast(cx, t, off)), kiln_cast(cx, t, by)));
  lw->outputs[0] = kiln_lower_tensor(lw, s);
  return KILN_OK;
}

// The numbers to write, in the type of the input, and whether an element is to be replaced.
static kiln_status read_imputed(kiln_lower *lw, const kiln_expr *element,
                                const kiln_expr *const *at, const kiln_expr **out,
                                const kiln_expr **is_missing) {
  kiln_ctx *cx = lw->cx;
  int n = 0;
  const bool is_float = kiln_dtype_is_float(element->dtype);
  if (is_float) {
    const float *values = NULL;
    double replaced = 0;
    KILN_TRY(kiln_lower_floats(lw, "imputed_value_floats", &n, &values));
    KILN_TRY(want_list(lw, "imputed_value_floats", n));
    KILN_TRY(kiln_lower_float(lw, "replaced_value_float", 0, &replaced));
    KILN_TRY(number_of(lw, "imputed", KILN_F32, n, values, at, out));
    const kiln_expr *want = kiln_float(cx, element->dtype, replaced);
    *is_missing = isnan(replaced) ? kiln_unary(cx, KILN_EXPR_ISNAN, element)
                                  : kiln_compare(cx, KILN_EXPR_EQ, element, want);
  } else {
    const int64_t *values = NULL;
    int64_t replaced = 0;
    KILN_TRY(kiln_lower_ints(lw, "imputed_value_int64s", &n, &values));
    KILN_TRY(want_list(lw, "imputed_value_int64s", n));
    KILN_TRY(kiln_lower_int(lw, "replaced_value_int64", 0, &replaced));
    KILN_TRY(number_of(lw, "imputed", KILN_I64, n, values, at, out));
    *is_missing =
        kiln_compare(cx, KILN_EXPR_EQ, kiln_cast(cx, KILN_I64, element), kiln_int(cx, replaced));
  }
  *out = kiln_cast(cx, element->dtype, *out);
  return KILN_OK;
}

static kiln_status lower_imputer(kiln_lower *lw) {
  kiln_ctx *cx = lw->cx;
  KILN_TRY(kiln_lower_want_inputs(lw, 1, 1));
  KILN_TRY(kiln_lower_want_dtype(lw, 0, kiln_dtype_has_order, "numbers"));
  const kiln_tensor *x = lw->inputs[0];
  KILN_TRY(kiln_lower_want_rank(lw, x, 1, KILN_MAX_RANK));
  const kiln_expr *at[KILN_MAX_RANK], *imputed = NULL, *is_missing = NULL;
  kiln_stmt *s = kiln_lower_like(lw, NULL, x, x->dtype, at);
  const kiln_expr *element = kiln_tensor_load(cx, x, at);
  KILN_TRY(read_imputed(lw, element, at, &imputed, &is_missing));
  s->body = kiln_select(cx, is_missing, imputed, element);
  lw->outputs[0] = kiln_lower_tensor(lw, s);
  return KILN_OK;
}

const kiln_op kiln_op_scaler[] = {
    {"ai.onnx.ml", "Scaler", 1, 0, lower_scaler, NULL, "ops/scaler.c"},
    {"ai.onnx.ml", "Imputer", 1, 0, lower_imputer, NULL, "ops/scaler.c"},
    {0},
};
