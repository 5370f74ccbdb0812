// Casts that are there because something is stored in fewer bytes than it is computed in, as f32
// programs in half types do. Where nothing is stored they may be left out; what a model itself
// rounds may not. Such a cast is an expression of its own, not equal to the same cast of a model's;
// it prints as `stored_f16(x)`.
#ifndef KILN_IR_STORED_H
#define KILN_IR_STORED_H

#include "ir/expr.h"

const kiln_expr *kiln_cast_stored(kiln_ctx *cx, kiln_dtype t,
                                  const kiln_expr *a); // |a| itself when it has that dtype
bool kiln_expr_is_stored(const kiln_expr *e);          // such a cast

#endif
