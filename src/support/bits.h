// Fixed-size bit sets in an arena.
#ifndef KILN_SUPPORT_BITS_H
#define KILN_SUPPORT_BITS_H

#include "support/map.h"
#include "support/vec.h"

typedef struct kiln_bits {
  int n; // bits
  uint64_t words[];
} kiln_bits;

kiln_bits *kiln_bits_make(kiln_arena *arena, int n); // empty
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
kiln_bits *kiln_bits_copy(kiln_arena *arena, const kiln_bits *b);

// Both sets must have the same size.
bool kiln_bits_equal(const kiln_bits *a, const kiln_bits *b);
bool kiln_bits_is_subset(const kiln_bits *a, const kiln_bits *of);
bool kiln_bits_meet(const kiln_bits *a, const kiln_bits *b); // whether they intersect
void kiln_bits_add(kiln_bits *io, const kiln_bits *b);       // union
void kiln_bits_keep(kiln_bits *io, const kiln_bits *b);      // intersection
void kiln_bits_remove(kiln_bits *io, const kiln_bits *b);    // difference
int kiln_bits_next(const kiln_bits *b, int from); // the least element >= |from|; -1: none

// A set of bit sets, numbered from 0 in order of insertion.
typedef struct kiln_bits_table {
  kiln_arena *arena;
  KILN_VEC(kiln_bits *) sets; // in order of insertion
  KILN_VEC(int) next;         // [sets] previous set with the same hash; -1: none
  kiln_map first;             // hash -> latest set with it
} kiln_bits_table;
void kiln_bits_table_init(kiln_bits_table *t, kiln_arena *arena);
int kiln_bits_table_find(const kiln_bits_table *t, const kiln_bits *b); // its number; -1: not found
// Adds a copy of |b| unless an equal set is present.
//
// gives: its number; *out_is_new
int kiln_bits_table_add(kiln_bits_table *t, const kiln_bits *b, bool *out_is_new);

#endif
