// What backends offer for the kernels of a build (backend/backend.h).
#ifndef KILN_MODULE_OFFER_H
#define KILN_MODULE_OFFER_H

#include "module/build.h"

// Whether |list| is one that options may have: "none", or names of backends, "all" and "always"
// joined by ','. NULL is "none".
//
// errors: KILN_BAD_INPUT: a name is no backend's
kiln_status kiln_backends_check(const char *list, kiln_diag *diag);
// Adds to the candidates of |b|'s kernels those of libraries that the options ask for, behind the
// templates': none costs anything yet, and none is taken unless it was measured.
//
// errors: KILN_DEVICE_ERROR: a library that was asked for by name is missing
kiln_status kiln_build_offer(kiln_ctx *cx, kiln_build *b);
// Where the options say "always": the first library that has a kernel gets it, whatever is known of
// times.
kiln_status kiln_build_take_offers(kiln_ctx *cx, kiln_build *b, bool *out_taken);
// Runs the library's kernel of |k| in two parts.
//
// errors: as kiln_backend.create and open; KILN_DEVICE_ERROR: it fails
kiln_status kiln_offer_run(kiln_ctx *cx, const kiln_offer *offer, const kiln_program *p,
                           char *const *args);

#endif
