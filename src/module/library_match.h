// Pattern matching for libraries: the library call (backend/library_call.h) that computes a
// kernel's program.
#ifndef KILN_MODULE_LIBRARY_MATCH_H
#define KILN_MODULE_LIBRARY_MATCH_H

#include "backend/library_call.h"
#include "target/target.h"

// The call for |p|, a program outlined for |m| (fuse/outline.h): a matrix product or convolution
// with an elementwise epilogue. Its arguments are the PARAMs of |p|'s loops. f32 constants that are
// added to half results are requested as halves, and half results are rounded once, as GPU products
// do.
//
// gives: false if no call computes |p|
//
// gives: false where it is no such program
bool kiln_library_match(kiln_ctx *cx, const kiln_machine *m, const kiln_program *p,
                        kiln_library_call *out);

#endif
