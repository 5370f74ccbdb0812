// Static archives in ar's format, reproducible: times, owners and modes are constant, so the same
// members give the same bytes.
//
//     !<arch>\n | index of symbols | object | object | ... | object of the weights
#ifndef KILN_MODULE_ARCHIVE_H
#define KILN_MODULE_ARCHIVE_H

#include "module/link.h"

typedef struct kiln_archive {
  int n_objects;
  kiln_object *objects; // global functions other than |visible| become hidden
  const char *visible;
  const char *weights; // symbol of the weights; NULL: no weights
  uint64_t weights_bytes;
  bool is_arm; // AArch64 objects instead of x86-64
} kiln_archive;

// Writes the archive except for the weights, which kiln_output_write adds.
// errors: KILN_BAD_INPUT: it cannot be written; KILN_INTERNAL: a malformed object
kiln_status kiln_archive_write(kiln_ctx *cx, const kiln_archive *a, kiln_output *out);
// Undefined symbols of the objects, each once, in strcmp order.
// gives: *out_n names in cx->perm
const char **kiln_archive_needs(kiln_ctx *cx, int n, const kiln_object *objects, int *out_n);

#endif
