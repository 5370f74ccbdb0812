// Storage roundings: casts that exist because a value is stored in a narrower type than it is
// computed in, as when f32 programs are converted to half types. They may be removed if the value
// is not stored; a model's own casts may not. Such a cast is a distinct expression, not equal to
// the same cast from a model; it prints as `stored_f16(x)`.
#ifndef KILN_IR_STORED_H
#define KILN_IR_STORED_H

#include "ir/expr.h"

const kiln_expr *kiln_cast_stored(kiln_ctx *cx, kiln_dtype t,
                                  const kiln_expr *a); // |a| itself if it has that dtype
bool kiln_expr_is_stored(const kiln_expr *e);          // whether |e| is such a cast

#endif
