// Growth of the typed vector by doubling. Under AddressSanitizer each append to a short vector
// moves it and poisons the old memory, which exposes pointers kept across appends.
#include "support/vec.h"

#include "support/asan.h"

#include <string.h>

// Capacity for |n| elements, plus some if there are many.
static int64_t tight(int64_t n) {
  enum { FEW = 64 };
  return n <= FEW ? n : n + n / 8;
}

void *kiln_vec_grow(kiln_arena *arena, void *data, int n, int *cap, int extra, size_t elem_bytes) {
  if (extra <= *cap - n) return data;
  const int64_t want = (int64_t)n + extra;
  int64_t grown = KILN_HAS_ASAN ? tight(want) : *cap < 8 ? 8 : (int64_t)*cap * 2;
  if (grown < want) grown = want;
  // More than INT_MAX elements: calls the arena's out-of-memory handler
  const bool too_many = grown > INT32_MAX;
  void *copy = kiln_arena_alloc(arena, too_many ? SIZE_MAX : (size_t)grown * elem_bytes);
  if (n > 0) memcpy(copy, data, (size_t)n * elem_bytes);
  if (data) KILN_POISON(data, (size_t)*cap * elem_bytes);
  *cap = (int)grown;
  return copy;
}
