// Removes what no output needs.
#ifndef KILN_REWRITE_DCE_H
#define KILN_REWRITE_DCE_H

#include "ir/prim.h"

// Removes the statements and tensors from which no output can be reached, and renumbers the rest.
//
// needs: statements in topological order
// keeps: inputs, used or not (they are the signature); the order of what stays. Pointers to living
//        tensors and statements stay valid, their ids change.
void kiln_program_dce(kiln_ctx *cx, kiln_program *p);

#endif
