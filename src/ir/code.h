// Values of code types (kiln_dtype's CODE) as expressions: what a code means and the rounding to it
// are integer arithmetic on the bits of another type, stated here for the interpreter and all
// targets.
#ifndef KILN_IR_CODE_H
#define KILN_IR_CODE_H

#include "ir/expr.h"

typedef enum kiln_rounding { KILN_ROUND_NEAREST, KILN_ROUND_UP, KILN_ROUND_DOWN } kiln_rounding;

// How numbers become codes. What lies outside the range of a float or a power becomes its end, or,
// not saturating, infinity if there is one, else NaN, as does 0 among powers. |rounding| is that of
// powers: nearest takes ties up. Floats are rounded to nearest even. Integers: the low bits of the
//         number
// that a cast to i32 gives.
typedef struct kiln_encoding {
  bool saturates;
  kiln_rounding rounding;
} kiln_encoding;

// The value of |e|, of a code type: exact; f32, or for integers i8 or u8.
const kiln_expr *kiln_decode(kiln_ctx *cx, const kiln_expr *e);
// The code of type |t| of |e|, of any type; each value is rounded once.
const kiln_expr *kiln_encode(kiln_ctx *cx, kiln_dtype t, const kiln_expr *e, kiln_encoding how);

#endif
