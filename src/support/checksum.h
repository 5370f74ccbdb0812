// XXH64: a fast checksum against accidental damage; it gives no protection against attackers.
#ifndef KILN_SUPPORT_CHECKSUM_H
#define KILN_SUPPORT_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

// source: github.com/Cyan4973/xxHash, doc/xxhash_spec.md, "XXH64 Algorithm Description"; seed 0
uint64_t kiln_checksum(const void *bytes, size_t n);

#endif
