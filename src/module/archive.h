// Archives of objects, as ar writes them, without times, owners and whatever else differs from one
// writing to the next: the same members give the same bytes.
//
//     !<arch>\n | index of symbols | object | object | ... | object of the weights
#ifndef KILN_MODULE_ARCHIVE_H
#define KILN_MODULE_ARCHIVE_H

#include "module/link.h"

typedef struct kiln_archive {
  int n_objects;
  kiln_object *objects; // global symbols of the functions but |visible| become hidden
  const char *visible;
  const char *weights; // symbol of the weights; NULL: there are none
  uint64_t weights_bytes;
  bool is_arm; // objects are of AArch64, else of x86-64
} kiln_archive;

// Writes everything but the weights, which kiln_output_write writes then.
// errors: KILN_BAD_INPUT: it cannot be written; KILN_INTERNAL: an object that is none
kiln_status kiln_archive_write(kiln_ctx *cx, const kiln_archive *a, kiln_output *out);
// What the objects call and do not have, each once, in the order of strcmp.
// gives: *out_n names in cx->perm
const char **kiln_archive_needs(kiln_ctx *cx, int n, const kiln_object *objects, int *out_n);

#endif
