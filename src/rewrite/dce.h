// Dead code elimination.
#ifndef KILN_REWRITE_DCE_H
#define KILN_REWRITE_DCE_H

#include "ir/prim.h"

// Removes statements and tensors that no output depends on, and renumbers the rest.
//
// needs: statements in topological order
// keeps: inputs, used or not (they are the signature); the order of statements. Pointers to live
//        tensors and statements stay valid; their ids change.
void kiln_program_dce(kiln_ctx *cx, kiln_program *p);

#endif
