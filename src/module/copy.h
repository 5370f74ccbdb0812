// Digests and copies of files by several threads.
#ifndef KILN_MODULE_COPY_H
#define KILN_MODULE_COPY_H

#include "support/digest.h"
#include "support/status.h"

#include <stdbool.h>

// The digest of the first |bytes| of |from|: the digest of the digests of its 256 KiB pieces. The
// second function also copies the bytes to the beginning of |to|.
//
// gives: false with errno set: reading failed (ENODATA: the file is shorter), writing failed, or
// memory is out
bool kiln_file_digest(int from, uint64_t bytes, int threads, unsigned char out[KILN_DIGEST_BYTES]);
bool kiln_file_copy(int from, uint64_t bytes, int to, int threads,
                    unsigned char out[KILN_DIGEST_BYTES]);
// Writes all bytes, also after partial writes.
bool kiln_write_all(int fd, const void *data, size_t bytes, int64_t offset);

#endif
