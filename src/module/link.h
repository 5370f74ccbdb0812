// Writes a module file: the objects linked to a shared object, or a GPU's code, the weights
// appended tensor by tensor, their checksums, the plan, the trailer. All of it goes to a temporary
// file, which takes the output's name when it is whole.
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
  struct kiln_output_sums *sums; // of what was written of the weights
} kiln_output;

// Makes the temporary file, so that an unwritable place is found before the work.
// gives: *out, to be ended by kiln_output_discard in any case
// errors: KILN_BAD_INPUT naming |path|
kiln_status kiln_output_open(kiln_output *out, const char *path, kiln_diag *diag);
// Runs binutils' ld on the objects.
// errors: KILN_DEVICE_ERROR with what ld says
kiln_status kiln_output_link(kiln_output *out, int n, const kiln_object *objects, kiln_diag *diag);
// Writes what is code for a GPU, in place of the shared object.
kiln_status kiln_output_code(kiln_output *out, const char *code, uint64_t bytes, kiln_diag *diag);
// Makes room for |bytes| of weights on the disk, zeros as yet.
// errors: KILN_BAD_INPUT: there is no room
kiln_status kiln_output_weights(kiln_output *out, uint64_t bytes, kiln_diag *diag);
// Writes some of them.
//
// gives:   false, and errno says why
// threads: any, for different bytes
bool kiln_output_write(const kiln_output *out, uint64_t at, const void *data, size_t bytes);
// A checksum of all that was written of the weights; 0: no memory.
uint64_t kiln_output_weights_sum(const kiln_output *out);
// Appends plan and trailer and gives the file its name.
kiln_status kiln_output_finish(kiln_output *out, const void *plan, size_t plan_bytes,
                               kiln_diag *diag);
// Instead of all that: a copy of the file |from| and of its permissions, with the digest of
// kiln_file_copy; and giving it its name, if it is the right one.
//
// gives: false, and errno says why
bool kiln_output_copy(kiln_output *out, int from, uint64_t bytes, int threads,
                      unsigned char out_digest[KILN_DIGEST_BYTES]);
bool kiln_output_take_name(kiln_output *out);
void kiln_output_discard(
    kiln_output *out); // removes what is left; after finish: nothing of the file

#endif
