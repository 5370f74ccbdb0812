// Bit sets: functions that are not inline.
#include "support/bits.h"

#include <string.h>

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

static size_t bytes_of(int n) { return (size_t)words_of(n) * sizeof(uint64_t); }

kiln_bits *kiln_bits_copy(kiln_arena *arena, const kiln_bits *b) {
  kiln_bits *copy = kiln_bits_make(arena, b->n);
  memcpy(copy->words, b->words, bytes_of(b->n));
  return copy;
}

bool kiln_bits_equal(const kiln_bits *a, const kiln_bits *b) {
  return memcmp(a->words, b->words, bytes_of(a->n)) == 0;
}

bool kiln_bits_is_subset(const kiln_bits *a, const kiln_bits *of) {
  for (int i = 0; i < words_of(a->n); i++)
    if (a->words[i] & ~of->words[i]) return false;
  return true;
}

bool kiln_bits_meet(const kiln_bits *a, const kiln_bits *b) {
  for (int i = 0; i < words_of(a->n); i++)
    if (a->words[i] & b->words[i]) return true;
  return false;
}

void kiln_bits_add(kiln_bits *io, const kiln_bits *b) {
  for (int i = 0; i < words_of(io->n); i++) io->words[i] |= b->words[i];
}

void kiln_bits_keep(kiln_bits *io, const kiln_bits *b) {
  for (int i = 0; i < words_of(io->n); i++) io->words[i] &= b->words[i];
}

void kiln_bits_remove(kiln_bits *io, const kiln_bits *b) {
  for (int i = 0; i < words_of(io->n); i++) io->words[i] &= ~b->words[i];
}

static uint64_t hash_of(const kiln_bits *b) { return kiln_hash_bytes(b->words, bytes_of(b->n), 0); }

int kiln_bits_next(const kiln_bits *b, int from) {
  for (int w = from >> 6; w < words_of(b->n); w++) {
    const uint64_t rest = w == from >> 6 ? b->words[w] >> (from & 63) << (from & 63) : b->words[w];
    if (rest) return w * 64 + __builtin_ctzll(rest);
  }
  return -1;
}

void kiln_bits_table_init(kiln_bits_table *t, kiln_arena *arena) {
  *t = (kiln_bits_table){.arena = arena};
  kiln_map_init(&t->first, arena);
}

int kiln_bits_table_find(const kiln_bits_table *t, const kiln_bits *b) {
  const uint64_t *first = kiln_map_find(&t->first, hash_of(b));
  int at = first ? (int)*first : -1;
  while (at >= 0 && !kiln_bits_equal(t->sets.data[at], b)) at = t->next.data[at];
  return at;
}

int kiln_bits_table_add(kiln_bits_table *t, const kiln_bits *b, bool *out_is_new) {
  const int known = kiln_bits_table_find(t, b), n = t->sets.n;
  const uint64_t hash = hash_of(b), *first = kiln_map_find(&t->first, hash);
  *out_is_new = known < 0;
  if (known >= 0) return known;
  KILN_VEC_PUSH(t->arena, &t->next, first ? (int)*first : -1);
  KILN_VEC_PUSH(t->arena, &t->sets, kiln_bits_copy(t->arena, b));
  kiln_map_put(&t->first, hash, (uint64_t)n);
  return n;
}
