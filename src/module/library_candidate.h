// External-codegen (BYOC) candidates: kernels of libraries (backend/backend.h), which compete with
// the templates' candidates.
#ifndef KILN_MODULE_LIBRARY_CANDIDATE_H
#define KILN_MODULE_LIBRARY_CANDIDATE_H

#include "module/build.h"

// Checks the value of the option: "none" (NULL, too), or names of backends, "all" and "always",
// joined by ','.
//
// errors: KILN_BAD_INPUT: a name is no backend's
kiln_status kiln_backends_check(const char *list, kiln_diag *diag);
// Appends library candidates, of the libraries that the options name, to the candidates of |b|'s
// kernels. They have no predicted cost, so one is taken only after it was measured to be fastest.
//
// errors: KILN_DEVICE_ERROR: a library that was asked for by name is missing
kiln_status kiln_build_add_library_candidates(kiln_ctx *cx, kiln_build *b);
// With the option "always", takes the first library candidate of every kernel, whatever its time.
kiln_status kiln_build_take_library_candidates(kiln_ctx *cx, kiln_build *b, bool *out_taken);
// Runs the library's kernel of |k| in two parts.
//
// errors: as kiln_backend.create and open; KILN_DEVICE_ERROR: it fails
kiln_status kiln_library_candidate_run(kiln_ctx *cx, const kiln_library_candidate *offer,
                                       const kiln_program *p, char *const *args);

#endif
