// LabelEncoder between numbers: the value of the key that an element equals, or the default. Of
// equal keys the first counts; NaN equals NaN. source: ONNX LabelEncoder-2, 4
#include "analysis/interpret.h"
#include "fission/classical/lookup.h"
#include "fission/classical/scores.h"
#include "fission/terms.h"

#include <string.h>

typedef struct list {
  kiln_dtype dtype;
  int n; // -1: absent
  const void *data;
} list;

// The list in |what|_int64s, |what|_floats or |what|_tensor.
static kiln_status read_list(kiln_lower *lw, const char *what, list *out) {
  kiln_ctx *cx = lw->cx;
  const char *names[4];
  static const char *const kinds[] = {"int64s", "floats", "tensor", "strings"};
  for (int i = 0; i < 4; i++) names[i] = kiln_arena_printf(&cx->scratch, "%s_%s", what, kinds[i]);
  const int64_t *ints = NULL;
  const float *floats = NULL;
  *out = (list){.dtype = KILN_I64};
  KILN_TRY(kiln_lower_ints(lw, names[0], &out->n, &ints));
  out->data = ints;
  if (out->n >= 0) return KILN_OK;
  out->dtype = KILN_F32;
  KILN_TRY(kiln_lower_floats(lw, names[1], &out->n, &floats));
  out->data = floats;
  if (out->n >= 0) return KILN_OK;
  const kiln_attr *tensor = kiln_lower_attr(lw, names[2]);
  if (!tensor || tensor->kind != KILN_ATTR_TENSOR)
    return KILN_FAIL(cx->diag, KILN_UNSUPPORTED, lw->place,
                     "attribute %s: must be integers, floats or a tensor%s", names[2],
                     kiln_lower_attr(lw, names[3]) ? ", got strings" : "");
  const kiln_const *c = tensor->u.tensor;
  *out = (list){c->dtype, (int)(c->bytes / (size_t)kiln_dtype_bytes(c->dtype)), c->data};
  return KILN_OK;
}

// The default, of the values' type, to |out|.
static kiln_status read_default(kiln_lower *lw, kiln_dtype t, void *out) {
  int64_t i = -1;
  double f = 0;
  const kiln_attr *tensor = kiln_lower_attr(lw, "default_tensor");
  if (tensor && tensor->kind == KILN_ATTR_TENSOR && tensor->u.tensor->dtype == t &&
      tensor->u.tensor->bytes == (size_t)kiln_dtype_bytes(t)) {
    memcpy(out, tensor->u.tensor->data, tensor->u.tensor->bytes);
    return KILN_OK;
  }
  KILN_TRY(kiln_lower_int(lw, "default_int64", -1, &i));
  KILN_TRY(kiln_lower_float(lw, "default_float", -0.0, &f));
  if (kiln_dtype_is_float(t)) kiln_element_set(t, out, 0, f);
  else kiln_element_set_int(t, out, 0, i);
  return KILN_OK;
}

static kiln_status lower_label_encoder(kiln_lower *lw) {
  kiln_ctx *cx = lw->cx;
  list keys, values;
  KILN_TRY(kiln_lower_want_inputs(lw, 1, 1));
  KILN_TRY(read_list(lw, "keys", &keys));
  KILN_TRY(read_list(lw, "values", &values));
  const kiln_tensor *x = lw->inputs[0];
  if (keys.dtype != x->dtype || keys.n != values.n)
    return KILN_FAIL(cx->diag, KILN_BAD_INPUT, lw->place,
                     "keys: must be %s, one for each of %d values, got %d of %s",
                     kiln_dtype_text(x->dtype), values.n, keys.n, kiln_dtype_text(keys.dtype));
  kiln_keys found;
  kiln_lower_keys(lw, keys.dtype, keys.n, keys.data, &found);
  const size_t bytes = (size_t)kiln_dtype_bytes(values.dtype);
  char *table = kiln_arena_alloc(&cx->scratch, bytes * ((size_t)found.n + 2));
  for (int i = 0; i < found.n; i++)
    memcpy(table + (size_t)i * bytes, (const char *)values.data + (size_t)found.source[i] * bytes,
           bytes);
  char *otherwise = table + (size_t)found.n * bytes;
  KILN_TRY(read_default(lw, values.dtype, otherwise));
  const void *of_nan =
      found.nan < 0 ? otherwise : (const char *)values.data + (size_t)found.nan * bytes;
  memcpy(otherwise + bytes, of_nan, bytes);
  const int64_t n = found.n + 2;
  const kiln_tensor *results = kiln_lower_make_const(lw, "values", values.dtype, 1, &n, table);
  const kiln_expr *at[KILN_MAX_RANK];
  kiln_stmt *s = kiln_lower_like(lw, NULL, x, values.dtype, at);
  const kiln_expr *element = kiln_tensor_load(cx, x, at);
  const kiln_expr *place = kiln_lower_find(lw, &found, element);
  if (kiln_dtype_is_float(x->dtype))
    place =
        kiln_select(cx, kiln_unary(cx, KILN_EXPR_ISNAN, element), kiln_int(cx, found.n + 1), place);
  s->body = kiln_tensor_load(cx, results, &place);
  lw->outputs[0] = kiln_lower_tensor(lw, s);
  return KILN_OK;
}

const kiln_op kiln_op_label_encoder[] = {
    {"ai.onnx.ml", "LabelEncoder", 2, 0, lower_label_encoder, NULL, "ops/label_encoder.c"},
    {0},
};
