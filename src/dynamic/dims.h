// Named dimensions defined by others, as in kv = p + t.
#ifndef KILN_DYNAMIC_DIMS_H
#define KILN_DYNAMIC_DIMS_H

#include "ir/graph.h"
#include "kiln/compile.h"
#include "onnx/reader.h"

// The options on dimensions: values, and expressions for dimensions without a value.
typedef struct kiln_dims {
  int n, n_forms;
  kiln_onnx_dim *values;
  kiln_symbol *names;      // [n_forms]
  const kiln_expr **forms; // [n_forms] over VARs other than |names|
} kiln_dims;

// errors: KILN_BAD_INPUT: a sum is not integer arithmetic on other dimensions
KILN_MUST_USE kiln_status kiln_dims_resolve(kiln_ctx *cx, const char *path,
                                            const kiln_compile_options *o, kiln_dims *out);
// A copy in which |n| symbolic extents are replaced by values.
kiln_graph *kiln_graph_substitute(kiln_ctx *cx, const kiln_graph *g, int n,
                                  const kiln_symbol *names, const kiln_expr *const *values);

#endif
