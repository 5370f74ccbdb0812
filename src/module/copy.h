// Files by several threads: their digests, and copies.
#ifndef KILN_MODULE_COPY_H
#define KILN_MODULE_COPY_H

#include "support/digest.h"
#include "support/status.h"

#include <stdbool.h>

// The digest of the first |bytes| of |from|: a digest of the digests of its pieces of 256 KiB. The
// second function also copies the bytes to the beginning of |to|.
//
// gives: false, and errno says why: it could not be read (ENODATA: it is shorter) or written, or
//        memory is out
bool kiln_file_digest(int from, uint64_t bytes, int threads, unsigned char out[KILN_DIGEST_BYTES]);
bool kiln_file_copy(int from, uint64_t bytes, int to, int threads,
                    unsigned char out[KILN_DIGEST_BYTES]);
// Writes all of it.
bool kiln_write_all(int fd, const void *data, size_t bytes, int64_t offset);

#endif
