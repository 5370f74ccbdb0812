// The hash map: entries in insertion order, found through open-addressed slots that hold their
// indices. While there are few entries, as in most maps, they are searched linearly. There is no
// removal. Under AddressSanitizer each insertion into a small map reallocates it, like appending to
// a vector.
#include "support/map.h"

#include "support/asan.h"

#include <string.h>

enum { FEW = 8, MOVES = KILN_HAS_ASAN ? 2 * FEW : 0 };

void kiln_map_init(kiln_map *m, kiln_arena *arena) { *m = (kiln_map){.arena = arena}; }

// The finalizer of SplitMix64: every bit of the key affects the low bits.
static uint64_t mix(uint64_t x) {
  x ^= x >> 30;
  x *= UINT64_C(0xbf58476d1ce4e5b9);
  x ^= x >> 27;
  x *= UINT64_C(0x94d049bb133111eb);
  return x ^ x >> 31;
}

// The slot of |key|, or the empty slot for it.
static int32_t *slot_of(const kiln_map *m, uint64_t key) {
  const uint64_t mask = (uint64_t)m->n_slots - 1;
  for (uint64_t i = mix(key) & mask;; i = (i + 1) & mask) {
    if (m->slots[i] < 0 || m->entries[m->slots[i]].key == key) return &m->slots[i];
  }
}

uint64_t *kiln_map_find(const kiln_map *m, uint64_t key) {
  if (m->cap <= FEW) {
    for (int i = 0; i < m->n; i++)
      if (m->entries[i].key == key) return &m->entries[i].value;
    return NULL;
  }
  const int32_t *slot = slot_of(m, key);
  return *slot < 0 ? NULL : &m->entries[*slot].value;
}

// Allocates both arrays before changing the map, so that a failed allocation leaves it consistent.
static void grow(kiln_map *m) {
  const int cap = m->n < m->cap ? m->cap : m->cap ? m->cap * 2 : FEW;
  kiln_map_entry *entries = kiln_arena_alloc(m->arena, (size_t)cap * sizeof(*entries));
  int32_t *slots = cap > FEW ? kiln_arena_alloc(m->arena, (size_t)cap * 2 * sizeof(*slots)) : NULL;
  if (m->n > 0) memcpy(entries, m->entries, (size_t)m->n * sizeof(*entries));
  if (m->entries) KILN_POISON(m->entries, (size_t)m->cap * sizeof(*entries));
  if (m->slots) KILN_POISON(m->slots, (size_t)m->n_slots * sizeof(*slots));
  m->entries = entries;
  m->slots = slots;
  m->cap = cap;
  if (!slots) return;
  memset(slots, 0xff, (size_t)cap * 2 * sizeof(*slots));
  m->n_slots = cap * 2;
  for (int i = 0; i < m->n; i++) *slot_of(m, entries[i].key) = i;
}

static uint64_t *put_new(kiln_map *m, uint64_t key, uint64_t value) {
  m->entries[m->n] = (kiln_map_entry){key, value};
  return &m->entries[m->n++].value;
}

static uint64_t *overwrite(uint64_t *old, uint64_t value) {
  *old = value;
  return old;
}

uint64_t *kiln_map_put(kiln_map *m, uint64_t key, uint64_t value) {
  if (m->cap <= FEW) {
    uint64_t *old = kiln_map_find(m, key);
    if (old) return overwrite(old, value);
  } else {
    int32_t *slot = slot_of(m, key);
    if (*slot >= 0) return overwrite(&m->entries[*slot].value, value);
    if (m->n < m->cap) {
      *slot = m->n;
      return put_new(m, key, value);
    }
  }
  if (m->n == m->cap || m->n < MOVES) grow(m);
  if (m->slots) *slot_of(m, key) = m->n;
  return put_new(m, key, value);
}

uint64_t kiln_hash_bytes(const void *bytes, size_t n, uint64_t seed) {
  const unsigned char *p = bytes;
  uint64_t h = mix(seed ^ n);
  for (; n >= 8; n -= 8, p += 8) {
    uint64_t word;
    memcpy(&word, p, 8);
    h = mix(h ^ word) + UINT64_C(0x9e3779b97f4a7c15);
  }
  uint64_t rest = 0;
  if (n > 0) memcpy(&rest, p, n);
  return mix(h ^ rest);
}
