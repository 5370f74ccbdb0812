// The two control-flow macros and the assertion; the codes are public (kiln/status.h).
#ifndef KILN_SUPPORT_STATUS_H
#define KILN_SUPPORT_STATUS_H

#include "kiln/status.h"

#include <inttypes.h>
#include <stdbool.h>

// Returns the status if |call| fails. Do not use while holding a resource outside of arenas.
#define KILN_TRY(call)                                                                             \
  do {                                                                                             \
    kiln_status kiln_try_status_ = (call);                                                         \
    if (kiln_try_status_ != KILN_OK) return kiln_try_status_;                                      \
  } while (0)

// Appends a message to |diag| and evaluates to |status|:
// `return KILN_FAIL(cx->diag, KILN_BAD_INPUT, place, "...", ...)`.
#define KILN_FAIL(diag, status, place, ...) kiln_diag_fail((diag), (status), (place), __VA_ARGS__)

// Appends the messages of |from| to |to|, which may be NULL.
void kiln_diag_append(kiln_diag *to, const kiln_diag *from);

// Checks an argument of a public function.
//
// errors: KILN_BAD_INPUT if the pointer argument |name| is NULL
KILN_MUST_USE kiln_status kiln_argument_check(kiln_diag *diag, const char *function,
                                              const char *name, bool is_given);

// The status for a failed file operation with this errno: KILN_NO_MEMORY, or mostly KILN_BAD_INPUT.
kiln_status kiln_status_of_error(int error);

#define KILN_LEN(array) (sizeof(array) / sizeof((array)[0]))

// Checks internal invariants, never input. Compiled out with NDEBUG.
#include <assert.h>
#define KILN_ASSERT(condition) assert(condition)

#endif
