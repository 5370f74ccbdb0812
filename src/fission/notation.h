// TC text as operators: parses a file of ops/ (or a user's .tc), infers ranges, and adds its
// statements to a program.
//
// A file is: comment lines; `onnx NAME SINCE..[UNTIL] [domain "D"] [(attr = default, ...)]`
// headers; definitions; `test ...` lines. Index packs `i...` stand for any number of dimensions and
// broadcast elementwise.
#ifndef KILN_FISSION_NOTATION_H
#define KILN_FISSION_NOTATION_H

#include "fission/lower.h"

// Lowers the node with the TC operator |op|: picks the definition by the number of inputs present,
// binds packs, dtypes, attributes (as scalar constants) and axes, adds the statements, sets the
// outputs.
//
// errors: BAD_INPUT naming the node if shapes do not fit; with file, line and caret if the text is
// wrong: INTERNAL, or BAD_INPUT if |op| is one of lw->user_ops
kiln_status kiln_tc_lower(kiln_lower *lw, const kiln_op *op);

typedef KILN_VEC(kiln_op) kiln_user_ops;
// Appends the operators that the `onnx` lines of a user's file declare; |file| and |text| are
// borrowed.
//
// errors: BAD_INPUT with file, line and caret; a file without such a line
kiln_status kiln_tc_operators(kiln_ctx *cx, const char *file, const char *text, kiln_user_ops *out);

// Parses and checks an operator file without a node; the tests run it on every file of ops/.
kiln_status kiln_tc_check(kiln_ctx *cx, const char *file, const char *text);

#endif
