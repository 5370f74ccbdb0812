// The module file: a shared object with the weights (page-aligned), their checksums, the plan and a
// trailer appended, so that dlopen loads it and weights can be mapped.
//
//     ELF shared object | padding | weights | checksums | plan | trailer
#ifndef KILN_RUNTIME_CONTAINER_H
#define KILN_RUNTIME_CONTAINER_H

#include "kiln/status.h"

#include <stdbool.h>

enum { KILN_TRAILER_BYTES = 104, KILN_CONTAINER_ALIGN = 65536 }; // the largest page size in use
enum { KILN_CONTAINER_VERSION = 2 };

typedef struct kiln_container {
  uint64_t code_bytes, code_sum; // the ELF, from the file's begin
  uint64_t weights_offset, weights_bytes;
  uint64_t sums_offset, sums_bytes, sums_sum; // rows of runtime/sums.h
  uint64_t plan_offset, plan_bytes, plan_sum;
  uint64_t file_bytes;
} kiln_container;

void kiln_trailer_write(const kiln_container *c, unsigned char out[KILN_TRAILER_BYTES]);
bool kiln_trailer_is(const unsigned char trailer[KILN_TRAILER_BYTES]); // of any version
// Reads the trailer of a file of |file_bytes| and checks that all parts are inside of it, in order.
// errors: KILN_BAD_INPUT: |place| must be a module of this version
KILN_MUST_USE kiln_status kiln_trailer_read(const unsigned char trailer[KILN_TRAILER_BYTES],
                                            uint64_t file_bytes, const char *place, kiln_diag *diag,
                                            kiln_container *out);

#endif
