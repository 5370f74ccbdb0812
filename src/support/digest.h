// SHA-256, for keys by content: equal keys are taken for equal contents.
#ifndef KILN_SUPPORT_DIGEST_H
#define KILN_SUPPORT_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KILN_DIGEST_BYTES = 32 };
typedef struct kiln_digest {
  uint32_t state[8];
  uint64_t n_bytes; // added so far
  unsigned char block[64];
} kiln_digest;

void kiln_digest_init(kiln_digest *d);
void kiln_digest_add(kiln_digest *d, const void *bytes, size_t n);
// Adds |text| and its length, so that a list of texts has one reading; NULL is unlike any text.
void kiln_digest_add_text(kiln_digest *d, const char *text);
void kiln_digest_add_int(kiln_digest *d, int64_t value);
// source: FIPS 180-4, section 6.2
void kiln_digest_end(kiln_digest *d, unsigned char out[KILN_DIGEST_BYTES]);

// HMAC of it: who has not the key can make none. What is authenticated is added to |inner|.
enum { KILN_MAC_KEY_BYTES = 32 };
typedef struct kiln_mac {
  kiln_digest inner;
  unsigned char outer[64]; // the key, for the end
} kiln_mac;
// source: RFC 2104, section 2
void kiln_mac_init(kiln_mac *m, const unsigned char key[KILN_MAC_KEY_BYTES]);
void kiln_mac_end(kiln_mac *m, unsigned char out[KILN_DIGEST_BYTES]);
// In a time that does not depend on where they differ.
bool kiln_mac_is_same(const unsigned char a[KILN_DIGEST_BYTES],
                      const unsigned char b[KILN_DIGEST_BYTES]);

#endif
