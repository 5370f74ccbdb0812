// Binary fields of the file formats: little-endian, contiguous; a string is its length, its bytes
// and a NUL.
//
// Errors are sticky and tested once, at the end: a writer records that memory ran out, a reader of
// unchecked data the first wrong byte.
#ifndef KILN_RUNTIME_BLOB_H
#define KILN_RUNTIME_BLOB_H

#include "kiln/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct kiln_writer {
  unsigned char *data; // malloc'ed
  size_t n, cap;
  bool failed;
} kiln_writer;

void kiln_put_bytes(kiln_writer *w, const void *bytes, size_t n);
void kiln_put(kiln_writer *w, uint64_t v, int n_bytes);
void kiln_put_u32(kiln_writer *w, uint32_t v);
void kiln_put_i64(kiln_writer *w, int64_t v);
void kiln_put_f64(kiln_writer *w, double v);
void kiln_put_text(kiln_writer *w, const char *text);
// gives: *out, malloc'ed; NULL if memory ran out
void kiln_writer_end(kiln_writer *w, void **out, size_t *out_bytes);

typedef struct kiln_reader {
  const unsigned char *data;
  size_t at, n;
  const char *wrong; // the condition that failed at |at|; NULL: none
  bool no_memory;
} kiln_reader;

// After the first failure, everything reads as 0, "" or NULL.
void kiln_reader_fail(kiln_reader *r, const char *what);
uint64_t kiln_get(kiln_reader *r, int n_bytes);
uint32_t kiln_get_u32(kiln_reader *r);
double kiln_get_f64(kiln_reader *r);
const char *kiln_get_text(kiln_reader *r); // points into the blob
// Zeroed memory for |n| elements, each of which takes at least |min_bytes| of the remaining blob,
// so that a damaged count cannot allocate more than a multiple of the file's size.
void *kiln_get_array(kiln_reader *r, uint32_t n, size_t min_bytes, size_t elem_bytes);
// errors: KILN_BAD_INPUT with |place| and the byte, KILN_NO_MEMORY
KILN_MUST_USE kiln_status kiln_reader_end(const kiln_reader *r, const char *what, const char *place,
                                          kiln_diag *diag);

#endif
