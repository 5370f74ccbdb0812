// Constant folding of statements.
#ifndef KILN_REWRITE_CONSTANTS_H
#define KILN_REWRITE_CONSTANTS_H

#include "ir/prim.h"

enum {
  KILN_MAX_FOLDED_STEPS = 1 << 26, // body evaluations of one statement
  KILN_MAX_MOVED_STEPS = 1 << 22   // of one that only moves
};

// Computes, with the reference interpreter, the statements that read constants only, and makes
// their tensors constants. Statements that only move one tensor's data stay, unless they divide or
// join its axes: their readers absorb them, and packing does the rest. So do fills, which are
// cheaper to compute than to read, and those that decode (kiln_stmt_decodes), whose constants are
// far smaller.
//
// needs: |p| verified, shapes static
// gives: how many were folded; dead statements removed and ids renumbered where any was
kiln_status kiln_program_fold_constants(kiln_ctx *cx, kiln_program *p, int *out_n);

#endif
