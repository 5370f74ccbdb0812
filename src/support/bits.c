// Bit sets: what is not inline in the header.
#include "support/bits.h"

static int words_of(int n) { return (n + 63) / 64; }

kiln_bits *kiln_bits_make(kiln_arena *arena, int n) {
  kiln_bits *b =
      kiln_arena_zalloc(arena, sizeof(kiln_bits) + (size_t)words_of(n) * sizeof(uint64_t));
  b->n = n;
  return b;
}

int kiln_bits_count(const kiln_bits *b) {
  int count = 0;
  for (int i = 0; i < words_of(b->n); i++) count += __builtin_popcountll(b->words[i]);
  return count;
}
