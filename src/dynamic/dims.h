// Named dimensions that follow from others, as in kv = p + t.
#ifndef KILN_DYNAMIC_DIMS_H
#define KILN_DYNAMIC_DIMS_H

#include "ir/graph.h"
#include "kiln/compile.h"
#include "onnx/reader.h"

// What options say of dimensions: those that have a value, and what others are of dimensions that
// have none.
typedef struct kiln_dims {
  int n, n_forms;
  kiln_onnx_dim *values;
  kiln_symbol *names;      // [n_forms]
  const kiln_expr **forms; // [n_forms] over VARs, none of them one of |names|
} kiln_dims;

// errors: KILN_BAD_INPUT: a sum is no integer arithmetic of other dimensions
KILN_MUST_USE kiln_status kiln_dims_resolve(kiln_ctx *cx, const char *path,
                                            const kiln_compile_options *o, kiln_dims *out);
// A copy in which |n| names of extents have these values.
kiln_graph *kiln_graph_substitute(kiln_ctx *cx, const kiln_graph *g, int n,
                                  const kiln_symbol *names, const kiln_expr *const *values);

#endif
