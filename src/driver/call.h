// From the program of a kernel to the call of a library that computes the same (backend/call.h), if there is one.
#ifndef KILN_DRIVER_CALL_H
#define KILN_DRIVER_CALL_H

#include "backend/call.h"
#include "ir/loop.h"

// The call for |p|, an extract (tile/tile.h): a product of matrices or a convolution of f32, and what a map makes
// of it. Its arguments are the PARAMs of |p|'s loops.
//
// gives: false where it is no such program
bool kiln_call_find(kiln_ctx *cx, const kiln_program *p, kiln_call *out);

#endif
