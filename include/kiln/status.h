// SPDX-License-Identifier: Apache-2.0
// Status codes and diagnostics of all fallible calls.
//
// A call returns one of seven codes, which tell who must act; messages (one failing call may have
// several) go to a kiln_diag that the caller owns. The library never prints, exits or aborts.
#ifndef KILN_STATUS_H
#define KILN_STATUS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(KILN_BUILDING)
#define KILN_API __attribute__((visibility("default")))
#else
#define KILN_API
#endif
#define KILN_MUST_USE __attribute__((warn_unused_result))
#define KILN_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define KILN_GIVE // the caller receives ownership
#define KILN_TAKE // the callee takes ownership

typedef enum kiln_status {
  KILN_OK = 0,
  KILN_BAD_INPUT, // the caller's data or request is wrong: the message has the constraint and what
                  // was found
  KILN_UNSUPPORTED,  // valid, but this version cannot do it
  KILN_NO_MEMORY,    // an allocation failed
  KILN_NO_BUDGET,    // a search or solver used up its step limit
  KILN_DEVICE_ERROR, // the machine, its driver or the operating system refused
  KILN_INTERNAL,     // a bug in Kiln: an invariant is violated
} kiln_status;

// A caller-owned list of messages; one per thread.
typedef struct kiln_diag kiln_diag;

// gives: an empty diag, to be destroyed by the caller; NULL if memory is out
KILN_API KILN_GIVE kiln_diag *kiln_diag_create(void);
KILN_API void kiln_diag_destroy(KILN_TAKE kiln_diag *diag); // NULL is allowed
KILN_API size_t kiln_diag_count(const kiln_diag *diag);
// gives: message |i| as "place: error: subject: what must hold, got what was found"; owned by
// |diag|; NULL past the end
KILN_API const char *kiln_diag_message(const kiln_diag *diag, size_t i);
// gives: the place at the beginning of message |i|: 'm.onnx: node 17 "layer1.conv2"', or a file and
//        "LINE:COLUMN" of a definition; owned by |diag|; NULL: none
KILN_API const char *kiln_diag_place(const kiln_diag *diag, size_t i);
KILN_API void kiln_diag_clear(kiln_diag *diag);
// Appends a message; |place| may be NULL. Returns |status|, for use in return statements.
KILN_API kiln_status kiln_diag_fail(kiln_diag *diag, kiln_status status, const char *place,
                                    const char *format, ...) KILN_PRINTF(4, 5);
KILN_API void kiln_diag_warn(kiln_diag *diag, const char *place, const char *format, ...)
    KILN_PRINTF(3, 4);
KILN_API const char *kiln_status_name(kiln_status status); // "OK", "BAD_INPUT", ...

#ifdef __cplusplus
}
#endif
#endif
