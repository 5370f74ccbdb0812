// The ports of a model's interface: names, types and extents with their names.
#include "model/model.h"

void kiln_interface_set(kiln_ctx *cx, kiln_interface *face, int i, const char *name,
                        const char *dtype, int rank, const kiln_expr *const *shape) {
  int64_t *extents = KILN_NEW_ARRAY(&cx->perm, int64_t, rank);
  face->dim_names[i] = KILN_NEW_ARRAY(&cx->perm, const char *, rank);
  for (int k = 0; k < rank; k++) {
    if (kiln_expr_is_int(shape[k], &extents[k])) continue;
    const kiln_expr_names none = {.bracket = '('};
    kiln_text text;
    kiln_text_init(&text, &cx->perm);
    kiln_expr_print(cx, shape[k], &none, &text);
    extents[k] = -1;
    face->dim_names[i][k] = text.data;
  }
  face->ports[i] = (kiln_port){name, dtype, rank, extents};
}

void kiln_interface_init(kiln_ctx *cx, kiln_interface *face, int n) {
  face->n = n;
  face->ports = KILN_NEW_ARRAY(&cx->perm, kiln_port, n);
  face->dim_names = KILN_NEW_ARRAY(&cx->perm, const char **, n);
}
