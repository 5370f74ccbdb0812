// Encodings of minifloats (f8, f4, e8m0) and sub-byte integers, the CODE types of kiln_dtype.
// Decoding and rounding are integer arithmetic on the bits of another type, written once as
// expressions, so that the interpreter and all targets agree.
#ifndef KILN_IR_ENCODING_H
#define KILN_IR_ENCODING_H

#include "ir/expr.h"

typedef enum kiln_rounding { KILN_ROUND_NEAREST, KILN_ROUND_UP, KILN_ROUND_DOWN } kiln_rounding;

// How numbers are rounded to an encoding. A minifloat rounds to nearest even; out of range it
// saturates to its largest value or, if not |saturates|, becomes infinity, NaN if the encoding has
// no infinity. A power of two (e8m0) rounds by |rounding|, ties up; unless it saturates, 0 and
// numbers out of range become NaN. An integer keeps the low bits of a cast to i32.
typedef struct kiln_encoding {
  bool saturates;
  kiln_rounding rounding;
} kiln_encoding;

// Decodes |e|, of a CODE type, exactly: to f32, or for integers to i8 or u8.
const kiln_expr *kiln_decode(kiln_ctx *cx, const kiln_expr *e);
// Encodes |e|, of any type, as type |t|; each value is rounded once.
const kiln_expr *kiln_encode(kiln_ctx *cx, kiln_dtype t, const kiln_expr *e, kiln_encoding how);

#endif
