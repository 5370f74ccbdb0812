// External code generation (BYOC): library kernels (backend/backend.h) as candidates that compete
// with those of the templates.
#ifndef KILN_MODULE_LIBRARY_CANDIDATE_H
#define KILN_MODULE_LIBRARY_CANDIDATE_H

#include "module/build.h"

// Checks the value of the option: "none" (or NULL), or a comma-separated list of backend names,
// "all" and "always".
//
// errors: KILN_BAD_INPUT for an unknown backend
kiln_status kiln_backends_check(const char *list, kiln_diag *diag);
// Appends candidates of the libraries that the options name to the candidates of |b|'s kernels.
// They have no predicted cost: one is chosen only after it was measured to be fastest.
//
// errors: KILN_DEVICE_ERROR: a library given by name is missing
kiln_status kiln_build_add_library_candidates(kiln_ctx *cx, kiln_build *b);
// With the option "always", chooses the first library candidate of every kernel, regardless of its
// time.
kiln_status kiln_build_take_library_candidates(kiln_ctx *cx, kiln_build *b, bool *out_taken);
// Runs a library candidate for program |p| on the memory |args|.
//
// errors: as kiln_backend.create and open; KILN_DEVICE_ERROR: it fails
kiln_status kiln_library_candidate_run(kiln_ctx *cx, const kiln_library_candidate *offer,
                                       const kiln_program *p, char *const *args);

#endif
