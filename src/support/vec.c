// Growth of the typed vector: doubling copies in an arena.
#include "support/vec.h"

#include <string.h>

void *kiln_vec_grow(kiln_arena *arena, void *data, int n, int *cap, int extra, size_t elem_bytes) {
  if (extra <= *cap - n) return data;
  int64_t want = (int64_t)n + extra, grown = *cap < 8 ? 8 : (int64_t)*cap * 2;
  if (grown < want) grown = want;
  // More elements than an int counts cannot be held: the arena takes the door on such a size.
  const bool too_many = grown > INT32_MAX;
  void *copy = kiln_arena_alloc(arena, too_many ? SIZE_MAX : (size_t)grown * elem_bytes);
  if (n > 0) memcpy(copy, data, (size_t)n * elem_bytes);
  *cap = (int)grown;
  return copy;
}
