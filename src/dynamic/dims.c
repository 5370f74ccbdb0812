// Sums of named dimensions, as kv = past + t: constant if all terms are bound, otherwise
// expressions of the unbound ones.
#include "dynamic/dims.h"
#include "model/model.h"

static kiln_status not_arithmetic(kiln_ctx *cx, const char *path, const kiln_dim_sum *s) {
  return KILN_FAIL(cx->diag, KILN_BAD_INPUT, path,
                   "dimension \"%s\": must be integer arithmetic of other dimensions, got \"%s\"",
                   s->name, s->is);
}

static kiln_status parse(kiln_ctx *cx, const char *path, const kiln_dim_sum *s,
                         const kiln_expr **out) {
  const kiln_expr_names none = {.bracket = '('};
  const char *at = s->is;
  kiln_diag *const diag = cx->diag;
  cx->diag = NULL;
  const kiln_status st = kiln_expr_parse(cx, &at, &none, out);
  cx->diag = diag;
  return st == KILN_OK && !*at && (*out)->dtype == KILN_I64 ? KILN_OK : not_arithmetic(cx, path, s);
}

// Substitutes names in the forms until none is left; takes at most as many steps as there are
// forms.
static void resolve_names(kiln_ctx *cx, kiln_dims *d) {
  for (int step = 0; step < d->n_forms; step++)
    for (int i = 0; i < d->n_forms; i++)
      for (int k = 0; k < d->n_forms; k++)
        if (k != i && kiln_expr_uses(d->forms[i], d->names[k]))
          d->forms[i] = kiln_expr_substitute(cx, d->forms[i], 1, &d->names[k], &d->forms[k]);
}

static void resolve_values(kiln_ctx *cx, kiln_dims *d) {
  for (int k = 0; k < d->n; k++) {
    const kiln_symbol name = kiln_symbol_of(cx, d->values[k].name);
    const kiln_expr *value = kiln_int(cx, d->values[k].value);
    for (int i = 0; i < d->n_forms; i++)
      d->forms[i] = kiln_expr_substitute(cx, d->forms[i], 1, &name, &value);
  }
}

// Moves forms that became constants to the values.
static void take_values(kiln_ctx *cx, kiln_dims *d) {
  int n = 0;
  for (int i = 0; i < d->n_forms; i++) {
    int64_t value = 0;
    if (kiln_expr_is_int(d->forms[i], &value)) {
      d->values[d->n++] = (kiln_onnx_dim){kiln_symbol_text(cx, d->names[i]), value};
      continue;
    }
    d->names[n] = d->names[i];
    d->forms[n++] = d->forms[i];
  }
  d->n_forms = n;
}

static bool uses_itself(const kiln_dims *d, const kiln_expr *form) {
  for (int k = 0; k < d->n_forms; k++)
    if (kiln_expr_uses(form, d->names[k])) return true;
  return false;
}

kiln_status kiln_dims_resolve(kiln_ctx *cx, const char *path, const kiln_compile_options *o,
                              kiln_dims *out) {
  const int n_sums = (int)o->n_sums;
  *out = (kiln_dims){.n_forms = n_sums};
  out->values = KILN_NEW_ARRAY(&cx->perm, kiln_onnx_dim, o->n_dims + o->n_sums);
  out->names = KILN_NEW_ARRAY(&cx->perm, kiln_symbol, n_sums);
  out->forms = KILN_NEW_ARRAY(&cx->perm, const kiln_expr *, n_sums);
  for (size_t i = 0; i < o->n_dims; i++)
    out->values[out->n++] = (kiln_onnx_dim){kiln_name_shown(cx, o->dims[i].name), o->dims[i].value};
  for (int i = 0; i < n_sums; i++) {
    out->names[i] = kiln_symbol_of(cx, o->sums[i].name);
    KILN_TRY(parse(cx, path, &o->sums[i], &out->forms[i]));
  }
  resolve_names(cx, out);
  for (int i = 0; i < n_sums; i++)
    if (uses_itself(out, out->forms[i])) return not_arithmetic(cx, path, &o->sums[i]);
  resolve_values(cx, out);
  take_values(cx, out);
  return KILN_OK;
}

kiln_graph *kiln_graph_substitute(kiln_ctx *cx, const kiln_graph *g, int n,
                                  const kiln_symbol *names, const kiln_expr *const *values) {
  kiln_graph *copy = KILN_NEW(&cx->perm, kiln_graph);
  *copy = *g;
  copy->values = KILN_NEW_ARRAY(&cx->perm, kiln_value *, g->n_values);
  for (int i = 0; i < g->n_values; i++) {
    kiln_value *v = KILN_NEW(&cx->perm, kiln_value);
    *v = *g->values[i];
    copy->values[i] = v;
    if (!v->has_shape) continue;
    v->shape = KILN_NEW_ARRAY(&cx->perm, const kiln_expr *, v->rank);
    for (int k = 0; k < v->rank; k++)
      v->shape[k] = kiln_expr_substitute(cx, g->values[i]->shape[k], n, names, values);
  }
  return copy;
}
