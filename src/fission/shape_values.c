// Operands that are shapes: their elements as numbers, named dimensions and values of the run.
#include "fission/data_dependent.h"
#include "fission/registry.h"

// The values of input |i|, extents of at most |most|.
static kiln_status run_values(kiln_lower *lw, int i, kiln_value_kind kind, int64_t most, int *out_n,
                              const kiln_expr *const **out) {
  enum { MAX_ELEMENTS = 2 * KILN_MAX_RANK };
  const kiln_tensor *t = kiln_lower_in(lw, i);
  const int64_t n = t ? kiln_tensor_elems(t) : 0;
  const bool is_known = !t || t->data || kiln_lower_values(lw, t) || !lw->counts;
  if (is_known || n <= 0 || n > MAX_ELEMENTS || kiln_dtype_is_float(t->dtype) ||
      kind == KILN_VALUE_KNOWN)
    return kiln_lower_known_values(lw, i, out_n, out);
  const kiln_expr **values = KILN_NEW_ARRAY(&lw->cx->perm, const kiln_expr *, n);
  for (int64_t k = 0; k < n; k++) {
    values[k] = kiln_fission_value_at(lw, t, k, kind);
    if (kind != KILN_VALUE_EXTENT || kiln_expr_is_int(values[k], NULL)) continue;
    KILN_TRY(kiln_lower_want_extent_of(lw, values[k], most));
    values[k] = kiln_lower_positive(lw, values[k]);
  }
  *out_n = (int)n;
  *out = values;
  return KILN_OK;
}

kiln_status kiln_lower_run_values(kiln_lower *lw, int i, kiln_value_kind kind, int *out_n,
                                  const kiln_expr *const **out) {
  return run_values(lw, i, kind, lw->counts ? kiln_lower_assumed_extent(lw) : 0, out_n, out);
}

kiln_status kiln_lower_extent_values(kiln_lower *lw, int i, const kiln_expr *most, int *out_n,
                                     const kiln_expr *const **out) {
  const kiln_expr *bound = most && lw->counts ? kiln_lower_upper_bound(lw, most) : NULL;
  int64_t known = lw->counts ? kiln_lower_assumed_extent(lw) : 0;
  if (bound) (void)kiln_expr_is_int(bound, &known);
  return run_values(lw, i, KILN_VALUE_EXTENT, known, out_n, out);
}

kiln_status kiln_lower_shape_values(kiln_lower *lw, int i, int *out_n,
                                    const kiln_expr *const **out) {
  return kiln_lower_run_values(lw, i, KILN_VALUE_EXTENT, out_n, out);
}
