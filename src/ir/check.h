// Checks of expressions that both levels share. Private to ir/.
#ifndef KILN_IR_CHECK_H
#define KILN_IR_CHECK_H

#include "ir/expr.h"

typedef struct kiln_checker {
  kiln_ctx *cx;
  const char *place;    // of messages
  const kiln_map *vars; // bound variables: symbol to non-zero
  const kiln_map *more; // and these; may be NULL
  // Checks tensor or buffer, dtype and rank of a load; NULL: no loads are allowed.
  kiln_status (*load)(const struct kiln_checker *c, const kiln_expr *e);
  const void *argument;
} kiln_checker;

// Checks that |e| has dtype |t|, its operators the dtypes and numbers of arguments they need, its
// variables a binding. |what| names the expression in messages. KILN_INTERNAL on a breach.
kiln_status kiln_check_expr(const kiln_checker *c, const char *what, kiln_dtype t,
                            const kiln_expr *e);

#endif
