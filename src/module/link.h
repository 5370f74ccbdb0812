// Writes a module file: the shared object linked from the objects, or a GPU's code; then the
// weights, tensor by tensor, their checksums, the plan and the trailer. It is a temporary file
// until complete, then renamed.
#ifndef KILN_MODULE_LINK_H
#define KILN_MODULE_LINK_H

#include "runtime/container.h"
#include "support/digest.h"
#include "support/temporary.h"
#include "target/target.h"

struct kiln_output_sums;

typedef struct kiln_output {
  char *path; // malloc'ed
  kiln_temporary file;
  kiln_container parts;
  struct kiln_output_sums *sums; // checksums of the weights written so far
} kiln_output;

// Creates the temporary file, so that an unwritable place is found before compiling.
// gives:  *out, to be ended by kiln_output_discard in any case
// errors: KILN_BAD_INPUT naming |path|
kiln_status kiln_output_open(kiln_output *out, const char *path, kiln_diag *diag);
// Links the objects with binutils' ld.
// errors: KILN_DEVICE_ERROR with ld's message
kiln_status kiln_output_link(kiln_output *out, int n, const kiln_object *objects, kiln_diag *diag);
// Writes GPU code in place of the shared object.
kiln_status kiln_output_code(kiln_output *out, const char *code, uint64_t bytes, kiln_diag *diag);
// Allocates |bytes| for weights in the file, initially zero.
// errors: KILN_BAD_INPUT: no space
kiln_status kiln_output_weights(kiln_output *out, uint64_t bytes, kiln_diag *diag);
// Writes part of the weights.
//
// gives:   false with errno set
// threads: any, for different bytes
bool kiln_output_write(const kiln_output *out, uint64_t at, const void *data, size_t bytes);
// A checksum of all weights written so far; 0: no memory.
uint64_t kiln_output_weights_sum(const kiln_output *out);
// Appends plan and trailer, and renames the file to its final name.
kiln_status kiln_output_finish(kiln_output *out, const void *plan, size_t plan_bytes,
                               kiln_diag *diag);
// The alternative: copies the file |from| with its permissions and gives its digest as
// kiln_file_digest does; then renames the copy, if the digest is right.
//
// gives: false with errno set
bool kiln_output_copy(kiln_output *out, int from, uint64_t bytes, int threads,
                      unsigned char out_digest[KILN_DIGEST_BYTES]);
bool kiln_output_take_name(kiln_output *out);
void kiln_output_discard(kiln_output *out); // removes the temporary file; does nothing after finish

#endif
