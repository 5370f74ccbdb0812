// A node's attributes and inputs, with their checks.
#include "fission/lower.h"

#include "analysis/interpret.h"

const kiln_attr *kiln_lower_attr(kiln_lower *lw, const char *attr) {
  return kiln_node_attr(lw->node, kiln_symbol_of(lw->cx, attr));
}

static kiln_status wrong_kind(kiln_lower *lw, const char *attr, const char *want) {
  return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place, "attribute %s: must be %s", attr, want);
}

kiln_status kiln_lower_int(kiln_lower *lw, const char *attr, int64_t otherwise, int64_t *out) {
  *out = otherwise;
  const kiln_attr *a = kiln_lower_attr(lw, attr);
  if (!a) return KILN_OK;
  if (a->kind != KILN_ATTR_INT) return wrong_kind(lw, attr, "an integer");
  *out = a->u.i;
  return KILN_OK;
}

kiln_status kiln_lower_float(kiln_lower *lw, const char *attr, double otherwise, double *out) {
  *out = (double)(float)otherwise; // rounded to f32, as an attribute is
  const kiln_attr *a = kiln_lower_attr(lw, attr);
  if (!a) return KILN_OK;
  if (a->kind != KILN_ATTR_FLOAT) return wrong_kind(lw, attr, "a float");
  *out = (double)a->u.f;
  return KILN_OK;
}

kiln_status kiln_lower_string(kiln_lower *lw, const char *attr, const char *otherwise,
                              const char **out) {
  *out = otherwise;
  const kiln_attr *a = kiln_lower_attr(lw, attr);
  if (!a) return KILN_OK;
  if (a->kind != KILN_ATTR_STRING) return wrong_kind(lw, attr, "a string");
  *out = kiln_symbol_text(lw->cx, a->u.s);
  return KILN_OK;
}

kiln_status kiln_lower_ints(kiln_lower *lw, const char *attr, int *out_n, const int64_t **out) {
  *out_n = -1;
  *out = NULL;
  const kiln_attr *a = kiln_lower_attr(lw, attr);
  if (!a) return KILN_OK;
  if (a->kind != KILN_ATTR_INTS) return wrong_kind(lw, attr, "a list of integers");
  *out_n = a->n;
  *out = a->u.ints;
  return KILN_OK;
}

kiln_attr kiln_attr_int(kiln_ctx *cx, const char *name, int64_t value) {
  return (kiln_attr){.name = kiln_symbol_of(cx, name), .kind = KILN_ATTR_INT, .n = 1, .u.i = value};
}

kiln_attr kiln_attr_float(kiln_ctx *cx, const char *name, double value) {
  return (kiln_attr){
      .name = kiln_symbol_of(cx, name), .kind = KILN_ATTR_FLOAT, .n = 1, .u.f = (float)value};
}

kiln_tensor *kiln_lower_in(const kiln_lower *lw, int i) {
  return i >= 0 && i < lw->n_inputs ? lw->inputs[i] : NULL;
}

bool kiln_lower_wants(const kiln_lower *lw, int output) {
  return output < lw->n_outputs && lw->node->outputs[output] >= 0;
}

kiln_status kiln_lower_want_inputs(kiln_lower *lw, int min, int max) {
  int n = lw->n_inputs;
  while (n > 0 && !lw->inputs[n - 1]) n--;
  if (n < min || (max >= 0 && n > max))
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place, "inputs: must be %d to %d, got %d",
                     min, max < 0 ? INT16_MAX : max, n);
  for (int i = 0; i < min; i++)
    if (!lw->inputs[i])
      return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                       "input %d: must be present, got an omitted one", i);
  return KILN_OK;
}

kiln_status kiln_lower_want_dtype(kiln_lower *lw, int i, bool (*ok)(kiln_dtype), const char *what) {
  const kiln_tensor *t = kiln_lower_in(lw, i);
  if (!t || ok(t->dtype)) return KILN_OK;
  return KILN_FAIL(lw->cx->diag, KILN_UNSUPPORTED, lw->place, "input %d: must be %s, got %s", i,
                   what, kiln_dtype_text(t->dtype));
}

kiln_status kiln_lower_axis(kiln_lower *lw, int64_t axis, int rank, bool allow_end, int *out) {
  *out = 0;
  const int top = allow_end ? rank : rank - 1;
  if (axis < -(int64_t)rank || axis > top)
    return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                     "axis: must lie in [%d, %d], got %" PRId64, -rank, top, axis);
  *out = (int)(axis < 0 ? axis + rank : axis);
  return KILN_OK;
}

kiln_status kiln_lower_extent(kiln_lower *lw, const kiln_tensor *t, int axis, int64_t *out) {
  *out = 0;
  if (kiln_expr_is_int(t->shape[axis], out)) return KILN_OK;
  return KILN_FAIL(lw->cx->diag, KILN_UNSUPPORTED, lw->place,
                   "%s: axis %d must have a fixed extent, got %s (bind the named dimension)",
                   kiln_symbol_text(lw->cx, t->name), axis, kiln_expr_text(lw->cx, t->shape[axis]));
}

static kiln_status not_known(kiln_lower *lw, int i, const kiln_tensor *t) {
  return KILN_FAIL(lw->cx->diag, KILN_UNSUPPORTED, lw->place,
                   "input %d (%s): must be known when compiling, got a computed %s tensor", i,
                   kiln_symbol_text(lw->cx, t->name), kiln_dtype_text(t->dtype));
}

static kiln_status want_integers(kiln_lower *lw, int i, const kiln_tensor *t) {
  if (!kiln_dtype_is_float(t->dtype)) return KILN_OK;
  return KILN_FAIL(lw->cx->diag, KILN_BAD_INPUT, lw->place,
                   "input %d (%s): must hold integers, got %s", i,
                   kiln_symbol_text(lw->cx, t->name), kiln_dtype_text(t->dtype));
}

kiln_status kiln_lower_const_ints(kiln_lower *lw, int i, int *out_n, const int64_t **out) {
  *out_n = -1;
  *out = NULL;
  const kiln_tensor *t = kiln_lower_in(lw, i);
  if (!t) return KILN_OK;
  KILN_TRY(want_integers(lw, i, t));
  const int64_t n = kiln_tensor_elems(t);
  const kiln_expr *const *known = kiln_lower_values(lw, t);
  if (n < 0 || n > INT32_MAX || (!t->data && n > 0 && !known)) return not_known(lw, i, t);
  int64_t *values = KILN_NEW_ARRAY(&lw->cx->perm, int64_t, n);
  for (int64_t k = 0; k < n; k++)
    if (t->data) values[k] = kiln_element_get_int(t->dtype, t->data, k);
    else if (!kiln_expr_is_int(known[k], &values[k])) return not_known(lw, i, t);
  *out_n = (int)n;
  *out = values;
  return KILN_OK;
}

kiln_status kiln_lower_const_floats(kiln_lower *lw, int i, int *out_n, const double **out) {
  *out_n = -1;
  *out = NULL;
  const kiln_tensor *t = kiln_lower_in(lw, i);
  if (!t) return KILN_OK;
  const int64_t n = kiln_tensor_elems(t);
  if (n < 0 || n > INT32_MAX || (!t->data && n > 0)) return not_known(lw, i, t);
  double *values = KILN_NEW_ARRAY(&lw->cx->perm, double, n);
  for (int64_t k = 0; k < n; k++) values[k] = kiln_element_get(t->dtype, t->data, k);
  *out_n = (int)n;
  *out = values;
  return KILN_OK;
}

kiln_status kiln_lower_known_values(kiln_lower *lw, int i, int *out_n,
                                    const kiln_expr *const **out) {
  *out_n = -1;
  *out = NULL;
  const kiln_tensor *t = kiln_lower_in(lw, i);
  if (!t) return KILN_OK;
  KILN_TRY(want_integers(lw, i, t));
  const int64_t n = kiln_tensor_elems(t);
  const kiln_expr *const *known = kiln_lower_values(lw, t);
  if (n < 0 || n > INT32_MAX || (!t->data && n > 0 && !known)) return not_known(lw, i, t);
  const kiln_expr **values = KILN_NEW_ARRAY(&lw->cx->perm, const kiln_expr *, n);
  for (int64_t k = 0; k < n; k++)
    values[k] = t->data ? kiln_int(lw->cx, kiln_element_get_int(t->dtype, t->data, k)) : known[k];
  *out_n = (int)n;
  *out = values;
  return KILN_OK;
}
