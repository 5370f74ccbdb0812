// The two control-flow macros and the assertion; the codes are public (kiln/status.h).
#ifndef KILN_SUPPORT_STATUS_H
#define KILN_SUPPORT_STATUS_H

#include "kiln/status.h"

#include <inttypes.h>
#include <stdbool.h>

// Returns from the function when |call| fails. Not where a resource outside the arenas is held.
#define KILN_TRY(call)                                                                             \
  do {                                                                                             \
    kiln_status kiln_try_status_ = (call);                                                         \
    if (kiln_try_status_ != KILN_OK) return kiln_try_status_;                                      \
  } while (0)

// Appends a message to |diag| and yields |status|: `return KILN_FAIL(cx->diag, KILN_BAD_INPUT,
// place, "...", ...)`.
#define KILN_FAIL(diag, status, place, ...) kiln_diag_fail((diag), (status), (place), __VA_ARGS__)

// Copies the messages of |from| behind those of |to|, which may be NULL.
void kiln_diag_append(kiln_diag *to, const kiln_diag *from);

// What a public function says of an argument of the caller's.
//
// errors: KILN_BAD_INPUT: that with |name|, a pointer, is not given
KILN_MUST_USE kiln_status kiln_argument_check(kiln_diag *diag, const char *function,
                                              const char *name, bool is_given);

// What it is when a file cannot be read or written, by |error|, an errno: KILN_NO_MEMORY or, in
// most cases, KILN_BAD_INPUT.
kiln_status kiln_status_of_error(int error);

#define KILN_LEN(array) (sizeof(array) / sizeof((array)[0]))

// Guards our invariants, never input. Compiled out with NDEBUG.
#include <assert.h>
#define KILN_ASSERT(condition) assert(condition)

#endif
