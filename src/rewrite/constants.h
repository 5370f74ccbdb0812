// Constant folding of statements.
#ifndef KILN_REWRITE_CONSTANTS_H
#define KILN_REWRITE_CONSTANTS_H

#include "ir/prim.h"

enum {
  KILN_MAX_FOLDED_STEPS = 1 << 26, // body evaluations of one statement
  KILN_MAX_MOVED_STEPS = 1 << 22   // of a statement that only moves elements
};

// Evaluates statements that read only constants with the reference interpreter and makes their
// tensors constants. Exceptions are views (statements that move one tensor's elements without
// splitting or merging axes), which are inlined and left to packing; fills, which are cheaper to
// compute than to load; and statements that decode packed weights (kiln_stmt_decodes).
//
// needs: |p| verified, shapes static
// gives: *out_n statements folded; if any, dead statements are removed and ids renumbered
kiln_status kiln_program_fold_constants(kiln_ctx *cx, kiln_program *p, int *out_n);

#endif
