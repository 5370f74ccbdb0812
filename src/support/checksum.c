#include "support/checksum.h"

#include <string.h>

#define P1 UINT64_C(0x9e3779b185ebca87)
#define P2 UINT64_C(0xc2b2ae3d27d4eb4f)
#define P3 UINT64_C(0x165667b19e3779f9)
#define P4 UINT64_C(0x85ebca77c2b2ae63)
#define P5 UINT64_C(0x27d4eb2f165667c5)

static inline uint64_t turn(uint64_t x, int by) { return x << by | x >> (64 - by); }

static inline uint64_t
read8(const unsigned char *p) { // little-endian, as the machines that Kiln runs on
  uint64_t v;
  memcpy(&v, p, sizeof v);
  return v;
}

static inline uint64_t take(uint64_t lane, uint64_t input) {
  return turn(lane + input * P2, 31) * P1;
}

static inline uint64_t merge(uint64_t sum, uint64_t lane) {
  return (sum ^ take(0, lane)) * P1 + P4;
}

static uint64_t add_rest(uint64_t sum, const unsigned char *p, size_t n) {
  for (; n >= 8; n -= 8, p += 8) sum = turn(sum ^ take(0, read8(p)), 27) * P1 + P4;
  if (n >= 4) {
    uint32_t v;
    memcpy(&v, p, sizeof v);
    sum = turn(sum ^ v * P1, 23) * P2 + P3;
    n -= 4, p += 4;
  }
  for (; n; n--, p++) sum = turn(sum ^ *p * P5, 11) * P1;
  sum = (sum ^ sum >> 33) * P2;
  sum = (sum ^ sum >> 29) * P3;
  return sum ^ sum >> 32;
}

uint64_t kiln_checksum(const void *bytes, size_t n) {
  const unsigned char *p = bytes;
  const size_t all = n;
  if (n < 32) return add_rest(P5 + all, p, n);
  uint64_t a = P1 + P2, b = P2, c = 0,
           d = 0 - P1; // four independent lanes for instruction-level parallelism
  for (; n >= 32; n -= 32, p += 32) {
    a = take(a, read8(p));
    b = take(b, read8(p + 8));
    c = take(c, read8(p + 16));
    d = take(d, read8(p + 24));
  }
  const uint64_t sum = turn(a, 1) + turn(b, 7) + turn(c, 12) + turn(d, 18);
  return add_rest(merge(merge(merge(merge(sum, a), b), c), d) + all, p, n);
}
