// The C target: any loop program as readable C17 source.
//
// The text is one file that includes standard headers only: a prelude with the helper functions
// that the kernels use (rounding to half types, floor division, ...), and one function for each
// nest with the contract of kiln_cpu_compile. It compiles without a warning under gcc -std=c17
// -Wall -Wextra, and has the meaning of the loops: parallel and vector loops become hints
// (pragmas), an instruction is written as its meaning.
#ifndef KILN_TARGET_C_C_H
#define KILN_TARGET_C_C_H

#include "target/target.h"

// Appends the source of |n| kernels, of which kernels[i] has the symbol symbols[i], to |out|.
//
// needs:  verified kernels
// errors: none but KILN_NO_MEMORY of the out-of-memory handler
void kiln_c_emit(kiln_ctx *cx, int n, kiln_loops *const *kernels, const char *const *symbols,
                 kiln_text *out);

#endif
