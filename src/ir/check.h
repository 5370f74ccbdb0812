// Checks of expressions at both levels. Private to ir/.
#ifndef KILN_IR_CHECK_H
#define KILN_IR_CHECK_H

#include "ir/expr.h"

typedef struct kiln_checker {
  kiln_ctx *cx;
  const char *place;    // prefix of messages
  const kiln_map *vars; // bound variables: symbol to non-zero
  const kiln_map *more; // further bound variables; may be NULL
  // Checks tensor or buffer, dtype and rank of a load; NULL: no loads are allowed.
  kiln_status (*load)(const struct kiln_checker *c, const kiln_expr *e);
  const void *argument;
} kiln_checker;

// Checks that |e| has dtype |t|, that its operators have the right dtypes and numbers of arguments,
// and that its variables are bound. |what| names the expression in messages. KILN_INTERNAL on a
// violation.
kiln_status kiln_check_expr(const kiln_checker *c, const char *what, kiln_dtype t,
                            const kiln_expr *e);

#endif
