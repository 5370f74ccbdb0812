// OneHotEncoder of numbers: 1 at the category that an element, cast to an integer, equals. With
// zeros = 0 an element of no category fails the run. source: ONNX OneHotEncoder-1
#include "fission/classical/lookup.h"
#include "fission/terms.h"

static kiln_status want_known(kiln_lower *lw, int n, const int64_t *categories) {
  kiln_keys keys;
  kiln_lower_keys(lw, KILN_I64, n, categories, &keys);
  const kiln_expr *place = kiln_lower_find(lw, &keys, kiln_lower_element(lw, lw->inputs[0]));
  return kiln_lower_want_index(lw, lw->inputs[0], 0, place, NULL, kiln_int(lw->cx, 0),
                               kiln_int(lw->cx, keys.n));
}

static kiln_status lower_encoder(kiln_lower *lw) {
  kiln_ctx *cx = lw->cx;
  int n_given = 0;
  const int64_t *categories = NULL;
  int64_t zeros = 1;
  KILN_TRY(kiln_lower_want_inputs(lw, 1, 1));
  KILN_TRY(kiln_lower_want_dtype(lw, 0, kiln_dtype_has_order, "numbers"));
  KILN_TRY(kiln_lower_int(lw, "zeros", 1, &zeros));
  KILN_TRY(kiln_lower_ints(lw, "cats_int64s", &n_given, &categories));
  if (n_given < 1)
    return KILN_FAIL(cx->diag, KILN_UNSUPPORTED, lw->place,
                     "attribute cats_int64s: must list the categories, which cannot be strings");
  const kiln_tensor *x = lw->inputs[0];
  KILN_TRY(kiln_lower_want_rank(lw, x, 0, KILN_MAX_RANK - 1));
  if (!zeros) KILN_TRY(want_known(lw, n_given, categories));
  const int64_t n = n_given;
  const kiln_tensor *table = kiln_lower_make_const(lw, "categories", KILN_I64, 1, &n, categories);
  const kiln_expr *extents[KILN_MAX_RANK], *at[KILN_MAX_RANK];
  for (int a = 0; a < x->rank; a++) extents[a] = x->shape[a];
  extents[x->rank] = kiln_int(cx, n);
  kiln_stmt *s = kiln_lower_stmt(lw, NULL, KILN_F32, x->rank + 1, 0, extents);
  kiln_stmt_vars(cx, s, 0, x->rank + 1, at);
  const kiln_expr *category = kiln_tensor_load(cx, table, &at[x->rank]);
  const kiln_expr *element = kiln_cast(cx, KILN_I64, kiln_tensor_load(cx, x, at));
  s->body = kiln_cast(cx, KILN_F32, kiln_compare(cx, KILN_EXPR_EQ, element, category));
  lw->outputs[0] = kiln_lower_tensor(lw, s);
  return KILN_OK;
}

const kiln_op kiln_op_one_hot_encoder[] = {
    {"ai.onnx.ml", "OneHotEncoder", 1, 0, lower_encoder, NULL, "ops/one_hot_encoder.c"},
    {0},
};
