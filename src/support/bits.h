// Fixed-size bit sets in an arena.
#ifndef KILN_SUPPORT_BITS_H
#define KILN_SUPPORT_BITS_H

#include "support/arena.h"

typedef struct kiln_bits {
  int n; // bits
  uint64_t words[];
} kiln_bits;

kiln_bits *kiln_bits_make(kiln_arena *arena, int n); // all clear
static inline void kiln_bits_set(kiln_bits *b, int i) {
  b->words[i >> 6] |= UINT64_C(1) << (i & 63);
}
static inline void kiln_bits_clear(kiln_bits *b, int i) {
  b->words[i >> 6] &= ~(UINT64_C(1) << (i & 63));
}
static inline bool kiln_bits_has(const kiln_bits *b, int i) {
  return b->words[i >> 6] >> (i & 63) & 1;
}
int kiln_bits_count(const kiln_bits *b);

#endif
