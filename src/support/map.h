// The one hash map: 64-bit keys to 64-bit values, iterated in insertion order. Lives in an arena.
// Strings are interned to symbols first; pointers are cast to uintptr_t.
#ifndef KILN_SUPPORT_MAP_H
#define KILN_SUPPORT_MAP_H

#include "support/arena.h"

typedef struct kiln_map_entry {
  uint64_t key, value;
} kiln_map_entry;

typedef struct kiln_map {
  kiln_arena *arena;
  kiln_map_entry *entries; // [n], in insertion order
  int n, cap;
  int32_t *slots; // [n_slots], a power of two; -1 is empty; NULL while there are few entries
  int n_slots;
} kiln_map;

void kiln_map_init(kiln_map *m, kiln_arena *arena);
uint64_t *kiln_map_find(const kiln_map *m, uint64_t key);          // NULL if missing
uint64_t *kiln_map_put(kiln_map *m, uint64_t key, uint64_t value); // inserts or overwrites
uint64_t kiln_hash_bytes(const void *bytes, size_t n, uint64_t seed);

#endif
