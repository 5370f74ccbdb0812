// SHA-256, for content keys: equal digests are assumed to mean equal contents.
#ifndef KILN_SUPPORT_DIGEST_H
#define KILN_SUPPORT_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KILN_DIGEST_BYTES = 32 };
typedef struct kiln_digest {
  uint32_t state[8];
  uint64_t n_bytes; // so far
  unsigned char block[64];
} kiln_digest;

void kiln_digest_init(kiln_digest *d);
void kiln_digest_add(kiln_digest *d, const void *bytes, size_t n);
// Adds |text| with its length, so that a sequence of texts is unambiguous; NULL differs from every
// text.
void kiln_digest_add_text(kiln_digest *d, const char *text);
void kiln_digest_add_int(kiln_digest *d, int64_t value);
// source: FIPS 180-4, section 6.2
void kiln_digest_end(kiln_digest *d, unsigned char out[KILN_DIGEST_BYTES]);

// HMAC-SHA-256: only holders of the key can compute it. The message is added to |inner|.
enum { KILN_MAC_KEY_BYTES = 32 };
typedef struct kiln_mac {
  kiln_digest inner;
  unsigned char outer[64]; // outer padded key
} kiln_mac;
// source: RFC 2104, section 2
void kiln_mac_init(kiln_mac *m, const unsigned char key[KILN_MAC_KEY_BYTES]);
void kiln_mac_end(kiln_mac *m, unsigned char out[KILN_DIGEST_BYTES]);
// Constant-time comparison.
bool kiln_mac_is_same(const unsigned char a[KILN_DIGEST_BYTES],
                      const unsigned char b[KILN_DIGEST_BYTES]);

#endif
