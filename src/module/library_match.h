// Pattern matching for libraries: finds the library call (backend/library_call.h) that computes the
// same as the program of a kernel.
#ifndef KILN_MODULE_LIBRARY_MATCH_H
#define KILN_MODULE_LIBRARY_MATCH_H

#include "backend/library_call.h"
#include "target/target.h"

// The call for |p|, a plain extract for |m| (fuse/outline.h): a product of matrices or a
// convolution, and what a map makes of it. Its arguments are the PARAMs of |p|'s loops; of a
// constant of f32 that is added to what is stored as halves it wants halves, and results that are
// halves are rounded once, as the products on GPUs do.
//
// gives: false where it is no such program
bool kiln_library_match(kiln_ctx *cx, const kiln_machine *m, const kiln_program *p,
                        kiln_library_call *out);

#endif
