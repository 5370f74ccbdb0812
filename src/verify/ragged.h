// Verification of the definitions of a file at random sizes.
#ifndef KILN_VERIFY_RAGGED_H
#define KILN_VERIFY_RAGGED_H

#include "module/compiler.h"

// Implements kiln_definitions_verify with |compiler|.
kiln_status kiln_ragged_verify(const kiln_compiler *compiler, const char *path,
                               const kiln_compile_options *options,
                               const kiln_verify_options *verify, kiln_diag *diag,
                               size_t *out_failed);

#endif
